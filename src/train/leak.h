/* train/leak.h: tests whether memory grows with the steps. The public header is neap/leak.h. */
#ifndef NEAP_TRAIN_LEAK_H
#define NEAP_TRAIN_LEAK_H

#include "neap/leak.h"

#include <stdbool.h>

#endif
