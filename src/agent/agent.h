/* agent/agent.h: the functions that the agent's files share. A process has one instance of the agent (attach.c). */
#ifndef NEAP_AGENT_AGENT_H
#define NEAP_AGENT_AGENT_H

#include "neap/attach.h"
#include "neap/trace.h"
#include "proto/fields.h"
#include "proto/page.h"

#include <sys/types.h>
#include <time.h>

#define AGENT_ALLOCATORS 64 /* known to the agent; the page shows the first NEAP_PAGE_DEVICES */

/* NEAP_PEERS: which processes of this user ask each other for memory. */
enum agent_peers {
	AGENT_PEERS_RUN,  /* processes of the same run or series; the default */
	AGENT_PEERS_USER, /* also all other processes with this setting */
	AGENT_PEERS_OFF,
};

/* What an agent reports about itself. */
struct agent_identity {
	int64_t pid;
	uint64_t start_ticks;
	char name[64], run_id[64], series[64], record_path[512];
	char folder[4096]; /* RUNTIME */
	enum agent_peers peers;
};

/* Copies the identity, and the fault that disabled the agent, if any. Returns the fault's status, or NEAP_OK. */
enum neap_status agent_identify(struct agent_identity *ret_identity, struct neap_error *ret_fault);

/* The same. False: not attached, detaching, disabled, or the lock was not free before `until` (CLOCK_MONOTONIC). */
bool agent_identify_until(struct agent_identity *ret_identity, const struct timespec *until);

/* Lists the allocators. None of them is destroyed before agent_unpin is called with the same list. */
size_t agent_pin(struct neap_alloc *ret_allocators[AGENT_ALLOCATORS]);
void agent_unpin(struct neap_alloc *const *allocators, size_t count);

/* Calls the functions that the program registered, without the agent's lock. Returns the sum of the bytes
 * released. */
uint64_t agent_call_clear(bool force);

/* Checks that this process is the one that attached, and that the page is intact. If not, disables the agent until it
 * attaches again. */
void agent_check(void);

/* The recorder's observer, which gets the events; NULL while there is no recorder. Takes no lock. */
const struct neap_observer *agent_target(void);

/* page_event.c: send NEAP_EVENT_PAGE of one slot, or of all in use. Take no lock; `target` and `page` may be NULL. */
void agent_emit_page(const struct neap_observer *target, const struct neap_published *slot);
void agent_emit_pages(const struct neap_observer *target, const struct neap_page *page);

/* socket.c: listens on FOLDER/PID.sock. Replaces an existing one, which an earlier process of this PID left, or this
 * one before an exec. */
enum neap_status agent_open_socket(const char *folder, pid_t pid, int *ret_fd, struct neap_error *err);
void agent_remove_socket(const char *folder, pid_t pid);

/* settings.c: applies the environment to a new allocator. NEAP_FRACTION sets its limit if the program did not. An
 * invalid value, also of NEAP_PEERS, is ignored and reported in *ret_note, whose status is otherwise NEAP_OK. */
void agent_apply_environment(struct neap_alloc *alloc, struct neap_error *ret_note);

enum agent_peers agent_peers_setting(void);

/* peers.c: whether this process and processes of that run and series ask each other for memory. */
bool agent_is_related(const struct agent_identity *self, const char *run_id, const char *series);

/* peers.c: asks other processes to give back what they cache on the allocator's device. It is the hook `lacking` of
 * struct neap_alloc_hook. Takes 200 ms at most. */
void agent_ask_peers(struct neap_alloc *alloc, struct neap_asked *ret_asked);
/* Called before a fork, and after it in parent and child. Locking waits for an asking thread, at most until
 * `until`. */
void agent_peers_lock(const struct timespec *until);
void agent_peers_unlock(void);

/* release.c: answers such a request of another process, in the server's thread. */
enum neap_status agent_answer_release(const struct neap_fields *arguments, struct neap_field_writer *reply,
				      struct neap_error *err);

/* requests.c: executes one request, in the server's thread. */
enum neap_status agent_execute(void *context, unsigned command, const struct neap_fields *arguments,
			       struct neap_field_writer *reply, struct neap_error *err);

#endif
