/* neap/neap.h: everything public. */
#ifndef NEAP_NEAP_H
#define NEAP_NEAP_H

#include "neap/alloc.h"
#include "neap/attach.h"
#include "neap/checkpoint.h"
#include "neap/device.h"
#include "neap/external.h"
#include "neap/log.h"
#include "neap/stats.h"
#include "neap/status.h"
#include "neap/train.h"
#include "neap/trace.h"
#include "neap/trial.h"

#endif
