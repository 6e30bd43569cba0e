/* report/card.c: the OOM card as text.
 *
 *   what was asked, for what, when
 *   the arithmetic: the device's bytes, line by line, and what is missing
 *   the cause, in one sentence with its figures
 *   who holds the memory
 *   what would help: predicted savings, the cheapest sufficient first; what is on already is marked so
 *
 * No line is wider than 100 columns, whatever the tags and texts in the card are.
 */
#include "base/units.h"
#include "report/cells.h"
#include "report/report.h"
#include "report/wrap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void line(struct neap_buffer *out, const char *what, uint64_t bytes, const char *note)
{
	char size[NEAP_UNITS_ROOM];

	neap_buffer_format(out, "    %-28s %10s%s%s\n", what, neap_size_format(bytes, size), note[0] ? "  " : "",
			   note);
}

static void put_arithmetic(struct neap_buffer *out, const struct neap_oom_card *card)
{
	char note[96], size[NEAP_UNITS_ROOM];

	neap_buffer_text(out, "\n  The arithmetic (measured when it failed)\n");
	line(out, "allocated: live here", card->allocated_bytes, "");
	if (card->pending_bytes > 0)
		line(out, "freed, still in use", card->pending_bytes, "queued work has to end first");
	snprintf(note, sizeof(note), "largest free piece %s", neap_size_format(card->largest_free_bytes, size));
	line(out, "cached: reserved, not live", card->cached_bytes, note);
	line(out, "reserved from the driver", card->reserved_bytes, "");
	if (card->others_bytes > 0)
		line(out, "others: the rest of its use", card->others_bytes, "other processes, contexts, the driver");
	line(out, "free on the device", card->device_free_bytes, "");
	line(out, "the device in all", card->device_total_bytes, "");
	if (card->limit_bytes != UINT64_MAX && card->limit_bytes > 0)
		line(out, "limit set on this process", card->limit_bytes, "");
	line(out, "asked for", card->block_bytes ? card->block_bytes : card->requested_bytes, "");
	line(out, "missing", card->shortfall_bytes, "for this one request");
}

static void put_cause(struct neap_buffer *out, const struct neap_oom_card *card)
{
	char asked[NEAP_UNITS_ROOM], live[NEAP_UNITS_ROOM], missing[NEAP_UNITS_ROOM], other[NEAP_UNITS_ROOM];
	char text[512] = "";

	neap_size_format(card->block_bytes ? card->block_bytes : card->requested_bytes, asked);
	neap_size_format(card->allocated_bytes, live);
	neap_size_format(card->shortfall_bytes, missing);
	switch (card->cause) {
	case NEAP_OOM_CAPACITY:
		snprintf(text, sizeof(text),
			 "capacity. %s live and %s asked for are %s more than this device can hold: something has to "
			 "become "
			 "smaller.",
			 live, asked, missing);
		break;
	case NEAP_OOM_LIMIT:
		neap_size_format(card->limit_bytes, other);
		if (card->block_bytes <= card->limit_bytes &&
		    card->allocated_bytes <= card->limit_bytes - card->block_bytes)
			snprintf(
				text, sizeof(text),
				"the limit. Of the %s that this process may reserve no free piece holds the %s asked "
				"for; the device itself had room.",
				other, asked);
		else
			snprintf(text, sizeof(text),
				 "the limit. %s live and %s asked for are %s over the %s that this process may "
				 "reserve; the device itself had room.",
				 live, asked, missing, other);
		break;
	case NEAP_OOM_NEIGHBOURS:
		snprintf(
			text, sizeof(text),
			"neighbours. Others hold %s of this device; without them the %s asked for would have fitted.",
			neap_size_format(card->others_bytes, other), asked);
		break;
	case NEAP_OOM_FRAGMENTATION:
		snprintf(text, sizeof(text),
			 "fragmentation. %s are cached, but the largest free piece has %s, and %s were asked for.",
			 neap_size_format(card->cached_bytes, other),
			 neap_size_format(card->largest_free_bytes, live), asked);
		break;
	case NEAP_OOM_PENDING:
		snprintf(text, sizeof(text),
			 "queued work. %s are freed but still in use by work on streams; once it has ended, the %s "
			 "asked for "
			 "fit.",
			 neap_size_format(card->pending_bytes, other), asked);
		break;
	}
	neap_buffer_text(out, "\n");
	neap_report_wrap(out, "  Cause: ", text);
}

static void put_holders(struct neap_buffer *out, const struct neap_oom_card *card)
{
	size_t count = card->tag_count < NEAP_OOM_TAGS ? card->tag_count : NEAP_OOM_TAGS;
	char live[NEAP_UNITS_ROOM], peak[NEAP_UNITS_ROOM], tag[NEAP_RECORD_NAME_ROOM];

	if (count == 0)
		return;
	neap_buffer_text(out, "\n  Who holds it (measured)                    live        peak      blocks\n");
	for (size_t i = 0; i < count; i++) {
		neap_report_clean(tag, sizeof(tag), card->tags[i].tag[0] ? card->tags[i].tag : "(untagged)");
		size_t width = neap_report_width(tag, strlen(tag));
		neap_buffer_format(out, "    %s%*s %10s  %10s  %10" PRIu64 "\n", tag,
				   width < 32 ? (int)(32 - width) : 0, "",
				   neap_size_format(card->tags[i].live_bytes, live),
				   neap_size_format(card->tags[i].peak_bytes, peak), card->tags[i].live_blocks);
	}
}

/* The whole interval decides: its middle alone would claim more than is known. */
static const char *enough(const struct neap_fix *fix, uint64_t shortfall_bytes)
{
	uint64_t saving = fix->saving_bytes, half = fix->uncertainty_bytes;

	if (saving > half && saving - half >= shortfall_bytes)
		return "enough for this request";
	if (saving >= shortfall_bytes)
		return "probably enough for this request";
	return half >= shortfall_bytes - saving ? "perhaps enough for this request" : "not enough alone";
}

static void put_fix(struct neap_buffer *out, const struct neap_fix *fix, uint64_t shortfall_bytes, size_t number)
{
	char saving[NEAP_UNITS_ROOM], half[NEAP_UNITS_ROOM], first[16], interval[NEAP_UNITS_ROOM + 8] = "", text[640];

	if (fix->active_already) {
		snprintf(text, sizeof(text), "%s (on already: nothing more to gain)", fix->text);
		neap_report_wrap(out, "    -  ", text);
		return;
	}
	snprintf(first, sizeof(first), "    %zu. ", number);
	neap_report_wrap(out, first, fix->text);
	if (fix->uncertainty_bytes > 0)
		snprintf(interval, sizeof(interval), " ± %s", neap_size_format(fix->uncertainty_bytes, half));
	if (fix->saving_bytes > 0)
		snprintf(text, sizeof(text), "predicted to save %s%s, %s; %s",
			 neap_size_format(fix->saving_bytes, saving), interval, enough(fix, shortfall_bytes),
			 fix->how);
	else
		snprintf(text, sizeof(text), "saving not predicted: %s", fix->how);
	neap_report_wrap(out, "       ", text);
}

static void put_fixes(struct neap_buffer *out, const struct neap_oom_card *card)
{
	size_t count = card->fix_count < NEAP_OOM_FIXES ? card->fix_count : NEAP_OOM_FIXES;
	size_t number = 1;

	if (count == 0)
		return;
	neap_buffer_text(out, "\n  What would help (predicted)\n");
	for (size_t i = 0; i < count; i++)
		if (!card->fixes[i].active_already)
			put_fix(out, &card->fixes[i], card->shortfall_bytes, number++);
	for (size_t i = 0; i < count; i++)
		if (card->fixes[i].active_already)
			put_fix(out, &card->fixes[i], card->shortfall_bytes, 0);
}

static void put_split(struct neap_buffer *out, const struct neap_oom_card *card)
{
	const struct neap_split *before = &card->split, *after = &card->split_after;

	if (before->micro_batch > 0)
		neap_buffer_format(out,
				   "\n  In force: micro-batch %" PRIu64 " x accumulation %" PRIu64 " x ranks %" PRIu64
				   " = effective batch %" PRIu64 "\n",
				   before->micro_batch, before->accumulate, before->ranks,
				   before->micro_batch * before->accumulate * before->ranks);
	for (int rung = NEAP_RUNG_EFFICIENT_ATTENTION; rung < NEAP_RUNG_STOP; rung++)
		if (card->rungs_active & (1u << rung))
			neap_buffer_format(out, "  In force: %s\n", neap_rung_name((enum neap_rung)rung));
	if (card->rung_taken == NEAP_RUNG_SPLIT && after->micro_batch > 0)
		neap_buffer_format(out,
				   "  Taken: the process went on with micro-batch %" PRIu64 " x accumulation %" PRIu64
				   " x ranks %" PRIu64 " = %" PRIu64 "\n",
				   after->micro_batch, after->accumulate, after->ranks,
				   after->micro_batch * after->accumulate * after->ranks);
	else if (card->rung_taken == NEAP_RUNG_STOP)
		neap_buffer_text(out, "  Taken: none was left; the process stopped\n");
	else if (card->rung_taken != NEAP_RUNG_NONE && card->rung_taken != NEAP_RUNG_SPLIT)
		neap_buffer_format(out, "  Taken: the process went on with %s\n", neap_rung_name(card->rung_taken));
}

void neap_report_oom_card(struct neap_buffer *out, const struct neap_oom_card *card)
{
	char asked[NEAP_UNITS_ROOM], block[NEAP_UNITS_ROOM], rounded[64] = "", text[320];

	neap_size_format(card->requested_bytes, asked);
	if (card->block_bytes > card->requested_bytes &&
	    strcmp(neap_size_format(card->block_bytes, block), asked) != 0)
		snprintf(rounded, sizeof(rounded), " (%s rounded)", block);
	snprintf(text, sizeof(text), "%s%s for %s%s%s at step %" PRIu64 " on device %" PRIu32, asked, rounded,
		 card->tag[0] ? "\"" : "", card->tag[0] ? card->tag : "an untagged request", card->tag[0] ? "\"" : "",
		 card->step, card->device);
	neap_report_wrap(out, "Out of device memory: ", text);
	put_arithmetic(out, card);
	put_cause(out, card);
	put_holders(out, card);
	put_split(out, card);
	put_fixes(out, card);
}
