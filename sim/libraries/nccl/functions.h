/* sim/libraries/nccl/functions.h: every function of nccl.h. Included with two macros defined:
 *
 *   X(name, parameters, arguments)   implemented by neap_NAME
 *   REFUSED(name, parameters)        not simulated: ncclInvalidUsage, and counted
 *
 * The comparison with nccl.h defines NCCL_VERSION_CODE: functions that its version lacks are then left out.
 */
X(ncclGetVersion, (int *version), (version))
X(ncclGetUniqueId, (ncclUniqueId * id), (id))
X(ncclCommInitRank, (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank), (comm, ranks, id, rank))
X(ncclCommInitRankConfig, (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config),
  (comm, ranks, id, rank, config))
X(ncclCommInitRankScalable,
  (ncclComm_t * comm, int ranks, int rank, int id_count, ncclUniqueId *ids, ncclConfig_t *config),
  (comm, ranks, rank, id_count, ids, config))
X(ncclCommInitAll, (ncclComm_t * comms, int count, const int *devices), (comms, count, devices))
X(ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *child, ncclConfig_t *config),
  (comm, color, key, child, config))
X(ncclCommShrink,
  (ncclComm_t comm, int *excluded, int excluded_count, ncclComm_t *child, ncclConfig_t *config, int flags),
  (comm, excluded, excluded_count, child, config, flags))
X(ncclCommFinalize, (ncclComm_t comm), (comm))
X(ncclCommDestroy, (ncclComm_t comm), (comm))
X(ncclCommAbort, (ncclComm_t comm), (comm))
X(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *error), (comm, error))
X(ncclCommCount, (const ncclComm_t comm, int *count), (comm, count))
X(ncclCommCuDevice, (const ncclComm_t comm, int *device), (comm, device))
X(ncclCommUserRank, (const ncclComm_t comm, int *rank), (comm, rank))
X(ncclCommRegister, (const ncclComm_t comm, void *buffer, size_t bytes, void **handle), (comm, buffer, bytes, handle))
X(ncclCommDeregister, (const ncclComm_t comm, void *handle), (comm, handle))
X(ncclCommWindowRegister, (ncclComm_t comm, void *buffer, size_t bytes, ncclWindow_t *window, int flags),
  (comm, buffer, bytes, window, flags))
X(ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t window), (comm, window))
X(ncclMemAlloc, (void **pointer, size_t bytes), (pointer, bytes))
X(ncclMemFree, (void *pointer), (pointer))

X(ncclRedOpCreatePreMulSum,
  (ncclRedOp_t * op, void *scalar, ncclDataType_t type, ncclScalarResidence_t residence, ncclComm_t comm),
  (op, scalar, type, residence, comm))
X(ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm), (op, comm))

X(ncclReduce,
  (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
   cudaStream_t stream),
  (from, to, count, type, op, root, comm, stream))
X(ncclBcast, (void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream),
  (buffer, count, type, root, comm, stream))
X(ncclBroadcast,
  (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream),
  (from, to, count, type, root, comm, stream))
X(ncclAllReduce,
  (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
   cudaStream_t stream),
  (from, to, count, type, op, comm, stream))
X(ncclReduceScatter,
  (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
   cudaStream_t stream),
  (from, to, count, type, op, comm, stream))
X(ncclAllGather,
  (const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream),
  (from, to, count, type, comm, stream))
X(ncclAlltoAll, (const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream),
  (from, to, count, type, comm, stream))
X(ncclGather,
  (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream),
  (from, to, count, type, root, comm, stream))
REFUSED(ncclScatter, (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
		      cudaStream_t stream))
X(ncclSend, (const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream),
  (from, count, type, peer, comm, stream))
X(ncclRecv, (void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream),
  (to, count, type, peer, comm, stream))
X(ncclGroupStart, (void), ())
X(ncclGroupEnd, (void), ())
X(ncclGroupSimulateEnd, (ncclSimInfo_t * info), (info))

#if !defined(NCCL_VERSION_CODE) || NCCL_VERSION_CODE >= 23000
X(ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId *id), (comm, id))
X(ncclCommGrow,
  (ncclComm_t comm, int ranks, const ncclUniqueId *id, int rank, ncclComm_t *child, ncclConfig_t *config),
  (comm, ranks, id, rank, child, config))
X(ncclCommRevoke, (ncclComm_t comm, int flags), (comm, flags))
REFUSED(ncclCommSuspend, (ncclComm_t comm, int flags))
REFUSED(ncclCommResume, (ncclComm_t comm))
REFUSED(ncclCommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value))
REFUSED(ncclWinGetUserPtr, (ncclComm_t comm, ncclWindow_t window, void **pointer))
REFUSED(ncclPutSignal,
	(const void *from, size_t count, ncclDataType_t type, int peer, ncclWindow_t window, size_t offset,
	 int signal, int context, unsigned int flags, ncclComm_t comm, cudaStream_t stream))
REFUSED(ncclSignal, (int peer, int signal, int context, unsigned int flags, ncclComm_t comm, cudaStream_t stream))
REFUSED(ncclWaitSignal, (int count, ncclWaitSignalDesc_t *signals, ncclComm_t comm, cudaStream_t stream))
#endif

#if !defined(NCCL_VERSION_CODE) || NCCL_VERSION_CODE >= 23200
REFUSED(ncclReduceConfig, (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
			   ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config))
REFUSED(ncclBroadcastConfig, (const void *from, void *to, size_t count, ncclDataType_t type, int root,
			      ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config))
REFUSED(ncclAllReduceConfig, (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
			      ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config))
REFUSED(ncclReduceScatterConfig, (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
				  ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config))
REFUSED(ncclAllGatherConfig, (const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
			      cudaStream_t stream, const ncclCollConfig_t *config))
REFUSED(ncclAlltoAllConfig, (const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
			     cudaStream_t stream, const ncclCollConfig_t *config))
REFUSED(ncclGatherConfig, (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
			   cudaStream_t stream, const ncclCollConfig_t *config))
REFUSED(ncclScatterConfig, (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
			    cudaStream_t stream, const ncclCollConfig_t *config))
REFUSED(ncclSetEncryption, (const ncclEncryptionConfig_t *config))
REFUSED(ncclParamBind, (ncclParamHandle_t * handle, const char *key))
REFUSED(ncclParamGetI8, (ncclParamHandle_t handle, int8_t *value))
REFUSED(ncclParamGetI16, (ncclParamHandle_t handle, int16_t *value))
REFUSED(ncclParamGetI32, (ncclParamHandle_t handle, int32_t *value))
REFUSED(ncclParamGetI64, (ncclParamHandle_t handle, int64_t *value))
REFUSED(ncclParamGetU8, (ncclParamHandle_t handle, uint8_t *value))
REFUSED(ncclParamGetU16, (ncclParamHandle_t handle, uint16_t *value))
REFUSED(ncclParamGetU32, (ncclParamHandle_t handle, uint32_t *value))
REFUSED(ncclParamGetU64, (ncclParamHandle_t handle, uint64_t *value))
REFUSED(ncclParamGetStr, (ncclParamHandle_t handle, const char **value))
REFUSED(ncclParamGet, (ncclParamHandle_t handle, void *value, int capacity, int *length))
REFUSED(ncclParamGetParameter, (const char *key, const char **value, int *length))
REFUSED(ncclParamGetAllParameterKeys, (const char ***table, int *count))
#endif
