/* report/card.c: the OOM card as text: the request, the arithmetic, the cause, who holds the memory and which blocks
 * pin the rest, the settings in force, the fixes (card_help.c).
 *
 * Unknown figures have no line. No line is wider than 100 columns, whatever tags and texts the card has.
 */
#include "base/printable.h"
#include "base/units.h"
#include "report/cells.h"
#include "report/report.h"
#include "report/wrap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void line(struct neap_buffer *out, const char *what, uint64_t bytes, const char *note)
{
	neap_buffer_format(out, "    %-28s %10s%s%s\n", what, NEAP_SIZE(bytes), note[0] ? "  " : "", note);
}

/* Whether the largest free piece was measured. */
static bool known_pieces(const struct neap_oom_card *card) { return card->largest_free_bytes != NEAP_OOM_UNKNOWN; }

static const char *pool_name(enum neap_oom_pool pool)
{
	static const char *const names[] = {"another stream or pool", "the small pool", "the large pool"};
	return names[pool];
}

static uint64_t asked_bytes(const struct neap_oom_card *card)
{
	return card->block_bytes ? card->block_bytes : card->requested_bytes;
}

static void put_arithmetic(struct neap_buffer *out, const struct neap_oom_card *card)
{
	char note[96], size[NEAP_UNITS_CAPACITY];

	neap_buffer_format(out, "\n  The arithmetic (%s)\n",
			   card->predicted ? "predicted, by replay" : "measured when it failed");
	line(out, "allocated: live here", card->allocated_bytes, "");
	if (card->pending_bytes > 0)
		line(out, "freed, still in use", card->pending_bytes, "queued work has to end first");
	snprintf(note, sizeof note, "largest free piece %s", neap_size_format(card->largest_free_bytes, size));
	if (card->elsewhere_free_bytes > card->largest_free_bytes)
		snprintf(note, sizeof note, "largest free %sfor it %s, %s%s %s", card->elsewhere_pool ? "" : "piece ",
			 size, card->elsewhere_pool ? "in " : "",
			 card->elsewhere_pool ? pool_name(card->elsewhere_pool) : "elsewhere",
			 NEAP_SIZE(card->elsewhere_free_bytes));
	else if (card->largest_free_bytes >= card->block_bytes && card->block_bytes > 0)
		snprintf(note, sizeof note, "largest free piece %s, of %s", size, pool_name(card->elsewhere_pool));
	if (!known_pieces(card))
		note[0] = '\0';
	line(out, "cached: reserved, not live", card->cached_bytes, note);
	line(out, "reserved from the driver", card->reserved_bytes, "");
	if (card->others_bytes > 0 && card->others_bytes != NEAP_OOM_UNKNOWN)
		line(out, "others: the rest of its use", card->others_bytes, "other processes, contexts, the driver");
	snprintf(note, sizeof note, "by %llu process%s, asked for what %s only cached",
		 (unsigned long long)card->others_asked, card->others_asked == 1 ? "" : "es",
		 card->others_asked == 1 ? "it" : "they");
	if (card->others_asked > 0)
		line(out, "given back before it failed", card->others_freed_bytes, note);
	line(out, "free on the device", card->device_free_bytes, "");
	if (card->device_total_bytes > 0)
		line(out, "the device in all", card->device_total_bytes, "");
	if (card->limit_bytes != UINT64_MAX && card->limit_bytes > 0)
		line(out, "limit set on this process", card->limit_bytes, "");
	line(out, "asked for", asked_bytes(card), "");
	line(out, "missing", card->shortfall_bytes, "for this one request");
}

/* Says that a limit failed the request: enough bytes were free, but in no piece that the request could use. */
static void put_limited_pieces(struct neap_buffer *out, const struct neap_oom_card *card)
{
	bool useless = known_pieces(card) && card->largest_free_bytes >= card->block_bytes;

	neap_buffer_format(out, "the limit. Of the %s that this process may reserve no free piece",
			   NEAP_SIZE(card->limit_bytes));
	if (card->asked_pool && card->elsewhere_pool)
		neap_buffer_format(out, " of %s", pool_name(card->asked_pool));
	else if (useless)
		neap_buffer_text(out, " that it could use");
	neap_buffer_format(out, " holds the %s asked for", NEAP_SIZE(asked_bytes(card)));
	if (card->elsewhere_pool && card->elsewhere_free_bytes > card->largest_free_bytes)
		neap_buffer_format(out, ", and the largest, %s, belongs to %s", NEAP_SIZE(card->elsewhere_free_bytes),
				   pool_name(card->elsewhere_pool));
	else if (useless)
		neap_buffer_format(out, ": one of %s belongs to %s", NEAP_SIZE(card->largest_free_bytes),
				   pool_name(card->elsewhere_pool));
	neap_buffer_text(out, "; the device itself had room.");
}

static void put_limit(struct neap_buffer *out, const struct neap_oom_card *card)
{
	if (card->limit_bytes == UINT64_MAX) {
		neap_buffer_format(out,
				   "the limit. The device had %s free, enough for the %s asked for; a fraction set "
				   "on the process, or something like it, ",
				   NEAP_SIZE(card->device_free_bytes), NEAP_SIZE(asked_bytes(card)));
		if (card->reserved_bytes)
			neap_buffer_format(out, "allowed the %s reserved, but not this",
					   NEAP_SIZE(card->reserved_bytes));
		else
			neap_buffer_text(out, "refused it");
		neap_buffer_text(out, ". The error's text names the limit.");
	} else if (card->block_bytes <= card->limit_bytes &&
		   card->allocated_bytes <= card->limit_bytes - card->block_bytes) {
		put_limited_pieces(out, card);
	} else {
		neap_buffer_format(out,
				   "the limit. %s live and %s asked for are %s over the %s that this process may "
				   "reserve; the device itself had room.",
				   NEAP_SIZE(card->allocated_bytes), NEAP_SIZE(asked_bytes(card)),
				   NEAP_SIZE(card->shortfall_bytes), NEAP_SIZE(card->limit_bytes));
	}
}

/* Says that no batch is small enough. */
static void put_model_alone(struct neap_buffer *out, const struct neap_oom_card *card)
{
	const struct neap_event_oom_model *model = &card->model;
	uint64_t missing = card->need.model_bytes - card->room_bytes;

	neap_buffer_format(out,
			   "capacity. The model alone is too large for the %s that this process could have here: ",
			   NEAP_SIZE(card->room_bytes));
	if (model->optimizer_bytes == UINT64_MAX)
		neap_buffer_format(out,
				   "%s of parameters take %s with their gradients and the state of an optimizer such "
				   "as Adam, %s too much.",
				   NEAP_SIZE(model->parameter_bytes), NEAP_SIZE(card->need.model_bytes),
				   NEAP_SIZE(missing));
	else
		neap_buffer_format(out, "parameters %s, gradients %s and optimizer state %s are %s too much.",
				   NEAP_SIZE(model->parameter_bytes), NEAP_SIZE(model->gradient_bytes),
				   NEAP_SIZE(model->optimizer_bytes), NEAP_SIZE(missing));
	neap_buffer_text(out, " A smaller micro-batch, computing activations again or another setting of the "
			      "allocator does not help.");
}

/* Says what is too large, and by how much. */
static void put_capacity(struct neap_buffer *out, const struct neap_oom_card *card)
{
	uint64_t had = card->room_bytes;
	bool requested = card->source != NEAP_TRACE_RECORDING && card->live_requested_bytes != NEAP_OOM_UNKNOWN;
	uint64_t live = requested ? card->live_requested_bytes : card->allocated_bytes; /* as the shortfall counts */

	if (card->model_alone)
		put_model_alone(out, card);
	else if (had == 0 && card->allocated_bytes == 0)
		neap_buffer_text(out, "capacity. Nothing of the device was free, and this process held none of it: "
				      "others hold all of it, whom nvidia-smi names.");
	else if (card->block_bytes > had)
		neap_buffer_format(out,
				   "capacity. This one request, %s, is %s larger than all that this process could "
				   "have here, %s: whatever else is freed or set, the request has to become smaller.",
				   NEAP_SIZE(asked_bytes(card)), NEAP_SIZE(card->block_bytes - had), NEAP_SIZE(had));
	else if (card->other_allocator && live + card->block_bytes <= had) /* only with its events: oom_cause.c */
		neap_buffer_format(
			out,
			"capacity. %s live, %s cached in pieces that could not serve it and a segment for "
			"the %s asked for are %s more than the %s that this process could have here: "
			"unless a setting keeps the cache in larger pieces, something has to become smaller.",
			NEAP_SIZE(live), NEAP_SIZE(card->cached_bytes), NEAP_SIZE(asked_bytes(card)),
			NEAP_SIZE(card->shortfall_bytes), NEAP_SIZE(had));
	else
		neap_buffer_format(out,
				   "capacity. %s live and %s asked for are %s more than the %s that this process "
				   "could have here: something has to become smaller.",
				   NEAP_SIZE(live), NEAP_SIZE(asked_bytes(card)), NEAP_SIZE(card->shortfall_bytes),
				   NEAP_SIZE(had));
	if (card->others_bytes == NEAP_OOM_UNKNOWN && !card->predicted && had > 0)
		neap_buffer_text(out, " What others held of the device is not in the file: --memory with the size of "
				      "the device counts it.");
}

/* Says that enough bytes are free, but this request cannot use them. */
static void put_fragmentation(struct neap_buffer *out, const struct neap_oom_card *card)
{
	neap_buffer_format(out, "fragmentation. %s are cached, ", NEAP_SIZE(card->cached_bytes));
	if (!known_pieces(card))
		neap_buffer_format(out, "but not in one piece, and %s were asked for.", NEAP_SIZE(asked_bytes(card)));
	else if (card->largest_free_bytes >= card->block_bytes)
		neap_buffer_format(out,
				   "a piece of %s among them, but not where the %s asked for could use it: it "
				   "belongs to another stream or to another pool, such as that of a captured graph.",
				   NEAP_SIZE(card->largest_free_bytes), NEAP_SIZE(asked_bytes(card)));
	else if (card->elsewhere_free_bytes >= card->block_bytes)
		neap_buffer_format(out,
				   "but the largest free piece that the %s asked for could use has %s; one of %s "
				   "belongs to %s.",
				   NEAP_SIZE(asked_bytes(card)), NEAP_SIZE(card->largest_free_bytes),
				   NEAP_SIZE(card->elsewhere_free_bytes), pool_name(card->elsewhere_pool));
	else
		neap_buffer_format(out, "but the largest free piece has %s, and %s were asked for.",
				   NEAP_SIZE(card->largest_free_bytes), NEAP_SIZE(asked_bytes(card)));
	if (card->pools_free_bytes > card->block_bytes / 2)
		neap_buffer_format(out,
				   " %s lie free in private pools of captured graphs: they come back when those "
				   "graphs are dropped; graphs that never run at once can share one pool.",
				   NEAP_SIZE(card->pools_free_bytes));
}

void neap_report_oom_cause(struct neap_buffer *out, const struct neap_oom_card *card)
{
	struct neap_buffer text = {0};

	switch (card->cause) {
	case NEAP_OOM_CAPACITY:
		put_capacity(&text, card);
		break;
	case NEAP_OOM_LIMIT:
		put_limit(&text, card);
		break;
	case NEAP_OOM_NEIGHBOURS:
		neap_buffer_format(&text,
				   "neighbours. Others hold %s of this device; without them the %s asked for would "
				   "have fitted.",
				   NEAP_SIZE(card->others_bytes), NEAP_SIZE(asked_bytes(card)));
		break;
	case NEAP_OOM_FRAGMENTATION:
		put_fragmentation(&text, card);
		break;
	case NEAP_OOM_PENDING:
		neap_buffer_format(&text,
				   "queued work. %s are freed but still in use by work on streams; once it has "
				   "ended, the %s asked for fit.",
				   NEAP_SIZE(card->pending_bytes), NEAP_SIZE(asked_bytes(card)));
		break;
	}
	neap_buffer_text(out, "\n");
	neap_report_wrap(out, "  Cause: ", neap_buffer_string(&text));
	out->failed |= text.failed;
	neap_buffer_fini(&text);
}

/* "31.0 KiB", or "" if it is unknown. */
static const char *peak_text(uint64_t bytes, char text[NEAP_UNITS_CAPACITY])
{
	if (bytes == NEAP_OOM_UNKNOWN)
		text[0] = '\0';
	else
		neap_size_format(bytes, text);
	return text;
}

#define HOLDERS_SHOWN 10
/* A table with the title in its first line. */
static void put_tags(struct neap_buffer *out, const char *title, const struct neap_oom_tag *tags, size_t count)
{
	bool peaks = count > 0 && tags[0].peak_bytes != NEAP_OOM_UNKNOWN;
	char peak[NEAP_UNITS_CAPACITY], tag[NEAP_OOM_NAME_CAPACITY];
	uint64_t rest = 0;

	if (count == 0)
		return;
	neap_buffer_format(out, "\n  %-36s       live  %10s      blocks\n", title, peaks ? "peak" : "");
	for (size_t i = 0; i < count; i++) {
		if (i >= HOLDERS_SHOWN) {
			rest += tags[i].live_bytes;
			continue;
		}
		neap_printable(tag, sizeof tag, tags[i].tag[0] ? tags[i].tag : "(untagged)");
		size_t width = neap_report_width(tag, strlen(tag));
		if (width > 32) { /* a line of its own */
			neap_report_wrap(out, "    ", tag);
			tag[0] = '\0';
			width = 0;
		}
		neap_buffer_format(out, "    %s%*s %10s  %10s  %10" PRIu64 "\n", tag,
				   width < 32 ? (int)(32 - width) : 0, "", NEAP_SIZE(tags[i].live_bytes),
				   peak_text(tags[i].peak_bytes, peak), tags[i].live_blocks);
	}
	if (count > HOLDERS_SHOWN)
		neap_buffer_format(out, "    %-32s %10s\n", "others", NEAP_SIZE(rest));
}

/* Only if it is worth showing: a fiftieth of the reserved bytes. */
static void put_pins(struct neap_buffer *out, const struct neap_oom_card *card)
{
	const struct neap_fragments *found = &card->fragments;
	char text[480];
	char pin[NEAP_OOM_NAME_CAPACITY];

	if (!found->known || found->pinned < found->reserved / 50 || found->pinned == 0)
		return;
	neap_buffer_format(out, "\n  What pins free memory: %s in %zu segment%s, kept by live blocks\n",
			   NEAP_SIZE(found->pinned), found->pinned_segments, found->pinned_segments == 1 ? "" : "s");
	for (size_t i = 0; i < found->worst_count && i < NEAP_OOM_PINS; i++) {
		const struct neap_pinned_segment *segment = &found->worst[i];
		neap_printable(pin, sizeof pin, card->pins[i]);
		snprintf(text, sizeof text, "%s free of %s, by %" PRIu64 " block%s of %s%s%s, stream %u",
			 NEAP_SIZE(segment->pinned), NEAP_SIZE(segment->size), segment->live_blocks,
			 segment->live_blocks == 1 ? "" : "s", NEAP_SIZE(segment->live_bytes),
			 card->pins[i][0] ? ": " : "", pin, segment->stream);
		neap_report_wrap(out, "    ", text);
	}
}

static void put_split(struct neap_buffer *out, const struct neap_oom_card *card)
{
	const struct neap_split *before = &card->split, *after = &card->split_after;
	char unequal[NEAP_SPLIT_ROOM];

	if (before->micro_batch > 0)
		neap_buffer_format(out,
				   "\n  In force: micro-batch %" PRIu64 " x accumulation %" PRIu64
				   "%s x ranks %" PRIu64 " = effective batch %" PRIu64 "\n",
				   before->micro_batch, before->accumulate,
				   neap_split_unequal(before, " (", ")", unequal), before->ranks,
				   neap_split_batch(before) * before->ranks);
	for (int rung = NEAP_RUNG_EFFICIENT_ATTENTION; rung < NEAP_RUNG_STOP; rung++)
		if (card->rungs_active & (1u << rung))
			neap_buffer_format(out, "  In force: %s\n", neap_rung_name((enum neap_rung)rung));
	if (card->rung_taken == NEAP_RUNG_SPLIT && after->micro_batch > 0)
		neap_buffer_format(out,
				   "  Taken: the process continued with micro-batch %" PRIu64
				   " x accumulation %" PRIu64 "%s x ranks %" PRIu64 " = %" PRIu64 "\n",
				   after->micro_batch, after->accumulate,
				   neap_split_unequal(after, " (", ")", unequal), after->ranks,
				   neap_split_batch(after) * after->ranks);
	else if (card->rung_taken == NEAP_RUNG_STOP)
		neap_buffer_text(out, "  Taken: none was left; the process stopped\n");
	else if (card->rung_taken != NEAP_RUNG_NONE && card->rung_taken != NEAP_RUNG_SPLIT)
		neap_buffer_format(out, "  Taken: the process continued with %s\n", neap_rung_name(card->rung_taken));
}

/* Words for a request of unknown purpose. */
static const char *unnamed(const struct neap_oom_card *card)
{
	if (card->source == NEAP_TRACE_SNAPSHOT)
		return "a request without a stack";
	return card->source == NEAP_TRACE_RECORDING && !card->other_allocator ? "an untagged request" : "a request";
}

static void put_title(struct neap_buffer *out, const struct neap_oom_card *card)
{
	char nth[NEAP_UNITS_CAPACITY], asked[NEAP_UNITS_CAPACITY], block[NEAP_UNITS_CAPACITY],
		rounded[64] = "", text[480], where[96] = "", which[96] = "";

	neap_size_format(card->requested_bytes, asked);
	if (card->block_bytes > card->requested_bytes &&
	    strcmp(neap_size_format(card->block_bytes, block), asked) != 0)
		snprintf(rounded, sizeof rounded, " (%s rounded)", block);
	if (card->step > 0)
		snprintf(where, sizeof where, " in the %s step", neap_nth(card->step, nth));
	else if (card->source != NEAP_TRACE_RECORDING)
		snprintf(where, sizeof where, " at event %" PRIu64, card->event);
	else
		snprintf(where, sizeof where, " before any step ended,");
	if (card->count > 1)
		snprintf(which, sizeof which, " (number %" PRIu64 " of %" PRIu64 ")", card->number, card->count);
	snprintf(text, sizeof text, "%s%s for %s%s%s%s on CUDA device %" PRIu32 "%s", asked, rounded,
		 card->tag[0] ? "\"" : "", card->tag[0] ? card->tag : unnamed(card), card->tag[0] ? "\"" : "", where,
		 card->device, which);
	neap_report_wrap(out, card->predicted ? "Would run out of device memory: " : "Out of device memory: ", text);
}

static void put_leak(struct neap_buffer *out, const struct neap_oom_card *card)
{
	const struct neap_oom_leak *leak = &card->leak;
	char text[480], holder[NEAP_OOM_NAME_CAPACITY], line[NEAP_OOM_NAME_CAPACITY + 64] = "";
	char first[NEAP_UNITS_CAPACITY], last[NEAP_UNITS_CAPACITY];

	if (!card->growth_bytes)
		return;
	neap_printable(holder, sizeof holder, leak->holder);
	if (holder[0])
		snprintf(line, sizeof line, " %s keeps %s more after each step.", holder,
			 NEAP_SIZE(leak->holder_bytes));
	snprintf(text, sizeof text,
		 "since the %s step memory grew by %s per step, %s in all.%s At that rate it had to end in the %s "
		 "step.",
		 neap_nth(leak->since_step, first), NEAP_SIZE(card->growth_bytes), NEAP_SIZE(leak->bytes), line,
		 neap_nth(leak->ends_step + 1, last));
	neap_report_wrap(out, "  A leak: ", text);
}

static void put_left(struct neap_buffer *out, const struct neap_oom_card *card)
{
	char text[320];

	if (!card->left_bytes)
		return;
	snprintf(text, sizeof text,
		 "%s of forwards that ran out of memory before are still held. An exception that is kept "
		 "keeps the tensors of its frames: leave the except block, and drop the exception, before going on.",
		 NEAP_SIZE(card->left_bytes));
	neap_report_wrap(out, "  Left over: ", text);
}

void neap_report_oom_card(struct neap_buffer *out, const struct neap_oom_card *card)
{
	put_title(out, card);
	put_leak(out, card);
	put_left(out, card);
	put_arithmetic(out, card);
	neap_report_oom_cause(out, card);
	put_tags(out, "What it is for (by line, lifetime)", card->purposes, card->purpose_count);
	put_tags(out, "Who holds it (measured)", card->tags,
		 card->tag_count < NEAP_OOM_TAGS ? card->tag_count : NEAP_OOM_TAGS);
	put_pins(out, card);
	put_split(out, card);
	neap_report_oom_help(out, card);
}
