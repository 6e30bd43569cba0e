/* cli/cmd_info.c: `neap info`: a ledger per device that accounts for every byte, and who holds what. */
#include "base/clock.h"
#include "base/error.h"
#include "base/paths.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/csv.h"
#include "cli/json_parts.h"
#include "cli/look.h"
#include "cli/print.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SCHEMA 1

static const char *size_of(uint64_t bytes, char text[NEAP_UNITS_ROOM])
{
	return bytes == NEAP_BYTES_UNKNOWN ? "?" : neap_size_format(bytes, text);
}

static void print_line(const char *name, const char *size, const char *note)
{
	printf("  %-16s %10s%s%s\n", name, size, note[0] ? "  " : "", note);
}

/* Where what the ledger does not explain may be: beside the allocators of attached processes (libraries take memory
 * past them), or with a process that the driver does not list. */
static void unexplained_note(const struct look_device *device, char *note, size_t room)
{
	int64_t other = look_other(device);
	char text[NEAP_UNITS_ROOM];
	if (other == 0)
		snprintf(note, room, "(no process the driver lists holds it)");
	else if (other == device->ledger.unexplained)
		snprintf(note, room, "(attached processes hold it beside their allocators: column \"other\")");
	else
		snprintf(note, room, "(%s of it in column \"other\"; no process the driver lists holds the rest)",
			 neap_size_format_delta(other, text));
}

static void print_ledger(const struct look_device *device, bool color)
{
	const struct neap_ledger *ledger = &device->ledger;
	char text[NEAP_UNITS_ROOM], note[128];
	print_line("driver reserved", neap_size_format(ledger->driver_reserved, text),
		   device->reading.reserved_known ? "" : "(this driver counts it as used)");
	print_line("contexts", neap_size_format(ledger->contexts, text), "");
	print_line("allocated", neap_size_format(ledger->allocated, text), "");
	print_line("cached", neap_size_format(ledger->cached, text),
		   ledger->cached ? "(neap clear gives it back)" : "");
	print_line("not attached", neap_size_format(ledger->not_attached, text), "");
	if (ledger->unexplained != 0) {
		fputs(color ? "\033[33m" : "", stdout);
		unexplained_note(device, note, sizeof(note));
		print_line("unexplained", neap_size_format_delta(ledger->unexplained, text), note);
		fputs(color ? "\033[0m" : "", stdout);
	}
	print_line("free", neap_size_format(ledger->free, text), "");
	print_line("total", neap_size_format(ledger->total, text), "");
}

static void print_process(const struct look_process *process)
{
	const struct neap_ledger_process *account = &process->account;
	char bytes[NEAP_UNITS_ROOM], context[NEAP_UNITS_ROOM], allocated[NEAP_UNITS_ROOM], cached[NEAP_UNITS_ROOM],
		other[NEAP_UNITS_ROOM];
	const char *name = process->name[0] ? process->name : "?";
	if (account->attached)
		printf("  %8d  %-20.20s %10s %10s %10s %10s %10s\n", (int)account->pid, name,
		       size_of(account->bytes, bytes), neap_size_format(account->context, context),
		       neap_size_format(account->allocated, allocated), neap_size_format(account->cached, cached),
		       neap_size_format_delta(account->other, other));
	else if (process->stray)
		printf("  %8d  %-20.20s %10s a stray context: it has no allocation here, it works on GPU %zu\n",
		       (int)account->pid, name, size_of(account->bytes, bytes), process->stray_from);
	else
		printf("  %8d  %-20.20s %10s %10s\n", (int)account->pid, name, size_of(account->bytes, bytes),
		       "not attached");
}

/* The next device that an attached process uses and NVML does not list: a MIG instance, or another machine's view. */
static const struct neap_published *next_unlisted(const struct look *look, const struct neap_attached *attached,
						  size_t *cursor)
{
	while (*cursor < attached->device_count) {
		const struct neap_published *published = &attached->devices[(*cursor)++];
		bool listed = false;
		for (size_t d = 0; d < look->device_count; d++)
			listed |= memcmp(look->devices[d].reading.uuid, published->device_uuid, 16) == 0;
		if (!listed)
			return published;
	}
	return NULL;
}

static uint64_t reserved_of(const struct neap_published *published)
{
	int64_t bytes = published->stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].current;
	return bytes > 0 ? (uint64_t)bytes : 0;
}

static void print_unlisted(const struct look *look, const struct neap_attached *attached)
{
	const struct neap_published *published;
	char size[NEAP_UNITS_ROOM];
	for (size_t cursor = 0; (published = next_unlisted(look, attached, &cursor));)
		printf("Process %d: has %s reserved on a device that NVML does not list, such as a MIG instance: it "
		       "is "
		       "in no account above\n",
		       (int)attached->pid, neap_size_format(reserved_of(published), size));
}

static void print_people(const struct look *look, bool color)
{
	for (size_t i = 0; i < look->device_count; i++) {
		const struct look_device *device = &look->devices[i];
		printf("%s%sGPU %zu: %s%s%s  %s\n", i > 0 ? "\n" : "", color ? "\033[1m" : "", i,
		       NEAP_PRINTABLE(device->reading.name), look->backend == NEAP_BACKEND_SIM ? " (simulated)" : "",
		       color ? "\033[0m" : "", device->reading.uuid_text);
		print_ledger(device, color);
		if (!device->reading.processes_known)
			puts("  the driver gives no list of processes");
		if (device->process_count > 0)
			printf("  %8s  %-20s %10s %10s %10s %10s %10s\n", "PID", "process", "in all", "context",
			       "allocated", "cached", "other");
		for (size_t p = 0; p < device->process_count; p++)
			print_process(&device->processes[p]);
		if (device->reading.processes_truncated)
			printf("  and more: the driver lists over %d processes\n", NEAP_READING_PROCESSES);
	}
	for (size_t i = 0; i < look->attached_count; i++)
		print_unlisted(look, &look->attached[i]);
	for (size_t i = 0; i < look->attached_count; i++)
		if (look->attached[i].note[0])
			printf("Process %d: %s\n", (int)look->attached[i].pid,
			       NEAP_PRINTABLE(look->attached[i].note));
}

/* JSON: jansson's setters take NULL for "out of memory" and then fail; one flag remembers. */
static json_t *integer(uint64_t value)
{
	return value == NEAP_BYTES_UNKNOWN ? json_null() : json_integer((json_int_t)value);
}

static json_t *ledger_json(const struct neap_ledger *ledger, bool *ret_failed)
{
	json_t *object = json_object();
	set(object, "driver_reserved", integer(ledger->driver_reserved), ret_failed);
	set(object, "contexts", integer(ledger->contexts), ret_failed);
	set(object, "allocated", integer(ledger->allocated), ret_failed);
	set(object, "cached", integer(ledger->cached), ret_failed);
	set(object, "not_attached", integer(ledger->not_attached), ret_failed);
	set(object, "unexplained", json_integer(ledger->unexplained), ret_failed);
	set(object, "free", integer(ledger->free), ret_failed);
	set(object, "total", integer(ledger->total), ret_failed);
	return object;
}

/* The bytes of a process that is not attached, as the ledger counts them. */
static uint64_t not_attached_bytes(const struct neap_ledger_process *account)
{
	return account->attached || account->bytes == NEAP_BYTES_UNKNOWN ? 0 : account->bytes;
}

/* What an attached process says of its settings; "" for nothing. */
static const char *note_of(const struct look *look, pid_t pid)
{
	for (size_t i = 0; i < look->attached_count; i++)
		if (look->attached[i].pid == pid)
			return look->attached[i].note;
	return "";
}

static json_t *process_json(const struct look_process *process, size_t device, const char *note, bool *ret_failed)
{
	const struct neap_ledger_process *account = &process->account;
	json_t *object = json_object();
	set(object, "pid", json_integer(account->pid), ret_failed);
	set(object, "device", integer(device), ret_failed);
	set(object, "name", process->name[0] ? look_json_text(process->name) : json_null(), ret_failed);
	set(object, "attached", json_boolean(account->attached), ret_failed);
	set(object, "bytes", integer(account->bytes), ret_failed);
	set(object, "contexts", integer(account->context), ret_failed);
	set(object, "allocated", integer(account->allocated), ret_failed);
	set(object, "cached", integer(account->cached), ret_failed);
	set(object, "not_attached", integer(not_attached_bytes(account)), ret_failed);
	set(object, "unexplained", json_integer(account->other), ret_failed);
	set(object, "stray_context", json_boolean(process->stray), ret_failed);
	set(object, "note", note[0] ? look_json_text(note) : json_null(), ret_failed);
	return object;
}

static json_t *device_json(const struct look_device *device, size_t index, bool *ret_failed)
{
	const struct neap_reading *reading = &device->reading;
	json_t *object = json_object();
	set(object, "index", integer(index), ret_failed);
	set(object, "uuid", look_json_text(reading->uuid_text), ret_failed);
	set(object, "name", look_json_text(reading->name), ret_failed);
	set(object, "pci_bus_id", look_json_text(reading->pci_bus_id), ret_failed);
	set(object, "utilization_percent",
	    reading->utilization_percent < 0 ? json_null() : json_integer(reading->utilization_percent), ret_failed);
	set(object, "processes_known", json_boolean(reading->processes_known && !reading->processes_truncated),
	    ret_failed);
	set(object, "ledger", ledger_json(&device->ledger, ret_failed), ret_failed);
	return object;
}

static int print_json(const struct look *look, bool lines)
{
	bool failed = false;
	json_t *root = json_object(), *devices = json_array(), *processes = json_array(), *unlisted = json_array();
	for (size_t i = 0; i < look->device_count; i++) {
		const struct look_device *device = &look->devices[i];
		if (json_array_append_new(devices, device_json(device, i, &failed)) != 0)
			failed = true;
		for (size_t p = 0; p < device->process_count; p++)
			if (json_array_append_new(processes,
						  process_json(&device->processes[p], i,
							       note_of(look, device->processes[p].account.pid),
							       &failed)) != 0)
				failed = true;
	}
	for (size_t i = 0; i < look->attached_count; i++) {
		const struct neap_published *published;
		for (size_t cursor = 0; (published = next_unlisted(look, &look->attached[i], &cursor));) {
			json_t *one = json_object();
			set(one, "pid", json_integer(look->attached[i].pid), &failed);
			set(one, "reserved", integer(reserved_of(published)), &failed);
			if (json_array_append_new(unlisted, one) != 0)
				failed = true;
		}
	}
	set(root, "schema", json_integer(SCHEMA), &failed);
	set(root, "time_ns", integer(neap_wall_ns()), &failed);
	set(root, "backend", json_string(look_backend_name(look->backend)), &failed);
	set(root, "devices", devices, &failed);
	set(root, "processes", processes, &failed);
	set(root, "unlisted", unlisted, &failed);
	char *text = failed ? NULL : json_dumps(root, lines ? JSON_COMPACT : JSON_INDENT(2));
	json_decref(root);
	if (!text) {
		fputs("neap info: out of memory\n", stderr);
		return NEAP_EXIT_OS;
	}
	print_safe_json(stdout, text);
	putchar('\n');
	free(text);
	return NEAP_EXIT_OK;
}

/* One line per device and one per process on it; empty cells where a column does not apply or is not known. */
static void print_csv(const struct look *look)
{
	for (size_t i = 0; i < look->device_count; i++) {
		const struct look_device *device = &look->devices[i];
		const struct neap_ledger *l = &device->ledger;
		printf("%zu,%s,,", i, device->reading.uuid_text);
		csv_print_text(device->reading.name);
		printf(",,,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRId64 ",%" PRIu64
		       ",%" PRIu64 "\n",
		       l->driver_reserved, l->contexts, l->allocated, l->cached, l->not_attached, l->unexplained,
		       l->free, l->total);
		for (size_t p = 0; p < device->process_count; p++) {
			const struct neap_ledger_process *account = &device->processes[p].account;
			printf("%zu,%s,%d,", i, device->reading.uuid_text, (int)account->pid);
			csv_print_text(device->processes[p].name);
			printf(",%d,", account->attached);
			if (account->bytes != NEAP_BYTES_UNKNOWN)
				printf("%" PRIu64, account->bytes);
			printf(",,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRId64 ",,\n", account->context,
			       account->allocated, account->cached, not_attached_bytes(account), account->other);
		}
	}
}

static size_t device_index(const struct look *look, const unsigned char uuid[16])
{
	size_t i = 0;
	while (i < look->device_count && memcmp(look->devices[i].reading.uuid, uuid, 16) != 0)
		i++;
	return i;
}

static void print_summary(const struct look *look)
{
	if (look->attached_count == 0)
		puts("No process is attached; 'neap run -- COMMAND' starts one that is.");
	for (size_t i = 0; i < look->attached_count; i++) {
		for (size_t d = 0; d < look->device_count; d++) {
			struct neap_published published;
			char title[128], text[NEAP_SUMMARY_ROOM];
			const unsigned char *uuid = look->devices[d].reading.uuid;
			if (!neap_attached_device(&look->attached[i], uuid, &published))
				continue;
			snprintf(title, sizeof(title), "%.30s (PID %d) CUDA memory summary, device ID %zu",
				 look->attached[i].name, (int)look->attached[i].pid, device_index(look, uuid));
			if (neap_stats_summary(&published.stats, title, false, text) == NEAP_OK)
				print_safe_lines(stdout, text);
		}
	}
}

struct request {
	bool json, csv, summary, repeated, color;
};

static int print_look(const struct look *look, const struct request *request, bool first)
{
	if (request->json)
		return print_json(look, request->repeated);
	if (request->csv) {
		if (first)
			puts("device,uuid,pid,name,attached,bytes,driver_reserved,contexts,allocated,cached,"
			     "not_attached,unexplained,free,total");
		print_csv(look);
		return NEAP_EXIT_OK;
	}
	if (!first)
		putchar('\n');
	if (request->summary)
		print_summary(look);
	else
		print_people(look, request->color);
	return NEAP_EXIT_OK;
}

static int show(struct neap_monitor *monitor, const char *folder, const struct request *request, uint64_t every_ns)
{
	for (bool first = true;; first = false) {
		struct look look = {0};
		struct neap_error err = {0};
		enum neap_status status = look_take(monitor, folder, &look, &err);
		int code = status == NEAP_OK ? print_look(&look, request, first) : neap_complain("info", &err);
		look_fini(&look);
		if (code != NEAP_EXIT_OK || every_ns == 0)
			return code;
		if (fflush(stdout) != 0)
			return NEAP_EXIT_OK; /* main says why */
		neap_clock_sleep(neap_clock_system(), every_ns);
	}
}

static int run(const struct neap_arguments *arguments)
{
	struct request request = {.json = neap_argument(arguments, "json"),
				  .csv = neap_argument(arguments, "csv"),
				  .summary = neap_argument(arguments, "summary"),
				  .color = neap_color(arguments, stdout)};
	const char *every = neap_argument(arguments, "every");
	uint64_t every_ns = 0;
	struct neap_error err = {0};
	if (request.json + request.csv + request.summary > 1)
		return neap_misuse(arguments, "only one of --json, --csv and --summary");
	if (every && neap_duration_parse(every, &every_ns, &err) != NEAP_OK)
		return neap_misuse(arguments, "--every: %s", err.message);
	if (every && every_ns < 10 * NEAP_NS_PER_MS)
		return neap_misuse(arguments, "--every: at least 10ms");
	request.repeated = every != NULL;

	struct neap_monitor *monitor = NULL;
	char folder[4096];
	enum neap_status status = neap_monitor_open(NEAP_BACKEND_DEFAULT, &monitor, &err);
	if (status == NEAP_OK)
		status = neap_path_runtime(folder, sizeof(folder), &err);
	int code = status == NEAP_OK ? show(monitor, folder, &request, every_ns) : neap_complain("info", &err);
	neap_monitor_close(monitor);
	return code;
}

const struct neap_command neap_command_info = {
	.name = "info",
	.usage = "[--json|--csv|--summary] [--every S]",
	.summary = "account for every byte of each device's memory, and who holds it",
	.details = "Per device:\n"
		   "  driver reserved + contexts + allocated + cached + not attached + unexplained + free = total\n"
		   "\n"
		   "Contexts, allocated and cached are those of attached processes (started by 'neap run', or that "
		   "attached themselves); not attached is what the driver says of the others. Asks NVML and the "
		   "attached "
		   "processes' statistics pages: it creates no CUDA context, disturbs nobody, and waits for no "
		   "process, so "
		   "that it also answers for one that is stopped.\n"
		   "\n"
		   "--csv: a name that a spreadsheet would take for a formula (it begins with =, +, - or @) has an "
		   "apostrophe before it.\n"
		   "\n"
		   "Exit codes: 0 done; 64 usage; 69 no driver; 77 the runtime folder is not safely ours.",
	.options =
		(const struct neap_option[]){
			{"json", NULL, "one JSON object (with --every: one a line)"},
			{"csv", NULL, "one line per device and per process on it"},
			{"summary", NULL, "each attached process's counters, as PyTorch's memory_summary shows them"},
			{"every", "S", "again every S seconds (or 500ms, 2m, ...), until interrupted"},
			{NULL, NULL, NULL},
		},
	.run = run,
};
