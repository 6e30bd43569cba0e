/* alloc/core/tags.c: names for allocations.
 *
 * Each thread has a current name; the allocator has the counters. Entry 0 counts untagged requests. Copies of the
 * names follow in order of their first use. The last entry, "other", counts every name beyond NEAP_TAGS_MAX.
 */
#include "alloc/core/core.h"

#include <string.h>

/* Static, so that its first use does not allocate: if that allocation failed, glibc would end the process. */
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
