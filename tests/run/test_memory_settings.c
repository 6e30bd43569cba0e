/* Merging expandable segments into whatever a user has set. */
#include "run/memory_settings.h"

#include "support/test.h"

#include <stdlib.h>
#include <string.h>

static void odd_values(void **state)
{
	(void)state;
	enum { REPLACED = 1, MAX_SPLIT = 2, BACKEND = 4 };
	static const struct {
		const char *existing, *merged;
		int flags;
	} cases[] = {
		{NULL, "expandable_segments:True", 0},
		{"", "expandable_segments:True", 0},
		{" , ,", "expandable_segments:True", 0},
		{"expandable_segments:True", "expandable_segments:True", 0},
		{" expandable_segments : True ", "expandable_segments:True", 0},
		{"expandable_segments:False", "expandable_segments:True", REPLACED},
		{"expandable_segments", "expandable_segments:True", REPLACED},
		{"expandable_segments:True,expandable_segments:False", "expandable_segments:True", REPLACED},
		{"garbage_collection_threshold:0.8", "expandable_segments:True,garbage_collection_threshold:0.8", 0},
		{"max_split_size_mb:128,", "expandable_segments:True,max_split_size_mb:128", MAX_SPLIT},
		{"backend:cudaMallocAsync", "expandable_segments:True,backend:cudaMallocAsync", BACKEND},
		{"backend:native", "expandable_segments:True,backend:native", 0},
		{"a:1,expandable_segments:False,b:2", "expandable_segments:True,a:1,b:2", REPLACED},
		{"roundup_power2_divisions:[256:1,expandable_segments:False,>:8],b:2",
		 "expandable_segments:True,roundup_power2_divisions:[256:1,expandable_segments:False,>:8],b:2", 0},
		{"never:[1,closed", "expandable_segments:True,never:[1,closed", 0},
		{"],expandable_segments:False", "expandable_segments:True,]", REPLACED},
		{"expandable_segmentsX:False", "expandable_segments:True,expandable_segmentsX:False", 0},
		{"X:expandable_segments", "expandable_segments:True,X:expandable_segments", 0},
		{"it's:\"$HOME\"", "expandable_segments:True,it's:\"$HOME\"", 0},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct neap_memory_settings settings = {0};
		char *merged = neap_memory_settings_merge(cases[i].existing, &settings);
		assert_non_null(merged);
		assert_string_equal(merged, cases[i].merged);
		int flags = (settings.replaced ? REPLACED : 0) | (settings.max_split ? MAX_SPLIT : 0) |
			    (settings.other_backend ? BACKEND : 0);
		if (flags != cases[i].flags)
			fail_msg("'%s': %d", cases[i].existing ? cases[i].existing : "", flags);
		struct neap_memory_settings second = {0};
		char *again = neap_memory_settings_merge(merged, &second);
		assert_string_equal(again, merged); /* merging twice changes nothing */
		assert_false(second.replaced);
		free(again);
		free(merged);
	}
}

/* Checks which variables are set, and from which values. */
static void both_variables(void **state)
{
	(void)state;
	static const struct {
		const char *cuda, *any, *first, *second;
	} cases[] = {
		{NULL, NULL, "expandable_segments:True", NULL},
		{"a:1", NULL, "expandable_segments:True,a:1", NULL},
		{NULL, "b:2", "expandable_segments:True,b:2", "expandable_segments:True,b:2"},
		{"a:1", "b:2", "expandable_segments:True,a:1", "expandable_segments:True,b:2"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct neap_memory_settings settings;
		unsetenv("PYTORCH_CUDA_ALLOC_CONF");
		unsetenv("PYTORCH_ALLOC_CONF");
		if (cases[i].cuda)
			setenv("PYTORCH_CUDA_ALLOC_CONF", cases[i].cuda, 1);
		if (cases[i].any)
			setenv("PYTORCH_ALLOC_CONF", cases[i].any, 1);
		assert_int_equal(neap_memory_settings_make(&settings, NULL), NEAP_OK);
		assert_int_equal(settings.count, cases[i].second ? 3 : 2);
		assert_string_equal(settings.entries[settings.count - 1], "NEAP_ATTENTION=efficient");
		assert_memory_equal(settings.entries[0], "PYTORCH_CUDA_ALLOC_CONF=", 24);
		assert_string_equal(settings.entries[0] + 24, cases[i].first);
		if (cases[i].second) {
			assert_memory_equal(settings.entries[1], "PYTORCH_ALLOC_CONF=", 19);
			assert_string_equal(settings.entries[1] + 19, cases[i].second);
		}
		neap_memory_settings_fini(&settings);
		neap_memory_settings_fini(&settings);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(odd_values), cmocka_unit_test(both_variables)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
