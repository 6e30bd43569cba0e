/* sim/driver/image.h: reads a module's image: the names of its kernels and the sizes of its variables.
 *
 *   PTX text     names and sizes read from it
 *   cubin        names and sizes from its symbol table: it is an ELF file; counts of parameters from .nv.info.NAME
 *   fat binary   its format is not public, so any name that a program asks for counts as a kernel
 *
 * Reads no code: no kernel ever runs. Threads: an image belongs to its owner.
 */
#ifndef NEAP_SIM_IMAGE_H
#define NEAP_SIM_IMAGE_H

#include "device/cuda_api.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_symbol {
	char *name;
	uint64_t bytes;    /* of a variable */
	bool kernel;       /* else a variable */
	size_t parameters; /* how many parameters a kernel has; 0: not known */
};

/* A zeroed struct is an image without names. */
struct sim_image {
	struct sim_symbol *symbols;
	size_t count;
	bool open;             /* a fat binary */
	uint64_t loaded_bytes; /* of a cubin: code, constants and variables; 0: unknown */
};

/* Reads an image, and keeps no pointer to it. Finds the length from the image's format, because the driver's
 * functions do not get it. Errors: CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_OUT_OF_MEMORY; *ret_image is empty then. */
CUresult sim_image_read(const void *image, struct sim_image *ret_image);
/* The same for a file: also CUDA_ERROR_FILE_NOT_FOUND. */
CUresult sim_image_read_file(const char *path, struct sim_image *ret_image);
/* NULL: not there. */
const struct sim_symbol *sim_image_find(const struct sim_image *image, const char *name, bool kernel);
void sim_image_fini(struct sim_image *image);

#endif
