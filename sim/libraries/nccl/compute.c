/* What each operation needs from its peers, and what it writes.
 *
 * A *part* is `count` elements. R ranks; "all" is one part for each rank, in rank order.
 *
 *   function        source          destination        needs the entries of
 *   Reduce          part            root: part         root: all
 *   Broadcast       root: part      part               root
 *   AllReduce       part            part               all
 *   ReduceScatter   all             part               all
 *   AllGather       part            all                all
 *   AlltoAll        all             all                all
 *   Gather          part            root: all          root: all
 *   Send, Recv      Send: part      Recv: part         Recv: the sender
 *
 * If this rank's own part is in place, it is left alone. Of a piece of a larger call, a part is the piece's range of
 * each whole part: its parts are `stride` bytes apart in memory, and side by side in the packed form.
 */
#include "sim/libraries/nccl/comm.h"
#include "sim/libraries/nccl/fail.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
	[NCCL_REDUCE] = "ncclReduce",
	[NCCL_BROADCAST] = "ncclBroadcast",
	[NCCL_ALL_REDUCE] = "ncclAllReduce",
	[NCCL_REDUCE_SCATTER] = "ncclReduceScatter",
	[NCCL_ALL_GATHER] = "ncclAllGather",
	[NCCL_ALL_TO_ALL] = "ncclAlltoAll",
	[NCCL_GATHER] = "ncclGather",
	[NCCL_SEND] = "ncclSend",
	[NCCL_RECV] = "ncclRecv",
};

static const char *const reductions[] = {"sum", "product", "maximum", "minimum", "average", "premultiplied sum"};

const char *nccl_function_name(enum nccl_function function)
{
	return function < NCCL_FUNCTION_COUNT ? names[function] : "another function";
}

bool nccl_is_message(enum nccl_function function) { return function == NCCL_SEND || function == NCCL_RECV; }

static bool reduces(enum nccl_function function)
{
	return function == NCCL_REDUCE || function == NCCL_ALL_REDUCE || function == NCCL_REDUCE_SCATTER;
}

static bool has_root(enum nccl_function function)
{
	return function == NCCL_REDUCE || function == NCCL_BROADCAST || function == NCCL_GATHER;
}

static uint64_t part_bytes(const struct nccl_call *call) { return call->count * nccl_type_bytes(call->type); }

static uint64_t stride_of(const struct nccl_call *call) { return call->stride ? call->stride : part_bytes(call); }

/* The source holds a part for each rank. */
static bool has_all(enum nccl_function function)
{
	return function == NCCL_REDUCE_SCATTER || function == NCCL_ALL_TO_ALL;
}

/* Where the part of a rank begins in the packed form of a source that holds all. */
static uint64_t packed_place(const struct nccl_call *call, int rank)
{
	return (uint64_t)rank * (call->stride ? nccl_sparse_stride(part_bytes(call)) : part_bytes(call));
}

bool nccl_is_large(const struct nccl_call *call)
{
	uint64_t parts = has_all(call->function) ? (uint64_t)call->comm->ranks : 1;

	return part_bytes(call) > NCCL_PACKED_LIMIT / parts &&
	       nccl_services()->known(0, 0, false, false) != KNOWN_NOTHING_COMPUTED;
}

bool nccl_cut(const struct nccl_call *call, uint64_t piece, struct nccl_call *ret_piece)
{
	uint64_t parts = has_all(call->function) ? (uint64_t)call->comm->ranks : 1, part = part_bytes(call);
	uint64_t most = NCCL_PACKED_LIMIT / parts / NCCL_BLOCK * NCCL_BLOCK, place = piece * most;

	if (place >= part)
		return false;
	*ret_piece = *call;
	ret_piece->stride = part;
	ret_piece->place = place;
	ret_piece->source += place;
	ret_piece->destination += place;
	ret_piece->count = (part - place < most ? part - place : most) / nccl_type_bytes(call->type);
	return true;
}

static bool is_root(const struct nccl_call *call) { return call->root == call->comm->rank; }

/* In the packed form. */
static uint64_t source_bytes_of(const struct nccl_call *call, int rank)
{
	if (has_all(call->function))
		return packed_place(call, call->comm->ranks);
	return call->function == NCCL_BROADCAST && rank != call->root ? 0 : part_bytes(call);
}

struct nccl_parts nccl_source_of(const struct nccl_call *call)
{
	bool all = has_all(call->function);
	struct nccl_parts parts = {call->source, part_bytes(call), stride_of(call), 1};

	if (call->function == NCCL_RECV || (call->function == NCCL_BROADCAST && !is_root(call)) || parts.bytes == 0)
		return (struct nccl_parts){0};
	if (all && call->stride)
		parts.count = (uint64_t)call->comm->ranks;
	else if (all)
		parts.bytes *= (uint64_t)call->comm->ranks;
	return parts;
}

uint64_t nccl_destination_bytes(const struct nccl_call *call)
{
	uint64_t part = part_bytes(call), all = part ? stride_of(call) * (uint64_t)(call->comm->ranks - 1) + part : 0;

	switch (call->function) {
	case NCCL_REDUCE:
		return is_root(call) ? part : 0;
	case NCCL_BROADCAST:
		return is_root(call) && call->source == call->destination ? 0 : part;
	case NCCL_GATHER:
		return is_root(call) ? all : 0;
	case NCCL_ALL_GATHER:
	case NCCL_ALL_TO_ALL:
		return all;
	case NCCL_SEND:
		return 0;
	default:
		return part;
	}
}

struct nccl_entry nccl_entry_of(const struct nccl_operation *operation)
{
	const struct nccl_call *call = &operation->call;
	bool message = nccl_is_message(call->function);

	return (struct nccl_entry){
		.kind = message ? NCCL_MESSAGE : NCCL_COLLECTIVE,
		.flags = (operation->packed.lost ? NCCL_LOST : 0) |
			 (operation->known == KNOWN_LIKELY ? NCCL_LIKELY : 0),
		.number = operation->number,
		.to = message ? call->root : -1,
		.function = (int32_t)call->function,
		.type = call->type,
		.reduction = reduces(call->function) ? (int32_t)call->reduction : -1,
		.root = has_root(call->function) ? call->root : -1,
		.bytes = stride_of(call),
		.words = {call->place, call->stride ? part_bytes(call) : 0},
	};
}

/* -- entries of the peers ---------------------------------------------------------------------------------------- */

static bool needs(const struct nccl_call *call, int rank)
{
	switch (call->function) {
	case NCCL_REDUCE:
	case NCCL_GATHER:
		return is_root(call);
	case NCCL_BROADCAST:
	case NCCL_RECV:
		return rank == call->root;
	case NCCL_SEND:
		return false;
	default:
		return true;
	}
}

static enum nccl_kind kind_of(const struct nccl_call *call)
{
	return nccl_is_message(call->function) ? NCCL_MESSAGE : NCCL_COLLECTIVE;
}

int nccl_missing(const struct nccl_operation *operation)
{
	const struct nccl_call *call = &operation->call;
	struct nccl_entry entry;
	int i;

	for (i = 0; i < call->comm->ranks; i++)
		if (needs(call, i) &&
		    !nccl_segment_find(call->comm->segment, i, kind_of(call), operation->number, &entry))
			return i;
	return -1;
}

static const char *reduction_name(int32_t reduction)
{
	return reduction < 0 || reduction > NCCL_REDUCE_PREMULTIPLIED ? "no reduction" : reductions[reduction];
}

static ncclResult_t disagree(const struct nccl_operation *operation, int rank, const struct nccl_entry *theirs)
{
	const struct nccl_call *call = &operation->call;
	struct nccl_entry ours = nccl_entry_of(operation);

	if (call->function == NCCL_RECV)
		return nccl_fail(
			ncclInvalidUsage,
			"rank %d sends %llu bytes, rank %d receives %llu in its ncclRecv number %llu of that rank",
			rank, (unsigned long long)theirs->bytes, call->comm->rank, (unsigned long long)ours.bytes,
			(unsigned long long)operation->number);
	return nccl_fail(ncclInvalidUsage,
			 "ranks disagree on collective %llu: rank %d called %s (%llu bytes a part, %s, %s, root %d), "
			 "rank %d called %s (%llu bytes a part, %s, %s, root %d)",
			 (unsigned long long)operation->number, call->comm->rank, nccl_function_name(call->function),
			 (unsigned long long)ours.bytes, nccl_type_name(ours.type), reduction_name(ours.reduction),
			 ours.root, rank, nccl_function_name((enum nccl_function)theirs->function),
			 (unsigned long long)theirs->bytes, nccl_type_name(theirs->type),
			 reduction_name(theirs->reduction), theirs->root);
}

static bool agrees(const struct nccl_operation *operation, const struct nccl_entry *theirs)
{
	struct nccl_entry ours = nccl_entry_of(operation);

	if (ours.bytes != theirs->bytes || ours.words[0] != theirs->words[0] || ours.words[1] != theirs->words[1])
		return false;
	if (operation->call.function == NCCL_RECV)
		return theirs->function == NCCL_SEND;
	return ours.function == theirs->function && ours.root == theirs->root &&
	       ours.reduction == theirs->reduction &&
	       (!reduces(operation->call.function) || ours.type == theirs->type);
}

/* One rank's contribution. */
struct input {
	void *data; /* malloc'ed; `sparse` points into it */
	struct nccl_sparse sparse;
	bool lost;
	enum runtime_known known;
};

static ncclResult_t fetch(const struct nccl_operation *operation, int rank, struct input *ret_input)
{
	const struct nccl_call *call = &operation->call;
	uint64_t total = source_bytes_of(call, rank);
	struct nccl_entry entry;
	size_t bytes;

	if (!nccl_segment_find(call->comm->segment, rank, kind_of(call), operation->number, &entry))
		return nccl_fail(ncclInternalError, "rank %d withdrew its entry", rank);
	if (!agrees(operation, &entry))
		return disagree(operation, rank, &entry);
	ret_input->lost = (entry.flags & NCCL_LOST) != 0;
	ret_input->known = ret_input->lost ? KNOWN_MISSING : entry.flags & NCCL_LIKELY ? KNOWN_LIKELY : KNOWN_TRUE;
	if (!nccl_segment_data(call->comm->segment, rank, kind_of(call), operation->number, &ret_input->data,
			       &bytes) ||
	    !nccl_sparse_open(ret_input->data, bytes, total, &ret_input->sparse))
		return nccl_fail(ncclInternalError, "the entry of rank %d for %s cannot be read", rank,
				 nccl_function_name(call->function));
	return ncclSuccess;
}

/* -- results ----------------------------------------------------------------------------------------------------- */

struct scratch {
	unsigned char bytes[NCCL_BLOCK];
	union nccl_wide sum[NCCL_BLOCK], next[NCCL_BLOCK];
};

static uint64_t first_of(const struct input *inputs, int ranks, uint64_t offset)
{
	uint64_t first = UINT64_MAX, next;
	int i;

	for (i = 0; i < ranks; i++) {
		next = nccl_sparse_next(&inputs[i].sparse, offset);
		if (next < first)
			first = next;
	}
	return first;
}

/* One block of the result, at `offset` of the sources, into scratch->bytes. */
static void reduce_block(const struct nccl_call *call, const struct input *inputs, uint64_t offset, size_t bytes,
			 struct scratch *scratch)
{
	size_t count = bytes / nccl_type_bytes(call->type);
	int i;

	for (i = 0; i < call->comm->ranks; i++) {
		nccl_sparse_read(&inputs[i].sparse, offset, scratch->bytes, bytes);
		nccl_widen(call->type, scratch->bytes, count, i == 0 ? scratch->sum : scratch->next);
		if (i > 0)
			nccl_combine(call->type, call->reduction, count, scratch->sum, scratch->next);
	}
	nccl_narrow(call->type, call->reduction, call->comm->ranks, count, scratch->sum, scratch->bytes);
}

/* Skips blocks that are empty on all ranks: any reduction of zeros is zero. False: host out of memory. */
static bool reduce(const struct nccl_call *call, const struct input *inputs)
{
	const struct runtime_services *services = nccl_services();
	uint64_t part = part_bytes(call),
		 start = call->function == NCCL_REDUCE_SCATTER ? packed_place(call, call->comm->rank) : 0;
	enum runtime_known worst = KNOWN_TRUE;
	uint64_t at = start;
	struct scratch *scratch;
	bool stored = true;
	int i;

	services->forget(call->destination, part);
	for (i = 0; i < call->comm->ranks; i++)
		worst = inputs[i].known > worst ? inputs[i].known : worst;
	services->mark(call->destination, part, worst);
	if (worst == KNOWN_MISSING)
		return true;
	scratch = malloc(sizeof *scratch);
	if (!scratch)
		return false;
	while (stored && (at = first_of(inputs, call->comm->ranks, at)) < start + part) {
		size_t bytes = start + part - at < NCCL_BLOCK ? start + part - at : NCCL_BLOCK;

		reduce_block(call, inputs, at, bytes, scratch);
		stored = services->write(call->destination + (at - start), scratch->bytes, bytes);
		at += bytes;
	}
	free(scratch);
	return stored;
}

/* Copies one part. False: host out of memory. */
static bool move(const struct input *input, uint64_t offset, uint64_t part, uint64_t destination)
{
	const struct runtime_services *services = nccl_services();
	unsigned char block[NCCL_BLOCK];
	uint64_t at = offset;

	services->forget(destination, part);
	services->mark(destination, part, input->known);
	while (!input->lost && (at = nccl_sparse_next(&input->sparse, at)) < offset + part) {
		size_t bytes = offset + part - at < NCCL_BLOCK ? offset + part - at : NCCL_BLOCK;

		nccl_sparse_read(&input->sparse, at, block, bytes);
		if (!services->write(destination + (at - offset), block, bytes))
			return false;
		at += bytes;
	}
	return true;
}

static bool move_from(const struct nccl_call *call, int rank, const struct input *input)
{
	uint64_t offset = 0, source = call->source, destination = call->destination;

	if (call->function == NCCL_ALL_TO_ALL) {
		offset = packed_place(call, call->comm->rank);
		source += stride_of(call) * (uint64_t)call->comm->rank;
	}
	if (call->function == NCCL_ALL_TO_ALL || call->function == NCCL_ALL_GATHER || call->function == NCCL_GATHER)
		destination += stride_of(call) * (uint64_t)rank;
	if (rank == call->comm->rank && call->function != NCCL_RECV && source == destination)
		return true; /* in place */
	return move(input, offset, part_bytes(call), destination);
}

static bool write_result(const struct nccl_call *call, const struct input *inputs)
{
	int i;

	if (reduces(call->function))
		return reduce(call, inputs);
	for (i = 0; i < call->comm->ranks; i++)
		if (needs(call, i) && !move_from(call, i, &inputs[i]))
			return false;
	return true;
}

enum nccl_outcome nccl_compute(const struct nccl_operation *operation, ncclResult_t *ret_error)
{
	const struct nccl_call *call = &operation->call;
	struct input *inputs;
	int i;

	if (nccl_missing(operation) >= 0)
		return NCCL_WAITING;
	*ret_error = ncclSuccess;
	inputs = calloc((size_t)call->comm->ranks, sizeof *inputs);
	if (!inputs)
		*ret_error = nccl_fail(ncclSystemError, "host out of memory");
	for (i = 0; i < call->comm->ranks && *ret_error == ncclSuccess; i++)
		if (needs(call, i))
			*ret_error = fetch(operation, i, &inputs[i]);
	if (*ret_error == ncclSuccess && operation->destination_bytes && !operation->superseded &&
	    !write_result(call, inputs))
		*ret_error = nccl_fail(ncclSystemError, "host out of memory for the result of %s",
				       nccl_function_name(call->function));
	for (i = 0; inputs && i < call->comm->ranks; i++)
		free(inputs[i].data);
	free(inputs);
	return *ret_error == ncclSuccess ? NCCL_DONE : NCCL_BROKEN;
}

void nccl_premultiply(const struct nccl_call *call, struct nccl_packed *packed)
{
	struct nccl_sparse sparse;
	size_t table;

	if (packed->bytes == 0 || !nccl_sparse_open(packed->data, packed->bytes, UINT64_MAX, &sparse))
		return;
	table = (size_t)(sparse.bytes - (unsigned char *)packed->data);
	nccl_multiply(call->type, (packed->bytes - table) / nccl_type_bytes(call->type),
		      (unsigned char *)packed->data + table, call->scalar);
}

void nccl_tell_uses(const struct nccl_call *call)
{
	struct nccl_parts source = nccl_source_of(call);
	struct neap_sim_touch touches[] = {
		{source.address, source.bytes * (source.count ? source.count : 1), NEAP_SIM_READS},
		{call->destination, nccl_destination_bytes(call), NEAP_SIM_WRITES}};

	if (nccl_services()->uses)
		nccl_services()->uses(call->stream, nccl_function_name(call->function), touches, 2);
}

bool nccl_copy_alone(const struct nccl_call *call, ncclResult_t *ret_result)
{
	int (*copy)(uint64_t to, uint64_t from, size_t bytes, void *stream) = NULL;
	void *symbol = nccl_symbol("cuMemcpyDtoDAsync_v2");
	uint64_t bytes = part_bytes(call);
	int error = 0;

	if (call->comm->ranks != 1 || nccl_is_message(call->function) ||
	    call->reduction == NCCL_REDUCE_PREMULTIPLIED || !symbol)
		return false;
	memcpy(&copy, &symbol, sizeof copy);
	if (bytes != 0 && call->source != call->destination)
		error = copy(call->destination, call->source, bytes, call->stream);
	*ret_result = error == 0 ? ncclSuccess
				 : nccl_fail(ncclUnhandledCudaError, "%s: the copy answered CUDA error %d",
					     nccl_function_name(call->function), error);
	return true;
}
