/* analyze/changes.h: compares two analyses: the holders that have more at the peak of requested memory, and those
 * that have less. Pure.
 *
 * Holders are the same when they are in the same function of the same file (its last two parts), under the same tag,
 * or of the same size class: lines move when a program is changed.
 */
#ifndef NEAP_ANALYZE_CHANGES_H
#define NEAP_ANALYZE_CHANGES_H

#include "analyze/analysis.h"

struct neap_change {
	char name[256];
	uint64_t before_bytes, after_bytes, before_blocks, after_blocks;
};

/* Every holder of either analysis, the largest change first; the caller free()s them. Errors: NEAP_ENOMEM. */
enum neap_status neap_changes_find(const struct neap_analysis *before, const struct neap_analysis *after,
				   struct neap_change **ret_changes, size_t *ret_count, struct neap_error *err);

static inline int64_t neap_change_bytes(const struct neap_change *change)
{
	return (int64_t)change->after_bytes - (int64_t)change->before_bytes;
}

/* Returns the bytes of a category, whatever the evidence for it. */
uint64_t neap_category_bytes(const struct neap_analysis *analysis, enum neap_category category);

#endif
