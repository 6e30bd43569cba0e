/* Groups: calls between ncclGroupStart and the outermost ncclGroupEnd are issued at its end, in the order in which
 * they were made. All are published before waiting for any, so that one thread can call for several ranks. */
#include "base/array.h"
#include "sim/libraries/nccl/comm.h"
#include "sim/libraries/nccl/exports.h"
#include "sim/libraries/nccl/fail.h"

#include <stdlib.h>

struct begun {
	struct ncclComm *comm;
	ncclComm_t *handle;
};

static _Thread_local struct {
	int depth;
	ncclResult_t error;
	struct nccl_call *calls;
	size_t call_count;
	struct begun *begun;
	size_t begun_count;
} group;

ncclResult_t nccl_group_failed(ncclResult_t result)
{
	if (group.depth > 0 && group.error == ncclSuccess)
		group.error = result;
	return result;
}

static void empty(void)
{
	free(group.calls);
	free(group.begun);
	group.calls = NULL;
	group.begun = NULL;
	group.call_count = group.begun_count = 0;
	group.error = ncclSuccess;
}

/* -- initialisations --------------------------------------------------------------------------------------------- */

/* Returns a blocking communicator's result, and ends it if it failed. A non-blocking one is still in progress. */
static ncclResult_t finish(struct ncclComm *comm, ncclComm_t *handle)
{
	ncclResult_t result;

	if (!comm->options.blocking)
		return ncclInProgress;
	result = nccl_comm_poll(comm);
	if (result == ncclSuccess)
		return ncclSuccess;
	*handle = NULL;
	nccl_comm_end(comm);
	return result;
}

/* A call of the group failed: drops all its calls. */
static ncclResult_t give_up(void)
{
	size_t i;

	for (i = 0; i < group.begun_count; i++) {
		*group.begun[i].handle = NULL;
		nccl_comm_end(group.begun[i].comm);
	}
	return group.error;
}

static ncclResult_t await(struct begun *begun, size_t count)
{
	struct ncclComm **comms = calloc(count ? count : 1, sizeof(struct ncclComm *));
	ncclResult_t result = ncclSuccess, one;
	size_t i, waiting = 0;

	if (!comms)
		return nccl_fail(ncclSystemError, "host out of memory");
	for (i = 0; i < count; i++)
		if (begun[i].comm->options.blocking)
			comms[waiting++] = begun[i].comm;
	nccl_comms_await(comms, waiting);
	free(comms);
	for (i = 0; i < count; i++) {
		one = finish(begun[i].comm, begun[i].handle);
		if (result == ncclSuccess || result == ncclInProgress)
			result = one == ncclSuccess ? result : one;
	}
	return result;
}

ncclResult_t nccl_group_begun(ncclComm_t *handles, size_t count)
{
	struct begun single = {count == 1 ? handles[0] : NULL, handles};
	size_t i;

	if (group.depth == 0 && count == 1)
		return await(&single, 1);
	for (i = 0; i < count; i++) {
		if (!neap_array_grow(&group.begun, group.begun_count, sizeof *group.begun))
			return nccl_group_failed(nccl_fail(ncclSystemError, "host out of memory"));
		group.begun[group.begun_count++] = (struct begun){handles[i], &handles[i]};
	}
	if (group.depth > 0)
		return ncclSuccess;
	group.depth = 1;
	return neap_ncclGroupEnd();
}

/* -- calls ------------------------------------------------------------------------------------------------------- */

/* Waits until enough issued operations are in the log: this limits how far a rank may be ahead. */
static void catch_up(const struct nccl_call *calls, size_t count)
{
	for (;;) {
		struct ncclComm *behind = NULL;
		uint32_t bell = 0;
		size_t i;

		for (i = 0; i < count; i++) {
			uint32_t now = nccl_segment_bell(calls[i].comm->segment);

			nccl_advance(calls[i].comm, 0, false);
			if (behind || !nccl_is_behind(calls[i].comm))
				continue;
			behind = calls[i].comm;
			bell = now;
		}
		if (!behind)
			return;
		nccl_segment_wait(behind->segment, bell, NCCL_POLL_MS);
	}
}

/* A non-blocking communicator may still be initialising. */
static ncclResult_t ready(struct ncclComm *comm)
{
	nccl_comms_await(&comm, 1);
	return nccl_comm_poll(comm);
}

static ncclResult_t issue(const struct nccl_call *calls, size_t count)
{
	ncclResult_t result = ncclSuccess;
	bool behind, more = true;
	uint64_t piece;
	size_t i;

	for (piece = 0; more && result == ncclSuccess; piece++) {
		more = behind = false;
		for (i = 0; i < count && result == ncclSuccess; i++) {
			if (piece == 0)
				result = ready(calls[i].comm);
			if (result == ncclSuccess)
				result = nccl_issue(&calls[i], piece, &more);
			behind |= result == ncclSuccess && nccl_is_behind(calls[i].comm);
		}
		if (behind)
			catch_up(calls, i);
	}
	return result;
}

ncclResult_t nccl_group_call(const struct nccl_call *call)
{
	if (group.depth == 0)
		return issue(call, 1);
	if (!neap_array_grow(&group.calls, group.call_count, sizeof *group.calls))
		return nccl_group_failed(nccl_fail(ncclSystemError, "host out of memory"));
	group.calls[group.call_count++] = *call;
	return ncclSuccess;
}

ncclResult_t neap_ncclGroupStart(void)
{
	group.depth++;
	return ncclSuccess;
}

ncclResult_t neap_ncclGroupEnd(void)
{
	ncclResult_t result, issued = ncclSuccess;

	if (group.depth == 0)
		return nccl_fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
	if (--group.depth > 0)
		return ncclSuccess;
	if (group.error != ncclSuccess)
		result = give_up();
	else
		result = await(group.begun, group.begun_count);
	if (result == ncclSuccess || result == ncclInProgress)
		issued = issue(group.calls, group.call_count);
	if (issued != ncclSuccess)
		result = issued;
	empty();
	return result;
}

/* Time is not simulated. The group ends without issuing anything. */
ncclResult_t neap_ncclGroupSimulateEnd(ncclSimInfo_t *info)
{
	(void)info;
	if (group.depth == 0)
		return nccl_fail(ncclInvalidUsage, "ncclGroupSimulateEnd without ncclGroupStart");
	group.depth--;
	(void)nccl_refuse("ncclGroupSimulateEnd");
	if (group.depth == 0)
		empty();
	return ncclInvalidUsage;
}
