/* cli/checkpoints_folders.h: the folders that `neap checkpoints` works on: those that are named, and with --recursive
 * those below them. */
#ifndef NEAP_CLI_CHECKPOINTS_FOLDERS_H
#define NEAP_CLI_CHECKPOINTS_FOLDERS_H

#include "cli/checkpoints_report.h"
#include "cli/command.h"

struct checkpoints_folders {
	struct checkpoints_folder *at;
	size_t count;
};

/* Makes the list. Returns the exit code; what went wrong is on stderr. The caller calls checkpoints_folders_fini in
 * any case. */
int checkpoints_folders_list(const struct neap_arguments *arguments, const struct neap_retention_options *rules,
			     bool recursive, struct checkpoints_folders *ret_folders);
void checkpoints_folders_fini(struct checkpoints_folders *folders);

#endif
