/* The queue of a communicator: issue, publish, complete (comm.h). */
#include "sim/libraries/nccl/comm.h"
#include "sim/libraries/nccl/fail.h"

#include <stdlib.h>

static void release(struct nccl_operation *operation)
{
	if (atomic_fetch_sub(&operation->references, 1) > 1)
		return;
	nccl_comm_release(operation->call.comm);
	nccl_sparse_drop(&operation->packed);
	free(operation);
}

/* -- the driver's steps: one thread at a time, without the lock -------------------------------------------------- */

/* Publishes operations while the log has room. True: published at least one. */
static bool publish(struct ncclComm *comm)
{
	struct nccl_operation *operation;
	bool moved = false;

	for (;;) {
		struct nccl_entry entry;
		bool lost = false;

		pthread_mutex_lock(&comm->lock);
		operation = comm->unpublished;
		pthread_mutex_unlock(&comm->lock);
		if (!operation)
			return moved;
		entry = nccl_entry_of(operation);
		if (operation->call.function != NCCL_RECV &&
		    !nccl_segment_publish(comm->segment, &entry, operation->packed.data, operation->packed.bytes,
					  &lost)) {
			pthread_mutex_lock(&comm->lock);
			comm->crowded = nccl_segment_is_full(comm->segment);
			pthread_mutex_unlock(&comm->lock);
			return moved;
		}
		if (lost)
			nccl_services()->tally(GAP_TRANSFER, NCCL_LIBRARY,
					       nccl_function_name(operation->call.function), 0, 0);
		pthread_mutex_lock(&comm->lock);
		comm->waiting_bytes -= operation->packed.bytes;
		comm->unpublished = operation->next;
		operation->published = true;
		pthread_mutex_unlock(&comm->lock);
		nccl_sparse_drop(&operation->packed);
		moved = true;
	}
}

/* Lets the peers drop the entries that this operation has read. */
static void acknowledge(struct ncclComm *comm, const struct nccl_operation *operation)
{
	if (operation->call.function == NCCL_RECV) {
		comm->taken[operation->call.root] = operation->number + 1;
		nccl_segment_received(comm->segment, operation->call.root, operation->number + 1);
	} else if (operation->call.function != NCCL_SEND) {
		nccl_segment_collected(comm->segment, operation->number + 1);
	}
}

static void pop(struct ncclComm *comm, struct nccl_operation *operation)
{
	pthread_mutex_lock(&comm->lock);
	comm->first = operation->next;
	if (!comm->first)
		comm->last = &comm->first;
	if (comm->unpublished == operation)
		comm->unpublished = operation->next;
	comm->completed++;
	pthread_mutex_unlock(&comm->lock);
	nccl_unlist(operation);
	release(operation);
}

static void stop_driving(struct ncclComm *comm, ncclResult_t error)
{
	struct nccl_operation *operation;

	if (atomic_load(&comm->error) == ncclSuccess)
		atomic_store(&comm->error, error);
	for (;;) {
		pthread_mutex_lock(&comm->lock);
		operation = comm->first;
		comm->unpublished = NULL;
		comm->waiting_bytes = 0;
		pthread_mutex_unlock(&comm->lock);
		if (!operation)
			return;
		if (operation->destination_bytes && !operation->superseded && !operation->received)
			nccl_services()->forget(operation->call.destination, operation->destination_bytes);
		pop(comm, operation);
	}
}

static bool overlaps_older(const struct nccl_operation *first, const struct nccl_operation *operation)
{
	uint64_t start = operation->call.destination, end = start + operation->destination_bytes;

	for (; first != operation; first = first->next)
		if (!first->received && first->call.destination < end &&
		    start < first->call.destination + first->destination_bytes)
			return true;
	return false;
}

/* Lock held. The operation that completes next: the oldest one or, while that waits, a message that has arrived. */
static struct nccl_operation *find_ready(const struct ncclComm *comm)
{
	struct nccl_operation *operation = comm->first;

	if (!operation || (operation->published && nccl_missing(operation) < 0))
		return operation;
	for (; operation && nccl_is_message(operation->call.function); operation = operation->next)
		if (operation->call.function == NCCL_RECV && !operation->received &&
		    operation->number == comm->taken[operation->call.root] && nccl_missing(operation) < 0 &&
		    !overlaps_older(comm->first, operation))
			return operation;
	return NULL;
}

/* The oldest operation, if it has only waited for its turn; NULL: it has not. */
static struct nccl_operation *first_received(struct ncclComm *comm)
{
	pthread_mutex_lock(&comm->lock);
	struct nccl_operation *operation = comm->first && comm->first->received ? comm->first : NULL;
	pthread_mutex_unlock(&comm->lock);
	return operation;
}

/* Completes an operation if one is ready. True: completed. */
static bool complete(struct ncclComm *comm)
{
	struct nccl_operation *operation;
	struct ncclComm *older;
	ncclResult_t error = ncclSuccess;
	uint64_t ticket;

	pthread_mutex_lock(&comm->lock);
	operation = find_ready(comm);
	pthread_mutex_unlock(&comm->lock);
	if (!operation)
		return false;
	older = nccl_find_older(operation, &ticket);
	if (older) {
		nccl_comm_release(older);
		return false;
	}
	switch (nccl_compute(operation, &error)) {
	case NCCL_WAITING:
		return false;
	case NCCL_BROKEN:
		stop_driving(comm, error);
		return true;
	default:
		acknowledge(comm, operation);
		operation->received = true;
		while ((operation = first_received(comm)) != NULL)
			pop(comm, operation);
		return true;
	}
}

/* Fails the communicator if the oldest operation, or the log, waits for a rank that will never act. */
static bool find_dead(struct ncclComm *comm)
{
	struct nccl_operation *operation;
	enum nccl_peer state;
	int rank;

	pthread_mutex_lock(&comm->lock);
	operation = comm->first;
	pthread_mutex_unlock(&comm->lock);
	if (!operation)
		return false;
	rank = operation->published ? nccl_missing(operation) : nccl_segment_stuck(comm->segment);
	if (rank < 0)
		return false;
	state = nccl_segment_peer(comm->segment, rank);
	if (rank == comm->rank) /* this rank published, but its entry is gone */
		stop_driving(comm, nccl_fail(ncclInternalError, "the shared file was overwritten"));
	else if (state == NCCL_PEER_HERE || (operation->published && nccl_missing(operation) != rank))
		return false; /* it is alive, or published before it left */
	else
		stop_driving(comm, nccl_fail(ncclRemoteError, "rank %d %s before its %s", rank,
					     state == NCCL_PEER_DEAD ? "has died" : "has left the communicator",
					     nccl_function_name(operation->call.function)));
	return true;
}

/* -- driving ----------------------------------------------------------------------------------------------------- */

/* Waits until no other thread drives, and drives. Lock held. False: this thread drives already, inside a step. */
static bool begin_driving(struct ncclComm *comm)
{
	while (comm->driving) {
		if (pthread_equal(comm->driver, pthread_self()))
			return false;
		pthread_cond_wait(&comm->moved, &comm->lock);
	}
	comm->driving = true;
	comm->driver = pthread_self();
	return true;
}

/* Lock held. */
static void end_driving(struct ncclComm *comm)
{
	comm->driving = false;
	pthread_cond_broadcast(&comm->moved);
}

/* Waits for what blocks the oldest operation: an operation of another communicator, or else a peer. */
static void wait_once(struct ncclComm *comm, uint32_t bell)
{
	struct ncclComm *older = NULL;
	uint64_t ticket = 0;

	pthread_mutex_lock(&comm->lock);
	if (comm->first)
		older = nccl_find_older(comm->first, &ticket);
	pthread_mutex_unlock(&comm->lock);
	if (older) {
		nccl_advance(older, ticket + 1, true);
		nccl_comm_release(older);
		return;
	}
	nccl_segment_wait(comm->segment, bell, NCCL_POLL_MS);
}

/* Publishes and completes what is ready, and checks for dead peers. True: the queue changed. */
static bool step(struct ncclComm *comm)
{
	bool moved;

	if (atomic_load(&comm->error) != ncclSuccess) {
		stop_driving(comm, ncclSuccess);
		return true;
	}
	moved = publish(comm);
	moved |= complete(comm);
	return moved || find_dead(comm);
}

void nccl_advance(struct ncclComm *comm, uint64_t ticket, bool wait)
{
	pthread_mutex_lock(&comm->lock);
	while (comm->first && (!wait || comm->completed < ticket) && begin_driving(comm)) {
		uint32_t bell = nccl_segment_bell(comm->segment);
		bool moved;

		pthread_mutex_unlock(&comm->lock);
		moved = step(comm);
		pthread_mutex_lock(&comm->lock);
		end_driving(comm);
		if (moved)
			continue;
		if (!wait)
			break;
		pthread_mutex_unlock(&comm->lock);
		wait_once(comm, bell);
		pthread_mutex_lock(&comm->lock);
	}
	pthread_mutex_unlock(&comm->lock);
}

bool nccl_begin_driving(struct ncclComm *comm)
{
	bool driving;

	pthread_mutex_lock(&comm->lock);
	driving = begin_driving(comm);
	pthread_mutex_unlock(&comm->lock);
	return driving;
}

void nccl_end_driving(struct ncclComm *comm)
{
	pthread_mutex_lock(&comm->lock);
	end_driving(comm);
	pthread_mutex_unlock(&comm->lock);
}

void nccl_stop(struct ncclComm *comm, ncclResult_t error)
{
	bool driving = nccl_begin_driving(comm);

	stop_driving(comm, error);
	if (driving)
		nccl_end_driving(comm);
	if (comm->segment)
		nccl_segment_ring(comm->segment);
}

bool nccl_is_behind(struct ncclComm *comm)
{
	bool behind;

	pthread_mutex_lock(&comm->lock);
	behind = comm->unpublished && (comm->crowded || comm->waiting_bytes > NCCL_WAITING_LIMIT);
	pthread_mutex_unlock(&comm->lock);
	return behind;
}

bool nccl_is_finalizing(struct ncclComm *comm)
{
	bool finalizing;

	pthread_mutex_lock(&comm->lock);
	finalizing = comm->phase == NCCL_PHASE_FINALIZED && comm->first;
	pthread_mutex_unlock(&comm->lock);
	return finalizing;
}

uint64_t nccl_issued(struct ncclComm *comm)
{
	uint64_t issued;

	pthread_mutex_lock(&comm->lock);
	issued = comm->issued;
	pthread_mutex_unlock(&comm->lock);
	return issued;
}

/* -- issuing ----------------------------------------------------------------------------------------------------- */

static void open_gate(void *argument)
{
	struct nccl_operation *operation = argument;

	nccl_advance(operation->call.comm, operation->ticket + 1, true);
	release(operation);
}

/* The result no longer matters; the peers still need this rank's data. */
static void drop_gate(void *argument) { release(argument); }

static bool gate_is_ready(void *argument)
{
	const struct nccl_operation *operation = argument;
	struct ncclComm *comm = operation->call.comm;
	bool ready;

	nccl_advance(comm, 0, false);
	pthread_mutex_lock(&comm->lock);
	ready = comm->completed > operation->ticket;
	pthread_mutex_unlock(&comm->lock);
	return ready;
}

/* Waits for the driver, if there is one: it may be writing. */
static void supersede_gate(void *argument)
{
	struct nccl_operation *operation = argument;
	struct ncclComm *comm = operation->call.comm;
	uint64_t whole = operation->call.destination - operation->call.place;
	bool driving = nccl_begin_driving(comm);
	struct nccl_operation *one;

	pthread_mutex_lock(&comm->lock);
	for (one = comm->first; one && one->ticket < operation->ticket; one = one->next)
		if (one->call.stride && one->call.destination - one->call.place == whole)
			one->superseded = true; /* the other pieces */
	pthread_mutex_unlock(&comm->lock);
	operation->superseded = true;
	if (driving)
		nccl_end_driving(comm);
}

static const struct runtime_gate gate_functions = {
	.open = open_gate,
	.drop = drop_gate,
	.ready = gate_is_ready,
	.supersede = supersede_gate,
};

static bool pack(struct nccl_operation *operation, bool large)
{
	struct nccl_parts source = nccl_source_of(&operation->call);
	bool exact = operation->call.type <= ncclUint64;

	for (uint64_t i = 0; i < source.count; i++) {
		uint64_t at = source.address + i * source.stride;
		enum runtime_known known = nccl_services()->known(at, source.bytes, large, exact);
		operation->known = known > operation->known ? known : operation->known;
	}
	operation->packed.lost = operation->known == KNOWN_MISSING;
	return operation->packed.lost || nccl_sparse_pack(nccl_services(), &source, &operation->packed);
}

static struct nccl_operation *create(const struct nccl_call *call, bool large)
{
	struct nccl_operation *operation = calloc(1, sizeof *operation);

	if (!operation)
		return NULL;
	operation->call = *call;
	operation->destination_bytes = nccl_destination_bytes(call);
	operation->references = 1;
	if (!pack(operation, large)) {
		free(operation);
		return NULL;
	}
	if (call->reduction == NCCL_REDUCE_PREMULTIPLIED)
		nccl_premultiply(call, &operation->packed);
	nccl_comm_hold(call->comm);
	return operation;
}

static void enqueue(struct ncclComm *comm, struct nccl_operation *operation)
{
	const struct nccl_call *call = &operation->call;
	bool first;

	nccl_list(operation);
	pthread_mutex_lock(&comm->lock);
	first = !comm->messages && nccl_is_of_messages(call->function);
	comm->messages |= first;
	operation->ticket = comm->issued++;
	if (call->function == NCCL_SEND)
		operation->number = comm->sent[call->root]++;
	else if (call->function == NCCL_RECV)
		operation->number = comm->expected[call->root]++;
	else
		operation->number = comm->collectives++;
	*comm->last = operation;
	comm->last = &operation->next;
	comm->waiting_bytes += operation->packed.bytes;
	if (!comm->unpublished)
		comm->unpublished = operation;
	pthread_mutex_unlock(&comm->lock);
	if (first)
		nccl_tally_messages(comm);
}

/* Does the parts of a call that happen once. True: the call is done, with *ret_result. */
static bool begin(const struct nccl_call *call, ncclResult_t *ret_result)
{
	const char *name = nccl_function_name(call->function);
	int error = nccl_services()->launch(call->stream, name);

	*ret_result = error ? nccl_fail(ncclUnhandledCudaError, "%s: the stream answered CUDA error %d", name, error)
			    : ncclSuccess;
	if (error == 0)
		nccl_tell_uses(call);
	if (error != 0 || nccl_copy_alone(call, ret_result))
		return true;
	if (!nccl_is_capturing(call->stream))
		return false;
	nccl_services()->tally(GAP_TRANSFER, NCCL_LIBRARY, name, 0, 0);
	return true;
}

/* `whole`: the call whose last piece this is; NULL: another piece follows. */
static ncclResult_t issue(const struct nccl_call *call, const struct nccl_call *whole, bool large)
{
	const struct runtime_services *services = nccl_services();
	const char *name = nccl_function_name(call->function);
	struct nccl_operation *operation = create(call, large);

	if (!operation)
		return nccl_fail(ncclSystemError, "%s: host out of memory", name);
	if (operation->packed.lost && operation->known == KNOWN_NOTHING_COMPUTED)
		services->tally(GAP_TRANSFER, NCCL_LIBRARY, name, 0, 0);
	if (whole)
		atomic_fetch_add(&operation->references, 1);
	enqueue(call->comm, operation);
	if (whole && !services->gate(call->stream, whole->destination, nccl_destination_bytes(whole), &gate_functions,
				     operation)) {
		release(operation);
		return nccl_fail(ncclSystemError, "%s: host out of memory", name);
	}
	nccl_advance(call->comm, 0, false);
	return ncclSuccess;
}

ncclResult_t nccl_issue(const struct nccl_call *call, uint64_t piece, bool *ret_more)
{
	int device = nccl_services()->device();
	ncclResult_t result = ncclSuccess;
	struct nccl_call cut = *call, next;
	bool large = nccl_is_large(call), more;

	if (piece > 0 && (!large || !nccl_cut(call, piece, &cut)))
		return ncclSuccess;
	nccl_use_device(call->comm->device);
	if (piece > 0 || !begin(call, &result)) {
		if (piece == 0 && large)
			(void)nccl_cut(call, 0, &cut);
		more = large && nccl_cut(call, piece + 1, &next);
		result = issue(&cut, more ? NULL : call, large);
		*ret_more |= more;
	}
	nccl_use_device(device);
	return result;
}
