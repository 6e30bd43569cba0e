/* run/supervise_spec.c: RUN/spec.json: the run's command and settings, written before it starts, so that they are
 * known even if the supervisor dies.
 */
#include "run/supervise_internal.h"

#include "base/error.h"
#include "base/file.h"
#include "store/json_memory.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Text from the command line; null if it is not UTF-8. */
static json_t *text_value(const char *text)
{
	json_t *value = text ? json_string(text) : NULL;
	return value ? value : json_null();
}

static json_t *needs_value(const struct neap_needs *needs)
{
	if (needs->kind == NEAP_NEEDS_BYTES)
		return json_integer(needs->bytes < INT64_MAX ? (json_int_t)needs->bytes : INT64_MAX);
	return json_string(needs->kind == NEAP_NEEDS_DEVICE ? "device" : "none");
}

enum neap_status neap_supervise_spec_write(const struct neap_supervise *run, struct neap_error *err)
{
	char path[4200];
	enum neap_status status = neap_path_join(path, sizeof path, run->folder, "spec.json");
	if (status)
		return neap_fail(err, status, "the path of spec.json is too long");
	const uint64_t failures = neap_json_failures();
	json_t *command = json_array(), *parameters = json_object();
	for (size_t i = 0; run->options.command[i]; i++)
		json_array_append_new(command, text_value(run->options.command[i]));
	for (size_t i = 0; i < run->options.parameters.count; i++)
		json_object_set_new(parameters, run->options.parameters.items[i].name,
				    text_value(run->options.parameters.items[i].value));
	json_t *root = json_pack("{s:i, s:o, s:o, s:o, s:o, s:o}", "schema", 1, "run_id", text_value(run->run_id),
				 "name", text_value(run->options.name), "command", command, "parameters", parameters,
				 "needs", needs_value(&run->options.needs));
	char *text = neap_json_dump(root, JSON_INDENT(1));
	json_decref(root);
	if (text && neap_json_failures() == failures)
		status = neap_file_write(path, text, strlen(text), err);
	else
		status = neap_fail(err, NEAP_ENOMEM, "out of host memory while writing %s", path);
	free(text);
	return status;
}
