/* report/recording.h: the text of `neap explain` about a recording, of a run that is over or that continues. */
#ifndef NEAP_REPORT_RECORDING_H
#define NEAP_REPORT_RECORDING_H

#include "base/buffer.h"
#include "proto/page.h"

#include <jansson.h>

struct neap_report_recording {
	const char *path; /* NULL: none was asked for */
	uint64_t number;  /* which failure, from 1; 0: the last */
	bool live;        /* of a running process: `page` is what it reports now */
	struct neap_attached page;
};

/* Errors: those of neap_trace_read and of the replays. */
enum neap_status neap_report_recording_text(struct neap_buffer *out, const struct neap_report_recording *from,
					    bool leak_only, struct neap_error *err);
enum neap_status neap_report_recording_json(const struct neap_report_recording *from, json_t **ret_root,
					    struct neap_error *err);

#endif
