/* sim/tests/runtime/nccl_facts.h: values, sizes and offsets of NCCL's interface. One file includes it after
 * NCCL's own nccl.h, one after ours; the test compares the two. */
#ifndef NEAP_TESTS_NCCL_FACTS_H
#define NEAP_TESTS_NCCL_FACTS_H

#include <stddef.h>

struct nccl_fact {
	const char *what;
	long long value;
};

extern const struct nccl_fact nccl_facts_theirs[], nccl_facts_ours[];
extern const size_t nccl_fact_count;

#define VALUE(name)                                                                                                  \
	{                                                                                                            \
#name, (long long)(name)                                                                             \
	}
#define SIZE(type)                                                                                                   \
	{                                                                                                            \
		"sizeof " #type, (long long)sizeof(type)                                                             \
	}
#define OFFSET(type, member)                                                                                         \
	{                                                                                                            \
#type "." #member, (long long)offsetof(type, member)                                                 \
	}

/* clang-format off */
#define NCCL_FACTS \
	VALUE(ncclSuccess), VALUE(ncclUnhandledCudaError), VALUE(ncclSystemError), VALUE(ncclInternalError), \
	VALUE(ncclInvalidArgument), VALUE(ncclInvalidUsage), VALUE(ncclRemoteError), VALUE(ncclInProgress), \
	VALUE(ncclSum), VALUE(ncclProd), VALUE(ncclMax), VALUE(ncclMin), VALUE(ncclAvg), VALUE(ncclNumOps), \
	VALUE(ncclMaxRedOp), VALUE(ncclInt8), VALUE(ncclUint8), VALUE(ncclInt32), VALUE(ncclUint32), VALUE(ncclInt64), \
	VALUE(ncclUint64), VALUE(ncclFloat16), VALUE(ncclFloat32), VALUE(ncclFloat64), VALUE(ncclBfloat16), \
	VALUE(ncclFloat8e4m3), VALUE(ncclFloat8e5m2), VALUE(ncclScalarDevice), VALUE(ncclScalarHostImmediate), \
	VALUE(NCCL_CONFIG_UNDEF_INT), VALUE(NCCL_SPLIT_NOCOLOR), VALUE(NCCL_SHRINK_DEFAULT), VALUE(NCCL_SHRINK_ABORT), \
	SIZE(ncclUniqueId), SIZE(ncclResult_t), SIZE(ncclRedOp_t), SIZE(ncclDataType_t), SIZE(ncclSimInfo_t), \
	OFFSET(ncclConfig_t, size), OFFSET(ncclConfig_t, magic), OFFSET(ncclConfig_t, version), \
	OFFSET(ncclConfig_t, blocking), OFFSET(ncclConfig_t, cgaClusterSize), OFFSET(ncclConfig_t, minCTAs), \
	OFFSET(ncclConfig_t, maxCTAs), OFFSET(ncclConfig_t, netName), OFFSET(ncclConfig_t, splitShare), \
	OFFSET(ncclSimInfo_t, estimatedTime)
/* clang-format on */

#endif
