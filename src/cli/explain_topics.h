/* cli/explain_topics.h: what `neap explain TOPIC` says: the words, and which figures of this machine go with them. */
#ifndef NEAP_CLI_EXPLAIN_TOPICS_H
#define NEAP_CLI_EXPLAIN_TOPICS_H

#include "base/buffer.h"
#include "cli/look.h"

struct explain_topic {
	const char *name;
	const char *summary;       /* one line */
	const char *const *causes; /* paragraphs; end with NULL */
	const char *const *fixes;  /* likewise, the first first */
	/* What one look at this machine says to it; NULL: nothing. */
	void (*here)(struct neap_buffer *out, const struct look *look);
};

/* Ends with a NULL name. */
extern const struct explain_topic explain_topics[];

#endif
