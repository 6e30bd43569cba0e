/* estimate/code.h: how much device memory the code of a process takes, between two bounds.
 *
 *   RUN/code.PID   which kernels the process used, of which fat binaries: sim/runtime/code.c
 *        │
 *   the libraries' fat binaries (fatbin.h): of each the image for the device
 *        │
 *   low    the code of the kernels that were used                  CUDA loads a kernel when it is first used,
 *   high   all of their modules: code, constants, variables        and some of a module's with the module
 *
 * With CUDA_MODULE_LOADING=EAGER, which loads all modules, the bounds differ only by constants and variables. The
 * program's processes may write anything into the file and into the libraries that it names.
 */
#ifndef NEAP_ESTIMATE_CODE_H
#define NEAP_ESTIMATE_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct neap_code {
	bool known; /* the process left a file; if not, the other fields are not known */
	bool eager;
	uint64_t own_modules, own_bytes; /* the cubins that the program loads itself (Triton's): at most so many */
	uint64_t kernels, modules;       /* kernels and modules that the process used and that were measured */
	uint64_t low_bytes, high_bytes;
	uint64_t stack_bytes; /* the most that a thread of any of the kernels needs */
	uint64_t unread;      /* kernels and modules that were not measured: they are PTX, or no file has them */
	char library[64];     /* the file with most of the modules: "libtorch_cuda.so" */
	bool cublas;          /* kernels of cuBLAS ran, whose code is in no library that was loaded */
	char beside[96];      /* NVIDIA's other libraries whose kernels ran: "cudnn, cusolver" */
};

/* Kernels and modules that cannot be read count as `unread`. */
void neap_code_read(const char *folder, uint64_t pid, struct neap_code *ret_code);

#endif
