/* See extension.h. */
#include "sim/runtime/extension.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wanted {
	uintptr_t address, base;
	char path[EXTENSION_PATH];
};

/* Replaces dladdr, which would also search for the nearest symbol, among hundreds of thousands. */
static int find_object(struct dl_phdr_info *info, size_t size, void *context)
{
	struct wanted *wanted = context;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		uintptr_t begin = info->dlpi_addr + part->p_vaddr;

		if (part->p_type == PT_LOAD && wanted->address >= begin && wanted->address - begin < part->p_memsz) {
			snprintf(wanted->path, sizeof wanted->path, "%s", info->dlpi_name);
			wanted->base = info->dlpi_addr;
			return 1;
		}
	}
	return 0;
}

bool extension_object(const void *address, char ret_path[EXTENSION_PATH], uint64_t *ret_address)
{
	struct wanted wanted = {.address = (uintptr_t)address};

	if (!dl_iterate_phdr(find_object, &wanted) ||
	    !realpath(*wanted.path ? wanted.path : "/proc/self/exe", ret_path))
		return false;
	*ret_address = wanted.address - wanted.base;
	return true;
}

int extension_library(const void *address, char ret_library[EXTENSION_LIBRARY])
{
	struct wanted wanted = {.address = (uintptr_t)address};
	const char *name;

	if (!dl_iterate_phdr(find_object, &wanted) || strstr(wanted.path, "/torch/lib/") ||
	    strstr(wanted.path, "/nvidia/"))
		return 0;
	name = strrchr(wanted.path, '/') ? strrchr(wanted.path, '/') + 1 : wanted.path;
	snprintf(ret_library, EXTENSION_LIBRARY, "%.*s", (int)strcspn(name, ". "), name);
	if (!*ret_library) /* the program itself has no name */
		snprintf(ret_library, EXTENSION_LIBRARY, "program");
	return 1;
}

/* Itanium C++ ABI: _Z <length> <identifier> ..., or _ZN <length> <identifier> ... E ... */
void extension_kernel_name(const char *symbol, char ret_name[EXTENSION_KERNEL])
{
	const char *at = symbol + (strncmp(symbol, "_Z", 2) == 0 ? 2 : 0);
	size_t used = 0;

	if (at != symbol && *at == 'N')
		at++;
	while (at != symbol && *at >= '1' && *at <= '9') {
		char *end;
		unsigned long length = strtoul(at, &end, 10);

		if (length > strlen(end))
			break;
		at = end + length;
		if (length >= 10 && strncmp(end, "_GLOBAL__N", 10) == 0)
			continue; /* an unnamed namespace */
		if (used + length + 3 > EXTENSION_KERNEL)
			break;
		used += (size_t)snprintf(ret_name + used, EXTENSION_KERNEL - used, "%s%.*s", used ? "::" : "",
					 (int)length, end);
	}
	if (used == 0)
		snprintf(ret_name, EXTENSION_KERNEL, "%s", symbol);
}
