/* sim/driver/race_watch.h: reports this process's streams, events and graphs to races.h. Until it is started (struct
 * neap_sim_races), each of these functions is one load. */
#ifndef NEAP_SIM_RACE_WATCH_H
#define NEAP_SIM_RACE_WATCH_H

#include "device/cuda_api.h"

#include "neap/sim.h"

#include <stdbool.h>
#include <stdint.h>

struct race_recording; /* what captured work uses; shared by a graph and its copies */

extern const struct neap_sim_races race_watch_calls;

void race_watch_recorded(CUevent event, CUstream stream);
void race_watch_waited(CUstream stream, CUevent event);
void race_watch_host_event(CUevent event);
void race_watch_host_stream(CUstream stream);
void race_watch_host_device(uint32_t device);
/* Called for a finished event. Returns whether the caller may know that it is finished: sim_races_asked. */
bool race_watch_asked(CUevent event);
bool race_watch_asked_stream(CUstream stream);
/* Runs late work before the driver itself does the work after it. */
void race_watch_settle(CUstream stream);
void race_watch_settle_all(void);
void race_watch_event_gone(CUevent event);
void race_watch_stream_gone(CUstream stream);

/* Launches of one executable graph come one after another, also on different streams. */
void race_watch_launch_begins(const void *executable, CUstream stream);
void race_watch_replayed(const struct race_recording *recording, CUstream stream);
void race_watch_launch_ends(const void *executable, CUstream stream);
void race_watch_executable_gone(const void *executable);

/* NULL is fine. Lock held. */
struct race_recording *race_recording_keep(struct race_recording *recording);
void race_recording_release(struct race_recording *recording);

#endif
