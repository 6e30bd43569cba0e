/* cli/device_reply.h: one device of an attached process, as its agent answers `clear`, `reset` and `fraction`. */
#ifndef NEAP_CLI_DEVICE_REPLY_H
#define NEAP_CLI_DEVICE_REPLY_H

#include "device/monitor.h"
#include "proto/commands.h"
#include "proto/fields.h"

#define DEVICE_REPLY_LINE 512

/* A value that the agent did not send is 0, free bytes NEAP_BYTES_UNKNOWN. */
struct device_reply {
	unsigned char uuid[16];
	char name[96];
	uint64_t ordinal; /* CUDA's, in the process that answered */
	bool index_known;
	size_t index; /* NVML's, found by UUID: the number that `neap info` shows */
	uint64_t total, limit_before, limit, allocated, reserved, max_allocated, max_reserved;
	uint64_t allocated_before, reserved_before, reserved_now, emptied, freed, nanoseconds;
	uint64_t free_before, free;
	uint64_t free_now; /* as NVML says after the answer was read; NEAP_BYTES_UNKNOWN: not asked, or it did not say
			    */
	uint64_t status;   /* enum neap_status of its part */
	char error[200];
};

/* The `n`th device of a reply. `needed`: fields without which it is malformed. `monitor`: NULL when there is no NVML.
 * Errors: NEAP_ENOENT when there are no more; NEAP_EPROTO. */
enum neap_status device_reply_read(const struct neap_fields *reply, size_t n, const unsigned *needed,
				   size_t needed_count, struct neap_monitor *monitor,
				   struct device_reply *ret_device);

/* The `n`th line that the program itself has to say in a reply, as it came. False when there are no more. */
bool device_reply_line(const struct neap_fields *reply, size_t n, char ret_line[DEVICE_REPLY_LINE]);

/* "GPU 1: NAME", or, when NVML does not know it, "CUDA device 0: NAME". */
void device_reply_print_title(const struct device_reply *device);

#endif
