/* agent/external.h: the agent's side of an external allocator in the process (include/neap/external.h). */
#ifndef NEAP_AGENT_EXTERNAL_H
#define NEAP_AGENT_EXTERNAL_H

#include "neap/external.h"
#include "proto/page.h"

#include <stdbool.h>
#include <stdint.h>

struct agent_external_answer {
	enum neap_status status;
	size_t count;
	struct neap_device_answer devices[NEAP_EXTERNAL_DEVICES];
	char text[NEAP_EXTERNAL_TEXT];
};

/* How long the program has to begin a request, and then to finish it. */
struct agent_external_bounds {
	uint32_t begin_ms, finish_ms;
};
extern const struct agent_external_bounds agent_external_bounds;

/* Passes a request to the program (its id is not read) and waits for the answer. Called by the server's thread.
 * NEAP_ENOENT: there is no external allocator. NEAP_EBUSY: the program did not begin or finish the request in time.
 * NEAP_OK: *ret_answer is the answer, valid until the next call; its status may be a refusal. */
enum neap_status agent_external_ask(const struct neap_external_request *request,
				    const struct agent_external_bounds *bounds,
				    const struct agent_external_answer **ret_answer, struct neap_error *err);

/* Whether the external allocator has published that it caches memory on the device of this UUID. */
bool agent_external_caches(const unsigned char uuid[16]);

/* Called before and after a fork; in the child, abandon instead of unlock. */
void agent_external_lock(void);
void agent_external_unlock(void);
void agent_external_abandon(void);
/* Withdraws the current request, if any, because this process detaches. */
void agent_external_interrupt(void);

/* attach.c: calls `write` with the page, under the agent's lock. False: the process is not attached, nothing was
 * called. */
bool agent_with_page(void (*write)(struct neap_page_owner *page, void *context), void *context);
/* Forgets the slots of a page that is destroyed. The agent's lock is held. */
void agent_external_page_gone(void);

#endif
