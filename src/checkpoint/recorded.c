/* checkpoint/recorded.c: see the header. Layouts: transformers 4 and 5 (TrainerState, TrainingArguments), Orbax 0.12.
 */
#include "checkpoint/recorded.h"

#include "checkpoint/pickle.h"
#include "checkpoint/scan_internal.h"
#include "checkpoint/sidecar.h"
#include "checkpoint/zip.h"

#include "base/array.h"
#include "base/error.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATE_MOST  (64 * 1024 * 1024)
#define PICKLE_MOST (16 * 1024 * 1024)
#define WORDS_MOST  64
#define TRIES_MOST  8 /* how many files are tried until one has a record */

/* --- Hugging Face's Trainer --- */

/* A metric of the log, with its range over the whole log. */
struct word {
	char name[CHECKPOINT_WORD_ROOM];
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

static const char *base_name(const char *path, size_t *length)
{
	while (*length > 0 && path[*length - 1] == '/')
		--*length;
	for (size_t i = *length; i-- > 0;)
		if (path[i] == '/' || path[i] == '\\') {
			*length -= i + 1;
			return path + i + 1;
		}
	return path;
}

static void copy_base(char to[256], const char *path, size_t length)
{
	const char *name = base_name(path, &length);

	if (length >= 256 || memchr(name, '\0', length))
		length = 0;
	memcpy(to, name, length);
	to[length] = '\0';
}

static void take_best(void *context, const char *word, unsigned depth, const char *text, size_t length)
{
	struct state *state = context;

	if (depth == 1 && !strcmp(word, "best_model_checkpoint"))
		copy_base(state->record->best, text, length);
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
	struct checkpoint_record record = {.trainer = "Hugging Face's Trainer",
					   .until_ns = UINT64_MAX,
					   .until_step = UINT64_MAX,
					   .best_step = UINT64_MAX};
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

static void take_argument(void *context, const struct checkpoint_pickled *name,
			  const struct checkpoint_pickled *items, size_t count)
{
	struct checkpoint_record *record = context;

	(void)name;
	for (size_t i = 0; i + 1 < count; i += 2) {
		const struct checkpoint_pickled *item = &items[i + 1];
		char word[CHECKPOINT_WORD_ROOM];

		if (checkpoint_pickle_is(&items[i], "greater_is_better") && item->type == CHECKPOINT_PICKLE_BOOL)
			record->mode = item->integer ? NEAP_METRIC_MAX : NEAP_METRIC_MIN;
		if (!checkpoint_pickle_is(&items[i], "metric_for_best_model") ||
		    item->type != CHECKPOINT_PICKLE_TEXT || item->length == 0 || item->length > 48)
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

/* --- files --- */

static struct checkpoint_record *add_record(struct checkpoint_records *records,
					    const struct checkpoint_record *record)
{
	if (!neap_array_grow(&records->at, records->count, sizeof *records->at))
		return NULL;
	records->at[records->count] = *record;
	return &records->at[records->count++];
}

static int open_in(const struct scan *scan, const char *path)
{
	return openat(scan->fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

static void read_arguments_file(const struct scan *scan, const char *path, struct checkpoint_record *record)
{
	struct checkpoint_zip zip = {0};
	uint64_t begin, length;
	int fd = open_in(scan, path);

	if (fd < 0)
		return;
	if (checkpoint_zip_open(fd, &zip) && checkpoint_zip_find(&zip, "data.pkl", &begin, &length) &&
	    length <= PICKLE_MOST) {
		void *pickle = malloc((size_t)length + 1);
		if (pickle && checkpoint_read_at(fd, pickle, (size_t)length, begin))
			checkpoint_read_arguments(pickle, (size_t)length, record);
		free(pickle);
	}
	checkpoint_zip_fini(&zip);
	close(fd);
}

/* Reads trainer_state.json in `folder` ("": the scanned folder itself). False: there is none. */
static bool read_state_file(const struct scan *scan, const char *folder, struct checkpoint_record *ret_record)
{
	struct neap_buffer text = {0};
	char path[320];
	int cause;
	const char *slash = folder[0] ? "/" : "";
	bool found = false;

	snprintf(path, sizeof path, "%.255s%strainer_state.json", folder, slash);
	if (checkpoint_text_read(scan->fd, path, STATE_MOST, &text, &cause))
		found = checkpoint_read_state(neap_buffer_string(&text), text.length, ret_record) == NEAP_OK;
	neap_buffer_fini(&text);
	if (!found)
		return false;
	strcpy(ret_record->source, path);
	snprintf(path, sizeof path, "%.255s%straining_args.bin", folder, slash);
	read_arguments_file(scan, path, ret_record);
	return true;
}

/* --- which files --- */

struct place {
	const struct neap_retention_entry *entry;
	const char *name; /* of the part */
};

static int later_step_first(const void *left, const void *right)
{
	const struct neap_retention_entry *a = ((const struct place *)left)->entry,
					  *b = ((const struct place *)right)->entry;
	uint64_t first = a->step == NEAP_STEP_UNKNOWN ? 0 : a->step,
		 second = b->step == NEAP_STEP_UNKNOWN ? 0 : b->step;

	if (first != second)
		return first < second ? 1 : -1;
	return (a->modified_ns < b->modified_ns) - (a->modified_ns > b->modified_ns);
}

static int younger_first(const void *left, const void *right)
{
	const struct neap_retention_entry *a = ((const struct place *)left)->entry,
					  *b = ((const struct place *)right)->entry;

	return (a->modified_ns < b->modified_ns) - (a->modified_ns > b->modified_ns);
}

static bool is_lightning(const struct neap_retention_part *part)
{
	size_t length = strlen(part->name);

	return !part->folder && length > 5 && !strcmp(part->name + length - 5, ".ckpt");
}

/* Lists checkpoints that are folders, or files of Lightning. They are not sorted yet. */
static size_t list_places(const struct scan *scan, bool folders, struct place *places)
{
	size_t count = 0;

	for (size_t i = 0; i < scan->plan->count; i++) {
		const struct neap_retention_entry *entry = &scan->plan->entries[i];

		if (entry->facts & (NEAP_CHECKPOINT_UNFINISHED | NEAP_CHECKPOINT_TORN))
			continue;
		for (size_t k = 0; k < entry->part_count; k++)
			if (folders ? entry->parts[k].folder : is_lightning(&entry->parts[k])) {
				places[count++] = (struct place){entry, entry->parts[k].name};
				break;
			}
	}
	return count;
}

static bool is_in_folder(const struct scan *scan, const char *name)
{
	return name[0] && checkpoint_listing_find(&scan->listing, name) < scan->listing.count;
}

/* Reads the trainer state of the last step. False: no memory. */
static bool read_transformers(const struct scan *scan, struct place *places, struct checkpoint_records *records)
{
	size_t count = list_places(scan, true, places);
	struct checkpoint_record record, own;
	bool found = false;

	qsort(places, count, sizeof *places, later_step_first);
	for (size_t i = 0; i < count && i < TRIES_MOST && !found; i++)
		found = read_state_file(scan, places[i].name, &record);
	/* the Trainer writes the folder's own state when training ends */
	if (read_state_file(scan, "", &own) && (!found || own.until_step >= record.until_step)) {
		record = own;
		found = true;
	}
	if (!found || !record.best[0])
		return true;
	record.here = is_in_folder(scan, record.best);
	return add_record(records, &record) != NULL;
}

/* A trainer may keep the best by one metric in this folder and the best by another metric in another folder, under
 * the same names. So if one record is of this folder, drops the records of other folders. */
static void keep_own(const struct scan *scan, struct checkpoint_records *records, size_t from)
{
	const char *slash = scan->real ? strrchr(scan->real, '/') : NULL;
	size_t kept = from;
	bool any = false;

	for (size_t i = from; slash && i < records->count; i++)
		any |= !strcmp(records->at[i].folder, slash + 1);
	for (size_t i = from; any && i < records->count; i++) {
		if (!strcmp(records->at[i].folder, slash + 1))
			records->at[kept++] = records->at[i];
		else
			free(records->at[i].scores);
	}
	records->count = any ? kept : records->count;
}

/* Reads the newest .ckpt that has a record. False: no memory. */
static bool read_newest_lightning(const struct scan *scan, struct place *places, struct checkpoint_records *records)
{
	size_t count = list_places(scan, false, places), before = records->count;
	bool fine = true;

	qsort(places, count, sizeof *places, younger_first);
	for (size_t i = 0; fine && i < count && i < TRIES_MOST && records->count == before; i++) {
		int fd = open_in(scan, places[i].name);
		if (fd < 0)
			continue;
		fine = checkpoint_read_lightning(fd, records);
		close(fd);
		keep_own(scan, records, before);
		for (size_t k = before; k < records->count; k++) {
			struct checkpoint_record *record = &records->at[k];

			snprintf(record->source, sizeof record->source, "%.255s", places[i].name);
			record->here = is_in_folder(scan, record->best);
			record->until_ns = places[i].entry->modified_ns;
		}
	}
	return fine;
}

/* --- Orbax --- */

struct metrics {
	char first[CHECKPOINT_WORD_ROOM];
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

/* Reads the metrics that a manager with a `best_fn` saves with each step. False: no memory. */
static bool read_orbax(const struct scan *scan, struct place *places, struct checkpoint_records *records)
{
	size_t count = list_places(scan, true, places);
	bool found = false, fine = true;

	qsort(places, count, sizeof *places, later_step_first);
	for (size_t i = 0; i < count && i < TRIES_MOST && !found; i++) {
		struct metrics metrics = {0};
		const struct checkpoint_sidecar_visitor visitor = {.number = take_metric, .context = &metrics};
		struct checkpoint_record record = {.trainer = "Orbax",
						   .until_ns = UINT64_MAX,
						   .until_step = UINT64_MAX,
						   .best_step = UINT64_MAX};
		struct neap_buffer text = {0};
		int cause;

		snprintf(record.source, sizeof record.source, "%.255s/metrics/metrics", places[i].name);
		found = checkpoint_text_read(scan->fd, record.source, STATE_MOST, &text, &cause) &&
			checkpoint_json_scan(neap_buffer_string(&text), text.length, &visitor, NULL) == NEAP_OK &&
			metrics.count > 0;
		neap_buffer_fini(&text);
		if (!found)
			continue;
		if (metrics.count > 1)
			strcpy(record.several, metrics.all);
		else
			strcpy(record.metric, metrics.first);
		record.mode = checkpoint_metric_known(record.metric, NULL);
		fine = add_record(records, &record) != NULL;
	}
	return fine;
}

enum neap_status checkpoint_records_read(const struct scan *scan, struct checkpoint_records *ret_records,
					 struct neap_error *err)
{
	struct place *places = calloc(scan->plan->count + 1, sizeof *places);
	bool fine = places && read_transformers(scan, places, ret_records) &&
		    read_newest_lightning(scan, places, ret_records) && read_orbax(scan, places, ret_records);

	free(places);
	return fine ? NEAP_OK : neap_fail(err, NEAP_ENOMEM, "out of host memory");
}

void checkpoint_records_fini(struct checkpoint_records *records)
{
	for (size_t i = 0; i < records->count; i++)
		free(records->at[i].scores);
	free(records->at);
	*records = (struct checkpoint_records){0};
}

bool checkpoint_record_score(const struct checkpoint_record *record, const char *name, double *ret_value)
{
	for (size_t i = 0; i < record->score_count; i++)
		if (!strcmp(record->scores[i].name, name)) {
			*ret_value = record->scores[i].value;
			return true;
		}
	return false;
}
