/* cli/cmd_series.c: `neap series`: a file of experiments, each exactly once. */
#include "base/error.h"
#include "base/paths.h"
#include "cli/command.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/series_slurm.h"
#include "estimate/here.h"
#include "report/report.h"
#include "series/series.h"
#include "series/spec.h"
#include "series/spec_settings.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int series_command(const struct neap_arguments *arguments);

static const struct neap_option known_options[] = {
	{"resume", NULL, "continue an unfinished or edited series; show the report of a finished one again"},
	{"only-failed", NULL, "run failed experiments again, and start nothing else; --resume is not needed"},
	{"folder", "DIR", "where the series is kept; default: under STATE/neap/series, named after the file"},
	{"dry-run", NULL, "show what would run, and start nothing"},
	{"slurm", NULL, "submit it to Slurm, or gather the results of what was submitted"},
	{"wait", NULL, "with --slurm: stay until all tasks have ended"},
	{"slurm-task", "N", "run a task of submission N, in the script that --slurm writes"},
	{"estimate", "[=GPU]",
	 "first run experiments whose needs nothing tells on the simulator, and use what they take there; for this "
	 "machine's GPU, or for a profile of 'neap sim profiles'"},
	{"in-place", NULL,
	 "with --estimate: let the programs write their files for real there: see 'neap help estimate'"},
	{"sort", "ORDER",
	 "of the table: peak (highest first; default), file, loss (lowest first) or time (longest first)"},
	{"columns", "LIST",
	 "of the table, separated by commas: name, outcome, peak, headroom, fits, drain, retries, rung, leak, time "
	 "(the "
	 "default), loss, steps, names of parameters, and params: all parameters that differ"},
	{"quiet", NULL, "one line per experiment, and errors, without the supervisors' log lines"},
	{0},
};

const struct neap_command neap_command_series = {
	.name = "series",
	.usage = "FILE [--resume] [--only-failed] [--slurm [--wait]] [--estimate[=GPU] [--in-place]] [--folder DIR] "
		 "[--sort "
		 "ORDER] [--columns LIST] "
		 "[--dry-run] [--quiet]",
	.summary = "run a list of experiments, each in its own process and exactly once",
	.details = neap_help_series,
	.options = known_options,
	.operands_min = 1,
	.operands_max = 1,
	.run = series_command,
};

/* How often the user has asked to stop, and by which signal: a handler can reach nothing else. */
static volatile sig_atomic_t interrupts;
static volatile sig_atomic_t interrupted_by;

static void on_signal(int signal)
{
	interrupts++;
	interrupted_by = signal;
}

static void catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	action.sa_handler = SIG_IGN; /* a closed pipe or a full file must not stop an overnight series */
	sigaction(SIGPIPE, &action, NULL);
	sigaction(SIGXFSZ, &action, NULL);
}

static void print_line(void *context, const char *text)
{
	if (context)
		progress_clear(context);
	fprintf(stderr, "%s\n", NEAP_PRINTABLE(text));
}

static void show_progress(void *context, const struct neap_series_progress *progress)
{
	progress_draw(context, progress);
}

/* Returns false, with a message, if the experiment's command cannot be run. */
static bool check_command(const struct neap_experiment *experiment)
{
	const char *name = experiment->command.items[0];

	if (neap_experiment_has_command(experiment))
		return true;
	fprintf(stderr, "neap series: %s: there is no command '%s'%s%s\n", NEAP_PRINTABLE(experiment->name),
		NEAP_PRINTABLE(name), strchr(name, '/') ? "" : " on PATH",
		experiment->directory && strchr(name, '/') ? " (relative to its directory)" : "");
	return false;
}

static int print_plan(const struct neap_spec *spec)
{
	int code = NEAP_EXIT_OK;
	printf("%s: %zu experiment%s", NEAP_PRINTABLE(spec->name), spec->count, spec->count == 1 ? "" : "s");
	if (spec->parallel > 1)
		printf(", up to %u at the same time", spec->parallel);
	printf("\n");
	for (size_t i = 0; i < spec->count; i++) {
		const struct neap_experiment *experiment = &spec->experiments[i];
		char *command = neap_argv_join(&experiment->command), *params = neap_argv_join(&experiment->params);
		if (!command || !params) {
			free(command);
			free(params);
			return NEAP_EXIT_OS;
		}
		printf("%zu. %s\n     command  ", i + 1, NEAP_PRINTABLE(experiment->name));
		print_safe_text(stdout, command);
		putchar('\n');
		if (*params)
			printf("     params   %s\n", NEAP_PRINTABLE(params));
		printf("     needs    %s\n", experiment->needs ? NEAP_PRINTABLE(experiment->needs)
							       : "as measured before, else the whole device");
		for (const struct neap_setting *setting = neap_settings; setting->key; setting++) {
			const char *value = neap_setting_value(setting, experiment);
			if (value && value != experiment->needs)
				printf("     %-8s %s\n", setting->key, NEAP_PRINTABLE(value));
		}
		for (size_t k = 0; k < experiment->env.count; k++)
			printf("     env      %s\n", NEAP_PRINTABLE(experiment->env.items[k]));
		free(command);
		free(params);
		if (!check_command(experiment))
			code = NEAP_EXIT_NO_INPUT;
	}
	return code;
}

static void print_continue(size_t left, bool disk_full, const struct neap_series_options *options)
{
	char *text = series_continue_command(options, NULL);
	fprintf(stderr, "neap series: %zu experiment%s left; %scontinue with: neap series %s\n", left,
		left == 1 ? "" : "s", disk_full ? "make room on the disk and " : "",
		text ? NEAP_PRINTABLE(text) : "FILE --resume");
	free(text);
}

/* Explains why a series has not ended. */
static int complain(const struct neap_series_summary *summary, const struct neap_series_options *options,
		    const struct neap_error *err)
{
	bool resumable = *summary->folder != '\0';
	int code = neap_exit_of(err->status);
	if (err->status == NEAP_ECANCELED)
		code = 128 + interrupted_by;
	else if (summary->supervisor_exit)
		code = summary->supervisor_exit;
	struct neap_error plain = *err;
	plain.line = 0; /* the message already has the place, with the file's name */
	neap_complain("series", &plain);
	if (resumable)
		print_continue(summary->left, code == NEAP_EXIT_IO, options);
	return code;
}

/* NULL: nothing is to be estimated. */
static const char *estimated_gpu(const struct neap_arguments *arguments)
{
	const char *gpu = neap_argument(arguments, "estimate");
	return gpu && !*gpu ? NEAP_ESTIMATE_HERE : gpu;
}

static struct neap_series_options make_options(const struct neap_arguments *arguments, const char *file,
					       const char *state, const char *program)
{
	return (struct neap_series_options){
		.file = file,
		.folder = neap_argument(arguments, "folder"),
		.state_folder = state,
		.program = program,
		.resume = neap_argument(arguments, "resume") || neap_argument(arguments, "only-failed"),
		.only_failed = neap_argument(arguments, "only-failed") != NULL,
		.estimate = estimated_gpu(arguments),
		.estimate_in_place = neap_argument(arguments, "in-place") != NULL,
		.quiet = neap_argument(arguments, "quiet") != NULL,
		.line = print_line,
		.interrupts = &interrupts,
	};
}

/* Reads --sort and --columns. `results` NULL: only checks them. */
static enum neap_status choose_columns(const struct neap_arguments *arguments, const struct neap_spec *spec,
				       const struct neap_result *results, size_t count, struct neap_argv *params,
				       struct neap_report_columns *ret_columns, struct neap_error *err)
{
	if (neap_spec_parameter_names(spec, params))
		return neap_fail(err, NEAP_ENOMEM, "out of memory");
	enum neap_status status = neap_report_columns_parse(neap_argument(arguments, "columns"), params->items,
							    params->count, results, count, ret_columns, err);
	if (status)
		neap_error_prefix(err, "--columns");
	if (!status && (status = neap_report_order_parse(neap_argument(arguments, "sort"), &ret_columns->order, err)))
		neap_error_prefix(err, "--sort");
	return status;
}

/* Prints the table, then the report page's path on the last line. */
static int print_report(const struct neap_arguments *arguments, const struct neap_spec *spec,
			const struct neap_series_summary *summary, int code)
{
	struct neap_buffer table = {0};
	struct neap_error err = {0};
	struct neap_argv params = {0};
	struct neap_report_columns columns;
	if (choose_columns(arguments, spec, summary->results, summary->count, &params, &columns, &err)) {
		neap_argv_fini(&params);
		return neap_complain("series", &err); /* looked at before: out of memory, or too many that differ */
	}
	neap_report_table(&table, summary->results, summary->count, &columns, neap_color(arguments, stdout));
	neap_argv_fini(&params);
	neap_report_failures(&table, summary->results, summary->count);
	neap_report_comparisons(&table, summary->comparisons, summary->comparison_count);
	if (neap_buffer_status(&table, &err))
		code = neap_complain("series", &err);
	else
		printf("%s\n%s\n", neap_buffer_string(&table), NEAP_PRINTABLE(summary->report));
	neap_buffer_fini(&table);
	return code;
}

/* Slurm's nodes start neap by the path that it has here. */
static int run_slurm(const struct neap_arguments *arguments, const struct neap_spec *spec, const char *file)
{
	struct neap_slurm_summary summary = {0};
	struct neap_error err = {0};
	char state[4096], program[4096];
	bool report = false;
	ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
	if (length <= 0 || (size_t)length == sizeof program - 1) {
		fputs("neap series: cannot tell where the neap command is: reading /proc/self/exe failed\n", stderr);
		return NEAP_EXIT_OS;
	}
	program[length] = '\0';
	if (neap_argument(arguments, "slurm-task"))
		return series_slurm_task(arguments, spec, program);
	if (neap_slurm_check(spec, file, &err) || neap_path_state(state, sizeof state, &err))
		return neap_complain("series", &err);
	struct neap_slurm_options options = {
		.series = make_options(arguments, file, state, program),
		.wait = neap_argument(arguments, "wait") != NULL,
	};
	if (neap_argument(arguments, "dry-run")) {
		int code = print_plan(spec);
		return code ? code : series_slurm_print_plan(spec, &options);
	}
	catch_signals();
	int code = series_slurm_run(spec, &options, &summary, &report);
	if (report)
		code = print_report(arguments, spec, &summary.series, code);
	if (code == NEAP_EXIT_FAILED && !report && interrupts)
		code = 128 + interrupted_by;
	neap_slurm_summary_fini(&summary);
	return code;
}

static int run_series(const struct neap_arguments *arguments, const struct neap_spec *spec, const char *file)
{
	struct neap_series_summary summary = {0};
	struct neap_error err = {0};
	struct progress_line progress;
	char state[4096];
	if (neap_path_state(state, sizeof state, &err))
		return neap_complain("series", &err);
	struct neap_series_options options = make_options(arguments, file, state, "/proc/self/exe");
	catch_signals();
	int code;
	progress_begin(&progress, stderr);
	options.line_context = &progress;
	options.progress = progress.stream ? show_progress : NULL;
	enum neap_status status = neap_series_run(spec, &options, &summary, &err);
	progress_clear(&progress);
	if (status)
		code = complain(&summary, &options, &err);
	else
		code = print_report(arguments, spec, &summary, summary.failed ? NEAP_EXIT_FAILED : NEAP_EXIT_OK);
	neap_series_summary_fini(&summary);
	return code;
}

/* Prints what would run and, if a series is resumed, what would be kept. */
static int dry_run(const struct neap_arguments *arguments, const struct neap_spec *spec, const char *file)
{
	struct neap_error err = {0};
	char state[4096];
	if (neap_path_state(state, sizeof state, &err))
		return neap_complain("series", &err);
	struct neap_series_options options = make_options(arguments, file, state, "/proc/self/exe");
	int code = print_plan(spec);
	fflush(stdout);
	if (options.resume && neap_series_preview(spec, &options, &err))
		return neap_complain("series", &err);
	return code;
}

/* Refuses a GPU without a profile before anything starts. */
static int check_estimate(const struct neap_arguments *arguments)
{
	const char *gpu = estimated_gpu(arguments);
	struct neap_estimate_here here = {0};
	struct neap_estimate_plan plan;
	struct neap_error err = {0};
	if (!gpu && neap_argument(arguments, "in-place"))
		return neap_misuse(arguments, "--in-place goes with --estimate");
	if (!gpu)
		return NEAP_EXIT_OK;
	if (neap_estimate_names_here(gpu) && neap_estimate_find_here(&here, &err))
		return neap_misuse(arguments, "--estimate: %s: name the GPU, as in --estimate=h100-80gb",
				   err.message);
	if (neap_estimate_plan(gpu, 0, &here, &plan, &err))
		return neap_misuse(arguments, "--estimate: %s", err.message);
	return NEAP_EXIT_OK;
}

static int series_command(const struct neap_arguments *arguments)
{
	if (neap_argument(arguments, "wait") && !neap_argument(arguments, "slurm"))
		return neap_misuse(arguments, "--wait is for --slurm: without it every series is waited for");
	if (neap_argument(arguments, "only-failed") && neap_argument(arguments, "slurm"))
		return neap_misuse(arguments, "--only-failed is not for --slurm");
	int code = check_estimate(arguments);
	if (code)
		return code;
	const char *file = neap_operand(arguments, 0);
	struct neap_spec spec = {0};
	struct neap_error err = {0};
	enum neap_status status = neap_spec_read(file, &spec, &err);
	if (!status)
		status = neap_series_check(&spec, file, &err);
	if (status) {
		err.line = 0; /* the message already has the place, with the file's name */
		neap_spec_fini(&spec);
		return neap_complain("series", &err);
	}
	struct neap_argv params = {0};
	struct neap_report_columns columns;
	status = choose_columns(arguments, &spec, NULL, 0, &params, &columns, &err);
	neap_argv_fini(&params);
	if (status) {
		neap_spec_fini(&spec);
		return status == NEAP_EINVAL ? neap_misuse(arguments, "%s", err.message)
					     : neap_complain("series", &err);
	}
	if (neap_argument(arguments, "slurm") || neap_argument(arguments, "slurm-task"))
		code = run_slurm(arguments, &spec, file);
	else
		code = neap_argument(arguments, "dry-run") ? dry_run(arguments, &spec, file)
							   : run_series(arguments, &spec, file);
	neap_spec_fini(&spec);
	return code;
}
