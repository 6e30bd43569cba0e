/* checkpoint/json_record.c: reads the records that are JSON. Hugging Face's Trainer: trainer_state.json, and
 * training_args.bin beside it, which is a pickle. Orbax: the metrics that a manager with a `best_fn` saves with each
 * step. */
#include "checkpoint/pickle.h"
#include "checkpoint/sidecar.h"
#include "checkpoint/writer.h"
#include "checkpoint/zip.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATE_MOST  (64 * 1024 * 1024)
#define PICKLE_MOST (16 * 1024 * 1024)
#define WORDS_MOST  64

/* --- Hugging Face's Trainer --- */

/* A metric of the log, with its range over the whole log. */
struct word {
	char name[CHECKPOINT_WORD_CAPACITY];
	double least, most;
	bool equals; /* one of its values is the recorded best value */
};

struct state {
	struct checkpoint_record *record;
	double best, step;
	bool has_best, has_step;
	struct word words[WORDS_MOST];
	size_t count;
};

static uint64_t whole(double value) { return value >= 0 && value < 1e15 ? (uint64_t)value : UINT64_MAX; }

static void take_head(void *context, const char *word, unsigned depth, double value)
{
	struct state *state = context;

	if (depth != 1)
		return;
	if (!strcmp(word, "best_metric")) {
		state->best = value;
		state->has_best = true;
	} else if (!strcmp(word, "global_step")) {
		state->has_step = true;
		state->record->until_step = whole(value);
	} else if (!strcmp(word, "best_global_step")) {
		state->record->best_step = whole(value);
	}
}

static void take_best(void *context, const char *word, unsigned depth, const char *text, size_t length)
{
	struct checkpoint_record *record = ((struct state *)context)->record;

	if (depth != 1 || strcmp(word, "best_model_checkpoint") != 0)
		return;
	while (length > 0 && text[length - 1] == '/')
		length--;
	if (!checkpoint_base_copy(record->best, text, length))
		record->best[0] = '\0';
}

/* The metrics of an evaluation begin with "eval_". */
static void take_logged(void *context, const char *word, unsigned depth, double value)
{
	struct state *state = context;
	size_t i = 0;

	if (depth < 2 || strncmp(word, "eval_", 5) != 0 || isnan(value))
		return;
	while (i < state->count && strcmp(state->words[i].name, word))
		i++;
	if (i == WORDS_MOST)
		return;
	struct word *at = &state->words[i];
	if (i == state->count) {
		*at = (struct word){.least = value, .most = value};
		strcpy(at->name, word);
		state->count++;
	}
	at->least = value < at->least ? value : at->least;
	at->most = value > at->most ? value : at->most;
	at->equals |= value == state->best;
}

/* Infers the metric without training_args.bin: the only one that had the best value. The mode follows from whether
 * that is its lowest or its highest value. */
static void infer(struct state *state)
{
	const struct word *found = NULL;

	for (size_t i = 0; i < state->count; i++) {
		if (!state->words[i].equals)
			continue;
		if (found)
			return;
		found = &state->words[i];
	}
	if (!found)
		return;
	strcpy(state->record->metric, found->name);
	if (found->least < found->most && state->best == found->most)
		state->record->mode = NEAP_METRIC_MAX;
	else if (found->least < found->most && state->best == found->least)
		state->record->mode = NEAP_METRIC_MIN;
	else
		state->record->mode = checkpoint_metric_known(found->name, NULL);
}

enum neap_status checkpoint_read_state(const char *text, size_t length, struct checkpoint_record *ret_record)
{
	struct checkpoint_record record = {.until_step = UINT64_MAX, .best_step = UINT64_MAX};
	struct state state = {.record = &record};
	const struct checkpoint_sidecar_visitor head = {.number = take_head, .text = take_best, .context = &state};
	const struct checkpoint_sidecar_visitor log = {.number = take_logged, .context = &state};
	enum neap_status status = checkpoint_json_scan(text, length, &head, NULL);

	if (status || !state.has_step)
		return NEAP_EPARSE;
	if (state.has_best && !isnan(state.best)) {
		checkpoint_json_scan(text, length, &log, NULL);
		infer(&state);
	}
	*ret_record = record;
	return NEAP_OK;
}

static void take_argument(void *context, const struct neap_pickled *name, const struct neap_pickled *items,
			  size_t count)
{
	struct checkpoint_record *record = context;

	(void)name;
	for (size_t i = 0; i + 1 < count; i += 2) {
		const struct neap_pickled *item = &items[i + 1];
		char word[CHECKPOINT_WORD_CAPACITY];

		if (checkpoint_pickle_is(&items[i], "greater_is_better") && item->type == NEAP_PICKLE_BOOL)
			record->mode = item->integer ? NEAP_METRIC_MAX : NEAP_METRIC_MIN;
		if (!checkpoint_pickle_is(&items[i], "metric_for_best_model") || item->type != NEAP_PICKLE_TEXT ||
		    item->length == 0 || item->length > 48)
			continue;
		checkpoint_word_normalize(item->text, item->length, word);
		snprintf(record->metric, sizeof record->metric, "%s%.50s", strncmp(word, "eval_", 5) ? "eval_" : "",
			 word);
	}
}

void checkpoint_read_arguments(const void *pickle, size_t length, struct checkpoint_record *record)
{
	struct checkpoint_record read = {0};
	const struct checkpoint_pickle_visitor visitor = {.items = take_argument, .context = &read};

	if (checkpoint_pickle_scan(pickle, length, &visitor, NULL) != NEAP_OK || !read.metric[0])
		return;
	strcpy(record->metric, read.metric);
	size_t end = strlen(read.metric);
	/* the default of the Trainer */
	bool loss = end >= 4 && !strcmp(read.metric + end - 4, "loss");
	record->mode = read.mode ? read.mode : loss ? NEAP_METRIC_MIN : NEAP_METRIC_MAX;
}

/* False: no memory. */
static bool read_arguments_file(int folder_fd, const char *path, struct checkpoint_record *record)
{
	struct checkpoint_zip zip = {0};
	void *pickle = NULL;
	size_t length = 0;
	int fd = openat(folder_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return true;
	bool fine = !checkpoint_zip_open(fd, &zip) ||
		    checkpoint_zip_read(&zip, "data.pkl", PICKLE_MOST, &pickle, &length);
	if (pickle)
		checkpoint_read_arguments(pickle, length, record);
	free(pickle);
	checkpoint_zip_fini(&zip);
	close(fd);
	return fine;
}

bool checkpoint_read_trainer_state(int folder_fd, const char *path, struct checkpoint_records *records)
{
	struct neap_buffer text = {0};
	struct checkpoint_record record;
	const char *slash = strrchr(path, '/');
	char arguments[320];
	int cause;
	bool found = checkpoint_text_read(folder_fd, path, STATE_MOST, &text, &cause) &&
		     checkpoint_read_state(neap_buffer_string(&text), text.length, &record) == NEAP_OK;

	neap_buffer_fini(&text);
	if (!found)
		return true;
	snprintf(arguments, sizeof arguments, "%.*straining_args.bin", slash ? (int)(slash + 1 - path) : 0, path);
	return read_arguments_file(folder_fd, arguments, &record) && checkpoint_record_add(records, &record);
}

/* --- Orbax --- */

struct metrics {
	char first[CHECKPOINT_WORD_CAPACITY];
	char all[256];
	size_t count;
};

static void take_metric(void *context, const char *word, unsigned depth, double value)
{
	struct metrics *metrics = context;
	size_t used = strlen(metrics->all);

	(void)value;
	if (depth != 1)
		return;
	if (metrics->count++ == 0)
		strcpy(metrics->first, word);
	snprintf(metrics->all + used, sizeof metrics->all - used, "%s%s", used ? ", " : "", word);
}

bool checkpoint_read_orbax(int folder_fd, const char *path, struct checkpoint_records *records)
{
	struct metrics metrics = {0};
	const struct checkpoint_sidecar_visitor visitor = {.number = take_metric, .context = &metrics};
	struct checkpoint_record record = {.until_step = UINT64_MAX, .best_step = UINT64_MAX};
	struct neap_buffer text = {0};
	int cause;
	bool found = checkpoint_text_read(folder_fd, path, STATE_MOST, &text, &cause) &&
		     checkpoint_json_scan(neap_buffer_string(&text), text.length, &visitor, NULL) == NEAP_OK &&
		     metrics.count > 0;

	neap_buffer_fini(&text);
	if (!found)
		return true;
	if (metrics.count > 1)
		strcpy(record.several, metrics.all);
	else
		strcpy(record.metric, metrics.first);
	record.mode = checkpoint_metric_known(record.metric, NULL);
	return checkpoint_record_add(records, &record);
}
