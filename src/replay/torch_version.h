/* replay/torch_version.h: the differences between releases of PyTorch 2 in their CUDA caching allocator.
 *
 * A release is named by its minor number: 15 is PyTorch 2.15. Threads: any; pure.
 *
 * Source: the symbols and strings of the wheels of 2.4 to 2.15, and programs that were run on them.
 */
#ifndef NEAP_REPLAY_TORCH_VERSION_H
#define NEAP_REPLAY_TORCH_VERSION_H

#include "neap/status.h"

#include <stdbool.h>

#define NEAP_TORCH_OLDEST 4
#define NEAP_TORCH_NEWEST 15

/* The order in which free blocks of one stream and size are chosen. */
enum neap_torch_order {
	NEAP_TORCH_BY_ADDRESS,     /* the lowest */
	NEAP_TORCH_BY_BLOCK_AGE,   /* the one made first, by the driver or by a split */
	NEAP_TORCH_BY_SEGMENT_AGE, /* the one in the oldest segment, then the lowest */
};

struct neap_torch_rules {
	enum neap_torch_order order;
	bool fraction_rounds;    /* the fraction's bytes are rounded to the nearest byte; else down */
	bool fraction_1_is_none; /* a fraction of 1 sets no limit, so nothing happens that needs one */
	/* With expandable segments, blocks of plain segments are split by the same rule as those of expandable
	 * ones. */
	bool splits_alike;
	/* A request inside a memory pool may flush the caches. (Inside a captured graph none may.) */
	bool pools_flush;
};

/* The rules of a release, and the range of releases that have the same rules. Older and newer releases than these
 * have the rules of the oldest or newest. */
struct neap_torch_rules neap_torch_rules(unsigned minor, unsigned *ret_from, unsigned *ret_to);

/* "address", ... for people. */
const char *neap_torch_order_name(enum neap_torch_order order);

/* "2.15", "2.15.0", "2.15.0+cu132". Errors: NEAP_EPARSE for anything else; NEAP_ENOTSUP for a release that is not
 * modelled. */
enum neap_status neap_torch_version_parse(const char *text, unsigned *ret_minor, struct neap_error *err);

#endif
