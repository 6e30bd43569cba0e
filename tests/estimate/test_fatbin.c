/* How much code of a fat binary is loaded: cubins and fat binaries made by the test, plain and compressed; the image
 * that a device gets; libraries on disk with the file that a process leaves; and damaged ones. */
#include "estimate/code.h"
#include "estimate/fatbin.h"

#include "support/test.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PLAIN 0x11u
#define LZ4   0x2011u
#define ZSTD  0x8011u
#define EXACT 0x100000u

/* Bytes that grow. */
struct bytes {
	unsigned char data[1 << 16];
	size_t length;
};

static size_t put(struct bytes *bytes, const void *from, size_t length)
{
	size_t at = bytes->length;
	assert_true(length <= sizeof bytes->data - at);
	memcpy(bytes->data + at, from, length);
	bytes->length += length;
	return at;
}

/* --- making --- */

static const char names[] =
	"\0.text.first\0.text.second\0.nv.constant3\0.nv.global\0.nv.shared.first\0.nv.info\0.symtab";

static uint32_t name(const char *text)
{
	for (size_t i = 1; i < sizeof names; i++)
		if (strcmp(names + i, text) == 0)
			return (uint32_t)i;
	fail_msg("%s is no section", text);
	return 0;
}

/* Kernels of `first` and `second` bytes, 40 bytes of constants and 1000 of variables. A thread of the first kernel
 * has 96 bytes of stack, one of the second 4096. */
static void make_cubin(struct bytes *bytes, uint64_t first, uint64_t second)
{
	static const unsigned char code[8192];
	const uint32_t info[] = {0x081104, 1,        80, 0x081204, 1,      96,       0x081104, 2,
				 4096,     0x082f04, 2,  60000,    0x1203, 0x081204, 0,        9};
	const Elf64_Sym symbols[3] = {{0},
				      {.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = 2},
				      {.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = 3}};
	Elf64_Ehdr header = {
		.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64}, .e_machine = 190, .e_shentsize = sizeof(Elf64_Shdr)};
	Elf64_Shdr sections[9] = {{0}};
	bytes->length = 0;
	put(bytes, &header, sizeof header);
	sections[1] = (Elf64_Shdr){
		.sh_type = SHT_STRTAB, .sh_offset = put(bytes, names, sizeof names), .sh_size = sizeof names};
	sections[2] = (Elf64_Shdr){.sh_name = name(".text.first"),
				   .sh_type = SHT_PROGBITS,
				   .sh_flags = SHF_ALLOC,
				   .sh_offset = put(bytes, code, first),
				   .sh_size = first};
	sections[3] = (Elf64_Shdr){.sh_name = name(".text.second"),
				   .sh_type = SHT_PROGBITS,
				   .sh_flags = SHF_ALLOC,
				   .sh_offset = put(bytes, code, second),
				   .sh_size = second};
	sections[4] = (Elf64_Shdr){.sh_name = name(".nv.constant3"),
				   .sh_type = SHT_PROGBITS,
				   .sh_flags = SHF_ALLOC,
				   .sh_offset = put(bytes, code, 40),
				   .sh_size = 40};
	sections[5] = (Elf64_Shdr){
		.sh_name = name(".nv.global"), .sh_type = SHT_NOBITS, .sh_flags = SHF_ALLOC, .sh_size = 1000};
	sections[6] = (Elf64_Shdr){.sh_name = name(".nv.shared.first"),
				   .sh_type = SHT_NOBITS,
				   .sh_flags = SHF_ALLOC,
				   .sh_size = 1 << 20};
	sections[7] = (Elf64_Shdr){.sh_name = name(".nv.info"),
				   .sh_type = 0x70000000,
				   .sh_offset = put(bytes, info, sizeof info),
				   .sh_size = sizeof info};
	sections[8] = (Elf64_Shdr){.sh_name = name(".symtab"),
				   .sh_type = SHT_SYMTAB,
				   .sh_offset = put(bytes, symbols, sizeof symbols),
				   .sh_size = sizeof symbols};
	header.e_shstrndx = 1;
	header.e_shnum = 9;
	header.e_shoff = put(bytes, sections, sizeof sections);
	memcpy(bytes->data, &header, sizeof header);
}

static void begin(struct bytes *fat)
{
	const uint32_t header[] = {0xba55ed50, 0x00100001, 0, 0};
	fat->length = 0;
	put(fat, header, sizeof header);
}

struct image {
	uint16_t kind;
	uint32_t architecture, plain_bytes;
	uint64_t flags;
};

static void put_image(struct bytes *fat, struct image image, const void *data, size_t length)
{
	static const unsigned char zeros[8];
	uint64_t padded = (length + 7) / 8 * 8, size;
	uint32_t header[16] = {[0] = image.kind | 0x1010000u, [1] = 64,
			       [2] = (uint32_t)padded,        [4] = (uint32_t)length,
			       [7] = image.architecture,      [10] = (uint32_t)image.flags,
			       [14] = image.plain_bytes};
	put(fat, header, sizeof header);
	put(fat, data, length);
	put(fat, zeros, padded - length);
	size = fat->length - 16;
	memcpy(fat->data + 8, &size, sizeof size);
}

static void put_cubin(struct bytes *fat, uint32_t architecture, uint64_t flags, uint64_t first, uint64_t second)
{
	static struct bytes cubin;
	static unsigned char packed[1 << 16];
	make_cubin(&cubin, first, second);
	if (flags & ZSTD & ~PLAIN) {
		size_t length = ZSTD_compress(packed, sizeof packed, cubin.data, cubin.length, 3);
		assert_false(ZSTD_isError(length));
		put_image(fat, (struct image){2, architecture, (uint32_t)cubin.length, flags}, packed, length);
	} else {
		put_image(fat, (struct image){2, architecture, 0, flags}, cubin.data, cubin.length);
	}
}

/* --- tests --- */

static const char *const first[] = {"first"}, *const both[] = {"first", "second"};

static void a_cubin_has_kernels_and_more(void **unused)
{
	static struct bytes cubin;
	struct neap_cubin_sizes sizes;
	(void)unused;
	make_cubin(&cubin, 512, 1024);
	assert_int_equal(neap_cubin_measure(cubin.data, cubin.length, first, 1, &sizes), NEAP_OK);
	assert_int_equal(sizes.kernel_bytes, 512);
	assert_int_equal(sizes.code_bytes, 1536);
	assert_int_equal(sizes.module_bytes, 1536 + 40 + 1000);
	assert_int_equal(sizes.stack_bytes, 96);
	assert_int_equal(neap_cubin_measure(cubin.data, cubin.length, both, 2, &sizes), NEAP_OK);
	assert_int_equal(sizes.kernel_bytes, 1536);
	assert_int_equal(sizes.stack_bytes, 4096);
	assert_int_equal(neap_cubin_measure(cubin.data, cubin.length, both, 0, &sizes), NEAP_OK);
	assert_int_equal(sizes.kernel_bytes, 0);
	assert_int_equal(neap_cubin_measure(cubin.data, cubin.length - 1, first, 1, &sizes), NEAP_EPARSE);
}

/* The code of the first kernel in the image that a device gets; 0: none. */
static uint64_t given(const struct bytes *fat, unsigned int capability, size_t expected)
{
	struct neap_fatbin_image images[NEAP_FATBIN_IMAGES];
	struct neap_cubin_sizes sizes = {0};
	unsigned char *cubin;
	assert_int_equal(neap_fatbin_find(fat->data, fat->length, capability, images), expected);
	if (!expected)
		return 0;
	assert_int_equal(neap_fatbin_expand(&images[0], &cubin), NEAP_OK);
	assert_int_equal(neap_cubin_measure(cubin, images[0].plain_length, first, 1, &sizes), NEAP_OK);
	free(cubin);
	return sizes.kernel_bytes;
}

static void a_device_is_given_the_newest_that_it_runs(void **unused)
{
	static struct bytes fat;
	(void)unused;
	begin(&fat);
	put_image(&fat, (struct image){1, 120, 0, PLAIN}, ".version 9.0", 12);
	put_cubin(&fat, 80, PLAIN, 80, 0);
	put_cubin(&fat, 86, ZSTD, 86, 0);
	put_cubin(&fat, 90, PLAIN, 90, 0);
	put_cubin(&fat, 90, ZSTD | EXACT, 91, 0);
	put_cubin(&fat, 100, ZSTD, 100, 0);
	put_cubin(&fat, 103, ZSTD | EXACT, 103, 0);
	assert_int_equal(given(&fat, 80, 1), 80);
	assert_int_equal(given(&fat, 86, 1), 86);
	assert_int_equal(given(&fat, 89, 1), 86);
	assert_int_equal(given(&fat, 90, 2), 90);
	assert_int_equal(given(&fat, 100, 1), 100);
	assert_int_equal(given(&fat, 103, 1), 103);
	assert_int_equal(given(&fat, 75, 0), 0);
	assert_int_equal(given(&fat, 120, 0), 0); /* of PTX */
}

static void lz4_is_expanded(void **unused)
{
	/* "abcd", 16 more of it from 4 before, "x"; then literals alone, 16 of them */
	static const unsigned char packed[] = {0x4c, 'a', 'b', 'c', 'd', 4, 0, 0x10, 'x'};
	static const unsigned char literals[] = {0xf0, 1,   '0', '1', '2', '3', '4', '5', '6',
						 '7',  '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'};
	static const unsigned char copied[] = {0x1f, 'a', 1, 0, 255, 0}; /* 1 + 15 + 255 + 4 */
	struct neap_fatbin_image image = {packed, sizeof packed, 21, NEAP_FATBIN_LZ4};
	unsigned char *plain;
	(void)unused;
	assert_int_equal(neap_fatbin_expand(&image, &plain), NEAP_OK);
	assert_memory_equal(plain, "abcdabcdabcdabcdabcdx", 21);
	free(plain);
	image = (struct neap_fatbin_image){literals, sizeof literals, 16, NEAP_FATBIN_LZ4};
	assert_int_equal(neap_fatbin_expand(&image, &plain), NEAP_OK);
	assert_memory_equal(plain, "0123456789abcdef", 16);
	free(plain);
	image = (struct neap_fatbin_image){copied, sizeof copied, 275, NEAP_FATBIN_LZ4};
	assert_int_equal(neap_fatbin_expand(&image, &plain), NEAP_OK);
	assert_int_equal(plain[274], 'a');
	free(plain);
	for (size_t length = 0; length < sizeof packed; length++) { /* cut off, and with another length */
		image = (struct neap_fatbin_image){packed, length, 21, NEAP_FATBIN_LZ4};
		assert_int_equal(neap_fatbin_expand(&image, &plain), NEAP_EPARSE);
		image = (struct neap_fatbin_image){packed, sizeof packed, 12 + length, NEAP_FATBIN_LZ4};
		assert_int_equal(neap_fatbin_expand(&image, &plain), NEAP_EPARSE);
	}
}

static void damage_is_refused(void **unused)
{
	static struct bytes fat, damaged;
	unsigned int random = 7;
	(void)unused;
	begin(&fat);
	put_cubin(&fat, 80, PLAIN, 64, 64);
	put_cubin(&fat, 90, ZSTD, 64, 64);
	put_image(&fat, (struct image){2, 100, 275, LZ4},
		  "\x1f"
		  "a\1\0\xff",
		  6);
	for (size_t length = 0; length <= fat.length; length += length < 200 ? 1 : 37)
		LLVMFuzzerTestOneInput(fat.data, length);
	for (int i = 0; i < 4000; i++) {
		damaged = fat;
		for (int changes = 1 + i % 8; changes; changes--) {
			random = random * 1103515245u + 12345u;
			size_t at = (random >> 8) % (i % 3 ? 400 : fat.length);
			random = random * 1103515245u + 12345u;
			damaged.data[at] = i % 2 ? 0xff : (unsigned char)(random >> 16);
		}
		LLVMFuzzerTestOneInput(damaged.data, damaged.length);
		LLVMFuzzerTestOneInput(damaged.data + 80,
				       damaged.length - 80); /* the cubin that follows the headers */
	}
}

/* A library of one segment: two fat binaries, at 0x1000 and right behind. */
static size_t write_library(const char *path)
{
	static struct bytes fat;
	Elf64_Ehdr header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64},
			     .e_phoff = sizeof header,
			     .e_phentsize = sizeof(Elf64_Phdr),
			     .e_phnum = 1};
	Elf64_Phdr segment = {.p_type = PT_LOAD, .p_offset = 256, .p_vaddr = 0x1000, .p_filesz = 1 << 16};
	FILE *file = fopen(path, "w");
	size_t other;
	assert_non_null(file);
	fwrite(&header, sizeof header, 1, file);
	fwrite(&segment, sizeof segment, 1, file);
	begin(&fat);
	put_cubin(&fat, 80, PLAIN, 800, 0);
	put_cubin(&fat, 90, ZSTD, 900, 100);
	fseek(file, 256, SEEK_SET);
	fwrite(fat.data, fat.length, 1, file);
	other = 0x1000 + fat.length;
	begin(&fat);
	put_cubin(&fat, 90, ZSTD, 2000, 3000);
	fwrite(fat.data, fat.length, 1, file);
	fclose(file);
	return other;
}

static struct neap_code read_code(const char *folder, const char *text)
{
	struct neap_code code;
	char path[256];
	snprintf(path, sizeof path, "%s/code.12", folder);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
	memset(&code, 0xee, sizeof code);
	neap_code_read(folder, 12, &code);
	unlink(path);
	return code;
}

static void a_process_loads_what_it_used(void **unused)
{
	char folder[] = "/tmp/neap-code-XXXXXX", library[256], text[2048];
	struct neap_code code;
	(void)unused;
	assert_non_null(mkdtemp(folder));
	snprintf(library, sizeof library, "%s/lib one.so", folder);
	size_t other = write_library(library);

	snprintf(
		text, sizeof text,
		"device 90\nkernel 1000 %s\tfirst\nlibrary cublasLtMatmul\nkernel %zx %s\tsecond\nlibrary "
		"ncclAllReduce\n"
		"library cublasGemmEx\nlibrary cudnnBackendExecute\ncubin 5000\ncubin 700\nkernel 1000 %s\tunknown\n",
		library, other, library, library);
	code = read_code(folder, text);
	assert_true(code.known);
	assert_false(code.eager);
	assert_int_equal(code.modules, 2);
	assert_int_equal(code.kernels, 3);
	assert_int_equal(code.unread, 0);
	assert_int_equal(code.low_bytes, 900 + 3000);
	assert_int_equal(code.high_bytes, 1000 + 1040 + 5000 + 1040);
	assert_int_equal(code.stack_bytes, 4096);
	assert_int_equal(code.own_modules, 2);
	assert_int_equal(code.own_bytes, 5700);
	assert_string_equal(code.library, "lib one.so");
	assert_true(code.cublas);
	assert_string_equal(code.beside, "cudnn");

	snprintf(text, sizeof text, "module 1000 %s\nmodule %zx %s\ndevice 80\nkernel 1000 %s\tfirst\n", library,
		 other, library, library);
	code = read_code(folder, text);
	assert_true(code.eager);
	assert_int_equal(code.low_bytes, 800);
	assert_int_equal(code.high_bytes, 800 + 1040);
	assert_int_equal(code.unread, 1); /* no image for 8.0 */

	snprintf(text, sizeof text,
		 "device 90\nkernel 0 -\tfirst\nkernel 1008 %s\tfirst\nkernel 1000 /nowhere\tfirst\nkernel "
		 "1000\nkernel\n\n"
		 "kernel x %s\tfirst\nnothing\nkernel fffffffffffffff0 %s\tfirst\ndevice x\ncubin 0\n",
		 library, library, library);
	code = read_code(folder, text);
	assert_int_equal(code.modules, 0);
	assert_int_equal(code.unread, 5);
	assert_int_equal(code.high_bytes, 0);

	unlink(library);
	neap_code_read(folder, 12, &code);
	assert_false(code.known);
	rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cubin_has_kernels_and_more),
		cmocka_unit_test(a_device_is_given_the_newest_that_it_runs),
		cmocka_unit_test(lz4_is_expanded),
		cmocka_unit_test(damage_is_refused),
		cmocka_unit_test(a_process_loads_what_it_used),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
