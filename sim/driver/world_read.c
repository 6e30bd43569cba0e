/* Reads a world without entering it: copies the contents of its file, and notices deaths and ended drains. */
#include "sim/driver/world_layout.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"

#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void sim_uuid_format(const unsigned char uuid[16], char text[48])
{
	char *to = text + sprintf(text, "GPU-");
	size_t i;

	for (i = 0; i < 16; i++)
		to += sprintf(to, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
}

static void view_device(const struct device_state *device, uint32_t index, struct sim_view_device *ret_device)
{
	*ret_device = (struct sim_view_device){
		.total_bytes = device->total,
		.reserved_bytes = device->reserved,
		.context_bytes = device->context,
		.multiprocessors = device->multiprocessors,
		.compute_major = device->compute_major,
		.compute_minor = device->compute_minor,
	};
	memcpy(ret_device->name, device->name, sizeof ret_device->name);
	ret_device->name[sizeof ret_device->name - 1] = '\0';
	memcpy(ret_device->uuid, device->uuid, sizeof ret_device->uuid);
	snprintf(ret_device->pci_bus_id, sizeof ret_device->pci_bus_id, "0000:%02X:00.0", 0x17 + index);
}

void sim_world_device(const struct sim_world *world, uint32_t device, struct sim_view_device *ret_device)
{
	view_device(&world->shared->devices[device], device, ret_device);
}

static void view_slot(const struct slot *slot, uint64_t now, struct sim_view_process *ret_process)
{
	size_t i;

	*ret_process = (struct sim_view_process){.pid = slot->pid,
						 .state = (enum sim_slot_state)slot->state,
						 .hidden = slot->hidden != 0,
						 .start_ticks = slot->start_ticks};
	memcpy(ret_process->command, slot->command, sizeof ret_process->command);
	ret_process->command[sizeof ret_process->command - 1] = '\0';
	if (slot->state == SIM_SLOT_DRAINING && slot->drain_until_ns > now)
		ret_process->drain_left_ns = slot->drain_until_ns - now;
	for (i = 0; i < SIM_DEVICE_LIMIT; i++) {
		ret_process->memory_bytes[i] = slot->use[i][SIM_CHARGE_MEMORY];
		ret_process->context_bytes[i] = slot->use[i][SIM_CHARGE_CONTEXT];
	}
}

bool sim_view_present(const struct sim_view_process *process)
{
	return process->state == SIM_SLOT_ALIVE && neap_process_alive(process->pid, process->start_ticks);
}

/* Adds a share to the process that it counts for. */
static void view_share(const struct shared *shared, const struct share *share, const size_t place[SIM_SLOT_LIMIT],
		       struct sim_view *view)
{
	int slot = sim_world_share_slot(share);

	if (slot < 0 || !place[slot] || share->device >= shared->device_count)
		return;
	view->processes[place[slot] - 1].memory_bytes[share->device] += share->bytes;
	if (shared->slots[slot].state == SIM_SLOT_DRAINING)
		view->devices[share->device].draining_bytes += share->bytes;
}

/* Mutex held, or `shared` private. */
static void view_world(const struct shared *shared, uint32_t devices, struct sim_view *view)
{
	size_t place[SIM_SLOT_LIMIT] = {0}; /* by slot: its index in `processes` + 1 */
	uint64_t now = neap_clock_now(neap_clock_system());
	uint32_t device;
	size_t i;

	view->release_delay_ns = shared->release_delay_ns;
	view->device_count = shared->device_count;
	for (device = 0; device < shared->device_count; device++) {
		view_device(&shared->devices[device], device, &view->devices[device]);
		if (!(devices & 1u << device))
			continue;
		view->devices[device].free_bytes = sim_world_unreserved(shared, device);
		view->devices[device].used_bytes = sim_world_used(shared, device);
	}
	for (i = 0; devices && i < SIM_SLOT_LIMIT; i++) {
		const struct slot *slot = &shared->slots[i];

		if (slot->state == SIM_SLOT_FREE || !sim_world_slot_concerns(shared, slot, devices))
			continue;
		view_slot(slot, now, &view->processes[view->process_count]);
		place[i] = ++view->process_count;
		for (device = 0; device < shared->device_count && slot->state == SIM_SLOT_DRAINING; device++)
			view->devices[device].draining_bytes +=
				slot->use[device][SIM_CHARGE_MEMORY] + slot->use[device][SIM_CHARGE_CONTEXT];
	}
	for (i = 0; devices && i < shared->share_end && i < SIM_SHARE_LIMIT; i++)
		if (shared->shares[i].id)
			view_share(shared, &shared->shares[i], place, view);
}

/* The world that the spec would create, with no process in it. */
static void inspect_spec(const struct sim_spec *spec, struct sim_view *view)
{
	view->release_delay_ns = spec->release_delay_ns;
	view->device_count = spec->device_count;
	for (uint32_t i = 0; i < spec->device_count; i++) {
		struct device_state device;

		sim_world_fill_device(spec, i, &device);
		view_device(&device, i, &view->devices[i]);
		view->devices[i].free_bytes = device.total - device.reserved;
	}
}

/* Whether the file is not filled yet: just opened, or its creator died before filling it. flock held. */
static bool is_unmade(const struct sim_world *world)
{
	uint64_t magic = 0;

	return (world->file.st_size == 0 || sim_world_sized(world)) &&
	       pread(world->fd, &magic, sizeof magic, offsetof(struct shared, magic)) >= 0 && magic == 0 &&
	       !sim_world_life_held(world->fd, -1);
}

static bool is_mapped(const struct sim_watch *watch, const struct sim_world *world)
{
	return watch->mapped && watch->device == world->file.st_dev && watch->inode == world->file.st_ino;
}

/* flock held. Maps the file, unless the watch still has it mapped from an earlier reading. While a file is mapped, no
 * other file gets its inode, even after it was removed. */
static enum neap_status map_again(struct sim_world *world, struct sim_watch *watch, struct neap_error *err)
{
	if (!is_mapped(watch, world)) {
		enum neap_status status = sim_world_map(world, err);
		if (status)
			return status;
		sim_watch_fini(watch);
		watch->mapped = world->shared;
		watch->device = world->file.st_dev;
		watch->inode = world->file.st_ino;
		memcpy(watch->path, world->path, sizeof watch->path);
	}
	world->shared = watch->mapped;
	return NEAP_OK;
}

void sim_watch_fini(struct sim_watch *watch)
{
	if (watch->mapped)
		munmap(watch->mapped, sizeof(struct shared));
	*watch = (struct sim_watch){0};
}

static bool has_slots(const struct shared *shared)
{
	for (size_t i = 0; i < SIM_SLOT_LIMIT; i++)
		if (shared->slots[i].state != SIM_SLOT_FREE)
			return true;
	return false;
}

/* flock held, the file mapped. */
static enum neap_status inspect_file(struct sim_world *world, const struct sim_spec *spec, uint32_t devices,
				     struct sim_view *view, struct neap_error *err)
{
	if (!sim_world_valid(world->shared))
		return neap_fail(err, NEAP_EINVAL, "%s is not a simulated world of this layout", world->path);
	if (sim_world_contradiction(world->shared, spec)) {
		if (sim_world_life_held(world->fd, -1))
			return neap_fail(err, NEAP_EINVAL, "simulated world '%s' exists with another %s", spec->world,
					 sim_world_contradiction(world->shared, spec));
		inspect_spec(spec, view); /* no process is in the world: the next one to enter creates it again */
		return NEAP_OK;
	}
	if (sim_world_lock(world) != NEAP_OK)
		return neap_fail(err, NEAP_EIO, "simulated world %s: its mutex is broken; remove the file",
				 world->path);
	sim_world_settle_devices(world, devices);
	view_world(world->shared, devices, view);
	bool in_use = has_slots(world->shared);
	sim_world_unlock(world);
	view->exists = true;
	if (!in_use)
		sim_world_remove_if_empty(world);
	return NEAP_OK;
}

/* flock held. */
static enum neap_status inspect_open(struct sim_world *world, struct sim_watch *watch, const struct sim_spec *spec,
				     uint32_t devices, struct sim_view *view, struct neap_error *err)
{
	bool made = is_mapped(watch, world) && sim_world_sized(world) && sim_world_valid(watch->mapped);

	if (!made && is_unmade(world)) {
		inspect_spec(spec, view);
		return NEAP_OK;
	}
	if (!sim_world_sized(world))
		return neap_fail(err, NEAP_EINVAL, "%s is not a simulated world of this layout", world->path);
	enum neap_status status = map_again(world, watch, err);
	if (!status)
		status = inspect_file(world, spec, devices, view, err);
	world->shared = NULL; /* the watch keeps the mapping */
	return status;
}

enum neap_status sim_world_read(const struct sim_spec *spec, struct sim_view *ret_view, struct neap_error *err)
{
	struct sim_watch watch = {0};
	enum neap_status status = sim_watch_read(&watch, spec, SIM_EVERY_DEVICE, ret_view, err);

	sim_watch_fini(&watch);
	return status;
}

enum neap_status sim_watch_read(struct sim_watch *watch, const struct sim_spec *spec, uint32_t devices,
				struct sim_view *ret_view, struct neap_error *err)
{
	struct sim_world world = {.fd = -1, .own_slot = -1};
	struct sim_view *view = calloc(1, sizeof *view);
	enum neap_status status;

	if (!view)
		return neap_fail(err, NEAP_ENOMEM, "simulated world '%s': host out of memory", spec->world);
	memcpy(view->world, spec->world, sizeof view->world);
	if (watch->mapped)
		memcpy(world.path, watch->path, sizeof world.path);
	else
		sim_world_name(&world, spec->world);
	status = sim_world_open(&world, false, err);
	if (!status) {
		status = inspect_open(&world, watch, spec, devices, view, err);
	} else if (status == NEAP_ENOENT) {
		inspect_spec(spec, view);
		status = NEAP_OK;
	}
	if (!status)
		*ret_view = *view;
	sim_world_close(&world);
	free(view);
	return status;
}

enum neap_status sim_world_each(bool (*visit)(void *context, const char *world), void *context,
				struct neap_error *err)
{
	char prefix[64];
	DIR *folder = opendir(sim_world_folder());
	struct dirent *entry;
	size_t length;

	if (!folder)
		return neap_fail_errno(err, errno, "cannot list %s", sim_world_folder());
	length = (size_t)snprintf(prefix, sizeof prefix, "neap-sim-%lu-", (unsigned long)geteuid());
	while ((entry = readdir(folder)) != NULL)
		if (strncmp(entry->d_name, prefix, length) == 0 && !visit(context, entry->d_name + length))
			break;
	closedir(folder);
	return NEAP_OK;
}
