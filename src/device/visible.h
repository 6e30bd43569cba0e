/* device/visible.h: finds which device is CUDA's first, for a process that must not use CUDA itself.
 *
 * CUDA's order is not NVML's (CUDA_DEVICE_ORDER, by default the fastest first), and CUDA_VISIBLE_DEVICES uses CUDA's
 * order. So an ordinal means nothing to NVML, but a UUID does. Only the driver knows. A child process asks it, makes
 * no context and exits: the caller gets neither threads nor memory of the driver's.
 */
#ifndef NEAP_DEVICE_VISIBLE_H
#define NEAP_DEVICE_VISIBLE_H

#include "neap/device.h"

/* Finds the UUID of CUDA's device 0, in this process's environment. Waits at most `limit_ns`, and 10 s more for the
 * child's end; a child that hangs in the driver is left behind, with no file of this process open. Errors:
 * NEAP_ENOTSUP when CUDA_VISIBLE_DEVICES names MIG instances (NVML's device figures do not separate their bytes);
 * NEAP_ENODEVICE when no device is visible; NEAP_ETIMEDOUT; those of neap_driver_open. */
enum neap_status neap_visible_first(enum neap_backend backend, uint64_t limit_ns, char ret_uuid_text[48],
				    struct neap_error *err);

#endif
