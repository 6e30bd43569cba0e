/* What the host has left, read from a tree of files that the test makes. */
#include "base/file.h"
#include "base/hostmem.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[] = "/tmp/neap-hostmem-XXXXXX";

static void put(const char *path, const char *text)
{
	char whole[256];

	snprintf(whole, sizeof whole, "%s%s", root, path);
	*strrchr(whole, '/') = '\0';
	assert_int_equal(neap_make_folder(whole, 0700, NULL), NEAP_OK);
	whole[strlen(whole)] = '/';
	assert_int_equal(neap_file_write(whole, text, strlen(text), NULL), NEAP_OK);
}

static int make_root(void **state)
{
	(void)state;
	strcpy(root + strlen(root) - 6, "XXXXXX");
	if (!mkdtemp(root))
		return -1;
	put("/proc/meminfo", "MemTotal:       8000 kB\nMemFree:  100 kB\nMemAvailable:    4000 kB\n");
	return 0;
}

static int remove_root(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof command, "rm -r %s", root);
	return system(command);
}

static struct neap_host_memory read_it(void)
{
	struct neap_host_memory memory = {0};
	struct neap_error err = {0};

	if (neap_host_memory_read(root, &memory, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	return memory;
}

static void test_host(void **state)
{
	(void)state;
	assert_int_equal(read_it().available_bytes, 4000 * 1024);
	put("/proc/self/cgroup", "0::/a/b\n"); /* its files do not exist */
	assert_int_equal(read_it().available_bytes, 4000 * 1024);
	assert_false(read_it().by_group);
	assert_int_equal(read_it().host_total_bytes, 8000 * 1024);
}

static void test_groups(void **state)
{
	(void)state;
	put("/proc/self/cgroup", "0::/a/b\n");
	put("/sys/fs/cgroup/a/b/memory.max", "max\n");
	put("/sys/fs/cgroup/a/b/memory.current", "1000\n");
	assert_false(read_it().by_group);
	/* A group below groups with limits. Its file cache is free memory. */
	put("/sys/fs/cgroup/a/memory.max", "1000000\n");
	put("/sys/fs/cgroup/a/memory.current", "900000\n");
	assert_int_equal(read_it().available_bytes, 100000);
	assert_true(read_it().by_group);
	put("/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 50000\nactive_file 7\n");
	assert_int_equal(read_it().available_bytes, 150000);
	/* The group of a container is the root of what is mounted. */
	put("/sys/fs/cgroup/memory.max", "70000");
	put("/sys/fs/cgroup/memory.current", "80000");
	assert_int_equal(read_it().available_bytes, 0);
}

static void test_version_1(void **state)
{
	(void)state;
	put("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:devices:/y\n3:foo,memory:/job\n");
	put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2000\n");
	put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1900\n");
	put("/sys/fs/cgroup/memory/job/memory.stat", "cache 1\ninactive_file 900\ntotal_inactive_file 100\n");
	assert_int_equal(read_it().available_bytes, 200);
}

/* Nonsense means "not known", never a number. */
static void test_nonsense(void **state)
{
	static const char *const lines[] = {
		"", "0", "0:", "0::", "0::x", "::::", "0::/../..", "0::/a\n0::/b\n:\n", "999:memory:memory"};
	struct neap_host_memory memory = {.available_bytes = 77};

	(void)state;
	put("/sys/fs/cgroup/a/memory.max", "-5\n");
	put("/sys/fs/cgroup/a/memory.current", "99999999999999999999999\n");
	put("/sys/fs/cgroup/b/memory.max", "");
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		put("/proc/self/cgroup", lines[i]);
		assert_int_equal(read_it().available_bytes, 4000 * 1024);
	}
	put("/proc/meminfo", "MemAvailable: much\n");
	assert_int_equal(neap_host_memory_read(root, &memory, NULL), NEAP_EPARSE);
	put("/proc/meminfo", "MemAvailable: 99999999999999999 kB\n");
	assert_int_equal(neap_host_memory_read(root, &memory, NULL), NEAP_EPARSE);
	assert_int_equal(neap_host_memory_read("/nonexistent", &memory, NULL), NEAP_ENOENT);
	assert_int_equal(memory.available_bytes, 77);
}

static void test_this_host(void **state)
{
	struct neap_host_memory memory;

	(void)state;
	assert_int_equal(neap_host_memory_read("", &memory, NULL), NEAP_OK);
	assert_true(memory.available_bytes > 0);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, make_root, remove_root)
	const struct CMUnitTest tests[] = {
		TEST(test_host), TEST(test_groups), TEST(test_version_1), TEST(test_nonsense), TEST(test_this_host),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
