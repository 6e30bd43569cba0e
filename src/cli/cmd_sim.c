/* cli/cmd_sim.c: `neap sim`: shows the simulator's folder, its profiles and the contents of its worlds. Only reads:
 * enters no world. */
#include "base/units.h"
#include "cli/command.h"
#include "cli/print.h"
#include "device/driver.h"
#include "run/python.h"
#include "sim/driver/world.h"

#include <stdlib.h>
#include <string.h>

static int run(const struct neap_arguments *arguments);

const struct neap_command neap_command_sim = {
	.name = "sim",
	.usage = "path|env|profiles|inspect [WORLD]",
	.summary = "the simulator: where it is, how to configure it, what is in it",
	.details = neap_help_sim,
	.operands_min = 1,
	.operands_max = 2,
	.run = run,
};

static int run_path(void)
{
	char folder[4096];
	struct neap_error err = {0};
	if (neap_sim_folder(folder, sizeof folder, &err) != NEAP_OK)
		return neap_complain("sim", &err);
	puts(folder);
	return NEAP_EXIT_OK;
}

/* NAME='VALUE', for a shell to read. */
static void print_export(const char *name, const char *value, const char *rest)
{
	printf("export %s='", name);
	for (; *value; value++)
		fputs(*value == '\'' ? "'\\''" : (char[]){*value, '\0'}, stdout);
	printf("'%s\n", rest);
}

static int run_env(void)
{
	char sim[NEAP_RUN_PYTHON_CAPACITY], runtime[NEAP_RUN_PYTHON_CAPACITY], launch[NEAP_RUN_PYTHON_CAPACITY];
	if (!neap_run_python_find_simulator(sim, runtime) || !neap_run_python_find_launcher(launch)) {
		fputs("neap sim: the simulator, its stand-ins for NVIDIA's libraries (runtime) or the launcher of "
		      "Python "
		      "programs is missing beside this command: install neap whole\n",
		      stderr);
		return NEAP_EXIT_UNAVAILABLE;
	}
	print_export("NEAP_DEVICE", "sim", "");
	print_export("NEAP_SIM_PATH", sim, "");
	print_export("NEAP_SIM_RUNTIME", runtime, "");
	print_export("PYTHONPATH", launch, "${PYTHONPATH:+:$PYTHONPATH}");
	return NEAP_EXIT_OK;
}

static int run_profiles(void)
{
	size_t count;
	const struct sim_profile *profiles = sim_profiles(&count);
	printf("%-16s %-28s %10s %10s %10s  %s\n", "profile", "GPU", "total", "reserved", "context", "compute");
	for (size_t i = 0; i < count; i++) {
		char total[NEAP_UNITS_CAPACITY], reserved[NEAP_UNITS_CAPACITY], context[NEAP_UNITS_CAPACITY];
		printf("%-16s %-28s %10s %10s %10s  %d.%d\n", profiles[i].name, profiles[i].gpu_name,
		       neap_size_format(profiles[i].total_mib * NEAP_MIB, total),
		       neap_size_format(profiles[i].reserved_mib * NEAP_MIB, reserved),
		       neap_size_format(profiles[i].context_mib * NEAP_MIB, context), profiles[i].compute_major,
		       profiles[i].compute_minor);
	}
	puts("\nNEAP_SIM chooses: h100-80gb, 2xa100-40gb, mem=6GiB,gpus=2,world=NAME, ... The default "
	     "is " SIM_DEFAULT_SPEC ".");
	return NEAP_EXIT_OK;
}

static void print_process(const struct sim_view_process *process, uint32_t device)
{
	char memory[NEAP_UNITS_CAPACITY], context[NEAP_UNITS_CAPACITY], time[NEAP_UNITS_CAPACITY];
	if (process->memory_bytes[device] == 0 && process->context_bytes[device] == 0)
		return;
	printf("    %8d  %-16s memory %s, context %s", (int)process->pid, NEAP_PRINTABLE(process->command),
	       neap_size_format(process->memory_bytes[device], memory),
	       neap_size_format(process->context_bytes[device], context));
	if (process->state == SIM_SLOT_DRAINING)
		printf(", gone: draining for %s more", neap_duration_format(process->drain_left_ns, time));
	else if (!sim_view_present(process))
		fputs(", gone: a child of it holds the memory", stdout);
	if (process->hidden)
		fputs(", hidden from NVML", stdout);
	putchar('\n');
}

static void print_view(const struct sim_view *view)
{
	char total[NEAP_UNITS_CAPACITY], reserved[NEAP_UNITS_CAPACITY], used[NEAP_UNITS_CAPACITY],
		draining[NEAP_UNITS_CAPACITY], free_bytes[NEAP_UNITS_CAPACITY], delay[NEAP_UNITS_CAPACITY];
	printf("World %s: %u device%s, memory released %s after a process's end%s\n", NEAP_PRINTABLE(view->world),
	       view->device_count, view->device_count == 1 ? "" : "s",
	       neap_duration_format(view->release_delay_ns, delay), view->exists ? "" : " (no process is in it)");
	for (uint32_t i = 0; i < view->device_count; i++) {
		const struct sim_view_device *device = &view->devices[i];
		printf("  %u  %s: total %s, reserved %s, used %s (draining %s), free %s\n", i,
		       NEAP_PRINTABLE(device->name), neap_size_format(device->total_bytes, total),
		       neap_size_format(device->reserved_bytes, reserved), neap_size_format(device->used_bytes, used),
		       neap_size_format(device->draining_bytes, draining),
		       neap_size_format(device->free_bytes, free_bytes));
		for (size_t p = 0; p < view->process_count; p++)
			print_process(&view->processes[p], i);
	}
}

static int inspect(const char *text)
{
	static struct sim_view view;
	struct sim_spec spec;
	struct neap_error err = {0};
	enum neap_status status = sim_spec_parse(text, &spec, &err);
	if (status) {
		fprintf(stderr, "neap sim: %s (column %u of \"%s\")\n", NEAP_PRINTABLE(err.message), err.column,
			NEAP_PRINTABLE(text));
		return NEAP_EXIT_USAGE;
	}
	if (sim_world_read(&spec, &view, &err) != NEAP_OK)
		return neap_complain("sim", &err);
	print_view(&view);
	return NEAP_EXIT_OK;
}

struct worlds {
	size_t count;
	int code;
};

static bool inspect_world(void *context, const char *world)
{
	struct worlds *worlds = context;
	char text[SIM_WORLD_CAPACITY + 8];
	snprintf(text, sizeof text, "world=%s", world);
	int code = inspect(text);
	if (code != NEAP_EXIT_OK)
		worlds->code = code;
	worlds->count++;
	return true;
}

/* Shows the world that NAME or NEAP_SIM names. With neither, shows all worlds. */
static int run_inspect(const char *world)
{
	const char *spec = getenv("NEAP_SIM");
	struct worlds worlds = {.code = NEAP_EXIT_OK};
	struct neap_error err = {0};
	if (world) {
		inspect_world(&worlds, world);
		return worlds.code;
	}
	if (spec && spec[0])
		return inspect(spec);
	if (sim_world_each(inspect_world, &worlds, &err) != NEAP_OK)
		return neap_complain("sim", &err);
	if (worlds.count == 0)
		puts("There is no world: no process uses the simulator.");
	return worlds.code;
}

static int run(const struct neap_arguments *arguments)
{
	const char *what = neap_operand(arguments, 0), *world = neap_operand(arguments, 1);
	if (strcmp(what, "inspect") == 0)
		return run_inspect(world);
	if (world)
		return neap_misuse(arguments, "unexpected argument '%s'", world);
	if (strcmp(what, "path") == 0)
		return run_path();
	if (strcmp(what, "env") == 0)
		return run_env();
	if (strcmp(what, "profiles") == 0)
		return run_profiles();
	return neap_misuse(arguments, "expected path, env, profiles or inspect, not '%s'", what);
}
