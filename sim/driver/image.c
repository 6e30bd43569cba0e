/* sim/driver/image.c: see the header. */
#include "sim/driver/image.h"

#include "base/array.h"

#include <ctype.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An image in memory whose tables lie beyond this counts as damaged. */
#define IMAGE_LIMIT (4ull << 30)

#define FAT_BINARY         0xba55ed50u
#define FAT_BINARY_WRAPPER 0x466243b1u
#ifndef EM_CUDA
#define EM_CUDA 190
#endif

static bool add(struct sim_image *image, const char *name, size_t length, uint64_t bytes, bool kernel)
{
	char *copy = strndup(name, length);

	if (!copy || !neap_array_grow(&image->symbols, image->count, sizeof *image->symbols)) {
		free(copy);
		return false;
	}
	image->symbols[image->count++] = (struct sim_symbol){.name = copy, .bytes = bytes, .kernel = kernel};
	return true;
}

void sim_image_fini(struct sim_image *image)
{
	for (size_t i = 0; i < image->count; i++)
		free(image->symbols[i].name);
	free(image->symbols);
	*image = (struct sim_image){0};
}

const struct sim_symbol *sim_image_find(const struct sim_image *image, const char *name, bool kernel)
{
	for (size_t i = 0; i < image->count; i++)
		if (image->symbols[i].kernel == kernel && strcmp(image->symbols[i].name, name) == 0)
			return &image->symbols[i];
	return NULL;
}

/* -- cubin ------------------------------------------------------------------------------------------------------- */

static bool within(uint64_t offset, uint64_t bytes, uint64_t limit)
{
	return offset <= limit && bytes <= limit - offset;
}

/* The functions and objects of one symbol table whose names are in `names`. */
static CUresult read_symbols(const unsigned char *start, uint64_t limit, const Elf64_Shdr *table,
			     const Elf64_Shdr *names, struct sim_image *image)
{
	uint64_t count = table->sh_size / sizeof(Elf64_Sym), i;

	if (!within(table->sh_offset, table->sh_size, limit) || !within(names->sh_offset, names->sh_size, limit))
		return CUDA_ERROR_INVALID_IMAGE;
	for (i = 0; i < count; i++) {
		Elf64_Sym symbol;
		const char *name;
		int type;

		memcpy(&symbol, start + table->sh_offset + i * sizeof symbol, sizeof symbol);
		type = ELF64_ST_TYPE(symbol.st_info);
		if ((type != STT_FUNC && type != STT_OBJECT) || symbol.st_shndx == SHN_UNDEF ||
		    symbol.st_name >= names->sh_size)
			continue;
		name = (const char *)start + names->sh_offset + symbol.st_name;
		if (!add(image, name, strnlen(name, names->sh_size - symbol.st_name), symbol.st_size,
			 type == STT_FUNC))
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

/* Rows of .nv.info.NAME: a form, an attribute, and two bytes: the value or, for FORM_BYTES, the length of the bytes
 * that follow. Each parameter has a row, which cuobjdump calls EIATTR_KPARAM_INFO. */
#define FORM_BYTES 4
#define PARAMETER  0x17

static size_t count_parameters(const unsigned char *rows, uint64_t bytes)
{
	size_t count = 0;
	uint64_t at = 0;

	while (within(at, 4, bytes)) {
		uint16_t length;

		memcpy(&length, rows + at + 2, sizeof length);
		count += rows[at] == FORM_BYTES && rows[at + 1] == PARAMETER;
		at += 4 + (rows[at] == FORM_BYTES ? length : 0u);
	}
	return count;
}

static bool is_kernel(const struct sim_symbol *symbol, const char *name)
{
	return symbol->kernel && strcmp(symbol->name, name) == 0;
}

/* Counts the parameters of each kernel, once their names are read. Damaged tables leave a count unknown. */
static void read_parameters(const unsigned char *start, uint64_t limit, const Elf64_Ehdr *header,
			    struct sim_image *image)
{
	static const char prefix[] = ".nv.info.";
	Elf64_Shdr names, section;
	size_t at = 0, tried;

	if (header->e_shstrndx >= header->e_shnum)
		return;
	memcpy(&names, start + header->e_shoff + header->e_shstrndx * sizeof names, sizeof names);
	if (!within(names.sh_offset, names.sh_size, limit) || names.sh_size == 0 ||
	    start[names.sh_offset + names.sh_size - 1] != '\0')
		return;
	for (unsigned int i = 0; i < header->e_shnum; i++) {
		const char *name;

		memcpy(&section, start + header->e_shoff + i * sizeof section, sizeof section);
		name = (const char *)start + names.sh_offset + section.sh_name;
		if (section.sh_name >= names.sh_size || strncmp(name, prefix, sizeof prefix - 1) != 0 ||
		    !within(section.sh_offset, section.sh_size, limit))
			continue;
		for (tried = 0; tried < image->count && !is_kernel(&image->symbols[at], name + sizeof prefix - 1);
		     tried++)
			at = (at + 1) % image->count; /* the symbols mostly have the same order as the sections */
		if (tried < image->count)
			image->symbols[at].parameters = count_parameters(start + section.sh_offset, section.sh_size);
	}
}

static CUresult read_cubin(const unsigned char *start, uint64_t limit, struct sim_image *image)
{
	Elf64_Ehdr header;
	CUresult result = CUDA_SUCCESS;
	unsigned int i;

	if (limit < sizeof header)
		return CUDA_ERROR_INVALID_IMAGE;
	memcpy(&header, start, sizeof header);
	if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_CUDA ||
	    header.e_shentsize != sizeof(Elf64_Shdr) ||
	    !within(header.e_shoff, (uint64_t)header.e_shnum * sizeof(Elf64_Shdr), limit))
		return CUDA_ERROR_INVALID_IMAGE;
	for (i = 0; i < header.e_shnum && result == CUDA_SUCCESS; i++) {
		Elf64_Shdr section, names;

		memcpy(&section, start + header.e_shoff + i * sizeof section, sizeof section);
		if (section.sh_flags & SHF_ALLOC && section.sh_size < IMAGE_LIMIT)
			image->loaded_bytes += section.sh_size;
		if (section.sh_type != SHT_SYMTAB || section.sh_link >= header.e_shnum)
			continue;
		memcpy(&names, start + header.e_shoff + section.sh_link * sizeof names, sizeof names);
		result = read_symbols(start, limit, &section, &names, image);
	}
	if (result == CUDA_SUCCESS)
		read_parameters(start, limit, &header, image);
	return result;
}

/* -- PTX --------------------------------------------------------------------------------------------------------- */

static bool is_word(char byte) { return isalnum((unsigned char)byte) || (byte && strchr("._$%", byte)); }

/* Skips blanks and comments. */
static const char *skip(const char *at)
{
	for (;;) {
		if (isspace((unsigned char)*at))
			at++;
		else if (at[0] == '/' && at[1] == '/')
			at += strcspn(at, "\n");
		else if (at[0] == '/' && at[1] == '*')
			at = strstr(at, "*/") ? strstr(at, "*/") + 2 : at + strlen(at);
		else
			return at;
	}
}

/* Reads the next word; any character that is not part of a word is a word by itself. Returns its length, 0 at the
 * end. */
static size_t next_word(const char **at)
{
	size_t length = 0;

	*at = skip(*at);
	while (is_word((*at)[length]))
		length++;
	return length || !**at ? length : 1;
}

static bool same(const char *word, size_t length, const char *text)
{
	return strlen(text) == length && memcmp(word, text, length) == 0;
}

/* The bytes of an element of type ".b8", ".u32", ".v4"...; 0: no such type. */
static uint64_t type_bytes(const char *word, size_t length)
{
	unsigned long number;

	if (length < 3 || word[0] != '.' || !strchr("busf", word[1]) || !isdigit((unsigned char)word[2]))
		return 0;
	number = strtoul(word + 2, NULL, 10);
	return number <= 128 ? number / 8 : 0;
}

/* Parses the text after ".global" or ".const": ".align 8 .b8 NAME[16] = {...};". */
static bool read_variable(const char **at, struct sim_image *image)
{
	const char *name = NULL;
	uint64_t element = 0, count = 1, number;
	size_t name_length = 0, length;

	while ((length = next_word(at)) > 0 && **at != ';' && **at != '=' && **at != ',') {
		const char *word = *at;

		if (type_bytes(word, length))
			element = type_bytes(word, length);
		else if (same(word, length, ".v2") || same(word, length, ".v4"))
			count *= (uint64_t)(word[2] - '0');
		else if (word[0] != '.' && is_word(word[0]) && !isdigit((unsigned char)word[0])) {
			name = word;
			name_length = length;
		} else if (name && isdigit((unsigned char)word[0])) {
			number = strtoull(word, NULL, 10);
			if (__builtin_mul_overflow(count, number, &count))
				return true; /* no program can ask for a variable of that size */
		}
		*at += length;
	}
	return !name || !element || add(image, name, name_length, element * count, false);
}

static CUresult read_ptx(const char *text, struct sim_image *image)
{
	const char *at = text;
	size_t length, depth = 0;
	bool kernel = false; /* the last symbol is a kernel, and its parameters may follow */

	while ((length = next_word(&at)) > 0) {
		const char *word = at;
		bool good = true;

		at += length;
		if (*word == '{' || *word == '(')
			depth++;
		else if (depth == 1 && kernel && same(word, length, ".param"))
			image->symbols[image->count - 1].parameters++;
		else if ((*word == '}' || *word == ')') && depth > 0) {
			depth--;
			kernel = false;
		} else if (depth == 0 && same(word, length, ".entry") && (length = next_word(&at)) > 0)
			good = kernel = add(image, at, length, 0, true);
		else if (depth == 0 && (same(word, length, ".global") || same(word, length, ".const")))
			good = read_variable(&at, image);
		if (!good)
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

/* A module begins with ".version", as documented. */
static bool is_ptx(const char *text)
{
	text = skip(text);
	return strncmp(text, ".version", 8) == 0;
}

/* -- any --------------------------------------------------------------------------------------------------------- */

/* Text ends with a zero byte, regardless of `limit`. */
static CUresult read(const void *image, uint64_t limit, struct sim_image *ret_image)
{
	CUresult result = CUDA_SUCCESS;
	unsigned char magic[4] = {0};
	uint32_t number;

	for (size_t i = 0; i < sizeof magic; i++) { /* text may be shorter */
		magic[i] = ((const unsigned char *)image)[i];
		if (!magic[i])
			break;
	}
	memcpy(&number, magic, sizeof number);
	if (memcmp(magic, ELFMAG, SELFMAG) == 0)
		result = read_cubin(image, limit, ret_image);
	else if (number == FAT_BINARY || number == FAT_BINARY_WRAPPER)
		ret_image->open = true;
	else if (is_ptx(image))
		result = read_ptx(image, ret_image);
	else
		result = CUDA_ERROR_INVALID_IMAGE;
	if (result != CUDA_SUCCESS)
		sim_image_fini(ret_image);
	return result;
}

CUresult sim_image_read(const void *image, struct sim_image *ret_image)
{
	*ret_image = (struct sim_image){0};
	return read(image, IMAGE_LIMIT, ret_image);
}

CUresult sim_image_read_file(const char *path, struct sim_image *ret_image)
{
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	FILE *file = fopen(path, "re");
	char *bytes = NULL;
	long length = -1;

	*ret_image = (struct sim_image){0};
	if (!file)
		return CUDA_ERROR_FILE_NOT_FOUND;
	if (fseek(file, 0, SEEK_END) == 0)
		length = ftell(file);
	if (length >= 0)
		bytes = calloc(1, (size_t)length + 1);
	rewind(file);
	if (bytes && fread(bytes, 1, (size_t)length, file) == (size_t)length)
		result = read(bytes, (uint64_t)length, ret_image);
	else if (bytes)
		result = CUDA_ERROR_FILE_NOT_FOUND;
	free(bytes);
	fclose(file);
	return result;
}
