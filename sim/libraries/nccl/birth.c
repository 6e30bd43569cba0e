/* Creates a communicator from another one, its parent: first the parent's ranks exchange which of them join. */
#include "sim/libraries/nccl/comm.h"
#include "sim/libraries/nccl/fail.h"

#include <stdlib.h>
#include <string.h>

/* This rank no longer needs the exchange. The caller drives the parent. */
static void exchanged(struct ncclComm *parent, uint64_t number)
{
	parent->exchanged_later |= 1ull << (number - parent->exchanged);
	for (; parent->exchanged_later & 1; parent->exchanged_later >>= 1)
		parent->exchanged++;
	nccl_segment_exchanged(parent->segment, parent->exchanged);
}

static void mix(uint64_t id[2], uint64_t value)
{
	id[0] = (id[0] ^ value) * 0x9e3779b97f4a7c15ull;
	id[1] = (id[1] + (id[0] >> 29) + value) * 0xc2b2ae3d27d4eb4full;
	id[0] ^= id[1] >> 31;
}

/* All ranks have sent their words: finds the child's ranks, and joins. The caller drives child and parent. */
static ncclResult_t settle(struct ncclComm *comm, const struct nccl_entry *entries)
{
	const struct nccl_birth *birth = &comm->birth;
	const struct ncclComm *parent = birth->parent;
	int64_t key = (int64_t)entries[parent->rank].words[1];
	int i;

	if (birth->grow) {
		for (i = 0; i < parent->ranks; i++)
			if (entries[i].words[0] | entries[i].words[1])
				memcpy(comm->id, entries[i].words, sizeof comm->id);
		comm->ranks = birth->ranks;
		comm->rank = parent->rank;
		return comm->id[0] | comm->id[1]
			       ? nccl_comm_join(comm)
			       : nccl_fail(ncclInvalidUsage,
					   "ncclCommGrow: no rank passed an id of ncclCommGetUniqueId");
	}
	for (i = 0; i < parent->ranks; i++) {
		if ((int)entries[i].words[0] != birth->color)
			continue;
		comm->ranks++;
		comm->rank += (int64_t)entries[i].words[1] < key ||
			      ((int64_t)entries[i].words[1] == key && i < parent->rank);
	}
	memcpy(comm->id, parent->id, sizeof comm->id);
	mix(comm->id, birth->exchange);
	mix(comm->id, (uint64_t)birth->color);
	return nccl_comm_join(comm);
}

/* Joins if all ranks have sent their words. The caller drives child and parent. */
static ncclResult_t poll_exchange(struct ncclComm *comm)
{
	struct ncclComm *parent = comm->birth.parent;
	struct nccl_entry *entries = calloc((size_t)parent->ranks, sizeof *entries);
	ncclResult_t result = ncclSuccess;
	int i;

	if (!entries)
		return nccl_fail(ncclSystemError, "host out of memory");
	for (i = 0; i < parent->ranks && result == ncclSuccess; i++) {
		enum nccl_peer state = nccl_segment_peer(parent->segment, i);

		if (nccl_segment_find(parent->segment, i, NCCL_EXCHANGE, comm->birth.exchange, &entries[i]))
			continue;
		if (state == NCCL_PEER_HERE)
			result = nccl_now_ns() < comm->deadline_ns
					 ? ncclInProgress
					 : nccl_fail(ncclSystemError,
						     "rank %d of the parent did not call ncclCommSplit within %.0f s",
						     i, (double)nccl_patience_ns() / 1e9);
		else
			result = nccl_fail(ncclRemoteError, "rank %d ended before it split the communicator", i);
	}
	if (result == ncclSuccess)
		result = settle(comm, entries);
	if (result != ncclInProgress) {
		exchanged(parent, comm->birth.exchange);
		atomic_fetch_sub(&parent->unborn, 1);
	}
	free(entries);
	return result;
}

ncclResult_t nccl_comm_begin_birth(const struct nccl_birth *birth, const uint64_t words[2],
				   const struct nccl_options *options, struct ncclComm **ret_comm)
{
	struct ncclComm *parent = birth->parent, *comm = NULL;
	struct nccl_entry entry = {.kind = NCCL_EXCHANGE, .to = -1, .words = {words[0], words[1]}};
	bool stays_out = !birth->grow && birth->color == NCCL_SPLIT_NOCOLOR, lost = false, published;

	if (!stays_out) {
		comm = nccl_comm_create(options);
		if (!comm)
			return nccl_fail(ncclSystemError, "host out of memory");
		comm->device = parent->device;
		comm->phase = NCCL_PHASE_EXCHANGING;
	}
	if (!nccl_begin_driving(parent)) {
		nccl_comm_release(comm);
		return nccl_fail(ncclInvalidUsage, "a communicator is split while one of its operations completes");
	}
	entry.number = parent->exchanges;
	published = parent->exchanges - parent->exchanged < 64 &&
		    nccl_segment_publish(parent->segment, &entry, NULL, 0, &lost);
	if (published) {
		parent->exchanges++;
		if (stays_out)
			exchanged(parent, entry.number);
	}
	nccl_end_driving(parent);
	if (!published) {
		nccl_comm_release(comm);
		return nccl_fail(ncclInternalError, "too many operations of the parent are unfinished");
	}
	if (comm) {
		comm->birth = *birth;
		comm->birth.exchange = entry.number;
		nccl_comm_hold(parent);
		atomic_fetch_add(&parent->unborn, 1);
	}
	*ret_comm = comm;
	return ncclSuccess;
}

ncclResult_t nccl_comm_poll_birth(struct ncclComm *comm)
{
	struct ncclComm *parent = comm->birth.parent;
	ncclResult_t result;

	if (!nccl_begin_driving(parent))
		return ncclInProgress;
	result = poll_exchange(comm);
	nccl_end_driving(parent);
	return result;
}

void nccl_comm_give_up_birth(struct ncclComm *comm)
{
	struct ncclComm *parent = comm->birth.parent;

	if (!nccl_begin_driving(parent))
		return;
	exchanged(parent, comm->birth.exchange);
	nccl_end_driving(parent);
	atomic_fetch_sub(&parent->unborn, 1);
}
