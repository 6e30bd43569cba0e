/* alloc/tags.c: names for what is being allocated.
 *
 * The name is the thread's, the counters are the allocator's: entry 0 is for untagged requests, then the names in
 * order of their first use, copied; the last entry takes every name beyond NEAP_TAGS_MAX.
 */
#include "alloc/internal.h"

#include <string.h>

/* Static, so that its first use allocates nothing: glibc ends the process when there is no memory for that. */
_Thread_local __attribute__((tls_model("initial-exec"))) const char *neap_thread_tag;

const char *neap_tag_set(const char *tag)
{
	const char *previous = neap_thread_tag;
	neap_thread_tag = tag;
	return previous;
}

uint8_t neap_tag_find(struct neap_alloc *alloc)
{
	uint8_t known = neap_tag_known(alloc);
	if (known != TAG_UNKNOWN)
		return known;
	size_t length = strnlen(neap_thread_tag, sizeof alloc->tags[0].text - 1);
	memcpy(alloc->tags[++alloc->tag_count].text, neap_thread_tag, length);
	return (uint8_t)alloc->tag_count;
}

uint8_t neap_tag_known(const struct neap_alloc *alloc)
{
	const char *text = neap_thread_tag;
	if (!text || !*text)
		return TAG_NONE;
	for (size_t i = 1; i <= alloc->tag_count; i++)
		if (strncmp(alloc->tags[i].text, text, sizeof alloc->tags[0].text - 1) == 0)
			return (uint8_t)i;
	return alloc->tag_count == NEAP_TAGS_MAX ? TAG_OTHER : TAG_UNKNOWN;
}

size_t neap_tags_used(const struct neap_alloc *alloc)
{
	return alloc->tag_count == NEAP_TAGS_MAX ? NEAP_TAGS_MAX + 2 : alloc->tag_count + 1;
}

void neap_tags_number(struct neap_alloc *alloc)
{
	for (size_t i = 1; i < neap_tags_used(alloc); i++)
		neap_tag_number(alloc, (uint8_t)i);
}

void neap_tag_add(struct neap_alloc *alloc, uint8_t tag, int64_t bytes)
{
	struct neap_tag *entry = &alloc->tags[tag];
	entry->live_bytes += (uint64_t)bytes;
	if (bytes > 0)
		entry->live_blocks++;
	else
		entry->live_blocks--;
	if (entry->live_bytes > entry->peak_bytes)
		entry->peak_bytes = entry->live_bytes;
}

uint16_t neap_tag_number(struct neap_alloc *alloc, uint8_t tag)
{
	struct neap_tag *entry = &alloc->tags[tag];
	if (tag == TAG_NONE || !alloc->observer || !alloc->observer->name)
		return 0;
	if (!entry->numbered) {
		entry->number = alloc->observer->name(alloc->observer->context, entry->text);
		entry->numbered = true;
	}
	return entry->number;
}

void neap_tags_renumber(struct neap_alloc *alloc)
{
	for (size_t i = 0; i < sizeof alloc->tags / sizeof alloc->tags[0]; i++)
		alloc->tags[i].numbered = false;
}

size_t neap_tag_stats(struct neap_alloc *alloc, struct neap_tag_bytes *ret_tags, size_t room)
{
	size_t count = 0;
	neap_alloc_lock(alloc);
	for (size_t i = 0; i < sizeof alloc->tags / sizeof alloc->tags[0]; i++) {
		const struct neap_tag *tag = &alloc->tags[i];
		if (!tag->peak_bytes)
			continue;
		if (count < room)
			ret_tags[count] = (struct neap_tag_bytes){tag->text, tag->live_bytes, tag->peak_bytes,
								  tag->live_blocks};
		count++;
	}
	neap_alloc_unlock(alloc);
	return count;
}
