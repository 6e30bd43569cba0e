/* The program's calls for communicators: create, query, end. */
#include "sim/libraries/nccl/comm.h"
#include "sim/libraries/nccl/exports.h"
#include "sim/libraries/nccl/fail.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

/* The newest version whose functions are all here, as PyTorch 2.15 was built with; older PyTorch takes any 2.x. */
#define VERSION 23007

ncclResult_t neap_ncclGetVersion(int *version)
{
	if (!version)
		return nccl_fail(ncclInvalidArgument, "ncclGetVersion: NULL");
	*version = VERSION;
	return ncclSuccess;
}

/* -- names ------------------------------------------------------------------------------------------------------- */

static ncclResult_t make_id(ncclUniqueId *ret_id)
{
	size_t got = 0;

	nccl_segment_sweep();
	while (got < sizeof ret_id->internal) {
		ssize_t more = getrandom(ret_id->internal + got, sizeof ret_id->internal - got, 0);

		if (more < 0 && errno != EINTR)
			return nccl_fail(ncclSystemError, "no random numbers: %s", strerror(errno));
		got += more > 0 ? (size_t)more : 0;
	}
	return ncclSuccess;
}

ncclResult_t neap_ncclGetUniqueId(ncclUniqueId *id)
{
	return id ? make_id(id) : nccl_fail(ncclInvalidArgument, "ncclGetUniqueId: NULL");
}

static void mix(uint64_t hash[2], uint64_t value)
{
	hash[0] = (hash[0] ^ value) * 0x9e3779b97f4a7c15ull;
	hash[0] ^= hash[0] >> 32;
	hash[1] = (hash[1] + value) * 0xc2b2ae3d27d4eb4full + hash[0];
	hash[1] ^= hash[1] >> 29;
}

static void hash_ids(const ncclUniqueId *ids, int count, uint64_t ret_hash[2])
{
	uint64_t word;
	size_t at;
	int i;

	ret_hash[0] = 1;
	ret_hash[1] = 2;
	for (i = 0; i < count; i++) {
		for (at = 0; at < sizeof ids[i].internal; at += sizeof word) {
			memcpy(&word, ids[i].internal + at, sizeof word);
			mix(ret_hash, word);
		}
	}
}

/* -- create ------------------------------------------------------------------------------------------------------ */

static ncclResult_t begin(ncclComm_t *comm, int ranks, int rank, const ncclUniqueId *ids, int id_count,
			  const ncclConfig_t *config)
{
	struct nccl_options options;
	ncclResult_t result;
	uint64_t hash[2];

	if (!comm || !ids || id_count < 1 || id_count > ranks)
		return nccl_fail(ncclInvalidArgument, "ncclCommInitRank: NULL, or %d ids for %d ranks", id_count,
				 ranks);
	*comm = NULL;
	result = nccl_options_read(config, NULL, &options);
	if (result != ncclSuccess)
		return result;
	hash_ids(ids, id_count, hash);
	return nccl_comm_begin(hash, ranks, rank, &options, comm);
}

static ncclResult_t begun(ncclResult_t result, ncclComm_t *comms, size_t count)
{
	return result == ncclSuccess ? nccl_group_begun(comms, count) : nccl_group_failed(result);
}

ncclResult_t neap_ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
	return begun(begin(comm, ranks, rank, &id, 1, NULL), comm, 1);
}

ncclResult_t neap_ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
	return begun(begin(comm, ranks, rank, &id, 1, config), comm, 1);
}

ncclResult_t neap_ncclCommInitRankScalable(ncclComm_t *comm, int ranks, int rank, int id_count, ncclUniqueId *ids,
					   ncclConfig_t *config)
{
	return begun(begin(comm, ranks, rank, ids, id_count, config), comm, 1);
}

static ncclResult_t begin_on(ncclComm_t *comm, int ranks, int rank, const ncclUniqueId *id, int device)
{
	if (!nccl_use_device(device))
		return nccl_fail(ncclUnhandledCudaError, "ncclCommInitAll: there is no device %d", device);
	return begin(comm, ranks, rank, id, 1, NULL);
}

ncclResult_t neap_ncclCommInitAll(ncclComm_t *comms, int count, const int *devices)
{
	ncclResult_t result;
	ncclUniqueId id;
	int i, j, current;

	if (!comms || count < 1 || !nccl_services())
		return nccl_fail(ncclInvalidArgument, "ncclCommInitAll: %d devices", count);
	for (i = 0; devices && i < count; i++)
		for (j = 0; j < i; j++)
			if (devices[i] == devices[j])
				return nccl_fail(ncclInvalidUsage, "ncclCommInitAll: device %d is there twice",
						 devices[i]);
	result = make_id(&id);
	current = nccl_services()->device();
	for (i = 0; i < count && result == ncclSuccess; i++)
		result = begin_on(&comms[i], count, i, &id, devices ? devices[i] : i);
	nccl_use_device(current);
	if (result != ncclSuccess) {
		for (j = 0; j < i - 1; j++)
			nccl_comm_end(comms[j]);
		memset(comms, 0, (size_t)count * sizeof *comms);
	}
	return begun(result, comms, (size_t)count);
}

/* -- create from another one ------------------------------------------------------------------------------------- */

/* Waits for a parent that still initialises, and reads the child's options. */
static ncclResult_t check_parent(ncclComm_t parent, ncclComm_t *child, const ncclConfig_t *config,
				 const char *function, struct nccl_options *ret_options)
{
	ncclResult_t result = nccl_comm_check(parent, function);

	if (result != ncclSuccess)
		return result;
	if (!child)
		return nccl_fail(ncclInvalidArgument, "%s: no place for the new communicator", function);
	*child = NULL;
	nccl_comms_await(&parent, 1);
	return nccl_options_read(config, parent, ret_options);
}

ncclResult_t neap_ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *child, ncclConfig_t *config)
{
	struct nccl_birth birth = {.parent = comm, .color = color};
	uint64_t words[2] = {(uint64_t)(int64_t)color, (uint64_t)(int64_t)key};
	struct nccl_options options;
	ncclResult_t result = check_parent(comm, child, config, "ncclCommSplit", &options);

	if (result == ncclSuccess)
		result = atomic_load(&comm->error);
	if (result == ncclSuccess && color < 0 && color != NCCL_SPLIT_NOCOLOR)
		result = nccl_fail(ncclInvalidArgument, "ncclCommSplit: color %d", color);
	if (result == ncclSuccess)
		result = nccl_comm_begin_birth(&birth, words, &options, child);
	return result == ncclSuccess && !*child ? ncclSuccess : begun(result, child, 1);
}

/* The child has the remaining ranks, in their order, so they need no exchange. */
ncclResult_t neap_ncclCommShrink(ncclComm_t comm, int *excluded, int excluded_count, ncclComm_t *child,
				 ncclConfig_t *config, int flags)
{
	struct nccl_options options;
	uint64_t id[2];
	int i, j, ranks = 0, rank = -1;
	ncclResult_t result = check_parent(comm, child, config, "ncclCommShrink", &options);

	if (result != ncclSuccess)
		return nccl_group_failed(result);
	if (!excluded || excluded_count < 1 || excluded_count >= comm->ranks ||
	    (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT))
		return nccl_group_failed(nccl_fail(ncclInvalidArgument, "ncclCommShrink: %d of %d ranks, flags %d",
						   excluded_count, comm->ranks, flags));
	if (flags == NCCL_SHRINK_ABORT) {
		nccl_stop(comm, ncclSuccess);
		comm->phase = NCCL_PHASE_REVOKED;
	}
	memcpy(id, comm->id, sizeof id);
	mix(id, ++comm->shrinks);
	for (i = 0; i < comm->ranks; i++) {
		for (j = 0; j < excluded_count && excluded[j] != i; j++)
			;
		if (j < excluded_count)
			continue;
		mix(id, (uint64_t)i);
		rank = i == comm->rank ? ranks : rank;
		ranks++;
	}
	if (rank < 0)
		return nccl_group_failed(nccl_fail(ncclInvalidUsage, "ncclCommShrink: called by an excluded rank"));
	return begun(nccl_comm_begin(id, ranks, rank, &options, child), child, 1);
}

ncclResult_t neap_ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id)
{
	ncclResult_t result = nccl_comm_check(comm, "ncclCommGetUniqueId");

	if (result != ncclSuccess)
		return result;
	if (!id)
		return nccl_fail(ncclInvalidArgument, "ncclCommGetUniqueId: NULL");
	if (comm->grow_id_given)
		return nccl_fail(ncclInvalidUsage, "ncclCommGetUniqueId: the id before was not used yet");
	comm->grow_id_given = true;
	return make_id(id);
}

ncclResult_t neap_ncclCommGrow(ncclComm_t comm, int ranks, const ncclUniqueId *id, int rank, ncclComm_t *child,
			       ncclConfig_t *config)
{
	struct nccl_birth birth = {.parent = comm, .grow = true, .ranks = ranks};
	struct nccl_options options;
	uint64_t words[2] = {0, 0};
	ncclResult_t result;

	if (!comm) /* a new rank */
		return begun(begin(child, ranks, rank, id, 1, config), child, 1);
	result = check_parent(comm, child, config, "ncclCommGrow", &options);
	if (result == ncclSuccess)
		result = atomic_load(&comm->error);
	if (result == ncclSuccess && (ranks <= comm->ranks || rank != -1))
		result = nccl_fail(ncclInvalidArgument, "ncclCommGrow: from %d to %d ranks, rank %d", comm->ranks,
				   ranks, rank);
	if (result == ncclSuccess) {
		if (id)
			hash_ids(id, 1, words);
		comm->grow_id_given = false;
		result = nccl_comm_begin_birth(&birth, words, &options, child);
	}
	return begun(result, child, 1);
}

/* -- query ------------------------------------------------------------------------------------------------------- */

ncclResult_t neap_ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
	ncclResult_t result = nccl_comm_check(comm, "ncclCommGetAsyncError");

	if (result != ncclSuccess)
		return result;
	if (!error)
		return nccl_fail(ncclInvalidArgument, "ncclCommGetAsyncError: NULL");
	*error = nccl_comm_poll(comm);
	if (*error != ncclSuccess)
		return ncclSuccess;
	nccl_advance(comm, 0, false); /* detects dead peers */
	*error = atomic_load(&comm->error);
	if (*error == ncclSuccess && (nccl_comm_has_unborn(comm) || nccl_is_finalizing(comm)))
		*error = ncclInProgress;
	return ncclSuccess;
}

static ncclResult_t answer(ncclComm_t comm, const char *function, int value, int *ret_value)
{
	ncclResult_t result = nccl_comm_check(comm, function);

	if (result != ncclSuccess)
		return result;
	if (!ret_value)
		return nccl_fail(ncclInvalidArgument, "%s: NULL", function);
	*ret_value = value;
	return ncclSuccess;
}

ncclResult_t neap_ncclCommCount(const ncclComm_t comm, int *count)
{
	return answer(comm, "ncclCommCount", comm ? comm->ranks : 0, count);
}

ncclResult_t neap_ncclCommCuDevice(const ncclComm_t comm, int *device)
{
	return answer(comm, "ncclCommCuDevice", comm ? comm->device : 0, device);
}

ncclResult_t neap_ncclCommUserRank(const ncclComm_t comm, int *rank)
{
	return answer(comm, "ncclCommUserRank", comm ? comm->rank : 0, rank);
}

/* -- end --------------------------------------------------------------------------------------------------------- */

/* A forked child must not end the parent's communicator. */
static bool inherited(const struct ncclComm *comm) { return comm && comm->process != nccl_process; }

ncclResult_t neap_ncclCommFinalize(ncclComm_t comm)
{
	ncclResult_t result;

	if (inherited(comm))
		return ncclSuccess;
	result = nccl_comm_check(comm, "ncclCommFinalize");
	if (result != ncclSuccess)
		return result;
	nccl_comms_await(&comm, 1);
	if (comm->phase >= NCCL_PHASE_REVOKED)
		return nccl_fail(ncclInvalidUsage,
				 "ncclCommFinalize: the communicator was revoked or finalised before");
	if (comm->phase == NCCL_PHASE_READY)
		comm->phase = NCCL_PHASE_FINALIZED;
	nccl_advance(comm, nccl_issued(comm), comm->options.blocking);
	if (!comm->options.blocking && nccl_is_finalizing(comm))
		return ncclInProgress;
	return atomic_load(&comm->error);
}

ncclResult_t neap_ncclCommDestroy(ncclComm_t comm)
{
	if (inherited(comm) || !comm)
		return ncclSuccess;
	nccl_advance(comm, nccl_issued(comm), true);
	nccl_comm_end(comm);
	return ncclSuccess;
}

ncclResult_t neap_ncclCommAbort(ncclComm_t comm)
{
	if (inherited(comm) || !comm)
		return ncclSuccess;
	nccl_stop(comm, ncclInternalError);
	nccl_comm_end(comm);
	return ncclSuccess;
}

ncclResult_t neap_ncclCommRevoke(ncclComm_t comm, int flags)
{
	ncclResult_t result = nccl_comm_check(comm, "ncclCommRevoke");

	if (result != ncclSuccess)
		return result;
	if (flags != 0)
		return nccl_fail(ncclInvalidArgument, "ncclCommRevoke: flags %d", flags);
	nccl_stop(comm, ncclSuccess);
	comm->phase = NCCL_PHASE_REVOKED;
	atomic_store(&comm->error, ncclSuccess); /* clears the failure that may have led to this call */
	return ncclSuccess;
}

/* -- memory ------------------------------------------------------------------------------------------------------ */

/* Registration takes no device memory. */
ncclResult_t neap_ncclCommRegister(const ncclComm_t comm, void *buffer, size_t bytes, void **handle)
{
	ncclResult_t result = nccl_comm_check(comm, "ncclCommRegister");

	(void)bytes;
	if (result != ncclSuccess)
		return result;
	if (!handle || !buffer)
		return nccl_fail(ncclInvalidArgument, "ncclCommRegister: NULL");
	*handle = buffer;
	return ncclSuccess;
}

ncclResult_t neap_ncclCommDeregister(const ncclComm_t comm, void *handle)
{
	(void)handle;
	return nccl_comm_check(comm, "ncclCommDeregister");
}

/* As on transports without support: no window and no error. */
ncclResult_t neap_ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t bytes, ncclWindow_t *window, int flags)
{
	ncclResult_t result = nccl_comm_check(comm, "ncclCommWindowRegister");

	(void)bytes;
	(void)flags;
	if (result != ncclSuccess)
		return result;
	if (!window || !buffer)
		return nccl_fail(ncclInvalidArgument, "ncclCommWindowRegister: NULL");
	*window = NULL;
	nccl_services()->tally(GAP_REFUSED, NCCL_LIBRARY, "ncclCommWindowRegister", 0, 0);
	return ncclSuccess;
}

ncclResult_t neap_ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
	ncclResult_t result = nccl_comm_check(comm, "ncclCommWindowDeregister");

	if (result == ncclSuccess && window)
		result = nccl_fail(ncclInvalidArgument, "ncclCommWindowDeregister: no window of this communicator");
	return result;
}

ncclResult_t neap_ncclMemAlloc(void **pointer, size_t bytes)
{
	int (*allocate)(void **pointer, size_t bytes) = NULL, error;
	void *symbol = nccl_symbol("cudaMalloc");

	if (!pointer || bytes == 0)
		return nccl_fail(ncclInvalidArgument, "ncclMemAlloc: %zu bytes", bytes);
	if (!symbol)
		return nccl_fail(ncclUnhandledCudaError, "ncclMemAlloc: there is no CUDA runtime in this process");
	memcpy(&allocate, &symbol, sizeof allocate);
	error = allocate(pointer, bytes);
	return error == 0
		       ? ncclSuccess
		       : nccl_fail(ncclUnhandledCudaError, "ncclMemAlloc: CUDA error %d for %zu bytes", error, bytes);
}

ncclResult_t neap_ncclMemFree(void *pointer)
{
	int (*release)(void *pointer) = NULL, error;
	void *symbol = nccl_symbol("cudaFree");

	if (!pointer)
		return ncclSuccess;
	if (!symbol)
		return nccl_fail(ncclUnhandledCudaError, "ncclMemFree: there is no CUDA runtime in this process");
	memcpy(&release, &symbol, sizeof release);
	error = release(pointer);
	return error == 0 ? ncclSuccess : nccl_fail(ncclUnhandledCudaError, "ncclMemFree: CUDA error %d", error);
}
