/* cli/estimate_options.c: see estimate_options.h. */
#include "cli/estimate_options.h"

#include "base/file.h"
#include "base/units.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Prints the error, and returns the exit code. */
static int exit_of(const struct neap_arguments *arguments, enum neap_status status, const struct neap_error *err)
{
	return status == NEAP_EINVAL ? neap_misuse(arguments, "%s", err->message)
	       : status              ? neap_complain("estimate", err)
				     : 0;
}

int estimate_parse_model(const struct neap_arguments *arguments, struct neap_estimate_model *model)
{
	struct neap_error err = {0};
	struct neap_estimate_model_given given = {.name = neap_argument(arguments, "model"),
						  .ranks = neap_argument(arguments, "ranks"),
						  .steps = neap_argument(arguments, "steps"),
						  .plans = neap_argument(arguments, "plan"),
						  .python = neap_rest(arguments)};
	if (!given.name && neap_argument(arguments, "print-script"))
		return neap_misuse(arguments, "--print-script goes with --model");
	for (size_t i = 0; i < NEAP_ESTIMATE_MODEL_CHOICES; i++) {
		given.values[i] = neap_argument(arguments, neap_estimate_model_choices[i]);
		if (!given.name && given.values[i])
			return neap_misuse(arguments, "--%s goes with --model", neap_estimate_model_choices[i]);
	}
	if (!given.name)
		return 0;
	if (neap_argument(arguments, "param"))
		return neap_misuse(arguments, "--param does not go with --model, whose options are its parameters");
	enum neap_status status = neap_estimate_model_make(&given, model, &err);
	return exit_of(arguments, status, &err);
}

int estimate_parse_bounds(const struct neap_arguments *arguments, struct neap_estimate_command *command)
{
	struct neap_error err = {0};
	uint64_t value = 0;
	command->steps = neap_argument(arguments, "steps");
	command->time_limit = neap_argument(arguments, "time-limit") ? neap_argument(arguments, "time-limit") : "10m";
	command->forwards = neap_argument(arguments, "forwards");
	if (command->forwards && (neap_u64_parse(command->forwards, &value, &err) || !value || value > INT64_MAX))
		return neap_misuse(arguments, "--forwards: expected a whole number above 0, not '%s'",
				   command->forwards);
	command->ranks = neap_argument(arguments, "ranks");
	if (command->ranks && (neap_u64_parse(command->ranks, &value, &err) || !value || value > 1u << 20))
		return neap_misuse(arguments, "--ranks: expected a whole number from 1 to 1048576, not '%s'",
				   command->ranks);
	if (command->steps && (neap_u64_parse(command->steps, &value, &err) || !value || value > INT64_MAX))
		return neap_misuse(arguments, "--steps: expected a whole number above 0, not '%s'", command->steps);
	if (neap_duration_parse(command->time_limit, &value, &err) || !value)
		return neap_misuse(arguments, "--time-limit: expected a time such as 10m, not '%s'",
				   command->time_limit);
	return 0;
}

int estimate_parse_isolation(const struct neap_arguments *arguments, struct neap_estimate_isolation *isolation,
			     char keep_path[NEAP_ESTIMATE_CAPACITY])
{
	const char *keep = neap_argument(arguments, "keep-writes");
	struct neap_error err = {0};
	isolation->in_place = neap_argument(arguments, "in-place") != NULL;
	isolation->no_network = neap_argument(arguments, "no-network") != NULL;
	if (isolation->in_place && (keep || isolation->no_network))
		return neap_misuse(arguments, "--in-place isolates nothing: it does not go with --%s",
				   keep ? "keep-writes" : "no-network");
	if (!keep)
		return 0;
	if (neap_make_folder(keep, 0777, &err))
		return neap_complain("estimate", &err);
	if (!realpath(keep, keep_path) || rmdir(keep_path) || mkdir(keep_path, 0777))
		return neap_misuse(arguments, "--keep-writes %s: not a folder that is new or empty", keep);
	isolation->keep = keep_path;
	return 0;
}

int estimate_parse_values(const struct neap_arguments *arguments, const struct neap_estimate_model *model,
			  char *const *argv, struct neap_estimate_values *values)
{
	char **parameters = neap_argument_list(arguments, "param"), **tries = neap_argument_list(arguments, "try");
	const char *task = neap_argument(arguments, "task");
	struct neap_error err = {0};
	int code = NEAP_EXIT_OS;
	const struct neap_estimate_values_given given = {
		.model = model,
		.argv = argv,
		.parameters = parameters,
		.tries = tries,
		.fit = neap_argument(arguments, "fit"),
		.plan = neap_argument(arguments, "plan"),
		.ranks = neap_argument(arguments, "ranks"),
		.infers = task && !strcmp(task, "infer"),
		.bounded = neap_argument(arguments, "gpu") || neap_argument(arguments, "max-memory"),
	};
	if (parameters && tries)
		code = exit_of(arguments, neap_estimate_values_make(&given, values, &err), &err);
	free(parameters);
	free(tries);
	return code;
}
