/* estimate/values.c: see the header. */
#include "estimate/values.h"

#include "base/error.h"
#include "base/units.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum neap_status copy_parameters(const struct neap_estimate_values_given *given,
					struct neap_estimate_values *values, struct neap_error *err)
{
	char *const *parameters = given->model->given.name ? given->model->parameters : given->parameters;
	size_t count = 0;
	while (parameters[count])
		count++;
	values->parameters = calloc(count + 1, sizeof *values->parameters);
	if (!values->parameters)
		return neap_fail(err, NEAP_ENOMEM, "out of memory");
	memcpy(values->parameters, parameters, count * sizeof *parameters);
	for (size_t i = 0; i < count; i++)
		if (!strchr(parameters[i], '='))
			return neap_fail(err, NEAP_EINVAL, "--param: expected NAME=VALUE, not '%s'", parameters[i]);
	return NEAP_OK;
}

/* Whether the command has {NAME}, `length` bytes long. */
static bool is_in_command(const struct neap_estimate_values_given *given, const char *name, size_t length)
{
	char braced[160];
	snprintf(braced, sizeof braced, "{%.*s}", (int)length, name);
	for (size_t i = 0; given->argv[i]; i++)
		if (strstr(given->argv[i], braced))
			return true;
	return false;
}

/* --try NAME=VALUE needs --param NAME=..., and {NAME} in the command. */
static enum neap_status parse_tries(const struct neap_estimate_values_given *given,
				    struct neap_estimate_values *values, struct neap_error *err)
{
	const struct neap_estimate_model *model = given->model;
	const char *text;
	for (size_t i = 0; (text = given->tries[i]); i++) {
		size_t length = strcspn(text, "="), at = 0;
		while (values->parameters[at] && (strcspn(values->parameters[at], "=") != length ||
						  strncmp(values->parameters[at], text, length) != 0))
			at++;
		if (!text[length])
			return neap_fail(err, NEAP_EINVAL, "--try: expected NAME=VALUE, not '%s'", text);
		if (!values->parameters[at] && model->given.name)
			return neap_fail(err, NEAP_EINVAL, "--try %s needs --%.*s, a value to begin with", text,
					 (int)length, text);
		if (!values->parameters[at] || !is_in_command(given, text, length))
			return neap_fail(err, NEAP_EINVAL,
					 "--try %s needs --param %.*s=VALUE, and {%.*s} in the command", text,
					 (int)length, text, (int)length, text);
		if (i == NEAP_ESTIMATE_TRIES)
			return neap_fail(err, NEAP_EINVAL, "--try: more than %d", NEAP_ESTIMATE_TRIES);
		values->tries.items[values->tries.count++].change = text;
	}
	return 0;
}

/* --fit NAME needs --param NAME=N, and {NAME} in the command. */
static enum neap_status parse_fit(const struct neap_estimate_values_given *given, struct neap_estimate_values *values,
				  struct neap_error *err)
{
	const struct neap_estimate_model *model = given->model;
	const char *name = given->fit;
	if (!name)
		return 0;
	size_t length = strlen(name);
	for (size_t i = 0; values->parameters[i]; i++) {
		const char *text = values->parameters[i];
		if (strncmp(text, name, length) != 0 || text[length] != '=')
			continue;
		if (neap_u64_parse(text + length + 1, &values->fit_value, NULL) || !values->fit_value ||
		    values->fit_value > NEAP_ESTIMATE_MOST)
			return neap_fail(err, NEAP_EINVAL,
					 "--fit %s: --param %s: expected a whole number from 1 to %llu", name, text,
					 NEAP_ESTIMATE_MOST);
		values->fit.name = name;
	}
	if (!values->fit.name)
		return neap_fail(err, NEAP_EINVAL, "--fit %s needs --%s%s%sN, a value to begin with", name,
				 model->given.name ? "" : "param ", name, model->given.name ? " " : "=");
	if (!is_in_command(given, name, length))
		return neap_fail(err, NEAP_EINVAL, "--fit %s: the command has no {%s} to put the value in", name,
				 name);
	return 0;
}

/* Returns the number that a parameter of the command has. 0: there is none. */
static uint64_t number_of(const struct neap_estimate_values *values, const char *name)
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

/* Parses --plan SAMPLES. It takes over the changes of --try, which are then not run alone, and the parameter of
 * --fit. */
static enum neap_status parse_plan(const struct neap_estimate_values_given *given,
				   struct neap_estimate_values *values, struct neap_error *err)
{
	const struct neap_estimate_model *model = given->model;
	const char *text = given->plan, *ranks = given->ranks;
	const char *changes[NEAP_ESTIMATE_TRIES + 1] = {0};
	struct neap_estimate_search *search = &values->search;
	uint64_t processes = 0;
	if (!text)
		return 0;
	if (neap_u64_parse(text, &search->samples, NULL) || !search->samples || search->samples > NEAP_ESTIMATE_MOST)
		return neap_fail(err, NEAP_EINVAL,
				 "--plan: expected the samples of an update, from 1 to %llu, not '%s'",
				 NEAP_ESTIMATE_MOST, text);
	if (given->infers)
		return neap_fail(err, NEAP_EINVAL, "--plan is of training: it does not go with --task infer");
	if (!given->bounded)
		return neap_fail(
			err, NEAP_EINVAL,
			"--plan needs --gpu or --max-memory: of its %d runs each architecture may take them all",
			NEAP_ESTIMATE_TRIALS);
	search->name = values->fit.name ? values->fit.name : "batch";
	values->fit.name = NULL;
	values->fit_value = number_of(values, search->name);
	values->accumulation = number_of(values, "accumulation");
	if (!values->fit_value || !is_in_command(given, search->name, strlen(search->name)))
		return neap_fail(err, NEAP_EINVAL,
				 "--plan needs --param %s=N, and {%s} in the command (--fit NAME for another)",
				 search->name, search->name);
	for (size_t i = 0; i < values->tries.count; i++) {
		const char *change = changes[i] = values->tries.items[i].change;
		size_t length = strcspn(change, "=");
		if (is_name(change, length, search->name) || is_name(change, length, "accumulation") ||
		    (model->given.name && is_name(change, length, "task")))
			return neap_fail(err, NEAP_EINVAL, "--plan: --try %s: the plan itself decides on %.*s",
					 change, (int)length, change);
	}
	if (model->given.name && !values->tries.count)
		neap_estimate_model_changes(model, changes);
	values->tries.count = 0;
	search->accumulates = values->accumulation && is_in_command(given, "accumulation", strlen("accumulation"));
	if (ranks && !neap_u64_parse(ranks, &processes, NULL) && processes && search->samples % processes)
		return neap_fail(err, NEAP_EINVAL, "--plan: %s ranks cannot share %s samples evenly", ranks, text);
	enum neap_status status = neap_estimate_search_ways(search, values->parameters, changes, err);
	if (status)
		neap_error_prefix(err, "--plan");
	return status;
}

enum neap_status neap_estimate_values_make(const struct neap_estimate_values_given *given,
					   struct neap_estimate_values *values, struct neap_error *err)
{
	*values = (struct neap_estimate_values){0};
	enum neap_status status = copy_parameters(given, values, err);
	if (!status)
		status = parse_fit(given, values, err);
	if (!status)
		status = parse_tries(given, values, err);
	return status ? status : parse_plan(given, values, err);
}

void neap_estimate_values_fini(struct neap_estimate_values *values)
{
	neap_estimate_search_fini(&values->search);
	free(values->fit.points);
	free(values->parameters);
}
