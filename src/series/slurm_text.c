/* series/slurm_text.c: see slurm_text.h. */
#include "series/slurm_text.h"

#include "base/error.h"

#include <stdbool.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const char *const state_names[] = {
	[NEAP_SLURM_GONE] = "not known to Slurm",
	[NEAP_SLURM_PENDING] = "pending",
	[NEAP_SLURM_RUNNING] = "running",
	[NEAP_SLURM_COMPLETED] = "completed",
	[NEAP_SLURM_FAILED] = "failed",
	[NEAP_SLURM_TIMEOUT] = "timeout",
	[NEAP_SLURM_OUT_OF_MEMORY] = "out of memory",
	[NEAP_SLURM_CANCELLED] = "cancelled",
	[NEAP_SLURM_PREEMPTED] = "preempted",
	[NEAP_SLURM_NODE_FAIL] = "node failure",
};

/* Those that are over, and those that wait. Source: squeue(1), "JOB STATE CODES". */
static const struct {
	const char *name;
	enum neap_slurm_state state;
} states[] = {
	{"PENDING", NEAP_SLURM_PENDING},
	{"REQUEUED", NEAP_SLURM_PENDING},
	{"REQUEUE_HOLD", NEAP_SLURM_PENDING},
	{"REQUEUE_FED", NEAP_SLURM_PENDING},
	{"SPECIAL_EXIT", NEAP_SLURM_PENDING},
	{"RESV_DEL_HOLD", NEAP_SLURM_PENDING},
	{"COMPLETED", NEAP_SLURM_COMPLETED},
	{"FAILED", NEAP_SLURM_FAILED},
	{"REVOKED", NEAP_SLURM_CANCELLED},
	{"CANCELLED", NEAP_SLURM_CANCELLED},
	{"TIMEOUT", NEAP_SLURM_TIMEOUT},
	{"DEADLINE", NEAP_SLURM_TIMEOUT},
	{"OUT_OF_MEMORY", NEAP_SLURM_OUT_OF_MEMORY},
	{"PREEMPTED", NEAP_SLURM_PREEMPTED},
	{"NODE_FAIL", NEAP_SLURM_NODE_FAIL},
	{"BOOT_FAIL", NEAP_SLURM_NODE_FAIL},
	{"LAUNCH_FAILED", NEAP_SLURM_NODE_FAIL},
	{"RECONFIG_FAIL", NEAP_SLURM_NODE_FAIL},
};

const char *neap_slurm_state_name(enum neap_slurm_state state)
{
	return (size_t)state < COUNT(state_names) ? state_names[state] : "?";
}

/* A piece of a line. */
struct piece {
	const char *text;
	size_t length;
};

/* Cuts a line into exactly `count` pieces; the last one takes what is left, further bars included. */
static bool cut(const char *line, size_t length, struct piece *pieces, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const char *bar = i + 1 < count ? memchr(line, '|', length) : line + length;
		if (!bar)
			return false;
		pieces[i] = (struct piece){line, (size_t)(bar - line)};
		length -= pieces[i].length + (i + 1 < count);
		line = bar + 1;
	}
	return true;
}

static bool piece_is(struct piece piece, const char *text)
{
	return piece.length == strlen(text) && !memcmp(piece.text, text, piece.length);
}

/* A decimal number of at most 32 bits, and nothing else. */
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

/* "CANCELLED by 1000" and "CANCELLED+" are CANCELLED. */
static bool read_state(struct piece piece, enum neap_slurm_state *ret_state)
{
	size_t length = 0;
	while (length < piece.length &&
	       (piece.text[length] == '_' || (piece.text[length] >= 'A' && piece.text[length] <= 'Z')))
		length++;
	if (!length || (length < piece.length && piece.text[length] != ' ' && piece.text[length] != '+'))
		return false;
	*ret_state = NEAP_SLURM_RUNNING;
	for (size_t i = 0; i < COUNT(states); i++)
		if (piece_is((struct piece){piece.text, length}, states[i].name))
			*ret_state = states[i].state;
	return true;
}

/* For people: cut, and nothing in it that a terminal would obey. */
static void copy_word(struct piece piece, char word[NEAP_SLURM_WORD_ROOM])
{
	size_t length = piece.length < NEAP_SLURM_WORD_ROOM ? piece.length : NEAP_SLURM_WORD_ROOM - 1;
	if (piece_is(piece, "None") || piece_is(piece, "(null)") || piece_is(piece, "None assigned"))
		length = 0;
	for (size_t i = 0; i < length; i++)
		word[i] = piece.text[i] > 0x20 && piece.text[i] < 0x7f ? piece.text[i]
			  : piece.text[i] == ' '                       ? ' '
								       : '?';
	word[length] = '\0';
}

enum neap_status neap_slurm_squeue_line(const char *line, size_t length, struct neap_slurm_seen *ret_seen)
{
	struct neap_slurm_seen seen = {0};
	struct piece pieces[5];
	if (!cut(line, length, pieces, 5) || !read_number(pieces[0], &seen.job) ||
	    !read_state(pieces[2], &seen.state))
		return NEAP_EPARSE;
	if (piece_is(pieces[1], "N/A"))
		return NEAP_ENOENT;
	if (!read_number(pieces[1], &seen.task))
		return NEAP_EPARSE;
	copy_word(pieces[3], seen.reason);
	copy_word(pieces[4], seen.nodes);
	*ret_seen = seen;
	return NEAP_OK;
}

enum neap_status neap_slurm_sacct_line(const char *line, size_t length, struct neap_slurm_seen *ret_seen)
{
	struct neap_slurm_seen seen = {0};
	struct piece pieces[3];
	if (!cut(line, length, pieces, 3) || !read_state(pieces[1], &seen.state))
		return NEAP_EPARSE;
	const char *line_after = memchr(pieces[0].text, '_', pieces[0].length);
	if (!line_after)
		return read_number(pieces[0], &seen.job) ? NEAP_ENOENT : NEAP_EPARSE;
	struct piece job = {pieces[0].text, (size_t)(line_after - pieces[0].text)};
	struct piece task = {line_after + 1, pieces[0].length - job.length - 1};
	if (!read_number(job, &seen.job))
		return NEAP_EPARSE;
	if (task.length && *task.text == '[') /* those that wait, together */
		return NEAP_ENOENT;
	if (!read_number(task, &seen.task))
		return NEAP_EPARSE;
	copy_word(pieces[2], seen.nodes);
	*ret_seen = seen;
	return NEAP_OK;
}

enum neap_status neap_slurm_sbatch_answer(const char *text, size_t length, uint32_t *ret_job, struct neap_error *err)
{
	char shown[NEAP_SLURM_WORD_ROOM];
	while (length && text[length - 1] == '\n')
		length--;
	const char *newline = length ? memrchr(text, '\n', length) : NULL;
	struct piece line = {newline ? newline + 1 : text, newline ? (size_t)(text + length - newline) - 1 : length};
	const char *semicolon = line.length ? memchr(line.text, ';', line.length) : NULL;
	struct piece number = {line.text, semicolon ? (size_t)(semicolon - line.text) : line.length};
	uint32_t job = 0;
	if (read_number(number, &job) && job) {
		*ret_job = job;
		return NEAP_OK;
	}
	copy_word(line, shown);
	return neap_fail(err, NEAP_EPROTO, "sbatch answered '%s', expected the number of a job", shown);
}

enum neap_status neap_slurm_max_array(const char *text, size_t length, uint32_t *ret_size)
{
	static const char key[] = "MaxArraySize";
	const char *end = text + length;
	while (text < end) {
		const char *newline = memchr(text, '\n', (size_t)(end - text));
		struct piece line = {text, (size_t)((newline ? newline : end) - text)};
		const char *equals = memchr(line.text, '=', line.length);
		text = line.text + line.length + 1;
		if (line.length < sizeof key || memcmp(line.text, key, sizeof key - 1) != 0 || !equals ||
		    (line.text[sizeof key - 1] != ' ' && line.text[sizeof key - 1] != '='))
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

static bool contains(struct piece line, const char *text)
{
	return memmem(line.text, line.length, text, strlen(text)) != NULL;
}

enum neap_slurm_state neap_slurm_last_words(const char *text, size_t length)
{
	static const struct {
		const char *words;
		enum neap_slurm_state state;
	} table[] = {
		{"DUE TO TIME LIMIT", NEAP_SLURM_TIMEOUT},   {"DUE TO NODE FAIL", NEAP_SLURM_NODE_FAIL},
		{"DUE TO PREEMPTION", NEAP_SLURM_PREEMPTED}, {"DUE TO JOB REQUEUE", NEAP_SLURM_PREEMPTED},
		{"oom-kill", NEAP_SLURM_OUT_OF_MEMORY},      {"oom_kill", NEAP_SLURM_OUT_OF_MEMORY},
		{" CANCELLED AT ", NEAP_SLURM_CANCELLED},
	};
	enum neap_slurm_state state = NEAP_SLURM_GONE;
	const char *end = text + length;
	while (text < end) {
		const char *newline = memchr(text, '\n', (size_t)(end - text));
		struct piece line = {text, (size_t)((newline ? newline : end) - text)};
		text = line.text + line.length + 1;
		bool told = line.length > 10 && !memcmp(line.text, "slurmstepd", 10);
		for (size_t i = 0; i < COUNT(table) && told; i++)
			if (contains(line, table[i].words)) {
				state = table[i].state;
				told = false;
			}
	}
	return state;
}
