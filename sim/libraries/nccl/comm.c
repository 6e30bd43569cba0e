/* The life of a communicator: created, joined by its ranks, ended. */
#include "sim/libraries/nccl/comm.h"
#include "sim/libraries/nccl/fail.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PATIENCE_NS (600ull * 1000000000ull)

/* -- the process ------------------------------------------------------------------------------------------------- */

unsigned int nccl_process;

static struct {
	pthread_mutex_t lock;
	struct ncclComm *first;
} living = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void before_fork(void) { pthread_mutex_lock(&living.lock); }
static void after_fork(void) { pthread_mutex_unlock(&living.lock); }

/* A child may not use its parent's communicators, nor keep the parent's ranks alive. */
static void in_child(void)
{
	struct ncclComm *comm;

	nccl_process++;
	for (comm = living.first; comm; comm = comm->next)
		if (comm->segment)
			nccl_segment_forked(comm->segment);
	living.first = NULL;
	pthread_mutex_unlock(&living.lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	(void)pthread_atfork(before_fork, after_fork, in_child);
}

const struct runtime_services *nccl_services(void)
{
	static _Atomic(const struct runtime_services *) found;
	const struct runtime_services *services = atomic_load(&found);

	if (!services) {
		services = runtime_services();
		atomic_store(&found, services);
	}
	return services;
}

void *nccl_symbol(const char *name)
{
	void *symbol = dlsym(RTLD_DEFAULT, name), *driver;

	if (symbol)
		return symbol;
	driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	if (!driver)
		return NULL;
	symbol = dlsym(driver, name);
	dlclose(driver); /* it stays: it was loaded already */
	return symbol;
}

bool nccl_is_capturing(void *stream)
{
	int (*query)(void *stream, int *status) = NULL;
	void *symbol = nccl_symbol("cuStreamIsCapturing");
	int status = 0;

	if (!symbol)
		return false;
	memcpy(&query, &symbol, sizeof query);
	return query(stream, &status) == 0 && status == 1;
}

static int call_with_int(const char *name, int argument)
{
	int (*function)(int argument) = NULL;
	void *symbol = nccl_symbol(name);

	if (!symbol)
		return 0;
	memcpy(&function, &symbol, sizeof function);
	return function(argument);
}

bool nccl_use_device(int device)
{
	return nccl_services()->device() == device || call_with_int("cudaSetDevice", device) == 0;
}

uint64_t nccl_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

uint64_t nccl_patience_ns(void)
{
	const char *text = getenv("NEAP_NCCL_TIMEOUT");
	char *end = NULL;
	double seconds = text ? strtod(text, &end) : 0;

	return text && end != text && *end == '\0' && seconds > 0 && seconds < 1e9 ? (uint64_t)(seconds * 1e9)
										   : PATIENCE_NS;
}

/* -- references -------------------------------------------------------------------------------------------------- */

void nccl_comm_hold(struct ncclComm *comm) { atomic_fetch_add(&comm->references, 1); }

static void enlist(struct ncclComm *comm)
{
	pthread_mutex_lock(&living.lock);
	comm->next = living.first;
	if (comm->next)
		comm->next->previous = comm;
	living.first = comm;
	pthread_mutex_unlock(&living.lock);
}

static void delist(struct ncclComm *comm)
{
	pthread_mutex_lock(&living.lock);
	if (comm->previous)
		comm->previous->next = comm->next;
	else if (living.first == comm)
		living.first = comm->next;
	if (comm->next)
		comm->next->previous = comm->previous;
	pthread_mutex_unlock(&living.lock);
}

void nccl_comm_release(struct ncclComm *comm)
{
	if (!comm || atomic_fetch_sub(&comm->references, 1) > 1)
		return;
	delist(comm);
	nccl_comm_release(comm->birth.parent);
	nccl_segment_destroy(comm->segment);
	pthread_cond_destroy(&comm->moved);
	pthread_mutex_destroy(&comm->lock);
	free(comm->sent);
	free(comm->expected);
	free(comm->taken);
	free(comm);
}

struct ncclComm *nccl_comm_create(const struct nccl_options *options)
{
	struct ncclComm *comm = calloc(1, sizeof *comm);

	if (!comm)
		return NULL;
	pthread_mutex_init(&comm->lock, NULL);
	pthread_cond_init(&comm->moved, NULL);
	comm->references = 1;
	comm->process = nccl_process;
	comm->device = nccl_services()->device();
	comm->options = *options;
	comm->last = &comm->first;
	comm->deadline_ns = nccl_now_ns() + nccl_patience_ns();
	enlist(comm);
	return comm;
}

ncclResult_t nccl_comm_check(const struct ncclComm *comm, const char *function)
{
	if (!comm)
		return nccl_fail(ncclInvalidArgument, "%s: the communicator is NULL", function);
	if (comm->process != nccl_process)
		return nccl_fail(ncclInvalidUsage,
				 "%s: the communicator belongs to the process that this one was forked from",
				 function);
	return ncclSuccess;
}

/* -- configuration ----------------------------------------------------------------------------------------------- */

static bool sensible(int value) { return value == NCCL_CONFIG_UNDEF_INT || value > 0; }

ncclResult_t nccl_options_read(const ncclConfig_t *config, const struct ncclComm *parent,
			       struct nccl_options *ret_options)
{
	struct nccl_options options = parent ? parent->options : (struct nccl_options){.blocking = true};
	const char *environment = getenv("NCCL_COMM_BLOCKING");

	if (config) {
		ncclConfig_t given = {.blocking = NCCL_CONFIG_UNDEF_INT,
				      .minCTAs = NCCL_CONFIG_UNDEF_INT,
				      .maxCTAs = NCCL_CONFIG_UNDEF_INT};

		if (config->magic != NCCL_API_MAGIC || config->size < offsetof(ncclConfig_t, cgaClusterSize))
			return nccl_fail(ncclInvalidArgument,
					 "ncclConfig_t was not made with NCCL_CONFIG_INITIALIZER");
		memcpy(&given, config, config->size < sizeof given ? config->size : sizeof given);
		if (given.blocking != NCCL_CONFIG_UNDEF_INT && given.blocking != 0 && given.blocking != 1)
			return nccl_fail(ncclInvalidArgument, "ncclConfig_t: blocking is %d", given.blocking);
		if (!sensible(given.minCTAs) || !sensible(given.maxCTAs) ||
		    (given.maxCTAs != NCCL_CONFIG_UNDEF_INT && given.minCTAs > given.maxCTAs))
			return nccl_fail(ncclInvalidArgument, "ncclConfig_t: minCTAs is %d, maxCTAs is %d",
					 given.minCTAs, given.maxCTAs);
		if (given.blocking != NCCL_CONFIG_UNDEF_INT)
			options.blocking = given.blocking == 1;
		if (given.maxCTAs != NCCL_CONFIG_UNDEF_INT)
			options.channel_limit = given.maxCTAs;
	}
	if (environment && (strcmp(environment, "0") == 0 || strcmp(environment, "1") == 0))
		options.blocking = environment[0] == '1';
	*ret_options = options;
	return ncclSuccess;
}

/* -- joining ----------------------------------------------------------------------------------------------------- */

/* The device's identity across processes. Zeros: unknown, and then different from all others. */
static void find_place(int ordinal, struct nccl_place *ret_place)
{
	int (*get_uuid)(unsigned char uuid[16], int device) = NULL;
	int (*get_bus)(char *text, int capacity, int device) = NULL;
	void *uuid = nccl_symbol("cuDeviceGetUuid_v2"), *bus = nccl_symbol("cuDeviceGetPCIBusId");

	*ret_place = (struct nccl_place){0};
	if (!uuid)
		uuid = nccl_symbol("cuDeviceGetUuid");
	memcpy(&get_uuid, &uuid, sizeof uuid);
	memcpy(&get_bus, &bus, sizeof bus);
	if (get_uuid && get_uuid(ret_place->uuid, ordinal) != 0)
		memset(ret_place->uuid, 0, sizeof ret_place->uuid);
	if (get_bus && get_bus(ret_place->bus, (int)sizeof ret_place->bus, ordinal) != 0)
		ret_place->bus[0] = '\0';
}

/* NCCL creates the device's context if the program has not: cudaFree(NULL) does. Returns a CUDA error. */
static int make_context(int device)
{
	int (*free_nothing)(void *pointer) = NULL, current = nccl_services()->device(), error = 0;
	void *symbol = nccl_symbol("cudaFree");

	memcpy(&free_nothing, &symbol, sizeof symbol);
	nccl_use_device(device);
	if (free_nothing)
		error = free_nothing(NULL);
	nccl_use_device(current);
	return error;
}

ncclResult_t nccl_comm_join(struct ncclComm *comm)
{
	int error = make_context(comm->device);
	size_t count = (size_t)comm->ranks;
	struct nccl_place place;

	if (error != 0)
		return nccl_fail(ncclUnhandledCudaError, "device %d has no context: CUDA error %d", comm->device,
				 error);
	comm->sent = calloc(count, sizeof *comm->sent);
	comm->expected = calloc(count, sizeof *comm->expected);
	comm->taken = calloc(count, sizeof *comm->taken);
	if (!comm->sent || !comm->expected || !comm->taken)
		return nccl_fail(ncclSystemError, "host out of memory");
	find_place(comm->device, &place);
	comm->phase = NCCL_PHASE_JOINING;
	return nccl_segment_join(comm->id, comm->ranks, comm->rank, &place, &comm->segment);
}

ncclResult_t nccl_comm_begin(const uint64_t id[2], int ranks, int rank, const struct nccl_options *options,
			     struct ncclComm **ret_comm)
{
	struct ncclComm *comm;
	ncclResult_t result;

	if (!nccl_services())
		return nccl_fail(ncclUnhandledCudaError, "the CUDA runtime of this process is not neap's");
	if (ranks < 1 || rank < 0 || rank >= ranks)
		return nccl_fail(ncclInvalidArgument, "rank %d of %d", rank, ranks);
	comm = nccl_comm_create(options);
	if (!comm)
		return nccl_fail(ncclSystemError, "host out of memory");
	comm->ranks = ranks;
	comm->rank = rank;
	memcpy(comm->id, id, sizeof comm->id);
	result = nccl_comm_join(comm);
	if (result == ncclSuccess)
		*ret_comm = comm;
	else
		nccl_comm_release(comm);
	return result;
}

static ncclResult_t check_places(struct ncclComm *comm)
{
	static const unsigned char unknown[16];
	struct nccl_place one, other;
	int i, j;

	for (i = 0; i < comm->ranks; i++) {
		nccl_segment_place(comm->segment, i, &one);
		for (j = i + 1; j < comm->ranks && memcmp(one.uuid, unknown, sizeof unknown) != 0; j++) {
			nccl_segment_place(comm->segment, j, &other);
			if (memcmp(one.uuid, other.uuid, sizeof one.uuid) == 0)
				return nccl_fail(
					ncclInvalidUsage,
					"Duplicate GPU detected : rank %d and rank %d both on CUDA device %s "
					"(%d ranks need %d devices, as with NEAP_SIM=%dxh100-80gb)",
					i, j, one.bus, comm->ranks, comm->ranks, comm->ranks);
		}
	}
	return ncclSuccess;
}

/* Lists the ranks that have not arrived: "1, 3 and 5 others". */
static void name_absent(const struct ncclComm *comm, char *text, size_t capacity)
{
	int i, named = 0, others = 0;
	size_t used = 0;

	text[0] = '\0';
	for (i = 0; i < comm->ranks; i++) {
		if (nccl_segment_peer(comm->segment, i) != NCCL_PEER_ABSENT)
			continue;
		if (named++ < 8 && used < capacity)
			used += (size_t)snprintf(text + used, capacity - used, "%s%d", used ? ", " : "", i);
		else
			others++;
	}
	if (others && used < capacity)
		snprintf(text + used, capacity - used, " and %d others", others);
}

/* The caller drives the communicator. */
static ncclResult_t poll_joining(struct ncclComm *comm)
{
	ncclResult_t result;
	char absent[128];
	int i;

	if (nccl_segment_complete(comm->segment)) {
		result = check_places(comm);
		if (result != ncclSuccess)
			return result;
		nccl_tally_memory(comm);
		comm->phase = NCCL_PHASE_READY;
		return ncclSuccess;
	}
	name_absent(comm, absent, sizeof absent);
	for (i = 0; i < comm->ranks; i++) {
		enum nccl_peer state = nccl_segment_peer(comm->segment, i);

		if ((state == NCCL_PEER_DEAD || state == NCCL_PEER_LEFT) && !nccl_segment_complete(comm->segment))
			return nccl_fail(ncclRemoteError,
					 "rank %d %s while the communicator was initialised (missing %s)", i,
					 state == NCCL_PEER_DEAD ? "died" : "gave up", absent);
	}
	if (nccl_now_ns() < comm->deadline_ns)
		return ncclInProgress;
	return nccl_fail(
		ncclSystemError,
		"not all %d ranks initialised the communicator within %.0f s: missing %s (NEAP_NCCL_TIMEOUT is "
		"the limit in seconds)",
		comm->ranks, (double)nccl_patience_ns() / 1e9, absent);
}

/* -- advancing an initialisation --------------------------------------------------------------------------------- */

ncclResult_t nccl_comm_poll(struct ncclComm *comm)
{
	ncclResult_t result = atomic_load(&comm->error);

	if (result != ncclSuccess || comm->phase >= NCCL_PHASE_READY)
		return result;
	if (!nccl_begin_driving(comm))
		return ncclInProgress;
	if (comm->phase == NCCL_PHASE_EXCHANGING)
		result = nccl_comm_poll_birth(comm);
	if (result == ncclSuccess && comm->phase == NCCL_PHASE_JOINING)
		result = poll_joining(comm);
	if (result != ncclSuccess && result != ncclInProgress)
		atomic_store(&comm->error, result);
	nccl_end_driving(comm);
	return result;
}

/* A child that exchanges, held; NULL: none. */
static struct ncclComm *find_unborn(const struct ncclComm *parent)
{
	struct ncclComm *comm;

	pthread_mutex_lock(&living.lock);
	for (comm = living.first; comm; comm = comm->next)
		if (comm->birth.parent == parent && comm->phase == NCCL_PHASE_EXCHANGING &&
		    atomic_load(&comm->error) == ncclSuccess && atomic_load(&comm->references) > 0)
			break;
	if (comm)
		nccl_comm_hold(comm);
	pthread_mutex_unlock(&living.lock);
	return comm;
}

bool nccl_comm_has_unborn(struct ncclComm *parent)
{
	struct ncclComm *child;

	while (atomic_load(&parent->unborn) > 0 && (child = find_unborn(parent)) != NULL) {
		ncclResult_t result = nccl_comm_poll(child);
		bool unborn = result == ncclInProgress && child->phase == NCCL_PHASE_EXCHANGING;

		nccl_comm_release(child);
		if (unborn)
			return true;
	}
	return false;
}

/* The segment whose bell announces the next step: the parent's while the ranks exchange, else the communicator's. */
static struct nccl_segment *heard_in(const struct ncclComm *comm)
{
	return comm->segment ? comm->segment : comm->birth.parent->segment;
}

void nccl_comms_await(struct ncclComm **comms, size_t count)
{
	for (;;) {
		struct ncclComm *waiting = NULL;
		struct nccl_segment *segment = NULL;
		uint32_t bell = 0;
		size_t i;

		for (i = 0; i < count; i++) {
			struct nccl_segment *heard = heard_in(comms[i]);
			uint32_t now = nccl_segment_bell(heard);

			if (nccl_comm_poll(comms[i]) != ncclInProgress || waiting)
				continue;
			waiting = comms[i];
			segment = heard;
			bell = now;
		}
		if (!waiting)
			return;
		nccl_segment_wait(segment, bell, NCCL_POLL_MS);
	}
}

/* -- the end ----------------------------------------------------------------------------------------------------- */

void nccl_comm_end(struct ncclComm *comm)
{
	bool driving = nccl_begin_driving(comm);

	if (comm->segment && !comm->left)
		nccl_segment_leave(comm->segment);
	else if (comm->phase == NCCL_PHASE_EXCHANGING && atomic_load(&comm->error) == ncclSuccess)
		nccl_comm_give_up_birth(comm);
	comm->left = true;
	if (atomic_load(&comm->error) == ncclSuccess)
		atomic_store(&comm->error, ncclInvalidUsage); /* nothing is read from it after this */
	if (driving)
		nccl_end_driving(comm);
	nccl_comm_release(comm);
}
