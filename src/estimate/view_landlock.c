/* estimate/view_landlock.c: neap_view_restrict (view.h). The numbers are those of the kernel's documentation
 * (landlock(7), userspace-api/landlock.rst), since the headers of an older system lack the later ones. */
#include "estimate/view.h"

#include "base/error.h"
#include "estimate/view_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The same on all architectures since Linux 5.13. */
#define CREATE_RULESET 444
#define ADD_RULE       445
#define RESTRICT_SELF  446
#define GIVE_VERSION   1u
#define PATH_BENEATH   1

#define WRITE_FILE (1ull << 1)
#define MAKE       (0x1ffull << 4) /* remove and make, files of each kind */
#define REFER      (1ull << 13)    /* rename and link between folders: version 2 */
#define TRUNCATE   (1ull << 14)    /* version 3 */

struct rule {
	uint64_t allowed;
	int32_t parent_fd;
} __attribute__((packed));

static uint64_t rights_of(long version)
{
	return WRITE_FILE | MAKE | (version >= 2 ? REFER : 0) | (version >= 3 ? TRUNCATE : 0);
}

/* Allows access to `path` and everything below it. A path that does not exist needs no rule. */
static bool allow(int ruleset, const char *path, uint64_t rights)
{
	struct rule rule = {.parent_fd = open(path, O_PATH | O_CLOEXEC)};
	struct stat about;
	if (rule.parent_fd < 0)
		return true;
	if (fstat(rule.parent_fd, &about) == 0 && !S_ISDIR(about.st_mode))
		rights &= WRITE_FILE | TRUNCATE;
	rule.allowed = rights;
	bool added = syscall(ADD_RULE, ruleset, PATH_BENEATH, &rule, 0u) == 0;
	int error_number = errno;
	close(rule.parent_fd);
	errno = error_number;
	return added;
}

static enum neap_status restrict_paths(const char *folder, long version, struct neap_error *err)
{
	static const char *const devices[] = {"/dev/null", "/dev/zero",    "/dev/full", "/dev/random",
					      "/dev/tty",  "/dev/urandom", "/dev/ptmx", "/dev/pts"};
	uint64_t handled = rights_of(version);
	int ruleset = (int)syscall(CREATE_RULESET, &handled, sizeof handled, 0u);
	bool whole = ruleset >= 0 && allow(ruleset, folder, handled) && allow(ruleset, "/dev/shm", handled);
	for (size_t i = 0; whole && i < sizeof devices / sizeof *devices; i++)
		whole = allow(ruleset, devices[i], WRITE_FILE | (handled & TRUNCATE));
	whole = whole && syscall(RESTRICT_SELF, ruleset, 0u) == 0;
	int error_number = errno;
	if (ruleset >= 0)
		close(ruleset);
	return whole ? NEAP_OK
		     : neap_fail(err, NEAP_ENOTSUP, "Landlock refused its rules: %s", strerror(error_number));
}

/* --- the filter --- */

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

#ifdef ARCHITECTURE
#define DATA(member)    ((uint32_t)offsetof(struct seccomp_data, member))
#define LOAD(offset)    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (offset))
#define RETURN(value)   BPF_STMT(BPF_RET | BPF_K, (value))
#define REFUSE(number)  RETURN(SECCOMP_RET_ERRNO | (number))
#define UNLESS(k, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(k), 0, (skip))
#define RULES_MOST      160
#define X32             0x40000000u

/* These change a file by its path, and Landlock has no right for them. On every architecture setxattrat and
 * removexattrat are 463 and 466, fchmodat2 452, and io_uring_setup, which would bypass this filter, 425. */
static const unsigned refused[] = {
#ifdef SYS_chmod
	SYS_chmod,    SYS_chown,    SYS_lchown,   SYS_utime,     SYS_utimes,      SYS_futimesat,
#endif
	SYS_fchmodat, SYS_fchownat, SYS_setxattr, SYS_lsetxattr, SYS_removexattr, SYS_lremovexattr, 425,
	452,          463,          466};

struct rules {
	struct sock_filter items[RULES_MOST];
	unsigned short count;
};

static void add(struct rules *rules, struct sock_filter item) { rules->items[rules->count++] = item; }

/* Adds a rule for open(path, O_RDONLY | O_TRUNC), which would truncate a file. `flags` is the number of that
 * argument. */
static void add_open(struct rules *rules, unsigned call, unsigned flags)
{
	add(rules, (struct sock_filter)UNLESS(call, 4));
	add(rules, (struct sock_filter)LOAD(DATA(args) + flags * 8u));
	add(rules, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, O_ACCMODE | O_TRUNC));
	add(rules, (struct sock_filter)UNLESS(O_RDONLY | O_TRUNC, 1));
	add(rules, (struct sock_filter)REFUSE(EACCES));
	add(rules, (struct sock_filter)LOAD(DATA(nr)));
}

static void make_rules(struct rules *rules, long version)
{
	add(rules, (struct sock_filter)LOAD(DATA(arch)));
	add(rules, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0));
	add(rules, (struct sock_filter)REFUSE(ENOSYS));
	add(rules, (struct sock_filter)LOAD(DATA(nr)));
	add(rules, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32, 0, 1));
	add(rules, (struct sock_filter)REFUSE(ENOSYS));
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
		add(rules, (struct sock_filter)UNLESS(refused[i], 1));
		add(rules, (struct sock_filter)REFUSE(EPERM));
	}
	if (version < 3) {
		add(rules, (struct sock_filter)UNLESS(SYS_truncate, 1));
		add(rules, (struct sock_filter)REFUSE(EACCES));
#ifdef SYS_open
		add_open(rules, SYS_open, 1);
#endif
		add_open(rules, SYS_openat, 2);
	}
	/* Refuses utimensat of a path. Without a path it is of an open file, which is allowed. */
	add(rules, (struct sock_filter)UNLESS(SYS_utimensat, 4));
	add(rules, (struct sock_filter)LOAD(DATA(args) + 8u));
	add(rules, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1));
	add(rules, (struct sock_filter)RETURN(SECCOMP_RET_ALLOW));
	add(rules, (struct sock_filter)REFUSE(EPERM));
	add(rules, (struct sock_filter)RETURN(SECCOMP_RET_ALLOW));
}

static enum neap_status restrict_calls(long version, struct neap_error *err)
{
	struct rules rules = {.count = 0};
	make_rules(&rules, version);
	struct sock_fprog program = {.len = rules.count, .filter = rules.items};
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0))
		return neap_fail(err, NEAP_ENOTSUP, "this system allows no filter of system calls: %s",
				 strerror(errno));
	return NEAP_OK;
}
#else
static enum neap_status restrict_calls(long version, struct neap_error *err)
{
	(void)version;
	return neap_fail(err, NEAP_ENOTSUP, "neap knows no filter of system calls for this processor");
}
#endif

enum neap_status neap_view_restrict(const char *folder, struct neap_error *err)
{
	long version = syscall(CREATE_RULESET, NULL, (size_t)0, GIVE_VERSION);
	if (version < 1)
		return neap_fail(err, NEAP_ENOTSUP, "this system has no Landlock: %s", strerror(errno));
	enum neap_status status = neap_view_move_folders(folder, err);
	if (!status && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		status = neap_fail_errno(err, errno, "giving up new privileges");
	if (!status)
		status = restrict_paths(folder, version, err);
	if (!status)
		status = restrict_calls(version, err);
	return status;
}
