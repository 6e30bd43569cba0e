/* The functions of PyTorch's plug-in, called as it calls them, where they fail: with and without a function that
 * throws. */
#include "neap/plugin.h"
#include "support/test.h"

#include <string.h>
#include <unistd.h>

static char thrown[256];

/* Instead of an exception: what was to be thrown. */
static void note(const char *function, const char *file, uint32_t line, const char *message)
{
	(void)file, (void)line;
	snprintf(thrown, sizeof thrown, "%s: %s", function, message);
}

static void fail_all(void)
{
	size_t bytes = 7;
	assert_null(neap_plugin_malloc(1000, NEAP_PLUGIN_DEVICES, NULL));
	assert_null(neap_plugin_malloc(1000, -1, NULL));
	assert_null(neap_plugin_malloc(1000, 1, NULL)); /* there is one device */
	assert_null(neap_plugin_malloc(1 << 30, 0, NULL));
	neap_plugin_free(&bytes, 8, 0, NULL);
	neap_plugin_set_fraction(0.5, 1);
	assert_null(neap_plugin_base(&bytes, &bytes));
	assert_int_equal(bytes, 0);
	neap_plugin_refuse_pool(0);
}

static void failures_without_a_start(void **state)
{
	(void)state;
	fail_all();
	assert_string_equal(thrown, "");
	void *block = neap_plugin_malloc(1000, 0, NULL);
	assert_non_null(block);
	neap_plugin_free(block, 1000, 0, NULL);
}

static void failures_are_thrown(void **state)
{
	(void)state;
	neap_plugin_start(note);
	fail_all();
	assert_non_null(strstr(thrown, "neap_plugin_refuse_pool: neap's allocator serves no CUDA graph"));
	neap_plugin_malloc(1 << 30, 0, NULL);
	assert_non_null(strstr(thrown, "neap_plugin_malloc: CUDA out of memory. Tried to allocate 1024.00 MiB."));
	neap_plugin_start(NULL);
}

static int set_up(void **state)
{
	char world[64];
	(void)state;
	snprintf(world, sizeof world, "mem=256MiB,world=plugin-%d", (int)getpid());
	return setenv("NEAP_SIM", world, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(failures_without_a_start),
		cmocka_unit_test(failures_are_thrown),
	};
	return cmocka_run_group_tests(tests, set_up, NULL);
}
