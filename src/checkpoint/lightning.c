/* checkpoint/lightning.c: reads the records of Lightning's ModelCheckpoint callbacks from a checkpoint. Layout:
 * lightning 2.6. Since 1.5 the key of a callback's state is a text with its class and settings:
 *
 *   {"callbacks": {"ModelCheckpoint{'monitor': 'val_loss', 'mode': 'min', ...}": {
 *       "monitor": "val_loss", "best_model_path": "/runs/a/epoch=3.ckpt", "best_model_score": tensor(0.25),
 *       "best_k_models": {"/runs/a/epoch=3.ckpt": tensor(0.25), ...}, ...}}}
 *
 * The values are tensors, so they are in members of the archive: archive/data/17.
 */
#include "checkpoint/pickle.h"
#include "checkpoint/writer.h"
#include "checkpoint/zip.h"

#include "base/array.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PICKLE_MOST    (64 * 1024 * 1024)
#define CALLBACKS_MOST 16
#define SCORES_MOST    4096

struct reader {
	const struct checkpoint_zip *zip;
	struct checkpoint_records *records;
	struct checkpoint_score *scores; /* of the callback that is being read */
	size_t score_count, callbacks;
	bool failed; /* the host is out of memory */
};

/* --- numbers --- */

static double half_value(uint16_t bits)
{
	int exponent = bits >> 10 & 31;
	double fraction = bits & 1023, value;

	if (exponent == 31)
		value = fraction != 0 ? (double)NAN : (double)INFINITY;
	else
		value = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
	return bits & 0x8000 ? -value : value;
}

static double decode(enum checkpoint_pickle_element element, const void *bytes)
{
	uint16_t half;
	uint32_t bits;
	float single;
	double value;

	memcpy(&half, bytes, sizeof half);
	memcpy(&single, bytes, sizeof single);
	memcpy(&value, bytes, sizeof value);
	if (element == CHECKPOINT_PICKLE_FLOAT64)
		return value;
	if (element == CHECKPOINT_PICKLE_FLOAT32)
		return (double)single;
	if (element == CHECKPOINT_PICKLE_FLOAT16)
		return half_value(half);
	bits = (uint32_t)half << 16; /* the upper half of a float */
	memcpy(&single, &bits, sizeof single);
	return (double)single;
}

/* Reads a number, or a tensor of one number. False: it is neither. */
static bool read_number(const struct reader *reader, const struct neap_pickled *item, double *ret_value)
{
	static const size_t widths[] = {[CHECKPOINT_PICKLE_FLOAT32] = 4,
					[CHECKPOINT_PICKLE_FLOAT64] = 8,
					[CHECKPOINT_PICKLE_FLOAT16] = 2,
					[CHECKPOINT_PICKLE_BFLOAT16] = 2};
	unsigned char bytes[8] = {0};
	uint64_t begin, length;
	char name[48];

	if (item->type == NEAP_PICKLE_FLOAT || item->type == NEAP_PICKLE_INT) {
		*ret_value = item->type == NEAP_PICKLE_FLOAT ? item->number : (double)item->integer;
		return true;
	}
	if (item->type != CHECKPOINT_PICKLE_SCALAR || item->detail == CHECKPOINT_PICKLE_UNKNOWN)
		return false;
	size_t width = widths[item->detail];
	snprintf(name, sizeof name, "data/%llu", (unsigned long long)item->a);
	if (!checkpoint_zip_find(reader->zip, name, &begin, &length) || length < (item->b + 1) * width ||
	    !checkpoint_read_at(reader->zip->fd, bytes, width, begin + item->b * width))
		return false;
	*ret_value = decode(item->detail, bytes);
	return true;
}

/* --- callbacks --- */

static void take_scores(struct reader *reader, const struct neap_pickled *items, size_t count)
{
	for (size_t i = 0; i + 1 < count && reader->score_count < SCORES_MOST; i += 2) {
		struct checkpoint_score score;

		if (items[i].type != NEAP_PICKLE_TEXT ||
		    !checkpoint_base_copy(score.name, items[i].text, items[i].length) ||
		    !read_number(reader, &items[i + 1], &score.value))
			continue;
		if (!neap_array_grow(&reader->scores, reader->score_count, sizeof *reader->scores)) {
			reader->failed = true;
			return;
		}
		reader->scores[reader->score_count++] = score;
	}
}

static const struct neap_pickled *find(const struct neap_pickled *items, size_t count, const char *key)
{
	for (size_t i = 0; i + 1 < count; i += 2)
		if (checkpoint_pickle_is(&items[i], key))
			return &items[i + 1];
	return NULL;
}

static bool contains(const struct neap_pickled *name, const char *text)
{
	return name->type == NEAP_PICKLE_TEXT && memmem(name->text, name->length, text, strlen(text));
}

/* Finds whether low or high is better: by the settings in the callback's key; else by the metric's name; else by
 * whether the best has the lowest or the highest score. */
static enum neap_metric_mode mode_of(const struct reader *reader, const struct neap_pickled *name,
				     const struct checkpoint_record *record)
{
	double best;
	bool above = false, below = false;

	if (contains(name, "'mode': 'min'"))
		return NEAP_METRIC_MIN;
	if (contains(name, "'mode': 'max'"))
		return NEAP_METRIC_MAX;
	enum neap_metric_mode known = checkpoint_metric_known(record->metric, NULL);
	if (known || !checkpoint_record_score(record, record->best, &best))
		return known;
	for (size_t i = 0; i < reader->score_count; i++) {
		above |= reader->scores[i].value > best;
		below |= reader->scores[i].value < best;
	}
	return above == below ? NEAP_METRIC_MODE_UNKNOWN : above ? NEAP_METRIC_MIN : NEAP_METRIC_MAX;
}

/* Adds the record of a callback and gives it the scores. */
static void take_callback(struct reader *reader, const struct neap_pickled *name, const struct neap_pickled *items,
			  size_t count)
{
	const struct neap_pickled *path = find(items, count, "best_model_path");
	const struct neap_pickled *monitor = find(items, count, "monitor");
	struct checkpoint_record record = {.until_step = UINT64_MAX, .best_step = UINT64_MAX};

	if (!monitor || monitor->type != NEAP_PICKLE_TEXT || path->type != NEAP_PICKLE_TEXT ||
	    !checkpoint_base_copy(record.best, path->text, path->length) || reader->callbacks == CALLBACKS_MOST)
		return;
	size_t base = strlen(record.best) + 1;
	if (path->length > base)
		checkpoint_base_copy(record.folder, path->text, path->length - base);
	checkpoint_word_normalize(monitor->text, monitor->length, record.metric);
	record.scores = reader->scores;
	record.score_count = reader->score_count;
	record.mode = mode_of(reader, name, &record);
	if (!checkpoint_record_add(reader->records, &record)) {
		reader->failed = true;
		return;
	}
	reader->callbacks++;
	reader->scores = NULL;
	reader->score_count = 0;
}

static void take_items(void *context, const struct neap_pickled *name, const struct neap_pickled *items, size_t count)
{
	struct reader *reader = context;

	if (checkpoint_pickle_is(name, "best_k_models"))
		take_scores(reader, items, count);
	if (!find(items, count, "best_model_path"))
		return;
	take_callback(reader, name, items, count);
	reader->score_count = 0;
}

bool checkpoint_read_callbacks(int fd, struct checkpoint_records *records)
{
	struct checkpoint_zip zip = {0};
	struct reader reader = {.zip = &zip, .records = records};
	const struct checkpoint_pickle_visitor visitor = {.items = take_items, .context = &reader};
	void *pickle = NULL;
	size_t length = 0;

	reader.failed = checkpoint_zip_open(fd, &zip) &&
			!checkpoint_zip_read(&zip, "data.pkl", PICKLE_MOST, &pickle, &length);
	/* records read before any damage may be used: they only name a file */
	if (pickle)
		checkpoint_pickle_scan(pickle, length, &visitor, NULL);
	free(pickle);
	free(reader.scores);
	checkpoint_zip_fini(&zip);
	return !reader.failed;
}

bool checkpoint_read_lightning(int folder_fd, const char *path, struct checkpoint_records *records)
{
	int fd = openat(folder_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return true;
	bool fine = checkpoint_read_callbacks(fd, records);
	close(fd);
	return fine;
}
