/* Counts the most device memory that NCCL itself takes for each communicator; ../nccl.md has the sources. It is not
 * charged to the device. */
#include "sim/libraries/nccl/comm.h"

#define MIB              (1ull << 20)
#define OWN_BYTES        (768 * MIB) /* its state and code, and the buffer that messages over a network share */
#define SWITCH_BYTES     (384 * MIB) /* NVLS, of GPUs behind an NVSwitch */
#define CONNECTION_BYTES (12 * MIB)  /* to and from a peer, in one channel */
#define COLLECTIVE_PEERS 3           /* of a rank in a channel: its neighbours in the ring and in the tree */
#define MESSAGE_PEERS    7

/* The most bytes that connections to so many peers take, in all channels. */
static uint64_t connections(const struct ncclComm *comm, int peer_limit)
{
	int capability = 0, processors, peers = comm->ranks - 1 < peer_limit ? comm->ranks - 1 : peer_limit;
	int channels = 64, given = comm->options.channel_limit;

	if (nccl_services()->architecture(comm->device, &capability, &processors) && capability < 100)
		channels = 32;
	if (given > 0 && given < channels)
		channels = given;
	return (uint64_t)peers * (uint64_t)channels * CONNECTION_BYTES;
}

void nccl_tally_memory(const struct ncclComm *comm)
{
	uint64_t bytes = OWN_BYTES + connections(comm, COLLECTIVE_PEERS);
	int capability = 0, processors;

	if (comm->ranks > 1 && nccl_services()->architecture(comm->device, &capability, &processors) &&
	    (capability == 90 || capability / 10 == 10))
		bytes += SWITCH_BYTES;
	nccl_services()->tally(GAP_WORKSPACE, NCCL_LIBRARY, "ncclCommInitRank", 0, bytes);
}

void nccl_tally_messages(const struct ncclComm *comm)
{
	if (comm->ranks > 1)
		nccl_services()->tally(GAP_WORKSPACE, NCCL_LIBRARY, "ncclSend", 0, connections(comm, MESSAGE_PEERS));
}

bool nccl_is_of_messages(enum nccl_function function)
{
	return function == NCCL_SEND || function == NCCL_RECV || function == NCCL_ALL_TO_ALL ||
	       function == NCCL_GATHER;
}
