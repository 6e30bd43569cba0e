/* Several processes on one device, their ends, and the cleanup. */
#include "sim_test.h"

#include "base/clock.h"
#include "sim/driver/world_layout.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define HELD (20 * PAGE)

/* -- roles of children ------------------------------------------------------------------------------------------- */

static int hold_memory(void)
{
	CUcontext context;
	CUdeviceptr address;

	if (t.cuda.cuInit(0) || t.cuda.cuDevicePrimaryCtxRetain(&context, 0) || t.cuda.cuCtxSetCurrent(context) ||
	    t.cuda.cuMemAlloc(&address, HELD))
		return 1;
	sim_report('r');
	sim_listen();
	return 0;
}

/* Frees everything and leaves. */
static int hold_and_give_back(void)
{
	CUcontext context;
	CUdeviceptr address;

	if (t.cuda.cuInit(0) || t.cuda.cuDevicePrimaryCtxRetain(&context, 0) || t.cuda.cuCtxSetCurrent(context) ||
	    t.cuda.cuMemAlloc(&address, HELD))
		return 1;
	sim_report('r');
	sim_listen();
	return t.cuda.cuMemFree(address) || t.cuda.cuDevicePrimaryCtxRelease(0);
}

static int hold_mutex(void)
{
	struct sim_spec spec;
	struct sim_world *world;

	if (sim_spec_parse(t.spec, &spec, NULL) || sim_world_join(&spec, false, &world, NULL) ||
	    sim_world_charge(world, 0, SIM_CHARGE_MEMORY, HELD) || sim_world_lock(world))
		return 1;
	sim_report('r');
	sim_listen();
	return 0;
}

/* A child of the child inherits its files and outlives it. */
static int leave_an_orphan(void)
{
	pid_t orphan;

	if (hold_memory() != 0)
		return 1;
	orphan = fork();
	if (orphan == 0) {
		sim_report('o');
		sim_listen();
		_exit(0);
	}
	if (orphan < 0)
		return 1;
	kill(getpid(), SIGKILL);
	return 1;
}

static int init_after_fork(void)
{
	CUcontext context;
	int status = 0, count;
	pid_t child;

	if (t.cuda.cuInit(0) || t.cuda.cuDevicePrimaryCtxRetain(&context, 0))
		return 1;
	child = fork();
	if (child == 0)
		_exit(t.cuda.cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
				      t.cuda.cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
				      t.cuda.cuCtxSetCurrent(context) == CUDA_ERROR_NOT_INITIALIZED
			      ? 0
			      : 1);
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		return 2;
	return t.cuda.cuDeviceGetCount(&count); /* the parent continues */
}

static const struct sim_role roles[] = {
	{"hold_memory", hold_memory},         {"hold_and_give_back", hold_and_give_back}, {"hold_mutex", hold_mutex},
	{"leave_an_orphan", leave_an_orphan}, {"init_after_fork", init_after_fork},
};

/* -- tests ------------------------------------------------------------------------------------------------------- */

static bool exists(const char *world)
{
	char path[256];

	snprintf(path, sizeof path, "/dev/shm/neap-sim-%lu-%s", (unsigned long)geteuid(), world);
	return access(path, F_OK) == 0;
}

static void world_name(char name[SIM_WORLD_CAPACITY])
{
	struct sim_spec spec;

	assert_int_equal(sim_spec_parse(t.spec, &spec, NULL), NEAP_OK);
	memcpy(name, spec.world, SIM_WORLD_CAPACITY);
}

static const struct sim_view_process *process_of(const struct sim_view *view, pid_t pid)
{
	size_t i;

	for (i = 0; i < view->process_count; i++)
		if (view->processes[i].pid == pid)
			return &view->processes[i];
	return NULL;
}

static void processes_share_a_device(void **state)
{
	struct sim_view view;

	(void)state;
	sim_begin("share", "mem=256MiB,context=4MiB");
	uint64_t before = sim_free_bytes();
	struct sim_child child = sim_spawn("hold_and_give_back");
	assert_int_equal(sim_child_reports(&child), 'r');
	assert_int_equal(sim_free_bytes(), before - HELD - 4 * MIB);
	sim_read(&view);
	const struct sim_view_process *seen = process_of(&view, child.pid);
	assert_non_null(seen);
	assert_int_equal(seen->memory_bytes[0], HELD);
	assert_int_equal(seen->context_bytes[0], 4 * MIB);
	assert_int_equal(seen->state, SIM_SLOT_ALIVE);
	assert_true(sim_view_present(seen));

	CUdeviceptr address;
	assert_answer(t.cuda.cuMemAlloc(&address, before - HELD), CUDA_ERROR_OUT_OF_MEMORY);
	sim_child_report(&child);
	assert_int_equal(sim_child_wait(&child), 0);
	assert_int_equal(sim_free_bytes(), before);
	sim_end();
}

static uint64_t now_ns(void) { return neap_clock_now(neap_clock_system()); }

static void death_gives_memory_back_after_the_delay(void **state)
{
	struct sim_view view;
	uint64_t killed;

	(void)state;
	sim_begin("death", "mem=256MiB,context=4MiB,release_delay=150ms");
	uint64_t before = sim_free_bytes();
	struct sim_child child = sim_spawn("hold_memory");
	assert_int_equal(sim_child_reports(&child), 'r');
	killed = now_ns();
	sim_child_kill(&child);
	sim_read(&view);
	assert_int_equal(view.devices[0].draining_bytes, HELD + 4 * MIB);
	assert_int_equal(process_of(&view, child.pid)->state, SIM_SLOT_DRAINING);
	assert_true(process_of(&view, child.pid)->drain_left_ns <= 150 * NEAP_NS_PER_MS);
	while (sim_free_bytes() != before)
		assert_int_equal(sim_free_bytes() == before || now_ns() - killed < 20 * NEAP_NS_PER_S, 1);
	assert_true(now_ns() - killed >= 150 * NEAP_NS_PER_MS);
	sim_read(&view);
	assert_int_equal(view.devices[0].draining_bytes, 0);
	assert_null(process_of(&view, child.pid));
	sim_end();
}

static void an_end_without_freeing_drains_too(void **state)
{
	struct sim_view view;

	(void)state;
	sim_begin("exit", "mem=256MiB,release_delay=1h");
	struct sim_child child = sim_spawn("hold_memory");
	assert_int_equal(sim_child_reports(&child), 'r');
	sim_child_report(&child);
	assert_int_equal(sim_child_wait(&child), 0);
	sim_read(&view);
	assert_int_equal(view.devices[0].draining_bytes, HELD + view.devices[0].context_bytes);
	t.cuda.cuDevicePrimaryCtxRelease(0);
	char name[SIM_WORLD_CAPACITY], path[256];
	world_name(name);
	setenv("NEAP_SIM", "mem=64MiB,world=test-exit-elsewhere", 1);
	assert_ok(t.cuda.cuInit(0)); /* we leave, but the world stays because it drains */
	assert_true(exists(name));
	snprintf(path, sizeof path, "/dev/shm/neap-sim-%lu-%s", (unsigned long)geteuid(), name);
	assert_int_equal(unlink(path), 0);
}

static void without_delay_death_gives_back_at_once(void **state)
{
	(void)state;
	sim_begin("atonce", "mem=256MiB");
	uint64_t before = sim_free_bytes();
	struct sim_child child = sim_spawn("hold_memory");
	assert_int_equal(sim_child_reports(&child), 'r');
	assert_true(sim_free_bytes() < before);
	sim_child_kill(&child);
	assert_int_equal(sim_free_bytes(), before);
	sim_end();
}

static void a_mutex_held_by_the_dead_is_recovered(void **state)
{
	(void)state;
	sim_begin("mutex", "mem=256MiB");
	uint64_t before = sim_free_bytes();
	struct sim_child child = sim_spawn("hold_mutex");
	assert_int_equal(sim_child_reports(&child), 'r');
	sim_child_kill(&child);
	assert_int_equal(sim_free_bytes(), before);
	CUdeviceptr address;
	assert_ok(t.cuda.cuMemAlloc(&address, before)); /* all of it */
	assert_ok(t.cuda.cuMemFree(address));
	sim_end();
}

static void a_childs_child_keeps_the_memory_of_the_dead(void **state)
{
	struct sim_view view;

	(void)state;
	sim_begin("orphan", "mem=256MiB,context=4MiB");
	uint64_t before = sim_free_bytes();
	struct sim_child child = sim_spawn("leave_an_orphan");
	assert_int_equal(sim_child_reports(&child), 'r');
	sim_child_report(&child);
	assert_int_equal(sim_child_reports(&child), 'o');
	int status;
	assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(sim_free_bytes(), before - HELD - 4 * MIB);
	sim_read(&view);
	assert_int_equal(process_of(&view, child.pid)->state, SIM_SLOT_ALIVE);
	assert_false(sim_view_present(process_of(&view, child.pid)));
	sim_child_report(&child); /* the orphan */
	assert_int_equal(sim_child_reports(&child), 0);
	while (sim_free_bytes() != before)
		; /* its last descriptor closes a moment after its pipe */
	close(child.to);
	close(child.from);
	sim_end();
}

static void the_driver_does_not_survive_fork(void **state)
{
	(void)state;
	sim_name_world("fork", "mem=256MiB");
	struct sim_child child = sim_spawn("init_after_fork");
	assert_int_equal(sim_child_wait(&child), 0);
}

static void a_world_that_contradicts_is_refused_while_in_use(void **state)
{
	char name[SIM_WORLD_CAPACITY], text[128];
	const char *message = NULL;

	(void)state;
	sim_name_world("contradict", "mem=256MiB");
	world_name(name);
	struct sim_child child = sim_spawn("hold_memory");
	assert_int_equal(sim_child_reports(&child), 'r');
	snprintf(text, sizeof text, "mem=128MiB,world=%s", name);
	setenv("NEAP_SIM", text, 1);
	assert_answer(t.cuda.cuInit(0), CUDA_ERROR_UNKNOWN);
	assert_ok(t.cuda.cuGetErrorString(CUDA_ERROR_UNKNOWN, &message));
	assert_non_null(strstr(message, "memory of a device"));
	snprintf(text, sizeof text, "world=%s", name);
	setenv("NEAP_SIM", text, 1); /* as it is */
	assert_ok(t.cuda.cuInit(0));
	size_t total;
	assert_ok(t.cuda.cuDeviceTotalMem(&total, 0));
	assert_true(total < 256 * MIB && total > 200 * MIB);
	sim_child_kill(&child);
	snprintf(text, sizeof text, "mem=128MiB,world=%s", name);
	setenv("NEAP_SIM", text, 1); /* no process is in it now: created again */
	assert_ok(t.cuda.cuInit(0));
	assert_ok(t.cuda.cuDeviceTotalMem(&total, 0));
	assert_true(total < 128 * MIB);
}

static void the_last_to_leave_removes_the_world(void **state)
{
	char name[SIM_WORLD_CAPACITY];

	(void)state;
	sim_name_world("tidy", "mem=256MiB");
	world_name(name);
	assert_false(exists(name));
	struct sim_child child = sim_spawn("hold_and_give_back");
	assert_int_equal(sim_child_reports(&child), 'r');
	assert_true(exists(name));
	sim_child_report(&child);
	assert_int_equal(sim_child_wait(&child), 0);
	assert_false(exists(name));
	child = sim_spawn("hold_memory"); /* a killed process cannot remove it, so the next one that looks does */
	assert_int_equal(sim_child_reports(&child), 'r');
	sim_child_kill(&child);
	assert_true(exists(name));
	struct sim_view view;
	sim_read(&view);
	assert_false(exists(name));
}

static bool seen(void *context, const char *world)
{
	bool *found = context;
	char name[SIM_WORLD_CAPACITY];

	world_name(name);
	*found |= strcmp(world, name) == 0;
	return true;
}

static void worlds_are_listed(void **state)
{
	bool found = false;

	(void)state;
	sim_begin("listed", "mem=256MiB");
	assert_int_equal(sim_world_each(seen, &found, NULL), NEAP_OK);
	assert_true(found);
	sim_end();
}

static void a_file_that_is_no_world_is_refused_or_replaced(void **state)
{
	char name[SIM_WORLD_CAPACITY], path[256];
	struct sim_spec spec;
	struct sim_view view;
	struct neap_error err;
	FILE *file;

	(void)state;
	sim_name_world("garbage", "mem=256MiB");
	world_name(name);
	snprintf(path, sizeof path, "/dev/shm/neap-sim-%lu-%s", (unsigned long)geteuid(), name);
	file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fchmod(fileno(file), 0600), 0);
	fputs("not a world", file);
	fclose(file);
	assert_int_equal(sim_spec_parse(t.spec, &spec, NULL), NEAP_OK);
	assert_int_equal(sim_world_read(&spec, &view, &err), NEAP_EINVAL);
	assert_int_equal(chmod(path, 0644), 0); /* others could write into our world */
	assert_answer(t.cuda.cuInit(0), CUDA_ERROR_UNKNOWN);
	assert_int_equal(chmod(path, 0600), 0);
	sim_begin("garbage", "mem=256MiB"); /* no process is in it: replaced */
	sim_end();
}

/* A process may look after another has created the file and before it has filled it, or after that one died there. */
static void a_file_that_is_not_filled_yet_is_no_world_yet(void **state)
{
	char name[SIM_WORLD_CAPACITY], path[256];
	struct sim_spec spec;
	struct sim_view view;
	struct neap_error err = {0};
	off_t size = (off_t)sizeof(struct shared);

	(void)state;
	sim_name_world("unmade", "mem=256MiB");
	world_name(name);
	snprintf(path, sizeof path, "/dev/shm/neap-sim-%lu-%s", (unsigned long)geteuid(), name);
	int fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	assert_int_equal(sim_spec_parse(t.spec, &spec, NULL), NEAP_OK);
	for (off_t bytes = 0; bytes <= size; bytes += size) {
		assert_int_equal(ftruncate(fd, bytes), 0);
		if (sim_world_read(&spec, &view, &err) != NEAP_OK)
			fail_msg("%lld bytes: %s", (long long)bytes, err.message);
		assert_false(view.exists);
		assert_int_equal(view.device_count, 1);
		assert_int_equal(view.devices[0].used_bytes, 0);
	}
	assert_int_equal(ftruncate(fd, 5), 0);
	assert_int_equal(sim_world_read(&spec, &view, &err), NEAP_EINVAL);
	close(fd);
	sim_begin("unmade", "mem=256MiB");
	sim_end();
}

static void a_watch_sees_each_device_as_it_is_now(void **state)
{
	struct sim_watch watch = {0};
	struct sim_spec spec;
	struct sim_view view;

	(void)state;
	sim_begin("watch", "mem=256MiB,context=4MiB,gpus=2");
	assert_int_equal(sim_spec_parse(t.spec, &spec, NULL), NEAP_OK);
	setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	struct sim_child child = sim_spawn("hold_memory");
	unsetenv("CUDA_VISIBLE_DEVICES");
	assert_int_equal(sim_child_reports(&child), 'r');
	assert_int_equal(sim_watch_read(&watch, &spec, 1u << 1, &view, NULL), NEAP_OK);
	assert_int_equal(view.devices[1].used_bytes, HELD + 4 * MIB);
	assert_non_null(process_of(&view, child.pid));
	assert_null(process_of(&view, getpid())); /* it uses the other */
	assert_int_equal(sim_watch_read(&watch, &spec, 1u << 0, &view, NULL), NEAP_OK);
	assert_int_equal(view.devices[0].used_bytes, 4 * MIB);
	assert_null(process_of(&view, child.pid));
	sim_child_kill(&child);
	assert_int_equal(sim_watch_read(&watch, &spec, 1u << 1, &view, NULL), NEAP_OK);
	assert_int_equal(view.devices[1].used_bytes, 0);
	assert_null(process_of(&view, child.pid));
	sim_end();

	/* The file that is mapped is removed, and another has its name. */
	assert_int_equal(sim_watch_read(&watch, &spec, SIM_EVERY_DEVICE, &view, NULL), NEAP_OK);
	assert_int_equal(view.devices[0].used_bytes, 0);
	sim_name_world("elsewhere", "mem=64MiB");
	assert_ok(t.cuda.cuInit(0)); /* this process leaves the world, as the last */
	assert_int_equal(sim_watch_read(&watch, &spec, 0, &view, NULL), NEAP_OK);
	assert_false(view.exists);
	sim_begin("watch", "mem=256MiB,context=4MiB,gpus=2");
	assert_int_equal(sim_watch_read(&watch, &spec, SIM_EVERY_DEVICE, &view, NULL), NEAP_OK);
	assert_true(view.exists);
	assert_int_equal(view.devices[0].used_bytes, 4 * MIB);
	sim_end();
	sim_watch_fini(&watch);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_watch_sees_each_device_as_it_is_now),
		cmocka_unit_test(processes_share_a_device),
		cmocka_unit_test(death_gives_memory_back_after_the_delay),
		cmocka_unit_test(an_end_without_freeing_drains_too),
		cmocka_unit_test(without_delay_death_gives_back_at_once),
		cmocka_unit_test(a_mutex_held_by_the_dead_is_recovered),
		cmocka_unit_test(a_childs_child_keeps_the_memory_of_the_dead),
		cmocka_unit_test(the_driver_does_not_survive_fork),
		cmocka_unit_test(a_world_that_contradicts_is_refused_while_in_use),
		cmocka_unit_test(the_last_to_leave_removes_the_world),
		cmocka_unit_test(worlds_are_listed),
		cmocka_unit_test(a_file_that_is_no_world_is_refused_or_replaced),
		cmocka_unit_test(a_file_that_is_not_filled_yet_is_no_world_yet),
	};

	sim_roles(argc, argv, roles, sizeof roles / sizeof roles[0]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
