/* Collectives and messages: checks the arguments and builds a struct nccl_call. */
#include "sim/libraries/nccl/comm.h"
#include "sim/libraries/nccl/exports.h"
#include "sim/libraries/nccl/fail.h"

#define SCALAR_LIMIT (sizeof(((struct ncclComm *)0)->scalars) / sizeof(((struct ncclComm *)0)->scalars[0]))
#define COUNT_LIMIT  (1ull << 48)

static uint64_t address(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

/* -- reductions -------------------------------------------------------------------------------------------------- */

static ncclResult_t set_reduction(struct nccl_call *call, ncclRedOp_t op)
{
	static const enum nccl_reduction known[] = {
		[ncclSum] = NCCL_REDUCE_SUM,     [ncclProd] = NCCL_REDUCE_PRODUCT, [ncclMax] = NCCL_REDUCE_MAXIMUM,
		[ncclMin] = NCCL_REDUCE_MINIMUM, [ncclAvg] = NCCL_REDUCE_AVERAGE,
	};
	unsigned int made = (unsigned int)op - ncclNumOps;
	struct ncclComm *comm = call->comm;

	if (op >= 0 && op < ncclNumOps) {
		call->reduction = known[op];
		return ncclSuccess;
	}
	if (op < 0 || made >= SCALAR_LIMIT || !comm->scalars[made].used)
		return nccl_fail(ncclInvalidArgument, "%s: %d is not a reduction", nccl_function_name(call->function),
				 (int)op);
	if (comm->scalars[made].type != call->type)
		return nccl_fail(ncclInvalidArgument, "%s: the reduction's scalar is %s, the data %s",
				 nccl_function_name(call->function), nccl_type_name(comm->scalars[made].type),
				 nccl_type_name(call->type));
	call->reduction = NCCL_REDUCE_PREMULTIPLIED;
	if (comm->scalars[made].residence == ncclScalarDevice)
		nccl_services()->read(comm->scalars[made].address, call->scalar, nccl_type_bytes(call->type));
	else
		memcpy(call->scalar, comm->scalars[made].value, sizeof call->scalar);
	return ncclSuccess;
}

/* Devices before 9.0 cannot add 8-bit floats. */
static ncclResult_t check_capability(const struct nccl_call *call)
{
	int capability, multiprocessors;

	if (!nccl_type_is_float8(call->type) ||
	    !nccl_services()->architecture(call->comm->device, &capability, &multiprocessors) || capability >= 90)
		return ncclSuccess;
	return nccl_fail(ncclInvalidArgument, "%s: %s is reduced on devices of compute capability 9.0 and later",
			 nccl_function_name(call->function), nccl_type_name(call->type));
}

ncclResult_t neap_ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
					   ncclScalarResidence_t residence, ncclComm_t comm)
{
	ncclResult_t result = nccl_comm_check(comm, "ncclRedOpCreatePreMulSum");
	size_t i;

	if (result != ncclSuccess)
		return result;
	if (!op || !scalar || nccl_type_bytes((int)type) == 0 ||
	    (residence != ncclScalarDevice && residence != ncclScalarHostImmediate))
		return nccl_fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: an argument is not a scalar");
	for (i = 0; i < SCALAR_LIMIT && comm->scalars[i].used; i++)
		;
	if (i == SCALAR_LIMIT)
		return nccl_fail(ncclInternalError, "ncclRedOpCreatePreMulSum: %zu reductions exist", SCALAR_LIMIT);
	comm->scalars[i].used = true;
	comm->scalars[i].type = (int)type;
	comm->scalars[i].residence = (int)residence;
	comm->scalars[i].address = address(scalar);
	if (residence == ncclScalarHostImmediate)
		memcpy(comm->scalars[i].value, scalar, nccl_type_bytes((int)type));
	*op = (ncclRedOp_t)(ncclNumOps + i);
	return ncclSuccess;
}

ncclResult_t neap_ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
	ncclResult_t result = nccl_comm_check(comm, "ncclRedOpDestroy");
	unsigned int made = (unsigned int)op - ncclNumOps;

	if (result != ncclSuccess)
		return result;
	if (op >= 0 && op < ncclNumOps)
		return nccl_fail(ncclInvalidArgument, "ncclRedOpDestroy: the reduction is built in");
	if (made >= SCALAR_LIMIT || !comm->scalars[made].used)
		return nccl_fail(ncclInvalidArgument, "ncclRedOpDestroy: %d is not a reduction", (int)op);
	comm->scalars[made].used = false;
	return ncclSuccess;
}

/* -- every call -------------------------------------------------------------------------------------------------- */

static ncclResult_t check(const struct nccl_call *call)
{
	const char *name = nccl_function_name(call->function);
	struct ncclComm *comm = call->comm;
	ncclResult_t result = nccl_comm_check(comm, name);

	if (result != ncclSuccess)
		return result;
	if (comm->phase < NCCL_PHASE_READY && !comm->options.blocking)
		nccl_comms_await(&comm, 1);
	result = atomic_load(&comm->error);
	if (result != ncclSuccess)
		return result; /* nccl_fail set its text; a later error may have replaced it */
	if (comm->phase < NCCL_PHASE_READY)
		return nccl_fail(ncclInvalidUsage, "%s: the communicator is initialised in the same group", name);
	if (comm->phase >= NCCL_PHASE_REVOKED)
		return nccl_fail(ncclInvalidUsage, "%s: the communicator was %s", name,
				 comm->phase == NCCL_PHASE_REVOKED ? "revoked" : "finalised");
	if (nccl_type_bytes(call->type) == 0)
		return nccl_fail(ncclInvalidArgument, "%s: %d is not a data type", name, call->type);
	if (call->count > COUNT_LIMIT)
		return nccl_fail(ncclInvalidArgument, "%s: %llu elements", name, (unsigned long long)call->count);
	if (call->root < 0 || call->root >= comm->ranks)
		return nccl_fail(ncclInvalidArgument, "%s: rank %d of %d", name, call->root, comm->ranks);
	return ncclSuccess;
}

static ncclResult_t submit(enum nccl_function function, const void *from, void *to, size_t count, ncclDataType_t type,
			   const ncclRedOp_t *op, int root, ncclComm_t comm, cudaStream_t stream)
{
	struct nccl_call call = {.function = function,
				 .comm = comm,
				 .stream = stream,
				 .source = address(from),
				 .destination = address(to),
				 .count = count,
				 .type = (int)type,
				 .root = root};
	ncclResult_t result = check(&call);

	if (result == ncclSuccess &&
	    comm->ranks > 1) /* here: a group issues the call after its caller has returned */
		(void)nccl_services()->known(0, 0, false, false);
	if (result == ncclSuccess && op)
		result = set_reduction(&call, *op);
	if (result == ncclSuccess && op)
		result = check_capability(&call);
	return result == ncclSuccess ? nccl_group_call(&call) : nccl_group_failed(result);
}

ncclResult_t neap_ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
			     ncclComm_t comm, cudaStream_t stream)
{
	return submit(NCCL_REDUCE, from, to, count, type, &op, root, comm, stream);
}

ncclResult_t neap_ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
			    cudaStream_t stream)
{
	return submit(NCCL_BROADCAST, buffer, buffer, count, type, NULL, root, comm, stream);
}

ncclResult_t neap_ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
				ncclComm_t comm, cudaStream_t stream)
{
	return submit(NCCL_BROADCAST, from, to, count, type, NULL, root, comm, stream);
}

ncclResult_t neap_ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
				ncclComm_t comm, cudaStream_t stream)
{
	return submit(NCCL_ALL_REDUCE, from, to, count, type, &op, 0, comm, stream);
}

ncclResult_t neap_ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
				    ncclComm_t comm, cudaStream_t stream)
{
	return submit(NCCL_REDUCE_SCATTER, from, to, count, type, &op, 0, comm, stream);
}

ncclResult_t neap_ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
				cudaStream_t stream)
{
	return submit(NCCL_ALL_GATHER, from, to, count, type, NULL, 0, comm, stream);
}

ncclResult_t neap_ncclAlltoAll(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
			       cudaStream_t stream)
{
	return submit(NCCL_ALL_TO_ALL, from, to, count, type, NULL, 0, comm, stream);
}

ncclResult_t neap_ncclGather(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
			     cudaStream_t stream)
{
	return submit(NCCL_GATHER, from, to, count, type, NULL, root, comm, stream);
}

ncclResult_t neap_ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
			   cudaStream_t stream)
{
	return submit(NCCL_SEND, from, NULL, count, type, NULL, peer, comm, stream);
}

ncclResult_t neap_ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
			   cudaStream_t stream)
{
	return submit(NCCL_RECV, NULL, to, count, type, NULL, peer, comm, stream);
}
