/* checkpoint/listing.c: see the header. If two names have the same hash, the second one is found by a linear search:
 * this is very rare. */
#include "checkpoint/listing.h"

#include "checkpoint/name.h"

#include "base/array.h"
#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* FNV-1a, 64 bits. Source: Fowler, Noll, Vo, "The FNV Non-Cryptographic Hash Algorithm", IETF draft. */
static uint64_t hash_bytes(const char *name, size_t length)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char)name[i]) * 0x100000001b3ull;
	return hash;
}

static uint64_t hash_of(const char *name) { return hash_bytes(name, strlen(name)); }

static uint64_t stem_of(const char *name)
{
	const char *dot = strrchr(name, '.');

	return hash_bytes(name, dot && dot > name ? (size_t)(dot - name) : strlen(name));
}

static bool keep_name(struct checkpoint_listing *listing, const char *name, unsigned char type)
{
	uint64_t index, hash = hash_of(name);

	if (!neap_array_grow(&listing->names, listing->count, sizeof *listing->names) ||
	    !neap_array_grow(&listing->types, listing->count, sizeof *listing->types))
		return false;
	char *copy = strdup(name);
	if (!copy)
		return false;
	listing->names[listing->count] = copy;
	listing->types[listing->count++] = type;
	listing->beside_count += checkpoint_is_beside(name);
	return neap_map_get(&listing->by_hash, hash, &index) ||
	       neap_map_put(&listing->by_hash, hash, listing->count - 1);
}

enum neap_status checkpoint_listing_read(int fd, struct checkpoint_listing *listing, struct neap_error *err)
{
	int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = own < 0 ? NULL : fdopendir(own);
	struct dirent *entry;

	if (!folder) {
		int cause = errno;
		if (own >= 0)
			close(own);
		return neap_fail_errno(err, cause, "opening the folder");
	}
	errno = 0;
	while ((entry = readdir(folder))) {
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
		    !keep_name(listing, entry->d_name, entry->d_type)) {
			closedir(folder);
			return neap_fail(err, NEAP_ENOMEM, "out of host memory after %zu names", listing->count);
		}
		errno = 0;
	}
	int cause = errno;
	closedir(folder);
	return cause == 0 ? NEAP_OK : neap_fail_errno(err, cause, "reading the folder");
}

size_t checkpoint_listing_find(const struct checkpoint_listing *listing, const char *name)
{
	uint64_t index;

	if (!neap_map_get(&listing->by_hash, hash_of(name), &index))
		return listing->count;
	if (!strcmp(listing->names[index], name))
		return (size_t)index;
	for (size_t i = 0; i < listing->count; i++)
		if (!strcmp(listing->names[i], name))
			return i;
	return listing->count;
}

bool checkpoint_listing_count_stems(struct checkpoint_listing *listing)
{
	bool fine = true;

	for (size_t i = 0; fine && listing->beside_count > 0 && i < listing->count; i++) {
		uint64_t stem = stem_of(listing->names[i]), count = 0;

		if (checkpoint_is_beside(listing->names[i]))
			continue;
		neap_map_get(&listing->by_stem, stem, &count);
		fine = neap_map_put(&listing->by_stem, stem, count + 1);
	}
	return fine;
}

bool checkpoint_listing_stem_shared(const struct checkpoint_listing *listing, const char *name, uint64_t most)
{
	uint64_t count = 0;

	return neap_map_get(&listing->by_stem, stem_of(name), &count) && count > most;
}

void checkpoint_listing_fini(struct checkpoint_listing *listing)
{
	for (size_t i = 0; i < listing->count; i++)
		free(listing->names[i]);
	free(listing->names);
	free(listing->types);
	neap_map_fini(&listing->by_hash);
	neap_map_fini(&listing->by_stem);
	*listing = (struct checkpoint_listing){0};
}
