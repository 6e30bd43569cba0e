/* cli/cmd_explain.c: `neap explain`: a topic with this machine's figures, a recording's, or a log's error message. */
#include "analyze/oom_text.h"
#include "base/error.h"
#include "base/file.h"
#include "base/paths.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/print.h"
#include "cli/run_folder.h"
#include "machine/topics.h"
#include "report/explain.h"
#include "report/recording.h"
#include "report/wrap.h"
#include "run/explain.h"
#include "store/json_rows.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCHEMA    1
#define LOG_LIMIT (256ull << 20)
#define MESSAGES  16 /* to explain; the others are only counted: ranks and retries repeat one another */

static int run(const struct neap_arguments *arguments);

const struct neap_command neap_command_explain = {
	.name = "explain",
	.usage = "[TOPIC] [--record FILE | --pid P] [--number N] [--json] | RUNFOLDER | LOG [--json]",
	.summary = "the common memory errors: causes and fixes, with figures",
	.details = neap_help_explain,
	.options =
		(const struct neap_option[]){
			{"from", "LOG", "a log or a pasted message; '-' reads standard input"},
			{"record", "FILE",
			 "a run's recording (record.PID in its folder, or the folder): its leak verdict, its last "
			 "OOM's card"},
			{"number", "N", "the card of its Nth failure; default: the last"},
			{"pid", "P", "the recording of this attached process, while it runs"},
			{"json", NULL, "the figures of a folder, --from, --record or --pid, as JSON"},
			{NULL, NULL, NULL},
		},
	.operands_max = 1,
	.run = run,
};

struct explain_topic {
	const char *name;
	/* One line per paragraph (tools/help_text.py): first a summary, then lists, each below a line with its title
	 * after "# ". */
	const char *text;
};

/* The texts of cli/help/explain/NAME.txt, embedded by the build. */
extern const char neap_topic_oom[], neap_topic_fragmentation[], neap_topic_leak[], neap_topic_no_process[],
	neap_topic_not_returned[], neap_topic_limit[], neap_topic_restart[];

static const struct explain_topic topics[] = {
	{"oom", neap_topic_oom},
	{"fragmentation", neap_topic_fragmentation},
	{"leak", neap_topic_leak},
	{"no-process", neap_topic_no_process},
	{"not-returned", neap_topic_not_returned},
	{"limit", neap_topic_limit},
	{"restart", neap_topic_restart},
	{NULL, NULL},
};

/* --from */

static enum neap_status read_log(const char *path, struct neap_buffer *log, struct neap_error *err)
{
	char piece[65536];
	if (strcmp(path, "-") != 0)
		return neap_file_read(path, LOG_LIMIT, log, err);
	for (;;) {
		ssize_t n = read(STDIN_FILENO, piece, sizeof piece);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return neap_fail_errno(err, errno, "reading standard input");
		if (n == 0)
			return neap_buffer_status(log, err);
		if (log->length + (size_t)n > LOG_LIMIT)
			return neap_fail(err, NEAP_EINVAL,
					 "standard input is longer than 256 MiB: give its last part (tail)");
		neap_buffer_append(log, piece, (size_t)n);
	}
}

static int print_messages(const struct neap_oom_text *messages, size_t count, size_t more, bool json)
{
	struct neap_buffer out = {0};
	struct neap_error err;

	if (json) {
		json_t *array = json_array();
		for (size_t i = 0; i < count; i++)
			neap_json_add(array, neap_report_oom_text_json(&messages[i]));
		json_t *root = JSON(INTEGER("schema", SCHEMA), VALUE("messages", array),
				    NUMBER("repeated_or_left_out", more));
		return json_print("explain", root, JSON_INDENT(2));
	}
	for (size_t i = 0; i < count; i++) {
		neap_buffer_text(&out, i > 0 ? "\n" : "");
		neap_report_oom_text(&out, &messages[i]);
	}
	if (more > 0)
		neap_buffer_format(
			&out, "\n%zu more message%s in the log: the same again, or past the %d that are explained\n",
			more, more == 1 ? "" : "s", MESSAGES);
	int code = neap_buffer_status(&out, &err) == NEAP_OK ? NEAP_EXIT_OK : neap_complain("explain", &err);
	if (code == NEAP_EXIT_OK)
		print_safe_lines(stdout, neap_buffer_string(&out));
	neap_buffer_fini(&out);
	return code;
}

static int list_topics(void)
{
	puts("neap explain TOPIC, one of:");
	for (const struct explain_topic *topic = topics; topic->name; topic++)
		printf("  %-14s %.*s\n", topic->name, (int)strcspn(topic->text, "\n"), topic->text);
	puts("\nneap explain RUNFOLDER: how that run ended, its last lines, its memory");
	puts("neap explain LOG: the arithmetic of the out-of-memory message in a log (or on standard input)");
	return NEAP_EXIT_OK;
}

/* `path` NULL: explains standard input. If that is empty, lists the topics. */
static int explain_log(const char *path, bool json)
{
	struct neap_oom_text messages[MESSAGES];
	struct neap_buffer log = {0};
	struct neap_error err = {0};
	size_t count = 0, more = 0;

	enum neap_status status = read_log(path ? path : "-", &log, &err);
	if (!status && !path && log.length == 0)
		return list_topics();
	if (!status)
		count = neap_oom_log_messages(log.data, log.length, messages, MESSAGES, &more);
	neap_buffer_fini(&log);
	if (!status && count == 0)
		status = neap_fail(&err, NEAP_EPARSE,
				   "no out-of-memory message in %s: looked for 'CUDA out of memory.' (and HIP, XPU), "
				   "'CUDA error: out of memory' and the like, vLLM's and Slurm's; a traceback's last "
				   "lines have it",
				   !path || strcmp(path, "-") == 0 ? "standard input" : path);
	return status == NEAP_OK ? print_messages(messages, count, more, json) : neap_complain("explain", &err);
}

/* A topic */

/* Writes the summary, then each list with its items numbered. */
static void put_topic(struct neap_buffer *out, const struct explain_topic *topic)
{
	const char *text = topic->text;
	size_t length = strcspn(text, "\n");
	unsigned item = 0;

	neap_buffer_format(out, "%s: %.*s\n", topic->name, (int)length, text);
	for (text += length; *text; text += length) {
		char first[16], line[1024];
		length = *text == '\n' ? 1 : strcspn(text, "\n");
		if (*text == '\n')
			continue;
		snprintf(line, sizeof line, "%.*s", (int)length, text);
		if (strncmp(line, "# ", 2) == 0) {
			neap_buffer_format(out, "\n  %s\n", line + 2);
			item = 0;
			continue;
		}
		snprintf(first, sizeof first, "    %u. ", ++item);
		neap_report_wrap(out, first, line);
	}
}

/* Writes this machine's figures. Without a driver there are none, and the text says why. */
static void put_here(struct neap_buffer *out, const struct explain_topic *topic)
{
	struct neap_monitor *monitor = NULL;
	struct neap_sample sample = {0};
	struct neap_error err = {0};
	char folder[4096];

	neap_buffer_text(out, "\n  Here and now\n");
	enum neap_status status = neap_monitor_open(NEAP_BACKEND_DEFAULT, &monitor, &err);
	if (!status)
		status = neap_path_runtime(folder, sizeof folder, &err);
	if (!status)
		status = neap_sample_take(monitor, folder, &sample, &err);
	if (!status)
		neap_topic_figures(out, topic->name, &sample);
	else
		neap_report_wrap(out, "    no figures: ", err.message);
	neap_sample_fini(&sample);
	neap_monitor_close(monitor);
}

static const struct explain_topic *find_topic(const char *name)
{
	for (const struct explain_topic *topic = topics; topic->name; topic++)
		if (strcmp(topic->name, name) == 0)
			return topic;
	return NULL;
}

static int explain_topic(const struct explain_topic *topic, const struct neap_report_recording *from)
{
	struct neap_buffer out = {0};
	struct neap_error err = {0};
	enum neap_status status = NEAP_OK;

	put_topic(&out, topic);
	if (from->path)
		status = neap_report_recording_text(&out, from, strcmp(topic->name, "leak") == 0, &err);
	else
		put_here(&out, topic);
	if (!status)
		status = neap_buffer_status(&out, &err);
	if (!status)
		print_safe_lines(stdout, neap_buffer_string(&out));
	neap_buffer_fini(&out);
	return status == NEAP_OK ? NEAP_EXIT_OK : neap_complain("explain", &err);
}

static int explain_json(const struct neap_report_recording *from)
{
	struct neap_error err = {0};
	json_t *root = NULL;

	enum neap_status status = neap_report_recording_json(from, &root, &err);
	return status == NEAP_OK ? json_print("explain", root, JSON_INDENT(2)) : neap_complain("explain", &err);
}

/* A pipe or a file, not a terminal and not /dev/null, as cron gives. */
static bool is_piped(int fd)
{
	struct stat info;
	return fstat(fd, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISREG(info.st_mode));
}

static int explain_folder(const char *folder, uint64_t number, bool json)
{
	struct neap_buffer out = {0};
	struct neap_error err = {0};
	json_t *root = NULL;
	enum neap_status status = json ? neap_run_explain_json(folder, number, &root, &err)
				       : neap_run_explain_text(&out, folder, number, &err);
	if (!status && !json)
		print_safe_lines(stdout, neap_buffer_string(&out));
	neap_buffer_fini(&out);
	if (status)
		return neap_complain("explain", &err);
	return json ? json_print("explain", root, JSON_INDENT(2)) : NEAP_EXIT_OK;
}

/* Fills *ret_from for --pid. Returns an exit code; stderr has the reason for each other than NEAP_EXIT_OK. */
static int read_pid(const struct neap_arguments *arguments, const char *pid, struct neap_report_recording *ret_from)
{
	struct neap_error err = {0};
	char folder[4096];
	uint64_t number = 0;

	if (neap_u64_parse(pid, &number, NULL) != NEAP_OK || number == 0 || number > INT32_MAX)
		return neap_misuse(arguments, "--pid: expected a process ID, not '%s'", pid);
	enum neap_status status = neap_path_runtime(folder, sizeof folder, &err);
	if (!status)
		status = neap_page_read(folder, (pid_t)number, &ret_from->page, &err);
	if (status == NEAP_ENOENT)
		status = neap_fail(&err, NEAP_ENOENT,
				   "process %" PRIu64 " is not attached: what it allocates is not recorded. Start it "
				   "with 'neap run -- COMMAND'",
				   number);
	if (!status && !ret_from->page.record_path[0])
		status = neap_fail(&err, NEAP_ENOENT, "process %" PRIu64 " (%s) has no recording%s%s", number,
				   ret_from->page.name, ret_from->page.note[0] ? ": " : "", ret_from->page.note);
	if (status)
		return neap_complain("explain", &err);
	ret_from->live = true;
	ret_from->path = ret_from->page.record_path;
	return NEAP_EXIT_OK;
}

static int run(const struct neap_arguments *arguments)
{
	const char *log = neap_argument(arguments, "from"), *pid = neap_argument(arguments, "pid"),
		   *number = neap_argument(arguments, "number");
	struct neap_report_recording from = {.path = neap_argument(arguments, "record")};
	const char *name = neap_operand_count(arguments) > 0 ? neap_operand(arguments, 0) : NULL;
	bool json = neap_argument(arguments, "json");

	if (number && (neap_u64_parse(number, &from.number, NULL) != NEAP_OK || from.number == 0))
		return neap_misuse(arguments,
				   "--number: expected the number of a recording's failure, from 1, not '%s'",
				   number);
	/* `neap explain runs/plain-1` */
	if (!log && !from.path && !pid && name && !find_topic(name) && neap_run_folder_is(name))
		return explain_folder(name, from.number, json);
	/* `neap explain train.log`, and `cat train.log | neap explain` */
	if (!log && !from.path && !pid && !number && name && !find_topic(name) && access(name, R_OK) == 0)
		return explain_log(name, json);
	if (!log && !from.path && !pid && !number && !name && is_piped(STDIN_FILENO))
		return explain_log(NULL, json);
	if (number && (!from.path && !pid))
		return neap_misuse(arguments, "--number is of a recording's failures: with --record or --pid");
	if (log && (name || from.path || pid))
		return neap_misuse(arguments, "--from explains a log alone: without a topic, --record and --pid");
	if (from.path && pid)
		return neap_misuse(arguments, "--record and --pid are two recordings: give one");
	if (json && !log && !from.path && !pid)
		return neap_misuse(arguments, "--json belongs to --from, --record or --pid");
	if (json && name)
		return neap_misuse(arguments, "--json has figures, not a topic's words: leave '%s' out", name);
	struct neap_run_recordings found = {0};
	struct neap_error err;
	if (from.path && neap_run_folder_is(from.path)) {
		if (neap_run_folder_recordings(from.path, &found, &err))
			return neap_complain("explain", &err);
		from.path = found.failed[0] ? found.failed : found.path;
	}
	if (log)
		return explain_log(log, json);
	if (pid) {
		int code = read_pid(arguments, pid, &from);
		if (code != NEAP_EXIT_OK)
			return code;
	}
	if (json)
		return explain_json(&from);
	if (!name && !from.path)
		return list_topics();
	const struct explain_topic *topic = find_topic(name ? name : "oom");
	if (!topic)
		return neap_misuse(arguments, "no topic '%s': 'neap explain' lists them", name);
	return explain_topic(topic, &from);
}
