/* cli/run_estimate.c: see run_estimate.h. No signal is caught meanwhile: a Ctrl-C ends this process, and the estimate
 * ends with it. */
#include "cli/run_estimate.h"

#include "base/units.h"
#include "cli/print.h"
#include "device/monitor.h"
#include "estimate/ask.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void print_item(const char *format, ...) NEAP_PRINTF(1, 2);
static void print_item(const char *format, ...)
{
	char text[400];
	va_list list;
	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	fprintf(stderr, "  %s\n", NEAP_PRINTABLE(text));
}

/* Prints what would make it fit. */
static void print_help(const struct neap_estimate_answer *answer, uint64_t missing)
{
	if (*answer->setting)
		print_item("fits with PYTORCH_CUDA_ALLOC_CONF=%s (by exact replay)", answer->setting);
	for (size_t i = 0; i < answer->change_count; i++) {
		uint64_t low = answer->changes[i].low_bytes, high = answer->changes[i].high_bytes;
		print_item("predicted: %s %s (saves %s to %s)", answer->changes[i].name,
			   low >= missing    ? "lets it fit"
			   : high >= missing ? "may let it fit"
					     : "is not enough alone",
			   NEAP_SIZE(low), NEAP_SIZE(high));
	}
	if (answer->samples_share > 0 && answer->samples_share < 1)
		print_item("predicted: %.0f %% of the samples at once fit", 100 * answer->samples_share);
}

/* Prints the answer. Returns whether the command is known not to fit. */
static bool print_answer(const struct neap_estimate_answer *answer, bool quiet)
{
	static const char *const doubts[NEAP_ESTIMATE_DOUBTS] = {
		[NEAP_ESTIMATE_SURE] = "", /* in the words of another version */
		[NEAP_ESTIMATE_CONTEXT] = ", depending on the context",
		[NEAP_ESTIMATE_WORKSPACE] = ", depending on a workspace whose size only NVIDIA's library knows",
		[NEAP_ESTIMATE_ADDRESSES] = ", depending on where the driver puts segments",
		[NEAP_ESTIMATE_CUT_SHORT] = " so far: the estimate's time limit ended it before its second update",
		[NEAP_ESTIMATE_GROWING] = " so far: the last update of the estimate took more than those before it",
		[NEAP_ESTIMATE_UNBOUNDED] = ", unless cuDNN takes more than usually for a convolution"};
	uint64_t missing = answer->headroom_bytes < 0 ? (uint64_t)-answer->headroom_bytes : 0;
	char takes[100];
	snprintf(takes, sizeof takes, "%s to %s of the %s on %s", NEAP_SIZE(answer->low_bytes),
		 NEAP_SIZE(answer->high_bytes), NEAP_SIZE(answer->total_bytes), answer->gpu);
	if (answer->fits == NEAP_ESTIMATE_YES) {
		if (!quiet)
			fprintf(stderr, "neap run: estimate: it fits: %s\n", NEAP_PRINTABLE(takes));
		return false;
	}
	if (answer->fits == NEAP_ESTIMATE_UNSURE)
		fprintf(stderr, "neap run: estimate: it %s: %s%s\n",
			answer->doubt == NEAP_ESTIMATE_UNBOUNDED ? "probably fits" : "may not fit",
			NEAP_PRINTABLE(takes), doubts[answer->doubt]);
	else
		fprintf(stderr, "neap run: estimate: it does not fit: %s; %s are missing\n", NEAP_PRINTABLE(takes),
			NEAP_SIZE(missing));
	print_help(answer, missing);
	return answer->fits == NEAP_ESTIMATE_NO;
}

/* The device of --only-device, in the form of CUDA_VISIBLE_DEVICES: a number is NVML's, and CUDA may count
 * otherwise. */
static const char *only_device(const struct neap_arguments *arguments, char uuid[48])
{
	const char *device = neap_argument(arguments, "only-device");
	struct neap_monitor *monitor = NULL;
	struct neap_reading reading;
	uint64_t number;
	if (!device || neap_u64_parse(device, &number, NULL))
		return device;
	if (neap_monitor_open(NEAP_BACKEND_DEFAULT, &monitor, NULL) == NEAP_OK &&
	    number < neap_monitor_device_count(monitor) &&
	    neap_monitor_read(monitor, number, &reading, NULL) == NEAP_OK) {
		memcpy(uuid, reading.uuid_text, sizeof reading.uuid_text);
		device = uuid;
	}
	neap_monitor_close(monitor);
	return device;
}

/* If the estimate is not sure, requests a whole device: the run will show what happens. */
static void set_needs(const struct neap_estimate_answer *answer, bool quiet, struct neap_needs *needs)
{
	bool sure = answer && answer->fits == NEAP_ESTIMATE_YES && answer->high_bytes <= answer->total_bytes;
	*needs = sure ? (struct neap_needs){NEAP_NEEDS_BYTES, answer->high_bytes}
		      : (struct neap_needs){NEAP_NEEDS_DEVICE, 0};
	if (!quiet && sure)
		fprintf(stderr, "neap run: it is promised %s, as estimated\n", NEAP_SIZE(answer->high_bytes));
	else if (!quiet)
		fputs("neap run: it is promised a whole GPU\n", stderr);
}

int run_estimate_first(const struct neap_arguments *arguments, struct neap_needs *needs)
{
	const char *action = neap_argument(arguments, "estimate");
	bool quiet = neap_argument(arguments, "quiet") != NULL;
	struct neap_estimate_answer answer;
	struct neap_error err = {0};
	char uuid[48];
	if (!action && !needs && neap_argument(arguments, "in-place"))
		return neap_misuse(arguments, "--in-place goes with --estimate");
	if (!action && !needs)
		return NEAP_EXIT_OK;
	if (action && *action && strcmp(action, "refuse") != 0)
		return neap_misuse(arguments, "--estimate is given alone, or as --estimate=refuse, not '%s'", action);
	char **parameters = neap_argument_list(arguments, "param");
	if (!parameters)
		return NEAP_EXIT_OS;
	struct neap_estimate_question question = {.program = "/proc/self/exe",
						  .gpus = NEAP_ESTIMATE_HERE,
						  .command = neap_rest(arguments),
						  .parameters = parameters,
						  .directory = neap_argument(arguments, "directory"),
						  .in_place = neap_argument(arguments, "in-place") != NULL,
						  .device = only_device(arguments, uuid)};
	if (!quiet)
		fputs("neap run: estimating what the command takes, on the simulator\n", stderr);
	enum neap_status status = neap_estimate_ask(&question, &answer, &err);
	free(parameters);
	if (status) {
		fprintf(stderr, "neap run: not estimated: %s\n", NEAP_PRINTABLE(err.message));
		if (needs)
			set_needs(NULL, quiet, needs);
		return NEAP_EXIT_OK;
	}
	bool refused = print_answer(&answer, quiet) && action && *action;
	if (needs && !refused)
		set_needs(&answer, quiet, needs);
	if (refused)
		fputs("neap run: not run (--estimate=refuse)\n", stderr);
	return refused ? NEAP_EXIT_UNAVAILABLE : NEAP_EXIT_OK;
}
