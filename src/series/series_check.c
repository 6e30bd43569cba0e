/* series/series_check.c: see spec.h. */
#include "series/spec.h"

#include "base/error.h"
#include "run/auto_ladder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum neap_status check_one(const struct neap_experiment *experiment, struct neap_parameters *parameters,
				  struct neap_error *err)
{
	struct neap_ladder ladder;
	struct neap_argv argv = {0};
	struct neap_buffer word = {0};
	enum neap_status status = NEAP_OK;
	memset(parameters, 0, sizeof *parameters);
	for (size_t i = 0; i < experiment->params.count && !status; i++)
		status = neap_parameters_add(parameters, experiment->params.items[i], err);
	if (status)
		neap_error_prefix(err, "params");
	/* If an experiment has no parameters, braces are plain text: see `neap run`. */
	for (size_t i = 0; i < experiment->command.count && parameters->count && !status; i++) {
		neap_buffer_clear(&word);
		status = neap_parameters_expand(parameters, experiment->command.items[i], &word, err);
		if (status)
			neap_error_prefix(err, "command");
	}
	bool automatic = experiment->on_oom && !strcmp(experiment->on_oom, "auto");
	if (!status && automatic) {
		status = neap_ladder_auto(experiment->command.items, parameters, &ladder, &argv, err);
		if (status == NEAP_ENOENT && !parameters->count) /* the program reports its batch once it runs */
			status = NEAP_OK;
		if (status)
			neap_error_prefix(err, "on_oom");
	} else if (!status && experiment->on_oom) {
		status = neap_ladder_parse(experiment->on_oom, parameters, &ladder, err);
		if (status)
			neap_error_prefix(err, "on_oom, column %u", err ? err->column : 0);
	}
	neap_buffer_fini(&word);
	neap_argv_fini(&argv);
	return status;
}

enum neap_status neap_series_check(const struct neap_spec *spec, const char *file, struct neap_error *err)
{
	struct neap_parameters parameters;
	struct neap_error local;
	if (!err)
		err = &local;
	for (size_t i = 0; i < spec->count; i++) {
		const struct neap_experiment *experiment = &spec->experiments[i];
		enum neap_status status = check_one(experiment, &parameters, err);
		if (status == NEAP_ENOMEM)
			return status;
		if (status) {
			neap_error_prefix(err, "%s:%u: experiment '%.60s'", file, experiment->line, experiment->name);
			err->status = NEAP_EPARSE;
			err->line = experiment->line;
			err->column = 1;
			return NEAP_EPARSE;
		}
	}
	return NEAP_OK;
}

/* Whether `name` can be executed; `name` is in a folder on PATH or relative to `directory`. */
static bool is_there(const char *name, const char *directory)
{
	const char *path = getenv("PATH");
	char full[8192];

	if (strchr(name, '/')) {
		bool relative = name[0] != '/' && directory;
		snprintf(full, sizeof full, "%s%s%s", relative ? directory : "", relative ? "/" : "", name);
		return access(full, X_OK) == 0;
	}
	for (const char *at = path ? path : "/usr/bin:/bin"; at; at = strchr(at, ':') ? strchr(at, ':') + 1 : NULL) {
		int length = (int)strcspn(at, ":");
		snprintf(full, sizeof full, "%.*s%s%s", length, at, length ? "/" : "./", name);
		if (access(full, X_OK) == 0)
			return true;
	}
	return false;
}

bool neap_experiment_has_command(const struct neap_experiment *experiment)
{
	for (size_t i = 0; i < experiment->env.count; i++)
		if (!strncmp(experiment->env.items[i], "PATH=", 5))
			return true;
	return is_there(experiment->command.items[0], experiment->directory);
}
