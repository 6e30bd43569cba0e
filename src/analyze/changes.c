/* analyze/changes.c: joins both lists of holders, sorts them by name, and merges equal names. */
#include "analyze/changes.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* "train/gpt.py:69 forward" -> "train/gpt.py forward" */
static void drop_line(char *text)
{
	char *colon = strchr(text, ':');
	size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
	if (digits > 0 && colon[1 + digits] == ' ')
		memmove(colon, colon + 1 + digits, strlen(colon + 1 + digits) + 1);
}

static int by_name(const void *left, const void *right)
{
	const struct neap_change *a = left, *b = right;
	return strcmp(a->name, b->name);
}

static int by_change(const void *left, const void *right)
{
	int64_t a = llabs(neap_change_bytes(left)), b = llabs(neap_change_bytes(right));
	return a != b ? (a < b) - (a > b) : by_name(left, right);
}

enum neap_status neap_changes_find(const struct neap_analysis *before, const struct neap_analysis *after,
				   struct neap_change **ret_changes, size_t *ret_count, struct neap_error *err)
{
	size_t total = before->holder_count + after->holder_count, count = 0;
	struct neap_change *changes = calloc(total + 1, sizeof *changes);

	if (!changes)
		return neap_fail(err, NEAP_ENOMEM, "no memory to compare holders");
	for (size_t i = 0; i < total; i++) {
		bool first = i < before->holder_count;
		const struct neap_analysis *from = first ? before : after;
		const struct neap_holder *holder = &from->holders[first ? i : i - before->holder_count];
		neap_holder_text(from->trace, holder, changes[i].name, sizeof changes[i].name);
		drop_line(changes[i].name);
		*(first ? &changes[i].before_bytes : &changes[i].after_bytes) = holder->bytes;
		*(first ? &changes[i].before_blocks : &changes[i].after_blocks) = holder->blocks;
	}
	qsort(changes, total, sizeof *changes, by_name);
	for (size_t i = 0; i < total; i++) {
		if (count == 0 || strcmp(changes[count - 1].name, changes[i].name) != 0) {
			changes[count++] = changes[i];
			continue;
		}
		changes[count - 1].before_bytes += changes[i].before_bytes;
		changes[count - 1].after_bytes += changes[i].after_bytes;
		changes[count - 1].before_blocks += changes[i].before_blocks;
		changes[count - 1].after_blocks += changes[i].after_blocks;
	}
	qsort(changes, count, sizeof *changes, by_change);
	*ret_changes = changes;
	*ret_count = count;
	return NEAP_OK;
}

uint64_t neap_category_bytes(const struct neap_analysis *analysis, enum neap_category category)
{
	uint64_t bytes = 0;
	for (int how = 0; how < NEAP_HOWS; how++)
		bytes += analysis->categories.bytes[category][how];
	return bytes;
}
