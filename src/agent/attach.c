/* agent/attach.c: the one instance of the agent: it attaches, knows the allocators, handles forks, and detaches.
 *
 *   allocator --counters--> page (RUNTIME/PID.page)
 *       |  ^ pinned while a request works on it
 *       |  +---- server's thread (RUNTIME/PID.sock)
 *       +--events--> observer here --> recorder (NEAP_RUN_DIR/record.PID, else RUNTIME/PID.record)
 *
 * The lock guards everything but the observer's target. Under it, the agent sets where allocators publish and which
 * observer they call (their locks come after it). No request, callback or join happens under it. An allocator calls
 * the observer inside its own lock, so the observer takes no lock: it only passes events on to the recorder, if there
 * is one.
 *
 * The agent knows all allocators created since the library was loaded, so neap_attach also finds older ones.
 */
#include "agent/agent.h"

#include "agent/external.h"
#include "agent/server.h"
#include "alloc/agent.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/paths.h"
#include "base/process.h"
#include "base/wait.h"
#include "neap/train.h"
#include "proto/page.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DETACH_BOUND_NS (10 * NEAP_NS_PER_S)
#define EXIT_BOUND_NS   (200 * NEAP_NS_PER_MS)
#define FORK_BOUND_S    2
#define CLEAR_CALLBACKS 8

struct slot {
	struct neap_alloc *alloc;         /* NULL: free */
	struct neap_published *published; /* its place in the page; NULL: none */
	bool observed;                    /* the agent set its observer, since it had none */
	bool at_rest;                     /* its lock is held during a fork */
	unsigned pins;
};

struct clear_callback {
	neap_clear_callback function;
	void *context;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a pin was taken back, or a detach ended */
	bool attached;
	bool detaching;
	bool fork_handled;
	bool recorded;           /* this program has begun a recording; attaching again begins a new one */
	struct neap_error fault; /* status NEAP_OK: none */
	struct neap_error note;  /* a setting that was ignored; disables nothing */
	struct agent_identity identity;
	struct neap_page_owner page;
	struct neap_recorder *recorder;
	struct neap_server server;
	struct slot slots[AGENT_ALLOCATORS];
	struct clear_callback callbacks[CLEAR_CALLBACKS];
	size_t callback_count;
	const struct neap_observer *target; /* the recorder's; atomic */
} agent = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

const struct neap_observer *agent_target(void) { return __atomic_load_n(&agent.target, __ATOMIC_ACQUIRE); }

static void observe(void *context, const struct neap_event *event)
{
	const struct neap_observer *target = agent_target();
	(void)context;
	if (target)
		target->event(target->context, event);
}

static bool observe_run(void *context, struct neap_event_run *run)
{
	const struct neap_observer *target = agent_target();
	(void)context;
	return target && target->run(target->context, run);
}

static uint16_t observe_name(void *context, const char *text)
{
	const struct neap_observer *target = agent_target();
	(void)context;
	return target ? target->name(target->context, text) : 0;
}

static const struct neap_observer observer = {
	.event = observe, .name = observe_name, .concurrent = true, .run = observe_run};

/* Allocators. */

static struct slot *find_slot(const struct neap_alloc *alloc)
{
	for (size_t i = 0; i < AGENT_ALLOCATORS; i++)
		if (agent.slots[i].alloc == alloc)
			return &agent.slots[i];
	return NULL;
}

/* Connects an allocator with the page and the recorder. The lock is held, and the agent attached. */
static void register_slot(struct slot *slot)
{
	slot->published = neap_page_slot(&agent.page);
	if (slot->published) {
		neap_publish(slot->alloc, slot->published);
		neap_page_show(&agent.page, slot->published);
		agent_emit_page(agent_target(), slot->published);
	}
	slot->observed = neap_observe_if_none(slot->alloc, &observer);
}

/* Undoes register_slot. Afterwards the allocator does not write to the page. It has also left any target that was
 * removed before, since every path here takes the allocator's lock. The agent's lock is held. */
static void withdraw(struct slot *slot)
{
	if (slot->published) {
		agent_emit_page(agent_target(), slot->published);
		neap_publish(slot->alloc, NULL);
		neap_page_hide(&agent.page, slot->published);
	}
	if (slot->observed)
		neap_observe(slot->alloc, NULL);
	else
		neap_observe_if_none(slot->alloc, NULL); /* only takes and releases the allocator's lock */
	slot->published = NULL;
	slot->observed = false;
}

static enum neap_status attach_locked(struct neap_error *err);

static bool asked_by_environment(void)
{
	const char *value = getenv("NEAP_ATTACH");
	return value && strcmp(value, "1") == 0;
}

static bool forbidden_by_environment(void)
{
	const char *value = getenv("NEAP_ATTACH");
	return value && strcmp(value, "0") == 0;
}

static void alloc_created(struct neap_alloc *alloc)
{
	pthread_mutex_lock(&agent.lock);
	agent_apply_environment(alloc, &agent.note);
	neap_page_note(&agent.page, agent.note.message);
	struct slot *slot = find_slot(NULL);
	if (slot) {
		*slot = (struct slot){.alloc = alloc};
		if (agent.attached)
			register_slot(slot);
		else if (asked_by_environment() && agent.fault.status == NEAP_OK && !agent.detaching)
			attach_locked(&agent.fault);
	}
	pthread_mutex_unlock(&agent.lock);
}

static void alloc_destroying(struct neap_alloc *alloc)
{
	struct slot *slot;
	pthread_mutex_lock(&agent.lock);
	while ((slot = find_slot(alloc)) && slot->pins > 0)
		pthread_cond_wait(&agent.changed, &agent.lock);
	if (slot) {
		if (agent.attached)
			withdraw(slot);
		*slot = (struct slot){0};
	}
	pthread_mutex_unlock(&agent.lock);
}

size_t agent_pin(struct neap_alloc *ret_allocators[AGENT_ALLOCATORS])
{
	size_t count = 0;
	pthread_mutex_lock(&agent.lock);
	for (size_t i = 0; i < AGENT_ALLOCATORS; i++) {
		if (!agent.slots[i].alloc)
			continue;
		agent.slots[i].pins++;
		ret_allocators[count++] = agent.slots[i].alloc;
	}
	pthread_mutex_unlock(&agent.lock);
	return count;
}

void agent_unpin(struct neap_alloc *const *allocators, size_t count)
{
	pthread_mutex_lock(&agent.lock);
	for (size_t i = 0; i < count; i++) {
		struct slot *slot = find_slot(allocators[i]);
		if (slot && slot->pins > 0)
			slot->pins--;
	}
	pthread_cond_broadcast(&agent.changed);
	pthread_mutex_unlock(&agent.lock);
}

uint64_t agent_call_clear(bool force)
{
	struct clear_callback callbacks[CLEAR_CALLBACKS];
	uint64_t bytes = 0;
	pthread_mutex_lock(&agent.lock);
	size_t count = agent.callback_count;
	memcpy(callbacks, agent.callbacks, sizeof callbacks);
	pthread_mutex_unlock(&agent.lock);
	for (size_t i = 0; i < count; i++)
		bytes += callbacks[i].function(callbacks[i].context, force);
	return bytes;
}

enum neap_status agent_identify(struct agent_identity *ret_identity, struct neap_error *ret_fault)
{
	pthread_mutex_lock(&agent.lock);
	*ret_identity = agent.identity;
	*ret_fault = agent.fault;
	pthread_mutex_unlock(&agent.lock);
	return ret_fault->status;
}

bool agent_identify_until(struct agent_identity *ret_identity, const struct timespec *until)
{
	if (neap_lock_until(&agent.lock, until) != 0)
		return false;
	bool attached = agent.attached && !agent.detaching && agent.fault.status == NEAP_OK;
	if (attached)
		*ret_identity = agent.identity;
	pthread_mutex_unlock(&agent.lock);
	return attached;
}

/* Faults. */

static void disable(const struct neap_error *fault)
{
	if (agent.fault.status == NEAP_OK)
		agent.fault = *fault;
	__atomic_store_n(&agent.target, NULL, __ATOMIC_RELEASE);
}

void agent_check(void)
{
	struct neap_error fault = {0};
	pthread_mutex_lock(&agent.lock);
	const struct neap_page *page = agent.page.page;
	if (getpid() != (pid_t)agent.identity.pid)
		neap_fail(&fault, NEAP_EINTERNAL, "this is process %d, attached was %lld", (int)getpid(),
			  (long long)agent.identity.pid);
	else if (page && (memcmp(page->magic, NEAP_PAGE_MAGIC, sizeof page->magic) != 0 ||
			  page->pid != (uint64_t)agent.identity.pid || page->device_count > NEAP_PAGE_DEVICES))
		neap_fail(&fault, NEAP_EINTERNAL, "something else wrote into the statistics page");
	if (fault.status != NEAP_OK)
		disable(&fault);
	pthread_mutex_unlock(&agent.lock);
}

static void server_failed(void *context, const struct neap_error *err)
{
	(void)context;
	pthread_mutex_lock(&agent.lock);
	disable(err);
	pthread_mutex_unlock(&agent.lock);
}

/* Attaching. */

static enum neap_status learn_identity(struct neap_error *err)
{
	struct agent_identity *identity = &agent.identity;
	struct neap_process self;
	const char *run_folder = getenv("NEAP_RUN_DIR"), *run_id = getenv("NEAP_RUN_ID");
	const char *series = getenv("NEAP_SERIES");
	char name[64];
	enum neap_status status = neap_process_read(getpid(), &self, err);
	if (!status)
		status = neap_path_runtime(identity->folder, sizeof identity->folder, err);
	if (status)
		return status;
	identity->pid = self.pid;
	identity->start_ticks = self.start_ticks;
	snprintf(identity->name, sizeof identity->name, "%s", self.command);
	snprintf(identity->run_id, sizeof identity->run_id, "%s", run_id ? run_id : "");
	snprintf(identity->series, sizeof identity->series, "%s", series ? series : "");
	identity->peers = agent_peers_setting();
	bool in_run = run_folder && run_folder[0];
	snprintf(name, sizeof name, in_run ? "record.%d" : "%d.record", (int)self.pid);
	if (neap_path_join(identity->record_path, sizeof identity->record_path,
			   in_run ? run_folder : agent.identity.folder, name) != NEAP_OK)
		return neap_fail(err, NEAP_EINVAL, "the path of the recording is too long: %.150s",
				 in_run ? run_folder : agent.identity.folder);
	return NEAP_OK;
}

/* Keeps the thread's code mapped even if the program closes the library's handle. */
static void stay_loaded(void)
{
	Dl_info info;
	if (dladdr(&agent, &info) && info.dli_fname)
		(void)!dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

static void before_fork(void);
static void after_fork_in_parent(void);
static void after_fork_in_child(void);

static enum neap_status handle_forks(struct neap_error *err)
{
	if (agent.fork_handled)
		return NEAP_OK;
	int error_number = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
	if (error_number != 0)
		return neap_fail_errno(err, error_number, "preparing for forks");
	agent.fork_handled = true;
	return NEAP_OK;
}

static enum neap_status make_page(struct neap_error *err)
{
	struct neap_page_identity identity = {.pid = (pid_t)agent.identity.pid,
					      .start_ticks = agent.identity.start_ticks,
					      .name = agent.identity.name,
					      .run_id = agent.identity.run_id,
					      .series = agent.identity.series,
					      .record_path = agent.identity.record_path};
	return neap_page_create(agent.identity.folder, &identity, &agent.page, err);
}

/* Opens the socket before the page is visible: a peer that sees the page can connect, and waits in the socket's queue
 * for the thread. */
static enum neap_status show_and_serve(struct neap_error *err)
{
	struct neap_server_options options = {.handle = agent_execute, .failed = server_failed};
	int fd = -1;
	enum neap_status status = agent_open_socket(agent.identity.folder, (pid_t)agent.identity.pid, &fd, err);
	if (status)
		return status;
	status = make_page(err);
	if (status)
		close(fd);
	else
		status = neap_server_start(&agent.server, fd, &options, err);
	if (status)
		agent_remove_socket(agent.identity.folder, (pid_t)agent.identity.pid);
	return status;
}

/* Opens the recording. A process that restarted in place continues its old one, once. */
static enum neap_status open_recorder(struct neap_error *err)
{
	bool resume = neap_restarts() > 0 && !agent.recorded;
	enum neap_status status = (resume ? neap_recorder_resume : neap_recorder_create)(agent.identity.record_path,
											 0, 0, &agent.recorder, err);
	agent.recorded |= status == NEAP_OK;
	return status;
}

static enum neap_status attach_locked(struct neap_error *err)
{
	if (agent.server.running)
		return neap_fail(err, NEAP_EBUSY, "attaching: the thread of an earlier agent has not ended");
	stay_loaded();
	enum neap_status status = learn_identity(err);
	if (!status)
		status = handle_forks(err);
	if (!status)
		status = open_recorder(err);
	if (!status) {
		int held = neap_page_making_begin(agent.identity.folder);
		status = show_and_serve(err);
		neap_page_making_end(held);
	}
	if (status) {
		neap_page_destroy(&agent.page, true);
		if (agent.recorder)
			unlink(agent.identity.record_path); /* an empty one would mean that no memory was used */
		neap_recorder_destroy(agent.recorder);
		agent.recorder = NULL;
		neap_error_prefix(err, "attaching");
		return status;
	}
	__atomic_store_n(&agent.target, neap_recorder_observer(agent.recorder), __ATOMIC_RELEASE);
	agent.attached = true;
	agent.fault = (struct neap_error){0};
	if (agent.note.status != NEAP_OK)
		neap_page_note(&agent.page, agent.note.message);
	for (size_t i = 0; i < AGENT_ALLOCATORS; i++)
		if (agent.slots[i].alloc)
			register_slot(&agent.slots[i]);
	return NEAP_OK;
}

enum neap_status neap_attach(struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	if (forbidden_by_environment())
		return neap_fail(err, NEAP_ECANCELED, "attaching: NEAP_ATTACH=0 forbids it");
	pthread_mutex_lock(&agent.lock);
	while (agent.detaching)
		pthread_cond_wait(&agent.changed, &agent.lock);
	if (!agent.attached) {
		struct neap_error fault = {0};
		status = attach_locked(&fault);
		if (status)
			agent.fault = fault;
	} else {
		status = agent.fault.status;
	}
	if (status && err)
		*err = agent.fault;
	pthread_mutex_unlock(&agent.lock);
	return status;
}

enum neap_status neap_attach_state(struct neap_error *ret_error)
{
	enum neap_status status = NEAP_OK;
	pthread_mutex_lock(&agent.lock);
	if (agent.fault.status != NEAP_OK) {
		status = agent.fault.status;
		if (ret_error)
			*ret_error = agent.fault;
	} else if (!agent.attached) {
		status = neap_fail(ret_error, NEAP_ESTATE, "this process is not attached");
	} else if (agent.note.status != NEAP_OK) {
		status = agent.note.status;
		if (ret_error)
			*ret_error = agent.note;
	}
	pthread_mutex_unlock(&agent.lock);
	return status;
}

void neap_attach_note(const char *text)
{
	pthread_mutex_lock(&agent.lock);
	if (agent.attached)
		neap_page_note(&agent.page, text ? text : "");
	pthread_mutex_unlock(&agent.lock);
}

bool agent_with_page(void (*write)(struct neap_page_owner *page, void *context), void *context)
{
	pthread_mutex_lock(&agent.lock);
	bool attached = agent.attached && !agent.detaching && agent.page.page;
	if (attached)
		write(&agent.page, context);
	pthread_mutex_unlock(&agent.lock);
	return attached;
}

const struct neap_observer *neap_attach_observer(void)
{
	pthread_mutex_lock(&agent.lock);
	bool attached = agent.attached;
	pthread_mutex_unlock(&agent.lock);
	return attached ? &observer : NULL;
}

enum neap_status neap_attach_on_clear(neap_clear_callback callback, void *context)
{
	enum neap_status status = NEAP_OK;
	if (!callback)
		return NEAP_EINVAL;
	pthread_mutex_lock(&agent.lock);
	if (agent.callback_count == CLEAR_CALLBACKS)
		status = NEAP_ENOSPC;
	else
		agent.callbacks[agent.callback_count++] = (struct clear_callback){callback, context};
	pthread_mutex_unlock(&agent.lock);
	return status;
}

uint64_t neap_attach_release(bool force) { return agent_call_clear(force); }

/* The end. */

void neap_detach(void)
{
	pthread_mutex_lock(&agent.lock);
	bool ours = agent.attached && !agent.detaching && !pthread_equal(agent.server.thread, pthread_self());
	if (ours) {
		agent.detaching = true;
		agent_remove_socket(agent.identity.folder, (pid_t)agent.identity.pid);
		pthread_mutex_unlock(&agent.lock); /* the thread may need it to finish its request */
		agent_external_interrupt();
		bool ended = neap_server_stop(&agent.server, DETACH_BOUND_NS);
		pthread_mutex_lock(&agent.lock);
		agent_emit_pages(agent_target(), agent.page.page);
		/* Remove the target first: allocators to which the program gave the observer keep it. */
		__atomic_store_n(&agent.target, NULL, __ATOMIC_SEQ_CST);
		for (size_t i = 0; i < AGENT_ALLOCATORS; i++)
			if (agent.slots[i].alloc)
				withdraw(&agent.slots[i]);
		neap_page_destroy(&agent.page, true);
		agent_external_page_gone();
		neap_recorder_destroy(agent.recorder);
		agent.recorder = NULL;
		agent.attached = false;
		agent.fault = (struct neap_error){0};
		if (!ended)
			neap_fail(&agent.fault, NEAP_ETIMEDOUT, "detaching: the agent's thread did not end in time");
		agent.detaching = false;
		pthread_cond_broadcast(&agent.changed);
	}
	pthread_mutex_unlock(&agent.lock);
}

/* At exit other threads may still allocate, so everything stays mapped, and only the files' names are removed. If the
 * lock is not free within a second, this happens without it. */
__attribute__((destructor)) static void at_exit(void)
{
	struct timespec until = neap_clock_after(NEAP_NS_PER_S);
	bool locked = neap_lock_until(&agent.lock, &until) == 0;
	bool ours = agent.attached && !agent.detaching && agent.identity.pid == getpid();
	if (ours) {
		agent.detaching = true;
		agent_remove_socket(agent.identity.folder, (pid_t)agent.identity.pid);
		agent_emit_pages(agent_target(), agent.page.page);
		neap_page_destroy(&agent.page, false);
	}
	if (locked)
		pthread_mutex_unlock(&agent.lock);
	if (ours && !pthread_equal(agent.server.thread, pthread_self()))
		neap_server_stop(&agent.server, EXIT_BOUND_NS);
}

/* Forks: the child inherits the memory and the descriptors of the parent's agent, but not its thread. That thread, or
 * another, may be inside an allocator. The fork waits for all of them, no longer than the bound. */

static void before_fork(void)
{
	pthread_mutex_lock(&agent.lock);
	if (agent.server.running)
		neap_server_lock(&agent.server);
	agent_external_lock();
	struct timespec until = neap_clock_after(FORK_BOUND_S * NEAP_NS_PER_S);
	agent_peers_lock(&until);
	for (size_t i = 0; i < AGENT_ALLOCATORS; i++)
		agent.slots[i].at_rest = agent.slots[i].alloc && neap_alloc_fork_begin(agent.slots[i].alloc, &until);
}

static void release_allocators(void)
{
	for (size_t i = 0; i < AGENT_ALLOCATORS; i++) {
		if (agent.slots[i].at_rest)
			neap_alloc_fork_end(agent.slots[i].alloc);
		agent.slots[i].at_rest = false;
	}
}

static void after_fork_in_parent(void)
{
	release_allocators();
	agent_peers_unlock();
	agent_external_unlock();
	if (agent.server.running)
		neap_server_unlock(&agent.server);
	pthread_mutex_unlock(&agent.lock);
}

static void after_fork_in_child(void)
{
	release_allocators();
	agent_peers_unlock();
	agent_external_abandon();
	__atomic_store_n(&agent.target, NULL, __ATOMIC_RELEASE);
	if (agent.server.running)
		neap_server_abandon(&agent.server);
	neap_page_abandon(&agent.page);
	neap_recorder_abandon(agent.recorder); /* the file is the parent's */
	agent.recorder = NULL;
	agent.attached = agent.detaching = false;
	agent.fault = (struct neap_error){0};
	memset(agent.slots, 0, sizeof agent.slots); /* the driver, and so no allocator, survives a fork */
	agent.callback_count = 0;
	pthread_cond_init(&agent.changed, NULL); /* its waiters stayed behind */
	pthread_mutex_unlock(&agent.lock);
}

/* Runs when the library is loaded. Sets one pointer and attaches nothing. */
__attribute__((constructor)) static void at_load(void)
{
	static const struct neap_alloc_hook hook = {
		.created = alloc_created, .destroying = alloc_destroying, .lacking = agent_ask_peers};
	if (!forbidden_by_environment())
		neap_set_alloc_hook(&hook);
}
