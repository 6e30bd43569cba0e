/* analyze/oom_internal.h: between the card's cause (oom.c) and its fixes (fix.c). */
#ifndef NEAP_ANALYZE_OOM_INTERNAL_H
#define NEAP_ANALYZE_OOM_INTERNAL_H

#include "analyze/oom.h"

/* Bytes other processes hold, as far as the record can tell them from contexts and the driver. */
uint64_t neap_oom_neighbours(const struct neap_oom_card *card);

/* Fills fixes and fix_count of a card that is complete but for them. `at`: the failure's index in the journal. */
void neap_oom_fixes(struct neap_oom_card *card, const struct neap_record *record, size_t at);

#endif
