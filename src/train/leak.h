/* train/leak.h: does memory grow with the steps? Public: neap/leak.h. */
#ifndef NEAP_TRAIN_LEAK_H
#define NEAP_TRAIN_LEAK_H

#include "neap/leak.h"

#include <stdbool.h>

#endif
