/* run/keep_internal.h: the parts of run/keep.h, for keep*.c only. */
#ifndef NEAP_RUN_KEEP_INTERNAL_H
#define NEAP_RUN_KEEP_INTERNAL_H

#include "run/keep.h"

#define NEAP_KEEP_SPARE 1024u /* added frees that were missed, besides the events of a step */

static inline size_t neap_keep_device(const struct neap_event *event)
{
	return event->device < NEAP_KEEP_DEVICES ? event->device : NEAP_KEEP_DEVICES - 1;
}

/* keep_live.c: follows the live blocks. After events were lost, repairs those that do not fit, and adds the missed
 * frees to the open events. False: drop the event, because its block, or the request to free the block, was never
 * seen. */
bool neap_keep_account(struct neap_keep *keep, struct neap_event *event);

#endif
