/* estimate/fatbin.c: see fatbin.h. */
#include "estimate/fatbin.h"

#include "analyze/saturate.h"

#include <elf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#ifndef EM_CUDA
#define EM_CUDA 190
#endif

#define MAGIC       0xba55ed50u
#define KIND_CUBIN  2
#define FLAG_LZ4    0x2000u
#define FLAG_ZSTD   0x8000u
#define FLAG_EXACT  0x100000u /* "sm_90a": runs on this compute capability alone */
#define IMAGES_MOST 1024

struct header {
	uint32_t magic;
	uint16_t version, header_bytes;
	uint64_t bytes; /* of the images */
};

struct image_header {
	uint16_t kind, version;
	uint32_t header_bytes;
	uint64_t padded_bytes;
	uint32_t bytes; /* 0: padded_bytes */
	uint32_t unused;
	uint16_t minor, major; /* of the format */
	uint32_t architecture; /* 90: sm_90 */
	uint64_t name;
	uint64_t flags;
	uint64_t reserved;
	uint64_t plain_bytes;
};

_Static_assert(sizeof(struct header) == NEAP_FATBIN_HEADER && sizeof(struct image_header) == 64, "as in the file");

size_t neap_fatbin_length(const void *bytes)
{
	struct header header;
	memcpy(&header, bytes, sizeof header);
	if (header.magic != MAGIC || header.header_bytes < sizeof header || header.bytes > NEAP_FATBIN_MOST)
		return 0;
	return header.header_bytes + (size_t)header.bytes;
}

/* A cubin runs on its own compute capability and on later ones of the same major number. */
static bool runs_on(const struct image_header *image, unsigned int capability)
{
	if (image->flags & FLAG_EXACT)
		return image->architecture == capability;
	return image->architecture / 10 == capability / 10 && image->architecture <= capability;
}

size_t neap_fatbin_find(const void *bytes, size_t length, unsigned int capability,
			struct neap_fatbin_image ret_images[NEAP_FATBIN_IMAGES])
{
	const unsigned char *start = bytes;
	struct header header;
	uint32_t newest = 0;
	size_t count = 0, at, whole = length >= sizeof header ? neap_fatbin_length(bytes) : 0;
	if (!whole || whole > length)
		return 0;
	memcpy(&header, bytes, sizeof header);
	at = header.header_bytes;
	for (int i = 0; i < IMAGES_MOST && whole - at >= sizeof(struct image_header); i++) {
		struct image_header image;
		memcpy(&image, start + at, sizeof image);
		if (image.header_bytes < sizeof image || image.header_bytes > whole - at ||
		    image.padded_bytes > whole - at - image.header_bytes || image.bytes > image.padded_bytes)
			return 0;
		if (image.kind == KIND_CUBIN && runs_on(&image, capability) && image.architecture >= newest) {
			bool packed = image.flags & (FLAG_LZ4 | FLAG_ZSTD);
			count = image.architecture > newest ? 0 : count;
			newest = image.architecture;
			if (count == NEAP_FATBIN_IMAGES)
				return 0;
			struct neap_fatbin_image *found = &ret_images[count++];
			found->bytes = start + at + image.header_bytes;
			found->length = image.bytes ? image.bytes : (size_t)image.padded_bytes;
			found->plain_length = packed ? (size_t)image.plain_bytes : found->length;
			found->compression = image.flags & FLAG_ZSTD  ? NEAP_FATBIN_ZSTD
					     : image.flags & FLAG_LZ4 ? NEAP_FATBIN_LZ4
								      : NEAP_FATBIN_PLAIN;
		}
		at += image.header_bytes + (size_t)image.padded_bytes;
	}
	return count;
}

/* --- expanding --- */

struct block {
	const unsigned char *at, *end;
};

/* Reads further bytes of a length. Each adds up to 255, and the first one below that is the last. False: cut
 * short. */
static bool read_length(struct block *from, size_t *length)
{
	unsigned char byte = 255;
	while (byte == 255) {
		if (from->at == from->end)
			return false;
		byte = *from->at++;
		*length += byte;
	}
	return true;
}

/* The LZ4 block format: literals, then a copy of bytes that were written before; the last literals end it. False:
 * damaged, or not exactly `length` bytes. */
static bool expand_lz4(struct block from, unsigned char *to, size_t length)
{
	size_t used = 0;
	while (from.at < from.end) {
		unsigned char token = *from.at++;
		size_t literals = token >> 4, copied = token & 15, distance;
		if (literals == 15 && !read_length(&from, &literals))
			return false;
		if (literals > (size_t)(from.end - from.at) || literals > length - used)
			return false;
		memcpy(to + used, from.at, literals);
		from.at += literals;
		used += literals;
		if (from.at == from.end)
			break;
		if (from.end - from.at < 2)
			return false;
		distance = (size_t)(from.at[0] | from.at[1] << 8);
		from.at += 2;
		if (copied == 15 && !read_length(&from, &copied))
			return false;
		copied += 4;
		if (!distance || distance > used || copied > length - used)
			return false;
		for (size_t i = 0; i < copied; i++, used++) /* both may overlap */
			to[used] = to[used - distance];
	}
	return used == length;
}

enum neap_status neap_fatbin_expand(const struct neap_fatbin_image *image, unsigned char **ret_cubin)
{
	struct block block = {image->bytes, image->bytes + image->length};
	bool good = false;
	if (!image->plain_length || image->plain_length > NEAP_FATBIN_MOST)
		return NEAP_EPARSE;
	unsigned char *cubin = malloc(image->plain_length);
	if (!cubin)
		return NEAP_ENOMEM;
	switch (image->compression) {
	case NEAP_FATBIN_PLAIN:
		memcpy(cubin, image->bytes, image->length);
		good = true;
		break;
	case NEAP_FATBIN_LZ4:
		good = expand_lz4(block, cubin, image->plain_length);
		break;
	case NEAP_FATBIN_ZSTD:
		good = ZSTD_decompress(cubin, image->plain_length, image->bytes, image->length) ==
		       image->plain_length;
		break;
	}
	if (!good) {
		free(cubin);
		return NEAP_EPARSE;
	}
	*ret_cubin = cubin;
	return NEAP_OK;
}

/* --- cubins --- */

struct cubin {
	const unsigned char *bytes;
	size_t length;
	size_t sections, count; /* where the table of sections is, and how many rows it has */
	const char *names;      /* of sections: ends with a zero byte */
	size_t names_length;
};

static bool within(const struct cubin *cubin, const Elf64_Shdr *section)
{
	return section->sh_offset <= cubin->length && section->sh_size <= cubin->length - section->sh_offset;
}

static Elf64_Shdr section_at(const struct cubin *cubin, size_t index)
{
	Elf64_Shdr section;
	memcpy(&section, cubin->bytes + cubin->sections + index * sizeof section, sizeof section);
	return section;
}

/* "" if the name lies outside the table. */
static const char *name_of(const struct cubin *cubin, const Elf64_Shdr *section)
{
	return section->sh_name < cubin->names_length ? cubin->names + section->sh_name : "";
}

static bool open_cubin(const unsigned char *bytes, size_t length, struct cubin *ret_cubin)
{
	struct cubin cubin = {.bytes = bytes, .length = length};
	Elf64_Ehdr header;
	if (length < sizeof header)
		return false;
	memcpy(&header, bytes, sizeof header);
	if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
	    header.e_machine != EM_CUDA || header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shoff > length)
		return false;
	cubin.sections = (size_t)header.e_shoff;
	cubin.count = header.e_shnum;
	size_t names = header.e_shstrndx, room = (length - cubin.sections) / sizeof(Elf64_Shdr);
	if (room && (!cubin.count || names == SHN_XINDEX)) { /* more than 16 bits count: the first row has them */
		Elf64_Shdr first = section_at(&cubin, 0);
		cubin.count = cubin.count ? cubin.count : first.sh_size;
		names = names == SHN_XINDEX ? first.sh_link : names;
	}
	if (cubin.count > room || names >= cubin.count)
		return false;
	Elf64_Shdr table = section_at(&cubin, names);
	if (!within(&cubin, &table) || !table.sh_size || bytes[table.sh_offset + table.sh_size - 1] != '\0')
		return false;
	cubin.names = (const char *)bytes + table.sh_offset;
	cubin.names_length = table.sh_size;
	*ret_cubin = cubin;
	return true;
}

static int by_name(const void *key, const void *member) { return strcmp(key, *(const char *const *)member); }

/* A row of .nv.info has a form, an attribute and two more bytes. In the form FORM_BYTES these two are the length of
 * the bytes that follow; in other forms they are the value. The rows read here hold the index of a kernel's symbol
 * and the bytes of a thread's frame or stack. */
#define FORM_BYTES 4
#define FRAME_SIZE 0x11
#define STACK_SIZE 0x12

struct info_row {
	uint8_t form, attribute;
	uint16_t value;
};

/* Whether the symbol is a function in one of the sections that `asked` has. */
static bool is_asked(const struct cubin *cubin, const Elf64_Shdr *symbols, const bool *asked, uint32_t index)
{
	Elf64_Sym symbol;
	if (index >= symbols->sh_size / sizeof symbol)
		return false;
	memcpy(&symbol, cubin->bytes + symbols->sh_offset + index * sizeof symbol, sizeof symbol);
	return ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx < cubin->count && asked[symbol.st_shndx];
}

/* Returns the most stack that a thread of one of these kernels takes. */
static uint64_t read_stack(const struct cubin *cubin, const bool *asked, const Elf64_Shdr *info,
			   const Elf64_Shdr *symbols)
{
	const unsigned char *at = cubin->bytes + info->sh_offset, *end = at + info->sh_size;
	uint64_t most = 0;
	while ((size_t)(end - at) >= sizeof(struct info_row)) {
		struct info_row row;
		uint32_t words[2]; /* symbol, bytes */
		memcpy(&row, at, sizeof row);
		at += sizeof row;
		if (row.form != FORM_BYTES)
			continue;
		if (row.value > end - at)
			break;
		if ((row.attribute == FRAME_SIZE || row.attribute == STACK_SIZE) && row.value == sizeof words) {
			memcpy(words, at, sizeof words);
			if (words[1] > most && words[1] != UINT32_MAX && is_asked(cubin, symbols, asked, words[0]))
				most = words[1];
		}
		at += row.value;
	}
	return most;
}

enum neap_status neap_cubin_measure(const unsigned char *bytes, size_t length, const char *const *names, size_t count,
				    struct neap_cubin_sizes *ret_sizes)
{
	struct neap_cubin_sizes sizes = {0};
	struct cubin cubin;
	Elf64_Shdr info = {0}, symbols = {0};
	if (!open_cubin(bytes, length, &cubin))
		return NEAP_EPARSE;
	bool *asked = calloc(cubin.count, sizeof *asked);
	if (!asked)
		return NEAP_ENOMEM;
	enum neap_status status = NEAP_OK;
	for (size_t i = 0; i < cubin.count; i++) {
		Elf64_Shdr section = section_at(&cubin, i);
		const char *name = name_of(&cubin, &section);
		if (section.sh_type != SHT_NOBITS && !within(&cubin, &section)) {
			status = NEAP_EPARSE;
			goto out;
		}
		if (strcmp(name, ".nv.info") == 0)
			info = section;
		if (section.sh_type == SHT_SYMTAB)
			symbols = section;
		if (!(section.sh_flags & SHF_ALLOC) || strncmp(name, ".nv.shared", 10) == 0)
			continue; /* shared memory is on the multiprocessor */
		sizes.module_bytes = neap_plus(sizes.module_bytes, section.sh_size);
		if (strncmp(name, ".text.", 6) != 0)
			continue;
		sizes.code_bytes = neap_plus(sizes.code_bytes, section.sh_size);
		asked[i] = count && bsearch(name + 6, names, count, sizeof *names, by_name);
		if (asked[i])
			sizes.kernel_bytes = neap_plus(sizes.kernel_bytes, section.sh_size);
	}
	if (info.sh_type != SHT_NOBITS && symbols.sh_type == SHT_SYMTAB)
		sizes.stack_bytes = read_stack(&cubin, asked, &info, &symbols);
	*ret_sizes = sizes;
out:
	free(asked);
	return status;
}
