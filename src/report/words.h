/* report/words.h: neap's words on a page, which explain themselves at a touch. A word is a button, its explanation an
 * element that the browser shows without a script. Pure. */
#ifndef NEAP_REPORT_WORDS_H
#define NEAP_REPORT_WORDS_H

#include "base/buffer.h"

/* Appends `text`. If it ends with a word that is explained ("peak reserved"), the word becomes a button. Text from
 * outside is escaped. */
void neap_words_put(struct neap_buffer *out, const char *text);
/* Appends the explanations, once for each page. */
void neap_words_explain(struct neap_buffer *out);

#endif
