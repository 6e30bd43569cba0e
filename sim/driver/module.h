/* sim/driver/module.h: modules, libraries and their functions, for module.c, function.c, launch.c and occupancy.c.
 *
 *   CUmodule --- of one context --> CUfunction
 *   CUlibrary -- of no device ----> CUkernel --- cuKernelGetFunction ---> CUfunction of the library's module there
 *
 * A CUkernel can be passed as a CUfunction: both are the same struct. sim.lock guards everything.
 */
#ifndef NEAP_SIM_MODULE_H
#define NEAP_SIM_MODULE_H

#include "sim/driver/image.h"
#include "sim/driver/state.h"
#include "sim/profiles/architecture.h"

/* The registers of every kernel: an assumption, since no machine code is read. */
#define SIM_KERNEL_REGISTERS 32

#define SIM_FUNCTION_ATTRIBUTES (CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE + 1)

struct CUfunc_st {
	struct CUfunc_st *next; /* of its module or library */
	char *name;
	CUmodule module;   /* NULL: a kernel of `library` */
	CUlibrary library; /* NULL: of a module that the program loaded */
	int shared_limit;  /* most dynamic shared memory, as set */
	int carveout, scheduling;
	size_t parameters; /* how many; 0: not known */
	bool any_cluster;  /* the program allows more blocks in a cluster than every device supports */
};

struct CUmod_st {
	CUcontext context;
	const struct sim_image *image; /* its own, or its library's */
	struct sim_image own;
	CUlibrary library;
	CUmodule next; /* of the library */
	struct CUfunc_st *functions;
	struct sim_reservation *variables; /* NULL: the program has asked for none yet */
};

struct CUlib_st {
	struct sim_image image;
	struct CUfunc_st *kernels;
	CUmodule modules; /* one for each context in which the program used it */
};

/* Lock held. The function or kernel with this handle, or NULL. */
struct CUfunc_st *sim_function_known(CUfunction function);

#endif
