/* cli/kill_report.h: the output of `neap kill`, for people and as JSON. */
#ifndef NEAP_CLI_KILL_REPORT_H
#define NEAP_CLI_KILL_REPORT_H

#include "base/units.h"
#include "kill/work.h"

#define KILL_HELD_CAPACITY (NEAP_UNITS_CAPACITY + 16)

/* A sentence: the targets hold no device memory, as far as is known. "": they hold some, or that is unknown. */
const char *kill_holds_nothing(const struct neap_kill_work *work);
/* Writes how much the targets hold, for people, into `text` (KILL_HELD_CAPACITY bytes): "1.06 GiB", "at least 1.06
 * GiB", "an unknown amount". */
const char *kill_held_text(const struct neap_kill_work *work, char *text);

/* Prints the targets as a tree, with the memory that they hold, and the refused processes. */
void kill_print_preview(const struct neap_kill_work *work);
void kill_print_result(const struct neap_kill_work *work);
/* Prints one object, or why that failed. Returns the exit code for that. */
int kill_print_json(const struct neap_kill_work *work);

#endif
