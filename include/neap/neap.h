/* neap/neap.h: everything public. Link with -lneap (pkg-config: neap). neap/status.h has the rules for every
 * function: how errors come back, the order of arguments, and which pointers may be NULL. */
#ifndef NEAP_NEAP_H
#define NEAP_NEAP_H

#include "neap/alloc.h"
#include "neap/attach.h"
#include "neap/checkpoint.h"
#include "neap/device.h"
#include "neap/drain.h"
#include "neap/event.h"
#include "neap/external.h"
#include "neap/leak.h"
#include "neap/log.h"
#include "neap/plugin.h"
#include "neap/sim.h"
#include "neap/stats.h"
#include "neap/status.h"
#include "neap/trace.h"
#include "neap/train.h"
#include "neap/trial.h"

#endif
