/* estimate/view_facts.c: writes the facts of a view to RUN/view.json, reads them, and describes them in a sentence.
 * The program may write in RUN, so the size that is read is bounded, and the file is written after the program has
 * ended. */
#include "estimate/view.h"

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "store/json_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME       "view.json"
#define FILE_BYTES (64u << 10)
#define LOG_BYTES  (64u << 20)

static const char *const kinds[] = {[NEAP_VIEW_UNKNOWN] = "unknown",
				    [NEAP_VIEW_IN_PLACE] = "in place",
				    [NEAP_VIEW_LANDLOCK] = "landlock",
				    [NEAP_VIEW_MOUNTS] = "mounts"};

/* --- the file --- */

enum neap_status neap_view_facts_write(const char *folder, const struct neap_view_facts *facts,
				       struct neap_error *err)
{
	char path[4096], *text;
	uint64_t before = neap_json_failures();
	json_t *list = json_array();
	for (size_t i = 0; i < NEAP_VIEW_NAMED && *facts->read_only[i]; i++)
		neap_json_add(list, neap_json_text(facts->read_only[i]));
	json_t *object =
		JSON(TEXT("kind", kinds[facts->kind]), BOOL("no_network", facts->no_network),
		     BOOL("full", facts->full), NUMBER("limit", facts->limit_bytes), NUMBER("files", facts->files),
		     NUMBER("bytes", facts->bytes), NUMBER("deleted", facts->deleted), VALUE("read_only", list),
		     NUMBER("read_only_count", facts->read_only_count), BOOL("kept", facts->kept),
		     TEXT("trouble", facts->trouble));
	text = neap_json_dump(object, JSON_INDENT(2));
	json_decref(object);
	enum neap_status status = !text || neap_json_failures() != before
					  ? neap_fail(err, NEAP_ENOMEM, "out of memory")
					  : neap_path_join(path, sizeof path, folder, NAME);
	if (!status)
		status = neap_file_write(path, text, strlen(text), err);
	free(text);
	return status;
}

static void take(const json_t *object, struct neap_view_facts *facts)
{
	const char *kind = neap_json_get_text(object, "kind");
	size_t index;
	json_t *item;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (strcmp(kind, kinds[i]) == 0)
			facts->kind = (enum neap_view_kind)i;
	facts->no_network = json_is_true(json_object_get(object, "no_network"));
	facts->full = json_is_true(json_object_get(object, "full"));
	facts->kept = json_is_true(json_object_get(object, "kept"));
	neap_json_get_number(object, "limit", &facts->limit_bytes);
	neap_json_get_number(object, "files", &facts->files);
	neap_json_get_number(object, "bytes", &facts->bytes);
	neap_json_get_number(object, "deleted", &facts->deleted);
	neap_json_get_number(object, "read_only_count", &facts->read_only_count);
	json_array_foreach(json_object_get(object, "read_only"), index, item)
	{
		if (index < NEAP_VIEW_NAMED && json_is_string(item))
			snprintf(facts->read_only[index], sizeof facts->read_only[0], "%s", json_string_value(item));
	}
	snprintf(facts->trouble, sizeof facts->trouble, "%s", neap_json_get_text(object, "trouble"));
}

/* --- a write that was refused --- */

/* The words of the system when each kind of isolation refuses a write, as Python, C and the shell print them. */
static const struct refusal {
	enum neap_view_kind kind;
	const char *reason;
} refusals[] = {
	{NEAP_VIEW_LANDLOCK, "Permission denied"},
	{NEAP_VIEW_LANDLOCK, "Operation not permitted"},
	{NEAP_VIEW_MOUNTS, "Read-only file system"},
	{NEAP_VIEW_MOUNTS, "Value too large for defined data type"}, /* another group's file, in a user namespace */
};

/* Takes the file's name from a refusal. Python writes "[Errno 13] Permission denied: '/data/x.pt'", a shell
 * "bash: line 1: /data/x.pt: Permission denied". False: the text names no file. */
static bool take_refusal(const char *text, const char *at, const char *reason, struct neap_view_facts *facts)
{
	const char *name = at + strlen(reason), *end;
	if (strncmp(name, ": '", 3) == 0 || strncmp(name, ": \"", 3) == 0) {
		end = name + 3 + strcspn(name + 3, (char[]){name[2], '\n', '\0'});
		name += 3;
	} else if (at - text > 2 && strncmp(at - 2, ": ", 2) == 0) {
		end = name = at - 2;
		while (name > text && name[-1] != '\n' && (name[-1] != ' ' || name - text < 2 || name[-2] != ':'))
			name--;
		if (end - name > 2 && end[-1] == '\'') /* "touch: cannot touch 'x'" */
			for (name = --end; name[-1] != '\'' && name[-1] != '\n' && name > text + 1; name--)
				;
		else if (strncmp(name, "cannot create ", 14) == 0) /* dash */
			name += 14;
	} else {
		return false;
	}
	snprintf(facts->reason, sizeof facts->reason, "%s", reason);
	snprintf(facts->refused, sizeof facts->refused, "%.*s", (int)(end - name), name);
	return true;
}

static void find_refusal(const char *folder, struct neap_view_facts *facts)
{
	struct neap_buffer text = {0};
	char path[4096];
	if (neap_path_join(path, sizeof path, folder, "stderr.log") == NEAP_OK)
		(void)neap_file_read(path, LOG_BYTES, &text, NULL);
	const char *whole = neap_buffer_string(&text), *last = whole;
	for (size_t i = 0; text.length && i < sizeof refusals / sizeof *refusals; i++)
		for (const char *at = whole; facts->kind == refusals[i].kind && (at = strstr(at, refusals[i].reason));
		     at++)
			if (at >= last && take_refusal(whole, at, refusals[i].reason, facts))
				last = at;
	facts->full |= facts->kind == NEAP_VIEW_MOUNTS && strstr(whole, "No space left on device");
	neap_buffer_fini(&text);
}

void neap_view_facts_read(const char *folder, struct neap_view_facts *ret_facts)
{
	struct neap_buffer text = {0};
	char path[4096];
	json_t *object = NULL;
	*ret_facts = (struct neap_view_facts){0};
	if (neap_path_join(path, sizeof path, folder, NAME) == NEAP_OK &&
	    neap_file_read(path, FILE_BYTES, &text, NULL) == NEAP_OK &&
	    neap_json_parse(path, neap_buffer_string(&text), text.length, &object, NULL) == NEAP_OK)
		take(object, ret_facts);
	json_decref(object);
	neap_buffer_fini(&text);
	find_refusal(folder, ret_facts);
}

/* --- the sentence --- */

static void put_files(const struct neap_view_facts *facts, struct neap_buffer *out)
{
	char size[NEAP_UNITS_CAPACITY];
	static const char *const others[] = {
		[NEAP_VIEW_UNKNOWN] = "what the program wrote is not known: the process around it was killed",
		[NEAP_VIEW_IN_PLACE] = "the program wrote them for real, and reached its trackers (--in-place)",
		[NEAP_VIEW_LANDLOCK] = "this system allows no view of them: the program could write to its run's "
				       "folder and /dev/shm alone",
	};
	const char *end = facts->kept ? "copied to the folder of --keep-writes, then dropped" : "dropped";
	if (facts->kind != NEAP_VIEW_MOUNTS)
		neap_buffer_text(out, others[facts->kind]);
	else if (facts->files)
		neap_buffer_format(
			out, "the program wrote %" PRIu64 " file%s (%s) to a view of its own, which was %s",
			facts->files, facts->files == 1 ? "" : "s", neap_size_format(facts->bytes, size), end);
	else
		neap_buffer_text(out, "the program wrote no files");
	if (facts->deleted)
		neap_buffer_format(out, ", and deleted %" PRIu64 " there", facts->deleted);
	if (facts->full)
		neap_buffer_format(out, ", and reached the bound of %s", neap_size_format(facts->limit_bytes, size));
}

void neap_view_facts_text(const struct neap_view_facts *facts, char *ret_text, size_t capacity)
{
	struct neap_buffer out = {0};
	neap_buffer_text(&out, "files: ");
	put_files(facts, &out);
	for (size_t i = 0; i < NEAP_VIEW_NAMED && *facts->read_only[i]; i++)
		neap_buffer_format(&out, "%s%s", i ? ", " : "; read-only: ", facts->read_only[i]);
	if (facts->read_only_count > NEAP_VIEW_NAMED)
		neap_buffer_format(&out, " and %" PRIu64 " others", facts->read_only_count - NEAP_VIEW_NAMED);
	if (*facts->trouble)
		neap_buffer_format(&out, "; %s", facts->trouble);
	if (*facts->refused)
		neap_buffer_format(&out, "; refused: %s (%s)", facts->refused, facts->reason);
	if (facts->kind == NEAP_VIEW_LANDLOCK || facts->kind == NEAP_VIEW_MOUNTS)
		neap_buffer_text(
			&out, facts->no_network
				      ? "; no network"
				      : "; trackers were set offline, the network and the Hugging Face Hub are open");
	snprintf(ret_text, capacity, "%s", neap_buffer_status(&out, NULL) ? "" : neap_buffer_string(&out));
	neap_buffer_fini(&out);
}
