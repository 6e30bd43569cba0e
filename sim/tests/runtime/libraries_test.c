#include "libraries_test.h"

#include <stdio.h>
#include <stdlib.h>

struct fake_services fake;

static int device(void) { return 0; }

static bool architecture(int ordinal, int *ret_capability, int *ret_multiprocessors)
{
	if (ordinal != 0 || fake.capability == 0)
		return false;
	*ret_capability = fake.capability;
	*ret_multiprocessors = 108;
	return true;
}

static int launch(void *stream, const char *name)
{
	(void)name;
	fake.launches++;
	fake.launch_stream = stream;
	return fake.launch_result;
}

static bool write_memory(uint64_t address, const void *from, size_t bytes)
{
	fake.written = address;
	fake.written_bytes = bytes;
	memcpy(fake.content, from, bytes < sizeof fake.content ? bytes : sizeof fake.content);
	return true;
}

static void tally(enum runtime_gap gap, const char *library, const char *function, uint64_t low, uint64_t high)
{
	fake.tallies[gap]++;
	fake.library = library;
	fake.function = function;
	if (gap == GAP_WORKSPACE) {
		fake.low = low;
		fake.high = high;
	}
}

static void forget(uint64_t address, size_t bytes)
{
	fake.forgets++;
	fake.forgotten += bytes;
	fake.forgotten_at = address;
}

const struct runtime_services *neap_runtime_get_services(void);
__attribute__((visibility("default"))) const struct runtime_services *neap_runtime_get_services(void)
{
	static const struct runtime_services services = {
		.version = RUNTIME_SERVICES_VERSION,
		.device = device,
		.architecture = architecture,
		.write = write_memory,
		.forget = forget,
		.launch = launch,
		.tally = tally,
	};

	return fake.absent ? NULL : &services;
}

void fake_begin(void) { fake = (struct fake_services){.capability = 80}; }

void *library_open(const char *soname)
{
	const char *folder = getenv("NEAP_RUNTIME_PATH");
	char path[4096];
	void *library;

	snprintf(path, sizeof path, "%s/%s", folder ? folder : ".", soname);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "%s: %s\n", path, dlerror());
		exit(1);
	}
	return library;
}

void library_function(void *library, const char *name, void *ret_function)
{
	void *symbol = dlsym(library, name);

	if (!symbol)
		fail_msg("no function %s", name);
	memcpy(ret_function, &symbol, sizeof symbol);
}
