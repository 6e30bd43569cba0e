/* estimate/page.h: an estimate as markup, for the top of the page of its allocations: the text, and with --fit the
 * curve of memory over the parameter. Pure. */
#ifndef NEAP_ESTIMATE_PAGE_H
#define NEAP_ESTIMATE_PAGE_H

#include "estimate/text.h"

void neap_estimate_markup(struct neap_buffer *out, const struct neap_estimate_report *report);

#endif
