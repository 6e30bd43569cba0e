/* agent/agent.h: what the agent's files know of the one instance in a process. */
#ifndef NEAP_AGENT_AGENT_H
#define NEAP_AGENT_AGENT_H

#include "neap/attach.h"
#include "neap/trace.h"
#include "proto/fields.h"
#include "proto/page.h"

#include <sys/types.h>
#include <time.h>

#define AGENT_ALLOCATORS 64 /* known to the agent; the page shows the first NEAP_PAGE_DEVICES */

/* NEAP_PEERS, which processes of this user ask each other for memory. */
enum agent_peers {
	AGENT_PEERS_RUN,  /* those of the same run or series: the default */
	AGENT_PEERS_USER, /* all for which this is set, and those of the same run or series */
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

/* A copy, and the fault that disabled the agent, if any: its status, else NEAP_OK. */
enum neap_status agent_identify(struct agent_identity *ret_identity, struct neap_error *ret_fault);

/* The same while attached and not disabled, else false; false also if the lock is not free until then
 * (CLOCK_REALTIME). */
bool agent_identify_until(struct agent_identity *ret_identity, const struct timespec *until);

/* The allocators there are; none of them is destroyed before agent_unpin is called with the same list. */
size_t agent_pin(struct neap_alloc *ret_allocators[AGENT_ALLOCATORS]);
void agent_unpin(struct neap_alloc *const *allocators, size_t count);

/* Calls what the program registered, without any lock of ours; the sum of what they say they released. */
uint64_t agent_call_clear(bool force);

/* Checks what must be so (that this is still the process that attached, that the page is as it was written); what is
 * not disables the agent for good. */
void agent_check(void);

/* Where events go: the recorder while there is one, else NULL. Takes no lock. */
const struct neap_observer *agent_target(void);

/* page_event.c: NEAP_EVENT_PAGE of one slot, and of all in use. Take no lock; `target` and `page` may be NULL. */
void agent_emit_page(const struct neap_observer *target, const struct neap_published *slot);
void agent_emit_pages(const struct neap_observer *target, const struct neap_page *page);

/* socket.c: listens on FOLDER/PID.sock. One that is there was left by an earlier process of this PID, or by this one
 * before an exec: it is replaced. */
enum neap_status agent_open_socket(const char *folder, pid_t pid, int *ret_fd, struct neap_error *err);
void agent_remove_socket(const char *folder, pid_t pid);

/* settings.c: what the environment says of an allocator that has just been made. An invalid value is ignored and
 * noted in *ret_note (else its status is NEAP_OK), also one of NEAP_PEERS. NEAP_FRACTION limits what the program did
 * not. */
void agent_heed_environment(struct neap_alloc *alloc, struct neap_error *ret_note);

enum agent_peers agent_peers_setting(void);

/* peers.c: whether this process asks processes of that run and series for memory, and gives them its own. */
bool agent_is_related(const struct agent_identity *self, const char *run_id, const char *series);

/* peers.c: asks other processes for what they cache on the allocator's device; the hook `lacking` of struct
 * neap_alloc_hook. Takes 200 ms at most. */
void agent_ask_peers(struct neap_alloc *alloc, struct neap_asked *ret_asked);
/* Around a fork, in parent and child: waits for a thread that asks, until then. */
void agent_peers_lock(const struct timespec *until);
void agent_peers_unlock(void);

/* release.c: the answer to such a request, in the server's thread. */
enum neap_status agent_answer_release(const struct neap_fields *arguments, struct neap_field_writer *reply,
				      struct neap_error *err);

/* requests.c: executes one request, in the server's thread. */
enum neap_status agent_execute(void *context, unsigned command, const struct neap_fields *arguments,
			       struct neap_field_writer *reply, struct neap_error *err);

#endif
