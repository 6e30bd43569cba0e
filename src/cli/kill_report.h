/* cli/kill_report.h: what `neap kill` says, for people and as JSON. */
#ifndef NEAP_CLI_KILL_REPORT_H
#define NEAP_CLI_KILL_REPORT_H

#include "base/units.h"
#include "kill/work.h"

#define KILL_HELD_CAPACITY (NEAP_UNITS_CAPACITY + 16)

/* That what was asked for holds no device memory, as far as is known; "" it holds some, or there is no telling. */
const char *kill_holds_nothing(const struct neap_kill_work *work);
/* What the targets hold, for people, in `text`, KILL_HELD_CAPACITY bytes: "1.06 GiB", "at least 1.06 GiB", "an
 * unknown amount". */
const char *kill_held_text(const struct neap_kill_work *work, char *text);

/* The targets as a tree with what they hold, and the refused. */
void kill_print_preview(const struct neap_kill_work *work);
void kill_print_result(const struct neap_kill_work *work);
/* Prints one object, or why it cannot. Returns the exit code for that. */
int kill_print_json(const struct neap_kill_work *work);

#endif
