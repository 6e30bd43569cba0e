/* cli/explain_folder.h: `neap explain RUNFOLDER`: how a run ended and why, from its result, its recording and its
 * logs. */
#ifndef NEAP_CLI_EXPLAIN_FOLDER_H
#define NEAP_CLI_EXPLAIN_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

/* Prints it; an exit code, explained on stderr unless it is NEAP_EXIT_OK. `number`: as in cli/explain_record.h. */
int explain_folder(const char *folder, uint64_t number, bool json);

#endif
