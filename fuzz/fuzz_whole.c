/* fuzz/fuzz_whole.c: any bytes as a file that is checked for completeness (zip, safetensors), as the trash's record
 * that says which files belong together, or as a name, must give an answer, never a fault. fuzz/run.sh builds it;
 * tests/checkpoint runs it over a generated corpus. */
#include "checkpoint/role.h"
#include "checkpoint/together.h"
#include "checkpoint/whole.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(const uint8_t *data, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, data, size) == (ssize_t)size) {
		const char *archive = checkpoint_file_torn(fd, "x.pt"),
			   *tensors = checkpoint_file_torn(fd, "x.safetensors");
		if ((archive && !archive[0]) || (tensors && !tensors[0]) || (size < 10 && !tensors))
			abort();
	}
	close(fd);
}

static void read_together(const uint8_t *data, size_t size)
{
	struct checkpoint_together together = {0};

	neap_buffer_append(&together.text, data, size);
	if (!together.text.failed && checkpoint_together_parse(&together))
		for (size_t i = 0; i < together.count; i++) {
			const char *name = together.parts[i].name;
			if (together.parts[i].group >= together.groups || !name[0] || name[0] == '.' ||
			    strchr(name, '/') || checkpoint_together_find(&together, name) >= together.groups)
				abort();
		}
	checkpoint_together_fini(&together);
}

static void read_name(const uint8_t *data, size_t size)
{
	struct checkpoint_role role, again;
	char *name = malloc(size + 1);

	if (!name)
		return;
	memcpy(name, data, size);
	name[size] = '\0';
	checkpoint_role_read(name, &role);
	checkpoint_role_read(name, &again);
	if (role.key != again.key || (role.aux && !role.part) || (role.set && !role.part))
		abort();
	free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	look(data, size);
	read_together(data, size);
	read_name(data, size);
	return 0;
}
