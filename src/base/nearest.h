/* base/nearest.h: finds the known name that a mistyped one probably meant. */
#ifndef NEAP_BASE_NEAREST_H
#define NEAP_BASE_NEAREST_H

#include <stddef.h>

struct neap_nearest {
	const char *name; /* borrowed from the caller; NULL: no near name so far. Zero the struct first */
	size_t distance;
};

/* Keeps `name` if it is nearer to the typed text than the best so far, and differs in at most a third of its letters
 * plus one. */
void neap_nearest_consider(struct neap_nearest *nearest, const char *typed, size_t typed_length, const char *name);

#endif
