/* sim/libraries/nccl/exports.h: the implementation of each exported function: neap_NAME for NAME. */
#ifndef NEAP_RUNTIME_LIBRARIES_NCCL_EXPORTS_H
#define NEAP_RUNTIME_LIBRARIES_NCCL_EXPORTS_H

#include "sim/libraries/nccl/api.h"

#define X(name, parameters, arguments) ncclResult_t neap_##name parameters;
#define REFUSED(name, parameters)
#include "sim/libraries/nccl/functions.h"
#undef X
#undef REFUSED

#endif
