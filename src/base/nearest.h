/* base/nearest.h: of the names that there are, the one that was probably meant. */
#ifndef NEAP_BASE_NEAREST_H
#define NEAP_BASE_NEAREST_H

#include <stddef.h>

struct neap_nearest {
	const char *name; /* borrowed from the caller; NULL: none is near. Begin with all zero. */
	size_t distance;
};

/* Takes `name` where it is nearer to what was typed than what was found so far: at most a third of its letters, and
 * one, differ. */
void neap_nearest_consider(struct neap_nearest *nearest, const char *typed, size_t typed_length, const char *name);

#endif
