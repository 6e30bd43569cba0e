/* cli/history_report.h: runs of the history for people, as CSV and as JSON. */
#ifndef NEAP_CLI_HISTORY_REPORT_H
#define NEAP_CLI_HISTORY_REPORT_H

#include "store/history.h"

#include <stdio.h>

/* "2026-11-20 18:30:05" in local time; "-" for 0. Returns `text`. */
const char *history_time(uint64_t wall_ns, char text[32]);

/* A row of the list; the head comes with the first one (`index` 0). */
void history_print_row(size_t index, const struct neap_history_run *run);
void history_print_csv(size_t index, const struct neap_history_run *run);
/* `index` 0 begins the object, history_end_json ends it. Errors: NEAP_ENOMEM, NEAP_EINVAL. */
enum neap_status history_print_json(size_t index, const struct neap_history_run *run, struct neap_error *err);
void history_end_json(size_t count);

/* Prints everything about one run. */
void history_print_run(const struct neap_history_run *run);
/* Prints its output: the logs in its folder or, without them, the last lines in the history. */
void history_print_log(const struct neap_history_run *run);
/* Prints runs side by side; marks what differs, and numbers with the change from the first run. */
void history_print_compared(const struct neap_history_run *runs, size_t count);

#endif
