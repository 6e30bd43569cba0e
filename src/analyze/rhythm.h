/* analyze/rhythm.h: finds how many micro-batches a training step has, by the rhythm of its allocations. Pure.
 *
 *   level         /\        /\        /\
 *               _/  \______/  \______/  \___/\/\_     a step of three micro-batches, then the optimizer
 *   sizes        a b c d   a b c d   a b c d   o o
 *
 * A micro-batch asks for the same sizes as the one before it, begins with them in the same order, and gives back most
 * of what it took. The first one also leaves the gradients, so that levels alone do not show the rhythm of a model
 * whose gradients are larger than its activations. Layers repeat as well, but without giving anything back, and they
 * are not the whole step.
 */
#ifndef NEAP_ANALYZE_RHYTHM_H
#define NEAP_ANALYZE_RHYTHM_H

#include "analyze/lanes.h"

/* One allocation of a step. */
struct neap_beat {
	uint64_t bytes;  /* as requested */
	uint64_t before; /* the live bytes just before it */
};

#define NEAP_RHYTHM_BEATS 65536 /* a step with more allocations is not examined */

/* `end_bytes`: live when the step ends. Returns 1 if nothing repeats, or if host memory ran out. */
size_t neap_rhythm_find(const struct neap_beat *beats, size_t count, uint64_t end_bytes);

/* Returns the rhythm of a lane of a recording: the median over its newest steps that are whole in the allocation
 * ring; 1: none. */
uint64_t neap_rhythm_recorded(const struct neap_record *record, const struct neap_lanes *lanes, size_t lane);

#endif
