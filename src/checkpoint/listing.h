/* checkpoint/listing.h: the names in a folder, with a lookup. One thread. */
#ifndef NEAP_CHECKPOINT_LISTING_H
#define NEAP_CHECKPOINT_LISTING_H

#include "neap/status.h"

#include "base/map.h"

#include <stdbool.h>
#include <stddef.h>

struct checkpoint_listing {
	char **names;
	unsigned char *types; /* of each name, from readdir(3): DT_REG, DT_UNKNOWN, ... */
	size_t count;
	size_t beside_count;     /* how many are files of metrics or pins */
	struct neap_map by_hash; /* hash of a name -> its index */
	struct neap_map by_stem; /* hash of a name without its extension -> how many names have it, without files
				    of metrics and pins; empty until counted */
};

/* Reads all names in the folder but "." and "..". `fd` stays the caller's. Errors: NEAP_ENOMEM, NEAP_EIO. The caller
 * calls checkpoint_listing_fini, also after a failure. */
enum neap_status checkpoint_listing_read(int fd, struct checkpoint_listing *listing, struct neap_error *err);
/* Returns the index of the name, or `count` if it is not there. */
size_t checkpoint_listing_find(const struct checkpoint_listing *listing, const char *name);
/* Call before checkpoint_listing_stem_shared. False: the host is out of memory. */
bool checkpoint_listing_count_stems(struct checkpoint_listing *listing);
/* Whether more than `most` files have the same name as `name` up to the last extension. Does not count files of
 * metrics and pins. */
bool checkpoint_listing_stem_shared(const struct checkpoint_listing *listing, const char *name, uint64_t most);
void checkpoint_listing_fini(struct checkpoint_listing *listing);

#endif
