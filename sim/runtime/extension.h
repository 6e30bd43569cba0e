/* sim/runtime/extension.h: kernels of CUDA extensions, which are neither PyTorch's nor NVIDIA's. Like all kernels
 * they do nothing when launched. Only the program knows their results, so each is counted by name (tally.c,
 * GAP_KERNEL). */
#ifndef NEAP_RUNTIME_EXTENSION_H
#define NEAP_RUNTIME_EXTENSION_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define EXTENSION_LIBRARY 32
#define EXTENSION_KERNEL  64
#define EXTENSION_PATH    PATH_MAX

struct extension_kernel {
	char library[EXTENSION_LIBRARY]; /* "my_ops", of .../my_ops.cpython-311-x86_64-linux-gnu.so */
	char name[EXTENSION_KERNEL];     /* "ns::scale", of _ZN2ns5scaleEPfi */
};

/* Finds the file of the library or program that has `address`, and its virtual address in the file. False: none has
 * it, or the file was deleted. */
bool extension_object(const void *address, char ret_path[EXTENSION_PATH], uint64_t *ret_address);

/* Whether `address` lies in a library or program whose kernels are counted. If so, writes its short name. */
int extension_library(const void *address, char ret_library[EXTENSION_LIBRARY]);

/* Writes the readable part of a C++ symbol, without its arguments. */
void extension_kernel_name(const char *symbol, char ret_name[EXTENSION_KERNEL]);

#endif
