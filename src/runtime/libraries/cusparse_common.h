/* runtime/libraries/cusparse_common.h: what cuSPARSE and cuSPARSELt share. */
#ifndef NEAP_RUNTIME_LIBRARIES_CUSPARSE_COMMON_H
#define NEAP_RUNTIME_LIBRARIES_CUSPARSE_COMMON_H

#include <stddef.h>

enum { /* cusparseStatus_t */
       NOT_INITIALIZED = 1,
       ALLOC_FAILED = 2,
       INVALID_VALUE = 3,
};

/* Static text; also for a number that is no code of cuSPARSE. */
const char *cusparse_status_name(int status);
const char *cusparse_status_text(int status);
/* Of an element of a cudaDataType; a type of 4 bits counts as one byte. */
size_t cusparse_type_bytes(int type);

#endif
