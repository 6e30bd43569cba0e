/* cli/history_prune.h: `neap history --prune`: rows of the history, folders of runs, recordings. */
#ifndef NEAP_CLI_HISTORY_PRUNE_H
#define NEAP_CLI_HISTORY_PRUNE_H

#include "cli/command.h"
#include "series/prune.h"
#include "store/history.h"

struct history_prune_request {
	struct neap_history_filter filter; /* of rows */
	struct neap_prune_rules rules;     /* of folders */
	bool folders, dry_run, yes;        /* folders: also if only recordings are deleted */
};

/* Reads the options, also without --prune; `filter`: the filters, which listing has too. Returns an exit code. */
int history_prune_parse(const struct neap_arguments *arguments, const struct neap_history_filter *filter,
			struct history_prune_request *request);

/* `history`: NULL: there is none yet. Returns an exit code. */
int history_prune(struct neap_history *history, const char *state_folder,
		  const struct history_prune_request *request);

#endif
