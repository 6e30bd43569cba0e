/* slurm/queue.c: asks the cluster for the tasks in its queue, and the size of its arrays. */
#include "slurm/internal.h"

#include "base/error.h"
#include "slurm/call.h"
#include "slurm/plan.h"
#include "slurm/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t key_of(uint32_t job, uint32_t task) { return (uint64_t)job << 32 | task; }

static int by_key(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;
	return *a < *b ? -1 : *a > *b;
}

/* Reads squeue's output into `listed`. NEAP_EPARSE: a line is malformed, and `bad` (room for 64) has its beginning.
 */
static enum neap_status list_tasks(struct neap_slurm *slurm, const struct neap_buffer *output, char *bad,
				   struct neap_error *err)
{
	const char *text = neap_buffer_string(output), *end = text + output->length;
	size_t lines = 1, count = 0;
	for (const char *c = text; c < end; c++)
		lines += *c == '\n';
	uint64_t *listed = calloc(lines, sizeof *listed);
	enum neap_status status = listed ? NEAP_OK : neap_fail(err, NEAP_ENOMEM, "asking Slurm: out of memory");
	while (!status && text < end) {
		const char *newline = memchr(text, '\n', (size_t)(end - text));
		size_t length = (size_t)((newline ? newline : end) - text);
		uint32_t job, task;
		status = length ? neap_slurm_squeue_line(text, length, &job, &task) : NEAP_ENOENT;
		if (!status)
			listed[count++] = key_of(job, task);
		if (status == NEAP_ENOENT)
			status = NEAP_OK;
		if (status == NEAP_EPARSE) {
			struct neap_buffer line = {0};
			neap_buffer_append(&line, text, length);
			neap_slurm_last_line(&line, bad, 64);
			neap_buffer_fini(&line);
		}
		text += length + 1;
	}
	if (status) {
		free(listed);
		return status;
	}
	qsort(listed, count, sizeof *listed, by_key);
	free(slurm->listed);
	slurm->listed = listed;
	slurm->listed_count = count;
	return NEAP_OK;
}

enum neap_status neap_slurm_queue_ask(struct neap_slurm *slurm, struct neap_error *err)
{
	char user[32], complaint[200] = "", bad[64];
	struct neap_buffer output = {0};
	struct neap_error why = {0};
	snprintf(user, sizeof user, "--user=%u", (unsigned)getuid());
	enum neap_status status =
		neap_slurm_call((char *[]){"squeue", "--all", "--noheader", "--array", user, "--format=%F_%K", NULL},
				&output, complaint, &why);
	if (status == NEAP_ETIMEDOUT || status == NEAP_EPROTO) /* the controller may be down for a while */
		snprintf(complaint, sizeof complaint, "%s", why.message);
	else if (status && err)
		*err = why;
	if (!status && !*complaint)
		status = list_tasks(slurm, &output, bad, err);
	slurm->asked = !status && !*complaint;
	if (*complaint)
		neap_series_report_line(&slurm->series, "squeue failed: %s", complaint);
	else if (status == NEAP_EPARSE)
		neap_series_report_line(&slurm->series, "squeue printed a line that cannot be read: '%s'", bad);
	neap_buffer_fini(&output);
	return *complaint || status == NEAP_EPARSE ? NEAP_OK : status;
}

bool neap_slurm_queue_has(const struct neap_slurm *slurm, uint32_t job, uint32_t task)
{
	uint64_t key = key_of(job, task);
	return slurm->listed_count &&
	       bsearch(&key, slurm->listed, slurm->listed_count, sizeof *slurm->listed, by_key) != NULL;
}

uint32_t neap_slurm_ask_max_array(void)
{
	struct neap_buffer output = {0};
	char complaint[200] = "";
	uint32_t size = NEAP_SLURM_MAX_ARRAY;
	if (!neap_slurm_call((char *[]){"scontrol", "show", "config", NULL}, &output, complaint, NULL) && !*complaint)
		neap_slurm_max_array(neap_buffer_string(&output), output.length, &size);
	neap_buffer_fini(&output);
	return size;
}
