/* device/visible.h: which device is CUDA's first, for a process that must not use CUDA itself.
 *
 * CUDA's order is not NVML's (CUDA_DEVICE_ORDER, by default the fastest first), and CUDA_VISIBLE_DEVICES counts in
 * it: so an ordinal says nothing to NVML, a UUID does. Only the driver knows. It is asked in a child process, which
 * makes no context and is gone afterwards: the caller has neither threads nor memory of the driver's from it.
 */
#ifndef NEAP_DEVICE_VISIBLE_H
#define NEAP_DEVICE_VISIBLE_H

#include "neap/device.h"

#include <stdbool.h>

/* The UUID text of CUDA's device 0, under this process's environment. Waits at most `limit_ns`, and 10 s more for
 * the child's end; one that hangs in the driver is left behind, with no file of this process's open. Errors: NEAP_ENOTSUP
 * when CUDA_VISIBLE_DEVICES names MIG instances (their bytes are not told apart by NVML's device figures);
 * NEAP_ENODEVICE when no device is visible; NEAP_ETIMEDOUT; those of neap_driver_open. */
enum neap_status neap_visible_first(enum neap_backend backend, uint64_t limit_ns, char ret_uuid_text[48],
				    struct neap_error *err);

/* Whether a list as of CUDA_VISIBLE_DEVICES (NULL: none) names a MIG instance. */
bool neap_visible_names_mig(const char *list);

#endif
