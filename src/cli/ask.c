/* cli/ask.c: see ask.h. */
#include "cli/ask.h"

#include "base/error.h"
#include "base/paths.h"
#include "cli/print.h"
#include "cli/targets.h"
#include "machine/attached.h"
#include "machine/sample.h"
#include "proto/commands.h"
#include "store/json_rows.h"

#include <inttypes.h>
#include <stdlib.h>

#define SCHEMA 1
#define LINE   512

void ask_print_title(const struct neap_device_reply *device)
{
	if (device->index_known)
		printf("GPU %zu: %s\n", device->index, NEAP_PRINTABLE(device->answer.name));
	else
		printf("CUDA device %" PRIu64 ": %s\n", device->answer.ordinal, NEAP_PRINTABLE(device->answer.name));
}

static json_t *device_json(struct ask *ask, const struct neap_device_reply *device)
{
	json_t *object = neap_device_reply_json(device, ask->shown);
	if (ask->verb->add)
		ask->verb->add(ask, device, object);
	if (ask->shown != NEAP_SHOWN_HELD)
		neap_json_set(object, "error",
			      device->answer.status ? neap_json_text(device->answer.message) : json_null());
	return object;
}

enum neap_status ask_show_devices(struct ask *ask, pid_t pid, const struct neap_fields *reply, json_t *process,
				  size_t *ret_count, struct neap_error *err)
{
	enum neap_status status, worst = NEAP_OK;
	struct neap_device_reply device;
	json_t *devices = json_array();
	size_t n = 0;
	for (; !(status = neap_device_reply_read(reply, n, ask->needed, ask->monitor, &device)); n++) {
		if (ask->verb->see)
			ask->verb->see(ask, pid, &device);
		if (ask->json)
			neap_json_add(devices, device_json(ask, &device));
		else
			ask->verb->print(ask, &device);
		if (device.answer.status != NEAP_OK)
			worst = neap_fail(err, neap_attached_device_status(device.answer.status), "%s",
					  device.answer.message);
	}
	neap_json_set(process, "devices", devices);
	if (status == NEAP_EPROTO)
		return neap_fail(err, NEAP_EPROTO, "an account of a device is malformed");
	*ret_count = n;
	return worst;
}

size_t ask_show_lines(struct ask *ask, const struct neap_fields *reply, json_t *process)
{
	json_t *lines = json_array();
	const void *bytes;
	size_t length, n = 0;
	for (; neap_fields_bytes(reply, NEAP_FIELD_LINE, n, &bytes, &length); n++) {
		char line[LINE];
		snprintf(line, sizeof line, "%.*s", (int)(length < LINE ? length : LINE - 1), (const char *)bytes);
		if (ask->json)
			neap_json_add(lines, neap_json_text(line));
		else
			printf("  %s\n", NEAP_PRINTABLE(line));
	}
	if (n > 0)
		neap_json_set(process, "lines", lines);
	else
		json_decref(lines);
	return n;
}

/* Asks one process. Returns the exit code. */
static int ask_one(struct ask *ask, pid_t pid)
{
	const struct ask_verb *verb = ask->verb;
	struct neap_client client;
	struct neap_error err = {0};
	char name[64];
	bool stopped = false;
	json_t *process = json_object();
	neap_sample_name(pid, name);
	JSON_PUT(process, INTEGER("pid", pid), TEXT("name", name));
	enum neap_status status =
		neap_attached_open(ask->folder, pid, &client, verb->stopped ? &stopped : NULL, &err);
	if (verb->stopped)
		neap_json_set(process, "left_with_stopped", json_boolean(!status && stopped));
	if (!status) {
		status = (stopped ? verb->stopped : verb->process)(ask, &client, name, process, &err);
		neap_client_close(&client);
	}
	neap_json_set(process, "error", status ? neap_json_text(err.message) : json_null());
	if (ask->processes)
		neap_json_add(ask->processes, process);
	else
		json_decref(process);
	return status ? neap_complain(verb->command, &err) : NEAP_EXIT_OK;
}

static int print_json(struct ask *ask)
{
	json_t *root = json_object();
	neap_json_set(root, "schema", json_integer(SCHEMA));
	if (ask->verb->add_all)
		ask->verb->add_all(ask, root);
	neap_json_set(root, "processes", ask->processes);
	return json_print(ask->verb->command, root, JSON_INDENT(2));
}

int ask_all(struct ask *ask, const struct neap_arguments *arguments)
{
	const char *command = ask->verb->command;
	struct neap_error err = {0};
	pid_t *pids = NULL;
	size_t count = 0;
	if (neap_path_runtime(ask->folder, sizeof ask->folder, &err) != NEAP_OK)
		return neap_complain(command, &err);
	int code = targets_choose(arguments, ask->folder, &pids, &count);
	if (code != NEAP_EXIT_OK)
		return code;
	/* Without NVML the agents still answer; only the driver's figures are missing. */
	if (neap_monitor_open(NEAP_BACKEND_DEFAULT, &ask->monitor, &ask->no_monitor) != NEAP_OK)
		ask->monitor = NULL;
	ask->processes = ask->json ? json_array() : NULL;
	for (size_t i = 0; i < count; i++) {
		fflush(stdout);
		int one = ask_one(ask, pids[i]);
		code = one ? one : code;
	}
	if (ask->json) {
		int written = print_json(ask);
		code = written == NEAP_EXIT_OK ? code : written;
	}
	neap_monitor_close(ask->monitor);
	free(pids);
	return code;
}
