/* agent/external.h: the agent's side of another allocator in the process: include/neap/external.h. */
#ifndef NEAP_AGENT_EXTERNAL_H
#define NEAP_AGENT_EXTERNAL_H

#include "neap/external.h"
#include "proto/page.h"

#include <stdbool.h>

struct agent_external_answer {
	enum neap_status status;
	size_t count;
	struct neap_device_answer devices[NEAP_EXTERNAL_DEVICES];
	char text[NEAP_EXTERNAL_TEXT];
};

/* Passes a request on and waits for its answer; from the server's thread. NEAP_ENOENT: there is no external
 * allocator, nothing was asked. NEAP_EBUSY: the program did not come to it in time, or not to its end. NEAP_OK:
 * *ret_answer is what was answered, valid until the next call; its status may be a refusal. */
enum neap_status agent_external_ask(enum neap_external_kind kind, bool force, double fraction,
				    const struct agent_external_answer **ret_answer, struct neap_error *err);

/* Around a fork, and in its child instead of the second. */
void agent_external_lock(void);
void agent_external_unlock(void);
void agent_external_abandon(void);
/* The request under way, if any, is withdrawn: its process detaches. */
void agent_external_interrupt(void);

/* attach.c: calls `write` with this process's page while it is attached, under the agent's lock; whether it did. */
bool agent_with_page(void (*write)(struct neap_page_owner *page, void *context), void *context);
/* The page is gone, with the slots in it. Under the agent's lock. */
void agent_external_page_gone(void);

#endif
