/* sim/libraries/cublas_common.h: shared by cuBLAS and cuBLASLt. */
#ifndef NEAP_RUNTIME_LIBRARIES_CUBLAS_COMMON_H
#define NEAP_RUNTIME_LIBRARIES_CUBLAS_COMMON_H

#if STAND_IN_MAJOR == 12
#define CUBLAS_MINOR   9
#define CUBLAS_RUNTIME 12090
#else
#define CUBLAS_MINOR   4
#define CUBLAS_RUNTIME 13020
#endif
#define CUBLAS_VERSION (STAND_IN_MAJOR * 10000 + CUBLAS_MINOR * 100)

enum { /* cublasStatus_t */
       CUBLAS_NOT_INITIALIZED = 1,
       CUBLAS_ALLOC_FAILED = 3,
       CUBLAS_INVALID_VALUE = 7,
       CUBLAS_EXECUTION_FAILED = 13,
       CUBLAS_NOT_SUPPORTED = 15,
};

/* Static text; "CUBLAS_STATUS_UNKNOWN" for an unknown code. */
const char *cublas_status_name(int code);
const char *cublas_status_text(int code);
/* libraryPropertyType: 0 major, 1 minor, 2 patch. Returns a status. */
int cublas_property(int type, int *ret_value);

#endif
