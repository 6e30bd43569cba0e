/* device/fork_guard.c: guards against forks by a private page with MADV_WIPEONFORK (Linux 4.14). */
#include "device/fork_guard.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

void neap_fork_guard_init(struct neap_fork_guard *guard)
{
	size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
	void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	*guard = (struct neap_fork_guard){.owner = getpid()};
	if (page == MAP_FAILED)
		return;
	if (madvise(page, bytes, MADV_WIPEONFORK) < 0) {
		munmap(page, bytes);
		return;
	}
	guard->page = page;
	*guard->page = 1;
}

bool neap_fork_guard_holds(const struct neap_fork_guard *guard)
{
	return guard->page ? *guard->page == 1 : guard->owner == getpid();
}

void neap_fork_guard_fini(struct neap_fork_guard *guard)
{
	if (guard->page)
		munmap((void *)guard->page, (size_t)sysconf(_SC_PAGESIZE));
	*guard = (struct neap_fork_guard){0};
}
