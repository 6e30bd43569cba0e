/* cli/checkpoints_report.h: what `neap checkpoints` shows. */
#ifndef NEAP_CLI_CHECKPOINTS_REPORT_H
#define NEAP_CLI_CHECKPOINTS_REPORT_H

#include "neap/checkpoint.h"

struct checkpoints_folder {
	char *name;
	struct neap_retention_plan plan;
	struct neap_retention_result result;
	bool planned, applied;
	size_t below_folders, below_checkpoints; /* seen below it, but not judged */
	bool below_incomplete;                   /* there may be more */
};

void checkpoints_print_plan(const struct checkpoints_folder *folder, const struct neap_retention_options *rules,
			    bool dry_run);
void checkpoints_print_applied(const struct checkpoints_folder *folder);
void checkpoints_print_restored(const char *folder, const struct neap_retention_result *result);
/* "Checkpoint Summary: 5 files, 213.4 MB total": what lies in the folders now; MB are 2^20 bytes. */
void checkpoints_print_summary(const struct checkpoints_folder *folders, size_t count);

/* One object, schema 1. Returns the exit code: not 0 if memory is short; then nothing is printed. */
int checkpoints_print_json(const struct checkpoints_folder *folders, size_t count,
			   const struct neap_retention_options *rules, bool dry_run);

#endif
