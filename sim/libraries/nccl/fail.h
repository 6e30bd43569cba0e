/* sim/libraries/nccl/fail.h: error texts (ncclGetLastError). Threads: any. */
#ifndef NEAP_RUNTIME_LIBRARIES_NCCL_FAIL_H
#define NEAP_RUNTIME_LIBRARIES_NCCL_FAIL_H

#include "sim/libraries/nccl/api.h"

/* Keeps the text as the process's last error, prints it with NCCL_DEBUG=WARN, and returns `result`. */
ncclResult_t nccl_fail(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Counts a function that is not simulated, and refuses it with ncclInvalidUsage. */
ncclResult_t nccl_refuse(const char *function);
/* "": nothing has failed. Valid until the thread's next call. */
const char *nccl_last_error(void);

#endif
