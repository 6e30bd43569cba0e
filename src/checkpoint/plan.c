/* checkpoint/plan.c: decides which checkpoints stay and which go. Pure: facts in, reasons out.
 *
 *   goes  =  a delete rule applies  and  no keep rule applies
 *
 * Each rule only adds its reason, and the verdict comes last, so no rule depends on another. The exception are the
 * limits of number and size: they drop the oldest checkpoints that no keep rule holds until the rest fits. If that is
 * not enough, they drop the worst of the best N.
 */
#include "checkpoint/scan.h"

#include "base/error.h"
#include "base/units.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_ALL  0x0000FFFFu
#define KEEP_SURE 0x00008000u /* while deciding: among the newest keep_last */
#define DROP_ALL  0xFFFF0000u
#define DAY_NS    (UINT64_C(86400) * 1000000000)

void neap_retention_defaults(struct neap_retention_options *ret_options)
{
	*ret_options = (struct neap_retention_options){.keep_best = 5,
						       .newest_for_best = true,
						       .best_yields = true,
						       .older_than_ns = 7 * DAY_NS,
						       .grace_ns = 600ull * 1000000000ull,
						       .trash_ns = DAY_NS};
}

/* Entries with these facts stay in any case. They are often copies or not whole, so they are not ranked: among the
 * best or the newest they would take a checkpoint's place. */
#define UNRANKED                                                                                                     \
	(NEAP_CHECKPOINT_NAMED | NEAP_CHECKPOINT_UNNUMBERED | NEAP_CHECKPOINT_UNREADABLE | NEAP_CHECKPOINT_HALF)

/* --- orders: each is total, since names differ --- */

static int compare_u64(uint64_t a, uint64_t b) { return (a > b) - (a < b); }

static const struct neap_retention_entry *at(const void *pointer)
{
	return *(const struct neap_retention_entry *const *)pointer;
}

/* Higher first, unknown last. */
static int compare_steps(const struct neap_retention_entry *a, const struct neap_retention_entry *b)
{
	int order = (a->step == NEAP_STEP_UNKNOWN) - (b->step == NEAP_STEP_UNKNOWN);

	return order ? order : compare_u64(b->step, a->step);
}

static int newest_by_time(const void *left, const void *right)
{
	const struct neap_retention_entry *a = at(left), *b = at(right);
	int order = compare_u64(b->modified_ns, a->modified_ns);

	if (!order)
		order = compare_steps(a, b);
	return order ? order : strcmp(b->name, a->name);
}

static int newest_by_step(const void *left, const void *right)
{
	int order = compare_steps(at(left), at(right));

	return order ? order : newest_by_time(left, right);
}

/* Of two equally good checkpoints, prefers the one that the trainer recorded as the best. */
static int recorded_first(const void *left, const void *right)
{
	const struct neap_retention_entry *a = at(left), *b = at(right);
	int order = !(a->facts & NEAP_CHECKPOINT_RECORDED) - !(b->facts & NEAP_CHECKPOINT_RECORDED);

	return order ? order : newest_by_time(left, right);
}

static int lowest_first(const void *left, const void *right)
{
	const struct neap_retention_entry *a = at(left), *b = at(right);
	int order = (a->metric > b->metric) - (a->metric < b->metric);

	return order ? order : recorded_first(left, right);
}

static int highest_first(const void *left, const void *right)
{
	const struct neap_retention_entry *a = at(left), *b = at(right);
	int order = (a->metric < b->metric) - (a->metric > b->metric);

	return order ? order : recorded_first(left, right);
}

static int show_order(const void *left, const void *right)
{
	const struct neap_retention_entry *a = left, *b = right;

	return newest_by_time(&a, &b);
}

/* --- rules --- */

static void hold_by_facts(struct neap_retention_entry *entry, const struct neap_retention_options *options,
			  uint64_t now_ns)
{
	static const struct {
		uint32_t fact, reason;
	} table[] = {
		{NEAP_CHECKPOINT_PINNED, NEAP_KEEP_PINNED},         {NEAP_CHECKPOINT_RESUME, NEAP_KEEP_RESUME},
		{NEAP_CHECKPOINT_NAMED, NEAP_KEEP_NAMED},           {NEAP_CHECKPOINT_OPEN, NEAP_KEEP_OPEN},
		{NEAP_CHECKPOINT_UNREADABLE, NEAP_KEEP_UNREADABLE}, {NEAP_CHECKPOINT_ELSEWHERE, NEAP_KEEP_ELSEWHERE},
		{NEAP_CHECKPOINT_UNNUMBERED, NEAP_KEEP_UNNUMBERED}, {NEAP_CHECKPOINT_HALF, NEAP_KEEP_HALF},
	};

	entry->reasons = 0;
	entry->best_rank = 0;
	entry->drop = false;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (entry->facts & table[i].fact)
			entry->reasons |= table[i].reason;
	if (options->keep_best && (entry->facts & NEAP_CHECKPOINT_RECORDED))
		entry->reasons |= NEAP_KEEP_RECORDED;
	if (entry->modified_ns > now_ns || now_ns - entry->modified_ns < options->grace_ns)
		entry->reasons |= NEAP_KEEP_YOUNG;
	if (options->keep_every_steps && entry->step != NEAP_STEP_UNKNOWN &&
	    entry->step % options->keep_every_steps == 0)
		entry->reasons |= NEAP_KEEP_EVERY;
}

/* Keeps the newest, and the newest N if asked. Does so by step and by time, since either may be wrong. */
static void hold_newest(struct neap_retention_plan *plan, const struct neap_retention_options *options,
			struct neap_retention_entry **order, size_t count)
{
	int (*const orders[])(const void *, const void *) = {newest_by_step, newest_by_time};
	uint64_t replace = plan->newest_for_best ? options->keep_best : 0;
	uint64_t most = options->keep_last > replace ? options->keep_last : replace;
	const struct neap_retention_entry *first = NULL;

	plan->order_disagrees = false;
	for (size_t pass = 0; pass < 2 && count > 0; pass++) {
		qsort(order, count, sizeof(struct neap_retention_entry *), orders[pass]);
		for (size_t i = 0; i < count && i < most; i++)
			order[i]->reasons |= NEAP_KEEP_LAST | (i < options->keep_last ? KEEP_SURE : 0);
		order[0]->reasons |= NEAP_KEEP_NEWEST;
		if (pass == 1)
			plan->order_disagrees = first->step != NEAP_STEP_UNKNOWN && first != order[0] &&
						order[0]->step != NEAP_STEP_UNKNOWN && first->step != order[0]->step;
		first = order[0];
	}
}

/* Keeps the best N. NaN and infinities, of runs that diverged, count as measured but are never among the best. */
static enum neap_status hold_best(struct neap_retention_plan *plan, const struct neap_retention_options *options,
				  struct neap_retention_entry **order, size_t count, struct neap_error *err)
{
	size_t measured = 0, finite = 0;

	for (size_t i = 0; i < count; i++)
		measured += (order[i]->facts & NEAP_CHECKPOINT_MEASURED) != 0;
	plan->newest_for_best = measured == 0 && options->newest_for_best;
	if (!options->keep_best || count == 0 || plan->newest_for_best)
		return NEAP_OK;
	if (measured == 0 && plan->metric[0])
		return neap_fail(err, NEAP_EINVAL, "no checkpoint in %.120s has the metric %s: the best is unknown",
				 plan->folder, plan->metric);
	if (measured == 0)
		return neap_fail(err, NEAP_EINVAL,
				 "no checkpoint in %.120s has a well-known metric in its name or beside it: the best "
				 "is unknown; name the metric",
				 plan->folder);
	if (plan->mode == NEAP_METRIC_MODE_UNKNOWN)
		return neap_fail(err, NEAP_EINVAL,
				 "whether a low or a high %s is better is not known: say min or max", plan->metric);
	for (size_t i = 0; i < count; i++) {
		struct neap_retention_entry *entry = order[i];
		if (!(entry->facts & NEAP_CHECKPOINT_MEASURED) || !isfinite(entry->metric))
			continue;
		order[i] = order[finite];
		order[finite++] = entry;
	}
	if (finite == 0)
		return neap_fail(err, NEAP_EINVAL, "every %s in %.120s is NaN or infinite: the best is unknown",
				 plan->metric, plan->folder);
	qsort(order, finite, sizeof(struct neap_retention_entry *),
	      plan->mode == NEAP_METRIC_MIN ? lowest_first : highest_first);
	for (size_t i = 0; i < finite && i < options->keep_best; i++) {
		order[i]->reasons |= NEAP_KEEP_BEST;
		order[i]->best_rank = i < UINT32_MAX ? (uint32_t)i + 1 : UINT32_MAX;
	}
	return NEAP_OK;
}

static bool goes(const struct neap_retention_entry *entry)
{
	return (entry->reasons & DROP_ALL) && !(entry->reasons & KEEP_ALL);
}

static void drop_by_age(struct neap_retention_entry *entry, const struct neap_retention_options *options,
			uint64_t now_ns)
{
	uint64_t age_ns = now_ns > entry->modified_ns ? now_ns - entry->modified_ns : 0;

	if (options->delete_rest)
		entry->reasons |= NEAP_DROP_REST;
	if (options->older_than_ns && age_ns > options->older_than_ns)
		entry->reasons |= NEAP_DROP_OLD;
}

/* What remains: the number of ranked checkpoints, and the bytes of all. */
struct left {
	uint64_t count, bytes;
};

/* The limits that the remaining checkpoints exceed. */
static uint32_t exceeded(const struct left *left, const struct neap_retention_options *options)
{
	return (options->max_checkpoints && left->count > options->max_checkpoints ? NEAP_DROP_COUNT : 0u) |
	       (options->max_total_bytes && left->bytes > options->max_total_bytes ? NEAP_DROP_SIZE : 0u);
}

static void leave_out(struct left *left, const struct neap_retention_entry *entry)
{
	left->count -= !(entry->facts & UNRANKED);
	left->bytes -= entry->bytes;
}

/* Whether only the rule for the best N keeps it, and it is not the very best. */
static bool may_yield(const struct neap_retention_entry *entry)
{
	return !goes(entry) && entry->best_rank != 1 && (entry->reasons & (NEAP_KEEP_BEST | NEAP_KEEP_LAST)) &&
	       !(entry->reasons & KEEP_ALL & ~(NEAP_KEEP_BEST | NEAP_KEEP_LAST));
}

/* The worst first; the oldest first if there is no rank. */
static int worst_first(const void *left, const void *right)
{
	const struct neap_retention_entry *a = at(left), *b = at(right);

	return a->best_rank != b->best_rank ? (a->best_rank < b->best_rank ? 1 : -1) : newest_by_time(right, left);
}

/* Drops checkpoints until number and size are within their limits. */
static void drop_by_limits(struct neap_retention_plan *plan, const struct neap_retention_options *options,
			   struct neap_retention_entry **order, size_t count)
{
	struct left left = {0};
	uint32_t over;

	for (size_t i = 0; i < count; i++) {
		left.count += !goes(order[i]) && !(order[i]->facts & UNRANKED);
		left.bytes += goes(order[i]) ? 0 : order[i]->bytes;
	}
	plan->over_count = plan->over_bytes = 0;
	if (!exceeded(&left, options))
		return;
	qsort(order, count, sizeof(struct neap_retention_entry *), newest_by_time);
	for (size_t i = count; i-- > 0 && (over = exceeded(&left, options));) {
		if (goes(order[i]) || (order[i]->reasons & KEEP_ALL))
			continue;
		order[i]->reasons |= over;
		leave_out(&left, order[i]);
	}
	qsort(order, count, sizeof(struct neap_retention_entry *), worst_first);
	for (size_t i = 0; i < count && options->best_yields && (over = exceeded(&left, options)); i++) {
		if (!may_yield(order[i]))
			continue;
		order[i]->reasons &= ~(uint32_t)(NEAP_KEEP_BEST | NEAP_KEEP_LAST);
		order[i]->reasons |= over;
		order[i]->best_rank = 0;
		leave_out(&left, order[i]);
	}
	over = exceeded(&left, options);
	if (over & NEAP_DROP_COUNT)
		plan->over_count = left.count - options->max_checkpoints;
	if (over & NEAP_DROP_SIZE)
		plan->over_bytes = left.bytes - options->max_total_bytes;
}

static void drop_unfinished(struct neap_retention_entry *entry, const struct neap_retention_options *options,
			    uint64_t now_ns)
{
	bool any_rule = options->older_than_ns || options->max_checkpoints || options->max_total_bytes ||
			options->delete_rest;

	if (any_rule && now_ns > entry->modified_ns && now_ns - entry->modified_ns > CHECKPOINT_UNFINISHED_NS)
		entry->reasons |= entry->facts & NEAP_CHECKPOINT_UNFINISHED ? NEAP_DROP_UNFINISHED : NEAP_DROP_TORN;
}

static void take_verdicts(struct neap_retention_plan *plan)
{
	plan->keep_count = plan->drop_count = 0;
	plan->keep_bytes = plan->drop_bytes = plan->freed_bytes = 0;
	for (size_t i = 0; i < plan->count; i++) {
		struct neap_retention_entry *entry = &plan->entries[i];

		entry->reasons &= ~KEEP_SURE;
		entry->drop = goes(entry);
		if (entry->drop) {
			plan->drop_count++;
			plan->drop_bytes += entry->bytes;
			plan->freed_bytes += entry->freed_bytes;
		} else if (!(entry->facts & NEAP_CHECKPOINT_UNFINISHED)) {
			plan->keep_count++;
			plan->keep_bytes += entry->bytes;
		}
	}
}

/* The facts of entries that keep rules do not count: temporary and torn ones. If no entry is whole, torn ones count
 * as any other: they are all there is, or the check is wrong. */
static uint32_t uncounted(const struct neap_retention_plan *plan)
{
	const uint32_t not_whole = NEAP_CHECKPOINT_UNFINISHED | NEAP_CHECKPOINT_TORN;

	for (size_t i = 0; i < plan->count; i++)
		if (!(plan->entries[i].facts & (not_whole | UNRANKED)))
			return not_whole;
	return NEAP_CHECKPOINT_UNFINISHED;
}

enum neap_status neap_retention_decide(struct neap_retention_plan *plan, const struct neap_retention_options *options,
				       uint64_t now_ns, struct neap_error *err)
{
	struct neap_retention_entry **order = calloc(plan->count + 1, sizeof(struct neap_retention_entry *));
	size_t count = 0, ranked = 0;

	if (!order)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory to plan for %.120s", plan->folder);
	qsort(plan->entries, plan->count, sizeof *plan->entries, show_order);
	plan->made_ns = now_ns;
	const uint32_t left_out = uncounted(plan);
	for (size_t i = 0; i < plan->count; i++) {
		hold_by_facts(&plan->entries[i], options, now_ns);
		if (plan->entries[i].facts & left_out)
			drop_unfinished(&plan->entries[i], options, now_ns);
		else if (!(plan->entries[i].facts & UNRANKED))
			order[ranked++] = &plan->entries[i];
	}
	count = ranked;
	for (size_t i = 0; i < plan->count; i++)
		if (!(plan->entries[i].facts & left_out) && (plan->entries[i].facts & UNRANKED))
			order[count++] = &plan->entries[i];
	enum neap_status status = hold_best(plan, options, order, ranked, err);
	if (!status) {
		hold_newest(plan, options, order, ranked);
		for (size_t i = 0; i < count; i++)
			drop_by_age(order[i], options, now_ns);
		drop_by_limits(plan, options, order, count);
		take_verdicts(plan);
	}
	free(order);
	return status;
}

void neap_retention_plan_fini(struct neap_retention_plan *plan)
{
	if (!plan)
		return;
	for (size_t i = 0; i < plan->count; i++) {
		for (size_t k = 0; k < plan->entries[i].part_count; k++)
			free(plan->entries[i].parts[k].name);
		free(plan->entries[i].parts);
		free((char *)plan->entries[i].name);
	}
	free(plan->entries);
	free(plan->folder);
	*plan = (struct neap_retention_plan){0};
}

/* --- words --- */

/* "7 days", "1 day"; below a day as base/units.h writes it. */
static const char *format_age(uint64_t ns, char text[NEAP_UNITS_CAPACITY])
{
	if (ns < DAY_NS)
		return neap_duration_format(ns, text);
	snprintf(text, NEAP_UNITS_CAPACITY, "%" PRIu64 " day%s", ns / DAY_NS, ns / DAY_NS == 1 ? "" : "s");
	return text;
}

static void add(char *text, size_t capacity, const char *format, ...) NEAP_PRINTF(3, 4);
static void add(char *text, size_t capacity, const char *format, ...)
{
	size_t used = strlen(text);
	va_list args;

	if (used > 0 && used + 2 < capacity) {
		strcpy(text + used, ", ");
		used += 2;
	}
	va_start(args, format);
	vsnprintf(text + used, capacity - used, format, args);
	va_end(args);
}

static void add_keeps(const struct neap_retention_plan *plan, const struct neap_retention_options *options,
		      const struct neap_retention_entry *entry, char *text, size_t capacity)
{
	static const struct {
		uint32_t reason;
		const char *text;
	} table[] = {{NEAP_KEEP_RECORDED, "its trainer's best"},
		     {NEAP_KEEP_NEWEST, "newest"},
		     {NEAP_KEEP_PINNED, "pinned"},
		     {NEAP_KEEP_RESUME, "resumed from"},
		     {NEAP_KEEP_OPEN, "open in a process"},
		     {NEAP_KEEP_NAMED, "named so by its trainer"},
		     {NEAP_KEEP_UNNUMBERED, "neither step nor metric: it may be no checkpoint"},
		     {NEAP_KEEP_HALF, "half of a checkpoint: its model is not here"},
		     {NEAP_KEEP_UNREADABLE, "part of it cannot be read"},
		     {NEAP_KEEP_ELSEWHERE, "on another file system"},
		     {NEAP_KEEP_YOUNG, "too young"}};
	uint64_t last = plan->newest_for_best && options->keep_best > options->keep_last ? options->keep_best
											 : options->keep_last;

	if (entry->reasons & NEAP_KEEP_BEST)
		add(text, capacity, "best %u: %s %.6g", entry->best_rank, plan->metric, entry->metric);
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (entry->reasons & table[i].reason)
			add(text, capacity, "%s", table[i].text);
	if ((entry->reasons & NEAP_KEEP_LAST) && !(entry->reasons & NEAP_KEEP_NEWEST))
		add(text, capacity, "among the newest %" PRIu64, last);
	if (entry->reasons & NEAP_KEEP_EVERY)
		add(text, capacity, "step %" PRIu64 ", every %" PRIu64, entry->step, options->keep_every_steps);
}

const char *neap_retention_reason_text(const struct neap_retention_plan *plan,
				       const struct neap_retention_options *options, size_t index, char *text,
				       size_t capacity)
{
	const struct neap_retention_entry *entry = &plan->entries[index];
	char age[NEAP_UNITS_CAPACITY], limit[NEAP_UNITS_CAPACITY];
	uint64_t age_ns = plan->made_ns > entry->modified_ns ? plan->made_ns - entry->modified_ns : 0;

	if (capacity == 0)
		return text;
	text[0] = '\0';
	if (!entry->drop) {
		add_keeps(plan, options, entry, text, capacity);
		if (entry->torn && (entry->facts & NEAP_CHECKPOINT_TORN))
			add(text, capacity, "torn: %s", entry->torn);
		if (!text[0])
			add(text, capacity, "%s",
			    entry->facts & NEAP_CHECKPOINT_UNFINISHED ? "being written" : "not due");
		return text;
	}
	if (entry->reasons & NEAP_DROP_TORN)
		add(text, capacity, "torn: %s", entry->torn ? entry->torn : "it is not whole");
	if (entry->reasons & NEAP_DROP_UNFINISHED)
		add(text, capacity, "left by a save that was killed");
	if (entry->reasons & NEAP_DROP_OLD)
		add(text, capacity, "older than %s: %s", format_age(options->older_than_ns, limit),
		    format_age(age_ns, age));
	if (entry->reasons & NEAP_DROP_COUNT)
		add(text, capacity, "more than %" PRIu64, options->max_checkpoints);
	if (entry->reasons & NEAP_DROP_SIZE)
		add(text, capacity, "more than %s in all", neap_size_format(options->max_total_bytes, limit));
	if (entry->reasons == NEAP_DROP_REST)
		add(text, capacity, "no rule keeps it");
	if ((entry->facts & NEAP_CHECKPOINT_MEASURED) && plan->metric[0])
		add(text, capacity, "%s %.6g", plan->metric, entry->metric);
	return text;
}
