/* neap/attach.h: the agent, neap's presence inside a training process.
 *
 * An attached process serves a Unix socket (one thread, started here) on which `neap info`, `neap clear` and the
 * others reach it, publishes its counters in shared memory, and records its events to a file. A process started by
 * `neap run` (NEAP_ATTACH=1) attaches by itself when it creates its first allocator; any other process calls
 * neap_attach.
 *
 * The agent never ends or blocks its process, and never prints; on a fault of its own it disables itself, and
 * neap_attach_state reports it. A fork waits at most 2 s for threads that are inside an allocator. The child is not
 * attached: its agent is dropped, and the parent's files stay untouched. It may free from, and destroy, its copies of
 * the allocators. NEAP_ATTACH=0 turns everything off, whatever the program calls.
 *
 * Memory between processes: before an allocation of an attached process fails for lack of device memory, neap asks
 * the other attached processes of the same run (NEAP_RUN_ID) or series (NEAP_SERIES) on this device for their cached
 * memory. This takes at most 200 ms. Then it tries again, and only then calls the program's OOM callback. Each
 * process gives back what it can at once: it waits neither for an allocator's lock nor for work of the device. neap
 * never asks a process of another user. It asks no process during a graph capture, inside an OOM callback, or if a
 * limit or the device's size refuses the request. NEAP_PEERS=user, set for both processes, extends this to every
 * process of the user; NEAP_PEERS=off turns it off for the process that has it.
 *
 * NEAP_FRACTION=F limits every allocator created without a fraction (or with 1) to that share of its device, as
 * neap_set_fraction does, attached or not.
 */
#ifndef NEAP_ATTACH_H
#define NEAP_ATTACH_H

#include "neap/alloc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Attaches this process: every allocator that exists or will be created. Idempotent. Errors: NEAP_EPERM when the
 * runtime folder is not ours, NEAP_ENOSPC, NEAP_EIO, ...; the process continues unattached. NEAP_ECANCELED:
 * NEAP_ATTACH=0. */
NEAP_API enum neap_status neap_attach(struct neap_error *err);

/* Ends the agent's thread and removes its socket and page; the recording stays where it is (one in the runtime folder
 * for a day after the process ended). Waits for a request that is being executed, at most 10 s. Idempotent. Not from
 * a clear callback. */
NEAP_API void neap_detach(void);

/* NEAP_OK while attached; NEAP_ESTATE when not; else the fault that disabled the agent, with its message, or
 * NEAP_EPARSE for a value of NEAP_FRACTION that is not a fraction: it was ignored, the agent works. */
NEAP_API enum neap_status neap_attach_state(struct neap_error *ret_error);

/* Sets the note that `neap info` shows for this process, in place of the one before; "" for none. Use it for what the
 * user should know, such as a part of an integration that failed to start. Does nothing while not attached. */
NEAP_API void neap_attach_note(const char *text);

/* The observer that records this process's events (marks, steps and so on), or NULL when it is not attached. It may
 * be given to an allocator, and stays valid forever, though it records nothing once the process is detached; do not
 * call it from an observer of your own while neap_detach runs. An allocator without an observer gets this one
 * automatically. */
NEAP_API const struct neap_observer *neap_attach_observer(void);

/* Called in the agent's thread when `clear --force` asks for more than emptying caches (release a library's
 * workspaces, drop data that may be dropped), and by neap_attach_release in its caller's thread. Both threads may
 * call it at once. Returns the bytes released, for the report. At most 8 callbacks; NEAP_ENOSPC beyond. */
typedef uint64_t (*neap_clear_callback)(void *context, bool force);
NEAP_API enum neap_status neap_attach_on_clear(neap_clear_callback callback, void *context);
/* Calls the registered callbacks in this thread, attached or not. Returns the sum of the bytes that they report. */
NEAP_API uint64_t neap_attach_release(bool force);

#ifdef __cplusplus
}
#endif
#endif
