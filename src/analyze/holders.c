/* analyze/holders.c: groups lives by a key of 64 bits: kind << 32 | frame. */
#include "analyze/holders.h"

#include "base/array.h"
#include "base/error.h"
#include "base/map.h"
#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t size_class(uint64_t bytes)
{
	uint32_t log = 9; /* everything up to 1 KiB is one class */
	while (log < 62 && bytes >> (log + 1))
		log++;
	return log;
}

uint64_t neap_holder_key(const struct neap_sites *sites, const struct neap_life *life)
{
	uint32_t frame = sites->frames[life->stack], freed = sites->frames[life->freed_stack];
	if (frame)
		return (uint64_t)NEAP_HOLDER_SITE << 32 | frame;
	if (life->begin == NEAP_LIFE_BEFORE && freed)
		return (uint64_t)NEAP_HOLDER_FREED_AT << 32 | freed;
	return (uint64_t)NEAP_HOLDER_SIZE << 32 | size_class(life->size);
}

static int by_bytes(const void *left, const void *right)
{
	const struct neap_holder *a = left, *b = right;
	if (a->bytes != b->bytes)
		return a->bytes > b->bytes ? -1 : 1;
	return a->kind != b->kind ? (int)a->kind - (int)b->kind : (a->frame > b->frame) - (a->frame < b->frame);
}

static void add(struct neap_holder *holder, const struct neap_life *life)
{
	holder->bytes += life->size;
	holder->blocks++;
	holder->before += life->begin == NEAP_LIFE_BEFORE;
	if (life->size >= holder->largest) {
		holder->largest = life->size;
		holder->example = life->address;
	}
}

enum neap_status neap_holders_at(const struct neap_lives *lives, const struct neap_sites *sites, uint64_t event,
				 struct neap_holder **ret_holders, size_t *ret_count, struct neap_error *err)
{
	struct neap_holder *holders = NULL;
	struct neap_map map = {0};
	size_t count = 0;
	enum neap_status status = NEAP_OK;

	struct neap_life_cursor cursor = neap_lives_begin(lives, 0);
	struct neap_life next;
	while (neap_lives_next(&cursor, &next)) {
		const struct neap_life *life = &next;
		uint64_t index = 0;
		if (!neap_life_at(life, event))
			continue;
		uint64_t key = neap_holder_key(sites, life);
		if (!neap_map_get(&map, key, &index)) {
			index = count;
			if (!neap_array_grow(&holders, count, sizeof *holders) || !neap_map_put(&map, key, index))
				goto no_memory;
			holders[count++] = (struct neap_holder){.kind = (enum neap_holder_kind)(key >> 32),
								.frame = (uint32_t)key};
		}
		add(&holders[index], life);
	}
	if (count > 0)
		qsort(holders, count, sizeof *holders, by_bytes);
	*ret_holders = holders;
	*ret_count = count;
	holders = NULL;
	goto out;
no_memory:
	status = neap_fail(err, NEAP_ENOMEM, "no memory for the holders of a trace's memory");
out:
	free(holders);
	neap_map_fini(&map);
	return status;
}

void neap_holder_text(const struct neap_trace *trace, const struct neap_holder *holder, char *ret_text,
		      size_t capacity)
{
	char site[256];
	if (holder->kind == NEAP_HOLDER_SIZE && holder->frame <= 9) {
		snprintf(ret_text, capacity, "blocks below 1 KiB, no stack");
	} else if (holder->kind == NEAP_HOLDER_SIZE) {
		char low[NEAP_UNITS_CAPACITY], high[NEAP_UNITS_CAPACITY];
		snprintf(ret_text, capacity, "blocks of %s to %s, no stack",
			 neap_size_format(1ull << holder->frame, low), neap_size_format(2ull << holder->frame, high));
	} else {
		neap_site_text(trace, holder->frame, site, sizeof site);
		snprintf(ret_text, capacity, "%s%s",
			 holder->kind == NEAP_HOLDER_FREED_AT ? "from before, later freed at " : "", site);
	}
}
