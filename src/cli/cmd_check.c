/* cli/cmd_check.c: `neap check`: is a program's memory within its bounds? One line and an exit code, for CI. */
#include "base/units.h"
#include "cli/check_streams.h"
#include "cli/command.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/run_folder.h"
#include "estimate/measure.h"
#include "sim/profiles/profile.h"
#include "store/json_rows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA            1
#define NONE              UINT64_MAX
#define DEFAULT_TOLERANCE 1.0

static int run_check(const struct neap_arguments *arguments);

const struct neap_command neap_command_check = {
	.name = "check",
	.usage = "[options] -- COMMAND [ARGUMENT...] | TRACE [options] | --streams RUN [options]",
	.summary = "is a program's memory within its bounds? One line and an exit code, for CI",
	.details = neap_help_check,
	.options =
		(const struct neap_option[]){
			{"max-peak", "SIZE", "the most that may be allocated at once"},
			{"max-growth", "SIZE", "the most that memory may grow per step; 0: not at all"},
			{"baseline", "FILE", "at most what was stored there, with the tolerance"},
			{"tolerance", "PERCENT", "by which the peak may be above the baseline's; default 1"},
			{"save-baseline", "FILE", "store what was measured there, when it is within the bounds"},
			{"steps", "N", "end a PyTorch program after N optimizer updates; default: at its own end"},
			{"time-limit", "DURATION", "end the command after this long; default: none"},
			{"gpu", "PROFILE",
			 "on the simulator, on this GPU ('neap sim profiles'; 2xh100-80gb: two), also where there is "
			 "a real one"},
			{"streams", "[=delay[:SEED]]",
			 "look for races between streams instead, and for memory that is used too late, on the "
			 "simulator; 'delay' also runs streams late, so that a race shows as a wrong number"},
			{"accept", "FILE", "with --streams: races whose keys stand there are known, a line each"},
			{"json", NULL,
			 "what was measured and what was allowed, as JSON, in bytes; the command prints to stderr"},
			{NULL, NULL, NULL},
		},
	.takes_rest = true,
	.operands_max = 1,
	.run = run_check,
};

struct check {
	uint64_t peak_bound, growth_bound; /* NONE: not asked for */
	double tolerance;
	bool has_baseline;
	struct neap_check_figures baseline, figures;
	bool peak_over, growth_over;
	bool growth_unknown; /* its growth cannot be judged against the bound */
};

/* --- options --- */

static int parse_size(const struct neap_arguments *arguments, const char *option, uint64_t *ret_bytes)
{
	struct neap_error err = {0};
	const char *text = neap_argument(arguments, option);
	*ret_bytes = NONE;
	if (text && neap_size_parse(text, ret_bytes, &err))
		return neap_misuse(arguments, "--%s: %s", option, err.message);
	return 0;
}

static int parse_command_options(const struct neap_arguments *arguments)
{
	const char *gpu = neap_argument(arguments, "gpu"), *limit = neap_argument(arguments, "time-limit");
	const char *steps = neap_argument(arguments, "steps");
	struct neap_error err = {0};
	struct sim_spec spec;
	uint64_t value = 0;
	if (gpu && (!*gpu || sim_spec_parse(gpu, &spec, NULL)))
		return neap_misuse(arguments, "--gpu: '%s' is not a profile: 'neap sim profiles' lists them", gpu);
	if (limit && (neap_duration_parse(limit, &value, &err) || !value))
		return neap_misuse(arguments, "--time-limit: expected a time such as 10m, not '%s'", limit);
	if (steps && (neap_u64_parse(steps, &value, &err) || !value || value > INT64_MAX))
		return neap_misuse(arguments, "--steps: expected a whole number above 0, not '%s'", steps);
	const char *sim = getenv("NEAP_SIM");
	if (!gpu && sim && neap_argument(arguments, "streams") && sim_spec_parse(sim, &spec, &err))
		return neap_misuse(arguments, "%s", err.message);
	if (!neap_rest(arguments)[0] && (gpu || limit || steps))
		return neap_misuse(arguments, "--gpu, --steps and --time-limit are for a command");
	return 0;
}

static int parse(const struct neap_arguments *arguments, struct check *check)
{
	const char *tolerance = neap_argument(arguments, "tolerance"), *file = neap_argument(arguments, "baseline");
	struct neap_error err = {0};
	int code;
	check->tolerance = DEFAULT_TOLERANCE;
	if (!neap_rest(arguments)[0] == !neap_operand_count(arguments))
		return neap_misuse(arguments, "give either a command after --, or a trace");
	if ((code = parse_size(arguments, "max-peak", &check->peak_bound)) ||
	    (code = parse_size(arguments, "max-growth", &check->growth_bound)) ||
	    (code = parse_command_options(arguments)))
		return code;
	if (tolerance && (neap_double_parse(tolerance, &check->tolerance, &err) || !(check->tolerance >= 0) ||
			  check->tolerance > 1000))
		return neap_misuse(arguments, "--tolerance: expected a percentage from 0 to 1000, not '%s'",
				   tolerance);
	if (tolerance && !file)
		return neap_misuse(arguments, "--tolerance is for --baseline");
	if (neap_argument(arguments, "accept") && !neap_argument(arguments, "streams"))
		return neap_misuse(arguments, "--accept is for --streams");
	if (neap_argument(arguments, "streams"))
		return 0;
	if (check->peak_bound == NONE && check->growth_bound == NONE && !file &&
	    !neap_argument(arguments, "save-baseline"))
		return neap_misuse(arguments, "no bound: give --max-peak, --max-growth or --baseline");
	if (file && neap_check_baseline_load(file, &check->baseline, &err))
		return neap_complain("check", &err);
	check->has_baseline = file != NULL;
	return 0;
}

/* Sets each bound to the tighter one of the option and the baseline. */
static void set_bounds(struct check *check)
{
	if (!check->has_baseline)
		return;
	uint64_t peak = check->baseline.allocated_peak;
	peak += (uint64_t)((double)peak * check->tolerance / 100);
	if (peak < check->peak_bound)
		check->peak_bound = peak;
	if (check->baseline.growth != NEAP_CHECK_GROWTH_UNKNOWN &&
	    check->baseline.bytes_per_step < check->growth_bound)
		check->growth_bound = check->baseline.bytes_per_step;
}

/* --- reporting --- */

/* "peak 76.6 MiB, 23.4 MiB below 100 MiB" */
static void put_bound(struct neap_buffer *out, const char *what, uint64_t measured, uint64_t bound)
{
	neap_buffer_format(out, "%s %s", what, NEAP_SIZE(measured));
	if (bound == NONE)
		return;
	if (measured == bound)
		neap_buffer_format(out, ", as much as is allowed");
	else
		neap_buffer_format(out, ", %s %s the bound of %s",
				   NEAP_SIZE(measured > bound ? measured - bound : bound - measured),
				   measured > bound ? "over" : "below", NEAP_SIZE(bound));
}

static bool is_over(const struct check *check) { return check->peak_over || check->growth_over; }
static bool is_incomplete(const struct check *check) { return check->growth_unknown || check->figures.partial; }

static void put_line(struct neap_buffer *out, const struct check *check)
{
	const struct neap_check_figures *figures = &check->figures;
	neap_buffer_format(out, "neap check: %s: ",
			   is_over(check)         ? "FAILED"
			   : is_incomplete(check) ? "incomplete"
						  : "ok");
	put_bound(out, "peak", figures->allocated_peak, check->peak_bound);
	if (figures->growth != NEAP_CHECK_GROWTH_UNKNOWN) {
		neap_buffer_text(out, "; ");
		put_bound(out, "growth per step", figures->bytes_per_step, check->growth_bound);
	} else if (check->growth_unknown) {
		neap_buffer_format(out,
				   "; growth is not known after %" PRIu64 " step%s: it takes 20 after the warm-up",
				   figures->steps, figures->steps == 1 ? "" : "s");
	}
	if (check->has_baseline)
		neap_buffer_format(out, "; baseline %s", NEAP_SIZE(check->baseline.allocated_peak));
	if (figures->failed_status)
		neap_buffer_format(out, "; the run failed with exit status %d: it took this until then",
				   figures->failed_status);
	else if (figures->partial)
		neap_buffer_text(out, "; the run has no result: it took this so far");
	neap_buffer_format(out, " (%s%s)\n", NEAP_PRINTABLE(figures->where), figures->simulated ? ", simulated" : "");
}

/* "ok" is null if there is a bound and the value is unknown. */
static json_t *bound_json(uint64_t measured, uint64_t bound, bool over)
{
	return JSON(KNOWN("measured", measured), KNOWN("bound", bound),
		    ONLY(measured != NONE || bound == NONE, BOOL("ok", !over)));
}

static int print_json(const struct check *check)
{
	const struct neap_check_figures *figures = &check->figures;
	json_t *root = JSON(
		INTEGER("schema", SCHEMA), ONLY(is_over(check) || !is_incomplete(check), BOOL("ok", !is_over(check))),
		VALUE("peak", bound_json(figures->allocated_peak, check->peak_bound, check->peak_over)),
		VALUE("growth",
		      bound_json(figures->growth == NEAP_CHECK_GROWTH_UNKNOWN ? NONE : figures->bytes_per_step,
				 check->growth_bound, check->growth_over)),
		GIVEN("reserved_peak", figures->reserved_peak), NUMBER("steps", figures->steps),
		TEXT("where", figures->where), BOOL("simulated", figures->simulated),
		ONLY(check->has_baseline, NUMBER("baseline", check->baseline.allocated_peak)));
	return json_print("check", root, JSON_INDENT(2));
}

static int print_check(const struct neap_arguments *arguments, const struct check *check)
{
	struct neap_buffer out = {0};
	struct neap_error err = {0};
	int code = 0;
	if (neap_argument(arguments, "json"))
		return print_json(check);
	put_line(&out, check);
	if (neap_buffer_status(&out, &err))
		code = neap_complain("check", &err);
	else
		fputs(neap_buffer_string(&out), stdout);
	neap_buffer_fini(&out);
	return code;
}

/* Warns if the baseline is of another device, or of the simulator: its figures are comparable only with care. */
static void warn_of_baseline(const struct check *check)
{
	const struct neap_check_figures *now = &check->figures, *then = &check->baseline;
	if (check->has_baseline && *now->where &&
	    (strcmp(now->where, then->where) || now->simulated != then->simulated))
		fprintf(stderr, "neap check: the baseline was measured elsewhere: %s%s\n",
			NEAP_PRINTABLE(then->where), then->simulated ? ", simulated" : "");
}

static int measure(const struct neap_arguments *arguments, struct check *check)
{
	struct neap_error err = {0};
	struct estimate_progress progress = {0};
	const struct neap_check_command command = {.argv = neap_rest(arguments),
						   .steps = neap_argument(arguments, "steps"),
						   .time_limit = neap_argument(arguments, "time-limit"),
						   .gpu = neap_argument(arguments, "gpu"),
						   .apart = neap_argument(arguments, "json"),
						   .watch = {estimate_progress_go_on, &progress}};
	bool has_trace = neap_operand_count(arguments) > 0;
	if (!has_trace)
		estimate_catch_signals();
	enum neap_status status =
		has_trace ? neap_check_measure_trace(neap_operand(arguments, 0), &check->figures, &err)
			  : neap_check_measure_command(&command, &check->figures, &err);
	if (status == NEAP_ECANCELED)
		return 128 + estimate_interrupted();
	if (status)
		return neap_complain("check", &err);
	if (check->figures.lost)
		run_folder_print_lost("check", stderr);
	if (check->figures.exit_status)
		fprintf(stderr, "neap check: not checked: the command failed, exit status %d\n",
			check->figures.exit_status);
	return check->figures.exit_status;
}

static int run_check(const struct neap_arguments *arguments)
{
	struct check check = {0};
	struct neap_error err = {0};
	const char *save = neap_argument(arguments, "save-baseline");
	int code = parse(arguments, &check);
	if (!code && neap_argument(arguments, "streams"))
		return check_streams(arguments);
	if (!code)
		code = measure(arguments, &check);
	if (code)
		return code;
	set_bounds(&check);
	check.peak_over = check.figures.allocated_peak > check.peak_bound;
	check.growth_over = check.figures.bytes_per_step > check.growth_bound;
	check.growth_unknown = check.growth_bound != NONE && check.figures.growth == NEAP_CHECK_GROWTH_UNKNOWN;
	warn_of_baseline(&check);
	code = print_check(arguments, &check);
	if (!code)
		code = is_over(&check)               ? NEAP_EXIT_FAILED
		       : check.figures.failed_status ? check.figures.failed_status
		       : is_incomplete(&check)       ? NEAP_EXIT_UNAVAILABLE
						     : 0;
	if (!code && save && neap_check_baseline_save(save, &check.figures, &err))
		code = neap_complain("check", &err);
	return code;
}
