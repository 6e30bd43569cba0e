/* sim/driver/race_watch.h: reports this process's streams, events and graphs to races.h. Until it is started (struct
 * neap_sim_races), each of these functions is one load. */
#ifndef NEAP_SIM_RACE_WATCH_H
#define NEAP_SIM_RACE_WATCH_H

#include "device/cuda_api.h"

#include "neap/sim.h"

#include <stdbool.h>
#include <stdint.h>

struct race_recording; /* the uses of memory by captured work; a graph and its copies share it */

extern const struct neap_sim_races race_watch_calls;

void race_watch_recorded(CUevent event, CUstream stream);
void race_watch_waited(CUstream stream, CUevent event);
void race_watch_host_event(CUevent event);
void race_watch_host_stream(CUstream stream);
void race_watch_host_device(uint32_t device);
/* Called when a query finds the event finished. Returns whether the caller may learn that: see sim_races_asked. */
bool race_watch_asked(CUevent event);
bool race_watch_asked_stream(CUstream stream);
/* Runs the late work before the stream's next work, because the driver itself does that work. */
void race_watch_settle(CUstream stream);
void race_watch_settle_all(void);
void race_watch_event_gone(CUevent event);
void race_watch_stream_gone(CUstream stream);

/* Called when a launch begins: launches of one executable graph run one after another, also on different streams. */
void race_watch_launch_begins(const void *executable, CUstream stream);
void race_watch_replayed(const struct race_recording *recording, CUstream stream);
void race_watch_launch_ends(const void *executable, CUstream stream);
void race_watch_executable_gone(const void *executable);

/* NULL is fine. Lock held. */
struct race_recording *race_recording_keep(struct race_recording *recording);
void race_recording_release(struct race_recording *recording);

#endif
