/* PYTORCH_CUDA_ALLOC_CONF: what PyTorch accepts, what it makes of it, and how sizes are rounded. */

#include "base/units.h"
#include "replay/torch_settings.h"
#include "support/test.h"

#include <string.h>

static struct neap_torch_settings parse(const char *text)
{
	struct neap_torch_settings settings;
	struct neap_error err = {0};
	neap_torch_settings_default(&settings);
	if (neap_torch_settings_parse(text, &settings, &err) != NEAP_OK)
		fail_msg("'%s': %s", text, err.message);
	return settings;
}

static void test_defaults(void **state)
{
	(void)state;
	const char *const empty[] = {NULL, "", "  "};
	for (size_t i = 0; i < COUNT(empty); i++) {
		struct neap_torch_settings settings = parse(empty[i]);
		assert_false(settings.expandable_segments);
		assert_true(settings.max_split_bytes == NEAP_TORCH_UNLIMITED);
		assert_int_equal(settings.max_non_split_rounding_bytes, 20 * NEAP_MIB);
		assert_true(settings.garbage_collection_threshold == 0 && settings.fraction == 0);
		for (size_t j = 0; j < NEAP_TORCH_DIVISIONS; j++)
			assert_int_equal(settings.divisions[j], 0);
	}
}

static void test_every_setting(void **state)
{
	(void)state;
	struct neap_torch_settings settings = parse("backend:native,expandable_segments:True, max_split_size_mb:128,"
						    "garbage_collection_threshold:0.8,max_non_split_rounding_mb:64,"
						    "release_lock_on_cudamalloc:True,pinned_num_register_threads:4,"
						    "per_process_memory_fraction:0.5,roundup_power2_divisions:4");
	assert_true(settings.expandable_segments);
	assert_int_equal(settings.max_split_bytes, 128 * NEAP_MIB);
	assert_int_equal(settings.max_non_split_rounding_bytes, 64 * NEAP_MIB);
	assert_true(settings.garbage_collection_threshold == 0.8 && settings.fraction == 0.5);
	assert_int_equal(settings.divisions[0], 4);
	assert_int_equal(settings.divisions[15], 4);
}

static void test_rounding_list(void **state)
{
	(void)state;
	struct neap_torch_settings settings = parse("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]");
	for (size_t i = 0; i <= 8; i++) /* below the first interval: like the first */
		assert_int_equal(settings.divisions[i], 1);
	assert_int_equal(settings.divisions[9], 2);
	for (size_t i = 10; i < NEAP_TORCH_DIVISIONS; i++) /* '>' begins at the last interval named */
		assert_int_equal(settings.divisions[i], 8);
	settings = parse("roundup_power2_divisions:[64:8,256:4]");
	assert_int_equal(settings.divisions[6], 8);
	assert_int_equal(settings.divisions[7], 0); /* between two intervals: off */
	assert_int_equal(settings.divisions[8], 4);
	assert_int_equal(settings.divisions[9], 0);
}

static void test_newer_settings(void **state)
{
	(void)state;
	struct neap_torch_settings settings =
		parse("large_segment_size_mb:64,max_split_size_mb:64,throw_on_cudamalloc_oom:True,"
		      "expandable_segments_reserve:0.5,expandable_segments_reserve_by_class:[serving:0.25,other:8G],"
		      "graph_capture_record_stream_reuse:True,pinned_max_round_threshold_mb:8,"
		      "pinned_max_cached_size_mb:64,pinned_free_catch_all:True,pinned_reserve_segment_size_mb:32");
	assert_int_equal(settings.large_segment_bytes, 64 * NEAP_MIB);
	assert_int_equal(settings.max_split_bytes, 64 * NEAP_MIB);
	assert_true(settings.throw_on_oom);
	assert_int_equal(neap_torch_reserve(&settings, 8 * NEAP_GIB), 4 * NEAP_GIB);
	assert_int_equal(settings.max_non_split_rounding_bytes, 64 * NEAP_MIB);
	settings = parse("max_split_size_mb:12,max_non_split_rounding_mb:13,large_segment_size_mb:12");
	assert_int_equal(settings.max_split_bytes, 12 * NEAP_MIB);
	assert_int_equal(settings.max_non_split_rounding_bytes, 13 * NEAP_MIB);
	settings = parse("expandable_segments_reserve:3G");
	assert_int_equal(neap_torch_reserve(&settings, 8 * NEAP_GIB), 3 * NEAP_GIB);
	assert_int_equal(neap_torch_reserve(&settings, NEAP_GIB), NEAP_GIB + NEAP_GIB / 8); /* never more */
	settings = parse("");
	assert_int_equal(neap_torch_reserve(&settings, 8 * NEAP_GIB), 9 * NEAP_GIB);
}

/* A snapshot's settings were accepted by the PyTorch that took it: unknown ones are ignored. */
static void test_lenient(void **state)
{
	(void)state;
	struct neap_torch_settings settings;
	neap_torch_settings_default(&settings);
	neap_torch_settings_take("of_2_99:[a:1,b:2],large_segment_size_mb:32,another:x,max_split_size_mb:40,,x:1,"
				 "expandable_segments:True",
				 &settings);
	assert_int_equal(settings.large_segment_bytes, 32 * NEAP_MIB);
	assert_int_equal(settings.max_split_bytes, 40 * NEAP_MIB);
	assert_false(settings.expandable_segments); /* after a part that does not parse */
	neap_torch_settings_take(NULL, &settings);
}

static void test_bad_settings(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		uint32_t column;
	} cases[] = {
		{"max_split_size_mb", 18},
		{"max_split_size_mb:", 19},
		{"max_split_size_mb:19", 19},
		{"max_split_size_mb:-1", 19},
		{"max_split_size_mb:99999999999999999999", 19},
		{"expandable_segments:yes", 21},
		{"expandable_segments:True max_split_size_mb:128", 26},
		{"garbage_collection_threshold:1", 30},
		{"garbage_collection_threshold:0", 30},
		{"garbage_collection_threshold:nan", 30},
		{"per_process_memory_fraction:1.5", 29},
		{"roundup_power2_divisions:3", 26},
		{"roundup_power2_divisions:[3:4]", 27},
		{"roundup_power2_divisions:[4:4", 30},
		{"roundup_power2_divisions:[4]", 28},
		{"no_such_setting:1", 1},
		{"max_split_size_mb:128,,", 23},
		{"large_segment_size_mb:10", 23},
		{"large_segment_size_mb:64,max_split_size_mb:63", 44},
		{"max_split_size_mb:63,large_segment_size_mb:64", 19},
		{"max_non_split_rounding_mb:31,large_segment_size_mb:32", 27},
		{"throw_on_cudamalloc_oom:1", 25},
		{"expandable_segments_reserve:0", 29},
		{"expandable_segments_reserve:12X", 29},
		{"expandable_segments_reserve_by_class:[serving]", 46},
		{"expandable_segments_handle_type:posix_fd", 1},
		{":", 1},
	};
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct neap_torch_settings settings, before;
		struct neap_error err = {0};
		memset(&settings, 0x5a, sizeof settings); /* nothing is written, not even what lies between */
		settings.large_segment_bytes = 20 * NEAP_MIB;
		before = settings;
		assert_int_equal(neap_torch_settings_parse(cases[i].text, &settings, &err), NEAP_EPARSE);
		if (err.column != cases[i].column)
			fail_msg("'%s': column %u, not %u", cases[i].text, err.column, cases[i].column);
		assert_memory_equal(&settings, &before, sizeof settings);
	}
	struct neap_torch_settings settings;
	struct neap_error err = {0};
	neap_torch_settings_default(&settings);
	assert_int_equal(neap_torch_settings_parse("backend:cudaMallocAsync", &settings, &err), NEAP_ENOTSUP);
}

static void test_sizes(void **state)
{
	(void)state;
	static const struct {
		const char *settings;
		uint64_t bytes, rounded;
	} cases[] = {
		{"", 1, 512},
		{"", 512, 512},
		{"", 513, 1024},
		{"", NEAP_MIB + 1, NEAP_MIB + 512},
		/* 1200 MiB lies between 1024 and 2048: steps of 256 */
		{"roundup_power2_divisions:4", 1200 * NEAP_MIB, 1280 * NEAP_MIB},
		{"roundup_power2_divisions:4", 1280 * NEAP_MIB, 1280 * NEAP_MIB},
		{"roundup_power2_divisions:4", 1024 * NEAP_MIB, 1024 * NEAP_MIB},
		{"roundup_power2_divisions:4", 2048, 2048},
		{"roundup_power2_divisions:4", 2049, 2560}, /* steps of 512 */
		{"roundup_power2_divisions:4", 1500, 1536}, /* not above 512 * 4 */
		{"roundup_power2_divisions:1", 1200 * NEAP_MIB, 1200 * NEAP_MIB},
		{"roundup_power2_divisions:[256:1,>:8]", 200 * NEAP_MIB + 1, 200 * NEAP_MIB + 512},
		{"roundup_power2_divisions:[64:4,128:2]", 150 * NEAP_MIB, 192 * NEAP_MIB},
		{"roundup_power2_divisions:[64:4,128:2]", 100 * NEAP_MIB, 112 * NEAP_MIB},
	};
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct neap_torch_settings settings = parse(cases[i].settings);
		assert_int_equal(neap_torch_round(&settings, cases[i].bytes), cases[i].rounded);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),      cmocka_unit_test(test_every_setting),
		cmocka_unit_test(test_rounding_list), cmocka_unit_test(test_bad_settings),
		cmocka_unit_test(test_sizes),         cmocka_unit_test(test_newer_settings),
		cmocka_unit_test(test_lenient),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
