/* checkpoint/scan_internal.h: the state of a scan, for its parts scan.c (entries), metric.c and writer.c (metric).
 */
#ifndef NEAP_CHECKPOINT_SCAN_INTERNAL_H
#define NEAP_CHECKPOINT_SCAN_INTERNAL_H

#include "checkpoint/group.h"
#include "checkpoint/listing.h"
#include "checkpoint/scan.h"

struct scan {
	int fd;
	const char *real; /* the folder's path, without links; NULL: unknown */
	uint64_t device;
	const struct neap_retention_options *options;
	struct neap_retention_plan *plan;
	struct checkpoint_listing listing;
	struct checkpoint_member *members; /* of each name of the listing; group N is entry N - 1 */
	struct checkpoint_sets *sets;      /* of each entry */
	struct neap_map open_files;
	struct neap_map links; /* keys of the files that symbolic links name */
	size_t kinds[CHECKPOINT_COUNTS];
	enum checkpoint_count kind; /* the kind that most names have */
};

/* Finds the plan's metric and mode, and its value for each entry. Errors: NEAP_ENOMEM; NEAP_EINVAL: the option is not
 * a metric's name, or the trainers' records disagree, among themselves or with the values. */
enum neap_status checkpoint_find_metric(const struct scan *scan, struct neap_error *err);

#endif
