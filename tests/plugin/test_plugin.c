/* The functions of PyTorch's plug-in, called as PyTorch calls them, where they fail: with and without a function that
 * throws. */
#include "neap/plugin.h"
#include "support/test.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

static char thrown[1200];

/* Instead of an exception: records what would be thrown. */
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

/* The message of the last call, which threw as `function`. */
static const char *take_thrown(const char *function)
{
	static char taken[sizeof thrown];
	size_t length = strlen(function);
	memcpy(taken, thrown, sizeof taken);
	thrown[0] = '\0';
	if (strncmp(taken, function, length) != 0 || strncmp(taken + length, ": ", 2) != 0)
		fail_msg("%s was to throw, not \"%s\"", function, taken);
	return taken + length + 2;
}

static void assert_within(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("\"%s\" is not in \"%s\"", part, text);
}

static void failures_are_thrown(void **state)
{
	size_t bytes = 7;
	(void)state;
	neap_plugin_start(note);
	neap_plugin_malloc(1000, NEAP_PLUGIN_DEVICES, NULL);
	assert_within(take_thrown("neap_plugin_malloc"), "neap serves devices 0 to 63");
	neap_plugin_malloc(1000, 1, NULL);
	assert_true(strlen(take_thrown("neap_plugin_malloc")) > 0);
	void *block = neap_plugin_malloc(32 << 20, 0, NULL);
	neap_plugin_malloc(1 << 30, 0, NULL);
	const char *text = take_thrown("neap_plugin_malloc");
	assert_within(text, "Of the allocated memory 32.00 MiB is allocated by PyTorch");
	assert_within(text, "The largest free block has 0 bytes.");
	neap_plugin_free(block, 32 << 20, 0, NULL);
	assert_within(text, "CUDA out of memory. Tried to allocate 1024.00 MiB.");
	assert_null(strstr(text, "allowed"));
	neap_plugin_free(&bytes, 8, 0, NULL);
	assert_string_equal(take_thrown("neap_plugin_free"), "neap: invalid device pointer");
	neap_plugin_free(&bytes, 8, NEAP_PLUGIN_DEVICES, NULL);
	assert_string_equal(take_thrown("neap_plugin_free"), "neap: invalid device pointer");
	neap_plugin_set_fraction(0.5, 1);
	assert_true(strlen(take_thrown("neap_plugin_set_fraction")) > 0);
	neap_plugin_base(&bytes, NULL);
	assert_within(take_thrown("neap_plugin_base"), "mapped page by page");
	neap_plugin_refuse_pool(0);
	assert_within(take_thrown("neap_plugin_refuse_pool"), "neap's allocator serves no CUDA graph");
	neap_plugin_record_stream(&bytes, NULL); /* neap does not have another process's memory */
	assert_string_equal(thrown, "");
	neap_plugin_start(NULL);
}

/* A block can be freed once. */
static void block_is_freed_once(void **state)
{
	(void)state;
	neap_plugin_start(note);
	void *block = neap_plugin_malloc(1000, 0, NULL);
	neap_plugin_free(block, 1000, 0, NULL);
	assert_string_equal(thrown, "");
	neap_plugin_free(block, 1000, 0, NULL);
	assert_string_equal(take_thrown("neap_plugin_free"), "neap: invalid device pointer");
	neap_plugin_start(NULL);
}

/* The error names the limit. A limit of nothing allows nothing, as PyTorch's does. */
static void fraction_is_a_limit(void **state)
{
	(void)state;
	neap_plugin_start(note);
	neap_plugin_set_fraction(0.5, 0);
	assert_null(neap_plugin_malloc(200 << 20, 0, NULL));
	assert_within(take_thrown("neap_plugin_malloc"), " 127.00 MiB allowed; ");
	neap_plugin_set_fraction(0, 0);
	assert_string_equal(thrown, "");
	assert_null(neap_plugin_malloc(1, 0, NULL));
	assert_within(take_thrown("neap_plugin_malloc"), " 0 bytes allowed; ");
	neap_plugin_set_fraction(1, 0);
	void *block = neap_plugin_malloc(200 << 20, 0, NULL);
	assert_string_equal(thrown, "");
	assert_non_null(block);
	neap_plugin_free(block, 200 << 20, 0, NULL);
	neap_plugin_empty_cache();
	assert_string_equal(thrown, "");
	neap_plugin_start(NULL);
}

static void *driver_call(const char *name)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	void *call = driver ? dlsym(driver, name) : NULL;
	if (!call)
		fail_msg("%s", dlerror());
	dlclose(driver);
	return call;
}

static int64_t reserved(void)
{
	struct neap_stats stats;
	neap_get_stats(neap_plugin_alloc(0), &stats);
	return stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].current;
}

/* During a graph capture nothing is given back, and that is no error. */
static void capture_keeps_the_cache(void **state)
{
	int (*create)(void **, unsigned), (*begin)(void *, int), (*end)(void *, void **), (*destroy)(void *);
	int (*retain)(void **, int), (*set)(void *);
	void *context = NULL, *stream = NULL, *graph = NULL;
	(void)state;
	*(void **)&retain = driver_call("cuDevicePrimaryCtxRetain");
	*(void **)&set = driver_call("cuCtxSetCurrent");
	*(void **)&create = driver_call("cuStreamCreate");
	*(void **)&begin = driver_call("cuStreamBeginCapture_v2");
	*(void **)&end = driver_call("cuStreamEndCapture");
	*(void **)&destroy = driver_call("cuGraphDestroy");
	assert_true(retain(&context, 0) == 0 && set(context) == 0);
	neap_plugin_start(note);
	void *block = neap_plugin_malloc(32 << 20, 0, NULL);
	neap_plugin_free(block, 32 << 20, 0, NULL);
	assert_true(create(&stream, 1) == 0);
	void *live = neap_plugin_malloc(1000, 0, stream);
	int64_t before = reserved();
	assert_int_equal(begin(stream, 0), 0);
	neap_plugin_empty_cache();
	assert_string_equal(thrown, "");
	assert_true(end(stream, &graph) == 0 && destroy(graph) == 0);
	assert_int_equal(reserved(), before);
	neap_plugin_free(live, 1000, 0, stream);
	neap_plugin_empty_cache();
	assert_string_equal(thrown, "");
	assert_int_equal(reserved(), 0);
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
		cmocka_unit_test(failures_without_a_start), cmocka_unit_test(failures_are_thrown),
		cmocka_unit_test(block_is_freed_once),      cmocka_unit_test(fraction_is_a_limit),
		cmocka_unit_test(capture_keeps_the_cache),
	};
	return cmocka_run_group_tests(tests, set_up, NULL);
}
