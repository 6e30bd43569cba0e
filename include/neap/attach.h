/* neap/attach.h: the agent, neap's presence inside a training process.
 *
 * An attached process serves a Unix socket (one thread, started here) on which `neap info`, `neap clear` and the
 * others reach it, publishes its counters in shared memory, and records its events to a file. A process started by
 * `neap run` (NEAP_ATTACH=1) attaches by itself when it creates its first allocator; any other asks for it here.
 *
 * The agent never ends or blocks its process, and never prints; on a fault of its own it disables itself, and
 * neap_attach_state reports it. A fork waits, 2 s at most, for threads that are inside an allocator; after
 * it the child is not attached (its agent is dropped, files of the parent are untouched), and may free from and
 * destroy the allocators that it has copies of. NEAP_ATTACH=0 turns everything off, whatever is called.
 *
 * Memory between processes: before an allocation of an attached process fails for lack of device memory, neap asks
 * the other attached processes of the same run (NEAP_RUN_ID) or series (NEAP_SERIES) that use this device for what
 * they only cache, for 200 ms in all, then tries again, and only then calls the program's OOM callback. Each gives
 * back what it can at once: it waits for no allocator's lock and for no work of the device. No process of another
 * user is ever asked. Nothing is asked during a graph capture, from inside an OOM callback, or where a limit or the
 * device's size is what refuses. NEAP_PEERS=user, set for both processes, extends this to every process of the user;
 * NEAP_PEERS=off ends it for the process that has it.
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
 * call it from an observer of your own while neap_detach runs. An allocator that has no observer gets this one by
 * itself. */
NEAP_API const struct neap_observer *neap_attach_observer(void);

/* Called from the agent's thread when `clear --force` asks for more than emptying caches (release a library's
 * workspaces, drop what may be dropped), and by neap_attach_release in its caller's. Returns bytes released, for the
 * report. Both threads may be in it at once. At most 8; NEAP_ENOSPC beyond. */
typedef uint64_t (*neap_clear_callback)(void *context, bool force);
NEAP_API enum neap_status neap_attach_on_clear(neap_clear_callback callback, void *context);
/* Calls what was registered, in this thread, attached or not. The sum of what they say they released. */
NEAP_API uint64_t neap_attach_release(bool force);

#ifdef __cplusplus
}
#endif
#endif
