/* The list of mounts, and what each of them becomes in the view of a simulated run. */
#include "estimate/mountinfo.h"

#include "support/test.h"

#include <string.h>
#include <sys/sysmacros.h>

static struct neap_mounts parse(const char *text)
{
	struct neap_mounts mounts = {0};
	struct neap_error err = {0};
	if (neap_mounts_parse(text, strlen(text), &mounts, &err))
		fail_msg("%s", err.message);
	return mounts;
}

static const struct neap_mount *find(const struct neap_mounts *mounts, uint64_t id)
{
	for (size_t i = 0; i < mounts->count; i++)
		if (mounts->items[i].id == id)
			return &mounts->items[i];
	fail_msg("no mount %llu", (unsigned long long)id);
	return NULL;
}

static void reads_a_line(void **state)
{
	struct neap_mounts mounts = parse("27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n"
					  "40 27 0:44 /sub /a\\040b\\134c\\011 rw,noatime master:3 propagate_from:2 "
					  "- fuse.sshfs host:/x rw,ro_x\n"
					  "41 27 0:45 / /iso rw - iso9660 /dev/sr0 ro\n"
					  "42 27 0:46 / /bind ro,nosuid - ext4 /dev/vdb rw\n");
	(void)state;
	assert_int_equal(mounts.count, 4);
	assert_string_equal(find(&mounts, 40)->path, "/a b\\c\t");
	assert_string_equal(find(&mounts, 40)->type, "fuse.sshfs");
	assert_true(find(&mounts, 40)->device == makedev(0, 44));
	assert_int_equal(find(&mounts, 40)->parent, 27);
	assert_false(find(&mounts, 40)->read_only);
	assert_true(find(&mounts, 41)->read_only); /* the file system is read-only */
	assert_true(find(&mounts, 42)->read_only); /* the mount is */
	for (size_t i = 0; i < mounts.count; i++)
		assert_true(mounts.items[i].visible);
	neap_mounts_fini(&mounts);
}

/* A mount is not visible if another one covers it, at the same folder or above. */
static void knows_what_is_hidden(void **state)
{
	struct neap_mounts mounts = parse("20 1 0:1 / / rw - ext4 a rw\n"
					  "25 20 0:2 / /dev/shm rw - tmpfs a rw\n"
					  "30 25 0:3 / /dev/shm rw - tmpfs b rw\n"
					  "31 20 0:4 / /data rw - ext4 c rw\n"
					  "32 31 0:5 / /data/deep/in rw - ext4 d rw\n"
					  "33 31 0:6 / /data/deep rw - ext4 e rw\n"
					  "34 33 0:7 / /data/deep/other rw - ext4 f rw\n"
					  "35 20 0:8 / /data-2 rw - ext4 g rw\n");
	(void)state;
	static const struct {
		uint64_t id;
		bool visible;
	} expected[] = {{20, true},  {25, false}, {30, true}, {31, true},
			{32, false}, {33, true},  {34, true}, {35, true}};
	for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
		assert_int_equal(find(&mounts, expected[i].id)->visible, expected[i].visible);
	for (size_t i = 1; i < mounts.count; i++) /* parents before the mounts on them */
		for (size_t n = 0; n < i; n++)
			assert_false(strcmp(mounts.items[n].path, mounts.items[i].path) != 0 &&
				     neap_path_is_below(mounts.items[n].path, mounts.items[i].path));
	neap_mounts_fini(&mounts);
}

static void refuses_what_is_not_of_the_form(void **state)
{
	static const char *const lines[] = {
		"x",
		"27 1 254:0 / / rw,relatime",
		"27 1 254:0 / / rw,relatime - ext4",
		"a 1 254:0 / / rw - ext4 b rw",
		"27 1 254 / / rw - ext4 b rw",
		"27 1 254:x / / rw - ext4 b rw",
		"27 1 99999999999:0 / / rw - ext4 b rw",
		"27 1 254:0 / relative rw - ext4 b rw",
		"27 1 254:0 / /not-the-root rw - ext4 b rw",
		"27 28 0:0 / / rw - ext4 b rw\n28 27 0:0 / / rw - ext4 b rw", /* each is mounted on the other */
		"",
	};
	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		struct neap_mounts mounts = {0};
		struct neap_error err = {0};
		assert_int_equal(neap_mounts_parse(lines[i], strlen(lines[i]), &mounts, &err), NEAP_EPARSE);
		assert_null(mounts.items);
	}
}

/* Every prefix of a list, and every byte of it replaced: the reader ends with an error or a list. */
static void survives_any_bytes(void **state)
{
	static const char text[] =
		"20 1 0:1 / / rw - ext4 a rw\n25 20 0:2 / /d\\040\\ rw - tmpfs a ro\n30 25 0:3 / /d\\040\\ "
		"rw - tmpfs b rw";
	static const char bytes[] = {'\0', ' ', '\n', '/', '\\', '-', ':', '9', (char)0xff};
	char changed[sizeof text];
	(void)state;
	for (size_t i = 0; i < sizeof text; i++)
		for (size_t n = 0; n <= sizeof bytes; n++) {
			struct neap_mounts mounts = {0};
			memcpy(changed, text, sizeof text);
			if (n < sizeof bytes)
				changed[i] = bytes[n];
			(void)neap_mounts_parse(changed, n < sizeof bytes ? sizeof text - 1 : i, &mounts, NULL);
			neap_mounts_fini(&mounts);
		}
}

static void knows_what_is_below(void **state)
{
	(void)state;
	assert_true(neap_path_is_below("/a/b", "/a"));
	assert_true(neap_path_is_below("/a", "/a"));
	assert_true(neap_path_is_below("/a", "/"));
	assert_true(neap_path_is_below("/", "/"));
	assert_false(neap_path_is_below("/ab", "/a"));
	assert_false(neap_path_is_below("/a", "/a/b"));
}

static void plans(void **state)
{
	static const struct {
		struct neap_mount mount;
		enum neap_view_action action;
	} cases[] = {
		{{.path = "/", .type = "ext4"}, NEAP_VIEW_OVERLAY},
		{{.path = "/", .type = "overlay"}, NEAP_VIEW_OVERLAY},
		{{.path = "/home", .type = "nfs4"}, NEAP_VIEW_OVERLAY},
		{{.path = "/tmp", .type = "tmpfs"}, NEAP_VIEW_OVERLAY},
		{{.path = "/dev/shm", .type = "tmpfs"}, NEAP_VIEW_OVERLAY},
		{{.path = "/dev/shm/mine", .type = "tmpfs"}, NEAP_VIEW_OVERLAY},
		{{.path = "/scratch", .type = "an unheard-of one"}, NEAP_VIEW_OVERLAY},
		{{.path = "/home/me/remote", .type = "fuse.sshfs"}, NEAP_VIEW_OVERLAY},
		{{.path = "/device", .type = "ext4"}, NEAP_VIEW_OVERLAY},
		{{.path = "/squash", .type = "squashfs", .read_only = true}, NEAP_VIEW_AS_IT_IS},
		{{.path = "/proc", .type = "proc"}, NEAP_VIEW_AS_IT_IS},
		{{.path = "/sys/fs/cgroup", .type = "cgroup2"}, NEAP_VIEW_AS_IT_IS},
		{{.path = "/dev/pts", .type = "devpts"}, NEAP_VIEW_AS_IT_IS},
		{{.path = "/dev", .type = "devtmpfs"}, NEAP_VIEW_READ_ONLY},
		{{.path = "/dev", .type = "tmpfs"}, NEAP_VIEW_READ_ONLY},
		{{.path = "/dev/hugepages", .type = "hugetlbfs"}, NEAP_VIEW_READ_ONLY},
		{{.path = "/dev/nvidia0", .type = "devtmpfs"}, NEAP_VIEW_READ_ONLY},
		{{.path = "/mnt/huge", .type = "hugetlbfs"}, NEAP_VIEW_READ_ONLY},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (neap_view_plan(&cases[i].mount) != cases[i].action)
			fail_msg("%s of type %s", cases[i].mount.path, cases[i].mount.type);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_a_line),
		cmocka_unit_test(knows_what_is_hidden),
		cmocka_unit_test(refuses_what_is_not_of_the_form),
		cmocka_unit_test(survives_any_bytes),
		cmocka_unit_test(knows_what_is_below),
		cmocka_unit_test(plans),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
