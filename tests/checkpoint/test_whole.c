/* Whether a file or a folder is whole: each format cut at every byte. */
#include "checkpoint/whole.h"

#include "support/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* fuzz/fuzz_whole.c */

static char folder[TEST_FOLDER_CAPACITY];
static int fd = -1;

static int set_up(void **state)
{
	(void)state;
	if (make_folder(folder, "whole") || chdir(folder) != 0)
		return -1;
	fd = open(folder, O_RDONLY | O_DIRECTORY);
	return fd < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
	(void)state;
	close(fd);
	return chdir("/") ? -1 : remove_folder(folder);
}

static void put(const char *name, const void *content, size_t length)
{
	int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_true(file >= 0);
	assert_int_equal(write(file, content, length), length);
	close(file);
}

/* One stored member, "a" with "hello", as a zip writes it. */
static size_t zip(unsigned char *bytes, const char *comment)
{
	static const unsigned char local[] =
		"PK\3\4\12\0\0\0\0\0\0\0\0\0\x86\xa6\x10\x36\5\0\0\0\5\0\0\0\1\0\0\0ahello";
	static const unsigned char central[] =
		"PK\1\2\12\0\12\0\0\0\0\0\0\0\0\0\x86\xa6\x10\x36\5\0\0\0\5\0\0\0\1\0\0\0\0"
		"\0\0\0\0\0\0\0\0\0\0\0\0\0a";
	size_t at = 0, first = sizeof local - 1, list = sizeof central - 1, tail = strlen(comment);

	memcpy(bytes, local, first);
	memcpy(bytes + first, central, list);
	at = first + list;
	const unsigned char end[] = {'P',
				     'K',
				     5,
				     6,
				     0,
				     0,
				     0,
				     0,
				     1,
				     0,
				     1,
				     0,
				     (unsigned char)list,
				     0,
				     0,
				     0,
				     (unsigned char)first,
				     0,
				     0,
				     0,
				     (unsigned char)tail,
				     0};
	memcpy(bytes + at, end, sizeof end);
	memcpy(bytes + at + sizeof end, comment, tail);
	return at + sizeof end + tail;
}

static void test_zip(void **state)
{
	static const char *const comments[] = {"", "a comment"};
	unsigned char bytes[256];

	(void)state;
	for (size_t c = 0; c < 2; c++) {
		size_t length = zip(bytes, comments[c]);

		put("x.pt", bytes, length);
		assert_null(checkpoint_torn(fd, "x.pt", false));
		for (size_t cut = 0; cut < length; cut++) {
			put("x.pt", bytes, cut);
			/* fewer than four bytes do not show that it is a zip */
			if (!checkpoint_torn(fd, "x.pt", false) != (cut > 0 && cut < 4))
				fail_msg("cut after %zu bytes", cut);
		}
		put("x.pt", "PK\3\4 and so on, but no zip at all", 33);
		assert_non_null(checkpoint_torn(fd, "x.pt", false));
	}
	put("x.pt", "\x80\2pickle", 8); /* an older torch.save: not recognised */
	assert_null(checkpoint_torn(fd, "x.pt", false));
	put("x.pt", "", 0);
	assert_string_equal(checkpoint_torn(fd, "x.pt", false), "it is empty");
	assert_null(checkpoint_torn(fd, "nowhere", false));
}

static void test_safetensors(void **state)
{
	static const char header[] = "{\"__metadata__\":{\"a\":\"\\\"data_offsets\\\":[0,999]\"},"
				     "\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
				     "\"v\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\": [8, 12]}}";
	unsigned char bytes[512] = {0};
	size_t length = 8 + sizeof header - 1 + 12;

	(void)state;
	bytes[0] = sizeof header - 1;
	memcpy(bytes + 8, header, sizeof header - 1);
	put("x.safetensors", bytes, length);
	assert_null(checkpoint_torn(fd, "x.safetensors", false));
	for (size_t cut = 0; cut < length; cut++) {
		put("x.safetensors", bytes, cut);
		if (!checkpoint_torn(fd, "x.safetensors", false))
			fail_msg("cut after %zu bytes", cut);
	}
	bytes[8] = 'x';
	put("x.safetensors", bytes, length);
	assert_string_equal(checkpoint_torn(fd, "x.safetensors", false), "its header is damaged");
	memset(bytes, 0xff, 8);
	put("x.safetensors", bytes, length);
	assert_string_equal(checkpoint_torn(fd, "x.safetensors", false), "its header is damaged");
	put("x.safetensors", "version https://git-lfs.github.com/spec/v1\n", 43);
	assert_non_null(checkpoint_torn(fd, "x.safetensors", false));
}

static void test_folders(void **state)
{
	(void)state;
	assert_int_equal(mkdir("c", 0755) | mkdir("c/items", 0755), 0);
	put("c/config.json", "{}", 2);
	assert_null(checkpoint_torn(fd, "c", true));
	put("c/model-00001-of-00002.bin", "weights", 7);
	assert_string_equal(checkpoint_torn(fd, "c", true), "not all of its parts are there");
	put("c/model-00002-of-00002.bin", "weights", 7);
	assert_null(checkpoint_torn(fd, "c", true));
	put("c/items/optimizer.pt", "PK\3\4 cut", 8); /* also deeper in it */
	assert_string_equal(checkpoint_torn(fd, "c", true), "its zip archive has no end");
	assert_int_equal(mkdir("empty", 0755), 0);
	assert_string_equal(checkpoint_torn(fd, "empty", true), "it is empty");
}

static void test_distributed(void **state)
{
	(void)state;
	assert_int_equal(mkdir("step-5", 0755), 0);
	put("step-5/__0_0.distcp", "weights", 7);
	assert_string_equal(checkpoint_torn(fd, "step-5", true), "its .metadata, which is written last, is missing");
	put("step-5/.metadata", "m", 1);
	assert_null(checkpoint_torn(fd, "step-5", true));
	put("step-5/__1_0.distcp", "", 0);
	assert_string_equal(checkpoint_torn(fd, "step-5", true), "it is empty");
}

static void test_orbax(void **state)
{
	static const char open_text[] = "{\"init_timestamp_nsecs\": 5, \"commit_timestamp_nsecs\": null}";
	static const char done_text[] = "{\"init_timestamp_nsecs\": 5, \"commit_timestamp_nsecs\": 6}";

	(void)state;
	assert_int_equal(mkdir("1000", 0755), 0);
	put("1000/_CHECKPOINT_METADATA", open_text, strlen(open_text));
	assert_string_equal(checkpoint_torn(fd, "1000", true), "Orbax has not committed it");
	put("1000/_CHECKPOINT_METADATA", open_text, 20); /* cut */
	assert_non_null(checkpoint_torn(fd, "1000", true));
	put("1000/_CHECKPOINT_METADATA", done_text, strlen(done_text));
	put("1000/orbax.checkpoint", "", 0); /* a marker */
	assert_null(checkpoint_torn(fd, "1000", true));
	put("1000/_CHECKPOINT_METADATA", open_text, strlen(open_text));
	put("1000/_CHECKPOINT_METADATA", "{\"metrics\": {}}", 15);
	assert_null(checkpoint_torn(fd, "1000", true)); /* it does not say that it is not committed */
	put("1000/_CHECKPOINT_METADATA", open_text, strlen(open_text));
	put("1000/commit_success.txt", "", 0);
	assert_null(checkpoint_torn(fd, "1000", true));
}

/* Data that resembles a format, with bytes changed, cut out and inserted. */
static void test_fuzz(void **state)
{
	static const char tensors[] = "\50\0\0\0\0\0\0\0{\"w\":{\"data_offsets\":[0,8],\"dtype\":\"F32\"}}........";
	static const char together[] = "12 model_5.pt\00013 optimizer_5.pt\0\00014 x-00001-of-00002.bin\0\0";
	const char *seed_text = getenv("NEAP_TEST_SEED");
	unsigned seed = seed_text ? (unsigned)strtoul(seed_text, NULL, 10) : 1;
	unsigned char archive[256];
	size_t archive_length = zip(archive, "comment");

	(void)state;
	printf("fuzz seed %u\n", seed);
	srand(seed);
	for (int round = 0; round < 6000; round++) {
		int kind = rand() % 3;
		const void *from = kind == 0 ? (const void *)archive : kind == 1 ? tensors : together;
		size_t length = kind == 0 ? archive_length : kind == 1 ? sizeof tensors - 1 : sizeof together - 1;
		uint8_t bytes[512];

		memcpy(bytes, from, length);
		for (int edits = rand() % 5; edits > 0 && length > 1; edits--) {
			size_t at = (size_t)rand() % length, span = (size_t)rand() % (length - at) + 1;

			if (rand() % 2) {
				bytes[at] = (uint8_t)rand();
			} else if (rand() % 2) {
				memmove(bytes + at, bytes + at + span, length - at - span);
				length -= span;
			} else if (length + span <= sizeof bytes) {
				memmove(bytes + at + span, bytes + at, length - at);
				length += span;
			}
		}
		LLVMFuzzerTestOneInput(bytes, length);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fuzz),
		cmocka_unit_test_setup_teardown(test_zip, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_safetensors, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_folders, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_distributed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_orbax, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
