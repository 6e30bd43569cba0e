/* sim/world.h: the devices that processes share: one shared-memory file per user and world.
 *
 *   /dev/shm/neap-sim-UID-WORLD (else /tmp)
 *   +-----------------+------------------+--------------------------------------------+
 *   | header, mutex   | devices (fixed)  | slots: one per process, its use per device | shares
 *   +-----------------+------------------+--------------------------------------------+
 *
 * Invariants: nothing but slots and shares says what is in use, so
 *
 *   used(device) = sum over slots of memory + context, and over shares of their bytes   <=   total - reserved
 *
 * holds whatever instant a process dies at. A share is memory that processes hold in common: it is charged once,
 * until the last of them is gone. A slot is alive exactly while someone holds the kernel's lock on its byte of the
 * file (a process, or a child that inherited its files): a PID proves nothing. What a dead process used is *draining*
 * until release_delay has passed since its death was noticed.
 *
 * The last one to leave removes the file, unless memory is draining; then whoever looks next does.
 *
 * Threads: a struct sim_world is any thread's; a look is its caller's.
 */
#ifndef NEAP_SIM_WORLD_H
#define NEAP_SIM_WORLD_H

#include "sim/profile.h"

#include <sys/types.h>

#define SIM_SLOT_LIMIT  128
#define SIM_SHARE_LIMIT 8192 /* allocations shared between processes, in a world */

/* Reading: for NVML and for `neap sim inspect`. */

enum sim_slot_state {
	SIM_SLOT_FREE = 0,
	SIM_SLOT_ALIVE = 1,
	SIM_SLOT_DRAINING = 2,
};

struct sim_view_device {
	char name[96];
	unsigned char uuid[16];
	char pci_bus_id[32];
	uint64_t total_bytes, reserved_bytes, free_bytes;
	uint64_t used_bytes;     /* memory + contexts, draining included */
	uint64_t draining_bytes; /* of used: of processes that are gone */
	uint64_t context_bytes;  /* what a new process's context takes */
	int multiprocessors, compute_major, compute_minor;
};

struct sim_view_process {
	pid_t pid;
	char command[16];
	enum sim_slot_state state;
	bool hidden;            /* NEAP_SIM_HIDDEN=1: NVML does not list it */
	bool present;           /* the process itself is there; false with ALIVE: a child of it holds the memory */
	uint64_t drain_left_ns; /* DRAINING only */
	uint64_t memory_bytes[SIM_DEVICE_LIMIT], context_bytes[SIM_DEVICE_LIMIT];
};

struct sim_view {
	char world[SIM_WORLD_ROOM];
	bool exists; /* false: no process is in it, and the rest is as the spec would make it */
	uint64_t release_delay_ns;
	uint32_t device_count;
	struct sim_view_device devices[SIM_DEVICE_LIMIT];
	size_t process_count;
	struct sim_view_process processes[SIM_SLOT_LIMIT];
};

/* Looks at a world without entering it; takes nothing, counts as no process. Notices deaths and ended drains. Errors:
 * NEAP_EPERM, NEAP_EIO, and NEAP_EINVAL for a file that is no world of this layout or that contradicts the spec. One
 * that its maker has not filled yet is not there yet. */
enum neap_status sim_world_look(const struct sim_spec *spec, struct sim_view *ret_view, struct neap_error *err);

/* Calls `visit` with the name of each of this user's worlds, until it returns false. */
enum neap_status sim_world_each(bool (*visit)(void *context, const char *world), void *context,
				struct neap_error *err);

/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" */
void sim_uuid_format(const unsigned char uuid[16], char text[48]);

/* Taking part: for libcuda. */

struct sim_world;

enum sim_charge {
	SIM_CHARGE_MEMORY,
	SIM_CHARGE_CONTEXT,
};

/* Enters as a process, making the world where it is not there or where nobody is in it and it contradicts the spec.
 * Errors: NEAP_EBUSY when it contradicts the spec and somebody is in it, or every slot is taken; as sim_world_look.
 */
enum neap_status sim_world_join(const struct sim_spec *spec, bool hidden, struct sim_world **ret_world,
				struct neap_error *err);
/* What is still charged drains. Destroys `world`; NULL is fine. */
void sim_world_leave(struct sim_world *world);

/* NEAP_EOOM when the device has not that much left. */
enum neap_status sim_world_charge(struct sim_world *world, uint32_t device, enum sim_charge what, uint64_t bytes);
void sim_world_refund(struct sim_world *world, uint32_t device, enum sim_charge what, uint64_t bytes);
uint64_t sim_world_free_bytes(struct sim_world *world, uint32_t device);

/* Turns `bytes` of what this process is charged with on the device into a share, and makes it a holder. NEAP_ENOMEM:
 * SIM_SHARE_LIMIT. */
enum neap_status sim_world_share(struct sim_world *world, uint32_t device, uint64_t bytes, uint64_t *ret_share);
/* Makes this process a holder too. NEAP_ENOENT: nobody holds it any more. */
enum neap_status sim_world_share_join(struct sim_world *world, uint64_t share, uint32_t *ret_device,
				      uint64_t *ret_bytes);
/* This process holds it no more. True: nobody does, and it is free. */
bool sim_world_share_leave(struct sim_world *world, uint64_t share);

uint32_t sim_world_device_count(const struct sim_world *world);
/* What never changes of a device: name, uuid, PCI, total, reserved, context, compute. The rest is zero. */
void sim_world_device(const struct sim_world *world, uint32_t device, struct sim_view_device *ret_device);

/* For tests: the world's mutex. A holder may die; the next one recovers it. */
enum neap_status sim_world_lock(struct sim_world *world);
void sim_world_unlock(struct sim_world *world);

#endif
