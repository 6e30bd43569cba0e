/* sim/libraries/nccl/comm.h: a communicator of one rank, and its operations.
 *
 *   ncclAllReduce(...) --issue--> pack the source, publish it, queue the operation --gate--> the program goes on
 *                                              |
 *        gate opens, or any later call    advance: the oldest operation, once the peers' entries are there,
 *                                                  is computed and written to its destination
 *
 * A query of the stream opens the gate once that needs no waiting. Overwriting or freeing the destination meanwhile
 * supersedes the operation: it completes, but writes nothing.
 *
 * Operations of a communicator complete in issue order, as in NCCL, but a message that has arrived is received while
 * an older operation waits: otherwise, ranks that send each other more than the log can hold would wait forever. An
 * operation is published when it is issued, or once the log has room; publishing never waits. So a rank waits for its
 * peers in four places only: while it initialises, in a gate, at the end of a group when its log is full or
 * NCCL_WAITING_LIMIT bytes wait for room in it, and when it finalises.
 *
 * Where values are computed on the host, every byte of a buffer counts. A call of more than NCCL_PACKED_LIMIT bytes
 * then becomes several operations, *pieces*, of the same range of each part (compute.c):
 *
 *   parts    |aaabbbc|aaabbbc|aaabbbc|        piece a, piece b, piece c
 *
 * A group issues the first piece of each of its calls, then the second ones, and so on: so no call waits for all of
 * another. The last piece has the gate, over the whole destination.
 *
 * Two operations of different communicators with overlapping destinations also complete in issue order: a list of all
 * unfinished operations of the process keeps it.
 *
 * Threads: a communicator has a lock for its queue and flags; one thread at a time *drives* it (reads and writes the
 * segment, computes) without the lock, and never waits while it does. The list of operations has its own lock, never
 * taken together with another. A communicator lives until its last operation's gate is freed.
 */
#ifndef NEAP_RUNTIME_LIBRARIES_NCCL_COMM_H
#define NEAP_RUNTIME_LIBRARIES_NCCL_COMM_H

#include "sim/libraries/nccl/number.h"
#include "sim/libraries/nccl/segment.h"
#include "sim/libraries/nccl/sparse.h"

#include <pthread.h>
#include <stdatomic.h>

#define NCCL_LIBRARY "NCCL"
/* How often a waiting rank checks for dead peers. */
#define NCCL_POLL_MS 20
/* Bytes of data that a communicator keeps in this process until its log has room. */
#define NCCL_WAITING_LIMIT (256ull << 20)

enum nccl_function {
	NCCL_REDUCE,
	NCCL_BROADCAST,
	NCCL_ALL_REDUCE,
	NCCL_REDUCE_SCATTER,
	NCCL_ALL_GATHER,
	NCCL_ALL_TO_ALL,
	NCCL_GATHER,
	NCCL_SEND,
	NCCL_RECV,
	NCCL_FUNCTION_COUNT,
};

/* The arguments of a call. */
struct nccl_call {
	enum nccl_function function;
	struct ncclComm *comm;
	void *stream;
	uint64_t source, destination;
	uint64_t count;  /* of elements of a part, as passed; a piece's are fewer */
	uint64_t stride; /* a piece: bytes of memory from one part to the next; else 0 */
	uint64_t place;  /* a piece: where in its part it begins */
	int type;
	enum nccl_reduction reduction;
	unsigned char scalar[8]; /* NCCL_REDUCE_PREMULTIPLIED; of the type */
	int root;                /* or the peer of a message */
};

struct nccl_operation {
	struct nccl_operation *next;          /* in its communicator's queue */
	struct nccl_operation *older, *newer; /* in the process's list, while it has a destination to write */
	struct nccl_call call;
	uint64_t ticket; /* its place in the communicator's queue, from 0 */
	uint64_t number; /* number of the collective, or of the message to or from its peer */
	uint64_t destination_bytes;
	struct nccl_packed packed; /* until it is published */
	enum runtime_known known;  /* of the source */
	bool published, listed;
	bool received;         /* before an older one was complete: it only waits for its turn to leave the queue */
	bool superseded;       /* the program has overwritten the destination: do not write there */
	atomic_int references; /* the queue's, and the gate's if it has one */
};

enum nccl_phase {
	NCCL_PHASE_EXCHANGING, /* a child: its ranks are not known yet */
	NCCL_PHASE_JOINING,    /* not all ranks have arrived */
	NCCL_PHASE_READY,
	NCCL_PHASE_REVOKED, /* no more operations */
	NCCL_PHASE_FINALIZED,
};

/* For a child that must learn from its parent's ranks before it can join. */
struct nccl_birth {
	struct ncclComm *parent; /* referenced */
	uint64_t exchange;       /* its number */
	bool grow;               /* ncclCommGrow; else ncclCommSplit */
	int color;               /* split */
	int ranks;               /* grow */
};

/* Settings from ncclConfig_t, the environment and the parent. */
struct nccl_options {
	bool blocking;
	int channel_limit; /* 0: none */
};

struct ncclComm {
	pthread_mutex_t lock;
	pthread_cond_t moved; /* the driver stepped down, or the queue got shorter */
	atomic_int references;
	unsigned int process; /* nccl_process at its creation: a forked child may not use it */

	int ranks, rank, device;
	struct nccl_options options;
	uint64_t id[2];
	struct nccl_segment *segment; /* NULL while exchanging; stays mapped until the last reference is dropped */
	bool left;                    /* it left the segment */
	enum nccl_phase phase;
	uint64_t deadline_ns; /* of the initialisation */
	struct nccl_birth birth;
	uint64_t exchanges, shrinks;         /* started on this communicator */
	uint64_t exchanged, exchanged_later; /* exchanges read: all below `exchanged`; a bit for each from there on */
	bool grow_id_given;                  /* by ncclCommGetUniqueId, not used yet */
	atomic_int unborn;                   /* children that still exchange: this one is in progress */
	struct ncclComm *previous, *next;    /* in the list of the process's communicators */

	_Atomic ncclResult_t error; /* asynchronous */

	/* The queue: issued but not complete. `unpublished` is its first operation that is not in the log yet. */
	struct nccl_operation *first, **last, *unpublished;
	uint64_t issued, completed;
	uint64_t waiting_bytes;    /* packed, of the unpublished */
	bool crowded;              /* publishing waits for a free entry of the log */
	uint64_t collectives;      /* issued */
	uint64_t *sent, *expected; /* messages issued to and from each rank */
	uint64_t *taken;           /* messages received from each rank; the driver's */
	bool messages;             /* there were some, or calls that NCCL carries out by messages */
	bool driving;
	pthread_t driver;

	struct {
		bool used;
		int type, residence;
		unsigned char value[8];
		uint64_t address;
	} scalars[64]; /* of ncclRedOpCreatePreMulSum */
};

extern unsigned int nccl_process; /* changes in a forked child */

/* NULL: the process's libcudart is not neap's. */
const struct runtime_services *nccl_services(void);
/* A function of the process's libcudart or driver; NULL: not found. */
void *nccl_symbol(const char *name);
/* A captured call would run at each launch of its graph; no data moves then. */
bool nccl_is_capturing(void *stream);
/* Makes a device current, if it is not; false: the runtime refused. */
bool nccl_use_device(int device);
uint64_t nccl_now_ns(void);
/* The time that an initialisation waits for its ranks, from the environment. */
uint64_t nccl_patience_ns(void);

/* -- memory.c ---------------------------------------------------------------------------------------------------- */

/* Counts what a new communicator may take, for itself and for collectives. */
void nccl_tally_memory(const struct ncclComm *comm);
/* Counts the buffers for messages, once for each communicator with some. */
void nccl_tally_messages(const struct ncclComm *comm);
/* Whether NCCL carries out such calls by messages. */
bool nccl_is_of_messages(enum nccl_function function);

/* -- operation.c ------------------------------------------------------------------------------------------------- */

/* Packs a piece of the source, queues the operation, publishes operations while the log has room, and puts the gate
 * on the stream. Does not wait for peers, only for older operations that the source depends on. A call has the piece
 * 0, and another after each that sets *ret_more. Returns ncclSuccess, or has called nccl_fail. */
ncclResult_t nccl_issue(const struct nccl_call *call, uint64_t piece, bool *ret_more);
/* Completes operations that are ready; with `wait`, all before `ticket`, or until the communicator fails. */
void nccl_advance(struct ncclComm *comm, uint64_t ticket, bool wait);
/* True while publishing waits for a free entry, or more than NCCL_WAITING_LIMIT bytes wait for room in the log. */
bool nccl_is_behind(struct ncclComm *comm);
/* True while it is finalised and operations are not complete. */
bool nccl_is_finalizing(struct ncclComm *comm);
/* Ends every operation without a result: the destinations read as zeros. Later ones fail with `error`, if it is an
 * error. */
void nccl_stop(struct ncclComm *comm, ncclResult_t error);
/* Operations so far: the ticket of the next one. */
uint64_t nccl_issued(struct ncclComm *comm);

/* -- unfinished.c ------------------------------------------------------------------------------------------------ */

/* Adds an operation, if it has a destination, and removes it. */
void nccl_list(struct nccl_operation *operation);
void nccl_unlist(struct nccl_operation *operation);
/* Finds an older operation of another communicator with an overlapping destination. Returns that communicator, held;
 * NULL: none. */
struct ncclComm *nccl_find_older(const struct nccl_operation *operation, uint64_t *ret_ticket);

/* -- compute.c: one operation whose peers have published --------------------------------------------------------- */

enum nccl_outcome {
	NCCL_DONE,
	NCCL_WAITING, /* for a peer's entry */
	NCCL_BROKEN,  /* nccl_fail was called */
};

const char *nccl_function_name(enum nccl_function function);
bool nccl_is_message(enum nccl_function function);
/* Cuts a piece out of a call. False: the call has no such piece. */
bool nccl_cut(const struct nccl_call *call, uint64_t piece, struct nccl_call *ret_piece);
/* Whether the call is too large for one operation, if all its bytes count. */
bool nccl_is_large(const struct nccl_call *call);
/* The source of this rank; no parts: it has none. */
struct nccl_parts nccl_source_of(const struct nccl_call *call);
/* Reports to the simulator which of this rank's memory the call, just queued, reads and writes. */
void nccl_tell_uses(const struct nccl_call *call);
/* Bytes of memory from the destination's first to its last one; 0: this rank has none. */
uint64_t nccl_destination_bytes(const struct nccl_call *call);
/* The entry that publishes it. */
struct nccl_entry nccl_entry_of(const struct nccl_operation *operation);
/* A rank whose entry it still waits for; -1: none. */
int nccl_missing(const struct nccl_operation *operation);
/* For the driver. Writes the destination. */
enum nccl_outcome nccl_compute(const struct nccl_operation *operation, ncclResult_t *ret_error);
/* Each rank multiplies by its own scalar before it publishes. Zeros stay zeros. */
void nccl_premultiply(const struct nccl_call *call, struct nccl_packed *packed);
/* Does what NCCL does on a communicator of one rank: copies on the stream. False: the call is no such copy, or the
 * driver does not copy. */
bool nccl_copy_alone(const struct nccl_call *call, ncclResult_t *ret_result);

/* -- driving: one thread at a time; operation.c ------------------------------------------------------------------ */

/* False: this thread drives it already. */
bool nccl_begin_driving(struct ncclComm *comm);
void nccl_end_driving(struct ncclComm *comm);

/* -- comm.c: create, join, end ----------------------------------------------------------------------------------- */

void nccl_comm_hold(struct ncclComm *comm);
void nccl_comm_release(struct ncclComm *comm);
/* Leaves the other ranks. Drops the user's reference. */
void nccl_comm_end(struct ncclComm *comm);
/* ncclSuccess for a communicator that this process may use; else nccl_fail was called. */
ncclResult_t nccl_comm_check(const struct ncclComm *comm, const char *function);

ncclResult_t nccl_options_read(const ncclConfig_t *config, const struct ncclComm *parent,
			       struct nccl_options *ret_options);

/* Starts a communicator on the current device. nccl_comms_await waits for its ranks. */
ncclResult_t nccl_comm_begin(const uint64_t id[2], int ranks, int rank, const struct nccl_options *options,
			     struct ncclComm **ret_comm);
/* Advances an initialisation without waiting: ncclInProgress, ncclSuccess, or its error. */
ncclResult_t nccl_comm_poll(struct ncclComm *comm);
/* True while a child does not know its ranks: the parent is in progress. Advances the children. */
bool nccl_comm_has_unborn(struct ncclComm *parent);
/* Waits for the end of all initialisations; nccl_comm_poll then returns each result. */
void nccl_comms_await(struct ncclComm **comms, size_t count);

/* For a birth. NULL: host out of memory. */
struct ncclComm *nccl_comm_create(const struct nccl_options *options);
/* Arrives at the segment of the communicator's id; its ranks and its device are known. */
ncclResult_t nccl_comm_join(struct ncclComm *comm);

/* -- birth.c ----------------------------------------------------------------------------------------------------- */

/* Starts a child communicator. All ranks of `birth->parent` exchange which ranks join; this rank sends `words`. */
ncclResult_t nccl_comm_begin_birth(const struct nccl_birth *birth, const uint64_t words[2],
				   const struct nccl_options *options, struct ncclComm **ret_comm);
/* Driving the child: advances the exchange, and then joins. */
ncclResult_t nccl_comm_poll_birth(struct ncclComm *comm);
/* Called when a child ends while it still exchanges: the parent no longer needs to read that exchange. */
void nccl_comm_give_up_birth(struct ncclComm *comm);

/* -- group.c ----------------------------------------------------------------------------------------------------- */

/* Issues a call, or queues it in the thread's open group. */
ncclResult_t nccl_group_call(const struct nccl_call *call);
/* Waits for communicators that are initialising, now or at the end of the group. If a blocking one fails, ends it and
 * sets its handle to NULL. */
ncclResult_t nccl_group_begun(ncclComm_t *handles, size_t count);
/* Records a failed call in an open group: ncclGroupEnd then fails too. Returns `result`. */
ncclResult_t nccl_group_failed(ncclResult_t result);

#endif
