/* cli/cmd_info.c: `neap info`: a ledger per device that accounts for every byte, and the processes that hold it. */
#include "base/clock.h"
#include "base/error.h"
#include "base/paths.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/info_report.h"
#include "cli/print.h"
#include "cli/targets.h"
#include "machine/sample.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static int run(const struct neap_arguments *arguments);

const struct neap_command neap_command_info = {
	.name = "info",
	.usage = "[-i DEVICE] [--pid P] [--sort KEY] [--oneline|--json|--csv|--summary] [--every S]",
	.summary = "account for every byte of each device's memory, and its holders",
	.details = neap_help_info,
	.options =
		(const struct neap_option[]){
			{"device", "DEVICE", "this device: index or UUID; may be given several times", 'i'},
			{"pid", "P", "this process, and the devices it uses; may be given several times"},
			{"sort", "KEY", "processes by memory, pid, time, user or name"},
			{"oneline", NULL, "one line for each device"},
			{"json", NULL, "one JSON object (with --every: one a line)"},
			{"csv", NULL, "one line per device and per process on it"},
			{"summary", NULL, "each attached process's counters, as PyTorch's memory_summary shows them"},
			{"every", "S",
			 "repeat every S seconds (or 500ms, 2m, ...) until interrupted; on a terminal in place"},
			{NULL, NULL, NULL},
		},
	.run = run,
};

static int print_json(const struct neap_sample *sample, bool lines)
{
	return json_print("info", neap_sample_json(sample, neap_wall_ns()), lines ? JSON_COMPACT : JSON_INDENT(2));
}

/* One line per device and one per process on it; empty cells where a column does not apply or is not known. */
static void print_csv(const struct neap_sample *sample)
{
	for (size_t i = 0; i < sample->device_count; i++) {
		const struct neap_sample_device *device = &sample->devices[i];
		const struct neap_ledger *l = &device->ledger;
		if (device->left_out)
			continue;
		printf("%zu,%s,,", i, device->reading.uuid_text);
		print_csv_text(device->reading.name);
		printf(",,,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRId64 ",%" PRIu64
		       ",%" PRIu64 ",",
		       l->driver_reserved, l->contexts, l->allocated, l->cached, l->not_attached, l->unexplained,
		       l->free, l->total);
		if (device->reading.utilization_percent >= 0)
			printf("%d", device->reading.utilization_percent);
		puts(",,,");
		for (size_t p = 0; p < device->process_count; p++) {
			const struct neap_ledger_process *account = &device->processes[p].account;
			printf("%zu,%s,%d,", i, device->reading.uuid_text, (int)account->pid);
			print_csv_text(device->processes[p].who.name);
			printf(",%d,", account->attached);
			if (account->bytes != NEAP_BYTES_UNKNOWN)
				printf("%" PRIu64, account->bytes);
			printf(",,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRId64 ",,,,", account->context,
			       account->allocated, account->cached, neap_sample_not_attached(account),
			       account->other);
			print_csv_text(device->processes[p].who.user);
			putchar(',');
			if (device->processes[p].who.run_ns != NEAP_WHO_UNKNOWN)
				printf("%" PRIu64, device->processes[p].who.run_ns);
			putchar(',');
			print_csv_text(device->processes[p].who.command);
			putchar('\n');
		}
	}
}

static size_t device_index(const struct neap_sample *sample, const unsigned char uuid[16])
{
	size_t i = 0;
	while (i < sample->device_count && memcmp(sample->devices[i].reading.uuid, uuid, 16) != 0)
		i++;
	return i;
}

static void print_summary(const struct neap_sample *sample)
{
	if (sample->attached_count == 0)
		puts("No process is attached; 'neap run -- COMMAND' starts one that is.");
	for (size_t i = 0; i < sample->attached_count; i++) {
		for (size_t d = 0; d < sample->device_count; d++) {
			struct neap_published published;
			char title[128], text[NEAP_SUMMARY_ROOM];
			const unsigned char *uuid = sample->devices[d].reading.uuid;
			if (sample->devices[d].left_out ||
			    !neap_attached_device(&sample->attached[i], uuid, &published))
				continue;
			snprintf(title, sizeof title, "%.30s (PID %d) CUDA memory summary, device ID %zu",
				 sample->attached[i].name, (int)sample->attached[i].pid, device_index(sample, uuid));
			if (neap_stats_summary(&published.stats, title, false, text) == NEAP_OK)
				print_safe_lines(stdout, text);
		}
	}
}

struct request {
	bool json, csv, summary, oneline, color;
	bool repeated;
	bool refresh; /* a terminal: each sample is written over the one before */
	const char *sort;
	pid_t *pids; /* NULL: of every process */
	size_t pid_count;
	const struct neap_arguments *arguments;
};

static bool device_wanted(const struct request *request, const struct neap_sample_device *device, size_t index)
{
	const char *name = neap_argument(request->arguments, "device");
	uint64_t number;
	for (size_t n = 0; (name = neap_argument_nth(request->arguments, "device", n)); n++)
		if (strcmp(name, device->reading.uuid_text) == 0 ||
		    (neap_u64_parse(name, &number, NULL) == NEAP_OK && number == index))
			return true;
	return !neap_argument(request->arguments, "device");
}

/* Checks that each --device names a device. */
static int check_devices(const struct request *request, const struct neap_sample *sample)
{
	const char *name;
	for (size_t n = 0; (name = neap_argument_nth(request->arguments, "device", n)); n++) {
		uint64_t number;
		bool found = neap_u64_parse(name, &number, NULL) == NEAP_OK && number < sample->device_count;
		for (size_t i = 0; i < sample->device_count; i++)
			found |= strcmp(name, sample->devices[i].reading.uuid_text) == 0;
		if (!found) {
			fprintf(stderr, "neap info: no device '%s'; there %s %zu, numbered from 0\n",
				NEAP_PRINTABLE(name), sample->device_count == 1 ? "is" : "are", sample->device_count);
			return NEAP_EXIT_NO_INPUT;
		}
	}
	return NEAP_EXIT_OK;
}

/* Keeps only the processes that --pid names. Returns how many there are. */
static size_t choose_processes(const struct request *request, struct neap_sample_device *device)
{
	size_t kept = 0;
	for (size_t p = 0; p < device->process_count; p++)
		for (size_t n = 0; n < request->pid_count; n++)
			if (device->processes[p].account.pid == request->pids[n]) {
				device->processes[kept++] = device->processes[p];
				break;
			}
	return device->process_count = kept;
}

static void choose_attached(const struct request *request, struct neap_sample *sample)
{
	size_t kept = 0;
	for (size_t i = 0; i < sample->attached_count; i++)
		for (size_t n = 0; n < request->pid_count; n++)
			if (sample->attached[i].pid == request->pids[n]) {
				sample->attached[kept++] = sample->attached[i];
				break;
			}
	sample->attached_count = kept;
}

/* Keeps only the devices of --device and the processes of --pid, in the order of --sort. `first`: a missing process
 * or device is an error; in later samples it has ended. */
static int choose(const struct request *request, struct neap_sample *sample, bool first)
{
	int code = first ? check_devices(request, sample) : NEAP_EXIT_OK;
	size_t found = 0;
	if (code != NEAP_EXIT_OK)
		return code;
	for (size_t i = 0; i < sample->device_count; i++) {
		struct neap_sample_device *device = &sample->devices[i];
		device->left_out = !device_wanted(request, device, i);
		if (!request->pids || device->left_out)
			continue;
		size_t here = choose_processes(request, device);
		device->left_out = here == 0;
		found += here;
	}
	if (request->pids)
		choose_attached(request, sample);
	if (request->pids && found == 0 && first) {
		if (request->pid_count == 1)
			fprintf(stderr, "neap info: process %d uses no GPU that is shown\n", (int)request->pids[0]);
		else
			fputs("neap info: none of these processes uses a GPU that is shown\n", stderr);
		return NEAP_EXIT_NO_INPUT;
	}
	neap_sample_who(sample);
	if (request->sort)
		neap_sample_sort(sample, request->sort);
	return NEAP_EXIT_OK;
}

static size_t terminal_columns(void)
{
	struct winsize size = {0};
	return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* Clears the terminal only together with the next frame, so that it does not flicker. */
static void begin_frame(uint64_t every_ns)
{
	char every[NEAP_UNITS_CAPACITY], clock[32] = "";
	time_t now = time(NULL);
	struct tm local = {0};
	localtime_r(&now, &local);
	strftime(clock, sizeof clock, "%H:%M:%S", &local);
	printf("\033[H\033[Jneap info at %s, again every %s (Ctrl-C ends it)\n\n", clock,
	       neap_duration_format(every_ns, every));
}

static int print_sample(const struct neap_sample *sample, const struct request *request, bool first,
			uint64_t every_ns)
{
	struct info_style style = {.color = request->color, .columns = terminal_columns()};
	if (request->json)
		return print_json(sample, request->repeated);
	if (request->csv) {
		if (first)
			puts("device,uuid,pid,name,attached,bytes,driver_reserved,contexts,allocated,cached,"
			     "not_attached,unexplained,free,total,utilization_percent,user,run_time_ns,command");
		print_csv(sample);
		return NEAP_EXIT_OK;
	}
	if (request->refresh)
		begin_frame(every_ns);
	else if (!first && !request->oneline)
		putchar('\n');
	if (request->summary)
		print_summary(sample);
	else if (request->oneline)
		info_print_oneline(stdout, sample, &style);
	else
		info_print_account(stdout, sample, &style);
	return NEAP_EXIT_OK;
}

static int show(struct neap_monitor *monitor, const char *folder, const struct request *request, uint64_t every_ns)
{
	for (bool first = true;; first = false) {
		struct neap_sample sample = {0};
		struct neap_error err = {0};
		enum neap_status status = neap_sample_take(monitor, folder, &sample, &err);
		int code = status == NEAP_OK ? choose(request, &sample, first) : neap_complain("info", &err);
		if (code == NEAP_EXIT_OK)
			code = print_sample(&sample, request, first, every_ns);
		neap_sample_fini(&sample);
		if (code != NEAP_EXIT_OK || every_ns == 0)
			return code;
		if (fflush(stdout) != 0)
			return NEAP_EXIT_OK; /* main says why */
		neap_clock_sleep(neap_clock_system(), every_ns);
	}
}

static int read_request(const struct neap_arguments *arguments, struct request *ret_request, uint64_t *ret_every_ns)
{
	struct request request = {.json = neap_argument(arguments, "json"),
				  .csv = neap_argument(arguments, "csv"),
				  .summary = neap_argument(arguments, "summary"),
				  .oneline = neap_argument(arguments, "oneline"),
				  .sort = neap_argument(arguments, "sort"),
				  .color = neap_color(arguments, stdout),
				  .arguments = arguments};
	const char *every = neap_argument(arguments, "every"), *term = getenv("TERM");
	struct neap_error err = {0};
	struct neap_sample nothing = {0};
	if (request.json + request.csv + request.summary + request.oneline > 1)
		return neap_misuse(arguments, "only one of --json, --csv, --summary and --oneline");
	if (every && neap_duration_parse(every, ret_every_ns, &err) != NEAP_OK)
		return neap_misuse(arguments, "--every: %s", err.message);
	if (every && *ret_every_ns < 10 * NEAP_NS_PER_MS)
		return neap_misuse(arguments, "--every: at least 10ms");
	if (request.sort && !neap_sample_sort(&nothing, request.sort))
		return neap_misuse(arguments, "--sort is memory, pid, time, user or name, not '%s'", request.sort);
	request.repeated = every != NULL;
	request.refresh =
		every && !request.json && !request.csv && isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
	*ret_request = request;
	return NEAP_EXIT_OK;
}

static int run(const struct neap_arguments *arguments)
{
	static char frame[1 << 16];
	struct request request = {0};
	struct neap_monitor *monitor = NULL;
	struct neap_error err = {0};
	uint64_t every_ns = 0;
	char folder[4096];
	int code = read_request(arguments, &request, &every_ns);
	if (code == NEAP_EXIT_OK && neap_argument(arguments, "pid"))
		code = targets_given(arguments, false, &request.pids, &request.pid_count);
	if (code != NEAP_EXIT_OK)
		return code;
	if (request.refresh)
		setvbuf(stdout, frame, _IOFBF, sizeof frame); /* writes one sample at a time */
	enum neap_status status = neap_monitor_open(NEAP_BACKEND_DEFAULT, &monitor, &err);
	if (!status)
		status = neap_path_runtime(folder, sizeof folder, &err);
	code = status == NEAP_OK ? show(monitor, folder, &request, every_ns) : neap_complain("info", &err);
	neap_monitor_close(monitor);
	free(request.pids);
	return code;
}
