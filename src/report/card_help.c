/* report/card_help.c: the lower half of the OOM card: fixes, the cheapest sufficient one first; the results of
 * replays; what is unknown, and how to record it next time. */
#include "base/units.h"
#include "report/report.h"
#include "report/wrap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Whether the fix is enough: the whole interval of its saving decides, since its middle would promise too much. */
static const char *enough(const struct neap_oom_card *card, const struct neap_fix *fix, char text[static 160])
{
	uint64_t shortfall_bytes = card->shortfall_bytes;
	uint64_t saving = fix->saving_bytes, half = fix->uncertainty_bytes;

	if (fix->step == NEAP_FIX_STEP_ENOUGH && fix->later_tenths > 10) {
		snprintf(text, 160, "enough for this step, and for later ones with up to %u.%u times its activations",
			 fix->later_tenths / 10, fix->later_tenths % 10);
		return text;
	}
	if (fix->step == NEAP_FIX_STEP_ENOUGH)
		return fix->perhaps ? "enough for this step, perhaps not for later ones"
				    : "enough for the whole step";
	if (fix->perhaps && fix->sufficient)
		return "perhaps enough for the whole step";
	if (card->need.known && fix->step == NEAP_FIX_STEP_NOT_ENOUGH)
		return "not enough for the whole step";
	if (saving > half && saving - half >= shortfall_bytes)
		return "enough for this request";
	if (saving > half && saving >= shortfall_bytes)
		return "probably enough for this request";
	return saving >= shortfall_bytes || half >= shortfall_bytes - saving ? "perhaps enough for this request"
									     : "not enough alone";
}

/* Whether the fix makes room, but the leak will take that room too. */
static bool leaks_on(const struct neap_oom_card *card, const struct neap_fix *fix)
{
	return card->growth_bytes > 0 && fix->kind != NEAP_FIX_LEAK && fix->saving_bytes >= card->shortfall_bytes;
}

static const char *leaked_after(const struct neap_oom_card *card, const struct neap_fix *fix, char text[static 96])
{
	uint64_t steps = (fix->saving_bytes - card->shortfall_bytes) / card->growth_bytes;
	if (!steps)
		return "enough for this request; the leak takes the rest within a step";
	snprintf(text, 96, "enough for about %" PRIu64 " step%s, until the leak has taken it", steps,
		 steps == 1 ? "" : "s");
	return text;
}

#define SAVING_CAPACITY 640
/* What the fix saves, or what its replay did. Returns text. */
static const char *saving(const struct neap_oom_card *card, const struct neap_fix *fix,
			  char text[static SAVING_CAPACITY])
{
	char interval[NEAP_UNITS_CAPACITY + 8] = "";

	if (fix->uncertainty_bytes > 0)
		snprintf(interval, sizeof interval, " ± %s", NEAP_SIZE(fix->uncertainty_bytes));
	if (fix->replayed)
		snprintf(text, SAVING_CAPACITY, "%s%s", fix->how,
			 fix->step == NEAP_FIX_STEP_NOT_ENOUGH && card->need.known ? "; the whole step takes more"
			 : fix->step == NEAP_FIX_STEP_ENOUGH && fix->perhaps       ? "; perhaps later steps take more"
			 : fix->perhaps ? "; perhaps not the rest of the step, which is not in it"
					: "");
	else if (leaks_on(card, fix))
		snprintf(text, SAVING_CAPACITY, "predicted to save %s%s, %s; %s", NEAP_SIZE(fix->saving_bytes),
			 interval, leaked_after(card, fix, (char[96]){0}), fix->how);
	else if (fix->saving_bytes > 0)
		snprintf(text, SAVING_CAPACITY, "predicted to save %s%s, %s; %s", NEAP_SIZE(fix->saving_bytes),
			 interval, enough(card, fix, (char[160]){0}), fix->how);
	else
		snprintf(text, SAVING_CAPACITY, "saving not predicted: %s", fix->how);
	return text;
}

static void put_fix(struct neap_buffer *out, const struct neap_oom_card *card, const struct neap_fix *fix,
		    size_t number)
{
	char first[24], text[240], saved[SAVING_CAPACITY];

	if (fix->active_already) {
		snprintf(text, sizeof text, "%s (on already: nothing more to gain)", fix->text);
		neap_report_wrap(out, "    -  ", text);
		return;
	}
	snprintf(first, sizeof first, "    %zu. ", number);
	neap_report_wrap(out, first, fix->text);
	neap_report_wrap(out, "       ", saving(card, fix, saved));
}

/* Writes what the whole step is predicted to need, and why later steps may need more. */
static void report_need(const struct neap_oom_card *card, char *text, size_t capacity)
{
	const struct neap_oom_need *need = &card->need;
	char peak[NEAP_UNITS_CAPACITY], before[160] = "No whole step came before";

	if (need->repeats)
		snprintf(before, sizeof before, "The step before had the same sizes");
	else if (card->step_peak_bytes && card->larger > 0)
		snprintf(before, sizeof before,
			 "Whole steps before took %s at most, and this line asked for %.1f times as much as ever in "
			 "them",
			 neap_size_format(card->step_peak_bytes, peak), card->larger);
	else if (card->step_peak_bytes)
		snprintf(before, sizeof before, "Whole steps before took %s at most",
			 neap_size_format(card->step_peak_bytes, peak));
	snprintf(text, capacity,
		 "The whole step is %s to take %s: %s for parameters, gradients and optimizer state, %s that scale "
		 "with "
		 "the micro-batch, and %s else. %s%s.",
		 need->sure ? "predicted" : "guessed", NEAP_SIZE(neap_oom_needed(need, 1)),
		 NEAP_SIZE(need->model_bytes), NEAP_SIZE(need->scaled_bytes),
		 NEAP_SIZE(need->fixed_bytes - need->model_bytes), before,
		 need->repeats ? "" : ": later ones may take more");
}

/* Says that the shortfall covers this request only. Only earlier whole steps show how much the rest of the step
 * takes. */
static void put_scope(struct neap_buffer *out, const struct neap_oom_card *card)
{
	char peak[NEAP_UNITS_CAPACITY], text[320];
	bool known = card->need.alike;

	for (size_t i = 0; i < card->fix_count && i < NEAP_OOM_FIXES && card->step_peak_bytes; i++)
		known |= card->fixes[i].step != NEAP_FIX_STEP_UNKNOWN;
	neap_size_format(card->step_peak_bytes, peak);
	if (card->predicted)
		snprintf(text, sizeof text,
			 "The trace continues after it: what is replayed below ended with its end. A saving that is "
			 "predicted is that at this request.");
	else if (card->need.known && (!card->need.alike || card->need.repeats))
		report_need(card, text, sizeof text);
	else if (known)
		snprintf(text, sizeof text,
			 "Whole steps before took %s at most: this one is taken to need as much%s.", peak,
			 card->growth_bytes ? ", and what leaked since" : "");
	else if (card->step_peak_bytes == 0 && card->replays.step_bytes)
		snprintf(text, sizeof text,
			 "No whole step came before with these settings. By the steps that followed with micro-batch "
			 "%" PRIu64 ", a whole one takes %s; a saving that is predicted is that at this request.",
			 card->replays.step_micro_batch, neap_size_format(card->replays.step_bytes, peak));
	else if (card->step_peak_bytes == 0)
		snprintf(text, sizeof text,
			 "No whole step came before with these settings: what the rest of the step takes is not "
			 "known, and may be more than this request.");
	else
		snprintf(text, sizeof text,
			 "Whole steps before took %s at most: this one needs more, and how much in the end is not "
			 "known.",
			 peak);
	neap_report_wrap(out, "    ", text);
}

/* Whether the trace completes in the replay with its own settings. Then the replay does not reproduce the failure,
 * and its results with other settings prove nothing. */
static bool own_fits(const struct neap_oom_card *card)
{
	const struct neap_whatifs *whatifs = &card->replays.whatifs;
	return whatifs->count > 0 && whatifs->items[0].tried && whatifs->items[0].fits;
}

/* The heading of the fixes. `any`: at least one is not in force already. */
static const char *help_title(const struct neap_oom_card *card, bool any)
{
	if (any)
		return "(predicted, but where it says replayed)";
	if (card->allocated_bytes == 0)
		return ": a smaller request, or a device with more room: nothing else was live";
	if (own_fits(card))
		return ": no replay tells, as it was the trace does not fail in it";
	return card->replays.done ? ": none of the settings that were tried is enough" : ": not known";
}

static void put_fixes(struct neap_buffer *out, const struct neap_oom_card *card)
{
	size_t count = card->fix_count < NEAP_OOM_FIXES ? card->fix_count : NEAP_OOM_FIXES;
	size_t number = 1, active = 0;
	bool any;

	for (size_t i = 0; i < count; i++)
		active += card->fixes[i].active_already;
	any = active < count;
	if (count > 0 || card->replays.done || card->allocated_bytes == 0)
		neap_buffer_format(out, "\n  What would help%s%s\n", any ? " " : "", help_title(card, any));
	for (size_t i = 0; i < count; i++)
		if (!card->fixes[i].active_already)
			put_fix(out, card, &card->fixes[i], number++);
	for (size_t i = 0; i < count; i++)
		if (card->fixes[i].active_already)
			put_fix(out, card, &card->fixes[i], 0);
	if (any)
		put_scope(out, card);
}

void neap_report_whatif(struct neap_buffer *out, const struct neap_whatifs *whatifs, const struct neap_whatif *item)
{
	uint64_t own = whatifs->items[0].reserved_peak;
	char change[64] = "", size[NEAP_UNITS_CAPACITY];

	neap_size_format(item->reserved_peak, size);
	if (!item->own && own)
		snprintf(change, sizeof change, " (%+.1f %%)",
			 100.0 * ((double)item->reserved_peak - (double)own) / (double)own);
	int width = 26;
	for (size_t i = 0; i < whatifs->count; i++)
		width = (int)strlen(whatifs->items[i].name) > width ? (int)strlen(whatifs->items[i].name) : width;
	neap_buffer_format(out, "%-*s ", width + 1, item->name);
	if (!item->tried) {
		neap_buffer_text(out, "not tried: the time for it was over\n");
		return;
	}
	if (item->active) {
		neap_buffer_text(out, "not tried: already in use\n");
		return;
	}
	if (whatifs->memory_bytes && item->fits)
		neap_buffer_format(out, "fits, reserved peak %s%s", size, change);
	else if (whatifs->memory_bytes)
		neap_buffer_format(out, "fails at event %" PRIu64 " with %s reserved", item->first_oom_event, size);
	else
		neap_buffer_format(out, "reserved peak %s%s", size, change);
	neap_buffer_format(out, ", %" PRIu64 " driver calls\n", item->driver_calls);
}

static void put_smallest(struct neap_buffer *out, const struct neap_oom_card *card)
{
	const struct neap_oom_replays *replays = &card->replays;
	bool others = card->others_bytes != NEAP_OOM_UNKNOWN && card->others_bytes > 0;
	char smallest[NEAP_UNITS_CAPACITY], text[256];

	const char *bound = replays->smallest_whole ? "" : "a lower bound, ";
	const char *what = replays->smallest_whole && !card->predicted ? "a whole step" : "this request";
	const char *more = replays->smallest_whole ? "" : "; the rest of the failed step may take more";

	neap_size_format(replays->smallest_bytes, smallest);
	if (!replays->smallest_tried)
		snprintf(text, sizeof text, "not tried: the time for it was over");
	else if (!replays->smallest_bytes)
		snprintf(text, sizeof text, "none: a request is larger than any device");
	else if (others)
		snprintf(text, sizeof text,
			 "%s%s for %s and all else in the trace, %s with what others and contexts held%s", bound,
			 smallest, what, NEAP_SIZE(replays->smallest_bytes + card->others_bytes), more);
	else
		snprintf(text, sizeof text, "%s%s for %s and all else in the trace, without the context%s", bound,
			 smallest, what, more);
	neap_report_wrap(out, "    the smallest device that fits: ", text);
}

static void put_replays(struct neap_buffer *out, const struct neap_oom_card *card)
{
	const struct neap_oom_replays *replays = &card->replays;
	const struct neap_whatifs *whatifs = &replays->whatifs;
	char text[320];

	if (replays->unrecorded && card->allocated_bytes == 0) {
		neap_buffer_text(out, "\n");
		neap_report_wrap(out, "  Not replayed: ",
				 "PyTorch's own allocator held nothing when it failed: there is nothing that a "
				 "setting of it could change.");
	} else if (replays->unrecorded) {
		neap_buffer_text(out, "\n");
		neap_report_wrap(out, "  Not replayed: ",
				 "allocations of PyTorch's own allocator are not in neap's recording. A snapshot has "
				 "them: torch.cuda.memory._record_memory_history(), and after the error "
				 "torch.cuda.memory._dump_snapshot(\"FILE\"); 'neap analyze FILE' replays it with "
				 "other settings.");
	}
	if (replays->overwritten) {
		snprintf(text, sizeof text,
			 "the recording keeps the last allocations, and has overwritten %" PRIu64
			 " older ones, with all that came before this failure.",
			 replays->lost_events);
		neap_buffer_text(out, "\n");
		neap_report_wrap(out, "  Not replayed: ", text);
	}
	if (!replays->done)
		return;
	neap_buffer_format(out, "\n  This trace, up to its end, replayed on a device of %s\n",
			   NEAP_SIZE(replays->memory_bytes));
	for (size_t i = 0; i < whatifs->count; i++) {
		neap_buffer_text(out, "    ");
		neap_report_whatif(out, whatifs, &whatifs->items[i]);
	}
	if (!own_fits(card))
		put_smallest(out, card);
	if (own_fits(card))
		neap_report_wrap(out, "    ",
				 "As it was it does not fail in the replay: what failed is not in the trace alone, "
				 "and a setting that seems to fit may not.");
	if (replays->began_bytes > card->allocated_bytes / 10) {
		snprintf(text, sizeof text,
			 "%s were live before the trace begins. Under other settings they are placed again, one "
			 "after another: what fragmentation they had is not in it.",
			 NEAP_SIZE(replays->began_bytes));
		neap_report_wrap(out, "    ", text);
	}
	if (replays->lost_events) {
		snprintf(text, sizeof text,
			 "The recording's ring has overwritten %" PRIu64 " older events. What was live before is "
			 "counted; of %s of it nothing else is known, and it was replayed as one block: "
			 "fragmentation may be more than it seems.",
			 replays->lost_events, NEAP_SIZE(replays->before_bytes));
		neap_report_wrap(out, "    ", text);
	}
}

/* What is unknown, and how to record it next time. */
static void put_unknown(struct neap_buffer *out, const struct neap_oom_card *card)
{
	char text[640];
	bool recorded = card->source == NEAP_TRACE_RECORDING;
	/* For a leak, the card has already named the line that keeps the memory. */
	uint64_t named = card->leak.of_line ? card->leak.bytes : 0;
	uint64_t unknown = card->unknown_bytes > named ? card->unknown_bytes - named : 0;

	if (unknown == 0 || unknown < card->allocated_bytes / 20)
		return;
	snprintf(text, sizeof text, "Of %s live nothing tells what %s are for%s. %s",
		 NEAP_SIZE(card->allocated_bytes), NEAP_SIZE(unknown),
		 !recorded && unknown > card->allocated_bytes / 2 ? ": too much to predict changes of training" : "",
		 card->replays.unrecorded ? "The stacks of a snapshot tell."
		 : recorded && card->other_allocator
			 ? "Python's stacks tell, which are recorded of requests of 1 MiB and more, and of some "
			   "smaller ones; autograd's own threads have none."
		 : recorded ? "Tags tell: neap_tag_set(\"activations\"), \"parameters\", \"optimizer\", ... around "
			      "what allocates."
		 : card->source == NEAP_TRACE_SNAPSHOT
			 ? "Stacks and steps tell: torch.cuda.memory._record_memory_history(stacks=\"python\") "
			   "before the "
			   "model is made, and torch.profiler.record_function(\"step\") around each step."
		 : card->step > 0 ? "A snapshot with stacks tells what a text trace cannot."
				  : "Steps tell: a line 's' at the end of each training step.");
	neap_buffer_text(out, "\n");
	neap_report_wrap(out, "  Not known: ", text);
}

void neap_report_oom_fix(struct neap_buffer *out, const struct neap_oom_card *card, size_t index)
{
	const struct neap_fix *fix = &card->fixes[index];
	char text[SAVING_CAPACITY];

	neap_buffer_format(out, "%s: %s", fix->text, saving(card, fix, text));
}

void neap_report_oom_help(struct neap_buffer *out, const struct neap_oom_card *card)
{
	put_fixes(out, card);
	put_replays(out, card);
	put_unknown(out, card);
}
