/* slurm/text.c: see text.h. */
#include "slurm/text.h"

#include "base/error.h"
#include "base/printable.h"

#include <stdbool.h>
#include <string.h>

/* A piece of a text. */
struct piece {
	const char *text;
	size_t length;
};

/* Cuts off the first line. False: no line is left. */
static bool next_line(struct piece *rest, struct piece *line)
{
	if (!rest->length)
		return false;
	const char *newline = memchr(rest->text, '\n', rest->length);
	*line = (struct piece){rest->text, newline ? (size_t)(newline - rest->text) : rest->length};
	size_t used = line->length + (newline != NULL);
	*rest = (struct piece){rest->text + used, rest->length - used};
	return true;
}

static bool begins_with(struct piece piece, const char *text)
{
	return piece.length >= strlen(text) && !memcmp(piece.text, text, strlen(text));
}

static bool contains(struct piece piece, const char *text)
{
	return memmem(piece.text, piece.length, text, strlen(text)) != NULL;
}

/* Reads a decimal number of at most 32 bits. False: the piece has anything else. */
static bool read_number(struct piece piece, uint32_t *ret_number)
{
	uint64_t number = 0;
	if (!piece.length || piece.length > 10)
		return false;
	for (size_t i = 0; i < piece.length; i++) {
		if (piece.text[i] < '0' || piece.text[i] > '9')
			return false;
		number = number * 10 + (uint64_t)(piece.text[i] - '0');
	}
	*ret_number = (uint32_t)number;
	return number <= UINT32_MAX;
}

enum neap_status neap_slurm_sbatch_answer(const char *text, size_t length, uint32_t *ret_job, struct neap_error *err)
{
	char shown[64];
	struct piece rest = {text, length}, line = {text, 0}, next;
	uint32_t job = 0;
	while (next_line(&rest, &next))
		if (next.length)
			line = next;
	const char *semicolon = memchr(line.text, ';', line.length);
	struct piece number = {line.text, semicolon ? (size_t)(semicolon - line.text) : line.length};
	if (read_number(number, &job) && job) {
		*ret_job = job;
		return NEAP_OK;
	}
	return neap_fail(err, NEAP_EPROTO, "sbatch answered '%s', expected the number of a job",
			 neap_printable_bytes(shown, sizeof shown, line.text, line.length));
}

enum neap_status neap_slurm_squeue_line(const char *line, size_t length, uint32_t *ret_job, uint32_t *ret_task)
{
	uint32_t job, task;
	const char *bar = memchr(line, '_', length);
	if (!bar || !read_number((struct piece){line, (size_t)(bar - line)}, &job))
		return NEAP_EPARSE;
	struct piece after = {bar + 1, length - (size_t)(bar - line) - 1};
	if (after.length == 3 && begins_with(after, "N/A"))
		return NEAP_ENOENT;
	if (!read_number(after, &task))
		return NEAP_EPARSE;
	*ret_job = job;
	*ret_task = task;
	return NEAP_OK;
}

enum neap_status neap_slurm_max_array(const char *text, size_t length, uint32_t *ret_size)
{
	static const char key[] = "MaxArraySize";
	struct piece rest = {text, length}, line;
	while (next_line(&rest, &line)) {
		const char *equals = memchr(line.text, '=', line.length);
		if (!begins_with(line, key) || !equals || !strchr(" =", line.text[sizeof key - 1]))
			continue;
		struct piece value = {equals + 1, (size_t)(line.text + line.length - equals) - 1};
		while (value.length && *value.text == ' ')
			value = (struct piece){value.text + 1, value.length - 1};
		while (value.length && value.text[value.length - 1] == ' ')
			value.length--;
		if (read_number(value, ret_size))
			return NEAP_OK;
	}
	return NEAP_EPARSE;
}

enum neap_slurm_cause neap_slurm_last_cause(const char *text, size_t length)
{
	static const struct {
		const char *argv;
		enum neap_slurm_cause cause;
	} table[] = {
		{"DUE TO TIME LIMIT", NEAP_SLURM_TIMEOUT},    {"DUE TO NODE FAIL", NEAP_SLURM_TAKEN_BACK},
		{"DUE TO PREEMPTION", NEAP_SLURM_TAKEN_BACK}, {"DUE TO JOB REQUEUE", NEAP_SLURM_TAKEN_BACK},
		{"oom-kill", NEAP_SLURM_OUT_OF_MEMORY},       {"oom_kill", NEAP_SLURM_OUT_OF_MEMORY},
		{" CANCELLED AT ", NEAP_SLURM_CANCELLED},
	};
	enum neap_slurm_cause cause = NEAP_SLURM_UNTOLD;
	struct piece rest = {text, length}, line;
	while (next_line(&rest, &line)) {
		size_t i = 0;
		if (begins_with(
			    line,
			    "neap series: " NEAP_SLURM_BEGINS)) /* requeued: what ended the earlier start is over */
			cause = NEAP_SLURM_UNTOLD;
		if (!begins_with(line, "slurmstepd"))
			continue;
		while (i < sizeof table / sizeof *table && !contains(line, table[i].argv))
			i++;
		if (i < sizeof table / sizeof *table)
			cause = table[i].cause;
	}
	return cause;
}
