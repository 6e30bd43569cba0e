/* A stand-in for a training process, for the command's tests.
 *
 *   target [--plain] LIVE_MIB CACHED_MIB
 *
 * Attaches (unless --plain), allocates LIVE_MIB and keeps them, allocates CACHED_MIB and frees them, prints "ready",
 * and continues until its stdin ends. */
#include "neap/neap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(enum neap_status status, const struct neap_error *err)
{
	if (!status)
		return;
	fprintf(stderr, "target: %s\n", err->message);
	exit(1);
}

int main(int argc, char **argv)
{
	struct neap_driver *driver;
	struct neap_device *device;
	struct neap_alloc *alloc;
	struct neap_error err = {0};
	uint64_t live, cached;
	int plain = argc > 1 && strcmp(argv[1], "--plain") == 0;
	if (argc != 3 + plain)
		return 64;
	if (!plain)
		must(neap_attach(&err), &err);
	must(neap_driver_open(NEAP_BACKEND_DEFAULT, &driver, &err), &err);
	must(neap_device_open(driver, 0, &device, &err), &err);
	must(neap_alloc_create(device, NULL, &alloc, &err), &err);
	must(neap_malloc(alloc, strtoull(argv[1 + plain], NULL, 10) << 20, NULL, &live, &err), &err);
	must(neap_malloc(alloc, strtoull(argv[2 + plain], NULL, 10) << 20, NULL, &cached, &err), &err);
	must(neap_free(alloc, cached), &err);
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	neap_alloc_destroy(alloc);
	neap_device_close(device);
	neap_driver_close(driver);
	return 0;
}
