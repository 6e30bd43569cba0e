/* fuzz/fuzz_page.c: any bytes as a statistics page must give figures or an error, never a fault, and every returned
 * figure must be sound. Built with libFuzzer (clang -fsanitize=fuzzer,address -Iinclude -Isrc fuzz/fuzz_page.c
 * src/proto/page.c src/base/error.c src/base/file.c src/base/process.c src/base/buffer.c src/base/clock.c), and run
 * over a generated corpus by tests/proto. The page belongs to this process, and is locked as if an agent lived. */
#include "proto/page.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];

static void page_path(char path[128]) { snprintf(path, 128, "%s/%d.page", folder, (int)getpid()); }

static void remove_folder(void)
{
	char path[128];
	page_path(path);
	unlink(path);
	rmdir(folder);
}

static void must_be_text(const char *text, size_t capacity)
{
	if (!memchr(text, '\0', capacity))
		abort();
	for (; *text; text++)
		if ((unsigned char)*text < 0x20)
			abort();
}

static void use(const struct neap_attached *attached)
{
	struct neap_published sum;
	if (attached->pid != getpid() || attached->device_count > NEAP_PAGE_DEVICES)
		abort();
	must_be_text(attached->name, sizeof attached->name);
	must_be_text(attached->run_id, sizeof attached->run_id);
	must_be_text(attached->record_path, sizeof attached->record_path);
	must_be_text(attached->note, sizeof attached->note);
	for (size_t i = 0; i < attached->device_count; i++)
		if (!neap_attached_device(attached, attached->devices[i].device_uuid, &sum))
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct neap_attached attached;
	struct neap_attached *list = NULL;
	struct neap_error err = {0};
	size_t count = 0;
	char path[128];
	if (!folder[0]) {
		strcpy(folder, "/tmp/neap-fuzz-page-XXXXXX");
		if (!mkdtemp(folder))
			abort();
		atexit(remove_folder);
	}
	page_path(path);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	enum neap_status status = neap_page_read(folder, getpid(), &attached, &err);
	if (!status)
		use(&attached);
	else if (!err.message[0])
		abort();
	/* a listing skips files that it cannot read */
	if (neap_page_list(folder, &list, &count, NULL) != NEAP_OK || count != (status == NEAP_OK))
		abort();
	free(list);
	close(fd);
	return 0;
}
