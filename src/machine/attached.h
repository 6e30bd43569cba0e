/* machine/attached.h: sends requests to one attached process, which may be stopped, end meanwhile, or not answer, and
 * reads what it answers. One thread. */
#ifndef NEAP_MACHINE_ATTACHED_H
#define NEAP_MACHINE_ATTACHED_H

#include "device/monitor.h"
#include "proto/client.h"
#include "proto/device_answer.h"

#include <sys/types.h>

struct json_t;

/* The time in which a process must answer: for connecting and all calls of its client together. */
#define NEAP_ATTACHED_BOUND_S 30

/* As neap_client_open; if the process is not attached, the message says what that means and what to do. A process
 * that is stopped (by a signal or a debugger) cannot answer: with `ret_stopped` it is still opened, for
 * neap_client_post; without, the call fails at once with NEAP_ETIMEDOUT and sends nothing. */
enum neap_status neap_attached_open(const char *runtime_folder, pid_t pid, struct neap_client *ret_client,
				    bool *ret_stopped, struct neap_error *err);

/* As neap_client_call, but NEAP_ENOENT if the process ends instead of answering. Closing the client withdraws a
 * request that the process has not begun within NEAP_ATTACHED_BOUND_S. */
enum neap_status neap_attached_call(struct neap_client *client, enum neap_request request, const void *arguments,
				    size_t length, struct neap_fields *ret_reply, struct neap_error *err);

/* Translates the agent's status of a device that refused its part of a request. NEAP_ESTATE, a graph capture at that
 * moment, becomes NEAP_EBUSY: retry. */
enum neap_status neap_attached_device_status(uint64_t answered);

/* One device in the answer to `info`, `clear` and `fraction`, with NVML's data of that device. */
struct neap_device_reply {
	struct neap_device_answer answer;
	bool index_known;
	size_t index;      /* NVML's, found by UUID: the number that `neap info` shows */
	uint64_t free_now; /* NVML's, read after the answer; NEAP_BYTES_UNKNOWN: not read, or not reported */
};

/* As neap_device_answer_read. `monitor`: NULL when there is no NVML. */
enum neap_status neap_device_reply_read(const struct neap_fields *reply, size_t n, unsigned needed,
					struct neap_monitor *monitor, struct neap_device_reply *ret_device);

/* The JSON of a device: ordinal, index, name and the figures in `shown` (NEAP_SHOWN_*). */
struct json_t *neap_device_reply_json(const struct neap_device_reply *device, unsigned shown);

#endif
