/* sim/driver/world_layout.h: a world's file, for world.c (enters it) and world_read.c (only reads it). The
 * layout is fixed by WORLD_LAYOUT: change one, change the other. */
#ifndef NEAP_SIM_WORLD_LAYOUT_H
#define NEAP_SIM_WORLD_LAYOUT_H

#include "sim/driver/world.h"

#include <pthread.h>
#include <sys/stat.h>

#define WORLD_MAGIC  0x646c726f7770656eull /* "nepworld" */
#define WORLD_LAYOUT 2u

struct device_state {
	uint64_t total, reserved, context;
	char name[96];
	unsigned char uuid[16];
	int32_t multiprocessors, compute_major, compute_minor, pad;
};

struct slot {
	uint32_t state; /* enum sim_slot_state; stored last */
	uint32_t hidden;
	int32_t pid;
	uint32_t pad;
	uint64_t start_ticks;
	uint64_t drain_until_ns; /* CLOCK_MONOTONIC */
	char command[16];
	uint64_t use[SIM_DEVICE_LIMIT][2]; /* by enum sim_charge */
};

/* Memory that one process shared with others. The device is charged for it once, and no process is. */
struct share {
	uint64_t id; /* never reused; 0: free. Stored last */
	uint64_t bytes;
	/* The slots that hold it, as bits, draining ones too; if there are none, the share is free. */
	uint64_t holders[SIM_SLOT_LIMIT / 64];
	uint32_t device, owner; /* owner: the slot that it counts for, while that slot holds it */
};

struct shared {
	uint64_t magic; /* stored last */
	uint32_t layout, bytes;
	pthread_mutex_t mutex;
	uint64_t release_delay_ns;
	uint32_t device_count, pad;
	struct device_state devices[SIM_DEVICE_LIMIT];
	struct slot slots[SIM_SLOT_LIMIT];
	uint64_t share_ids;                      /* given out so far */
	uint64_t shared_bytes[SIM_DEVICE_LIMIT]; /* the sums over `shares`; counted again after a process has died */
	uint32_t share_end, share_pad;           /* one more than the last index in use */
	struct share shares[SIM_SHARE_LIMIT];
};

struct sim_world {
	int fd;
	int own_slot; /* -1: it only reads */
	struct shared *shared;
	char path[128];
	struct stat file; /* as it was when flock was taken */
};

/* Returns the folder of the worlds' files. */
const char *sim_world_folder(void);
void sim_world_name(struct sim_world *world, const char *name);
/* Opens the file and takes flock on it. NEAP_ENOENT without `create`. */
enum neap_status sim_world_open(struct sim_world *world, bool create, struct neap_error *err);
enum neap_status sim_world_map(struct sim_world *world, struct neap_error *err);
bool sim_world_sized(const struct sim_world *world);
/* Also releases flock. */
void sim_world_close(struct sim_world *world);
/* flock held, mutex not: removes the file if no process is in it and nothing drains. */
void sim_world_remove_if_empty(struct sim_world *world);
/* True if another process holds the life lock of this slot, or of any (-1). */
bool sim_world_life_held(int fd, int slot);

/* Whether the contents of the file are valid. */
bool sim_world_valid(const struct shared *shared);
/* NULL if the world matches the spec, else what differs. */
const char *sim_world_contradiction(const struct shared *shared, const struct sim_spec *spec);
/* Fills the file from the spec, without a process. */
enum neap_status sim_world_fill(struct shared *shared, const struct sim_spec *spec, struct neap_error *err);
void sim_world_fill_device(const struct sim_spec *spec, uint32_t index, struct device_state *ret_device);
/* Notices dead processes and ended drains. Mutex held. */
void sim_world_settle(struct sim_world *world);
/* The same, but only for processes that concern these devices (one bit each); 0: for none. */
void sim_world_settle_devices(struct sim_world *world, uint32_t devices);
/* Whether the process uses one of these devices, or none at all. */
bool sim_world_slot_concerns(const struct shared *shared, const struct slot *slot, uint32_t devices);
uint64_t sim_world_used(const struct shared *shared, uint32_t device);
/* Shares, in world_share.c, with the mutex held. The functions remove a released slot from all shares, return whether
 * a slot holds any, and compute shared_bytes again. */
void sim_world_shares_release(struct shared *shared, int slot);
bool sim_world_shares_held(const struct shared *shared, int slot);
void sim_world_shares_count(struct shared *shared);
/* The slot that a share counts for. */
int sim_world_share_slot(const struct share *share);
/* The free bytes of the device. */
uint64_t sim_world_unreserved(const struct shared *shared, uint32_t device);

#endif
