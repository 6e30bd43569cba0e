/* Lists the kernels that this process used, for `neap estimate` (NEAP_ESTIMATE=1), which looks up in the libraries
 * how much device memory their code takes:
 *
 *   NEAP_RUN_DIR/code.PID, a line for each kernel, when it is used for the first time
 *
 *     device CAPABILITY              of the devices (90 for 9.0), with the first context
 *     kernel ADDRESS PATH TAB NAME   of the fat binary at this (hexadecimal) virtual address of the ELF file
 *     module ADDRESS PATH            all kernels of this fat binary: loaded when it was registered
 *     library NAME                   a stand-in's kernel: only NVIDIA has its code
 *
 * ADDRESS is 0 and PATH "-" for a fat binary that is in no file.
 *
 * CUDA loads a kernel when it is first used, and the module around it (CUDA Programming Guide, "Lazy Loading"), but
 * all modules at once with CUDA_MODULE_LOADING=EAGER. A line is written at once, so that it is there whatever ends
 * the process. Failures are ignored: they must not disturb a training run.
 */
#include "sim/runtime/code.h"

#include "sim/runtime/extension.h"
#include "sim/runtime/runtime.h"

#include "base/descriptor.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY_NAMES 256

/* fatbinary_section.h of the CUDA toolkit. */
#define WRAPPER_MAGIC 0x466243b1u

struct wrapper {
	uint32_t magic, version;
	const void *data;
	const void *more;
};

static struct {
	pthread_mutex_t lock;
	const char *names[LIBRARY_NAMES]; /* stand-ins' kernels whose names the file has */
	size_t count;
	_Atomic unsigned int process; /* grows with each fork, from 1 */
	_Atomic bool device;          /* the file has that line */
} code = {.lock = PTHREAD_MUTEX_INITIALIZER, .process = 1};

/* Whether this process writes the file. Decided once, by its environment. */
static bool is_asked(void)
{
	static _Atomic int answer; /* 0: not decided; 1: no; 2: yes */
	int known = atomic_load_explicit(&answer, memory_order_relaxed);

	if (known == 0) {
		const char *asked = getenv("NEAP_ESTIMATE"), *folder = getenv("NEAP_RUN_DIR");

		known = asked && strcmp(asked, "1") == 0 && folder && *folder ? 2 : 1;
		atomic_store_explicit(&answer, known, memory_order_relaxed);
	}
	return known == 2;
}

/* Appends one line with one write, so that lines of two threads do not mix. */
__attribute__((format(printf, 1, 2))) static void append(const char *format, ...)
{
	char path[4096], *line = NULL;
	const char *folder = getenv("NEAP_RUN_DIR");
	va_list arguments;
	int length, fd;

	if (!folder || (size_t)snprintf(path, sizeof path, "%s/code.%d", folder, (int)getpid()) >= sizeof path)
		return;
	va_start(arguments, format);
	length = vasprintf(&line, format, arguments);
	va_end(arguments);
	if (length < 0)
		return;
	fd = neap_fd_above_standard(open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
	if (fd >= 0) {
		ssize_t written = write(fd, line, (size_t)length);

		(void)written; /* the disk may be full: the kernel is not counted */
		close(fd);
	}
	free(line);
}

const void *code_binary(const void *wrapper)
{
	struct wrapper copy;
	uint32_t magic;

	if (!wrapper || (uintptr_t)wrapper % sizeof(void *) != 0)
		return NULL;
	memcpy(&magic, wrapper, sizeof magic);
	if (magic != WRAPPER_MAGIC)
		return NULL;
	memcpy(&copy, wrapper, sizeof copy);
	return copy.data;
}

/* Finds the object file of the fat binary, and the binary's address in it. */
static void find(const void *binary, char ret_path[EXTENSION_PATH], uint64_t *ret_address)
{
	if (!binary || !extension_object(binary, ret_path, ret_address)) {
		strcpy(ret_path, "-");
		*ret_address = 0;
	}
}

void code_begin(void)
{
	int device = runtime_device();

	if (!is_asked() || atomic_exchange_explicit(&code.device, true, memory_order_relaxed))
		return;
	append("device %d\n", runtime_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) * 10 +
				      runtime_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
}

void code_used(struct code_kernel *kernel)
{
	unsigned int process = atomic_load_explicit(&code.process, memory_order_relaxed);
	char path[EXTENSION_PATH];
	uint64_t address;

	if (atomic_exchange_explicit(&kernel->process, process, memory_order_relaxed) == process || !is_asked())
		return;
	code_begin(); /* a program may ask for a kernel's properties before it has a context */
	find(kernel->binary, path, &address);
	append("kernel %llx %s\t%s\n", (unsigned long long)address, path, kernel->name);
}

void code_registered(const void *binary)
{
	const char *mode = getenv("CUDA_MODULE_LOADING");
	char path[EXTENSION_PATH];
	uint64_t address;

	if (!mode || strcmp(mode, "EAGER") != 0 || !is_asked())
		return;
	find(binary, path, &address);
	append("module %llx %s\n", (unsigned long long)address, path);
}

void code_library(const char *name)
{
	bool known = false;

	if (!is_asked())
		return;
	pthread_mutex_lock(&code.lock);
	for (size_t i = 0; i < code.count && !known; i++)
		known = code.names[i] == name;
	if (!known && code.count < LIBRARY_NAMES) {
		code.names[code.count++] = name;
		append("library %s\n", name);
	}
	pthread_mutex_unlock(&code.lock);
}

/* Called in a forked child, which has loaded nothing. It gets a new lock, because another thread may have held the
 * old one. */
static void forked(void)
{
	pthread_mutex_init(&code.lock, NULL);
	code.count = 0;
	atomic_store_explicit(&code.device, false, memory_order_relaxed);
	atomic_fetch_add_explicit(&code.process, 1, memory_order_relaxed);
}

__attribute__((constructor)) static void watch_forks(void) { (void)pthread_atfork(NULL, NULL, forked); }
