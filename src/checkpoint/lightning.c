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
#include "checkpoint/recorded.h"
#include "checkpoint/zip.h"

#include "base/array.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static bool read_number(const struct reader *reader, const struct checkpoint_pickled *item, double *ret_value)
{
	static const size_t widths[] = {[CHECKPOINT_PICKLE_FLOAT32] = 4,
					[CHECKPOINT_PICKLE_FLOAT64] = 8,
					[CHECKPOINT_PICKLE_FLOAT16] = 2,
					[CHECKPOINT_PICKLE_BFLOAT16] = 2};
	unsigned char bytes[8] = {0};
	uint64_t begin, length;
	char name[48];

	if (item->type == CHECKPOINT_PICKLE_FLOAT || item->type == CHECKPOINT_PICKLE_INT) {
		*ret_value = item->type == CHECKPOINT_PICKLE_FLOAT ? item->number : (double)item->integer;
		return true;
	}
	if (item->type != CHECKPOINT_PICKLE_SCALAR || item->element == CHECKPOINT_PICKLE_UNKNOWN)
		return false;
	size_t width = widths[item->element];
	snprintf(name, sizeof name, "data/%llu", (unsigned long long)item->storage);
	if (!checkpoint_zip_find(reader->zip, name, &begin, &length) ||
	    length < ((uint64_t)item->offset + 1) * width ||
	    !checkpoint_read_at(reader->zip->fd, bytes, width, begin + (uint64_t)item->offset * width))
		return false;
	*ret_value = decode(item->element, bytes);
	return true;
}

/* --- callbacks --- */

static bool copy_name(char to[256], const struct checkpoint_pickled *path)
{
	size_t length = path->length;
	const char *name = path->text;

	for (size_t i = length; i-- > 0;)
		if (name[i] == '/' || name[i] == '\\') {
			name += i + 1;
			length -= i + 1;
			break;
		}
	if (length == 0 || length >= 256 || memchr(name, '\0', length))
		return false;
	memcpy(to, name, length);
	to[length] = '\0';
	return true;
}

/* Copies the name of the path's folder, if it has one. */
static void copy_folder(char to[256], const struct checkpoint_pickled *path, size_t base_length)
{
	struct checkpoint_pickled folder = *path;

	if (path->length <= base_length + 1)
		return;
	folder.length = (uint32_t)(path->length - base_length - 1);
	if (!copy_name(to, &folder))
		to[0] = '\0';
}

static void take_scores(struct reader *reader, const struct checkpoint_pickled *items, size_t count)
{
	for (size_t i = 0; i + 1 < count && reader->score_count < SCORES_MOST; i += 2) {
		struct checkpoint_score score;

		if (items[i].type != CHECKPOINT_PICKLE_TEXT || !copy_name(score.name, &items[i]) ||
		    !read_number(reader, &items[i + 1], &score.value))
			continue;
		if (!neap_array_grow(&reader->scores, reader->score_count, sizeof *reader->scores)) {
			reader->failed = true;
			return;
		}
		reader->scores[reader->score_count++] = score;
	}
}

static const struct checkpoint_pickled *find(const struct checkpoint_pickled *items, size_t count, const char *key)
{
	for (size_t i = 0; i + 1 < count; i += 2)
		if (checkpoint_pickle_is(&items[i], key))
			return &items[i + 1];
	return NULL;
}

static bool contains(const struct checkpoint_pickled *name, const char *text)
{
	return name->type == CHECKPOINT_PICKLE_TEXT && memmem(name->text, name->length, text, strlen(text));
}

/* Finds whether low or high is better: by the settings in the callback's key; else by the metric's name; else by
 * whether the best has the lowest or the highest score. */
static enum neap_metric_mode mode_of(const struct reader *reader, const struct checkpoint_pickled *name,
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
static void take_callback(struct reader *reader, const struct checkpoint_pickled *name,
			  const struct checkpoint_pickled *items, size_t count)
{
	const struct checkpoint_pickled *path = find(items, count, "best_model_path");
	const struct checkpoint_pickled *monitor = find(items, count, "monitor");
	struct checkpoint_record record = {
		.trainer = "Lightning", .until_ns = UINT64_MAX, .until_step = UINT64_MAX, .best_step = UINT64_MAX};

	if (!monitor || monitor->type != CHECKPOINT_PICKLE_TEXT || path->type != CHECKPOINT_PICKLE_TEXT ||
	    !copy_name(record.best, path) || reader->callbacks == CALLBACKS_MOST)
		return;
	copy_folder(record.folder, path, strlen(record.best));
	checkpoint_word_normalize(monitor->text, monitor->length, record.metric);
	record.scores = reader->scores;
	record.score_count = reader->score_count;
	record.mode = mode_of(reader, name, &record);
	if (!neap_array_grow(&reader->records->at, reader->records->count, sizeof record)) {
		reader->failed = true;
		return;
	}
	reader->records->at[reader->records->count++] = record;
	reader->callbacks++;
	reader->scores = NULL;
	reader->score_count = 0;
}

static void take_items(void *context, const struct checkpoint_pickled *name, const struct checkpoint_pickled *items,
		       size_t count)
{
	struct reader *reader = context;

	if (checkpoint_pickle_is(name, "best_k_models"))
		take_scores(reader, items, count);
	if (!find(items, count, "best_model_path"))
		return;
	take_callback(reader, name, items, count);
	reader->score_count = 0;
}

bool checkpoint_read_lightning(int fd, struct checkpoint_records *records)
{
	struct checkpoint_zip zip = {0};
	struct reader reader = {.zip = &zip, .records = records};
	const struct checkpoint_pickle_visitor visitor = {.items = take_items, .context = &reader};
	uint64_t begin, length;
	void *pickle = NULL;

	if (checkpoint_zip_open(fd, &zip) && checkpoint_zip_find(&zip, "data.pkl", &begin, &length) &&
	    length <= PICKLE_MOST) {
		pickle = malloc((size_t)length + 1);
		/* records read before any damage may be used: they only name a file */
		if (pickle && checkpoint_read_at(fd, pickle, (size_t)length, begin))
			checkpoint_pickle_scan(pickle, (size_t)length, &visitor, NULL);
		reader.failed |= !pickle;
	}
	free(pickle);
	free(reader.scores);
	checkpoint_zip_fini(&zip);
	return !reader.failed;
}
