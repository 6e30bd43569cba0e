/* estimate/fatbin.h: how much device memory the code in a fat binary takes.
 *
 *   library  .nv_fatbin: fat binary, fat binary, ...     one for each object file that nvcc compiled
 *   fat binary:  header  image  image  ...               one image (cubin, a module) for each architecture, or PTX
 *   image:       header  bytes                           an ELF file, as it is or compressed (LZ4 or zstd)
 *   cubin:       .text.KERNEL, .nv.constant*, .nv.global what is loaded: the sections marked SHF_ALLOC
 *                .nv.info                                the stack that a thread of each kernel needs
 *
 * The wrapper around a fat binary is in fatbinary_section.h of the CUDA toolkit; the rest is documented by public
 * tools (n-eiling/cuda-fatbin-decompression, jiegec/fatbinary) and as PyTorch 2.4 (LZ4) and 2.15 (zstd) have it.
 * Pure: no files. The bytes are hostile: each length is checked, and bounded before memory is allocated. Any thread.
 */
#ifndef NEAP_ESTIMATE_FATBIN_H
#define NEAP_ESTIMATE_FATBIN_H

#include "neap/status.h"

#include <stddef.h>
#include <stdint.h>

#define NEAP_FATBIN_HEADER 16           /* bytes that neap_fatbin_length needs */
#define NEAP_FATBIN_MOST   (256u << 20) /* bytes of a fat binary, and of an expanded image */
#define NEAP_FATBIN_IMAGES 4

/* Returns the length of the fat binary with this header; 0: it is not a fat binary, or it is longer than
 * NEAP_FATBIN_MOST. */
size_t neap_fatbin_length(const void *header);

/* One image; its bytes belong to the fat binary. */
struct neap_fatbin_image {
	const unsigned char *bytes;
	size_t length, plain_length; /* the length as stored, and after expanding */
	enum { NEAP_FATBIN_PLAIN, NEAP_FATBIN_LZ4, NEAP_FATBIN_ZSTD } compression;
};

/* Finds the images that a driver may load on a device of this compute capability (90 for 9.0): of the newest
 * architecture that runs there, one or more variants ("sm_100", "sm_100f"). Returns how many; 0: there is none, so
 * the driver compiles PTX, or the bytes are damaged. */
size_t neap_fatbin_find(const void *bytes, size_t length, unsigned int capability,
			struct neap_fatbin_image ret_images[NEAP_FATBIN_IMAGES]);

/* Expands an image to a cubin of plain_length bytes. The caller frees it. Errors: NEAP_EPARSE, NEAP_ENOMEM. */
enum neap_status neap_fatbin_expand(const struct neap_fatbin_image *image, unsigned char **ret_cubin);

struct neap_cubin_sizes {
	uint64_t kernel_bytes; /* the code of the kernels that were asked for */
	uint64_t code_bytes;   /* the code of all kernels */
	uint64_t module_bytes; /* all that is loaded: code_bytes, constants and variables */
	uint64_t stack_bytes;  /* the most stack that a thread of one of those kernels needs */
};

/* `names`: the kernels' mangled names, sorted by strcmp. Errors: NEAP_EPARSE, NEAP_ENOMEM. */
enum neap_status neap_cubin_measure(const unsigned char *cubin, size_t length, const char *const *names, size_t count,
				    struct neap_cubin_sizes *ret_sizes);

#endif
