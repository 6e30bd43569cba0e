/* estimate/code.c: see code.h. */
#include "estimate/code.h"

#include "analyze/saturate.h"
#include "base/array.h"
#include "base/file.h"
#include "estimate/fatbin.h"

#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES    (32u << 20)
#define KERNELS_MOST  65536
#define SEGMENTS_MOST 512
#define EXPANDED_MOST (8ull << 30) /* of all images together: some seconds */

/* A line of the file; the texts are the file's. */
struct used {
	const char *path, *name; /* name NULL: the module, without a kernel */
	uint64_t address;
};

struct reading {
	struct neap_code *code;
	struct used *used;
	size_t count;
	unsigned int capability;
	uint64_t expanded; /* how many bytes were expanded so far */
	uint64_t most_modules;
};

/* --- the process's file --- */

/* Adds "cudnn" of "cudnnBackendExecute", once. The figure for NCCL includes its code: sim/libraries/nccl.md. */
static void add_library(struct neap_code *code, const char *name)
{
	char word[24];
	size_t length = 0, used = strlen(code->beside);
	while (islower((unsigned char)name[length]) && length + 1 < sizeof word)
		length++;
	if (!length)
		return;
	memcpy(word, name, length);
	word[length] = '\0';
	if (strcmp(word, "cublas") == 0)
		code->cublas = true;
	else if (strcmp(word, "nccl") != 0 && !strstr(code->beside, word) && used + length + 3 <= sizeof code->beside)
		snprintf(code->beside + used, sizeof code->beside - used, "%s%s", used ? ", " : "", word);
}

static void add_line(struct reading *reading, char *line)
{
	char *kind = strsep(&line, " "), *address, *end;
	struct used used = {0};
	if (!line)
		return;
	if (strcmp(kind, "device") == 0) {
		uint64_t number = strtoul(line, &end, 10);
		reading->capability = number < 1000 ? (unsigned int)number : 0;
	} else if (strcmp(kind, "cubin") == 0) {
		uint64_t bytes = strtoull(line, &end, 10);
		reading->code->own_modules += bytes > 0;
		reading->code->own_bytes = neap_plus(reading->code->own_bytes, bytes);
		reading->code->unread += !bytes;
	} else if (strcmp(kind, "library") == 0) {
		add_library(reading->code, line);
	} else if ((strcmp(kind, "kernel") == 0 || strcmp(kind, "module") == 0) && reading->count < KERNELS_MOST) {
		address = strsep(&line, " ");
		used.address = strtoull(address, &end, 16);
		if (!line || *end)
			return;
		used.path = strsep(&line, "\t");
		used.name = *kind == 'k' ? line : NULL;
		if ((*kind == 'k' && !line) || !neap_array_grow(&reading->used, reading->count, sizeof used))
			return;
		reading->code->eager |= *kind == 'm';
		reading->used[reading->count++] = used;
	}
}

/* Compares by file, fat binary and kernel. A module without a kernel comes first. */
static int by_place(const void *a, const void *b)
{
	const struct used *one = a, *other = b;
	int order = strcmp(one->path, other->path);
	if (order)
		return order;
	if (one->address != other->address)
		return one->address < other->address ? -1 : 1;
	return strcmp(one->name ? one->name : "", other->name ? other->name : "");
}

/* --- the libraries --- */

/* A library's file, with the program headers that map virtual addresses to places in it. */
struct library {
	int fd;
	Elf64_Phdr segments[SEGMENTS_MOST];
	size_t count;
};

static bool read_at(int fd, void *to, size_t length, uint64_t offset)
{
	char *at = to;
	while (length) {
		ssize_t got = offset > INT64_MAX ? 0 : pread(fd, at, length, (off_t)offset);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		at += got;
		offset += (uint64_t)got;
		length -= (size_t)got;
	}
	return true;
}

static bool open_library(const char *path, struct library *library)
{
	struct stat info;
	Elf64_Ehdr header;
	*library = (struct library){.fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
	if (*path != '/' || library->fd < 0 || fstat(library->fd, &info) || !S_ISREG(info.st_mode) ||
	    !read_at(library->fd, &header, sizeof header, 0) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
	    header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr) ||
	    header.e_phnum > SEGMENTS_MOST ||
	    !read_at(library->fd, library->segments, header.e_phnum * sizeof(Elf64_Phdr), header.e_phoff))
		return false;
	library->count = header.e_phnum;
	return true;
}

/* Returns a copy of the fat binary at this virtual address, which the caller frees. NULL: there is none. */
static unsigned char *read_binary(const struct library *library, uint64_t address, size_t *ret_length)
{
	unsigned char header[NEAP_FATBIN_HEADER], *bytes = NULL;
	for (size_t i = 0; i < library->count; i++) {
		const Elf64_Phdr *segment = &library->segments[i];
		uint64_t into = address - segment->p_vaddr, offset = segment->p_offset + into;
		if (segment->p_type != PT_LOAD || address < segment->p_vaddr || into >= segment->p_filesz ||
		    !read_at(library->fd, header, sizeof header, offset))
			continue;
		*ret_length = neap_fatbin_length(header);
		bytes = *ret_length ? malloc(*ret_length) : NULL;
		if (bytes && !read_at(library->fd, bytes, *ret_length, offset)) {
			free(bytes);
			bytes = NULL;
		}
		break;
	}
	return bytes;
}

/* Measures the images of a fat binary that the driver may load onto the device. False: there is none, or it is
 * damaged. */
static bool measure(struct reading *reading, const unsigned char *bytes, size_t length, const char *const *names,
		    size_t count)
{
	struct neap_fatbin_image images[NEAP_FATBIN_IMAGES];
	size_t found = neap_fatbin_find(bytes, length, reading->capability, images);
	uint64_t low = UINT64_MAX, high = 0, stack = 0;
	for (size_t i = 0; i < found; i++) {
		struct neap_cubin_sizes sizes;
		unsigned char *cubin = NULL;
		if (images[i].plain_length > EXPANDED_MOST - reading->expanded ||
		    neap_fatbin_expand(&images[i], &cubin))
			return false;
		reading->expanded += images[i].plain_length;
		enum neap_status status = neap_cubin_measure(cubin, images[i].plain_length, names, count, &sizes);
		free(cubin);
		if (status)
			return false;
		uint64_t least = reading->code->eager ? sizes.code_bytes : sizes.kernel_bytes;
		low = least < low ? least : low;
		high = sizes.module_bytes > high ? sizes.module_bytes : high;
		stack = sizes.stack_bytes > stack ? sizes.stack_bytes : stack;
	}
	if (!found)
		return false;
	reading->code->low_bytes = neap_plus(reading->code->low_bytes, low);
	reading->code->high_bytes = neap_plus(reading->code->high_bytes, high);
	if (stack > reading->code->stack_bytes)
		reading->code->stack_bytes = stack;
	return true;
}

/* Measures one fat binary, which the lines from `begin` to `end` are about. Returns whether it could. */
static bool add_module(struct reading *reading, const struct library *library, size_t begin, size_t end)
{
	const struct used *used = reading->used;
	size_t length = 0, count = 0;
	unsigned char *bytes = read_binary(library, used[begin].address, &length);
	const char **names = calloc(end - begin, sizeof *names);
	for (size_t i = begin; names && i < end; i++)
		if (used[i].name)
			names[count++] = used[i].name;
	bool good = bytes && names && measure(reading, bytes, length, names, count);
	free(names);
	free(bytes);
	if (good) {
		reading->code->modules++;
		reading->code->kernels += count;
	} else {
		reading->code->unread += end - begin;
	}
	return good;
}

/* Measures the fat binaries of one file, which the lines from `begin` to `end` are about. */
static void add_file(struct reading *reading, size_t begin, size_t end)
{
	const struct used *used = reading->used;
	struct library library;
	uint64_t modules = 0;
	bool good = open_library(used[begin].path, &library);
	for (size_t i = begin, next; i < end; i = next) {
		for (next = i + 1; next < end && used[next].address == used[i].address; next++)
			;
		if (good)
			modules += add_module(reading, &library, i, next);
		else
			reading->code->unread += next - i;
	}
	if (library.fd >= 0)
		close(library.fd);
	if (modules > reading->most_modules) {
		const char *name = strrchr(used[begin].path, '/');
		reading->most_modules = modules;
		snprintf(reading->code->library, sizeof reading->code->library, "%s",
			 name ? name + 1 : used[begin].path);
	}
}

void neap_code_read(const char *folder, uint64_t pid, struct neap_code *ret_code)
{
	struct neap_code code = {0};
	struct reading reading = {.code = &code};
	struct neap_buffer text = {0};
	char path[4096], name[64], *rest, *line;
	snprintf(name, sizeof name, "code.%" PRIu64, pid);
	if (neap_path_join(path, sizeof path, folder, name) || neap_file_read(path, FILE_BYTES, &text, NULL) ||
	    !text.length)
		goto out;
	code.known = true;
	neap_buffer_text(&text, ""); /* ended by a zero byte */
	rest = text.data;
	while (rest && (line = strsep(&rest, "\n")))
		add_line(&reading, line);
	if (reading.count)
		qsort(reading.used, reading.count, sizeof *reading.used, by_place);
	for (size_t i = 0, next; i < reading.count; i = next) {
		for (next = i + 1; next < reading.count && !strcmp(reading.used[next].path, reading.used[i].path);
		     next++)
			;
		add_file(&reading, i, next);
	}
out:
	free(reading.used);
	neap_buffer_fini(&text);
	*ret_code = code;
}
