/* cli/cleanup.c: see cleanup.h. Log lines go to stderr as the library's sink writes them, results to stdout. */
#include "cli/cleanup.h"

#include "base/error.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/units.h"
#include "cli/device_reply.h"
#include "cli/json_print.h"
#include "cli/look.h"
#include "cli/print.h"
#include "cli/targets.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA 1

struct work {
	const struct cleanup_options *options;
	const struct neap_log_sink *log; /* NULL with --json */
	struct neap_monitor *monitor;    /* NULL: no NVML, because ... */
	struct neap_error no_monitor;
	char folder[4096];
	json_t *processes; /* with --json */
};

static double customary_gb(uint64_t bytes) { return (double)bytes / (double)NEAP_GIB; }

/* The lines people know, with the driver's own report made from NVML: of this moment, when the program has gone on.
 */
static void log_device(const struct work *work, struct device_reply *device)
{
	size_t index;
	static struct neap_reading reading;
	neap_log(work->log, NEAP_LOG_INFO,
		 "CUDA memory stats%s: allocated=%.2fGB, max_allocated=%.2fGB, reserved=%.2fGB, max_reserved=%.2fGB",
		 work->options->stats_only ? "" : " after cleanup", customary_gb(device->allocated),
		 customary_gb(device->max_allocated), customary_gb(device->reserved),
		 customary_gb(device->max_reserved));
	neap_log(work->log, NEAP_LOG_INFO, "Asking the driver for GPU memory (as nvidia-smi reports it)...");
	struct neap_error err = work->no_monitor;
	if (!work->monitor || neap_monitor_find(work->monitor, device->uuid, &index, &err) != NEAP_OK ||
	    neap_monitor_read(work->monitor, index, &reading, &err) != NEAP_OK) {
		neap_log(work->log, NEAP_LOG_WARNING, "The driver does not say: %s", err.message);
		return;
	}
	device->free_now = reading.free_bytes;
	neap_log(work->log, NEAP_LOG_INFO, "NVIDIA-SMI report:");
	neap_log(work->log, NEAP_LOG_INFO, "memory.used [MiB], memory.free [MiB]");
	neap_log(work->log, NEAP_LOG_INFO, "%" PRIu64 ", %" PRIu64, (uint64_t)(reading.used_bytes / NEAP_MIB),
		 (uint64_t)(reading.free_bytes / NEAP_MIB));
}

static void print_change(const char *name, uint64_t before, uint64_t after)
{
	char from[NEAP_UNITS_ROOM], to[NEAP_UNITS_ROOM], change[NEAP_UNITS_ROOM];
	if (before == NEAP_BYTES_UNKNOWN || after == NEAP_BYTES_UNKNOWN)
		return;
	printf("  %-10s %10s before, %10s after (%s)\n", name, neap_size_format(before, from),
	       neap_size_format(after, to), neap_size_format_delta((int64_t)(after - before), change));
}

/* Two figures of what is free stand here, the program's right after the cleanup and the driver's of now: where they
 * differ, why. Smaller differences are how the two count. */
static void print_since(const struct device_reply *device)
{
	char size[NEAP_UNITS_ROOM];
	bool known = device->free != NEAP_BYTES_UNKNOWN && device->free_now != NEAP_BYTES_UNKNOWN;

	if (device->reserved_now > device->reserved)
		printf("  the program goes on and has taken %s again since\n",
		       neap_size_format(device->reserved_now - device->reserved, size));
	else if (known && device->free > device->free_now && device->free - device->free_now >= NEAP_MIB)
		printf("  %s have been taken since, by this program or another\n",
		       neap_size_format(device->free - device->free_now, size));
	else if (known && device->free_now > device->free && device->free_now - device->free >= NEAP_MIB)
		printf("  %s more have become free since\n", neap_size_format(device->free_now - device->free, size));
}

static void print_device(const struct cleanup_options *options, const struct device_reply *device)
{
	char size[NEAP_UNITS_ROOM], time[NEAP_UNITS_ROOM];
	device_reply_print_title(device);
	if (options->stats_only) {
		printf("  %-10s %10s, %s at most\n", "allocated", neap_size_format(device->allocated, size),
		       neap_size_format(device->max_allocated, time));
		printf("  %-10s %10s, %s at most\n", "reserved", neap_size_format(device->reserved, size),
		       neap_size_format(device->max_reserved, time));
		printf("  %-10s %10s\n", "cached", neap_size_format(device->reserved - device->allocated, size));
		return;
	}
	if (device->status != NEAP_OK) {
		printf("  not emptied: %s\n", NEAP_PRINTABLE(device->error));
		return;
	}
	print_change("allocated", device->allocated_before, device->allocated);
	print_change("reserved", device->reserved_before, device->reserved);
	print_change("free", device->free_before, device->free);
	if (device->freed == 0)
		printf("  nothing to give back; looking took %s\n", neap_duration_format(device->nanoseconds, time));
	else
		printf("  gave back %s in %s\n", neap_size_format(device->freed, size),
		       neap_duration_format(device->nanoseconds, time));
	print_since(device);
}

static json_t *device_json(const struct work *work, const struct device_reply *device)
{
	json_t *object = json_object();
	neap_json_set(object, "ordinal", neap_json_known(device->ordinal));
	neap_json_set(object, "index", device->index_known ? neap_json_known(device->index) : json_null());
	neap_json_set(object, "name", neap_json_text(device->name));
	neap_json_set(object, "allocated", neap_json_known(device->allocated));
	neap_json_set(object, "reserved", neap_json_known(device->reserved));
	neap_json_set(object, "max_allocated", neap_json_known(device->max_allocated));
	neap_json_set(object, "max_reserved", neap_json_known(device->max_reserved));
	if (work->options->stats_only)
		return object;
	neap_json_set(object, "allocated_before", neap_json_known(device->allocated_before));
	neap_json_set(object, "reserved_before", neap_json_known(device->reserved_before));
	neap_json_set(object, "reserved_now", neap_json_known(device->reserved_now));
	neap_json_set(object, "freed", neap_json_known(device->freed));
	neap_json_set(object, "nanoseconds", neap_json_known(device->nanoseconds));
	neap_json_set(object, "free_before", neap_json_known(device->free_before));
	neap_json_set(object, "free", neap_json_known(device->free));
	neap_json_set(object, "free_now", neap_json_known(device->free_now));
	neap_json_set(object, "error", device->status ? neap_json_text(device->error) : json_null());
	return object;
}

/* Shows every device of a reply. A device that refused makes this process's part a failure. */
static enum neap_status show_devices(const struct work *work, const struct neap_fields *reply, json_t *process,
				     struct neap_error *err)
{
	enum neap_status status, worst = NEAP_OK;
	struct device_reply device;
	json_t *devices = json_array();
	size_t n = 0;
	for (; (status = device_reply_read(reply, n, NULL, 0, work->monitor, &device)) == NEAP_OK; n++) {
		log_device(work, &device);
		if (work->options->json)
			neap_json_add(devices, device_json(work, &device));
		else
			print_device(work->options, &device);
		if (device.status != NEAP_OK)
			worst = neap_fail(err, targets_device_status(device.status), "%s", device.error);
	}
	neap_json_set(process, "devices", devices);
	if (status == NEAP_EPROTO)
		return neap_fail(err, NEAP_EPROTO, "an account of a device is malformed");
	if (n == 0 && !work->options->json)
		puts("it has no allocator yet");
	return worst;
}

/* The program's own lines about the cleanup. */
static void show_lines(const struct work *work, const struct neap_fields *reply, json_t *process)
{
	json_t *lines = json_array();
	char line[DEVICE_REPLY_LINE];
	for (size_t n = 0; device_reply_line(reply, n, line); n++) {
		if (work->options->json)
			neap_json_add(lines, neap_json_text(line));
		else
			printf("  %s\n", NEAP_PRINTABLE(line));
	}
	if (json_array_size(lines) > 0)
		neap_json_set(process, "lines", lines);
	else
		json_decref(lines);
}

static enum neap_status ask(const struct work *work, struct neap_client *client, json_t *process,
			    struct neap_error *err)
{
	const struct cleanup_options *options = work->options;
	unsigned char data[32];
	struct neap_field_writer arguments = {.data = data, .room = sizeof data};
	struct neap_fields reply;
	uint64_t bytes = 0;
	char size[NEAP_UNITS_ROOM];
	if (options->stats_only) {
		enum neap_status status = targets_call(client, NEAP_REQUEST_INFO, NULL, 0, &reply, err);
		return status == NEAP_OK ? show_devices(work, &reply, process, err) : status;
	}
	neap_log(work->log, NEAP_LOG_INFO, "Cleaning up CUDA memory...");
	neap_log(work->log, NEAP_LOG_INFO, "Clearing CUDA cache...");
	neap_write_u64(&arguments, NEAP_FIELD_FORCE, options->force);
	enum neap_status status = targets_call(client, NEAP_REQUEST_CLEAR, data, arguments.length, &reply, err);
	if (!status)
		status = show_devices(work, &reply, process, err);
	if (!status)
		show_lines(work, &reply, process);
	if (!status && neap_fields_u64(&reply, NEAP_FIELD_CALLBACK_BYTES, &bytes)) {
		neap_json_set(process, "callback_bytes", neap_json_known(bytes));
		if (!options->json)
			printf("the program's own callbacks released %s\n", neap_size_format(bytes, size));
	}
	if (!status && options->reset_peaks) {
		status = targets_call(client, NEAP_REQUEST_RESET_PEAK, NULL, 0, &reply, err);
		neap_json_set(process, "peaks_reset", json_boolean(status == NEAP_OK));
		if (!status && !options->json)
			puts("the peak statistics restart");
	}
	return status;
}

/* One process. Returns the exit code; what went wrong is on stderr and, with --json, in its object. */
static int clean(const struct work *work, pid_t pid)
{
	struct neap_client client;
	struct neap_error err = {0};
	char name[64];
	json_t *process = json_object();
	look_name(pid, name);
	neap_json_set(process, "pid", json_integer(pid));
	neap_json_set(process, "name", neap_json_text(name));
	enum neap_status status = targets_open(work->folder, pid, &client, NULL, &err);
	if (!status) {
		if (!work->options->json)
			printf("Process %d (%s)\n", (int)pid, name);
		status = ask(work, &client, process, &err);
		neap_client_close(&client);
	}
	neap_json_set(process, "error", status == NEAP_OK ? json_null() : neap_json_text(err.message));
	if (work->processes)
		neap_json_add(work->processes, process);
	else
		json_decref(process);
	return status == NEAP_OK ? NEAP_EXIT_OK : neap_complain(work->options->command, &err);
}

static int print_json(const struct work *work)
{
	json_t *root = json_object();
	neap_json_set(root, "schema", json_integer(SCHEMA));
	neap_json_set(root, "processes", json_incref(work->processes));
	return json_print(work->options->command, root, JSON_INDENT(2));
}

int cleanup_run(const struct neap_arguments *arguments, const struct cleanup_options *options)
{
	struct work work = {.options = options, .log = options->json ? NULL : neap_log_stderr()};
	struct neap_error err = {0};
	pid_t *pids = NULL;
	size_t count = 0;
	if (neap_path_runtime(work.folder, sizeof work.folder, &err) != NEAP_OK)
		return neap_complain(options->command, &err);
	int code = targets_choose(arguments, work.folder, &pids, &count);
	if (code != NEAP_EXIT_OK)
		return code;
	/* Without NVML the agents still answer; only the driver's report is missing. */
	if (neap_monitor_open(NEAP_BACKEND_DEFAULT, &work.monitor, &work.no_monitor) != NEAP_OK)
		work.monitor = NULL;
	work.processes = options->json ? json_array() : NULL;
	for (size_t i = 0; i < count; i++) {
		fflush(stdout);
		int one = clean(&work, pids[i]);
		if (one != NEAP_EXIT_OK)
			code = one;
	}
	if (options->json) {
		int written = print_json(&work);
		code = written == NEAP_EXIT_OK ? code : written;
		json_decref(work.processes);
	}
	neap_monitor_close(work.monitor);
	free(pids);
	return code;
}
