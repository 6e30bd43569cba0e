/* train/room.h: what the process may reserve in all, into the recording: for the advice at the end of a run. */
#ifndef NEAP_TRAIN_ROOM_H
#define NEAP_TRAIN_ROOM_H

#include "neap/alloc.h"

/* Emits NEAP_EVENT_ROOM; nothing when the driver will not say. */
void neap_room_emit(struct neap_alloc *alloc);

#endif
