/* queue/added_files.c: see added_files.h. */
#include "queue/added_files.h"

#include "base/buffer.h"
#include "base/error.h"
#include "base/file.h"
#include "base/paths.h"
#include "base/units.h"
#include "run/supervise.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define QUEUED_BYTES (8u << 20)

extern char **environ;

/* Whether a variable names a run or a lease that this process is inside of: these are not passed on. */
static bool is_own(const char *entry)
{
	static const char *const names[] = {
		"NEAP_LEASE=", "NEAP_RUN_DIR=", "NEAP_RUN_ID=", "NEAP_QUEUE=", "NEAP_ATTACH=1"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strncmp(entry, names[i], strlen(names[i])))
			return true;
	return false;
}

static void add_text(struct neap_buffer *text, const char *item) { neap_buffer_append(text, item, strlen(item) + 1); }

/* Writes RUN/queued, whole or not at all. */
static enum neap_status write_file(const char *folder, const struct neap_buffer *text, struct neap_error *err)
{
	char path[4096];
	struct neap_file file;
	enum neap_status status = neap_path_join(path, sizeof path, folder, "queued");
	if (!status)
		status = neap_file_begin(&file, path, 0600, err);
	if (status)
		return status;
	status = neap_file_append(&file, text->data, text->length, err);
	if (!status)
		status = neap_file_commit(&file, err);
	neap_file_abort(&file);
	return status;
}

enum neap_status neap_added_write(const struct neap_queue *queue, const char *folder, const struct neap_added *added,
				  struct neap_error *err)
{
	struct neap_buffer text = {0};
	size_t words = 0;
	while (added->command[words])
		words++;
	neap_buffer_format(&text, "%zu", added->options->count + 1 + words);
	add_text(&text, "");
	for (size_t i = 0; i < added->options->count; i++)
		add_text(&text, added->options->items[i]);
	add_text(&text, "--");
	for (size_t i = 0; i < words; i++)
		add_text(&text, added->command[i]);
	neap_buffer_format(&text, "NEAP_QUEUE=%s", queue->folder);
	add_text(&text, "");
	for (size_t i = 0; environ[i]; i++)
		if (!is_own(environ[i]))
			add_text(&text, environ[i]);
	enum neap_status status = neap_buffer_status(&text, err);
	if (!status)
		status = write_file(folder, &text, err);
	neap_buffer_fini(&text);
	return status;
}

enum neap_status neap_added_make_folder(struct neap_ticket *ticket, struct neap_error *err)
{
	char state[4096], path[4096];
	neap_run_id_make(ticket->run_id);
	enum neap_status status = neap_path_state(state, sizeof state, err);
	if (!status && snprintf(path, sizeof path, "%s/runs/%s", state, ticket->run_id) >= (int)sizeof ticket->folder)
		status = neap_fail(err, NEAP_EINVAL, "the path of the run's folder is too long: %.100s", state);
	if (status)
		return status;
	strcpy(ticket->folder, path);
	return neap_make_folder(path, 0755, err);
}

void neap_added_forget(const char *folder)
{
	char path[4096];
	if (!neap_path_join(path, sizeof path, folder, "queued"))
		unlink(path);
}

void neap_added_remove_folder(const char *folder)
{
	neap_added_forget(folder);
	rmdir(folder);
}

enum neap_status neap_added_copy(const char *from, const char *to, struct neap_error *err)
{
	char path[4096];
	struct neap_buffer text = {0};
	enum neap_status status = neap_path_join(path, sizeof path, from, "queued");
	if (!status)
		status = neap_file_read(path, QUEUED_BYTES, &text, err);
	if (!status)
		status = write_file(to, &text, err);
	neap_buffer_fini(&text);
	return status;
}

enum neap_status neap_added_read(const char *folder, struct neap_argv *argv, struct neap_argv *environment,
				 struct neap_error *err)
{
	char path[4096];
	struct neap_buffer text = {0};
	uint64_t words = 0;
	enum neap_status status = neap_path_join(path, sizeof path, folder, "queued");
	if (!status)
		status = neap_file_read(path, QUEUED_BYTES, &text, err);
	const char *at = neap_buffer_string(&text), *end = at + text.length;
	if (!status)
		status = neap_u64_parse(at, &words, err);
	for (at += strlen(at) + 1; !status && at < end; at += strlen(at) + 1) {
		if (neap_argv_add(words ? argv : environment, at))
			status = neap_fail(err, NEAP_ENOMEM, "out of host memory");
		words -= words > 0;
	}
	if (!status && !environment->count)
		status = neap_fail(err, NEAP_EPARSE, "%s is not whole", path);
	neap_buffer_fini(&text);
	return status;
}
