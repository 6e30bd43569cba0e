/* cli/device_reply.h: one device of an attached process, as its agent answers `info`, `clear` and `fraction`, and
 * what NVML knows of it. */
#ifndef NEAP_CLI_DEVICE_REPLY_H
#define NEAP_CLI_DEVICE_REPLY_H

#include "device/monitor.h"
#include "proto/device_answer.h"

struct json_t;

struct device_reply {
	struct neap_device_answer answer;
	bool index_known;
	size_t index;      /* NVML's, found by UUID: the number that `neap info` shows */
	uint64_t free_now; /* NVML's, after the answer was read; NEAP_BYTES_UNKNOWN: not asked, or it did not say */
};

/* As neap_device_answer_read. `monitor`: NULL when there is no NVML. */
enum neap_status device_reply_read(const struct neap_fields *reply, size_t n, unsigned needed,
				   struct neap_monitor *monitor, struct device_reply *ret_device);

/* "GPU 1: NAME", or, when NVML does not know it, "CUDA device 0: NAME". */
void device_reply_print_title(const struct device_reply *device);

/* Ordinal, index, name and the figures that are shown of such an answer (NEAP_SHOWN_*). */
struct json_t *device_reply_json(const struct device_reply *device, unsigned shown);

#endif
