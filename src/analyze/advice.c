/* Upward advice: see the header. The search assumes that a micro-batch fits if the next larger one does. If
 * fragmentation breaks that, the answer is a micro-batch that fits while the next larger one does not. */
#include "analyze/advice.h"

#include "analyze/saturate.h"
#include "analyze/step_model.h"
#include "base/units.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define MICRO_BATCH_MAX (1ull << 32)
#define ROOM_MAX        (1ull << 45) /* a recording with more is corrupt */
#define PAGES_MAX       (1ull << 23)
#define LINE_SHARE      8  /* the part of the headroom up to which a straight line's uncertainty still gives advice */
#define LOOK_AHEAD      16 /* how many micro-batches above the first that does not fit are tried */
#define REACH           8  /* at most this many times the micro-batch in force: larger ones may take other kernels */
#define DEVICES_MAX     64
#define KEEP_TRIES      16 /* numbers of parts of the batch that are tried */

static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

NEAP_PRINTF(2, 3)
static void give_none(struct neap_advice *advice, const char *format, ...)
{
	va_list arguments;

	advice->given = false;
	va_start(arguments, format);
	vsnprintf(advice->why, sizeof advice->why, format, arguments);
	va_end(arguments);
}

/* Finds the least headroom that the session reported, and the last page size. False: the figures make no sense. */
static bool find_headroom(const struct neap_record *record, uint16_t device, uint64_t *ret_room_bytes,
			  uint64_t *ret_page_bytes)
{
	uint64_t room_bytes = UINT64_MAX, page_bytes = 0;

	for (size_t i = 0; i < record->journal_count; i++) {
		const struct neap_event *event = &record->journal[i];
		if (event->kind != NEAP_EVENT_ROOM || event->device != device)
			continue;
		room_bytes = event->room.room_bytes < room_bytes ? event->room.room_bytes : room_bytes;
		page_bytes = event->room.page_bytes;
	}
	bool sane = room_bytes <= ROOM_MAX && page_bytes <= (1ull << 30) && !(page_bytes & (page_bytes - 1)) &&
		    (!page_bytes || room_bytes / page_bytes <= PAGES_MAX);
	*ret_room_bytes = room_bytes;
	*ret_page_bytes = page_bytes;
	return sane;
}

/* Predicts whether a micro-batch fits with kept_back_bytes left unused, and how much it then reserves. */
struct predictor {
	const struct neap_step_model *model; /* NULL: by the line */
	const struct neap_step_model *first; /* the program's first steps, which must also fit; NULL: not known */
	const struct neap_advice_way *way;   /* NULL: neap's own allocator */
	struct neap_rerun_op *ops;           /* an array with space for the step twice */
	uint64_t room_bytes, page_bytes, kept_back_bytes;
	uint64_t most;                                 /* larger micro-batches get no prediction; 0: no bound */
	double line_fixed, line_sample, line_overhead; /* per sample, the last two */
	bool failed;                                   /* host memory ran out */
};

struct prediction {
	bool fits;
	uint64_t reserved_bytes, allocated_bytes, uncertainty_bytes;
};

/* The micro-batches of a repeated step. */
enum parts {
	EQUAL,    /* all of the size asked for */
	RECORDED, /* as in the recording: some may have a sample less */
	MIXED,    /* steps of the requested size alternate with steps of one sample less */
};

static void rerun_in_headroom(struct predictor *predictor, struct neap_rerun *rerun, struct neap_rerun_result *result)
{
	rerun->room_bytes = neap_less(predictor->room_bytes, predictor->kept_back_bytes);
	rerun->page_bytes = predictor->page_bytes;
	if (predictor->way) {
		rerun->other = predictor->way->rerun;
		rerun->other_context = predictor->way->context;
	}
	if (neap_rerun(rerun, result, NULL) != NEAP_OK)
		predictor->failed = true;
}

static struct prediction by_replay(struct predictor *predictor, uint64_t micro_batch, enum parts parts)
{
	const struct neap_step_model *model = predictor->model;
	struct neap_rerun rerun = neap_step_rerun(model, predictor->ops);
	struct neap_rerun_result result = {0};

	neap_step_ops(model, micro_batch, parts == RECORDED, predictor->ops);
	if (parts == MIXED) {
		neap_step_ops(model, micro_batch - 1, false, predictor->ops + model->step_count);
		rerun.step_count = 2 * model->step_count;
	}
	rerun_in_headroom(predictor, &rerun, &result);
	if (predictor->first && result.fits) {
		struct neap_rerun_result begun = {0};
		rerun = neap_step_rerun(predictor->first, predictor->ops);
		neap_step_ops(predictor->first, micro_batch, parts == RECORDED, predictor->ops);
		rerun_in_headroom(predictor, &rerun, &begun);
		result.fits = begun.fits;
		if (begun.peak_reserved_bytes > result.peak_reserved_bytes)
			result.peak_reserved_bytes = begun.peak_reserved_bytes;
	}
	return (struct prediction){result.fits, result.peak_reserved_bytes, result.peak_allocated_bytes, 0};
}

static struct prediction by_line(const struct predictor *predictor, uint64_t micro_batch)
{
	double samples = (double)micro_batch, overhead = predictor->line_overhead * samples;
	double bytes = predictor->line_fixed + predictor->line_sample * samples + overhead;
	double uncertainty = overhead + 2 * (double)predictor->page_bytes;

	return (struct prediction){
		.fits = bytes + uncertainty <= (double)predictor->room_bytes,
		.reserved_bytes = bytes < 1e18 ? (uint64_t)bytes : UINT64_MAX,
		.uncertainty_bytes = uncertainty < 1e18 ? (uint64_t)uncertainty : UINT64_MAX,
	};
}

static struct prediction predict_parts(struct predictor *predictor, uint64_t micro_batch, enum parts parts)
{
	if (predictor->most && micro_batch > predictor->most)
		return (struct prediction){0};
	return predictor->model ? by_replay(predictor, micro_batch, parts) : by_line(predictor, micro_batch);
}

static struct prediction predict(struct predictor *predictor, uint64_t micro_batch)
{
	return predict_parts(predictor, micro_batch, EQUAL);
}

/* Returns the largest micro-batch that fits, given that `fits` does; MICRO_BATCH_MAX: all that were tried fit. */
static uint64_t search(struct predictor *predictor, uint64_t fits)
{
	uint64_t fails = fits;

	do {
		fits = fails;
		fails *= 2;
		if (fails >= MICRO_BATCH_MAX)
			return MICRO_BATCH_MAX;
	} while (predict(predictor, fails).fits && !predictor->failed);
	while (fails - fits > 1 && !predictor->failed) {
		uint64_t middle = fits + (fails - fits) / 2;
		if (predict(predictor, middle).fits)
			fits = middle;
		else
			fails = middle;
	}
	/* The line predicts that everything above fails, so look ahead only with replays, and only of short steps. */
	bool short_step = predictor->model && predictor->model->step_count <= NEAP_STEP_SHORT;
	for (uint64_t next = fits + 2; short_step && next <= fits + LOOK_AHEAD && !predictor->failed; next++)
		if (predict(predictor, next).fits)
			fits = next;
	return fits;
}

/* Finds the smallest number of parts of the batch that fit. The first number tried is nearly always right. */
static void keep_batch(struct neap_advice *advice, struct predictor *predictor)
{
	struct neap_split kept = advice->split;

	kept.micro_batch = advice->micro_batch;
	for (int tries = 0; tries < KEEP_TRIES && !predictor->failed; tries++) {
		neap_split_settle(&kept);
		bool equal = kept.batch % kept.accumulate == 0;
		struct prediction prediction = predict_parts(predictor, kept.micro_batch, equal ? EQUAL : MIXED);
		if (prediction.fits) {
			advice->kept_micro_batch = kept.micro_batch;
			advice->kept_accumulate = kept.accumulate;
			advice->kept_headroom_bytes = neap_less(advice->room_bytes, prediction.reserved_bytes);
			return;
		}
		if (kept.micro_batch-- == 1)
			return;
	}
}

static void conclude(struct neap_advice *advice, struct predictor *predictor)
{
	const struct neap_split *split = &advice->split;
	struct prediction best = predict_parts(predictor, split->micro_batch, RECORDED);

	if (!best.fits) {
		give_none(advice, predictor->failed
					  ? "out of host memory while predicting"
					  : "with the memory that was left to this process at the end, or the "
					    "uncertainty, not even the micro-batch in force fits");
		return;
	}
	advice->micro_batch = split->micro_batch;
	struct prediction equal = predict(predictor, split->micro_batch);
	if (equal.fits) { /* else it fits only because some parts are smaller */
		advice->micro_batch = search(predictor, split->micro_batch);
		best = predict(predictor, advice->micro_batch);
	}
	advice->bounded = advice->micro_batch == predictor->most;
	bool grows = !advice->bounded || best.allocated_bytes > equal.allocated_bytes;
	if (predictor->failed || advice->micro_batch == MICRO_BATCH_MAX || !grows) {
		advice->unaffected = !predictor->failed;
		give_none(advice, predictor->failed ? "out of host memory while predicting"
						    : "nothing that a step allocates was seen to grow with the "
						      "micro-batch");
		return;
	}
	advice->headroom_bytes = neap_less(advice->room_bytes, best.reserved_bytes);
	advice->uncertainty_bytes = neap_plus(advice->uncertainty_bytes, best.uncertainty_bytes);
	if (predictor->model)
		advice->sample_bytes = neap_less(best.allocated_bytes, advice->fixed_bytes) / advice->micro_batch;
	if (neap_split_batch(split) <= MICRO_BATCH_MAX)
		keep_batch(advice, predictor);
	advice->given = !predictor->failed;
	if (predictor->failed)
		give_none(advice, "out of host memory while predicting");
}

static void advise_by_replay(struct neap_advice *advice, const struct neap_step_model *model,
			     const struct neap_step_model *first, const struct neap_advice_way *way,
			     uint64_t page_bytes)
{
	struct predictor predictor = {.model = model,
				      .first = first,
				      .way = way,
				      .room_bytes = advice->room_bytes,
				      .page_bytes = page_bytes,
				      .most = way ? times(advice->split.micro_batch, REACH) : 0};

	predictor.ops = calloc(2 * model->step_count + (first ? first->step_count : 0) + 1, sizeof *predictor.ops);
	if (!predictor.ops) {
		give_none(advice, "out of host memory while predicting");
		return;
	}
	struct prediction now = predict_parts(&predictor, advice->split.micro_batch, RECORDED);
	/* For blocks that no event explains, only their sum is known, not their places in pages. */
	predictor.kept_back_bytes =
		neap_plus(now.fits ? neap_apart(now.allocated_bytes, model->peak_allocated_bytes) : 0,
			  model->unknown_bytes ? 2 * page_bytes : 0);
	if (way && now.fits) /* earlier steps have left memory that one step does not show */
		predictor.kept_back_bytes = neap_plus(predictor.kept_back_bytes,
						      neap_less(model->peak_reserved_bytes, now.reserved_bytes));
	advice->replayed = true;
	advice->two_splits = model->two_splits;
	advice->fixed_bytes = model->base_bytes;
	advice->uncertainty_bytes = predictor.kept_back_bytes;
	snprintf(advice->why, sizeof advice->why,
		 "a step of the recording, done again by %s at other micro-batches; what scales with them is %s",
		 way ? "the model of PyTorch's allocator" : "neap's allocator",
		 model->two_splits ? "known from two splits" : "what the micro-batch divides");
	conclude(advice, &predictor);
	free(predictor.ops);
}

struct extremes {
	uint64_t low, peak, reserved, steps;
};

/* Finds the lowest and highest bytes of the highest step between two instants, and the most that a step reserved. */
static struct extremes find_extremes(const struct neap_record *record, uint16_t device, uint64_t from_ns,
				     uint64_t until_ns)
{
	struct extremes extremes = {0};

	for (size_t i = 0; i < record->journal_count; i++) {
		const struct neap_event *event = &record->journal[i];
		const struct neap_event_step *step = neap_event_as_step(event);
		if (!step || event->device != device || event->time_ns <= from_ns || event->time_ns > until_ns ||
		    step->lowest_bytes > step->peak_bytes)
			continue;
		extremes.steps++;
		if (step->held.reserved_bytes > extremes.reserved)
			extremes.reserved = step->held.reserved_bytes;
		if (step->peak_bytes < extremes.peak)
			continue;
		extremes.peak = step->peak_bytes;
		extremes.low = step->lowest_bytes;
	}
	return extremes;
}

static void advise_by_line(struct neap_advice *advice, const struct neap_record *record,
			   const struct neap_last_settings *settings, uint64_t page_bytes)
{
	struct extremes now = find_extremes(record, settings->device, settings->since_ns, UINT64_MAX);
	struct extremes before =
		find_extremes(record, settings->device, settings->before_since_ns, settings->since_ns);
	struct predictor predictor = {.room_bytes = advice->room_bytes,
				      .page_bytes = page_bytes ? page_bytes : 2 * NEAP_MIB};
	double samples = (double)settings->split.micro_batch, more = (double)settings->before.micro_batch;

	if (!now.steps) {
		give_none(advice, "no step was done with the settings in force at the end");
		return;
	}
	predictor.line_fixed = (double)now.low;
	predictor.line_sample = (double)(now.peak - now.low) / samples;
	if (before.steps && more > samples && before.peak > now.peak) {
		advice->two_splits = true;
		predictor.line_sample = (double)(before.peak - now.peak) / (more - samples);
		predictor.line_fixed = fmax((double)now.peak - predictor.line_sample * samples, 0);
	}
	predictor.line_overhead = (double)neap_less(now.reserved, now.peak) / samples;
	advice->fixed_bytes = (uint64_t)predictor.line_fixed;
	advice->sample_bytes = (uint64_t)predictor.line_sample;
	snprintf(advice->why, sizeof advice->why,
		 "a straight line through the %s of the steps: no whole step was left in the recording",
		 advice->two_splits ? "peaks at two splits" : "lowest and highest bytes");
	conclude(advice, &predictor);
	if (advice->given && advice->uncertainty_bytes > advice->room_bytes / LINE_SHARE)
		give_none(advice, "no whole step was left in the recording, and the lowest and highest bytes of the "
				  "steps do not tell well enough what another micro-batch takes");
}

static const char *const sources[NEAP_BATCH_SOURCES] = {
	[NEAP_BATCH_UNKNOWN] = "nothing",
	[NEAP_BATCH_LOADER] = "the DataLoader's batch_size",
	[NEAP_BATCH_INPUTS] = "the first dimension of the model's inputs",
	[NEAP_BATCH_TRANSFORMERS] = "TrainingArguments.per_device_train_batch_size",
	[NEAP_BATCH_LIGHTNING] = "the batch_size of Lightning's DataLoader",
	[NEAP_BATCH_NAMED] = "NEAP_MICRO_BATCH",
};

static const char *source_name(uint32_t source) { return sources[source < NEAP_BATCH_SOURCES ? source : 0]; }

/* Whether the program's micro-batch is known, if no session reported it. */
static bool is_sure(const struct neap_last_settings *settings, struct neap_advice *advice)
{
	const struct neap_event_batch *batch = &settings->batch;

	if (!batch->micro_batch)
		give_none(advice,
			  "neap did not find the program's micro-batch: NEAP_MICRO_BATCH=N neap run ... names it");
	else if (batch->other_source)
		give_none(advice, "is the micro-batch %llu (%s) or %u (%s)? NEAP_MICRO_BATCH=N neap run ... names it",
			  (unsigned long long)batch->micro_batch, source_name(batch->source),
			  batch->other_micro_batch, source_name(batch->other_source));
	else
		return true;
	return false;
}

/* Advises for the device of these settings. */
static void advise(const struct neap_record *record, const struct neap_leak *leak, const struct neap_advice_way *way,
		   struct neap_last_settings *settings, struct neap_advice *ret_advice)
{
	struct neap_step_model model = {0}, first = {0};
	struct neap_advice advice = {0};
	uint64_t page_bytes = 0;

	settings->tags = way ? way->tags : NULL;
	if (neap_advice_of_failure(record, settings, &advice) || (settings->found && !is_sure(settings, &advice))) {
		/* the settings say why */
	} else if (settings->split.micro_batch >= MICRO_BATCH_MAX || !settings->split.accumulate) {
		give_none(&advice, "the recording's micro-batch makes no sense");
	} else if (leak->verdict == NEAP_LEAK_FOUND) {
		advice.split = settings->split;
		give_none(&advice,
			  "memory grows with the steps: what fits today does not fit later; mend the leak first");
	} else if (!find_headroom(record, settings->device, &advice.room_bytes, &page_bytes)) {
		advice.split = settings->split;
		advice.room_bytes = 0;
		give_none(&advice, "the recording does not say how much memory the process could have");
	} else {
		advice.split = settings->split;
		enum neap_status status = neap_step_model_make(record, settings, &model, NULL);
		bool begun = !status && way && !neap_step_model_first(record, settings, &first, NULL);
		if (!status)
			advise_by_replay(&advice, &model, begun ? &first : NULL, way, page_bytes);
		else if (status == NEAP_ENOMEM)
			give_none(&advice, "out of host memory while predicting");
		else
			advise_by_line(&advice, record, settings, page_bytes);
		neap_step_model_fini(&model);
		neap_step_model_fini(&first);
	}
	if (settings->found && settings->batch.source < NEAP_BATCH_SOURCES)
		advice.source = (enum neap_batch_source)settings->batch.source;
	if (settings->found && !settings->batch.accumulate) /* then the effective batch is not known */
		advice.kept_micro_batch = advice.kept_accumulate = advice.kept_headroom_bytes = 0;
	*ret_advice = advice;
}

/* Advises a process with several devices. */
static void advise_tightest(const struct neap_record *record, const struct neap_leak *leak,
			    const struct neap_advice_way *way, struct neap_advice *ret_advice)
{
	struct neap_last_settings settings;
	struct neap_advice best = {0}, advice;
	char place[32] = "";
	uint64_t seen = 0;
	size_t count = 0;

	for (size_t i = 0; i < record->journal_count; i++) {
		uint16_t device = record->journal[i].device;
		if (!neap_event_as_batch(&record->journal[i]) || device >= DEVICES_MAX || seen & 1ull << device)
			continue;
		seen |= 1ull << device;
		neap_found_settings(record, device, &settings);
		advise(record, leak, way, &settings, &advice);
		if (count++ && !neap_advice_tighter(&advice, &best))
			continue;
		best = advice;
		snprintf(place, sizeof place, "CUDA device %u", (unsigned)device);
	}
	neap_advice_place(&best, place, count);
	*ret_advice = best;
}

void neap_advice(const struct neap_record *record, const struct neap_leak *leak, const struct neap_advice_way *way,
		 struct neap_advice *ret_advice)
{
	struct neap_last_settings settings = {0};
	struct neap_advice advice = {0};

	if (!neap_last_settings(record, &settings))
		give_none(&advice, "no training session reported its micro-batch");
	else if (settings.found && settings.many_devices)
		advise_tightest(record, leak, way, &advice);
	else
		advise(record, leak, way, &settings, &advice);
	*ret_advice = advice;
}

/* Describes how much the advised micro-batch would reserve, and the headroom. */
static void describe_headroom(const struct neap_advice *advice, char *text, size_t capacity)
{
	char all[NEAP_UNITS_CAPACITY], taken[NEAP_UNITS_CAPACITY], left[NEAP_UNITS_CAPACITY],
		uncertainty[NEAP_UNITS_CAPACITY];

	neap_size_format(advice->room_bytes, all);
	neap_size_format(neap_less(advice->room_bytes, advice->headroom_bytes), taken);
	neap_size_format(advice->headroom_bytes, left);
	neap_size_format(advice->uncertainty_bytes, uncertainty);
	if (advice->uncertainty_bytes)
		snprintf(text, capacity,
			 "it would reserve %s of the %s that this process can have, headroom %s \u00b1 %s", taken,
			 all, left, uncertainty);
	else if (advice->headroom_bytes)
		snprintf(text, capacity, "it would reserve %s of the %s that this process can have, headroom %s",
			 taken, all, left);
	else
		snprintf(text, capacity, "it would reserve all of the %s that this process can have", all);
}

void neap_advice_text(const struct neap_advice *advice, char *text, size_t capacity)
{
	const struct neap_split *split = &advice->split;
	unsigned long long batch = times(neap_split_batch(split), split->ranks ? split->ranks : 1);
	const struct neap_split parts = {.micro_batch = advice->kept_micro_batch,
					 .accumulate = advice->kept_accumulate,
					 .batch = neap_split_batch(split)};
	char unequal[NEAP_SPLIT_ROOM];
	char kept[NEAP_UNITS_CAPACITY], taken[200], which[256] = "";

	if (!advice->given) {
		snprintf(text, capacity, "none: %s", advice->why);
		return;
	}
	if (advice->guessed) {
		snprintf(text, capacity,
			 "micro-batch %llu perhaps fits%s (now %llu, %s): memory ran out before the first whole "
			 "step, which "
			 "with it is predicted to take %s of the %s that this process can have",
			 (unsigned long long)advice->micro_batch, advice->where,
			 (unsigned long long)split->micro_batch, source_name(advice->source),
			 neap_size_format(neap_less(advice->room_bytes, advice->headroom_bytes), kept),
			 NEAP_SIZE(advice->room_bytes));
		return;
	}
	if (advice->kept_micro_batch && advice->kept_micro_batch == advice->micro_batch)
		snprintf(which, sizeof which, "; x accumulation %llu%s it keeps the effective batch of %llu",
			 (unsigned long long)advice->kept_accumulate, neap_split_unequal(&parts, " (", ")", unequal),
			 batch);
	else if (advice->kept_micro_batch)
		snprintf(which, sizeof which,
			 "; the effective batch of %llu is kept by %llu x accumulation %llu%s, headroom %s", batch,
			 (unsigned long long)advice->kept_micro_batch, (unsigned long long)advice->kept_accumulate,
			 neap_split_unequal(&parts, " (", ")", unequal),
			 neap_size_format(advice->kept_headroom_bytes, kept));
	describe_headroom(advice, taken, sizeof taken);
	snprintf(text, capacity, "micro-batch %llu is %s%s (now %llu%s%s): %s%s",
		 (unsigned long long)advice->micro_batch,
		 advice->bounded ? "predicted to fit, and these steps tell of none larger"
				 : "the largest predicted to fit",
		 advice->where, (unsigned long long)split->micro_batch, advice->source ? ", " : "",
		 advice->source ? source_name(advice->source) : "", taken, which);
}
