/* base/map.h: a hash table from uint64_t to uint64_t (addresses, handles, ids), open addressing, linear probing with
 * backward-shift deletion: no tombstones, so it never degrades. A zeroed struct is an empty map. One thread.
 *
 *   invariant: count <= capacity * 3/4; capacity is a power of two or 0
 */
#ifndef NEAP_BASE_MAP_H
#define NEAP_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct neap_map_slot {
	uint64_t key;
	uint64_t value;
	bool used;
};

struct neap_map {
	struct neap_map_slot *slots;
	size_t capacity;
	size_t count;
};

/* False: the host is out of memory, and the map is unchanged. Replaces an existing value. */
bool neap_map_put(struct neap_map *map, uint64_t key, uint64_t value);
bool neap_map_get(const struct neap_map *map, uint64_t key, uint64_t *ret_value);
/* False: the key was not there. Never allocates. */
bool neap_map_remove(struct neap_map *map, uint64_t key, uint64_t *ret_value);
/* Returns the next used slot at or after *cursor (start at 0), or NULL at the end. Do not change the map
 * meanwhile. */
const struct neap_map_slot *neap_map_next(const struct neap_map *map, size_t *cursor);
void neap_map_fini(struct neap_map *map);

#endif
