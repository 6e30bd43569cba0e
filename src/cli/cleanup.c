/* cli/cleanup.c: see cleanup.h. Log lines go to stderr as the library's sink writes them, results to stdout. */
#include "cli/cleanup.h"

#include "base/log.h"
#include "base/units.h"
#include "cli/ask.h"
#include "cli/print.h"
#include "machine/attached.h"
#include "proto/commands.h"

#include <inttypes.h>

static const struct cleanup_options *options_of(const struct ask *ask) { return ask->context; }

static const struct neap_log_sink *log_of(const struct ask *ask) { return ask->json ? NULL : neap_log_stderr(); }

static double customary_gb(uint64_t bytes) { return (double)bytes / (double)NEAP_GIB; }

/* Logs the well-known lines of a cleanup. The driver's figure in them comes from NVML, now: the program has continued
 * since. */
static void log_device(struct ask *ask, pid_t pid, struct neap_device_reply *device)
{
	const struct neap_log_sink *log = log_of(ask);
	const struct neap_device_answer *answer = &device->answer;
	size_t index;
	static struct neap_reading reading;
	(void)pid;
	neap_log(log, NEAP_LOG_INFO,
		 "CUDA memory stats%s: allocated=%.2fGB, max_allocated=%.2fGB, reserved=%.2fGB, max_reserved=%.2fGB",
		 options_of(ask)->stats_only ? "" : " after cleanup", customary_gb(answer->allocated),
		 customary_gb(answer->max_allocated), customary_gb(answer->reserved),
		 customary_gb(answer->max_reserved));
	neap_log(log, NEAP_LOG_INFO, "Asking the driver for GPU memory (as nvidia-smi reports it)...");
	struct neap_error err = ask->no_monitor;
	if (!ask->monitor || neap_monitor_find(ask->monitor, answer->uuid, &index, &err) != NEAP_OK ||
	    neap_monitor_read(ask->monitor, index, &reading, &err) != NEAP_OK) {
		neap_log(log, NEAP_LOG_WARNING, "The driver does not say: %s", err.message);
		return;
	}
	device->free_now = reading.free_bytes;
	neap_log(log, NEAP_LOG_INFO, "NVIDIA-SMI report:");
	neap_log(log, NEAP_LOG_INFO, "memory.used [MiB], memory.free [MiB]");
	neap_log(log, NEAP_LOG_INFO, "%" PRIu64 ", %" PRIu64, (uint64_t)(reading.used_bytes / NEAP_MIB),
		 (uint64_t)(reading.free_bytes / NEAP_MIB));
}

static void print_change(const char *name, uint64_t before, uint64_t after)
{
	char from[NEAP_UNITS_CAPACITY], to[NEAP_UNITS_CAPACITY], change[NEAP_UNITS_CAPACITY];
	if (before == NEAP_BYTES_UNKNOWN || after == NEAP_BYTES_UNKNOWN)
		return;
	printf("  %-10s %10s before, %10s after (%s)\n", name, neap_size_format(before, from),
	       neap_size_format(after, to), neap_size_format_delta((int64_t)(after - before), change));
}

/* The report has two figures of free memory: the program's, right after the cleanup, and the driver's, now. Explains
 * why they differ, unless the difference is so small that the two only count differently. */
static void print_since(const struct neap_device_answer *answer, uint64_t free_now)
{
	char size[NEAP_UNITS_CAPACITY];
	bool known = answer->free != NEAP_BYTES_UNKNOWN && free_now != NEAP_BYTES_UNKNOWN;

	if (answer->reserved_now > answer->reserved)
		printf("  the program continues and allocated %s again since then\n",
		       neap_size_format(answer->reserved_now - answer->reserved, size));
	else if (known && answer->free > free_now && answer->free - free_now >= NEAP_MIB)
		printf("  %s have been taken since, by this program or another\n",
		       neap_size_format(answer->free - free_now, size));
	else if (known && free_now > answer->free && free_now - answer->free >= NEAP_MIB)
		printf("  %s more have become free since\n", neap_size_format(free_now - answer->free, size));
}

static void print_device(struct ask *ask, const struct neap_device_reply *device)
{
	const struct neap_device_answer *answer = &device->answer;
	char size[NEAP_UNITS_CAPACITY], time[NEAP_UNITS_CAPACITY];
	ask_print_title(device);
	if (options_of(ask)->stats_only) {
		printf("  %-10s %10s, %s at most\n", "allocated", neap_size_format(answer->allocated, size),
		       neap_size_format(answer->max_allocated, time));
		printf("  %-10s %10s, %s at most\n", "reserved", neap_size_format(answer->reserved, size),
		       neap_size_format(answer->max_reserved, time));
		printf("  %-10s %10s\n", "cached", neap_size_format(answer->reserved - answer->allocated, size));
		return;
	}
	if (answer->status != NEAP_OK) {
		printf("  not emptied: %s\n", NEAP_PRINTABLE(answer->message));
		return;
	}
	print_change("allocated", answer->allocated_before, answer->allocated);
	print_change("reserved", answer->reserved_before, answer->reserved);
	print_change("free", answer->free_before, answer->free);
	if (answer->freed == 0)
		printf("  nothing to give back; looking took %s\n", neap_duration_format(answer->nanoseconds, time));
	else
		printf("  gave back %s in %s\n", neap_size_format(answer->freed, size),
		       neap_duration_format(answer->nanoseconds, time));
	print_since(answer, device->free_now);
}

static void add_free_now(struct ask *ask, const struct neap_device_reply *device, json_t *object)
{
	if (!options_of(ask)->stats_only)
		neap_json_set(object, "free_now", neap_json_known(device->free_now));
}

static enum neap_status show(struct ask *ask, pid_t pid, const struct neap_fields *reply, json_t *process,
			     struct neap_error *err)
{
	size_t count = 1;
	enum neap_status status = ask_show_devices(ask, pid, reply, process, &count, err);
	if (!status && count == 0 && !ask->json)
		puts("it has no allocator yet");
	return status;
}

static enum neap_status empty(struct ask *ask, struct neap_client *client, json_t *process, struct neap_error *err)
{
	unsigned char data[32];
	struct neap_field_writer arguments = {.data = data, .capacity = sizeof data};
	struct neap_fields reply;
	uint64_t bytes = 0;
	char size[NEAP_UNITS_CAPACITY];
	neap_log(log_of(ask), NEAP_LOG_INFO, "Cleaning up CUDA memory...");
	neap_log(log_of(ask), NEAP_LOG_INFO, "Clearing CUDA cache...");
	neap_write_u64(&arguments, NEAP_FIELD_FORCE, options_of(ask)->force);
	enum neap_status status = neap_attached_call(client, NEAP_REQUEST_CLEAR, data, arguments.length, &reply, err);
	if (!status)
		status = show(ask, client->pid, &reply, process, err);
	if (status)
		return status;
	ask_show_lines(ask, &reply, process);
	if (neap_fields_u64(&reply, NEAP_FIELD_CALLBACK_BYTES, &bytes)) {
		neap_json_set(process, "callback_bytes", neap_json_number(bytes));
		if (!ask->json)
			printf("the program's own callbacks released %s\n", neap_size_format(bytes, size));
	}
	return NEAP_OK;
}

static enum neap_status clean(struct ask *ask, struct neap_client *client, const char *name, json_t *process,
			      struct neap_error *err)
{
	const struct cleanup_options *options = options_of(ask);
	struct neap_fields reply;
	if (!ask->json)
		printf("Process %d (%s)\n", (int)client->pid, name);
	if (options->stats_only) {
		enum neap_status status = neap_attached_call(client, NEAP_REQUEST_INFO, NULL, 0, &reply, err);
		return status ? status : show(ask, client->pid, &reply, process, err);
	}
	enum neap_status status = empty(ask, client, process, err);
	if (!status && options->reset_peaks) {
		status = neap_attached_call(client, NEAP_REQUEST_RESET_PEAK, NULL, 0, &reply, err);
		neap_json_set(process, "peaks_reset", json_boolean(!status));
		if (!status && !ask->json)
			puts("the peak statistics restart");
	}
	return status;
}

int cleanup_run(const struct neap_arguments *arguments, const struct cleanup_options *options)
{
	const struct ask_verb verb = {.command = options->reset_peaks ? "reset" : "clear",
				      .process = clean,
				      .see = log_device,
				      .print = print_device,
				      .add = add_free_now};
	struct cleanup_options own = *options;
	struct ask ask = {.verb = &verb,
			  .shown = options->stats_only ? NEAP_SHOWN_HELD : NEAP_SHOWN_CLEARED,
			  .json = neap_argument(arguments, "json"),
			  .context = &own};
	return ask_all(&ask, arguments);
}
