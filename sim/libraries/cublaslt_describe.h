/* sim/libraries/cublaslt_describe.h: cuBLASLt's descriptors, which a program fills attribute by attribute.
 *
 * The program may own their memory (cublasLtMatrixLayoutOpaque_t and so on, whose sizes the API fixes), or have it
 * allocated.
 */
#ifndef NEAP_RUNTIME_LIBRARIES_CUBLASLT_DESCRIBE_H
#define NEAP_RUNTIME_LIBRARIES_CUBLASLT_DESCRIBE_H

#include <stdint.h>

struct preference {
	uint32_t search_mode;
	uint32_t reduction_mask;
	uint64_t workspace_bytes; /* the program's limit */
	uint64_t implementations;
	uint32_t alignments[4]; /* of A, B, C, D */
	float waves;
};

#endif
