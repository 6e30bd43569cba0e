/* All unfinished operations of the process that have a destination, the oldest first (comm.h). */
#include "sim/libraries/nccl/comm.h"

static struct {
	pthread_mutex_t lock;
	struct nccl_operation *oldest, *newest;
} unfinished = {.lock = PTHREAD_MUTEX_INITIALIZER};

void nccl_list(struct nccl_operation *operation)
{
	if (operation->destination_bytes == 0)
		return;
	pthread_mutex_lock(&unfinished.lock);
	operation->listed = true;
	operation->older = unfinished.newest;
	if (unfinished.newest)
		unfinished.newest->newer = operation;
	else
		unfinished.oldest = operation;
	unfinished.newest = operation;
	pthread_mutex_unlock(&unfinished.lock);
}

void nccl_unlist(struct nccl_operation *operation)
{
	if (!operation->listed)
		return;
	pthread_mutex_lock(&unfinished.lock);
	operation->listed = false;
	*(operation->older ? &operation->older->newer : &unfinished.oldest) = operation->newer;
	*(operation->newer ? &operation->newer->older : &unfinished.newest) = operation->older;
	pthread_mutex_unlock(&unfinished.lock);
}

struct ncclComm *nccl_find_older(const struct nccl_operation *operation, uint64_t *ret_ticket)
{
	uint64_t start = operation->call.destination, end = start + operation->destination_bytes;
	const struct nccl_operation *other;
	struct ncclComm *comm = NULL;

	if (operation->destination_bytes == 0)
		return NULL;
	pthread_mutex_lock(&unfinished.lock);
	for (other = operation->listed ? operation->older : NULL; other && !comm; other = other->older) {
		if (other->call.comm == operation->call.comm || other->call.destination >= end ||
		    start >= other->call.destination + other->destination_bytes)
			continue;
		comm = other->call.comm;
		*ret_ticket = other->ticket;
		nccl_comm_hold(comm);
	}
	pthread_mutex_unlock(&unfinished.lock);
	return comm;
}

static void before_fork(void) { pthread_mutex_lock(&unfinished.lock); }
static void after_fork(void) { pthread_mutex_unlock(&unfinished.lock); }

static void in_child(void)
{
	unfinished.oldest = unfinished.newest = NULL; /* they are the parent's */
	pthread_mutex_unlock(&unfinished.lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	(void)pthread_atfork(before_fork, after_fork, in_child);
}
