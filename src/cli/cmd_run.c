/* cli/cmd_run.c: `neap run`: one command, supervised: options in, the run's story on stderr, the command's own status
 * out.
 */
#include "base/file.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/print.h"
#include "cli/run_estimate.h"
#include "cli/run_folder.h"
#include "cli/run_lease.h"
#include "cli/run_options.h"
#include "estimate/estimate.h"
#include "queue/added.h"
#include "report/processes.h"
#include "run/compiled.h"
#include "run/memory_settings.h"
#include "run/pending_compile.h"
#include "run/python.h"
#include "run/run_stage.h"
#include "run/supervise.h"
#include "series/prune.h"
#include "store/history.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int run_command(const struct neap_arguments *arguments);

static const struct neap_option known_options[] = {
	{"name", "NAME", "the run's name; default: the program's name"},
	{"folder", "DIR", "the run's folder; default: STATE/neap/runs/ID"},
	{"run-id", "ID", "the run's id; default: made from the time"},
	{"lock-fd", "N", "a descriptor of DIR/lock that is open and locked already"},
	{"needs", "SIZE",
	 "start only when this much device memory is free, and promised to no other run: a size, 'device' (all), "
	 "'estimate' or 'none'; default none"},
	{"gpus", "N", "on N GPUs, with --needs on each of them (default device), and no others; default 1"},
	{"ticket-fd", "N:TICKET", "a descriptor of a ticket of the queue that is locked already"},
	{"estimate", "[=refuse]",
	 "first run it for a few updates on the simulator, and warn when it will not fit; with =refuse do not run "
	 "it then"},
	{"in-place", NULL,
	 "with --estimate: let the program write its files for real there: see 'neap help estimate'"},
	{"wait-limit", "DURATION",
	 "give up waiting for --needs after this long; default 10m, in which no other run of the queue is in the "
	 "way"},
	{"drain-limit", "DURATION", "wait at most this long for the memory to come back; default 60s"},
	{"time-limit", "DURATION", "end the command after this long; default none"},
	{"max-steps", "N",
	 "end a PyTorch program after N optimizer updates of a process, or, with 'steady', once they take no more "
	 "memory; default none"},
	{"values", "WHICH",
	 "on the simulator, compute what kernels would, on the host: auto (default): what is worth its time; full: "
	 "all of it; none: zeros"},
	{"streams", "[=delay[:SEED]]",
	 "on the simulator, look for races between streams and for memory that is used too late: see 'neap help "
	 "check'"},
	{"max-device", "SIZE", "end it when it takes more device memory than this; default none"},
	{"max-host", "SIZE", "end it when its processes take more host memory than this together; default none"},
	{"min-disk", "SIZE", "do not start, and end it, when less than this is free where DIR is; default none"},
	{"grace", "DURATION", "time from SIGTERM to SIGKILL; default 10s"},
	{"device", "DEVICE", "index or UUID of the device to watch; default: the first visible"},
	{"only-device", "DEVICE",
	 "as --device, and the command sees no other: sets CUDA_VISIBLE_DEVICES to its UUID"},
	{"directory", "PATH", "the folder to start the command in; default: this one"},
	{"param", "NAME=VALUE", "replaces {NAME} in the command; may be given several times"},
	{"on-oom", "RULES|auto", "what to change after device memory ran out, before the command starts again"},
	{"retries", "N", "at most N starts after the first; default 8"},
	{"fraction", "F", "limit it to this share of each device: above 0, at most 1 (see 'neap fraction')"},
	{"allocator", "NAME",
	 "neap: neap's allocator in PyTorch programs; plugin: without a compiler; default: PyTorch's own"},
	{"no-trace", NULL, "do not record the allocations of PyTorch's own allocator"},
	{"enable", NULL, "with memory-efficient settings in its environment (see 'neap enable')"},
	{"clear-memory-on-start", NULL,
	 "first end processes that this user's earlier runs left on the devices; name the others"},
	{"log", NULL, "write the command's output to DIR/stdout.log and DIR/stderr.log"},
	{"no-history", NULL, "do not add the run to the history"},
	{"quiet", NULL, "print nothing but errors"},
	{0},
};

const struct neap_command neap_command_run = {
	.name = "run",
	.usage = "[options] -- COMMAND [ARGUMENT...]",
	.summary = "run a command inside GPU memory: watched, cleaned up after, retried with less",
	.details = neap_help_run,
	.options = known_options,
	.takes_rest = true,
	.run = run_command,
};

/* The settings that the launcher of Python programs, --fraction and --enable add to the command's environment, or
 * replace there. */
struct additions {
	char fraction[64], max_steps[64];
	struct run_simulated simulated;
	struct neap_run_python python;
	struct neap_memory_settings settings;
	/* borrowed; NULL-terminated */
	char *entries[5 + RUN_SIMULATED_MAX + NEAP_MEMORY_SETTINGS_MAX + NEAP_RUN_PYTHON_MAX];
};

/* Every value is passed on: "default" overrides a variable of the caller's. */
static int parse_allocator(const struct neap_arguments *arguments, char **ret_entry)
{
	static char entries[][32] = {"NEAP_ALLOCATOR=neap", "NEAP_ALLOCATOR=plugin", "NEAP_ALLOCATOR=default"};
	const char *text = neap_argument(arguments, "allocator");
	if (!text)
		return 0;
	for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
		if (strcmp(text, strchr(entries[i], '=') + 1))
			continue;
		*ret_entry = entries[i];
		return 0;
	}
	return neap_misuse(arguments, "--allocator: expected neap, plugin or default, not '%s'", text);
}

static int parse_environment(const struct neap_arguments *arguments, struct additions *additions,
			     struct neap_supervise_options *run)
{
	static char no_trace[] = "NEAP_TRACE=0";
	struct neap_error err = {0};
	const char *text = neap_argument(arguments, "fraction");
	uint64_t max_steps = 0;
	size_t count = 0;
	double fraction;
	char *allocator = NULL;
	const char *steps = neap_argument(arguments, "max-steps");
	bool steady = steps && !strcmp(steps, "steady");
	int code = steady ? 0 : run_options_number(arguments, "max-steps", INT64_MAX, &max_steps);
	if (!code)
		code = parse_allocator(arguments, &allocator);
	if (!code && steps && !steady && !max_steps)
		code = neap_misuse(arguments, "--max-steps: expected a number above 0, or steady");
	if (!code)
		code = run_simulated_make(arguments, &additions->simulated);
	if (code)
		return code;
	for (size_t i = 0; i < additions->simulated.count; i++)
		additions->entries[count++] = additions->simulated.entries[i];
	if (text && neap_fraction_parse(text, &fraction, &err))
		return neap_misuse(arguments, "--fraction: %s", err.message);
	if (text && (size_t)snprintf(additions->fraction, sizeof additions->fraction, "NEAP_FRACTION=%s", text) >=
			    sizeof additions->fraction)
		return neap_misuse(arguments, "--fraction: too many digits");
	if (text)
		additions->entries[count++] = additions->fraction;
	if (allocator)
		additions->entries[count++] = allocator;
	if (neap_argument(arguments, "no-trace"))
		additions->entries[count++] = no_trace;
	if (neap_argument(arguments, "enable") && neap_memory_settings_make(&additions->settings, &err))
		return neap_complain("run", &err);
	for (size_t i = 0; i < additions->settings.count; i++)
		additions->entries[count++] = additions->settings.entries[i];
	if (steps) {
		snprintf(additions->max_steps, sizeof additions->max_steps, "NEAP_MAX_STEPS=%s", steps);
		additions->entries[count++] = additions->max_steps;
	}
	neap_run_python_make(run->command, &additions->python);
	for (size_t i = 0; i < additions->python.count; i++)
		additions->entries[count++] = additions->python.entries[i];
	run->environment = additions->entries;
	return 0;
}

static void show(void *context, const char *text)
{
	(void)context;
	print_safe_lines(stderr, text);
	fflush(stderr);
}

static void print_outcome(const struct neap_result *result)
{
	fprintf(stderr, "neap run: %s: %s", NEAP_PRINTABLE(result->name), neap_outcome_name(result->outcome));
	/* for a failure the evidence would be the exit status, which is printed next */
	const char *why = result->outcome == NEAP_OUTCOME_FAILED ? result->error_line : result->evidence;
	if (why[0])
		fprintf(stderr, " (%s)", NEAP_PRINTABLE(why));
	fprintf(stderr, ", exit status %d, %s\n", result->exit_status,
		neap_duration_format(result->duration_ns, (char[NEAP_UNITS_CAPACITY]){0}));
}

static void print_device(const struct neap_result *result, const struct neap_supervise *run)
{
	size_t index, count;
	if (neap_supervise_device(run, &index, &count))
		fprintf(stderr, "  device    GPU %zu (%s): ", index, NEAP_PRINTABLE(result->device_name));
	else
		fprintf(stderr, "  device    %s: ", NEAP_PRINTABLE(result->device_name));
}

/* After an OOM, prints the device's number in `neap info`: the texts of the OOM have CUDA's, which may differ. */
static void print_numbers(const struct neap_result *result, const struct neap_supervise *run)
{
	size_t index, count;
	if ((result->ooms || result->oom_card[0]) && neap_supervise_device(run, &index, &count) && count > 1)
		fprintf(stderr,
			"  numbers   GPU %zu is its number in 'neap info'; CUDA's, in the texts above, counts only "
			"the devices that the program sees\n",
			index);
}

static void print_memory(const struct neap_result *result, const struct neap_supervise *run)
{
	char first[NEAP_UNITS_CAPACITY], second[NEAP_UNITS_CAPACITY], third[NEAP_UNITS_CAPACITY];
	if (result->attached)
		fprintf(stderr, "  peak      %s allocated, %s reserved\n",
			neap_size_format(result->peak_allocated_bytes, first),
			neap_size_format(result->peak_reserved_bytes, second));
	if (result->device_total_bytes) {
		print_device(result, run);
		if (result->peak_device_bytes) /* else the run was too short to be seen, or used no device memory */
			fprintf(stderr, "%s taken at most, contexts included, ",
				neap_size_format(result->peak_device_bytes, first));
		fprintf(stderr, "%s of %s left\n", neap_size_format(result->headroom_bytes, second),
			neap_size_format(result->device_total_bytes, third));
		print_numbers(result, run);
		if (result->drained)
			fprintf(stderr, "  drain     memory free again after %s\n",
				neap_duration_format(result->drain_ns, first));
		else
			fprintf(stderr, "  drain     %s\n", NEAP_PRINTABLE(result->drain_note));
	} else {
		fprintf(stderr, "  device    memory was not watched: %s\n", NEAP_PRINTABLE(result->drain_note));
	}
	if (result->waited_ns)
		fprintf(stderr, "  waited    %s for free memory\n", neap_duration_format(result->waited_ns, first));
}

/* Prints when the session expected memory to end, and what it did about it. */
static void print_end_of_memory(const struct neap_result *result)
{
	unsigned long long low = result->memory_ends_low_step, high = result->memory_ends_high_step;
	if (result->memory_ends_step) {
		fprintf(stderr, "  forecast  memory ends at step %llu", (unsigned long long)result->memory_ends_step);
		if (high == UINT64_MAX)
			fprintf(stderr, ", %llu at the earliest (99 %%)", low);
		else if (low != high)
			fprintf(stderr, ", between %llu and %llu (99 %%)", low, high);
		fprintf(stderr, "\n");
	}
	if (result->restarts)
		fprintf(stderr, "  restarts  %u in place, before a leak had used up the memory\n", result->restarts);
}

/* Prints the last lines of output that went into a file. */
static void print_last_lines(const struct neap_result *result)
{
	if (!result->last_lines[0])
		return;
	fprintf(stderr, "  last lines of its %s:\n", NEAP_PRINTABLE(result->last_lines_of));
	for (const char *line = result->last_lines; *line;) {
		int length = (int)strcspn(line, "\n");
		char text[1024];
		snprintf(text, sizeof text, "%.*s", length, line);
		fprintf(stderr, "    | %s\n", NEAP_PRINTABLE(text));
		line += length + (line[length] == '\n');
	}
}

static void print_processes(const struct neap_result *result, const char *folder)
{
	struct neap_buffer lines = {0};
	neap_report_processes(&lines, result);
	if (result->attached)
		neap_run_compiled(&lines, "  compiling ", folder);
	fputs(neap_buffer_string(&lines), stderr);
	neap_buffer_fini(&lines);
}

/* `written`: result.json is there. */
static void print_summary(const struct neap_result *result, const struct neap_supervise *run, bool logged,
			  bool written)
{
	const char *folder = neap_supervise_folder(run);
	char size[NEAP_UNITS_CAPACITY];
	print_outcome(result);
	if (logged)
		print_last_lines(result);
	if (result->outcome == NEAP_OUTCOME_NOT_FOUND || result->outcome == NEAP_OUTCOME_NO_MEMORY)
		return;
	print_memory(result, run);
	if (result->ooms || result->retries)
		fprintf(stderr, "  memory    ran out %u time%s, %u restart%s, %u rung%s%s%s\n", result->ooms,
			result->ooms == 1 ? "" : "s", result->retries, result->retries == 1 ? "" : "s", result->rungs,
			result->rungs == 1 ? "" : "s", result->rung[0] ? ": " : "", NEAP_PRINTABLE(result->rung));
	if (result->attached && result->steps) {
		fprintf(stderr, "  steps     %llu", (unsigned long long)result->steps);
		if (result->steps_are[0])
			fprintf(stderr, " (no optimizer made an update; each is a %s)",
				NEAP_PRINTABLE(result->steps_are));
		fprintf(stderr, ", leak: %s", NEAP_PRINTABLE(result->leak_verdict));
		if (!strcmp(result->leak_verdict, "leak"))
			fprintf(stderr, ", %s a step (confidence %.3f)",
				neap_size_format(
					(uint64_t)(result->leak_bytes_per_step > 0 ? result->leak_bytes_per_step : 0),
					size),
				result->leak_confidence);
		fprintf(stderr, "\n");
	}
	print_end_of_memory(result);
	if (result->cleanup[0])
		fprintf(stderr, "  cleanup   %s\n", NEAP_PRINTABLE(result->cleanup));
	if (result->stray_contexts[0])
		fprintf(stderr, "  stray     %s\n", NEAP_PRINTABLE(result->stray_contexts));
	if (result->not_attached[0])
		fprintf(stderr, "  outside   not attached: %s\n", NEAP_PRINTABLE(result->not_attached));
	if (result->simulated[0])
		fprintf(stderr, "  simulated %s\n", NEAP_PRINTABLE(result->simulated));
	if (result->advice[0])
		fprintf(stderr, "  advice    %s\n", NEAP_PRINTABLE(result->advice));
	if (result->savings[0])
		fprintf(stderr, "  savings   %s\n", NEAP_PRINTABLE(result->savings));
	if (result->containment[0])
		fprintf(stderr, "  contained by %s\n", NEAP_PRINTABLE(result->containment));
	print_processes(result, folder);
	run_folder_print_notes(folder, stderr);
	if (written)
		fprintf(stderr, "  result    %s/result.json%s\n", NEAP_PRINTABLE(folder),
			result->oom_card[0] ? " (with the OOM card)" : "");
}

/* The run is over and published: if the history cannot be written, this logs a line, and the run still counts. */
static bool add_to_history(const struct neap_result *result)
{
	struct neap_history *history = NULL;
	struct neap_error err = {0};
	char state[4096], path[4096], note[512] = "";
	enum neap_status status = neap_path_state(state, sizeof state, &err);
	if (!status)
		status = neap_path_join(path, sizeof path, state, "history.db");
	if (!status)
		status = neap_history_open(path, &history, note, &err);
	if (note[0])
		fprintf(stderr, "neap run: %s\n", NEAP_PRINTABLE(note));
	if (!status)
		status = neap_history_put(history, "", "", result, &err);
	if (status)
		fprintf(stderr, "neap run: the run is not in the history: %s\n", NEAP_PRINTABLE(err.message));
	neap_history_close(history);
	return !status;
}

/* The folder of a run for which the user named none. */
static enum neap_status default_folder(const char *run_id, char *text, size_t capacity, struct neap_error *err)
{
	char state[4096], runs[4096];
	enum neap_status status = neap_path_state(state, sizeof state, err);
	if (!status)
		status = neap_path_join(runs, sizeof runs, state, "runs");
	return status ? status : neap_path_join(text, capacity, runs, run_id);
}

/* Called while the run's lock is still held: so its own recordings stay. */
static void bound_recordings(const char *folder, bool recorded, bool quiet)
{
	struct neap_prune_done done;
	struct neap_error err = {0};
	char state[4096], size[NEAP_UNITS_CAPACITY];
	if (neap_path_state(state, sizeof state, NULL))
		return; /* then the run is not in STATE/runs */
	if (neap_prune_default(state, folder, recorded, &done, &err))
		fprintf(stderr, "neap run: old recordings were not deleted: %s\n", NEAP_PRINTABLE(err.message));
	else if (done.runs && !quiet)
		fprintf(stderr,
			"neap run: deleted the recordings of the %zu oldest run%s, %s: all together had passed their "
			"bound (1 GiB, or " NEAP_PRUNE_VARIABLE "); results stay\n",
			done.runs, done.runs == 1 ? "" : "s", neap_size_format(done.bytes, size));
}

static int supervise(const struct neap_arguments *arguments, const struct neap_supervise_options *run,
		     struct run_lease *lease)
{
	struct neap_supervise *supervise = NULL;
	struct neap_result result = {0};
	struct neap_error err = {0};
	bool quiet = neap_argument(arguments, "quiet") != NULL;
	if (neap_supervise_begin(run, &supervise, &err))
		return err.status == NEAP_EINVAL ? neap_misuse(arguments, "%s", err.message)
						 : neap_complain("run", &err);
	int code = 0;
	if (neap_supervise_run(supervise, &result, &err)) {
		code = neap_complain("run", &err);
	} else {
		code = result.exit_status;
		enum neap_status status = neap_supervise_publish(supervise, &result, &err);
		if (!quiet)
			print_summary(&result, supervise, run->log_files, !status);
		else if (result.outcome == NEAP_OUTCOME_NOT_FOUND || result.outcome == NEAP_OUTCOME_NO_MEMORY)
			print_outcome(&result);
		if (!quiet && neap_argument(arguments, "streams"))
			run_simulated_print(neap_supervise_folder(supervise), stderr);
		if (status) {
			fprintf(stderr, "neap run: the command's own exit status was %d\n", result.exit_status);
			neap_complain("run", &err);
			code = NEAP_EXIT_IO;
		}
		bool kept = neap_argument(arguments, "no-history") || add_to_history(&result);
		if (!status && kept)
			neap_run_stage_forget(neap_supervise_folder(supervise));
		lease->over = !status;
		const char *folder = neap_supervise_folder(supervise);
		/* a run elsewhere does not make STATE */
		if (!status && (!neap_argument(arguments, "folder") || strstr(folder, "/neap/runs/")))
			bound_recordings(folder, result.attached, quiet);
	}
	neap_supervise_end(supervise);
	neap_result_fini(&result);
	return code;
}

static void warn_of_silence(const struct neap_arguments *arguments)
{
	const char *attach = getenv("NEAP_ATTACH");
	if (neap_argument(arguments, "on-oom") && attach && strcmp(attach, "0") == 0 &&
	    !neap_argument(arguments, "log") && isatty(STDERR_FILENO))
		fputs("neap run: NEAP_ATTACH=0 is set, and stderr is a terminal: without --log nothing will tell "
		      "that memory ran out, and --on-oom changes nothing\n",
		      stderr);
}

static int run_command(const struct neap_arguments *arguments)
{
	struct neap_supervise_options run = {.wait_limit_ns = NEAP_RUN_WAIT_LIMIT_NS,
					     .drain_limit_ns = NEAP_RUN_DRAIN_LIMIT_NS,
					     .limits.grace_ns = NEAP_RUN_GRACE_NS};
	char run_id[NEAP_RUN_ID_CAPACITY], folder[4096];
	struct additions additions = {0};
	struct neap_error err = {0};
	struct neap_argv command = {0};
	struct run_lease lease = {0};
	int code = run_lease_ticket(&lease, arguments);
	if (!code)
		code = run_options_parse(arguments, &command, &run);
	if (!code)
		warn_of_silence(arguments);
	if (!code)
		code = parse_environment(arguments, &additions, &run);
	const char *needs = neap_argument(arguments, "needs");
	if (!code)
		code = run_estimate_first(arguments, needs && !strcmp(needs, "estimate") ? &run.needs : NULL);
	if (code)
		goto out;
	if (!run.run_id) {
		neap_run_id_make(run_id);
		run.run_id = run_id;
	}
	run.folder = neap_argument(arguments, "folder");
	if (!run.folder) {
		if (default_folder(run.run_id, folder, sizeof folder, &err)) {
			fputs("neap run: without --folder, the run's folder is under XDG_STATE_HOME, else HOME\n",
			      stderr);
			code = neap_complain("run", &err);
			goto out;
		}
		run.folder = folder;
	}
	if (!neap_argument(arguments, "quiet")) {
		run.log = neap_log_stderr();
		run.show = show;
	}
	if (additions.python.trouble[0])
		neap_log(run.log, NEAP_LOG_WARNING, "%s", additions.python.trouble);
	code = run_lease_begin(&lease, arguments, &run);
	if (code)
		goto out;
	bool traces = !neap_argument(arguments, "no-trace");
	if (traces)
		neap_pending_compile_start();
	code = supervise(arguments, &run, &lease);
	if (traces)
		neap_pending_compile_start();
out:
	run_lease_end(&lease, code);
	if (run.folder && neap_queue_revive_left(run.folder, "/proc/self/exe", &err))
		neap_complain("run", &err);
	neap_memory_settings_fini(&additions.settings);
	neap_run_python_fini(&additions.python);
	neap_argv_fini(&command);
	return code;
}
