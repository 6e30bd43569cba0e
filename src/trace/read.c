/* trace/read.c: finds out what a file is, and hands it to its reader. */
#include "base/error.h"
#include "neap/trace.h"
#include "trace/formats.h"

#include <string.h>

/* A first look, for files that are certainly something else. */
static const char *what_else(const struct neap_input *input)
{
	static const struct {
		const char *bytes;
		size_t length;
		const char *what;
	} others[] = {
		{"PK\003\004", 4, "a zip archive, as torch.save writes; a snapshot is what _dump_snapshot writes"},
		{"\x1f\x8b", 2, "compressed by gzip; decompress it first"},
		{"(dp", 3, "a pickle of protocol 0; write it with protocol 2 to 5"},
		{"}q", 2, "a pickle of protocol 1; write it with protocol 2 to 5"},
		{"{", 1, "JSON; a snapshot is what torch.cuda.memory._dump_snapshot writes"},
		{"[", 1, "JSON; a snapshot is what torch.cuda.memory._dump_snapshot writes"},
		{"<", 1, "a page; a snapshot is what torch.cuda.memory._dump_snapshot writes"},
		{"\x7f"
		 "ELF",
		 4, "a program"},
	};
	size_t have = (size_t)(input->end - input->at);

	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		if (have >= others[i].length && !memcmp(input->at, others[i].bytes, others[i].length))
			return others[i].what;
	return NULL;
}

static enum neap_trace_source find_source(const struct neap_input *input)
{
	size_t have = (size_t)(input->end - input->at);

	if (*input->at == 0x80)
		return NEAP_TRACE_SNAPSHOT;
	/* A recording's reader opens the file itself: of a compressed one it would see something else. */
	if (have >= 8 && !memcmp(input->at, NEAP_RECORD_MAGIC, 8) && !input->compressed)
		return NEAP_TRACE_RECORDING;
	return NEAP_TRACE_TEXT;
}

enum neap_status neap_trace_read(const char *path, struct neap_trace **ret_trace, struct neap_error *err)
{
	struct neap_input input;
	struct neap_build build = {0};
	enum neap_status status = neap_input_open(&input, path, err);
	bool named = false; /* the message says the path already */

	if (status != NEAP_OK)
		return status;
	const char *other = what_else(&input);
	if (input.at == input.end)
		status = neap_fail(err, NEAP_EPARSE, "it is empty");
	else if (other)
		status = neap_fail(err, NEAP_EPARSE, "it is no trace but %s", other);
	if (status != NEAP_OK)
		goto out;
	enum neap_trace_source source = find_source(&input);
	status = neap_build_init(&build, source, err);
	if (status == NEAP_OK && source == NEAP_TRACE_SNAPSHOT)
		status = neap_pickle_read(&input, &build, err);
	else if (status == NEAP_OK && source == NEAP_TRACE_RECORDING)
		named = (status = neap_recording_read(path, &build, err)) != NEAP_OK;
	else if (status == NEAP_OK)
		status = neap_text_read(&input, &build, err);
	if (status == NEAP_OK) {
		build.trace->bytes_read = input.raw_bytes;
		status = neap_build_finish(&build, ret_trace, err);
	}
	if (status != NEAP_OK && input.failed) { /* what was read of it ends in the middle of something */
		status = input.failed;
		if (err)
			*err = input.error;
	}
out:
	if (status != NEAP_OK && !input.failed && !named)
		neap_error_prefix(err, "reading %s", path);
	neap_build_fini(&build);
	neap_input_close(&input);
	return status;
}
