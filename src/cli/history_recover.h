/* cli/history_recover.h: runs whose supervisor was killed after their command had ended (run/run_stage.h), and before
 * the history had them. */
#ifndef NEAP_CLI_HISTORY_RECOVER_H
#define NEAP_CLI_HISTORY_RECOVER_H

#include "store/history.h"

/* Makes the result of each such run in STATE/runs where there is none, and puts it into the history at `path`, which
 * is opened where it is not (*history NULL). What fails is printed, and left for the next look. */
void history_recover(const char *state, const char *path, struct neap_history **history);

#endif
