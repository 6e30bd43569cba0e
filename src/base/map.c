/* base/map.c: open addressing with linear probing. Removing a key shifts the following run of slots back over the
 * hole. So a search may stop at the first free slot, and the table never needs a cleanup.
 *
 *   home(key) ... probes ... slot      every slot from home(key) to the key's slot is used
 */
#include "base/map.h"

#include <stdlib.h>

/* Mixes all 64 bits, because addresses and handles are multiples of large powers of two. */
static uint64_t mix(uint64_t key)
{
	key ^= key >> 32;
	key *= 0xd6e8feb86659fd93ull;
	key ^= key >> 32;
	key *= 0xd6e8feb86659fd93ull;
	key ^= key >> 32;
	return key;
}

/* Returns the key's slot, or the free slot for it. The map has a free slot. */
static size_t find_slot(const struct neap_map_slot *slots, size_t capacity, uint64_t key)
{
	size_t i = (size_t)mix(key) & (capacity - 1);

	while (slots[i].used && slots[i].key != key)
		i = (i + 1) & (capacity - 1);
	return i;
}

static bool grow(struct neap_map *map)
{
	size_t capacity = map->capacity ? map->capacity * 2 : 16;
	struct neap_map_slot *slots = calloc(capacity, sizeof *slots);

	if (!slots)
		return false;
	for (size_t i = 0; i < map->capacity; i++)
		if (map->slots[i].used)
			slots[find_slot(slots, capacity, map->slots[i].key)] = map->slots[i];
	free(map->slots);
	map->slots = slots;
	map->capacity = capacity;
	return true;
}

bool neap_map_put(struct neap_map *map, uint64_t key, uint64_t value)
{
	size_t i = map->capacity > 0 ? find_slot(map->slots, map->capacity, key) : 0;

	if (map->capacity > 0 && map->slots[i].used) {
		map->slots[i].value = value;
		return true;
	}
	if (map->count + 1 > map->capacity / 4 * 3) {
		if (!grow(map))
			return false;
		i = find_slot(map->slots, map->capacity, key);
	}
	map->slots[i] = (struct neap_map_slot){.key = key, .value = value, .used = true};
	map->count++;
	return true;
}

bool neap_map_get(const struct neap_map *map, uint64_t key, uint64_t *ret_value)
{
	if (map->count == 0)
		return false;
	size_t i = find_slot(map->slots, map->capacity, key);
	if (!map->slots[i].used)
		return false;
	if (ret_value)
		*ret_value = map->slots[i].value;
	return true;
}

bool neap_map_remove(struct neap_map *map, uint64_t key, uint64_t *ret_value)
{
	if (map->count == 0)
		return false;
	size_t mask = map->capacity - 1;
	size_t hole = find_slot(map->slots, map->capacity, key);
	if (!map->slots[hole].used)
		return false;
	if (ret_value)
		*ret_value = map->slots[hole].value;
	for (size_t i = (hole + 1) & mask; map->slots[i].used; i = (i + 1) & mask) {
		/* A slot may fill the hole if the hole lies on its way from home. */
		size_t home = (size_t)mix(map->slots[i].key) & mask;
		if (((i - home) & mask) >= ((i - hole) & mask)) {
			map->slots[hole] = map->slots[i];
			hole = i;
		}
	}
	map->slots[hole] = (struct neap_map_slot){0};
	map->count--;
	return true;
}

const struct neap_map_slot *neap_map_next(const struct neap_map *map, size_t *cursor)
{
	while (*cursor < map->capacity) {
		const struct neap_map_slot *slot = &map->slots[(*cursor)++];
		if (slot->used)
			return slot;
	}
	return NULL;
}

void neap_map_fini(struct neap_map *map)
{
	if (!map)
		return;
	free(map->slots);
	*map = (struct neap_map){0};
}
