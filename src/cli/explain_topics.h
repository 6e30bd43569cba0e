/* cli/explain_topics.h: what `neap explain TOPIC` says: the words, and which figures of this machine go with them. */
#ifndef NEAP_CLI_EXPLAIN_TOPICS_H
#define NEAP_CLI_EXPLAIN_TOPICS_H

#include "base/buffer.h"
#include "machine/sample.h"

struct explain_topic {
	const char *name;
	/* Its text, one line per paragraph (tools/help_text.py): first a summary, then lists, each below a line with
	 * its title after "# ". */
	const char *text;
	/* What one look at this machine says to it; NULL: nothing. */
	void (*here)(struct neap_buffer *out, const struct neap_sample *sample);
};

/* Ends with a NULL name. */
extern const struct explain_topic explain_topics[];

#endif
