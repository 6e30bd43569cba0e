/* The world's file: its locks, its creation, and entering it.
 *
 * Two locks. A process holds flock(2) on the file while it creates, checks, enters or removes the file: so no process
 * enters a file that another is removing. The robust mutex inside guards the slots. Order: flock, then mutex. A
 * process that dies with the mutex leaves at worst one slot half changed. Every change is one 64-bit store or ends
 * with the store of `state`, and totals are sums over slots, so only the mutex itself needs repair.
 *
 * A slot's life is an open-file-description lock on byte LIFE_BASE + slot. Forked children inherit it, as they
 * inherit open device files: the memory of a dead process stays in use while a child lives, and NVML does not list
 * it.
 */
#include "sim/driver/world_layout.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIFE_BASE (1ll << 40) /* beyond the file's end: a lock needs no bytes there */

/* A world has the same UUIDs each time it is created, and no two worlds share one. */
static void make_uuid(const char *world, uint32_t index, unsigned char ret_uuid[16])
{
	uint64_t hash = 0xcbf29ce484222325ull ^ ((uint64_t)getuid() << 8) ^ index;
	size_t i;

	for (; *world; world++)
		hash = (hash ^ (unsigned char)*world) * 0x100000001b3ull;
	for (i = 0; i < 16; i++) {
		hash = (hash ^ (i + 1)) * 0x100000001b3ull;
		ret_uuid[i] = (unsigned char)(hash >> 40);
	}
	ret_uuid[6] = (unsigned char)((ret_uuid[6] & 0x0f) | 0x80);
	ret_uuid[8] = (unsigned char)((ret_uuid[8] & 0x3f) | 0x80);
}

const char *sim_world_folder(void) { return access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp"; }

void sim_world_fill_device(const struct sim_spec *spec, uint32_t index, struct device_state *ret_device)
{
	*ret_device = (struct device_state){
		.total = spec->total_bytes,
		.reserved = spec->reserved_bytes,
		.context = spec->context_bytes,
		.multiprocessors = spec->multiprocessors,
		.compute_major = spec->compute_major,
		.compute_minor = spec->compute_minor,
	};
	memcpy(ret_device->name, spec->gpu_name, sizeof ret_device->name);
	make_uuid(spec->world, index, ret_device->uuid);
}

/* Describes a lock on a slot's byte, or on all of them. */
static struct flock life_range(int slot, int kind)
{
	return (struct flock){.l_type = (short)kind,
			      .l_whence = SEEK_SET,
			      .l_start = LIFE_BASE + (slot < 0 ? 0 : slot),
			      .l_len = slot < 0 ? SIM_SLOT_LIMIT : 1};
}

/* Whether another process holds it. An error counts as held, so that memory is not freed by mistake. */
bool sim_world_life_held(int fd, int slot)
{
	struct flock range = life_range(slot, F_WRLCK);

	return fcntl(fd, F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK;
}

enum neap_status sim_world_lock(struct sim_world *world)
{
	int result = pthread_mutex_lock(&world->shared->mutex);

	if (result == EOWNERDEAD) {
		result = pthread_mutex_consistent(&world->shared->mutex);
		sim_world_shares_count(world->shared);
	}
	return result == 0 ? NEAP_OK : NEAP_EIO;
}

void sim_world_unlock(struct sim_world *world) { pthread_mutex_unlock(&world->shared->mutex); }

static uint64_t slot_bytes(const struct slot *slot)
{
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < SIM_DEVICE_LIMIT; i++)
		sum += slot->use[i][SIM_CHARGE_MEMORY] + slot->use[i][SIM_CHARGE_CONTEXT];
	return sum;
}

static void slot_release(struct shared *shared, struct slot *slot)
{
	sim_world_shares_release(shared, (int)(slot - shared->slots));
	__atomic_store_n(&slot->state, SIM_SLOT_FREE, __ATOMIC_RELEASE);
	memset(slot, 0, sizeof *slot);
}

static void slot_drain(struct shared *shared, struct slot *slot)
{
	uint64_t delay_ns = shared->release_delay_ns;

	if (delay_ns == 0 || (slot_bytes(slot) == 0 && !sim_world_shares_held(shared, (int)(slot - shared->slots)))) {
		slot_release(shared, slot);
		return;
	}
	slot->drain_until_ns = neap_clock_now(neap_clock_system()) + delay_ns;
	__atomic_store_n(&slot->state, SIM_SLOT_DRAINING, __ATOMIC_RELEASE);
}

bool sim_world_slot_concerns(const struct shared *shared, const struct slot *slot, uint32_t devices)
{
	uint32_t used = 0;

	/* A slot's use does not show the devices of its shares. */
	if (devices == SIM_EVERY_DEVICE || shared->share_end > 0)
		return true;
	for (uint32_t i = 0; i < SIM_DEVICE_LIMIT; i++)
		if (slot->use[i][SIM_CHARGE_MEMORY] || slot->use[i][SIM_CHARGE_CONTEXT])
			used |= 1u << i;
	return !used || (used & devices);
}

void sim_world_settle(struct sim_world *world) { sim_world_settle_devices(world, SIM_EVERY_DEVICE); }

void sim_world_settle_devices(struct sim_world *world, uint32_t devices)
{
	struct shared *shared = world->shared;
	uint64_t now = neap_clock_now(neap_clock_system());
	int i;

	for (i = 0; devices && i < SIM_SLOT_LIMIT; i++) {
		struct slot *slot = &shared->slots[i];

		if (i == world->own_slot || slot->state == SIM_SLOT_FREE ||
		    !sim_world_slot_concerns(shared, slot, devices))
			continue;
		if (slot->state == SIM_SLOT_ALIVE) {
			if (!sim_world_life_held(world->fd, i))
				slot_drain(shared, slot);
		} else if (slot->state != SIM_SLOT_DRAINING || now >= slot->drain_until_ns ||
			   slot->drain_until_ns - now > shared->release_delay_ns) {
			slot_release(shared, slot); /* drained, or invalid */
		}
	}
}

uint64_t sim_world_used(const struct shared *shared, uint32_t device)
{
	uint64_t used = shared->shared_bytes[device];
	size_t i;

	for (i = 0; i < SIM_SLOT_LIMIT; i++)
		if (shared->slots[i].state != SIM_SLOT_FREE)
			used += shared->slots[i].use[device][SIM_CHARGE_MEMORY] +
				shared->slots[i].use[device][SIM_CHARGE_CONTEXT];
	return used;
}

uint64_t sim_world_unreserved(const struct shared *shared, uint32_t device)
{
	uint64_t headroom = shared->devices[device].total - shared->devices[device].reserved;
	uint64_t used = sim_world_used(shared, device);

	return used < headroom ? headroom - used : 0;
}

bool sim_world_valid(const struct shared *shared)
{
	uint32_t i;

	if (shared->magic != WORLD_MAGIC || shared->layout != WORLD_LAYOUT || shared->bytes != sizeof *shared ||
	    shared->device_count < 1 || shared->device_count > SIM_DEVICE_LIMIT)
		return false;
	for (i = 0; i < shared->device_count; i++)
		if (shared->devices[i].total > SIM_MEMORY_LIMIT ||
		    shared->devices[i].reserved > shared->devices[i].total)
			return false;
	return true;
}

/* NULL if the world matches the spec, else what differs. */
const char *sim_world_contradiction(const struct shared *shared, const struct sim_spec *spec)
{
	if (spec->count_given && shared->device_count != spec->device_count)
		return "number of devices";
	if (spec->capacity_given && shared->devices[0].total != spec->total_bytes)
		return "memory of a device";
	if (spec->reserved_given && shared->devices[0].reserved != spec->reserved_bytes)
		return "reserved memory";
	if (spec->context_given && shared->devices[0].context != spec->context_bytes)
		return "cost of a context";
	if (spec->delay_given && shared->release_delay_ns != spec->release_delay_ns)
		return "release delay";
	return NULL;
}

enum neap_status sim_world_fill(struct shared *shared, const struct sim_spec *spec, struct neap_error *err)
{
	pthread_mutexattr_t attributes;
	uint32_t i;
	int result;

	memset(shared, 0, sizeof *shared);
	result = pthread_mutexattr_init(&attributes);
	if (result != 0)
		return neap_fail_errno(err, result, "simulated world '%s': mutex", spec->world);
	result = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	if (result == 0)
		result = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	if (result == 0)
		result = pthread_mutex_init(&shared->mutex, &attributes);
	pthread_mutexattr_destroy(&attributes);
	if (result != 0)
		return neap_fail_errno(err, result, "simulated world '%s': mutex", spec->world);
	shared->layout = WORLD_LAYOUT;
	shared->bytes = sizeof *shared;
	shared->release_delay_ns = spec->release_delay_ns;
	shared->device_count = spec->device_count;
	for (i = 0; i < spec->device_count; i++)
		sim_world_fill_device(spec, i, &shared->devices[i]);
	__atomic_store_n(&shared->magic, WORLD_MAGIC, __ATOMIC_RELEASE);
	return NEAP_OK;
}

void sim_world_close(struct sim_world *world)
{
	if (world->shared)
		munmap(world->shared, sizeof *world->shared);
	if (world->fd >= 0) {
		/* A child that was forked meanwhile shares the file description, and so the lock */
		flock(world->fd, LOCK_UN);
		close(world->fd);
	}
	world->shared = NULL;
	world->fd = -1;
}

/* True if `path` still names the open file. */
static bool still_there(const struct sim_world *world)
{
	struct stat named;

	return lstat(world->path, &named) == 0 && world->file.st_ino == named.st_ino &&
	       world->file.st_dev == named.st_dev;
}

/* Opens the file and takes flock on it; on NEAP_OK the caller releases it. NEAP_ENOENT without `create`. */
enum neap_status sim_world_open(struct sim_world *world, bool create, struct neap_error *err)
{
	int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0);
	struct stat info;

	for (;;) {
		world->fd = neap_fd_above_standard(open(world->path, flags, 0600));
		if (world->fd < 0)
			return neap_fail_errno(err, errno, "cannot open simulated world %s", world->path);
		if (fstat(world->fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid() ||
		    (info.st_mode & 077) != 0) {
			sim_world_close(world);
			return neap_fail(err, NEAP_EPERM, "%s is not a private file of this user: remove it",
					 world->path);
		}
		while (flock(world->fd, LOCK_EX) != 0) {
			if (errno == EINTR)
				continue;
			neap_fail_errno(err, errno, "cannot lock simulated world %s", world->path);
			sim_world_close(world);
			return NEAP_EIO;
		}
		if (fstat(world->fd, &world->file) == 0 && still_there(world))
			return NEAP_OK;
		sim_world_close(world); /* another process removed the file between open and lock */
	}
}

/* Maps the file through a file description of its own. The kernel keeps a dead process's mapping while another
 * process still reads that process through /proc. But a process that waited for its death must find its life lock
 * free. flock is held, so the path still names the file. */
enum neap_status sim_world_map(struct sim_world *world, struct neap_error *err)
{
	int fd = neap_fd_above_standard(open(world->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW));
	void *mapped = MAP_FAILED;
	int error_number = errno;

	if (fd >= 0) {
		mapped = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		error_number = errno;
		close(fd);
	}
	if (mapped == MAP_FAILED)
		return neap_fail_errno(err, error_number, "cannot map simulated world %s", world->path);
	world->shared = mapped;
	return NEAP_OK;
}

bool sim_world_sized(const struct sim_world *world) { return world->file.st_size == (off_t)sizeof(struct shared); }

/* flock held: turns the file into the spec's world, or fails with the reason. */
static enum neap_status prepare(struct sim_world *world, const struct sim_spec *spec, struct neap_error *err)
{
	bool sized = sim_world_sized(world), empty = !sim_world_life_held(world->fd, -1);
	const char *differs = "layout";
	enum neap_status status;

	if (!sized && !empty)
		return neap_fail(err, NEAP_EINVAL, "simulated world %s has another layout, and a process is in it",
				 world->path);
	if (!sized && (ftruncate(world->fd, 0) != 0 || ftruncate(world->fd, sizeof(struct shared)) != 0))
		return neap_fail_errno(err, errno, "cannot size simulated world %s", world->path);
	status = sim_world_map(world, err);
	if (status)
		return status;
	if (sim_world_valid(world->shared)) {
		differs = sim_world_contradiction(world->shared, spec);
		if (!differs)
			return NEAP_OK;
	}
	if (!empty)
		return neap_fail(
			err, NEAP_EBUSY,
			"simulated world '%s' exists with another %s, and a process is in it: end it, or choose "
			"another world=NAME",
			spec->world, differs);
	return sim_world_fill(world->shared, spec, err);
}

/* Mutex held. */
static enum neap_status claim(struct sim_world *world, bool hidden, struct neap_error *err)
{
	struct neap_process self = {.pid = getpid()};
	int i;

	sim_world_settle(world);
	(void)neap_process_read(getpid(), &self, NULL); /* without /proc, the start time and the name stay empty */
	for (i = 0; i < SIM_SLOT_LIMIT; i++) {
		struct slot *slot = &world->shared->slots[i];
		struct flock range = life_range(i, F_WRLCK);

		if (slot->state != SIM_SLOT_FREE || fcntl(world->fd, F_OFD_SETLK, &range) != 0)
			continue;
		memset(slot, 0, sizeof *slot);
		slot->hidden = hidden;
		slot->pid = getpid();
		slot->start_ticks = self.start_ticks;
		snprintf(slot->command, sizeof slot->command, "%.15s", self.command);
		__atomic_store_n(&slot->state, SIM_SLOT_ALIVE, __ATOMIC_RELEASE);
		world->own_slot = i;
		return NEAP_OK;
	}
	return neap_fail(err, NEAP_EBUSY, "simulated world %s is full: %d processes", world->path, SIM_SLOT_LIMIT);
}

void sim_world_name(struct sim_world *world, const char *name)
{
	snprintf(world->path, sizeof world->path, "%s/neap-sim-%lu-%s", sim_world_folder(), (unsigned long)geteuid(),
		 name);
}

/* flock held, mutex not: removes the file if no process is in it and nothing drains. */
void sim_world_remove_if_empty(struct sim_world *world)
{
	bool empty = true;
	int i;

	if (sim_world_lock(world) != NEAP_OK)
		return;
	sim_world_settle(world);
	for (i = 0; i < SIM_SLOT_LIMIT; i++)
		empty &= world->shared->slots[i].state == SIM_SLOT_FREE;
	sim_world_unlock(world);
	if (empty && still_there(world))
		unlink(world->path);
}

enum neap_status sim_world_join(const struct sim_spec *spec, bool hidden, struct sim_world **ret_world,
				struct neap_error *err)
{
	struct sim_world *world = calloc(1, sizeof *world);
	enum neap_status status;

	if (!world)
		return neap_fail(err, NEAP_ENOMEM, "simulated world '%s': host out of memory", spec->world);
	world->fd = world->own_slot = -1;
	sim_world_name(world, spec->world);
	status = sim_world_open(world, true, err);
	if (status)
		goto out;
	status = prepare(world, spec, err);
	if (status)
		goto out;
	if (sim_world_lock(world) != NEAP_OK) {
		status = neap_fail(err, NEAP_EIO, "simulated world %s: its mutex is broken; remove the file",
				   world->path);
		goto out;
	}
	status = claim(world, hidden, err);
	sim_world_unlock(world);
out:
	if (world->fd >= 0)
		flock(world->fd, LOCK_UN);
	if (!status) {
		*ret_world = world;
	} else {
		sim_world_close(world);
		free(world);
	}
	return status;
}

void sim_world_leave(struct sim_world *world)
{
	struct flock range;

	if (!world)
		return;
	if (sim_world_lock(world) == NEAP_OK) {
		slot_drain(world->shared, &world->shared->slots[world->own_slot]);
		sim_world_unlock(world);
	}
	range = life_range(world->own_slot, F_UNLCK);
	(void)fcntl(world->fd, F_OFD_SETLK, &range);
	world->own_slot = -1;
	if (flock(world->fd, LOCK_EX) == 0)
		sim_world_remove_if_empty(world);
	sim_world_close(world);
	free(world);
}

enum neap_status sim_world_charge(struct sim_world *world, uint32_t device, enum sim_charge what, uint64_t bytes)
{
	enum neap_status status = NEAP_EOOM;

	if (sim_world_lock(world) != NEAP_OK)
		return NEAP_EIO;
	if (sim_world_unreserved(world->shared, device) < bytes)
		sim_world_settle(world);
	if (sim_world_unreserved(world->shared, device) >= bytes) {
		world->shared->slots[world->own_slot].use[device][what] += bytes;
		status = NEAP_OK;
	}
	sim_world_unlock(world);
	return status;
}

void sim_world_refund(struct sim_world *world, uint32_t device, enum sim_charge what, uint64_t bytes)
{
	uint64_t *use = &world->shared->slots[world->own_slot].use[device][what];

	if (sim_world_lock(world) != NEAP_OK)
		return;
	*use = *use > bytes ? *use - bytes : 0;
	sim_world_unlock(world);
}

uint64_t sim_world_free_bytes(struct sim_world *world, uint32_t device)
{
	uint64_t bytes;

	if (sim_world_lock(world) != NEAP_OK)
		return 0;
	sim_world_settle(world);
	bytes = sim_world_unreserved(world->shared, device);
	sim_world_unlock(world);
	return bytes;
}

uint32_t sim_world_device_count(const struct sim_world *world) { return world->shared->device_count; }
