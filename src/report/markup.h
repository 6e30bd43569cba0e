/* report/markup.h: escapes text from outside for a page. */
#ifndef NEAP_REPORT_MARKUP_H
#define NEAP_REPORT_MARKUP_H

#include "base/buffer.h"

/* Appends `text` escaped for element content and quoted attributes. Bytes that are not UTF-8, and characters that
 * turn the direction of writing (so that a name could show as another one), become U+FFFD; control characters but
 * line ends and tabs become '?'. */
void neap_markup_text(struct neap_buffer *out, const char *text);

#endif
