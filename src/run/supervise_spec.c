/* run/supervise_spec.c: RUN/spec.json: the run's command and settings, written before it starts, so that they are
 * known even if the supervisor dies.
 */
#include "run/supervise_internal.h"

#include "base/error.h"
#include "base/file.h"
#include "store/json.h"

#include <stdlib.h>
#include <string.h>

static json_t *needs_value(const struct neap_needs *needs)
{
	if (needs->kind == NEAP_NEEDS_BYTES)
		return neap_json_number(needs->bytes);
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
		neap_json_add(command, neap_json_text(run->options.command[i]));
	for (size_t i = 0; i < run->options.parameters.count; i++) /* a name that is not UTF-8 is dropped */
		json_object_set_new(parameters, run->options.parameters.items[i].name,
				    neap_json_text(run->options.parameters.items[i].value));
	json_t *root = json_pack("{s:i, s:o, s:o, s:o, s:o, s:o}", "schema", 1, "run_id", neap_json_text(run->run_id),
				 "name", neap_json_text(run->options.name), "command", command, "parameters",
				 parameters, "needs", needs_value(&run->options.needs));
	char *text = neap_json_dump(root, JSON_INDENT(1));
	json_decref(root);
	if (text && neap_json_failures() == failures)
		status = neap_file_write(path, text, strlen(text), err);
	else
		status = neap_fail(err, NEAP_ENOMEM, "out of host memory while writing %s", path);
	free(text);
	return status;
}
