/* run/explain.c: see explain.h. Any part of the folder may be missing: a run that is still running has no result, a
 * run that was not attached has no recording, and a run without --log has no log. */
#include "run/explain.h"

#include "analyze/oom_text.h"
#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"
#include "report/cells.h"
#include "report/explain.h"
#include "report/recording.h"
#include "run/folder.h"
#include "store/json.h"
#include "store/result.h"

#include <string.h>

#define LOG_LIMIT (64u << 20)

/* The parts that the folder has. */
struct found {
	const char *folder;
	bool has_result, has_recording, has_message;
	struct neap_result result;
	struct neap_run_recordings recordings;
	bool failed_apart;            /* memory ran out in a recording other than recordings.path */
	struct neap_oom_text message; /* the last OOM message in stderr.log */
};

static void find_message(struct found *found)
{
	char path[NEAP_RUN_FOLDER_PATH];
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

/* Errors: NEAP_ENOENT if the folder has nothing to explain; those of reading a result. */
static enum neap_status read_folder(const char *folder, struct found *found, struct neap_error *err)
{
	char path[NEAP_RUN_FOLDER_PATH];
	struct neap_error none = {0};
	*found = (struct found){.folder = folder};
	enum neap_status status = neap_path_join(path, sizeof path, folder, "result.json");
	if (!status)
		status = neap_result_read(path, &found->result, err);
	found->has_result = status == NEAP_OK;
	if (status && status != NEAP_ENOENT)
		return status;
	enum neap_status recorded = neap_run_folder_recordings(folder, &found->recordings, &none);
	found->has_recording = recorded == NEAP_OK;
	found->failed_apart =
		found->recordings.failed[0] && strcmp(found->recordings.failed, found->recordings.path) != 0;
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
	if (result->ooms || result->retries) {
		snprintf(why, sizeof why, "ran out %u time%s, %u restart%s, %u rung%s%s%s", result->ooms,
			 result->ooms == 1 ? "" : "s", result->retries, result->retries == 1 ? "" : "s",
			 result->rungs, result->rungs == 1 ? "" : "s", result->rung[0] ? ": " : "", result->rung);
		put_line(out, "memory", why);
	}
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

/* Explains the recording of the last start. If memory ran out in another recording, explains that one, too. */
static enum neap_status put_recordings(struct neap_buffer *out, const struct found *found, uint64_t number,
				       struct neap_error *err)
{
	const struct neap_run_recordings *recordings = &found->recordings;
	const struct neap_report_recording last = {.path = recordings->path,
						   .number = found->failed_apart ? 0 : number};
	const struct neap_report_recording failed = {.path = recordings->failed, .number = number};
	enum neap_status status = neap_report_recording_text(out, &last, false, err);
	if (!status && found->failed_apart) {
		neap_buffer_text(out, "\n  Memory ran out in another recording of this run:\n");
		status = neap_report_recording_text(out, &failed, false, err);
	}
	if (!status && recordings->others)
		neap_buffer_format(out, "\n  %zu more recording%s in the folder: --record FILE explains %s\n",
				   recordings->others, recordings->others == 1 ? "" : "s",
				   recordings->others == 1 ? "it" : "one of them");
	return status;
}

static enum neap_status put_all(struct neap_buffer *out, const struct found *found, uint64_t number,
				struct neap_error *err)
{
	const char *card = found->result.oom_card;
	enum neap_status status = NEAP_OK;
	put_result(out, found);
	if (found->has_recording)
		status = put_recordings(out, found, number, err);
	if (!found->recordings.failed[0] && found->has_result && card[0]) {
		neap_buffer_format(out, "\n%s", card);
	} else if (!found->has_recording && found->has_message) {
		neap_buffer_text(out, "\n");
		neap_report_oom_text(out, &found->message);
	} else if (!found->has_recording) {
		neap_buffer_text(
			out, "\n  None of its processes was attached, so nothing about its memory was recorded.\n");
	}
	return status == NEAP_OK ? neap_buffer_status(out, err) : status;
}

static enum neap_status make_json(const struct found *found, uint64_t number, json_t **ret_root,
				  struct neap_error *err)
{
	const struct neap_report_recording last = {.path = found->recordings.path,
						   .number = found->failed_apart ? 0 : number};
	const struct neap_report_recording failed = {.path = found->recordings.failed, .number = number};
	const struct neap_result *result = &found->result;
	json_t *root = json_object(), *recording = json_null(), *failed_recording = json_null();
	enum neap_status status = NEAP_OK;
	if (found->has_recording)
		status = neap_report_recording_json(&last, &recording, err);
	if (!status && found->failed_apart)
		status = neap_report_recording_json(&failed, &failed_recording, err);
	if (status) {
		json_decref(recording);
		json_decref(root);
		return status;
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
	neap_json_set(root, "ooms", found->has_result ? json_integer(result->ooms) : json_null());
	neap_json_set(root, "restarts", found->has_result ? json_integer(result->retries) : json_null());
	neap_json_set(root, "rung", found->has_result ? neap_json_text(result->rung) : json_null());
	neap_json_set(root, "recording", recording);
	neap_json_set(root, "failed_recording", failed_recording);
	*ret_root = root;
	return NEAP_OK;
}

enum neap_status neap_run_explain_text(struct neap_buffer *out, const char *folder, uint64_t number,
				       struct neap_error *err)
{
	struct found found;
	enum neap_status status = read_folder(folder, &found, err);
	if (!status)
		status = put_all(out, &found, number, err);
	neap_result_fini(&found.result);
	return status;
}

enum neap_status neap_run_explain_json(const char *folder, uint64_t number, json_t **ret_root, struct neap_error *err)
{
	struct found found;
	enum neap_status status = read_folder(folder, &found, err);
	if (!status)
		status = make_json(&found, number, ret_root, err);
	neap_result_fini(&found.result);
	return status;
}
