/* trace/read.c: detects a file's format, and calls its reader. Snapshots and texts are read in order. A recording's
 * reader needs random access, so a recording from a pipe is copied first: at most as many bytes as its header
 * says. */
#include "base/error.h"
#include "neap/trace.h"
#include "trace/formats.h"
#include "trace/record.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Names the format of a file that is certainly not a trace. NULL: it may be one. */
static const char *what_else(const struct neap_input *input)
{
	static const struct {
		const char *bytes;
		size_t length;
		const char *what;
	} others[] = {
		{"PK\003\004", 4, "a zip archive, as torch.save writes; a snapshot is what _dump_snapshot writes"},
		{"\x1f\x8b", 2, "compressed by gzip; decompress it as it is read: neap analyze <(zcat FILE)"},
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
	/* A recording's reader opens the file itself, so it cannot read a compressed one. */
	if (have >= 8 && !memcmp(input->at, NEAP_RECORD_MAGIC, 8) && !input->compressed)
		return NEAP_TRACE_RECORDING;
	return NEAP_TRACE_TEXT;
}

/* Returns the size of the whole recording by its header. If the header is not valid, returns only the header's size,
 * and the reader then refuses it. */
static uint64_t recording_bytes(struct neap_input *input)
{
	struct neap_record_header header;

	if (!neap_input_has(input, sizeof header))
		return sizeof header;
	memcpy(&header, input->at, sizeof header);
	if (header.journal_capacity > NEAP_RECORD_CAPACITY_MAX ||
	    header.allocation_capacity > NEAP_RECORD_CAPACITY_MAX)
		return sizeof header;
	return NEAP_RECORD_HEADER_BYTES +
	       (header.journal_capacity + header.allocation_capacity) * sizeof(struct neap_event);
}

/* Copies the recording into memory. If more bytes follow, copies one of them, so that the reader notices. *ret_fd is
 * the caller's to close. */
static enum neap_status copy_recording(struct neap_input *input, int *ret_fd, struct neap_error *err)
{
	uint64_t left = recording_bytes(input) + 1;
	int fd = memfd_create("neap-recording", MFD_CLOEXEC);

	if (fd < 0)
		return neap_fail_errno(err, errno, "making room for a recording that comes by a pipe");
	while (left > 0 && neap_input_has(input, 1)) {
		size_t have = (size_t)(input->end - input->at);
		ssize_t put = write(fd, input->at, have < left ? have : (size_t)left);
		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0) {
			enum neap_status status =
				neap_fail_errno(err, errno, "copying a recording that comes by a pipe");
			close(fd);
			return status;
		}
		input->at += put;
		left -= (uint64_t)put;
	}
	*ret_fd = fd;
	return NEAP_OK;
}

static enum neap_status read_recording(struct neap_input *input, struct neap_build *build, bool *ret_named,
				       struct neap_error *err)
{
	char copy[32];
	int fd = -1;

	if (input->file_bytes != UINT64_MAX && strcmp(input->path, "-") != 0) {
		*ret_named = true;
		return neap_recording_read(input->path, build, err);
	}
	enum neap_status status = copy_recording(input, &fd, err);
	if (status)
		return status;
	snprintf(copy, sizeof copy, "/proc/self/fd/%d", fd);
	status = neap_recording_read(copy, build, err);
	close(fd);
	return status;
}

enum neap_status neap_trace_read(const char *path, struct neap_trace **ret_trace, struct neap_error *err)
{
	struct neap_input input;
	struct neap_build build = {0};
	enum neap_status status = neap_input_open(&input, path, err);
	bool named = false; /* the message already has the path */

	if (status)
		return status;
	const char *other = what_else(&input);
	if (input.at == input.end)
		status = neap_fail(err, NEAP_EPARSE, "it is empty");
	else if (other)
		status = neap_fail(err, NEAP_EPARSE, "it is not a trace but %s", other);
	if (status)
		goto out;
	enum neap_trace_source source = find_source(&input);
	status = neap_build_init(&build, source, err);
	if (!status && source == NEAP_TRACE_SNAPSHOT)
		status = neap_pickle_read(&input, &build, err);
	else if (!status && source == NEAP_TRACE_RECORDING)
		status = read_recording(&input, &build, &named, err);
	else if (!status)
		status = neap_text_read(&input, &build, err);
	if (!status) {
		build.trace->bytes_read = input.raw_bytes;
		status = neap_build_finish(&build, ret_trace, err);
	}
	if (status && input.failed) { /* the bytes that were read end in the middle of a value */
		status = input.failed;
		if (err)
			*err = input.error;
	}
out:
	if (status && !input.failed && !named)
		neap_error_prefix(err, "reading %s", path);
	neap_build_fini(&build);
	neap_input_close(&input);
	return status;
}
