/* run/keep_internal.h: the parts of run/keep.h, for keep*.c only. */
#ifndef NEAP_RUN_KEEP_INTERNAL_H
#define NEAP_RUN_KEEP_INTERNAL_H

#include "run/keep.h"

#define NEAP_KEEP_SPARE 1024u /* events of frees that were missed, beside those of a step */

static inline size_t neap_keep_device(const struct neap_event *event)
{
	return event->device < NEAP_KEEP_DEVICES ? event->device : NEAP_KEEP_DEVICES - 1;
}

/* keep_live.c: follows the live blocks. After events were lost it mends those that do not fit, and adds frees that
 * were missed to the open events. False: the event is left out, since it is of a block, or of a request to free one,
 * that was not seen. */
bool neap_keep_account(struct neap_keep *keep, struct neap_event *event);

#endif
