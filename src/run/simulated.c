/* run/simulated.c: see simulated.h. */
#include "run/simulated.h"

#include "base/file.h"
#include "base/units.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES      4096u  /* of one run */
#define FILE_BYTES 65536u /* of one process; the rest is not read */
#define WORDS      6
#define SHOWN      3 /* functions of each kind that the line names */

static const char *const gap_names[NEAP_GAPS] = {
	[NEAP_GAP_WORKSPACE] = "workspace", [NEAP_GAP_REFUSED] = "refused", [NEAP_GAP_TRANSFER] = "transfer",
	[NEAP_GAP_KERNEL] = "kernel",       [NEAP_GAP_VALUES] = "values",
};

static uint64_t add_capped(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

/* --- reading --- */

static bool is_name(const char *word, size_t capacity)
{
	size_t length = strlen(word);
	for (size_t i = 0; i < length; i++)
		if (word[i] <= 0x20 || word[i] >= 0x7f)
			return false;
	return length > 0 && length < capacity;
}

/* Parses one line, which it may change. False: the line has another form. */
static bool read_gap(char *line, struct neap_simulated_gap *ret_gap)
{
	struct neap_simulated_gap gap = {.kind = NEAP_GAPS};
	char *words[WORDS], *next = line;
	for (size_t i = 0; i < WORDS; i++)
		if (!(words[i] = strsep(&next, " ")))
			return false;
	for (enum neap_gap kind = 0; kind < NEAP_GAPS; kind++)
		if (!strcmp(words[0], gap_names[kind]))
			gap.kind = kind;
	if (next || gap.kind == NEAP_GAPS || !is_name(words[1], sizeof gap.library) ||
	    !is_name(words[2], sizeof gap.function) || neap_u64_parse(words[3], &gap.calls, NULL) ||
	    neap_u64_parse(words[4], &gap.low_bytes, NULL) || neap_u64_parse(words[5], &gap.high_bytes, NULL) ||
	    !gap.calls || gap.low_bytes > gap.high_bytes)
		return false;
	strcpy(gap.library, words[1]);
	strcpy(gap.function, words[2]);
	*ret_gap = gap;
	return true;
}

static void merge(struct neap_simulated *simulated, const struct neap_simulated_gap *from)
{
	simulated->calls[from->kind] = add_capped(simulated->calls[from->kind], from->calls);
	for (size_t i = 0; i < simulated->gap_count; i++) {
		struct neap_simulated_gap *gap = &simulated->gaps[i];
		if (gap->kind != from->kind || strcmp(gap->library, from->library) ||
		    strcmp(gap->function, from->function))
			continue;
		gap->calls = add_capped(gap->calls, from->calls);
		if (from->low_bytes < gap->low_bytes)
			gap->low_bytes = from->low_bytes;
		if (from->high_bytes > gap->high_bytes)
			gap->high_bytes = from->high_bytes;
		return;
	}
	if (simulated->gap_count < NEAP_SIMULATED_GAPS)
		simulated->gaps[simulated->gap_count++] = *from;
}

void neap_simulated_add(struct neap_simulated *simulated, const char *text, size_t length)
{
	simulated->processes++;
	while (length) {
		const char *end = memchr(text, '\n', length);
		size_t taken = end ? (size_t)(end - text) : length;
		struct neap_simulated_gap gap;
		char line[256];
		if (end && taken < sizeof line) {
			memcpy(line, text, taken);
			line[taken] = '\0';
			if (strlen(line) == taken && read_gap(line, &gap))
				merge(simulated, &gap);
		}
		taken += end != NULL;
		text += taken;
		length -= taken;
	}
}

/* Reads at most `capacity` bytes of a plain file. Anything else gives 0: it may be a pipe without a writer. */
static size_t read_plain(int folder_fd, const char *name, char *text, size_t capacity)
{
	struct stat info;
	size_t length = 0;
	int fd = openat(folder_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return 0;
	while (!fstat(fd, &info) && S_ISREG(info.st_mode) && length < capacity) {
		ssize_t got = read(fd, text + length, capacity - length);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		length += (size_t)got;
	}
	close(fd);
	return length;
}

static bool is_simulated_file(const char *name)
{
	uint64_t pid;
	return !strncmp(name, "simulated.", 10) && !neap_u64_parse(name + 10, &pid, NULL);
}

bool neap_simulated_is_used(const char *folder)
{
	DIR *entries = opendir(folder);
	bool found = false;
	for (struct dirent *entry; entries && !found && (entry = readdir(entries));)
		found = is_simulated_file(entry->d_name);
	if (entries)
		closedir(entries);
	return found;
}

void neap_simulated_read(const char *folder, struct neap_simulated *simulated)
{
	DIR *entries = opendir(folder);
	char *text = malloc(FILE_BYTES);
	size_t files = 0;
	for (struct dirent *entry; entries && text && files < FILES && (entry = readdir(entries));) {
		if (!is_simulated_file(entry->d_name))
			continue;
		neap_simulated_add(simulated, text, read_plain(dirfd(entries), entry->d_name, text, FILE_BYTES));
		files++;
	}
	free(text);
	if (entries)
		closedir(entries);
}

/* --- the line --- */

/* Most calls first, then by name: the files come in any order. */
static int by_calls(const void *a, const void *b)
{
	const struct neap_simulated_gap *one = a, *other = b;
	if (one->calls != other->calls)
		return one->calls < other->calls ? 1 : -1;
	int order = strcmp(one->library, other->library);
	return order ? order : strcmp(one->function, other->function);
}

static void put_gap(const struct neap_simulated_gap *gap, struct neap_buffer *out)
{
	char low[NEAP_UNITS_CAPACITY], high[NEAP_UNITS_CAPACITY];
	neap_buffer_format(out, "%s %s (%" PRIu64 " call%s", gap->library, gap->function, gap->calls,
			   gap->calls == 1 ? "" : "s");
	if (gap->high_bytes == NEAP_SIMULATED_UNBOUNDED)
		neap_buffer_format(out, ", usually %s or more each, no bound is known",
				   neap_size_format(gap->low_bytes, low));
	else if (gap->kind == NEAP_GAP_WORKSPACE)
		neap_buffer_format(out, ", %s to %s each", neap_size_format(gap->low_bytes, low),
				   neap_size_format(gap->high_bytes, high));
	neap_buffer_text(out, ")");
}

static void put_kind(const struct neap_simulated *simulated, enum neap_gap kind, const char *words,
		     struct neap_buffer *out)
{
	struct neap_simulated_gap gaps[NEAP_SIMULATED_GAPS];
	size_t count = 0;
	uint64_t rest = simulated->calls[kind];
	if (!rest)
		return;
	for (size_t i = 0; i < simulated->gap_count; i++)
		if (simulated->gaps[i].kind == kind)
			gaps[count++] = simulated->gaps[i];
	qsort(gaps, count, sizeof *gaps, by_calls);
	neap_buffer_format(out, "; %s: ", words);
	for (size_t i = 0; i < count && i < SHOWN; i++) {
		neap_buffer_text(out, i ? ", " : "");
		put_gap(&gaps[i], out);
		rest -= gaps[i].calls < rest ? gaps[i].calls : rest;
	}
	if (rest)
		neap_buffer_format(out, "%s%" PRIu64 " call%s of others", count ? ", " : "", rest,
				   rest == 1 ? "" : "s");
}

void neap_simulated_text(const struct neap_simulated *simulated, struct neap_buffer *out)
{
	uint64_t values = simulated->calls[NEAP_GAP_VALUES];
	if (!simulated->processes)
		return;
	neap_buffer_text(out, "no kernel ran");
	put_kind(simulated, NEAP_GAP_WORKSPACE, "workspaces not modelled", out);
	put_kind(simulated, NEAP_GAP_REFUSED, "refused", out);
	put_kind(simulated, NEAP_GAP_TRANSFER, "not moved between ranks", out);
	put_kind(simulated, NEAP_GAP_KERNEL, "kernels of extensions, launched as nothing", out);
	if (values)
		neap_buffer_format(out, "; %" PRIu64 " result%s of library calls read%s as zeros", values,
				   values == 1 ? "" : "s", values == 1 ? "s" : "");
}
