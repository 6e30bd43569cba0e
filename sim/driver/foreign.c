/* Detects NVIDIA's own CUDA runtime on this driver. That runtime asks for tables of functions that only NVIDIA's
 * driver has. It does not find them, and reports no device. A program has that runtime if it is linked with it
 * statically, or if its libcudart is not neap's stand-in. A note about it goes into the report of `neap run`. */
#include "sim/driver/state.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#define MARK "/cudart.shm" /* a text that every build of the runtime contains */

struct sought {
	uintptr_t caller;
	bool found;
};

/* Whether the mark is there. Also reads the bytes between the object's variables; an address sanitizer would forbid
 * memmem to do that. */
__attribute__((no_sanitize("address"))) static bool has_mark(const char *bytes, size_t count)
{
	for (size_t at = 0; at + sizeof MARK - 1 <= count; at++) {
		size_t same = 0;

		while (same < sizeof MARK - 1 && bytes[at + same] == MARK[same])
			same++;
		if (same == sizeof MARK - 1)
			return true;
	}
	return false;
}

/* Whether the object that contains the caller has the mark. Other libraries, such as NVIDIA's bindings, ask for the
 * tables, too. */
static int find_mark(struct dl_phdr_info *info, size_t size, void *context)
{
	struct sought *sought = context;
	bool calls = false;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++)
		calls |= info->dlpi_phdr[i].p_type == PT_LOAD &&
			 sought->caller - info->dlpi_addr - info->dlpi_phdr[i].p_vaddr < info->dlpi_phdr[i].p_memsz;
	for (int i = 0; calls && i < info->dlpi_phnum && !sought->found; i++)
		sought->found = info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_R) &&
				has_mark((const char *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr),
					 info->dlpi_phdr[i].p_filesz);
	return calls;
}

void sim_note_foreign_runtime(const void *caller)
{
	static atomic_flag noted = ATOMIC_FLAG_INIT;
	struct sought sought = {.caller = (uintptr_t)caller};
	const char *name;
	Dl_info info;

	if (!getenv("NEAP_RUN_DIR") || !dladdr(caller, &info) || !info.dli_fname)
		return;
	dl_iterate_phdr(find_mark, &sought);
	if (!sought.found || atomic_flag_test_and_set(&noted))
		return;
	name = strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') + 1 : info.dli_fname;
	if (strncmp(name, "libcudart.so", 12) == 0)
		sim_note("%.240s is NVIDIA's own and finds no simulated GPU: neap's stand-in has to be loaded "
			 "before it (for Python, PYTHONPATH leads there)",
			 info.dli_fname);
	else
		sim_note("%.240s contains NVIDIA's own CUDA runtime, which finds no simulated GPU: it has to be "
			 "linked with the shared one (nvcc -cudart shared)",
			 info.dli_fname);
}
