/* analyze/holders.h: the holders of memory at one instant: lines of the program, tags, or sizes. Pure. */
#ifndef NEAP_ANALYZE_HOLDERS_H
#define NEAP_ANALYZE_HOLDERS_H

#include "analyze/lives.h"
#include "analyze/sites.h"

enum neap_holder_kind {
	NEAP_HOLDER_SITE = 1, /* allocated at this line, or under this tag */
	NEAP_HOLDER_FREED_AT, /* live before the recording, and freed later at this line */
	NEAP_HOLDER_SIZE,     /* the file does not have the place: blocks of this size class */
};

struct neap_holder {
	enum neap_holder_kind kind;
	uint32_t frame; /* of sites; SIZE: log2 of the class's lower bound */
	uint64_t bytes; /* requested */
	uint64_t blocks;
	uint64_t before;  /* how many of the blocks were live before the first event */
	uint64_t largest; /* bytes of one block */
	uint64_t example; /* address of the largest */
};

/* Returns the key by which holders are grouped: the same for the same holder. Never 0. */
uint64_t neap_holder_key(const struct neap_sites *sites, const struct neap_life *life);

/* Finds all holders just after `event` (NEAP_LIFE_BEFORE: before the first), the largest first. The caller frees
 * them. Errors: NEAP_ENOMEM. */
enum neap_status neap_holders_at(const struct neap_lives *lives, const struct neap_sites *sites, uint64_t event,
				 struct neap_holder **ret_holders, size_t *ret_count, struct neap_error *err);

/* "train/gpt.py:69 forward", "blocks of 1 MiB to 2 MiB", "from before, freed at ...". */
void neap_holder_text(const struct neap_trace *trace, const struct neap_holder *holder, char *ret_text,
		      size_t capacity);

#endif
