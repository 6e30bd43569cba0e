/* estimate/text.h: writes an estimate as text, markup and JSON. Pure. */
#ifndef NEAP_ESTIMATE_TEXT_H
#define NEAP_ESTIMATE_TEXT_H

#include "base/buffer.h"
#include "estimate/search.h"
#include "store/json.h"

struct neap_estimate_report {
	const char *command; /* as the user typed it */
	const struct neap_estimate_plan *plan;
	const struct neap_estimate_run *runs;         /* plan->run_count */
	const struct neap_estimate_verdict *verdicts; /* plan->count */
	const struct neap_estimate_fit *fit;          /* NULL: not asked for */
	const struct neap_estimate_tries *tries;      /* count 0: none */
	const struct neap_estimate_search *search;    /* NULL: not asked for */
	const char *ranks; /* the fake world, whose first rank the program was; NULL: none */
	size_t top;        /* the most lines of a list */
};

/* For a terminal: one screen, at most 100 columns. */
void neap_estimate_text(struct neap_buffer *out, const struct neap_estimate_report *report);

/* The estimate's table of GPUs, with a remark on each. */
void neap_estimate_gpus_text(struct neap_buffer *out, const struct neap_estimate_report *report);

/* page.c. Writes markup for the allocations' page: whether the program fits, the table of GPUs, with --fit the curve
 * of memory over the parameter, with --plan the ways; and the whole report, folded. */
void neap_estimate_answer(struct neap_buffer *out, const struct neap_estimate_report *report);
void neap_estimate_markup(struct neap_buffer *out, const struct neap_estimate_report *report);

/* json.c. Schema 1; the caller owns it. If memory runs out, neap_json_failures counts it. */
json_t *neap_estimate_json(const struct neap_estimate_report *report);

/* search_report.c. Write `search` as lines below the GPUs, as a table for the page, and as JSON (null without a
 * search). */
void neap_estimate_search_text(struct neap_buffer *out, const struct neap_estimate_report *report);
void neap_estimate_search_markup(struct neap_buffer *out, const struct neap_estimate_report *report);
json_t *neap_estimate_search_json(const struct neap_estimate_report *report);

/* Writes how the run ended, as a phrase: "3 optimizer updates", "the program ended after 2 optimizer updates". */
void neap_estimate_end_text(const struct neap_estimate_run *run, char *ret_text, size_t capacity);

#endif
