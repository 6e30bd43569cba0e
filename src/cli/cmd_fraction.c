/* cli/cmd_fraction.c: `neap fraction`: limits what the allocators of running attached processes may reserve. */
#include "base/error.h"
#include "base/paths.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/device_reply.h"
#include "cli/look.h"
#include "cli/print.h"
#include "cli/targets.h"

#include <inttypes.h>
#include <jansson.h>
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
	bool json_failed;  /* memory ran out: what there is of it is not whole */
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

/* jansson's constructors give NULL when memory is out, and its setters then fail. */
static void set(struct work *work, json_t *object, const char *key, json_t *value)
{
	if (json_object_set_new(object, key, value) != 0)
		work->json_failed = true;
}

static json_t *integer(uint64_t value) { return value == UINT64_MAX ? json_null() : json_integer((json_int_t)value); }

static json_t *device_json(struct work *work, const struct device_reply *device, const struct beside *beside)
{
	json_t *object = json_object();
	uint64_t above = device->reserved > device->limit ? device->reserved - device->limit : 0;
	set(work, object, "ordinal", integer(device->ordinal));
	set(work, object, "index", device->index_known ? integer(device->index) : json_null());
	set(work, object, "name", look_json_text(device->name));
	set(work, object, "total", integer(device->total));
	set(work, object, "limit_before", integer(device->limit_before));
	set(work, object, "limit", integer(device->limit));
	set(work, object, "allocated", integer(device->allocated));
	set(work, object, "reserved_before", integer(device->reserved_before));
	set(work, object, "reserved", integer(device->reserved));
	set(work, object, "reserved_now", integer(device->reserved_now));
	set(work, object, "free_before", integer(device->free_before));
	set(work, object, "free", integer(device->free));
	set(work, object, "emptied", json_boolean(device->emptied));
	set(work, object, "freed", integer(device->freed));
	set(work, object, "nanoseconds", integer(device->nanoseconds));
	set(work, object, "above_limit", integer(above));
	set(work, object, "context", beside->known ? integer(beside->context) : json_null());
	set(work, object, "other", beside->known ? json_integer(beside->other) : json_null());
	set(work, object, "error", device->status ? look_json_text(device->error) : json_null());
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
		else if (json_array_append_new(lines, look_json_text(line)) != 0)
			work->json_failed = true;
	}
	if (n > 0 && work->processes)
		set(work, process, "lines", lines);
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
		else if (json_array_append_new(devices, device_json(work, &device, &beside)) != 0)
			work->json_failed = true;
		if (device.status != NEAP_OK)
			worst = neap_fail(err, targets_device_status(device.status), "%s", device.error);
	}
	look_fini(&look);
	set(work, process, "devices", devices);
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
	set(work, process, "pid", json_integer(pid));
	set(work, process, "name", look_json_text(name));
	neap_write_f64(&arguments, NEAP_FIELD_FRACTION, work->fraction);
	enum neap_status status = targets_open(work->folder, pid, &client, &stopped, &err);
	set(work, process, "left_with_stopped", json_boolean(!status && stopped));
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
	set(work, process, "error", status == NEAP_OK ? json_null() : look_json_text(err.message));
	if (!work->processes)
		json_decref(process);
	else if (json_array_append_new(work->processes, process) != 0)
		work->json_failed = true;
	return status == NEAP_OK ? NEAP_EXIT_OK : neap_complain("fraction", &err);
}

static int print_json(struct work *work)
{
	json_t *root = json_object();
	set(work, root, "schema", json_integer(SCHEMA));
	set(work, root, "fraction", json_real(work->fraction));
	set(work, root, "processes", json_incref(work->processes));
	return look_json_print("fraction", root, work->json_failed);
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
