/* cli/cmd_estimate.c: `neap estimate`: options in, runs on the simulator, one screen out. */
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/estimate_failure.h"
#include "cli/estimate_options.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/run_folder.h"
#include "estimate/driver.h"
#include "estimate/fit_runs.h"
#include "estimate/here.h"
#include "estimate/runs.h"
#include "estimate/text.h"
#include "report/page_file.h"
#include "report/trace_page.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOP          8
#define SCRIPT_BYTES (1u << 20)

static int run_estimate(const struct neap_arguments *arguments);

const struct neap_command neap_command_estimate = {
	.name = "estimate",
	.usage = "[options] -- COMMAND [ARGUMENT...] | [options] --model MODEL [-- PYTHON]",
	.summary = "will a PyTorch program fit on a GPU? Runs it unchanged, without one",
	.details = neap_help_estimate,
	.options =
		(const struct neap_option[]){
			{"model", "MODEL",
			 "instead of a command, neap's own training of a model: a name on the Hugging Face Hub, a "
			 "folder with config.json, such a file, timm:NAME, torchvision:NAME, diffusers:NAME"},
			{"task", "WHICH",
			 "of --model: train (default): all weights learn; lora; qlora: LoRA beside weights of 4 "
			 "bits; infer"},
			{"batch", "N", "of --model: samples at once; default 1"},
			{"sequence", "N",
			 "of --model: tokens of a sample; default 2048, or the most that the model takes"},
			{"image", "N", "of --model: pixels along the side of an image; default: the model's own"},
			{"precision", "WHICH",
			 "of --model: bf16 (default) and fp16, mixed, as trainers do; fp32; bf16-true: all of it"},
			{"optimizer", "WHICH", "of --model: adamw (default), adamw8bit, sgd or adafactor"},
			{"checkpointing", NULL, "of --model: gradient checkpointing"},
			{"accumulation", "N", "of --model: micro-batches of an update; default 1"},
			{"shard", "WHICH", "of --model with --ranks: fsdp (default) or ddp"},
			{"print-script", NULL, "of --model: print the program, and run nothing"},
			{"gpu", "LIST",
			 "profiles separated by commas, as 'neap sim profiles' lists them, 8xNAME for several of "
			 "one, 'here' for this machine's own; default: some common ones"},
			{"max-memory", "SIZE",
			 "instead: what the process may take in all, context included, on the first GPU's "
			 "architecture (sm_90 without --gpu)"},
			{"steps", "N",
			 "end the program after N optimizer updates; default: after three that took no more memory "
			 "than any before, at the latest after 50"},
			{"forwards", "N",
			 "end a program without optimizer after N forward passes of the module that it calls first; "
			 "default: at its own end"},
			{"time-limit", "DURATION", "end it after this long; default 10m"},
			{"ranks", "N",
			 "the program, started as one process, is rank 0 of N, with torch's own fake backend for the "
			 "others: for more ranks than this machine can start"},
			{"values", "WHICH",
			 "compute what kernels would, on the host: auto (default): what is worth its time; full: all "
			 "of it; none: zeros"},
			{"param", "NAME=VALUE", "replaces {NAME} in the command; may be given several times"},
			{"fit", "NAME",
			 "find the largest value of this parameter that fits on each GPU, by runs with other "
			 "values; needs --param NAME=N"},
			{"try", "NAME=VALUE",
			 "run it once more with this value of a parameter, and say what that saves and where it fits "
			 "then; may be given several times"},
			{"plan", "SAMPLES",
			 "list the ways to train with so many samples an update that fit: the changes of --try, "
			 "combined, each with the largest batch (or --fit NAME), by at most 40 runs"},
			{"json", NULL, "every figure, as JSON, in bytes"},
			{"html", "OUT",
			 "a page of all allocations, as of 'neap analyze', into this file; - for "
			 "standard output"},
			{"keep-writes", "DIR",
			 "copy the files that the program writes into this folder, which is new or empty; else they "
			 "are "
			 "dropped"},
			{"no-network", NULL, "the program reaches nothing but this machine's loopback device"},
			{"in-place", NULL,
			 "let the program write its files, and reach its trackers, for real: as a run of it does"},
			{"folder", "DIR", "keep the runs there, with their snapshots and output"},
			{NULL, NULL, NULL},
		},
	.takes_rest = true,
	.run = run_estimate,
};

struct estimate {
	const struct neap_arguments *arguments;
	struct neap_estimate_plan plan;
	struct neap_estimate_command command;
	struct neap_estimate_model model;
	struct estimate_progress progress;
	struct neap_estimate_isolation isolation;
	char keep[NEAP_ESTIMATE_CAPACITY]; /* --keep-writes */
	char *command_text;
	char folder[NEAP_ESTIMATE_CAPACITY]; /* of the runs */
	bool kept;                           /* the user named it */
	struct neap_estimate_job jobs[NEAP_ESTIMATE_GPUS];
	struct neap_estimate_run *runs;
	struct neap_estimate_verdict *verdicts;
	struct neap_estimate_values values;
	bool without_pytorch; /* its use of the driver was shown instead */
};

static bool go_on(void *context, uint64_t done, uint64_t total)
{
	(void)context;
	(void)done;
	(void)total;
	return !estimate_interrupted();
}

/* --print-script: prints the program and its arguments on stdout. */
static int print_script(const struct neap_estimate_model *model)
{
	struct neap_buffer text = {0};
	struct neap_error err = {0};
	if (neap_file_read(model->script, SCRIPT_BYTES, &text, &err) != NEAP_OK)
		return neap_complain("estimate", &err);
	printf("# neap estimate runs this program with: --model=");
	print_safe_text(stdout, model->given.name);
	for (size_t i = 0; model->parameters[i]; i++)
		printf(" --%s", model->parameters[i]);
	printf("\n%s", neap_buffer_string(&text));
	neap_buffer_fini(&text);
	return 0;
}

/* --- options --- */

static int parse(const struct neap_arguments *arguments, struct estimate *estimate)
{
	struct neap_error err = {0};
	const char *memory = neap_argument(arguments, "max-memory"), *gpus = neap_argument(arguments, "gpu");
	struct neap_estimate_here here = {0};
	uint64_t limit = 0;
	int code = estimate_parse_model(arguments, &estimate->model);
	if (code)
		return code;
	if (!estimate->model.given.name && !neap_rest(arguments)[0])
		return neap_misuse(arguments, "no command to run");
	if (memory && (neap_size_parse(memory, &limit, &err) || limit < 64 * NEAP_MIB || limit > SIM_MEMORY_LIMIT))
		return neap_misuse(arguments,
				   "--max-memory: expected a size from 64 MiB to 16 TiB such as 20GiB, not '%s'",
				   memory);
	if (neap_estimate_names_here(gpus) && neap_estimate_find_here(&here, &err))
		return neap_complain("estimate", &err);
	if (neap_estimate_plan(gpus, limit, &here, &estimate->plan, &err))
		return neap_misuse(arguments, "--gpu: %s", err.message);
	estimate->plan.rungs_known = estimate->model.given.name != NULL;
	estimate->plan.rungs = estimate->model.given.name ? neap_estimate_model_rungs(&estimate->model) : 0;
	estimate->plan.values = neap_argument(arguments, "values");
	if (estimate->plan.values && !neap_estimate_values_known(estimate->plan.values))
		return neap_misuse(arguments, "--values: expected auto, full or none, not '%s'",
				   estimate->plan.values);
	if (neap_estimate_bound_values(&estimate->plan, getenv("NEAP_SIM"), &err))
		return neap_complain("estimate", &err);
	if (neap_argument(arguments, "html") && !strcmp(neap_argument(arguments, "html"), "-") &&
	    neap_argument(arguments, "json"))
		return neap_misuse(arguments, "--html - and --json would both go to standard output");
	estimate->command.argv = estimate->model.given.name ? estimate->model.argv : neap_rest(arguments);
	estimate->command.isolation = &estimate->isolation;
	estimate->command.watch = (struct neap_estimate_watch){estimate_progress_go_on, &estimate->progress};
	code = estimate_parse_bounds(arguments, &estimate->command);
	if (!code)
		code = estimate_parse_values(arguments, &estimate->model, estimate->command.argv, &estimate->values);
	if (!code)
		code = estimate_parse_isolation(arguments, &estimate->isolation, estimate->keep);
	estimate->command.parameters = estimate->values.parameters;
	return code;
}

/* The exit status, after SIGINT or SIGTERM. */
static int stopped(void)
{
	fputs("neap estimate: stopped\n", stderr);
	return 128 + estimate_interrupted();
}

/* --- the runs --- */

static enum neap_status make_folder(struct estimate *estimate, struct neap_error *err)
{
	const char *asked = neap_argument(estimate->arguments, "folder"), *temporary = getenv("TMPDIR");
	char path[NEAP_ESTIMATE_CAPACITY];
	if (asked) {
		enum neap_status status = neap_make_folder(asked, 0700, err);
		estimate->kept = true;
		if (!status && !realpath(asked, estimate->folder))
			status = neap_fail(err, NEAP_EIO, "%.200s: no such folder", asked);
		return status;
	}
	snprintf(path, sizeof path, "%s/neap-estimate-XXXXXX", temporary && *temporary ? temporary : "/tmp");
	estimate->isolation.temporary = true;
	if (!mkdtemp(path))
		return neap_fail(err, NEAP_EIO, "%.200s: cannot make a folder there", path);
	snprintf(estimate->folder, sizeof estimate->folder, "%s", path);
	return NEAP_OK;
}

/* Whether the run's figures can be used. */
static bool is_usable(const struct neap_estimate_run *run, enum neap_status status)
{
	enum neap_outcome outcome = run->result.outcome;
	return !status &&
	       (outcome == NEAP_OUTCOME_OK || outcome == NEAP_OUTCOME_STOPPED || outcome == NEAP_OUTCOME_TIMEOUT);
}

/* Shows how much memory a program without PyTorch took from the driver. False: no process used the driver, or an
 * option needs PyTorch's events. */
static bool print_driver(const struct estimate *estimate, size_t index, int *ret_code)
{
	const struct neap_estimate_run *run = &estimate->runs[index];
	struct neap_estimate_driver driver;
	struct neap_estimate_driver_report report = {run->result.command, &estimate->plan, run, &driver};
	struct neap_buffer out = {0};
	uint64_t low, high;
	if (neap_argument(estimate->arguments, "html") || estimate->values.fit.name ||
	    estimate->values.search.samples || estimate->values.tries.count ||
	    !neap_estimate_driver_read(estimate->jobs[index].folder, &driver))
		return false;
	neap_estimate_driver_text(&out, &report);
	*ret_code = neap_argument(estimate->arguments, "json")
			    ? json_print("estimate", neap_estimate_driver_json(&report), JSON_INDENT(2))
			    : 0;
	if (!neap_argument(estimate->arguments, "json"))
		print_safe_lines(stdout, neap_buffer_string(&out));
	neap_buffer_fini(&out);
	for (size_t i = 0; !*ret_code && i <= estimate->plan.count; i++) {
		if (i == estimate->plan.count)
			*ret_code = NEAP_EXIT_FAILED;
		else if (neap_estimate_driver_fits(&report, i, &low, &high) != NEAP_ESTIMATE_NO)
			break;
	}
	return true;
}

/* Whether the program refused the model: prints its sentence, and returns the exit code; else 0. */
static int print_refusal(const struct estimate *estimate, const struct neap_result *result)
{
	int status = result->exit_status;
	if (!estimate->model.given.name || result->outcome != NEAP_OUTCOME_FAILED ||
	    (status != NEAP_EXIT_USAGE && status != NEAP_EXIT_NO_INPUT && status != NEAP_EXIT_UNAVAILABLE))
		return 0;
	fprintf(stderr, "neap estimate: %s\n", NEAP_PRINTABLE(result->error_line));
	return status;
}

/* Reads the run. If memory ran out, runs it again with more memory than any GPU has: only that shows how much the
 * program needs.
 * */
static int read_run(struct estimate *estimate, size_t index)
{
	struct neap_estimate_run *run = &estimate->runs[index];
	struct neap_error err = {0};
	int code = 0;
	enum neap_status status = neap_estimate_read(estimate->jobs[index].folder, run, &err);
	if (run->result.name && (run->result.ooms > 0 || run->result.outcome == NEAP_OUTCOME_OOM)) {
		neap_estimate_run_fini(run);
		*run = (struct neap_estimate_run){0};
		neap_estimate_job_prepare(&estimate->plan, index, NEAP_ESTIMATE_PLENTY, estimate->folder, "-plenty",
					  &estimate->jobs[index]);
		status = neap_estimate_jobs_run(&estimate->command, &estimate->jobs[index], 1, 1, &err);
		if (!status)
			status = neap_estimate_read(estimate->jobs[index].folder, run, &err);
	}
	if (estimate_interrupted())
		return stopped();
	if (is_usable(run, status))
		return 0;
	if (status == NEAP_ENOENT && is_usable(run, NEAP_OK) && print_driver(estimate, index, &code)) {
		estimate->without_pytorch = true;
		return code;
	}
	code = print_refusal(estimate, &run->result);
	if (code)
		return code;
	return estimate_explain_failure(run, estimate->jobs[index].folder, estimate->plan.gpus[0].profile->name,
					status, &err);
}

static int run_all(struct estimate *estimate)
{
	struct neap_error err = {0};
	/* neap's own program does not read the device's size: a second run is never needed. */
	uint64_t memory = estimate->model.given.name ? NEAP_ESTIMATE_PLENTY : 0;
	for (size_t i = 0; i < estimate->plan.run_count; i++)
		neap_estimate_job_prepare(&estimate->plan, i, memory, estimate->folder, "", &estimate->jobs[i]);
	estimate->jobs[0].others = &estimate->jobs[1];
	estimate->jobs[0].other_count = estimate->plan.run_count - 1;
	/* Run the first alone, so that a failing program fails only once. It may fork the others. */
	enum neap_status status = neap_estimate_jobs_run(&estimate->command, estimate->jobs, 1, 1, &err);
	int code = status == NEAP_OK ? read_run(estimate, 0) : 0;
	if (!status && !code)
		neap_estimate_job_take_others(&estimate->jobs[0]);
	if (!status && !code && !estimate->without_pytorch && estimate->plan.run_count > 1)
		status =
			neap_estimate_jobs_run(&estimate->command, estimate->jobs, estimate->plan.run_count, 0, &err);
	for (size_t i = 1; !status && !code && !estimate->without_pytorch && i < estimate->plan.run_count; i++)
		code = read_run(estimate, i);
	if (!status || code)
		return code;
	return estimate_interrupted() ? stopped() : neap_complain("estimate", &err);
}

struct judging {
	struct estimate_progress progress;
	uint64_t began_ns;
	char what[128];
};

static bool go_on_judging(void *context, uint64_t done, uint64_t total)
{
	struct judging *judging = context;
	(void)done;
	(void)total;
	return estimate_progress_go_on(&judging->progress, judging->what,
				       neap_clock_now(neap_clock_system()) - judging->began_ns);
}

static int judge_all(struct estimate *estimate)
{
	struct neap_error err = {0};
	struct judging judging = {.began_ns = neap_clock_now(neap_clock_system())};
	enum neap_status status = NEAP_OK;
	for (size_t i = 0; !status && i < estimate->plan.count; i++) {
		const struct neap_estimate_run *run = &estimate->runs[estimate->plan.gpus[i].run];
		snprintf(judging.what, sizeof judging.what, "GPU %zu of %zu: replaying the run in the memory of %s",
			 i + 1, estimate->plan.count, estimate->plan.gpus[i].name);
		status = neap_estimate_judge(&estimate->plan, i, run, go_on_judging, &judging, &estimate->verdicts[i],
					     &err);
	}
	estimate_progress_go_on(&judging.progress, "", 0);
	if (!status)
		return 0;
	return estimate_interrupted() ? stopped() : neap_complain("estimate", &err);
}

/* Whether other values are not worth a run, because the time limit would end each of them, too. */
static bool is_in_vain(const struct estimate *estimate, const char *what)
{
	for (size_t i = 0; i < estimate->plan.run_count; i++) {
		char end[128];
		if (!neap_estimate_is_cut_short(&estimate->runs[i]))
			continue;
		neap_estimate_end_text(&estimate->runs[i], end, sizeof end);
		fprintf(stderr, "neap estimate: %s: not searched, the program was %s: --time-limit\n", what, end);
		return true;
	}
	return false;
}

static struct neap_estimate_fit_options fit_options(const struct estimate *estimate)
{
	return (struct neap_estimate_fit_options){.plan = &estimate->plan,
						  .command = &estimate->command,
						  .folder = estimate->folder,
						  .keep = estimate->kept,
						  .runs = estimate->runs,
						  .verdicts = estimate->verdicts,
						  .value = estimate->values.fit_value};
}

static int fit_all(struct estimate *estimate)
{
	struct neap_error err = {0};
	const struct neap_estimate_fit_options options = fit_options(estimate);
	char what[160];
	snprintf(what, sizeof what, "--fit %s", estimate->values.fit.name ? estimate->values.fit.name : "");
	if (!estimate->values.fit.name)
		return 0;
	if (is_in_vain(estimate, what)) {
		estimate->values.fit.name = NULL;
		return 0;
	}
	estimate->values.fit.points = calloc(NEAP_ESTIMATE_POINTS, sizeof *estimate->values.fit.points);
	if (!estimate->values.fit.points)
		return NEAP_EXIT_OS;
	if (neap_estimate_fit_find(&options, &estimate->values.fit, &err) == NEAP_OK)
		return 0;
	return estimate_interrupted() ? stopped() : neap_complain("estimate", &err);
}

static int plan_all(struct estimate *estimate)
{
	const struct neap_estimate_run *run = &estimate->runs[0];
	const struct neap_estimate_fit_options options = fit_options(estimate);
	uint64_t processes = 0;
	struct neap_error err = {0};
	if (!estimate->values.search.samples)
		return 0;
	if (is_in_vain(estimate, "--plan")) {
		estimate->values.search.samples = 0;
		return 0;
	}
	for (size_t i = 0; i < run->process_count; i++)
		processes += run->processes[i].rank != UINT64_MAX;
	if (estimate->command.ranks)
		processes = strtoull(estimate->command.ranks, NULL, 10);
	if (neap_estimate_search_begin(&estimate->values.search, processes ? processes : 1, &err))
		return neap_misuse(estimate->arguments, "--plan: %s", err.message);
	if (neap_estimate_search_run(&options, estimate->values.accumulation, &estimate->values.search, &err) ==
	    NEAP_OK)
		return 0;
	return estimate_interrupted() ? stopped() : neap_complain("estimate", &err);
}

static int try_all(struct estimate *estimate)
{
	struct neap_error err = {0};
	if (neap_estimate_tries_run(&estimate->plan, &estimate->command, estimate->folder, estimate->kept,
				    &estimate->values.tries, &err) == NEAP_OK)
		return 0;
	return estimate_interrupted() ? stopped() : neap_complain("estimate", &err);
}

/* --- reporting --- */

static struct neap_estimate_report report_of(const struct estimate *estimate)
{
	return (struct neap_estimate_report){.command = estimate->command_text,
					     .plan = &estimate->plan,
					     .runs = estimate->runs,
					     .verdicts = estimate->verdicts,
					     .fit = estimate->values.fit.name ? &estimate->values.fit : NULL,
					     .tries = &estimate->values.tries,
					     .search = estimate->values.search.samples ? &estimate->values.search
										       : NULL,
					     .ranks = estimate->command.ranks,
					     .top = TOP};
}

static int write_page(const struct estimate *estimate)
{
	const char *html = neap_argument(estimate->arguments, "html");
	const struct neap_estimate_run *run = &estimate->runs[0];
	struct neap_analysis_options options = {.device = run->analysis.device, .progress = go_on};
	struct neap_estimate_report report = report_of(estimate);
	struct neap_page_file file = {0};
	struct neap_buffer answer = {0}, below = {0};
	struct neap_error err = {0};
	uint64_t bytes = 0;
	if (!html)
		return 0;
	neap_estimate_answer(&answer, &report);
	neap_estimate_markup(&below, &report);
	struct neap_trace_page_options page = {.path = estimate->command_text,
					       .verb = "estimate",
					       .top = TOP,
					       .analysis = &options,
					       .answer = neap_buffer_string(&answer),
					       .below = neap_buffer_string(&below)};
	enum neap_status status = neap_buffer_status(&answer, &err);
	if (!status)
		status = neap_buffer_status(&below, &err);
	if (!status)
		status = neap_page_file_begin(&file, html,
					      (const char *[]){run->processes[run->worst].snapshot, NULL}, &err);
	if (!status)
		status = neap_trace_page_write(file.fd, &run->analysis, &page, &bytes, &err);
	if (!status)
		status = neap_page_file_commit(&file, &err);
	neap_page_file_abort(&file);
	neap_buffer_fini(&answer);
	neap_buffer_fini(&below);
	if (!status)
		return 0;
	return estimate_interrupted() ? stopped() : neap_complain("estimate", &err);
}

static int print_estimate(const struct estimate *estimate)
{
	struct neap_estimate_report report = report_of(estimate);
	const char *html = neap_argument(estimate->arguments, "html");
	struct neap_buffer out = {0};
	struct neap_error err = {0};
	int code = 0;
	if (neap_argument(estimate->arguments, "json"))
		return json_print("estimate", neap_estimate_json(&report), JSON_INDENT(2));
	if (html && strcmp(html, "-") == 0)
		return 0;
	neap_estimate_text(&out, &report);
	if (neap_buffer_status(&out, &err) != NEAP_OK)
		code = neap_complain("estimate", &err);
	else
		print_safe_lines(stdout, neap_buffer_string(&out));
	if (!code && html)
		printf("\nPage: %s\n", NEAP_PRINTABLE(html));
	if (!code && estimate->kept)
		printf("\nRuns: %s (neap analyze %s)\n", NEAP_PRINTABLE(estimate->folder),
		       NEAP_PRINTABLE(estimate->runs[0].processes[estimate->runs[0].worst].snapshot));
	neap_buffer_fini(&out);
	return code;
}

/* Tells scripts whether it fits anywhere. */
static int exit_code(const struct estimate *estimate)
{
	if (estimate->values.search.samples)
		return neap_estimate_search_fits(&estimate->values.search, &estimate->plan) ? NEAP_EXIT_OK
											    : NEAP_EXIT_FAILED;
	for (size_t i = 0; i < estimate->plan.count; i++)
		if (estimate->verdicts[i].fits != NEAP_ESTIMATE_NO && !estimate->verdicts[i].unsupported)
			return NEAP_EXIT_OK;
	return NEAP_EXIT_FAILED;
}

static int estimate_all(struct estimate *estimate)
{
	int code = run_all(estimate);
	if (estimate->without_pytorch)
		return code;
	if (!code) {
		const struct neap_result *result = &estimate->runs[0].result;
		estimate->command_text = estimate->model.given.name
						 ? neap_estimate_model_text(&estimate->model, result)
						 : strdup(result->command);
		code = estimate->command_text ? judge_all(estimate) : NEAP_EXIT_OS;
	}
	if (!code)
		code = fit_all(estimate);
	if (!code)
		code = plan_all(estimate);
	if (!code)
		code = try_all(estimate);
	if (!code)
		code = write_page(estimate);
	if (!code)
		code = print_estimate(estimate);
	return code ? code : exit_code(estimate);
}

static int run_estimate(const struct neap_arguments *arguments)
{
	struct estimate *estimate = calloc(1, sizeof *estimate);
	struct neap_error err = {0};
	int code = NEAP_EXIT_OS;
	if (!estimate)
		return code;
	estimate->arguments = arguments;
	code = parse(arguments, estimate);
	if (!code && neap_argument(arguments, "print-script")) {
		code = print_script(&estimate->model);
		goto out;
	}
	if (code)
		goto out;
	estimate->runs = calloc(estimate->plan.run_count, sizeof *estimate->runs);
	estimate->verdicts = calloc(estimate->plan.count, sizeof *estimate->verdicts);
	if (!estimate->runs || !estimate->verdicts) {
		code = NEAP_EXIT_OS;
		goto out;
	}
	estimate_catch_signals();
	if (make_folder(estimate, &err) != NEAP_OK) {
		code = neap_complain("estimate", &err);
		goto out;
	}
	code = estimate_all(estimate);
	for (size_t i = 0; i < estimate->plan.run_count; i++)
		neap_estimate_run_fini(&estimate->runs[i]);
	if (!estimate->kept)
		neap_estimate_remove(estimate->folder);
out:
	free(estimate->runs);
	free(estimate->verdicts);
	neap_estimate_values_fini(&estimate->values);
	free(estimate->command_text);
	neap_estimate_model_fini(&estimate->model);
	free(estimate);
	return code;
}
