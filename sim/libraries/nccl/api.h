/* sim/libraries/nccl/api.h: the part of NCCL's interface that neap uses, as our own declarations. If nccl.h is
 * installed, a test compares them with it. */
#ifndef NEAP_RUNTIME_LIBRARIES_NCCL_API_H
#define NEAP_RUNTIME_LIBRARIES_NCCL_API_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
typedef struct ncclParamHandle *ncclParamHandle_t;
typedef struct CUstream_st *cudaStream_t;

typedef struct {
	char internal[128];
} ncclUniqueId;

typedef enum {
	ncclSuccess = 0,
	ncclUnhandledCudaError = 1,
	ncclSystemError = 2,
	ncclInternalError = 3,
	ncclInvalidArgument = 4,
	ncclInvalidUsage = 5,
	ncclRemoteError = 6,
	ncclInProgress = 7,
} ncclResult_t;

typedef enum {
	ncclSum = 0,
	ncclProd = 1,
	ncclMax = 2,
	ncclMin = 3,
	ncclAvg = 4,
	ncclNumOps = 5, /* from here on: created by ncclRedOpCreatePreMulSum */
	ncclMaxRedOp = 0x7fffffff,
} ncclRedOp_t;

typedef enum {
	ncclInt8 = 0,
	ncclUint8 = 1,
	ncclInt32 = 2,
	ncclUint32 = 3,
	ncclInt64 = 4,
	ncclUint64 = 5,
	ncclFloat16 = 6,
	ncclFloat32 = 7,
	ncclFloat64 = 8,
	ncclBfloat16 = 9,
	ncclFloat8e4m3 = 10,
	ncclFloat8e5m2 = 11,
} ncclDataType_t;

typedef enum {
	ncclScalarDevice = 0,
	ncclScalarHostImmediate = 1,
} ncclScalarResidence_t;

typedef enum {
	ncclStatGpuMemSuspend = 0,
	ncclStatGpuMemSuspended = 1,
	ncclStatGpuMemPersist = 2,
	ncclStatGpuMemTotal = 3,
} ncclCommMemStat_t;

#define NCCL_API_MAGIC        0xcafebeefu
#define NCCL_SIM_INFO_MAGIC   0x74685283u
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_SPLIT_NOCOLOR    -1
#define NCCL_SHRINK_DEFAULT   0x00
#define NCCL_SHRINK_ABORT     0x01

/* Newer versions add fields at its end; `size` is that of the caller's version. Only the fields that are read are
 * here. */
typedef struct ncclConfig_v22800 {
	size_t size;
	unsigned int magic;
	unsigned int version;
	int blocking;
	int cgaClusterSize;
	int minCTAs;
	int maxCTAs;
	const char *netName;
	int splitShare;
} ncclConfig_t;

typedef struct ncclSimInfo_v22200 {
	size_t size;
	unsigned int magic;
	unsigned int version;
	float estimatedTime;
} ncclSimInfo_t;

typedef struct ncclCollConfig_v23200 ncclCollConfig_t;
typedef struct ncclEncryptionConfig_v23200 ncclEncryptionConfig_t;

typedef struct {
	int opCnt;
	int peer;
	int sigIdx;
	int ctx;
} ncclWaitSignalDesc_t;

#endif
