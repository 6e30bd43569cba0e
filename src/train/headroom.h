/* train/headroom.h: records how much the process may reserve, for the advice at the end of a run. */
#ifndef NEAP_TRAIN_HEADROOM_H
#define NEAP_TRAIN_HEADROOM_H

#include "neap/alloc.h"

/* Emits NEAP_EVENT_ROOM; does nothing if the driver does not report free memory. */
void neap_headroom_emit(struct neap_alloc *alloc);

#endif
