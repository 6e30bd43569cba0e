/* machine/device_reply.h: one device in an agent's answer to `info`, `clear` and `fraction`, with NVML's data of that
 * device. */
#ifndef NEAP_MACHINE_DEVICE_REPLY_H
#define NEAP_MACHINE_DEVICE_REPLY_H

#include "device/monitor.h"
#include "proto/device_answer.h"

struct json_t;

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
