/* estimate/measure.c: see measure.h. */
#include "estimate/measure.h"

#include "analyze/analysis.h"
#include "base/error.h"
#include "base/file.h"
#include "base/spawn.h"
#include "base/units.h"
#include "device/monitor.h"
#include "run/argv.h"
#include "run/folder.h"
#include "run/run_stage.h"
#include "store/json.h"
#include "store/result.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCHEMA         1
#define BASELINE_BYTES 65536

static uint64_t whole_bytes(double bytes) { return bytes >= 1 && bytes < 0x1p63 ? (uint64_t)llround(bytes) : 0; }

/* --- a command --- */

static enum neap_status make_argv(const struct neap_check_command *command, const char *folder,
				  struct neap_argv *argv, struct neap_error *err)
{
	const char *const fixed[] = {"neap", "run", "--quiet", "--no-history", "--folder", folder, NULL};
	const char *const options[] = {"--max-steps", command->steps, "--time-limit", command->time_limit};
	bool failed = false;
	for (size_t i = 0; fixed[i] && !failed; i++)
		failed = neap_argv_add(argv, fixed[i]);
	for (size_t i = 0; i < 4 && !failed; i += 2)
		if (options[i + 1])
			failed = neap_argv_add(argv, options[i]) || neap_argv_add(argv, options[i + 1]);
	if (command->streams)
		failed = failed ||
			 neap_argv_format(argv, "--streams%s%s", *command->streams ? "=" : "", command->streams);
	failed = failed || neap_argv_add(argv, "--");
	for (size_t i = 0; command->argv[i] && !failed; i++)
		failed = neap_argv_add(argv, command->argv[i]);
	return failed ? neap_fail(err, NEAP_ENOMEM, "checking: out of memory") : NEAP_OK;
}

/* Whether the simulator must stand for a GPU. NEAP_DEVICE decides, if it is set. */
static bool has_no_gpu(void)
{
	struct neap_monitor *monitor = NULL;
	if (getenv("NEAP_DEVICE"))
		return false;
	bool none = neap_monitor_open(NEAP_BACKEND_CUDA, &monitor, NULL) != NEAP_OK ||
		    neap_monitor_device_count(monitor) == 0;
	neap_monitor_close(monitor);
	return none;
}

struct start {
	const struct neap_check_command *command;
	char **argv;
};

/* Chooses the simulator. The devices are those of `gpu`, else those of NEAP_SIM, else one H100; the world is always
 * new. Returns whether it succeeded. */
static bool take_simulator(const char *gpu)
{
	const char *asked = gpu ? gpu : getenv("NEAP_SIM");
	struct neap_buffer spec = {0};
	bool is_set;
	/* Of words that contradict each other the last one counts. */
	neap_buffer_format(&spec, "%s%s%s,world=check-%d", gpu ? "" : "h100-80gb", !gpu && asked && *asked ? "," : "",
			   asked ? asked : "", (int)getpid());
	is_set = !neap_buffer_status(&spec, NULL) && !setenv("NEAP_DEVICE", "sim", 1) &&
		 !setenv("NEAP_SIM", neap_buffer_string(&spec), 1);
	unsetenv("CUDA_VISIBLE_DEVICES"); /* names real devices */
	neap_buffer_fini(&spec);
	return is_set;
}

/* Called in the child. It asks NVML, which may hang, so the parent does not wait for exec. */
static int become_run(void *context)
{
	const struct start *start = context;
	const char *gpu = start->command->gpu;
	if ((gpu || start->command->streams || has_no_gpu()) && !take_simulator(gpu))
		return NEAP_SPAWN_FAILED;
	execv("/proc/self/exe", start->argv);
	return NEAP_SPAWN_FAILED;
}

static bool go_on(void *context)
{
	const struct neap_check_command *command = ((const struct start *)context)->command;
	return command->watch.go_on(command->watch.context, NULL, 0);
}

static enum neap_status take_result(const char *folder, struct neap_check_figures *figures, struct neap_error *err)
{
	struct neap_result result = {0};
	char path[4096];
	enum neap_status status = neap_path_join(path, sizeof path, folder, "result.json");
	if (!status)
		status = neap_result_read(path, &result, err);
	if (status)
		return status;
	bool ended_well = result.outcome == NEAP_OUTCOME_OK || result.outcome == NEAP_OUTCOME_STOPPED ||
			  result.outcome == NEAP_OUTCOME_TIMEOUT;
	figures->exit_status = ended_well ? 0 : result.exit_status ? result.exit_status : 1;
	figures->allocated_peak = result.peak_allocated_bytes;
	figures->reserved_peak = result.peak_reserved_bytes;
	figures->steps = result.steps;
	figures->simulated = strcmp(result.backend, "sim") == 0;
	snprintf(figures->where, sizeof figures->where, "%s", result.device_name);
	if (strcmp(result.leak_verdict, "leak") == 0) {
		figures->growth = NEAP_CHECK_GROWTH_FOUND;
		figures->bytes_per_step = whole_bytes(result.leak_bytes_per_step);
	} else if (strcmp(result.leak_verdict, "clean") == 0) {
		figures->growth = NEAP_CHECK_GROWTH_NONE;
	}
	if (ended_well && !result.attached)
		status = neap_fail(
			err, NEAP_ESTATE,
			"no process of the command used a GPU through PyTorch or neap, so its memory is not known");
	neap_result_fini(&result);
	return status;
}

static enum neap_status run(const struct neap_check_command *command, const char *folder,
			    struct neap_check_figures *figures, struct neap_error *err)
{
	struct neap_argv argv = {0};
	int code = 0;
	enum neap_status status = make_argv(command, folder, &argv, err);
	if (status)
		return status;
	struct start start = {command, argv.items};
	int out = command->apart ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3) : 0;
	const struct neap_spawn spawn = {.doing = "starting the command",
					 .fds = {0, out < 0 ? NEAP_SPAWN_NULL : out, 0},
					 .run = become_run,
					 .context = &start,
					 .death_signal = SIGTERM,
					 .go_on = go_on};
	status = neap_spawn_run(&spawn, &code, err);
	neap_argv_fini(&argv);
	if (out > 0)
		close(out);
	if (status == NEAP_ECANCELED || (!status && !go_on(&start)))
		return neap_fail(err, NEAP_ECANCELED, "stopped");
	if (!status)
		figures->lost = neap_run_stage_resolve(folder) == NEAP_STAGE_BEGAN;
	if (!status)
		status = take_result(folder, figures, err);
	if (status == NEAP_ENOENT) { /* `neap run` was killed, or it failed and has printed why */
		figures->exit_status = code ? code : 1;
		status = NEAP_OK;
	}
	return status;
}

enum neap_status neap_check_measure_command(const struct neap_check_command *command,
					    struct neap_check_figures *ret_figures, struct neap_error *err)
{
	const char *temporary = getenv("TMPDIR");
	struct neap_check_figures figures = {0};
	char folder[NEAP_ESTIMATE_CAPACITY];
	snprintf(folder, sizeof folder, "%s/neap-check-XXXXXX", temporary && *temporary ? temporary : "/tmp");
	if (!mkdtemp(folder))
		return neap_fail_errno(err, errno, "making %.200s", folder);
	enum neap_status status = run(command, folder, &figures, err);
	if (command->visit)
		command->visit(command->visit_context, folder);
	neap_estimate_remove(folder);
	if (!status)
		*ret_figures = figures;
	return status;
}

/* --- a trace --- */

static void take_analysis(const struct neap_analysis *analysis, struct neap_check_figures *figures)
{
	const struct neap_stats *stats = &analysis->replay.usage.stats;
	const struct neap_leak *leak = &analysis->trends.leak;
	int64_t allocated = stats->metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL].peak;
	uint64_t reserved = analysis->profile.reserved_peak.reserved;
	figures->allocated_peak = allocated > 0 ? (uint64_t)allocated : analysis->profile.requested_peak.requested;
	figures->reserved_peak = reserved == UINT64_MAX ? 0 : reserved;
	figures->steps = analysis->steps.count;
	if (leak->verdict == NEAP_LEAK_FOUND) {
		figures->growth = NEAP_CHECK_GROWTH_FOUND;
		figures->bytes_per_step = whole_bytes(leak->bytes_per_step);
	} else if (leak->verdict == NEAP_LEAK_CLEAN) {
		figures->growth = NEAP_CHECK_GROWTH_NONE;
	}
}

/* Errors: NEAP_ENOENT also for a trace without allocations. */
static enum neap_status measure_file(const char *path, struct neap_check_figures *figures, struct neap_error *err)
{
	struct neap_analysis_options options = {.device = SIZE_MAX};
	struct neap_analysis analysis = {0};
	struct neap_trace *trace = NULL;
	enum neap_status status = neap_trace_read(path, &trace, err);
	if (!status)
		status = neap_analyze(trace, &options, &analysis, err);
	if (!status && neap_analysis_empty(&analysis))
		status = neap_fail(err, NEAP_ENOENT, "%.180s: no allocation is recorded", path);
	if (!status)
		take_analysis(&analysis, figures);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
	return status;
}

static enum neap_status measure_folder(const char *folder, struct neap_check_figures *figures, struct neap_error *err)
{
	struct neap_check_figures recorded = {0};
	struct neap_run_trace trace;
	enum neap_status status = take_result(folder, figures, err);
	if (status ? status != NEAP_ENOENT : !figures->exit_status)
		return status;
	if (neap_run_folder_trace(folder, &trace, NULL) || measure_file(trace.path, &recorded, NULL))
		return status;
	snprintf(recorded.where, sizeof recorded.where, "%s", status ? folder : figures->where);
	recorded.simulated = !status && figures->simulated;
	recorded.partial = true;
	recorded.failed_status = status ? 0 : figures->exit_status;
	*figures = recorded;
	return NEAP_OK;
}

enum neap_status neap_check_measure_trace(const char *path, struct neap_check_figures *ret_figures,
					  struct neap_error *err)
{
	struct neap_check_figures figures = {0};
	enum neap_status status;
	if (neap_run_folder_is(path)) {
		status = measure_folder(path, &figures, err);
	} else {
		status = measure_file(path, &figures, err);
		snprintf(figures.where, sizeof figures.where, "%s", path);
	}
	if (!status)
		*ret_figures = figures;
	return status;
}

/* --- a baseline --- */

enum neap_status neap_check_baseline_load(const char *path, struct neap_check_figures *ret_figures,
					  struct neap_error *err)
{
	struct neap_check_figures figures = {.growth = NEAP_CHECK_GROWTH_UNKNOWN};
	struct neap_buffer text = {0};
	uint64_t schema = 0;
	json_t *root = NULL;
	enum neap_status status = neap_file_read(path, BASELINE_BYTES, &text, err);
	if (!status)
		status = neap_json_parse(path, neap_buffer_string(&text), text.length, &root, err);
	neap_buffer_fini(&text);
	if (status)
		return status;
	if (!neap_json_get_number(root, "schema", &schema) || schema != SCHEMA ||
	    !neap_json_get_number(root, "allocated_peak", &figures.allocated_peak))
		status = neap_fail(err, NEAP_EPARSE, "%.180s: not a baseline of neap check", path);
	neap_json_get_number(root, "reserved_peak", &figures.reserved_peak);
	neap_json_get_number(root, "steps", &figures.steps);
	if (neap_json_get_number(root, "bytes_per_step", &figures.bytes_per_step))
		figures.growth = figures.bytes_per_step > 0 ? NEAP_CHECK_GROWTH_FOUND : NEAP_CHECK_GROWTH_NONE;
	figures.simulated = json_is_true(json_object_get(root, "simulated"));
	snprintf(figures.where, sizeof figures.where, "%s", neap_json_get_text(root, "where"));
	json_decref(root);
	if (!status)
		*ret_figures = figures;
	return status;
}

enum neap_status neap_check_baseline_save(const char *path, const struct neap_check_figures *figures,
					  struct neap_error *err)
{
	uint64_t failures = neap_json_failures();
	bool known = figures->growth != NEAP_CHECK_GROWTH_UNKNOWN;
	struct neap_buffer out = {0};
	json_t *root = json_object();
	neap_json_set(root, "schema", json_integer(SCHEMA));
	neap_json_set(root, "allocated_peak", neap_json_number(figures->allocated_peak));
	neap_json_set(root, "reserved_peak", neap_json_number_or_null(figures->reserved_peak, 0));
	neap_json_set(root, "bytes_per_step", known ? neap_json_number(figures->bytes_per_step) : json_null());
	neap_json_set(root, "steps", neap_json_number(figures->steps));
	neap_json_set(root, "where", neap_json_text(figures->where));
	neap_json_set(root, "simulated", json_boolean(figures->simulated));
	char *text = neap_json_dump(root, JSON_INDENT(2));
	json_decref(root);
	if (text)
		neap_buffer_format(&out, "%s\n", text);
	bool failed = !text || neap_json_failures() != failures;
	free(text);
	enum neap_status status =
		failed ? neap_fail(err, NEAP_ENOMEM, "%.180s: out of memory", path) : neap_buffer_status(&out, err);
	if (!status)
		status = neap_file_write(path, out.data, out.length, err);
	neap_buffer_fini(&out);
	return status;
}
