/* cli/cmd_analyze.c: `neap analyze`: analyses one device's memory in a trace. */
#include "analyze/write.h"
#include "base/error.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/print.h"
#include "cli/run_folder.h"
#include "report/analysis.h"
#include "report/page_file.h"
#include "report/trace_page.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#define TOP 10

static int run(const struct neap_arguments *arguments);

const struct neap_command neap_command_analyze = {
	.name = "analyze",
	.usage =
		"FILE [--device N] [--from T] [--to T] [--memory SIZE] [--top K] [--json] [--html OUT] [--write OUT]",
	.summary = "analyze a trace: peaks, the holders of the memory and its purpose",
	.details = neap_help_analyze,
	.options =
		(const struct neap_option[]){
			{"device", "N",
			 "a device of the trace; default: the one that ran out of memory, else with the most events"},
			{"from", "T", "a time since the first event (250ms), event:N, or step:N (where it begins)"},
			{"to", "T", "likewise; peaks are taken in between"},
			{"memory", "SIZE",
			 "the device's size: shows what others held at an OOM; without one, whether it would fail, "
			 "and what helps"},
			{"top", "K", "how many holders are listed; default 10"},
			{"json", NULL, "every figure, as JSON"},
			{"write", "OUT", "the whole trace in another form as well: .pickle, .txt, .txt.zst, .record"},
			{"html", "OUT", "a page for a browser as well, into this file; - for standard output"},
			{NULL, NULL, NULL},
		},
	.operands_min = 1,
	.operands_max = 1,
	.run = run,
};

static volatile sig_atomic_t interrupted_by;
static void on_signal(int number) { interrupted_by = number; }

static bool progress(void *context, uint64_t done, uint64_t total)
{
	(void)context;
	(void)done;
	(void)total;
	return !interrupted_by;
}

static int read_arguments(const struct neap_arguments *arguments, struct neap_analysis_options *options,
			  size_t *ret_top)
{
	const char *device = neap_argument(arguments, "device"), *top = neap_argument(arguments, "top");
	const char *from = neap_argument(arguments, "from"), *to = neap_argument(arguments, "to");
	struct neap_error err;
	const char *memory = neap_argument(arguments, "memory");
	uint64_t number = 0;

	if (memory && (neap_size_parse(memory, &options->memory_bytes, &err) != NEAP_OK || !options->memory_bytes ||
		       options->memory_bytes > 1ull << 50))
		return neap_misuse(arguments,
				   "--memory: expected a size from 1 B to 1024 TiB such as 24GiB, not '%s'", memory);
	if (device && (neap_u64_parse(device, &number, &err) != NEAP_OK || number > 255))
		return neap_misuse(arguments, "--device: expected a number from 0 to 255, not '%s'", device);
	if (device)
		options->device = (size_t)number;
	if (top && (neap_u64_parse(top, &number, &err) != NEAP_OK || number == 0 || number > 10000))
		return neap_misuse(arguments, "--top: expected a number from 1 to 10000, not '%s'", top);
	if (top)
		*ret_top = (size_t)number;
	if (neap_instant_parse(from, &options->from, &err) != NEAP_OK)
		return neap_misuse(
			arguments,
			"--from: expected a time since the first event such as 250ms, event:N or step:N, not '%s'",
			from);
	if (neap_instant_parse(to, &options->to, &err) != NEAP_OK)
		return neap_misuse(
			arguments,
			"--to: expected a time since the first event such as 250ms, event:N or step:N, not '%s'", to);
	return NEAP_EXIT_OK;
}

/* The text for people, and whether its first part was printed already. */
struct screen {
	const char *path;
	size_t top;
	bool begun;
	int code;
};

static void print_part(struct screen *screen, const struct neap_analysis *analysis, bool first)
{
	struct neap_buffer out = {0};
	struct neap_error err;

	if (first)
		neap_report_analysis_first(&out, analysis, screen->path, screen->top);
	else
		neap_report_analysis_rest(&out, analysis);
	if (neap_buffer_status(&out, &err) != NEAP_OK)
		screen->code = neap_complain("analyze", &err);
	else
		print_safe_lines(stdout, neap_buffer_string(&out));
	neap_buffer_fini(&out);
}

/* On a terminal: prints the first part, which the user reads while neap replays other settings. */
static void print_first(void *context, const struct neap_analysis *analysis)
{
	struct screen *screen = context;
	screen->begun = true;
	print_part(screen, analysis, true);
	fflush(stdout);
}

static int print_people(struct screen *screen, const struct neap_analysis *analysis)
{
	if (!screen->begun)
		print_part(screen, analysis, true);
	if (screen->code == NEAP_EXIT_OK)
		print_part(screen, analysis, false);
	return screen->code;
}

/* Writes the page whole, or not at all. *ret_bytes: its size. 0: it went to standard output. */
static enum neap_status write_page(struct neap_page_file *file, const struct neap_analysis *analysis,
				   const struct neap_trace_page_options *options, uint64_t *ret_bytes,
				   struct neap_error *err)
{
	bool piped = file->direct && !file->opened;
	enum neap_status status = neap_trace_page_write(file->fd, analysis, options, ret_bytes, err);

	if (status && status != NEAP_ECANCELED)
		neap_error_prefix(err, "the page");
	if (!status)
		status = neap_page_file_commit(file, err);
	if (piped)
		*ret_bytes = 0;
	return status;
}

static int explain_failure(const struct neap_arguments *arguments, enum neap_status status,
			   const struct neap_error *err)
{
	if (status == NEAP_ECANCELED && interrupted_by) {
		fputs("neap analyze: stopped\n", stderr);
		return 128 + interrupted_by;
	}
	return status == NEAP_EINVAL ? neap_misuse(arguments, "%s", err->message) : neap_complain("analyze", err);
}

static int run(const struct neap_arguments *arguments)
{
	struct neap_analysis_options options = {.device = SIZE_MAX, .progress = progress};
	struct sigaction action = {.sa_handler = on_signal};
	const char *path = neap_operand(arguments, 0), *html = neap_argument(arguments, "html");
	const char *write = neap_argument(arguments, "write");
	struct neap_trace_page_options page = {.path = path, .top = TOP, .analysis = &options};
	struct neap_page_file file = {0};
	struct neap_analysis analysis = {0};
	struct neap_trace *trace = NULL;
	struct neap_error err = {0};
	uint64_t page_bytes = 0;
	char chosen[NEAP_RUN_FOLDER_PATH] = "";
	struct screen screen = {.path = chosen};

	int code = read_arguments(arguments, &options, &page.top);
	if (code != NEAP_EXIT_OK)
		return code;
	bool piped = html && strcmp(html, "-") == 0;
	if (piped && neap_argument(arguments, "json"))
		return neap_misuse(arguments, "--html - and --json would both go to standard output");
	if (write && !neap_trace_form_known(write))
		return neap_misuse(
			arguments,
			"--write: expected a name that ends in .pickle, .txt, .txt.zst or .record, not '%s'", write);
	if (write && (neap_argument(arguments, "from") || neap_argument(arguments, "to")))
		return neap_misuse(arguments, "--write writes the whole trace: not together with --from or --to");
	enum neap_status status = run_folder_trace("analyze", path, chosen, &err);
	if (!status) {
		page.path = path = chosen;
		status = neap_trace_read(path, &trace, &err);
	}
	if (!status)
		trace->origin = neap_run_folder_origin(path);
	/* From here on a signal must remove the page that was begun, and may end the wait for a pipe. */
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	if (!status && html) {
		status = neap_page_file_begin(&file, html, (const char *[]){path, NULL}, &err);
		if (status == NEAP_ENOENT)
			err.status = NEAP_EEXIST; /* exit 73: the page would replace the input */
	}
	if (!status && write)
		status = neap_trace_write(
			trace, options.device < trace->device_count ? options.device : neap_analysis_device(trace),
			write, &err);
	screen.top = page.top;
	options.context = &screen;
	if (!piped && !neap_argument(arguments, "json") && isatty(STDOUT_FILENO))
		options.answered = print_first;
	if (!status)
		status = neap_analyze(trace, &options, &analysis, &err);
	options.answered = NULL; /* the page analyses other devices, too */
	if (!status && html)
		status = write_page(&file, &analysis, &page, &page_bytes, &err);
	if (status)
		code = explain_failure(arguments, status, &err);
	else if (neap_argument(arguments, "json"))
		code = json_print("analyze", neap_analysis_json(&analysis, path, page.top), JSON_INDENT(2));
	else if (!piped)
		code = print_people(&screen, &analysis);
	if (page_bytes > 0 && code == NEAP_EXIT_OK && !neap_argument(arguments, "json"))
		printf("\nPage: %s, %s\n", NEAP_PRINTABLE(html),
		       neap_size_format(page_bytes, (char[NEAP_UNITS_CAPACITY]){0}));
	neap_page_file_abort(&file);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
	return code;
}
