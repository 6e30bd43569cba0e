/* cli/explain_folder.c: see explain_folder.h. A folder may have any of its parts and lack the others: a run that
 * still runs has no result, a run that was not attached no recording, a run without --log no log. */
#include "cli/explain_folder.h"

#include "analyze/oom_text.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/explain_record.h"
#include "cli/json_print.h"
#include "cli/look.h"
#include "cli/print.h"
#include "cli/run_folder.h"
#include "report/cells.h"
#include "report/explain.h"
#include "store/result.h"

#include <string.h>

#define LOG_LIMIT (64u << 20)

/* What there is. */
struct found {
	const char *folder;
	bool has_result, has_recording, has_message;
	struct neap_result result;
	char recording[RUN_FOLDER_PATH];
	size_t others;
	struct neap_oom_text message; /* the last in stderr.log */
};

static void find_message(struct found *found)
{
	char path[RUN_FOLDER_PATH];
	struct neap_buffer log = {0};
	struct neap_oom_text next;
	size_t position = 0;
	if (neap_path_join(path, sizeof path, found->folder, "stderr.log") != NEAP_OK ||
	    neap_file_read(path, LOG_LIMIT, &log, NULL) != NEAP_OK)
		return;
	while (neap_oom_text_next(log.data, log.length, &position, &next, NULL) == NEAP_OK) {
		found->message = next;
		found->has_message = true;
	}
	neap_buffer_fini(&log);
}

/* Errors: NEAP_ENOENT where nothing is there that can be explained; those of reading a result. */
static enum neap_status look_into(const char *folder, struct found *found, struct neap_error *err)
{
	char path[RUN_FOLDER_PATH];
	struct neap_error none = {0};
	*found = (struct found){.folder = folder};
	enum neap_status status = neap_path_join(path, sizeof path, folder, "result.json");
	if (!status)
		status = neap_result_read(path, &found->result, err);
	found->has_result = status == NEAP_OK;
	if (status && status != NEAP_ENOENT)
		return status;
	enum neap_status recorded = run_folder_recording(folder, found->recording, &found->others, &none);
	found->has_recording = recorded == NEAP_OK;
	if (!found->has_recording)
		find_message(found);
	if (found->has_result || found->has_recording || found->has_message)
		return NEAP_OK;
	*err = none;
	return recorded;
}

static void put_line(struct neap_buffer *out, const char *label, const char *text)
{
	char clean[1024];
	if (!text[0])
		return;
	neap_printable(clean, sizeof clean, text);
	neap_buffer_format(out, "  %-10s %s\n", label, clean);
}

static void put_result(struct neap_buffer *out, const struct found *found)
{
	const struct neap_result *result = &found->result;
	char name[256], why[512];
	if (!found->has_result) {
		neap_printable(why, sizeof why, found->folder);
		neap_buffer_format(
			out,
			"%s: no result: the run continues, or its supervisor was ended ('neap series --resume' "
			"and 'neap history' make what can be made)\n",
			why);
		return;
	}
	neap_printable(name, sizeof name, result->name);
	neap_printable(why, sizeof why, result->evidence);
	neap_buffer_format(out, "%s: %s%s%s\n", name, neap_outcome_name(result->outcome), why[0] ? ": " : "", why);
	put_line(out, "command", result->command);
	put_line(out, "folder", found->folder);
	if (result->last_lines[0]) {
		neap_buffer_format(out, "\n  The last lines of its %s\n", result->last_lines_of);
		for (const char *line = result->last_lines; *line;) {
			int length = (int)strcspn(line, "\n");
			neap_buffer_format(out, "    | %.*s\n", length, line);
			line += length + (line[length] == '\n');
		}
	} else if (result->outcome != NEAP_OUTCOME_OK) {
		neap_buffer_text(out, result->last_lines_of[0]
					      ? "\n  It wrote nothing to its stderr.\n"
					      : "\n  Its stderr was not read: it was a terminal's, or "
						"closed. --log keeps it.\n");
	}
}

static enum neap_status put_all(struct neap_buffer *out, const struct found *found, uint64_t number,
				struct neap_error *err)
{
	const struct explain_record from = {.path = found->recording, .number = number};
	enum neap_status status = NEAP_OK;
	put_result(out, found);
	if (found->has_recording) {
		status = explain_record_text(out, &from, false, err);
		if (!status && found->others)
			neap_buffer_format(out, "\n  %zu more recording%s in the folder: --record FILE explains %s\n",
					   found->others, found->others == 1 ? "" : "s",
					   found->others == 1 ? "it" : "one of them");
	} else if (found->has_result && found->result.oom_card[0]) {
		neap_buffer_format(out, "\n%s", found->result.oom_card);
	} else if (found->has_message) {
		neap_buffer_text(out, "\n");
		neap_report_oom_text(out, &found->message);
	} else {
		neap_buffer_text(
			out, "\n  None of its processes was attached, so nothing about its memory was recorded.\n");
	}
	return status == NEAP_OK ? neap_buffer_status(out, err) : status;
}

static int print_json(const struct found *found, uint64_t number)
{
	const struct explain_record from = {.path = found->recording, .number = number};
	const struct neap_result *result = &found->result;
	struct neap_error err = {0};
	json_t *root = json_object(), *recording = json_null();
	if (found->has_recording && explain_record_json(&from, &recording, &err) != NEAP_OK) {
		json_decref(root);
		return neap_complain("explain", &err);
	}
	const struct {
		const char *key, *text;
	} texts[] = {
		{"folder", found->folder},
		{"name", result->name},
		{"command", result->command},
		{"outcome", found->has_result ? neap_outcome_name(result->outcome) : NULL},
		{"evidence", result->evidence},
		{"error_line", result->error_line},
		{"last_lines", result->last_lines},
		{"last_lines_of", result->last_lines_of},
		{"oom_card", result->oom_card},
	};
	neap_json_set(root, "schema", json_integer(1));
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		neap_json_set(root, texts[i].key, texts[i].text ? neap_json_text(texts[i].text) : json_null());
	neap_json_set(root, "exit_status", found->has_result ? json_integer(result->exit_status) : json_null());
	neap_json_set(root, "recording", recording);
	return json_print("explain", root, JSON_INDENT(2));
}

int explain_folder(const char *folder, uint64_t number, bool json)
{
	struct found found;
	struct neap_buffer out = {0};
	struct neap_error err = {0};
	enum neap_status status = look_into(folder, &found, &err);
	int code = NEAP_EXIT_OK;
	if (!status && json) {
		code = print_json(&found, number);
	} else if (!status) {
		status = put_all(&out, &found, number, &err);
		if (!status)
			print_safe_lines(stdout, neap_buffer_string(&out));
	}
	neap_buffer_fini(&out);
	neap_result_fini(&found.result);
	return status == NEAP_OK ? code : neap_complain("explain", &err);
}
