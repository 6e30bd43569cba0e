/* report/report.h: runs in text and as one self-contained page. Pure functions into buffers. */
#ifndef NEAP_REPORT_REPORT_H
#define NEAP_REPORT_REPORT_H

#include "analyze/oom.h"
#include "base/buffer.h"
#include "report/columns.h"
#include "report/comparison.h"
#include "store/json.h"
#include "store/result.h"

/* The table of a series, in the order and with the columns that were chosen (report/columns.h). With the usual ones
 * it fits 120 columns; `color` as the command decided. */
void neap_report_table(struct neap_buffer *out, const struct neap_result *results, size_t count,
		       const struct neap_report_columns *columns, bool color);

/* Writes for each failed run why it failed, and where its folder is; nothing if none failed. In the order of
 * `results`.
 */
void neap_report_failures(struct neap_buffer *out, const struct neap_result *results, size_t count);

/* The page: same table, the comparisons, and per run its memory curve (plot with zoom and hover), marks, fluctuation,
 * leak verdict, OOM card. Works offline from one file; everything from outside is escaped. */
void neap_report_page(struct neap_buffer *out, const char *title, const struct neap_result *results, size_t count,
		      const struct neap_comparison *comparisons, size_t comparison_count);

/* The OOM card for a terminal, at most 100 columns. */
void neap_report_oom_card(struct neap_buffer *out, const struct neap_oom_card *card);
/* The card's cause; its last part, with all fixes; and one of these fixes in a line, without its number. */
void neap_report_oom_cause(struct neap_buffer *out, const struct neap_oom_card *card);
void neap_report_oom_fix(struct neap_buffer *out, const struct neap_oom_card *card, size_t index);
void neap_report_oom_help(struct neap_buffer *out, const struct neap_oom_card *card);
/* As JSON, from any source. Sizes in bytes; null if unknown. neap_oom_whatifs_json: a table of settings, also without
 * a failure. */
json_t *neap_oom_card_json(const struct neap_oom_card *card);
json_t *neap_oom_whatifs_json(const struct neap_whatifs *whatifs);
/* One line of a table of settings. */
void neap_report_whatif(struct neap_buffer *out, const struct neap_whatifs *whatifs, const struct neap_whatif *item);

#endif
