/* checkpoint/zip.c: see the header. Format: "APPNOTE.TXT - .ZIP File Format Specification" 6.3.10, sections 4.3.7
 * (member), 4.3.12 (list), 4.3.14 to 4.3.16 (ends), 4.5.3 (numbers of 64 bits). */
#include "checkpoint/zip.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define END_BYTES     22
#define LOCATOR_BYTES 20
#define END64_BYTES   56
#define ENTRY_BYTES   46
#define MEMBER_BYTES  30
#define COMMENT_MOST  65535
#define LIST_MOST     (64 * 1024 * 1024)

bool checkpoint_read_at(int fd, void *bytes, size_t length, uint64_t at)
{
	char *to = bytes;

	while (length > 0) {
		ssize_t n = pread(fd, to, length, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		to += n;
		at += (uint64_t)n;
		length -= (size_t)n;
	}
	return true;
}

static uint64_t number(const unsigned char *bytes, size_t count)
{
	uint64_t value = 0;

	while (count-- > 0)
		value = value << 8 | bytes[count];
	return value;
}

/* --- the end --- */

struct list {
	uint64_t begin, length;
};

/* Reads the 64-bit form of the list's place, from the records before the archive's end record at `end`. */
static bool read_end64(int fd, uint64_t end, struct list *list)
{
	unsigned char bytes[END64_BYTES];

	if (end < LOCATOR_BYTES || !checkpoint_read_at(fd, bytes, LOCATOR_BYTES, end - LOCATOR_BYTES) ||
	    memcmp(bytes, "PK\6\7", 4) != 0)
		return false;
	uint64_t at = number(bytes + 8, 8);
	if (at > end || end - at < END64_BYTES || !checkpoint_read_at(fd, bytes, END64_BYTES, at) ||
	    memcmp(bytes, "PK\6\6", 4) != 0)
		return false;
	list->length = number(bytes + 40, 8);
	list->begin = number(bytes + 48, 8);
	return true;
}

/* Whether `record`, `left` bytes before the end of the file, is the archive's end record. Fills `list` from it. */
static bool read_end(int fd, const unsigned char *record, uint64_t left, uint64_t size, struct list *list)
{
	if (memcmp(record, "PK\5\6", 4) != 0 || number(record + 20, 2) != left - END_BYTES)
		return false;
	list->length = number(record + 12, 4);
	list->begin = number(record + 16, 4);
	if ((list->length == UINT32_MAX || list->begin == UINT32_MAX) && !read_end64(fd, size - left, list))
		return false;
	return list->begin <= size - left && list->length <= size - left - list->begin;
}

static bool find_end(int fd, uint64_t size, struct list *list)
{
	unsigned char end[END_BYTES];

	if (size < END_BYTES || !checkpoint_read_at(fd, end, sizeof end, size - END_BYTES))
		return false;
	if (read_end(fd, end, END_BYTES, size, list))
		return true;
	/* a comment may follow the end record */
	size_t length = size < END_BYTES + COMMENT_MOST ? (size_t)size : END_BYTES + COMMENT_MOST;
	unsigned char *tail = malloc(length);
	bool found = false, fine = tail && checkpoint_read_at(fd, tail, length, size - length);
	for (size_t left = END_BYTES + 1; fine && !found && left <= length; left++)
		found = read_end(fd, tail + length - left, left, size, list);
	free(tail);
	return found;
}

bool checkpoint_zip_end(int fd, uint64_t size, uint64_t *ret_begin, uint64_t *ret_length)
{
	struct list list;

	if (!find_end(fd, size, &list))
		return false;
	if (ret_begin)
		*ret_begin = list.begin;
	if (ret_length)
		*ret_length = list.length;
	return true;
}

/* --- members --- */

bool checkpoint_zip_open(int fd, struct checkpoint_zip *ret_zip)
{
	struct checkpoint_zip zip = {.fd = fd};
	struct stat info;
	uint64_t begin, length;

	if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode) || info.st_size <= 0)
		return false;
	zip.size = (uint64_t)info.st_size;
	if (!checkpoint_zip_end(fd, zip.size, &begin, &length) || length > LIST_MOST)
		return false;
	zip.list = malloc(length + 1);
	zip.list_length = (size_t)length;
	if (!zip.list || !checkpoint_read_at(fd, zip.list, zip.list_length, begin)) {
		free(zip.list);
		return false;
	}
	*ret_zip = zip;
	return true;
}

void checkpoint_zip_fini(struct checkpoint_zip *zip)
{
	free(zip->list);
	*zip = (struct checkpoint_zip){0};
}

/* An entry of the list. */
struct entry {
	const char *name;
	size_t name_length;
	uint64_t begin, length, packed; /* offset and bytes of the member; the bytes that it takes in the archive */
	bool stored;
};

/* A field of its own has the numbers that do not fit into 32 bits: only the missing ones, in this order. */
static void read_numbers64(const unsigned char *extra, size_t length, struct entry *entry)
{
	uint64_t *const missing[] = {&entry->length, &entry->packed, &entry->begin};

	while (length >= 4) {
		size_t kind = (size_t)number(extra, 2), size = (size_t)number(extra + 2, 2), at = 4;
		if (size > length - 4)
			return;
		for (size_t i = 0; kind == 1 && i < 3; i++) {
			if (*missing[i] != UINT32_MAX)
				continue;
			if (at + 8 > 4 + size)
				return;
			*missing[i] = number(extra + at, 8);
			at += 8;
		}
		extra += 4 + size;
		length -= 4 + size;
	}
}

/* Reads the entry at *at and moves *at behind it. False: there are no more, or the list is damaged. */
static bool next_entry(const struct checkpoint_zip *zip, size_t *at, struct entry *ret_entry)
{
	const unsigned char *bytes = zip->list + *at;
	size_t left = zip->list_length - *at;

	if (left < ENTRY_BYTES || memcmp(bytes, "PK\1\2", 4) != 0)
		return false;
	size_t name = (size_t)number(bytes + 28, 2), extra = (size_t)number(bytes + 30, 2);
	size_t length = ENTRY_BYTES + name + extra + (size_t)number(bytes + 32, 2);
	if (length > left)
		return false;
	*ret_entry = (struct entry){.name = (const char *)bytes + ENTRY_BYTES,
				    .name_length = name,
				    .begin = number(bytes + 42, 4),
				    .length = number(bytes + 24, 4),
				    .packed = number(bytes + 20, 4),
				    .stored = number(bytes + 10, 2) == 0 && !(bytes[8] & 1)};
	read_numbers64(bytes + ENTRY_BYTES + name, extra, ret_entry);
	*at += length;
	return true;
}

static bool is_named(const struct entry *entry, const char *end)
{
	size_t length = strlen(end), before = entry->name_length - length;

	if (entry->name_length < length || memcmp(entry->name + before, end, length) != 0)
		return false;
	return before == 0 || entry->name[before - 1] == '/';
}

bool checkpoint_zip_find(const struct checkpoint_zip *zip, const char *end, uint64_t *ret_begin, uint64_t *ret_length)
{
	unsigned char bytes[MEMBER_BYTES];
	struct entry entry;

	for (size_t at = 0; next_entry(zip, &at, &entry);) {
		if (!is_named(&entry, end))
			continue;
		if (!entry.stored || entry.length != entry.packed || entry.begin > zip->size ||
		    !checkpoint_read_at(zip->fd, bytes, sizeof bytes, entry.begin) || memcmp(bytes, "PK\3\4", 4) != 0)
			return false;
		uint64_t begin = entry.begin + MEMBER_BYTES + number(bytes + 26, 2) + number(bytes + 28, 2);
		if (begin > zip->size || entry.length > zip->size - begin)
			return false;
		*ret_begin = begin;
		*ret_length = entry.length;
		return true;
	}
	return false;
}

bool checkpoint_zip_read(const struct checkpoint_zip *zip, const char *end, size_t most, void **ret_bytes,
			 size_t *ret_length)
{
	uint64_t begin, length;

	*ret_bytes = NULL;
	if (!checkpoint_zip_find(zip, end, &begin, &length) || length > most)
		return true;
	void *bytes = malloc((size_t)length + 1);
	if (bytes && checkpoint_read_at(zip->fd, bytes, (size_t)length, begin)) {
		*ret_bytes = bytes;
		*ret_length = (size_t)length;
		return true;
	}
	free(bytes);
	return bytes != NULL;
}
