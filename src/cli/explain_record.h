/* cli/explain_record.h: what `neap explain` says about a recording, of a run that is over or that continues. */
#ifndef NEAP_CLI_EXPLAIN_RECORD_H
#define NEAP_CLI_EXPLAIN_RECORD_H

#include "base/buffer.h"
#include "cli/command.h"
#include "proto/page.h"

#include <jansson.h>

struct explain_record {
	const char *path; /* NULL: none was asked for */
	uint64_t number;  /* which failure, from 1; 0: the last */
	bool live;        /* of a running process: `page` is what it reports now */
	struct neap_attached page;
};

/* Fills *ret_from for --pid. An exit code; unless it is NEAP_EXIT_OK it was explained on stderr. */
int explain_record_of(const struct neap_arguments *arguments, const char *pid, struct explain_record *ret_from);

/* Errors: those of neap_trace_read and of the replays. */
enum neap_status explain_record_text(struct neap_buffer *out, const struct explain_record *from, bool leak_only,
				     struct neap_error *err);
enum neap_status explain_record_json(const struct explain_record *from, json_t **ret_root, struct neap_error *err);

#endif
