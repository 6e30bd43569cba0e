#include "nccl_test.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
/* Only against hanging. */
#define RANK_SECONDS 240

struct fake fake;

void check_at(int holds, const char *text, const char *file, int line)
{
	if (holds)
		return;
	fprintf(stderr, "%s:%d: rank process %d: not true: %s (last error: %s)\n", file, line, (int)getpid(), text,
		ncclGetLastError(NULL));
	_exit(1);
}

void check_result(ncclResult_t result, ncclResult_t wanted, const char *text, const char *file, int line)
{
	if (result == wanted)
		return;
	fprintf(stderr, "%s:%d: rank process %d: %s gave %d, not %d (%s)\n", file, line, (int)getpid(), text, result,
		wanted, ncclGetLastError(NULL));
	_exit(1);
}

/* -- the device: pages with a mark for each byte that was stored ------------------------------------------------- */

struct page {
	struct page *next;
	uint64_t number;
	unsigned char bytes[PAGE], stored[PAGE];
};

struct gate {
	struct gate *next;
	void *stream;
	uint64_t address, bytes;
	const struct runtime_gate *functions;
	void *argument;
	int opening;
	pthread_t opener;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t opened;
	struct page *pages[1024];
	struct gate *first, **last;
	/* Every gate writes between these: no other range needs a walk along thousands of gates. */
	uint64_t low, high;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER,
	    .opened = PTHREAD_COND_INITIALIZER,
	    .last = &memory.first,
	    .low = UINT64_MAX};

static struct page *find_page(uint64_t number, int make)
{
	struct page **bucket = &memory.pages[number % 1024], *page = *bucket;

	while (page && page->number != number)
		page = page->next;
	if (page || !make)
		return page;
	page = calloc(1, sizeof *page);
	check(page != NULL);
	page->number = number;
	page->next = *bucket;
	return *bucket = page;
}

/* Lock held. Visits the range page by page. */
static void each_page(uint64_t address, size_t bytes, int make,
		      void (*visit)(struct page *page, size_t offset, size_t count, size_t done, void *argument),
		      void *argument)
{
	size_t done = 0;

	while (done < bytes) {
		size_t offset = (address + done) % PAGE,
		       count = bytes - done < PAGE - offset ? bytes - done : PAGE - offset;
		struct page *page = find_page((address + done) / PAGE, make);

		if (page)
			visit(page, offset, count, done, argument);
		done += count;
	}
}

static void visit_load(struct page *page, size_t offset, size_t count, size_t done, void *to)
{
	memcpy((char *)to + done, page->bytes + offset, count);
}

static void visit_store(struct page *page, size_t offset, size_t count, size_t done, void *from)
{
	memcpy(page->bytes + offset, (char *)from + done, count);
	memset(page->stored + offset, 1, count);
}

static void visit_forget(struct page *page, size_t offset, size_t count, size_t done, void *unused)
{
	(void)done;
	(void)unused;
	memset(page->bytes + offset, 0, count);
	memset(page->stored + offset, 0, count);
}

static void visit_holds(struct page *page, size_t offset, size_t count, size_t done, void *ret_holds)
{
	(void)done;
	*(int *)ret_holds |= memchr(page->stored + offset, 1, count) != NULL;
}

/* Lock held. True: opened it, or waited for it. */
static int pass(struct gate *gate)
{
	struct gate **link = &memory.first;

	if (gate->opening && pthread_equal(gate->opener, pthread_self()))
		return 0;
	if (gate->opening) {
		pthread_cond_wait(&memory.opened, &memory.lock);
		return 1;
	}
	gate->opening = 1;
	gate->opener = pthread_self();
	pthread_mutex_unlock(&memory.lock);
	gate->functions->open(gate->argument);
	pthread_mutex_lock(&memory.lock);
	while (*link != gate)
		link = &(*link)->next;
	*link = gate->next;
	if (!gate->next)
		memory.last = link;
	free(gate);
	pthread_cond_broadcast(&memory.opened);
	return 1;
}

/* Lock held. Opens the gates of `stream` up to `last` (NULL: all). */
static void open_stream(void *stream, const struct gate *last)
{
	struct gate *gate;
	int again = 1;

	while (again) {
		again = 0;
		for (gate = memory.first; gate; gate = gate->next) {
			if (gate->stream == stream && pass(gate)) {
				again = 1;
				break;
			}
			if (gate == last)
				break;
		}
	}
}

static void open_range(uint64_t address, size_t bytes)
{
	struct gate *gate;
	int again = address < memory.high && memory.low < address + bytes;

	while (again) {
		again = 0;
		for (gate = memory.first; gate && !again; gate = gate->next) {
			if (gate->bytes == 0 || gate->address >= address + bytes ||
			    address >= gate->address + gate->bytes)
				continue;
			if (gate->opening && pthread_equal(gate->opener, pthread_self()))
				continue;
			open_stream(gate->stream, gate);
			again = 1;
			break;
		}
	}
}

void fake_load(uint64_t address, void *to, size_t bytes)
{
	pthread_mutex_lock(&memory.lock);
	open_range(address, bytes);
	memset(to, 0, bytes);
	each_page(address, bytes, 0, visit_load, to);
	pthread_mutex_unlock(&memory.lock);
}

static bool service_write(uint64_t address, const void *from, size_t bytes)
{
	pthread_mutex_lock(&memory.lock);
	each_page(address, bytes, 1, visit_store, (void *)(uintptr_t)from);
	pthread_mutex_unlock(&memory.lock);
	return true;
}

/* One thread. */
void fake_store(uint64_t address, const void *from, size_t bytes)
{
	struct gate *gate;

	for (gate = memory.first; gate; gate = gate->next) {
		if (gate->bytes == 0 || gate->address < address || gate->address + gate->bytes > address + bytes)
			continue;
		gate->functions->supersede(gate->argument);
		gate->bytes = 0;
	}
	pthread_mutex_lock(&memory.lock);
	open_range(address, bytes);
	pthread_mutex_unlock(&memory.lock);
	service_write(address, from, bytes);
}

/* One thread. */
int fake_query(void *stream)
{
	struct gate *gate;

	for (gate = memory.first; gate; gate = gate->next)
		if (gate->stream == stream && !gate->functions->ready(gate->argument))
			return 0;
	fake_synchronize(stream);
	return 1;
}

static void service_forget(uint64_t address, size_t bytes)
{
	size_t i;
	struct page *page;

	pthread_mutex_lock(&memory.lock);
	for (i = 0; i < 1024 && bytes > 1024 * PAGE; i++) /* a large range: only existing pages */
		for (page = memory.pages[i]; page; page = page->next)
			if (page->number * PAGE >= address && (page->number + 1) * PAGE <= address + bytes)
				visit_forget(page, 0, PAGE, 0, NULL);
	if (bytes <= 1024 * PAGE)
		each_page(address, bytes, 0, visit_forget, NULL);
	pthread_mutex_unlock(&memory.lock);
}

static bool service_holds(uint64_t address, size_t bytes)
{
	int holds = 0;
	size_t i;
	struct page *page;

	pthread_mutex_lock(&memory.lock);
	open_range(address, bytes);
	for (i = 0; i < 1024 && bytes > 1024 * PAGE; i++)
		for (page = memory.pages[i]; page; page = page->next)
			if (page->number * PAGE >= address && (page->number + 1) * PAGE <= address + bytes)
				visit_holds(page, 0, PAGE, 0, &holds);
	if (bytes <= 1024 * PAGE)
		each_page(address, bytes, 0, visit_holds, &holds);
	pthread_mutex_unlock(&memory.lock);
	return holds != 0;
}

static bool service_gate(void *stream, uint64_t address, size_t bytes, const struct runtime_gate *functions,
			 void *argument)
{
	struct gate *gate;

	if (fake.capturing) {
		fake.dropped++;
		functions->drop(argument);
		return true;
	}
	gate = calloc(1, sizeof *gate);
	check(gate != NULL);
	*gate = (struct gate){
		.stream = stream, .address = address, .bytes = bytes, .functions = functions, .argument = argument};
	pthread_mutex_lock(&memory.lock);
	memory.low = bytes && address < memory.low ? address : memory.low;
	memory.high = bytes && address + bytes > memory.high ? address + bytes : memory.high;
	*memory.last = gate;
	memory.last = &gate->next;
	fake.gates++;
	pthread_mutex_unlock(&memory.lock);
	return true;
}

void fake_synchronize(void *stream)
{
	pthread_mutex_lock(&memory.lock);
	open_stream(stream, NULL);
	pthread_mutex_unlock(&memory.lock);
}

void fake_synchronize_device(void)
{
	pthread_mutex_lock(&memory.lock);
	while (memory.first)
		open_stream(memory.first->stream, NULL);
	pthread_mutex_unlock(&memory.lock);
}

int fake_closed(void)
{
	const struct gate *gate;
	int count = 0;

	pthread_mutex_lock(&memory.lock);
	for (gate = memory.first; gate; gate = gate->next)
		count++;
	pthread_mutex_unlock(&memory.lock);
	return count;
}

void fake_reset(void)
{
	struct page *page, *next;
	size_t i;

	fake = (struct fake){.capability = 90};
	for (i = 0; i < 1024; i++) {
		for (page = memory.pages[i]; page; page = next) {
			next = page->next;
			free(page);
		}
		memory.pages[i] = NULL;
	}
}

static int service_device(void) { return fake.device; }

static bool service_architecture(int device, int *ret_capability, int *ret_multiprocessors)
{
	(void)device;
	*ret_capability = fake.capability;
	*ret_multiprocessors = 132;
	return true;
}

static int service_launch(void *stream, const char *name)
{
	(void)stream;
	(void)name;
	__atomic_add_fetch(&fake.launches, 1, __ATOMIC_RELAXED);
	return 0;
}

static void service_tally(enum runtime_gap gap, const char *library, const char *function, uint64_t low,
			  uint64_t high)
{
	check(strcmp(library, "NCCL") == 0 && low == 0);
	__atomic_add_fetch(&fake.tallies[gap], 1, __ATOMIC_RELAXED);
	snprintf(fake.function, sizeof fake.function, "%s", function);
	if (gap == GAP_WORKSPACE)
		fake.high = high;
}

static enum runtime_known service_known(uint64_t address, size_t bytes, bool large, bool exact)
{
	(void)large;
	(void)exact;
	if (bytes)
		(void)service_holds(address, bytes); /* opens its gates */
	return fake.known;
}

static void service_mark(uint64_t address, size_t bytes, enum runtime_known known)
{
	(void)address;
	if (fake.known != KNOWN_NOTHING_COMPUTED && bytes)
		fake.marked[fake.marks++ % 8] = known;
}

#define EXPORTED __attribute__((visibility("default")))
const struct runtime_services *neap_runtime_get_services(void);
EXPORTED const struct runtime_services *neap_runtime_get_services(void)
{
	static const struct runtime_services services = {
		.version = RUNTIME_SERVICES_VERSION,
		.device = service_device,
		.architecture = service_architecture,
		.read = fake_load,
		.write = service_write,
		.forget = service_forget,
		.holds = service_holds,
		.known = service_known,
		.mark = service_mark,
		.gate = service_gate,
		.launch = service_launch,
		.tally = service_tally,
	};

	return &services;
}

/* Functions of the runtime and the driver that the library looks up by name. */
int cudaSetDevice(int device);
int cudaFree(void *pointer);
int cudaMalloc(void **pointer, size_t bytes);
int cuStreamIsCapturing(void *stream, int *status);
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream);
int cuDeviceGetUuid_v2(unsigned char uuid[16], int device);
int cuDeviceGetPCIBusId(char *text, int capacity, int device);

EXPORTED int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
	unsigned char *between = malloc(bytes);

	(void)stream;
	if (!between)
		return 2;
	fake_load(from, between, bytes);
	fake_store(to, between, bytes);
	free(between);
	return 0;
}

EXPORTED int cudaSetDevice(int device)
{
	fake.device = device;
	return device < 64 ? 0 : 101;
}

EXPORTED int cudaMalloc(void **pointer, size_t bytes)
{
	if (bytes > 1ull << 40)
		return 2;
	*pointer = calloc(1, 1);
	fake.allocated += *pointer != NULL;
	return 0;
}

EXPORTED int cudaFree(void *pointer)
{
	fake.allocated -= pointer != NULL;
	free(pointer);
	return 0;
}

EXPORTED int cuStreamIsCapturing(void *stream, int *status)
{
	(void)stream;
	*status = fake.capturing;
	return 0;
}

EXPORTED int cuDeviceGetUuid_v2(unsigned char uuid[16], int device)
{
	memset(uuid, fake.same_device ? 1 : device + 1, 16);
	return 0;
}

EXPORTED int cuDeviceGetPCIBusId(char *text, int capacity, int device)
{
	snprintf(text, (size_t)capacity, "0000:%02X:00.0", fake.same_device ? 1 : device + 1);
	return 0;
}

/* -- ranks ------------------------------------------------------------------------------------------------------- */

void communicator_file(pid_t pid, char *path, size_t capacity)
{
	char folder[64], link[512], target[512];
	struct dirent *entry;
	DIR *listing;
	ssize_t length;

	path[0] = '\0';
	snprintf(folder, sizeof folder, "/proc/%d/fd", (int)pid);
	listing = opendir(folder);
	while (listing && (entry = readdir(listing)) != NULL) {
		snprintf(link, sizeof link, "%s/%.64s", folder, entry->d_name);
		length = readlink(link, target, sizeof target - 1);
		if (length < 0)
			continue;
		target[length] = '\0';
		if (strstr(target, "/neap-nccl-"))
			snprintf(path, capacity, "%s", target);
	}
	if (listing)
		closedir(listing);
}

void init_rank(struct rank *rank)
{
	char path[512];

	check_ok(ncclCommInitRank(&rank->comm, rank->ranks, rank->id, rank->rank));
	communicator_file(getpid(), path, sizeof path);
	check(strstr(path, "(deleted)") != NULL);
}

void start_ranks(struct ranks *ranks, int count, void (*body)(struct rank *rank), void *argument)
{
	struct rank rank = {.ranks = count, .argument = argument};
	int i, ends[2];

	fake_reset();
	assert_int_equal(ncclGetUniqueId(&rank.id), ncclSuccess);
	*ranks = (struct ranks){.count = count};
	fflush(NULL);
	for (i = 0; i < count; i++) {
		assert_int_equal(pipe(ends), 0);
		ranks->from[i] = ends[0];
		ranks->pids[i] = fork();
		assert_true(ranks->pids[i] >= 0);
		if (ranks->pids[i] == 0) {
			alarm(RANK_SECONDS);
			close(ends[0]);
			rank.rank = i;
			rank.to_parent = ends[1];
			fake.device = i;
			body(&rank);
			fake_reset();
			exit(0); /* a sanitizer looks for leaks */
		}
		close(ends[1]);
	}
}

void rank_report(const struct rank *rank, char byte) { check(write(rank->to_parent, &byte, 1) == 1); }

char hear_rank(const struct ranks *ranks, int rank)
{
	char byte = 0;

	return read(ranks->from[rank], &byte, 1) == 1 ? byte : 0;
}

int wait_rank(struct ranks *ranks, int rank)
{
	int status = 0;

	assert_int_equal(waitpid(ranks->pids[rank], &status, 0), ranks->pids[rank]);
	close(ranks->from[rank]);
	return status;
}

static void (*inner)(struct rank *rank);

static void with_communicator(struct rank *rank)
{
	init_rank(rank);
	inner(rank);
	if (rank->comm)
		check_ok(ncclCommDestroy(rank->comm));
	fake_synchronize_device(); /* gates outlive their communicator */
}

void run_ranks(int count, void (*body)(struct rank *rank), void *argument)
{
	struct ranks ranks;
	int i, failed = 0;

	inner = body;
	start_ranks(&ranks, count, with_communicator, argument);
	for (i = 0; i < count; i++)
		failed |= wait_rank(&ranks, i);
	assert_int_equal(failed, 0);
}

/* -- random ------------------------------------------------------------------------------------------------------ */

uint32_t random_below(uint64_t *state, uint32_t limit) { return (uint32_t)((next_random(state) >> 33) % limit); }

int sum_over(ncclComm_t comm, int value)
{
	int sum = 0;

	fake_store(SOURCE, &value, sizeof value);
	check_ok(ncclAllReduce((void *)SOURCE, (void *)DESTINATION, 1, ncclInt32, ncclSum, comm, STREAM(0)));
	fake_load(DESTINATION, &sum, sizeof sum);
	return sum;
}

ncclConfig_t configuration(int blocking)
{
	return (ncclConfig_t){.size = sizeof(ncclConfig_t),
			      .magic = NCCL_API_MAGIC,
			      .version = 22807,
			      .blocking = blocking,
			      .cgaClusterSize = NCCL_CONFIG_UNDEF_INT,
			      .minCTAs = NCCL_CONFIG_UNDEF_INT,
			      .maxCTAs = NCCL_CONFIG_UNDEF_INT,
			      .splitShare = NCCL_CONFIG_UNDEF_INT};
}

ncclResult_t settle(ncclComm_t comm)
{
	ncclResult_t state = ncclInProgress;

	while (state == ncclInProgress)
		check_ok(ncclCommGetAsyncError(comm, &state));
	return state;
}
