/* sim/driver/world.h: the devices that processes share: one shared-memory file per user and world.
 *
 *   /dev/shm/neap-sim-UID-WORLD (else /tmp)
 *   +-----------------+------------------+--------------------------------------------+
 *   | header, mutex   | devices (fixed)  | slots: one per process, its use per device | shares
 *   +-----------------+------------------+--------------------------------------------+
 *
 * Invariants: only slots and shares record use, so
 *
 *   used(device) = sum over slots of memory + context, and over shares of their bytes   <=   total - reserved
 *
 * holds at whatever instant a process dies. A share is memory that several processes hold: it is charged once, until
 * the last of them is gone. A slot is alive exactly while a process (the owner, or a child that inherited its files)
 * holds the kernel's lock on the slot's byte of the file: a PID proves nothing. The memory of a dead process is
 * *draining* until release_delay has passed since its death was noticed.
 *
 * The last process to leave removes the file, unless memory is draining; then the next process that looks removes it.
 *
 * Threads: any thread may use a struct sim_world; a view belongs to its caller.
 */
#ifndef NEAP_SIM_WORLD_H
#define NEAP_SIM_WORLD_H

#include "sim/profiles/profile.h"

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
	uint64_t used_bytes;     /* memory + contexts, including draining */
	uint64_t draining_bytes; /* the part of used whose processes are gone */
	uint64_t context_bytes;  /* cost of a new process's context */
	int multiprocessors, compute_major, compute_minor;
};

struct sim_view_process {
	pid_t pid;
	char command[16];
	enum sim_slot_state state;
	bool hidden;            /* NEAP_SIM_HIDDEN=1: NVML does not list it */
	uint64_t start_ticks;   /* see sim_view_present */
	uint64_t drain_left_ns; /* DRAINING only */
	uint64_t memory_bytes[SIM_DEVICE_LIMIT], context_bytes[SIM_DEVICE_LIMIT];
};

struct sim_view {
	char world[SIM_WORLD_CAPACITY];
	bool exists; /* false: no process is in it, and the rest is what the spec would create */
	uint64_t release_delay_ns;
	uint32_t device_count;
	struct sim_view_device devices[SIM_DEVICE_LIMIT];
	size_t process_count;
	struct sim_view_process processes[SIM_SLOT_LIMIT];
};

/* Reads a world without entering it; takes no slot and no memory. Notices deaths and ended drains. Errors:
 * NEAP_EPERM, NEAP_EIO, and NEAP_EINVAL for a file that is not a world of this layout or that contradicts the spec. A
 * file that its creator has not filled yet counts as missing. */
enum neap_status sim_world_read(const struct sim_spec *spec, struct sim_view *ret_view, struct neap_error *err);

#define SIM_EVERY_DEVICE UINT32_MAX

/* For repeated reads of one world: keeps its file mapped in between. Zeroed: not mapped yet. One thread at a time. */
struct sim_watch {
	char path[128];
	void *mapped;
	dev_t device;
	ino_t inode;
};

/* As sim_world_read, but fills in the used memory and the processes only of `devices` (one bit each). It fills in the
 * constants of all devices. It does not notice the deaths of processes that use only other devices. */
enum neap_status sim_watch_read(struct sim_watch *watch, const struct sim_spec *spec, uint32_t devices,
				struct sim_view *ret_view, struct neap_error *err);
void sim_watch_fini(struct sim_watch *watch);

/* Whether the process itself exists, by /proc. If it does not but is ALIVE, a child of it holds the memory. */
bool sim_view_present(const struct sim_view_process *process);

/* Calls `visit` with the name of each of this user's worlds, until it returns false. */
enum neap_status sim_world_each(bool (*visit)(void *context, const char *world), void *context,
				struct neap_error *err);

/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" */
void sim_uuid_format(const unsigned char uuid[16], char text[48]);

/* Entering: for libcuda. */

struct sim_world;

enum sim_charge {
	SIM_CHARGE_MEMORY,
	SIM_CHARGE_CONTEXT,
};

/* Enters as a process. Creates the world if it is missing; replaces it if it is empty and contradicts the spec.
 * Errors: NEAP_EBUSY if it contradicts the spec and is in use, or every slot is taken; those of sim_world_read. */
enum neap_status sim_world_join(const struct sim_spec *spec, bool hidden, struct sim_world **ret_world,
				struct neap_error *err);
/* Leaves the world: memory that is still charged starts to drain. Destroys `world`; NULL is fine. */
void sim_world_leave(struct sim_world *world);

/* Charges bytes to this process. NEAP_EOOM if the device has fewer left. */
enum neap_status sim_world_charge(struct sim_world *world, uint32_t device, enum sim_charge what, uint64_t bytes);
void sim_world_refund(struct sim_world *world, uint32_t device, enum sim_charge what, uint64_t bytes);
uint64_t sim_world_free_bytes(struct sim_world *world, uint32_t device);

/* Turns `bytes` of this process's charge on the device into a share that it holds. NEAP_ENOMEM: SIM_SHARE_LIMIT. */
enum neap_status sim_world_share(struct sim_world *world, uint32_t device, uint64_t bytes, uint64_t *ret_share);
/* Makes this process a holder too. NEAP_ENOENT: no process holds it any more. */
enum neap_status sim_world_share_join(struct sim_world *world, uint64_t share, uint32_t *ret_device,
				      uint64_t *ret_bytes);
/* This process stops holding the share. True: no process holds it any more, and it is free. */
bool sim_world_share_leave(struct sim_world *world, uint64_t share);

uint32_t sim_world_device_count(const struct sim_world *world);
/* The constants of a device: name, uuid, PCI, total, reserved, context, compute. The rest is zero. */
void sim_world_device(const struct sim_world *world, uint32_t device, struct sim_view_device *ret_device);

/* For tests: the world's mutex. A holder may die; the next one recovers it. */
enum neap_status sim_world_lock(struct sim_world *world);
void sim_world_unlock(struct sim_world *world);

#endif
