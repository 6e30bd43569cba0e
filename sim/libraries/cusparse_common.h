/* sim/libraries/cusparse_common.h: shared by cuSPARSE and cuSPARSELt. */
#ifndef NEAP_RUNTIME_LIBRARIES_CUSPARSE_COMMON_H
#define NEAP_RUNTIME_LIBRARIES_CUSPARSE_COMMON_H

#include <stddef.h>

enum { /* cusparseStatus_t */
       NOT_INITIALIZED = 1,
       ALLOC_FAILED = 2,
       INVALID_VALUE = 3,
};

/* Static text; also for an unknown code. */
const char *cusparse_status_name(int status);
const char *cusparse_status_text(int status);
/* Of an element of a cudaDataType; a type of 4 bits counts as one byte. */
size_t cusparse_type_bytes(int type);

#endif
