/* checkpoint/metric.c: finds the metric that decides the best, and its values.
 *
 * The metric is that of the options; else the one that the trainer recorded (writer.h); else the well-known one
 * that most checkpoints have in their names or sidecars. Of two equally frequent ones, a validation metric wins, then
 * a loss. A value that the trainer recorded wins over one in a sidecar, and that one, which is exact, over one in the
 * name.
 */
#include "checkpoint/scan_internal.h"
#include "checkpoint/sidecar.h"
#include "checkpoint/writer.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIDECAR_MOST_BYTES (16 * 1024 * 1024)
#define METRICS_MOST       64

struct tally {
	struct {
		char name[CHECKPOINT_WORD_CAPACITY];
		size_t count, last; /* last: the entry that was counted last, from 1 */
	} metrics[METRICS_MOST];
	size_t count, entry;
};

static void tally_word(struct tally *tally, const char *word)
{
	char metric[CHECKPOINT_WORD_CAPACITY];
	size_t i = 0;

	if (!checkpoint_metric_known(word, metric))
		return;
	while (i < tally->count && strcmp(tally->metrics[i].name, metric))
		i++;
	if (i == METRICS_MOST)
		return;
	if (i == tally->count)
		strcpy(tally->metrics[tally->count++].name, metric);
	if (tally->metrics[i].last != tally->entry)
		tally->metrics[i].count++;
	tally->metrics[i].last = tally->entry;
}

/* The values of one metric in the sidecars of an entry. `top` is valid if has_top is, `deep` if has_deep is. */
struct beside {
	double top, deep; /* at the top of a file; the last one inside lists and objects */
	bool has_top, has_deep;
	bool unreadable; /* a sidecar cannot be read or parsed */
};

/* One pass over the sidecars of an entry. */
struct reading {
	struct tally *tally; /* NULL: metrics are not counted */
	const char *metric;  /* the metric whose value is taken; "" none */
	struct beside *beside;
};

static void take_number(void *context, const char *word, unsigned depth, double value)
{
	struct reading *reading = context;

	if (reading->tally)
		tally_word(reading->tally, word);
	if (strcmp(word, reading->metric))
		return;
	if (depth == 1) {
		reading->beside->top = value;
		reading->beside->has_top = true;
	} else {
		reading->beside->deep = value;
		reading->beside->has_deep = true;
	}
}

/* Visits one file of metrics. False: it exists and cannot be read or parsed. */
static bool visit_file(int folder_fd, const char *name, const struct checkpoint_sidecar_visitor *visitor)
{
	struct neap_buffer text = {0};
	const char *dot = strrchr(name, '.');
	bool yaml = dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml"));
	int cause;
	bool fine = checkpoint_text_read(folder_fd, name, SIDECAR_MOST_BYTES, &text, &cause);

	if (fine)
		fine = (yaml ? checkpoint_yaml_scan : checkpoint_json_scan)(neap_buffer_string(&text), text.length,
									    visitor, NULL) == NEAP_OK;
	else
		fine = cause == ENOENT;
	neap_buffer_fini(&text);
	return fine;
}

/* Visits the sidecars of one part of an entry, and the files of metrics in it if it is a folder. */
static bool visit_part(const struct scan *scan, const char *part, bool folder,
		       const struct checkpoint_sidecar_visitor *visitor)
{
	const char *inside;
	char name[512];
	bool fine = true;

	for (size_t n = 0; scan->listing.beside_count && checkpoint_sidecar_name(part, n, name, sizeof name); n++)
		if (checkpoint_listing_find(&scan->listing, name) < scan->listing.count)
			fine = visit_file(scan->fd, name, visitor) && fine;
	if (!folder)
		return fine;
	int fd = openat(scan->fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	for (size_t n = 0; fd >= 0 && (inside = checkpoint_metrics_file(n)); n++)
		fine = visit_file(fd, inside, visitor) && fine;
	if (fd >= 0)
		close(fd);
	return fine;
}

/* Visits the files of metrics beside an entry's parts and in them. False: one cannot be read or parsed. */
static bool visit_sidecars(const struct scan *scan, const struct neap_retention_entry *entry,
			   const struct checkpoint_sidecar_visitor *visitor)
{
	bool fine = true;

	for (size_t i = 0; i < entry->part_count; i++) {
		const char *part = entry->parts[i].name;

		if (checkpoint_is_beside(part))
			fine = (checkpoint_is_index(part) || visit_file(scan->fd, part, visitor)) && fine;
		else
			fine = visit_part(scan, part, entry->parts[i].folder, visitor) && fine;
	}
	return fine;
}

/* Ranks a metric: of two that equally many checkpoints have, the lower rank wins, then the first in the alphabet. */
static unsigned preference(const char *metric)
{
	static const char *const first[] = {"val", "eval", "dev", "test"};
	size_t length = strlen(metric);
	unsigned rank = 2;

	for (size_t i = 0; i < sizeof first / sizeof *first; i++)
		if (!strncmp(metric, first[i], strlen(first[i])))
			rank = 0;
	return rank + (length < 4 || strcmp(metric + length - 4, "loss") != 0);
}

static bool is_preferred(const struct tally *tally, size_t a, size_t b)
{
	size_t more = tally->metrics[a].count, most = tally->metrics[b].count;
	unsigned rank = preference(tally->metrics[a].name), other = preference(tally->metrics[b].name);

	if (more != most)
		return more > most;
	return rank != other ? rank < other : strcmp(tally->metrics[a].name, tally->metrics[b].name) < 0;
}

/* The metric that most checkpoints have so far; "" none. */
static const char *preferred(const struct tally *tally)
{
	size_t best = 0;

	for (size_t i = 1; i < tally->count; i++)
		if (is_preferred(tally, i, best))
			best = i;
	return tally->count > 0 ? tally->metrics[best].name : "";
}

static void search_beside(const struct scan *scan, size_t index, const char *metric, struct tally *tally,
			  struct beside *beside)
{
	struct reading reading = {.tally = tally, .metric = metric, .beside = beside};
	struct checkpoint_sidecar_visitor visitor = {.number = take_number, .context = &reading};

	beside->has_top = beside->has_deep = false;
	beside->unreadable = !visit_sidecars(scan, &scan->plan->entries[index], &visitor);
}

/* Reads the values of plan->metric from the sidecars of all entries. */
static void search_beside_all(const struct scan *scan, struct beside *beside)
{
	for (size_t i = 0; i < scan->plan->count; i++)
		search_beside(scan, i, scan->plan->metric, NULL, &beside[i]);
}

/* Infers the metric that most checkpoints have. Guesses it from the first entry that has one and takes its values in
 * the same pass, so most files are read once. If the guess was wrong, reads all of them again. */
static void infer_metric(const struct scan *scan, struct beside *beside)
{
	struct neap_retention_plan *plan = scan->plan;
	char guess[CHECKPOINT_WORD_CAPACITY] = "";
	struct tally tally = {0};
	struct checkpoint_number number;

	for (size_t i = 0; i < plan->count; i++) {
		tally.entry = i + 1;
		for (size_t k = 0; k < plan->entries[i].part_count; k++)
			for (const char *rest = plan->entries[i].parts[k].name;
			     checkpoint_number_next(&rest, &number);)
				tally_word(&tally, number.word);
		search_beside(scan, i, guess, &tally, &beside[i]);
		if (!guess[0] && tally.count > 0) {
			strcpy(guess, preferred(&tally));
			search_beside(scan, i, guess, NULL, &beside[i]);
		}
	}
	strcpy(plan->metric, preferred(&tally));
	plan->metric_inferred = plan->metric[0];
	if (strcmp(plan->metric, guess))
		search_beside_all(scan, beside);
}

/* Reads the value from the names of an entry's parts. Returns the same as checkpoint_metric_read. */
static int read_names(const struct neap_retention_entry *entry, const char *metric, double *ret_value)
{
	int found = 0;

	for (size_t i = 0; i < entry->part_count; i++) {
		double value = (double)NAN;
		int one = checkpoint_metric_read(entry->parts[i].name, metric, &value);

		if (one == 0)
			continue;
		bool other = found == 1 && one == 1 && value != *ret_value && !(isnan(value) && isnan(*ret_value));
		found = one == 2 || other ? 2 : found ? found : 1;
		*ret_value = value;
	}
	return found;
}

static void measure_metric(const struct scan *scan, struct neap_retention_entry *entry, const struct beside *found,
			   const struct checkpoint_record *record)
{
	double value = (double)NAN, score = 0;
	bool scored = false;

	if (entry->facts & NEAP_CHECKPOINT_UNFINISHED)
		return;
	for (size_t i = 0; record && !scored && i < entry->part_count; i++)
		scored = checkpoint_record_score(record, entry->parts[i].name, &score);
	int in_name = read_names(entry, scan->plan->metric, &value);
	bool beside = found->has_top || found->has_deep;
	if (found->unreadable || (in_name == 2 && !beside && !scored)) {
		entry->facts |= NEAP_CHECKPOINT_UNREADABLE; /* it may be the best */
	} else if (scored || beside || in_name == 1) {
		entry->metric = scored ? score : found->has_top ? found->top : found->has_deep ? found->deep : value;
		entry->facts |= NEAP_CHECKPOINT_MEASURED;
		entry->facts &= ~(uint32_t)NEAP_CHECKPOINT_UNNUMBERED; /* its metric shows that it is a checkpoint */
	}
}

/* --- what trainers recorded --- */

/* Chooses the record to follow; NULL: none. Errors: NEAP_EINVAL: the records disagree, or do not name one metric. */
static enum neap_status choose_record(const struct scan *scan, const struct checkpoint_records *records,
				      const struct checkpoint_record **ret_record, struct neap_error *err)
{
	const struct checkpoint_record *chosen = NULL, *other = NULL;

	for (size_t i = 0; i < records->count; i++) {
		const struct checkpoint_record *record = &records->at[i];
		if (!record->here)
			other = other ? other : record;
		else if (!chosen)
			chosen = record;
		else if (strcmp(record->best, chosen->best) != 0)
			return neap_fail(
				err, NEAP_EINVAL,
				"two records of the best disagree: %.40s by %s (%.40s), %.40s by %s (%.40s): "
				"name the metric that counts",
				chosen->best, chosen->metric[0] ? chosen->metric : "?", chosen->trainer, record->best,
				record->metric[0] ? record->metric : "?", record->trainer);
	}
	*ret_record = chosen ? chosen : other;
	if (!chosen && other && other->several[0])
		return neap_fail(
			err, NEAP_EINVAL,
			"%s recorded several metrics (%.80s), and not which of them tells the best: name the "
			"metric that counts",
			other->trainer, other->several);
	if (*ret_record) {
		const struct checkpoint_record *record = *ret_record;
		bool away = record->best[0] && !record->here;
		snprintf(scan->plan->source, sizeof scan->plan->source, "%s recorded %s in %.200s%s%.100s%s",
			 record->trainer, record->best[0] ? "it" : "its values", record->source,
			 away ? "; its best, " : "", away ? record->best : "", away ? ", is not here" : "");
	}
	return NEAP_OK;
}

static bool has_part(const struct neap_retention_entry *entry, const char *name)
{
	for (size_t i = 0; i < entry->part_count; i++)
		if (!strcmp(entry->parts[i].name, name))
			return true;
	return false;
}

/* Whether the entry existed when the record was written, and has a value to compare, if it is whole. */
static bool is_known(const struct checkpoint_record *record, const struct neap_retention_entry *entry)
{
	const uint32_t uncounted = NEAP_CHECKPOINT_UNFINISHED | NEAP_CHECKPOINT_UNREADABLE | NEAP_CHECKPOINT_NAMED |
				   NEAP_CHECKPOINT_HALF;

	return !(entry->facts & uncounted) && (entry->facts & NEAP_CHECKPOINT_MEASURED) && isfinite(entry->metric) &&
	       (entry->step == NEAP_STEP_UNKNOWN || record->until_step == UINT64_MAX ||
		entry->step <= record->until_step);
}

/* Marks the recorded best. Errors: NEAP_EINVAL: another checkpoint has a better value of the metric. This is not
 * checked if the record has scores, since the trainer chose by them, or if the best value was measured at a step
 * without a checkpoint. */
static enum neap_status mark_best(const struct scan *scan, const struct checkpoint_record *record,
				  struct neap_error *err)
{
	struct neap_retention_plan *plan = scan->plan;
	struct neap_retention_entry *best = NULL;

	for (size_t i = 0; i < plan->count; i++)
		if (has_part(&plan->entries[i], record->best)) {
			plan->entries[i].facts |= NEAP_CHECKPOINT_RECORDED;
			best = &plan->entries[i];
		}
	if (!best || !is_known(record, best) || checkpoint_entry_torn(scan->fd, best) || record->score_count > 0 ||
	    plan->mode == NEAP_METRIC_MODE_UNKNOWN ||
	    (record->best_step != UINT64_MAX && record->best_step != best->step))
		return NEAP_OK;
	for (size_t i = 0; i < plan->count; i++) {
		struct neap_retention_entry *other = &plan->entries[i];
		if (!is_known(record, other) ||
		    (plan->mode == NEAP_METRIC_MIN ? other->metric >= best->metric : other->metric <= best->metric) ||
		    checkpoint_entry_torn(scan->fd, other))
			continue;
		return neap_fail(err, NEAP_EINVAL,
				 "%s recorded %.60s as the best, with %s %.6g, but %.60s has %.6g: name the metric "
				 "that counts",
				 record->trainer, record->best, plan->metric, best->metric, other->name,
				 other->metric);
	}
	return NEAP_OK;
}

/* Marks the newest of names such as best_bleu_epoch_5.pth: a trainer that writes them keeps one, so the newest is its
 * best. Skips names with a metric's value: that value decides. */
static void mark_named_best(const struct scan *scan)
{
	struct neap_retention_entry *newest = NULL;

	for (size_t i = 0; i < scan->plan->count; i++) {
		struct neap_retention_entry *entry = &scan->plan->entries[i];

		if (entry->part_count == 0 || !checkpoint_says_best(entry->name) ||
		    checkpoint_has_metric(entry->name) || (entry->facts & NEAP_CHECKPOINT_UNFINISHED))
			continue;
		bool later = !newest || (entry->step == newest->step ? entry->modified_ns > newest->modified_ns
					 : newest->step == NEAP_STEP_UNKNOWN ? true
					 : entry->step == NEAP_STEP_UNKNOWN  ? false
									     : entry->step > newest->step);
		newest = later && !checkpoint_entry_torn(scan->fd, entry) ? entry : newest;
	}
	if (newest)
		newest->facts |= NEAP_CHECKPOINT_RECORDED;
}

/* --- all of it --- */

static void set_mode(const struct scan *scan, const struct checkpoint_record *record)
{
	struct neap_retention_plan *plan = scan->plan;

	plan->mode = plan->metric[0] ? scan->options->mode : NEAP_METRIC_MODE_UNKNOWN;
	if (!plan->metric[0] || plan->mode)
		return;
	if (record) {
		plan->mode = record->mode;
		return;
	}
	plan->mode = checkpoint_metric_known(plan->metric, NULL);
	plan->mode_inferred = plan->mode != NEAP_METRIC_MODE_UNKNOWN;
}

static enum neap_status find(const struct scan *scan, const struct checkpoint_record *record, struct neap_error *err)
{
	const struct neap_retention_options *options = scan->options;
	struct neap_retention_plan *plan = scan->plan;
	struct beside *beside = calloc(plan->count + 1, sizeof *beside);
	const struct checkpoint_record *metric_of = record && record->metric[0] ? record : NULL;

	if (!beside)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory");
	if (options->metric)
		checkpoint_word_normalize(options->metric, strlen(options->metric), plan->metric);
	else if (metric_of)
		strcpy(plan->metric, metric_of->metric);
	if (options->metric || metric_of)
		search_beside_all(scan, beside);
	else
		infer_metric(scan, beside);
	set_mode(scan, metric_of);
	for (size_t i = 0; plan->metric[0] && i < plan->count; i++)
		measure_metric(scan, &plan->entries[i], &beside[i], metric_of);
	free(beside);
	if (!plan->metric[0] && options->metric)
		return neap_fail(err, NEAP_EINVAL, "\"%.60s\" is not the name of a metric", options->metric);
	return record ? mark_best(scan, record, err) : NEAP_OK;
}

enum neap_status checkpoint_find_metric(const struct scan *scan, struct neap_error *err)
{
	struct checkpoint_records records = {0};
	const struct checkpoint_record *record = NULL;
	enum neap_status status = NEAP_OK;

	if (!scan->options->metric) {
		status = checkpoint_records_read(scan, &records, err);
		if (!status)
			status = choose_record(scan, &records, &record, err);
	}
	if (!status)
		status = find(scan, record, err);
	mark_named_best(scan);
	checkpoint_records_fini(&records);
	return status;
}
