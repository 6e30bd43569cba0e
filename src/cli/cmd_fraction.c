/* cli/cmd_fraction.c: `neap fraction`: limits what the allocators of running attached processes may reserve. */
#include "base/error.h"
#include "base/paths.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/device_reply.h"
#include "cli/json_print.h"
#include "cli/look.h"
#include "cli/print.h"
#include "cli/targets.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA 1

static int run(const struct neap_arguments *arguments);

const struct neap_command neap_command_fraction = {
	.name = "fraction",
	.usage = "F [--pid P|--all] [--json]",
	.summary = "limit the memory that running processes may reserve on each device",
	.details = neap_help_fraction,
	.options =
		(const struct neap_option[]){
			{"pid", "P", "this process; may be given several times"},
			{"all", NULL, "every attached process"},
			{"json", NULL, "the result as JSON"},
			{NULL, NULL, NULL},
		},
	.operands_min = 1,
	.operands_max = 1,
	.run = run,
};

/* The process's memory outside its allocator on a device, from the driver. */
struct beside {
	bool known;
	uint64_t context;
	int64_t other; /* neither context nor the allocators' */
};

/* Without these an answer says nothing. */
static const unsigned needed[] = {NEAP_FIELD_ORDINAL,         NEAP_FIELD_TOTAL,        NEAP_FIELD_LIMIT_BEFORE,
				  NEAP_FIELD_LIMIT,           NEAP_FIELD_ALLOCATED,    NEAP_FIELD_RESERVED,
				  NEAP_FIELD_RESERVED_BEFORE, NEAP_FIELD_RESERVED_NOW, NEAP_FIELD_EMPTIED,
				  NEAP_FIELD_FREED,           NEAP_FIELD_NANOSECONDS};

struct work {
	double fraction;
	struct neap_monitor *monitor; /* NULL: no NVML */
	char folder[4096];
	json_t *processes; /* NULL: text */
};

/* The process's other memory on the device, from the driver and the page. */
static void look_beside(const struct look *look, pid_t pid, const struct device_reply *device, struct beside *beside)
{
	for (size_t i = 0; i < look->device_count; i++) {
		const struct look_device *one = &look->devices[i];
		if (memcmp(one->reading.uuid, device->uuid, sizeof device->uuid) != 0)
			continue;
		for (size_t p = 0; p < one->process_count; p++) {
			const struct neap_ledger_process *account = &one->processes[p].account;
			if (account->pid != pid || !account->attached || account->bytes == NEAP_BYTES_UNKNOWN)
				continue;
			*beside = (struct beside){true, account->context, account->other};
		}
	}
}

static const char *limit_text(uint64_t limit, char text[NEAP_UNITS_ROOM])
{
	return limit == UINT64_MAX ? "none" : neap_size_format(limit, text);
}

/* What is left to grow, or why nothing is. */
static void print_room(const struct device_reply *device)
{
	char size[NEAP_UNITS_ROOM], live[NEAP_UNITS_ROOM];
	if (device->limit == UINT64_MAX)
		return;
	if (device->allocated > device->limit)
		printf("  live bytes are %s, above the limit: further growth will fail\n",
		       neap_size_format(device->allocated, size));
	else if (device->reserved > device->limit)
		printf("  %s stay reserved, above the limit, for %s of live blocks: further growth will fail\n",
		       neap_size_format(device->reserved, size), neap_size_format(device->allocated, live));
	else
		printf("  it may reserve %s more\n", neap_size_format(device->limit - device->reserved, size));
}

static void print_device(const struct work *work, const struct device_reply *device, const struct beside *beside)
{
	char from[NEAP_UNITS_ROOM], to[NEAP_UNITS_ROOM], change[NEAP_UNITS_ROOM], time[NEAP_UNITS_ROOM];
	device_reply_print_title(device);
	printf("  %-10s %10s before, %10s after (%g of %s)\n", "limit", limit_text(device->limit_before, from),
	       limit_text(device->limit, to), work->fraction, neap_size_format(device->total, change));
	printf("  %-10s %10s before, %10s after (%s)\n", "reserved", neap_size_format(device->reserved_before, from),
	       neap_size_format(device->reserved, to),
	       neap_size_format_delta((int64_t)(device->reserved - device->reserved_before), change));
	if (device->free_before != NEAP_BYTES_UNKNOWN && device->free != NEAP_BYTES_UNKNOWN)
		printf("  %-10s %10s before, %10s after (%s)\n", "free", neap_size_format(device->free_before, from),
		       neap_size_format(device->free, to),
		       neap_size_format_delta((int64_t)(device->free - device->free_before), change));
	if (device->status != NEAP_OK)
		printf("  the limit is in force, but the cache was not emptied: %s\n", NEAP_PRINTABLE(device->error));
	else if (device->emptied)
		printf("  emptied the cache: gave back %s in %s\n", neap_size_format(device->freed, from),
		       neap_duration_format(device->nanoseconds, time));
	else
		printf("  the cache stays: what is reserved is within the limit; it took %s\n",
		       neap_duration_format(device->nanoseconds, time));
	print_room(device);
	if (device->reserved_now > device->reserved)
		printf("  the program goes on and has taken %s again since\n",
		       neap_size_format(device->reserved_now - device->reserved, from));
	if (beside->known)
		printf("  beside it  %10s context, %s of the process's other memory: the limit is not for these\n",
		       neap_size_format(beside->context, from), neap_size_format_delta(beside->other, change));
	else
		puts("  beside it  the context and the process's other memory, which the driver does not tell");
}

static json_t *device_json(const struct device_reply *device, const struct beside *beside)
{
	json_t *object = json_object();
	uint64_t above = device->reserved > device->limit ? device->reserved - device->limit : 0;
	neap_json_set(object, "ordinal", neap_json_known(device->ordinal));
	neap_json_set(object, "index", device->index_known ? neap_json_known(device->index) : json_null());
	neap_json_set(object, "name", neap_json_text(device->name));
	neap_json_set(object, "total", neap_json_known(device->total));
	neap_json_set(object, "limit_before", neap_json_known(device->limit_before));
	neap_json_set(object, "limit", neap_json_known(device->limit));
	neap_json_set(object, "allocated", neap_json_known(device->allocated));
	neap_json_set(object, "reserved_before", neap_json_known(device->reserved_before));
	neap_json_set(object, "reserved", neap_json_known(device->reserved));
	neap_json_set(object, "reserved_now", neap_json_known(device->reserved_now));
	neap_json_set(object, "free_before", neap_json_known(device->free_before));
	neap_json_set(object, "free", neap_json_known(device->free));
	neap_json_set(object, "emptied", json_boolean(device->emptied));
	neap_json_set(object, "freed", neap_json_known(device->freed));
	neap_json_set(object, "nanoseconds", neap_json_known(device->nanoseconds));
	neap_json_set(object, "above_limit", neap_json_known(above));
	neap_json_set(object, "context", beside->known ? neap_json_known(beside->context) : json_null());
	neap_json_set(object, "other", beside->known ? json_integer(beside->other) : json_null());
	neap_json_set(object, "error", device->status ? neap_json_text(device->error) : json_null());
	return object;
}

/* Prints the program's own lines about it; returns how many. */
static size_t show_lines(struct work *work, const struct neap_fields *reply, json_t *process)
{
	json_t *lines = json_array();
	char line[DEVICE_REPLY_LINE];
	size_t n = 0;
	for (; device_reply_line(reply, n, line); n++) {
		if (!work->processes)
			printf("  %s\n", NEAP_PRINTABLE(line));
		else
			neap_json_add(lines, neap_json_text(line));
	}
	if (n > 0 && work->processes)
		neap_json_set(process, "lines", lines);
	else
		json_decref(lines);
	return n;
}

/* Shows every device of a reply. A device that refused to empty its cache makes this process's part a failure. */
static enum neap_status show_devices(struct work *work, pid_t pid, const struct neap_fields *reply, json_t *process,
				     struct neap_error *err)
{
	enum neap_status status, worst = NEAP_OK;
	struct device_reply device;
	struct look look = {0};
	json_t *devices = json_array();
	size_t n = 0;
	bool seen = work->monitor && look_take(work->monitor, work->folder, &look, NULL) == NEAP_OK;
	const size_t count = sizeof needed / sizeof *needed;
	for (; (status = device_reply_read(reply, n, needed, count, work->monitor, &device)) == NEAP_OK; n++) {
		struct beside beside = {0};
		if (seen)
			look_beside(&look, pid, &device, &beside);
		if (!work->processes)
			print_device(work, &device, &beside);
		else
			neap_json_add(devices, device_json(&device, &beside));
		if (device.status != NEAP_OK)
			worst = neap_fail(err, targets_device_status(device.status), "%s", device.error);
	}
	look_fini(&look);
	neap_json_set(process, "devices", devices);
	if (status == NEAP_EPROTO)
		return neap_fail(err, NEAP_EPROTO, "an account of a device is malformed");
	if (show_lines(work, reply, process) + n == 0 && !work->processes)
		puts("  it has no allocator yet: nothing was limited");
	return worst;
}

/* Leaves the limit with a stopped process. */
static enum neap_status leave(struct work *work, struct neap_client *client, const char *name,
			      struct neap_field_writer *arguments, struct neap_error *err)
{
	neap_write_u64(arguments, NEAP_FIELD_UNATTENDED, 1);
	enum neap_status status =
		neap_client_post(client, NEAP_REQUEST_FRACTION, arguments->data, arguments->length, err);
	if (!status && !work->processes)
		printf("Process %d (%s) is stopped\n"
		       "  the limit (%g of each device) was left with it: it takes effect as soon as the process "
		       "goes "
		       "on (kill -CONT %d)\n",
		       (int)client->pid, name, work->fraction, (int)client->pid);
	return status;
}

/* One process. Returns the exit code; what went wrong is on stderr and, with --json, in its object. */
static int limit(struct work *work, pid_t pid)
{
	struct neap_client client;
	struct neap_error err = {0};
	struct neap_fields reply;
	unsigned char data[32];
	struct neap_field_writer arguments = {.data = data, .room = sizeof data};
	char name[64];
	bool stopped = false;
	json_t *process = json_object();
	look_name(pid, name);
	neap_json_set(process, "pid", json_integer(pid));
	neap_json_set(process, "name", neap_json_text(name));
	neap_write_f64(&arguments, NEAP_FIELD_FRACTION, work->fraction);
	enum neap_status status = targets_open(work->folder, pid, &client, &stopped, &err);
	neap_json_set(process, "left_with_stopped", json_boolean(!status && stopped));
	if (!status && stopped) {
		status = leave(work, &client, name, &arguments, &err);
		neap_client_close(&client);
	} else if (!status) {
		status = targets_call(&client, NEAP_REQUEST_FRACTION, data, arguments.length, &reply, &err);
		if (!status && !work->processes)
			printf("Process %d (%s)\n", (int)pid, name);
		if (!status)
			status = show_devices(work, pid, &reply, process, &err);
		neap_client_close(&client);
	}
	neap_json_set(process, "error", status == NEAP_OK ? json_null() : neap_json_text(err.message));
	if (!work->processes)
		json_decref(process);
	else
		neap_json_add(work->processes, process);
	return status == NEAP_OK ? NEAP_EXIT_OK : neap_complain("fraction", &err);
}

static int print_json(struct work *work)
{
	json_t *root = json_object();
	neap_json_set(root, "schema", json_integer(SCHEMA));
	neap_json_set(root, "fraction", json_real(work->fraction));
	neap_json_set(root, "processes", json_incref(work->processes));
	return json_print("fraction", root, JSON_INDENT(2));
}

static int run(const struct neap_arguments *arguments)
{
	struct work work = {0};
	struct neap_error err = {0};
	pid_t *pids = NULL;
	size_t count = 0;
	if (neap_fraction_parse(neap_operand(arguments, 0), &work.fraction, &err) != NEAP_OK)
		return neap_misuse(arguments, "%s", err.message);
	if (neap_path_runtime(work.folder, sizeof work.folder, &err) != NEAP_OK)
		return neap_complain("fraction", &err);
	int code = targets_choose(arguments, work.folder, &pids, &count);
	if (code != NEAP_EXIT_OK)
		return code;
	/* Without NVML the agents still answer; only what is beside their allocators is not known. */
	if (neap_monitor_open(NEAP_BACKEND_DEFAULT, &work.monitor, NULL) != NEAP_OK)
		work.monitor = NULL;
	bool json = neap_argument(arguments, "json") != NULL;
	work.processes = json ? json_array() : NULL;
	if (json && !work.processes) {
		fputs("neap fraction: out of memory\n", stderr);
		code = NEAP_EXIT_OS;
		count = 0;
	}
	for (size_t i = 0; i < count; i++) {
		fflush(stdout);
		int one = limit(&work, pids[i]);
		if (one != NEAP_EXIT_OK)
			code = one;
	}
	if (work.processes) {
		int written = print_json(&work);
		code = written == NEAP_EXIT_OK ? code : written;
		json_decref(work.processes);
	}
	neap_monitor_close(work.monitor);
	free(pids);
	return code;
}
