/* sim/runtime/code.h: names the kernels that this process used, for `neap estimate`: see code.c, which has the file's
 * format. Any thread, with or without a lock of libcudart. */
#ifndef NEAP_RUNTIME_CODE_H
#define NEAP_RUNTIME_CODE_H

#include <stdatomic.h>

/* A kernel that the program has registered. */
struct code_kernel {
	const char *name;             /* mangled; the program's */
	const void *binary;           /* the fat binary; NULL: not known */
	_Atomic unsigned int process; /* the process that wrote its line */
};

/* Returns the fat binary that __cudaRegisterFatBinary was given; NULL: the argument has another form than
 * documented. */
const void *code_binary(const void *wrapper);
/* Call when a fat binary was registered. */
void code_registered(const void *binary);
/* Call when the process uses a device. */
void code_begin(void);
/* Call when the program launches the kernel or asks for its properties: both load it. */
void code_used(struct code_kernel *kernel);
/* Call when a stand-in launches a kernel of this name (static text). */
void code_library(const char *name);

#endif
