/* cli/estimate_options.c: see estimate_options.h. */
#include "cli/estimate_options.h"

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* --- values of the command --- */

static int parse_parameters(const struct neap_arguments *arguments, struct estimate_values *values)
{
	size_t count = 0;
	if (values->model->name) {
		values->parameters = calloc(ESTIMATE_MODEL_CHOICES + 1, sizeof *values->parameters);
		if (!values->parameters)
			return NEAP_EXIT_OS;
		memcpy(values->parameters, values->model->parameters, sizeof values->model->parameters);
		return 0;
	}
	while (neap_argument_nth(arguments, "param", count))
		count++;
	values->parameters = calloc(count + 1, sizeof *values->parameters);
	if (!values->parameters)
		return NEAP_EXIT_OS;
	for (size_t i = 0; i < count; i++) {
		values->parameters[i] = (char *)(uintptr_t)neap_argument_nth(arguments, "param", i);
		if (!strchr(values->parameters[i], '='))
			return neap_misuse(arguments, "--param: expected NAME=VALUE, not '%s'",
					   values->parameters[i]);
	}
	return 0;
}

/* Whether the command has {NAME}, `length` bytes long. */
static bool is_in_command(const struct estimate_values *values, const char *name, size_t length)
{
	char braced[160];
	snprintf(braced, sizeof braced, "{%.*s}", (int)length, name);
	for (size_t i = 0; values->argv[i]; i++)
		if (strstr(values->argv[i], braced))
			return true;
	return false;
}

/* --try NAME=VALUE needs --param NAME=..., and {NAME} in the command. */
static int parse_tries(const struct neap_arguments *arguments, struct estimate_values *values)
{
	const char *text;
	for (size_t i = 0; (text = neap_argument_nth(arguments, "try", i)); i++) {
		size_t length = strcspn(text, "="), at = 0;
		while (values->parameters[at] && (strcspn(values->parameters[at], "=") != length ||
						  strncmp(values->parameters[at], text, length) != 0))
			at++;
		if (!text[length])
			return neap_misuse(arguments, "--try: expected NAME=VALUE, not '%s'", text);
		if (!values->parameters[at] && values->model->name)
			return neap_misuse(arguments, "--try %s needs --%.*s, a value to begin with", text,
					   (int)length, text);
		if (!values->parameters[at] || !is_in_command(values, text, length))
			return neap_misuse(arguments, "--try %s needs --param %.*s=VALUE, and {%.*s} in the command",
					   text, (int)length, text, (int)length, text);
		if (i == NEAP_ESTIMATE_TRIES)
			return neap_misuse(arguments, "--try: more than %d", NEAP_ESTIMATE_TRIES);
		values->tries.items[values->tries.count++].change = text;
	}
	return 0;
}

/* --fit NAME needs --param NAME=N, and {NAME} in the command. */
static int parse_fit(const struct neap_arguments *arguments, struct estimate_values *values)
{
	const char *name = neap_argument(arguments, "fit");
	if (!name)
		return 0;
	size_t length = strlen(name);
	for (size_t i = 0; values->parameters[i]; i++) {
		const char *text = values->parameters[i];
		if (strncmp(text, name, length) != 0 || text[length] != '=')
			continue;
		if (neap_u64_parse(text + length + 1, &values->fit_value, NULL) || !values->fit_value ||
		    values->fit_value > NEAP_ESTIMATE_MOST)
			return neap_misuse(arguments, "--fit %s: --param %s: expected a whole number from 1 to %llu",
					   name, text, NEAP_ESTIMATE_MOST);
		values->fit.name = name;
	}
	if (!values->fit.name)
		return neap_misuse(arguments, "--fit %s needs --%s%s%sN, a value to begin with", name,
				   values->model->name ? "" : "param ", name, values->model->name ? " " : "=");
	if (!is_in_command(values, name, length))
		return neap_misuse(arguments, "--fit %s: the command has no {%s} to put the value in", name, name);
	return 0;
}

/* The number that a parameter of the command has. 0: there is none. */
static uint64_t number_of(const struct estimate_values *values, const char *name)
{
	size_t length = strlen(name);
	uint64_t value = 0;
	for (size_t i = 0; values->parameters[i]; i++)
		if (strncmp(values->parameters[i], name, length) == 0 && values->parameters[i][length] == '=' &&
		    neap_u64_parse(values->parameters[i] + length + 1, &value, NULL))
			return 0;
	return value;
}

static bool is_name(const char *text, size_t length, const char *name)
{
	return strlen(name) == length && memcmp(text, name, length) == 0;
}

/* --plan SAMPLES takes the changes of --try, which are not run alone then, and the parameter of --fit. */
static int parse_plan(const struct neap_arguments *arguments, struct estimate_values *values)
{
	const char *text = neap_argument(arguments, "plan"), *ranks = neap_argument(arguments, "ranks");
	const char *changes[NEAP_ESTIMATE_TRIES + 1] = {0};
	struct neap_estimate_search *search = &values->search;
	struct neap_error err = {0};
	uint64_t processes = 0;
	if (!text)
		return 0;
	if (neap_u64_parse(text, &search->samples, NULL) || !search->samples || search->samples > NEAP_ESTIMATE_MOST)
		return neap_misuse(arguments, "--plan: expected the samples of an update, from 1 to %llu, not '%s'",
				   NEAP_ESTIMATE_MOST, text);
	if (neap_argument(arguments, "task") && !strcmp(neap_argument(arguments, "task"), "infer"))
		return neap_misuse(arguments, "--plan is of training: it does not go with --task infer");
	if (!neap_argument(arguments, "gpu") && !neap_argument(arguments, "max-memory"))
		return neap_misuse(
			arguments,
			"--plan needs --gpu or --max-memory: of its %d runs each architecture may take them all",
			NEAP_ESTIMATE_TRIALS);
	search->name = values->fit.name ? values->fit.name : "batch";
	values->fit.name = NULL;
	values->fit_value = number_of(values, search->name);
	values->accumulation = number_of(values, "accumulation");
	if (!values->fit_value || !is_in_command(values, search->name, strlen(search->name)))
		return neap_misuse(arguments,
				   "--plan needs --param %s=N, and {%s} in the command (--fit NAME for another)",
				   search->name, search->name);
	for (size_t i = 0; i < values->tries.count; i++) {
		const char *change = changes[i] = values->tries.items[i].change;
		size_t length = strcspn(change, "=");
		if (is_name(change, length, search->name) || is_name(change, length, "accumulation") ||
		    (values->model->name && is_name(change, length, "task")))
			return neap_misuse(arguments, "--plan: --try %s: the plan itself decides on %.*s", change,
					   (int)length, change);
	}
	if (values->model->name && !values->tries.count)
		estimate_model_changes(arguments, changes);
	values->tries.count = 0;
	search->accumulates = values->accumulation && is_in_command(values, "accumulation", strlen("accumulation"));
	if (ranks && !neap_u64_parse(ranks, &processes, NULL) && processes && search->samples % processes)
		return neap_misuse(arguments, "--plan: %s ranks cannot share %s samples evenly", ranks, text);
	return neap_estimate_search_ways(search, values->parameters, changes, &err)
		       ? neap_misuse(arguments, "--plan: %s", err.message)
		       : 0;
}

int estimate_parse_values(const struct neap_arguments *arguments, const struct estimate_model *model,
			  char *const *argv, struct estimate_values *values)
{
	*values = (struct estimate_values){.model = model, .argv = argv};
	int code = parse_parameters(arguments, values);
	if (!code)
		code = parse_fit(arguments, values);
	if (!code)
		code = parse_tries(arguments, values);
	return code ? code : parse_plan(arguments, values);
}

void estimate_values_fini(struct estimate_values *values)
{
	neap_estimate_search_fini(&values->search);
	free(values->fit.points);
	free(values->parameters);
}
