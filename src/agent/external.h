/* agent/external.h: the agent's side of another allocator in the process: include/neap/external.h. */
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

/* Passes a request on (its id is not read) and waits for its answer; from the server's thread. NEAP_ENOENT: there is
 * no external allocator, nothing was asked. NEAP_EBUSY: the program did not come to it in time, or not to its end.
 * NEAP_OK: *ret_answer is what was answered, valid until the next call; its status may be a refusal. */
enum neap_status agent_external_ask(const struct neap_external_request *request,
				    const struct agent_external_bounds *bounds,
				    const struct agent_external_answer **ret_answer, struct neap_error *err);

/* Whether the external allocator caches memory on the device of this UUID, as far as it has published. */
bool agent_external_caches(const unsigned char uuid[16]);

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
