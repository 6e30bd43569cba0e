/* Initialisation: the environment, the world, the devices of this process.
 *
 * cuInit reads the environment. A program may call it again. While any context, handle, address range or pinned
 * memory exists, that changes nothing. With none of them and another environment, it leaves the old world and
 * restarts, so that a process can use several worlds.
 */
#include "sim/driver/graph.h"

#include "base/descriptor.h"
#include "base/error.h"
#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sim_state sim = {.lock = PTHREAD_MUTEX_INITIALIZER, .file = -1};

static void forked(void) { atomic_store(&sim.forked, true); }

/* Called when the process exits: its memory starts to drain. Other threads may still be in a call: they find no
 * world, but all other state is still there. */
__attribute__((destructor)) static void ended(void)
{
	if (atomic_load(&sim.forked) || !atomic_load(&sim.initialized) || sim.pid != getpid())
		return;
	atomic_store(&sim.ended, true);
	pthread_mutex_lock(&sim.lock);
	sim_world_leave(sim.world);
	sim.world = NULL;
	pthread_mutex_unlock(&sim.lock);
}

/* The environment of cuInit, in one line. */
static void read_environment(char text[sizeof sim.environment])
{
	static const char *const names[] = {
		"NEAP_SIM",     "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NEAP_SIM_FAULT", "NEAP_SIM_LATENCY",
		"NEAP_SIM_LOG", "NEAP_SIM_HIDDEN",      "NEAP_SIM_LOST",     "NEAP_SIM_FILES", "NEAP_SIM_KERNEL"};
	size_t i, used = 0, capacity = sizeof sim.environment;

	text[0] = '\0';
	for (i = 0; i < sizeof names / sizeof names[0] && used < capacity; i++) {
		const char *value = getenv(names[i]);

		used += (size_t)snprintf(text + used, capacity - used, "%s%s\n", value ? "=" : "",
					 value ? value : "");
	}
}

static void add_device(uint32_t index)
{
	struct sim_device *device = &sim.devices[sim.device_count];

	memset(device, 0, sizeof *device);
	sim_world_device(sim.world, index, &device->view);
	device->index = index;
	device->profile = sim_profile_of(device->view.name, device->view.compute_major, device->view.compute_minor);
	device->context.primary = true;
	device->context.device = sim.device_count++;
}

static bool device_added(uint32_t index)
{
	uint32_t i;

	for (i = 0; i < sim.device_count; i++)
		if (sim.devices[i].index == index)
			return true;
	return false;
}

/* The world's number of CUDA's device `ordinal`. */
static uint32_t world_index(uint32_t ordinal)
{
	const char *order = getenv("CUDA_DEVICE_ORDER");
	bool reversed = sim.spec.reversed && !(order && strcmp(order, "PCI_BUS_ID") == 0);

	return reversed ? sim_world_device_count(sim.world) - 1 - ordinal : ordinal;
}

/* Finds the device of an entry of CUDA_VISIBLE_DEVICES: an index, or "GPU-" and a beginning of a UUID that only one
 * device has. */
static bool device_named(const char *entry, uint32_t *ret_index)
{
	uint32_t count = sim_world_device_count(sim.world), matches = 0, i;
	struct sim_view_device view;
	uint64_t number;
	char text[48];

	if (neap_u64_parse(entry, &number, NULL) == NEAP_OK) {
		if (number >= count)
			return false;
		*ret_index = world_index((uint32_t)number);
		return true;
	}
	if (strncmp(entry, "GPU-", 4) != 0)
		return false;
	for (i = 0; i < count; i++) {
		sim_world_device(sim.world, i, &view);
		sim_uuid_format(view.uuid, text);
		if (strncmp(text, entry, strlen(entry)) == 0) {
			*ret_index = i;
			matches++;
		}
	}
	return matches == 1;
}

/* As in the driver: the list ends at the first entry that names no device; a device named twice makes the list
 * empty. */
static void choose_devices(void)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	char copy[512], *rest = NULL, *entry;
	uint32_t index = 0;

	sim.device_count = 0;
	if (!list) {
		for (index = 0; index < sim_world_device_count(sim.world); index++)
			add_device(world_index(index));
		return;
	}
	snprintf(copy, sizeof copy, "%s", list);
	for (entry = strtok_r(copy, ",", &rest); entry; entry = strtok_r(NULL, ",", &rest)) {
		entry += strspn(entry, " \t");
		entry[strcspn(entry, " \t")] = '\0';
		if (!device_named(entry, &index))
			return;
		if (device_added(index)) {
			sim.device_count = 0;
			return;
		}
		add_device(index);
	}
}

static bool any_context(void)
{
	return sim_context_any() || sim.handles.count > 0 || sim.reservations.root || sim.hosts.root;
}

/* NEAP_SIM_FILES=FOLDER: FOLDER/nvidia0 and so on stand for the device files. As on a GPU, a process that uses a
 * device keeps its file open until it exits, and so do its forked children. */
static enum neap_status open_files(struct neap_error *err)
{
	const char *folder = getenv("NEAP_SIM_FILES");
	char path[512];

	for (uint32_t i = 0; folder && *folder && i < sim.device_count; i++) {
		snprintf(path, sizeof path, "%s/nvidia%u", folder, sim.devices[i].index);
		int fd = neap_fd_above_standard(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
		if (fd < 0)
			return neap_fail_errno(err, errno, "NEAP_SIM_FILES: opening %.300s", path);
		sim.files[i] = fd + 1;
	}
	return NEAP_OK;
}

static void close_files(void)
{
	for (uint32_t i = 0; i < SIM_DEVICE_LIMIT; i++) {
		if (sim.files[i] > 0)
			close(sim.files[i] - 1);
		sim.files[i] = 0;
	}
}

/* Lock held; nothing of the old state is in use. */
static void forget_old(void)
{
	struct sim_hold *holds = NULL;
	uint32_t i;

	atomic_store(&sim.initialized, false);
	sim_libraries_drop();
	sim_captures_drop();
	for (i = 0; i < sim.device_count; i++) {
		sim_streams_drop(&sim.devices[i].context, &holds);
		sim_events_drop(&sim.devices[i].context);
		sim_executables_drop(&sim.devices[i].context, &holds);
	}
	sim_graphs_drop();
	for (i = 0; i < sim.device_count; i++)
		sim_pools_drop(i);
	sim_holds_forget(holds); /* no destructor runs any more */
	sim_world_leave(sim.world);
	sim.world = NULL;
	sim_engine_destroy(sim.engine);
	sim.engine = NULL;
	sim_flights_drop();
	sim_calls_reset();
	close_files();
	sim.device_count = 0;
	atomic_store(&sim.sticky, CUDA_SUCCESS);
	memset(&sim.report, 0, sizeof sim.report);
}

static CUresult fail_init(const struct neap_error *err, CUresult result)
{
	snprintf(sim.message, sizeof sim.message, "%s", err->message);
	snprintf(sim.report.text, sizeof sim.report.text, "%s", err->message);
	sim.init_result = result;
	return result;
}

/* Lock held. */
static CUresult enter_world(void)
{
	const char *hidden = getenv("NEAP_SIM_HIDDEN");
	static bool watching_forks;
	struct neap_error err = {0};

	if (sim_spec_parse(getenv("NEAP_SIM"), &sim.spec, &err) != NEAP_OK)
		return fail_init(&err, CUDA_ERROR_INVALID_VALUE);
	if (!watching_forks && pthread_atfork(NULL, NULL, forked) != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	watching_forks = true;
	sim.engine = sim_engine_create();
	if (!sim.engine)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sim.pid = getpid();
	if (sim_world_join(&sim.spec, hidden && strcmp(hidden, "1") == 0, &sim.world, &err) == NEAP_OK) {
		const char *list = getenv("CUDA_VISIBLE_DEVICES");

		choose_devices();
		if (sim.device_count == 0) {
			neap_fail(&err, NEAP_ENODEVICE, "CUDA_VISIBLE_DEVICES leaves no device%s",
				  list && strstr(list, "MIG-") ? ": no device is simulated in MIG instances" : "");
		} else if (open_files(&err) == NEAP_OK) {
			sim.message[0] = '\0';
			atomic_store(&sim.initialized, true);
			return CUDA_SUCCESS;
		}
		close_files();
		sim_world_leave(sim.world);
		sim.world = NULL;
	}
	sim_engine_destroy(sim.engine);
	sim.engine = NULL;
	return fail_init(&err, err.status == NEAP_ENODEVICE ? CUDA_ERROR_NO_DEVICE : CUDA_ERROR_UNKNOWN);
}

CUresult sim_cuInit(unsigned int flags)
{
	char environment[sizeof sim.environment];
	struct neap_error err = {0};
	CUresult result = CUDA_SUCCESS;

	if (atomic_load(&sim.forked))
		return CUDA_ERROR_NOT_INITIALIZED;
	if (atomic_load(&sim.ended))
		return CUDA_ERROR_DEINITIALIZED;
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	read_environment(environment);
	pthread_mutex_lock(&sim.lock);
	if (atomic_load(&sim.initialized) && !any_context() && strcmp(environment, sim.environment) != 0) {
		sim_host_calls_leave();
		forget_old();
	}
	pthread_mutex_unlock(&sim.lock);
	if (!atomic_load(&sim.initialized) && sim_calls_configure(&err) != NEAP_OK) {
		sim_calls_reset();
		return fail_init(&err, CUDA_ERROR_INVALID_VALUE);
	}
	result = sim_fault_take(SIM_CALL_cuInit);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim.lock);
	if (!atomic_load(&sim.initialized)) {
		memcpy(sim.environment, environment, sizeof environment);
		result = enter_world();
	}
	pthread_mutex_unlock(&sim.lock);
	if (result == CUDA_SUCCESS)
		sim_reach_python();
	return result;
}
