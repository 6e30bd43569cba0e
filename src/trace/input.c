/* trace/input.c: a window over a file, filled by read(2), so that data read before does not stay in our memory. */
#include "trace/input.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#define CAPACITY (NEAP_INPUT_WINDOW * 2)
/* A text trace shrinks to a sixth. A file that grows far more was made to fill memory. */
#define RATIO_MAX      500u
#define RATIO_FREE     (64u << 20)
#define WINDOW_LOG_MAX 27 /* 128 MiB: the most that `zstd -19` and lower levels need */

struct neap_inflate {
	ZSTD_DCtx *context;
	ZSTD_inBuffer in;
	size_t pending; /* bytes that the decoder still expects; 0 between frames */
	unsigned char raw[NEAP_INPUT_WINDOW / 2];
};

static bool stop(struct neap_input *input, enum neap_status status)
{
	input->failed = status;
	input->ended = true;
	return false;
}

/* Reads up to `capacity` bytes of the file as they are; returns 0 at its end or on failure. */
static size_t read_raw(struct neap_input *input, void *bytes, size_t capacity)
{
	for (;;) {
		ssize_t got = read(input->fd, bytes, capacity);
		if (got >= 0) {
			input->raw_bytes += (uint64_t)got;
			return (size_t)got;
		}
		if (errno != EINTR) {
			stop(input, neap_fail_errno(&input->error, errno, "reading %s", input->path));
			return 0;
		}
	}
}

static size_t broken_zstd(struct neap_input *input, const char *what)
{
	stop(input, neap_fail(&input->error, NEAP_EPARSE, "reading %s: its zstd data is broken near byte %llu: %s",
			      input->path, (unsigned long long)input->raw_bytes, what));
	input->error.position = input->raw_bytes;
	return 0;
}

/* Reads up to `capacity` decompressed bytes; returns 0 at the end or on failure. */
static size_t read_inflated(struct neap_input *input, void *bytes, size_t capacity)
{
	struct neap_inflate *inflate = input->inflate;
	ZSTD_outBuffer out = {.dst = bytes, .size = capacity};
	uint64_t position = input->base + (uint64_t)(input->end - input->window);

	while (out.pos == 0) {
		if (inflate->in.pos == inflate->in.size) {
			inflate->in.pos = 0;
			inflate->in.size = read_raw(input, inflate->raw, sizeof inflate->raw);
			if (!inflate->in.size && input->failed)
				return 0;
			if (!inflate->in.size && inflate->pending)
				return broken_zstd(input, "it is cut short");
			if (!inflate->in.size)
				return 0;
		}
		inflate->pending = ZSTD_decompressStream(inflate->context, &out, &inflate->in);
		if (ZSTD_isError(inflate->pending))
			return broken_zstd(input, ZSTD_getErrorName(inflate->pending));
	}
	if (position > RATIO_FREE && position / RATIO_MAX > input->raw_bytes)
		return broken_zstd(input, "it expands more than 500 times");
	return out.pos;
}

bool neap_input_fill(struct neap_input *input, size_t bytes)
{
	size_t unread = (size_t)(input->end - input->at);

	if (unread >= bytes)
		return true;
	if (input->ended)
		return false;
	if (input->at != input->window) {
		memmove(input->window, input->at, unread);
		input->base += (uint64_t)(input->at - input->window);
	}
	input->at = input->window;
	input->end = input->window + unread;
	while (unread < bytes) {
		size_t got = input->compressed ? read_inflated(input, input->window + unread, CAPACITY - unread)
					       : read_raw(input, input->window + unread, CAPACITY - unread);
		if (!got) {
			input->ended = true;
			return false;
		}
		unread += got;
		input->end = input->window + unread;
	}
	return true;
}

static enum neap_status begin_zstd(struct neap_input *input, struct neap_error *err)
{
	struct neap_inflate *inflate = input->inflate = calloc(1, sizeof *inflate);
	size_t have = (size_t)(input->end - input->at);

	if (inflate)
		inflate->context = ZSTD_createDCtx();
	if (!inflate || !inflate->context ||
	    ZSTD_isError(ZSTD_DCtx_setParameter(inflate->context, ZSTD_d_windowLogMax, WINDOW_LOG_MAX)))
		return neap_fail(err, NEAP_ENOMEM, "reading %s: out of host memory", input->path);
	/* The first read asked for no more than this. */
	memcpy(inflate->raw, input->at, have);
	inflate->in = (ZSTD_inBuffer){.src = inflate->raw, .size = have};
	input->compressed = true;
	input->ended = false;
	input->at = input->end = input->window;
	if (!neap_input_fill(input, 1) && input->failed) {
		if (err)
			*err = input->error;
		return input->failed;
	}
	return NEAP_OK;
}

enum neap_status neap_input_open(struct neap_input *input, const char *path, struct neap_error *err)
{
	static const unsigned char zstd_magic[] = {0x28, 0xb5, 0x2f, 0xfd};
	enum neap_status status = NEAP_OK;
	struct stat about;
	size_t have = 0, got;

	*input = (struct neap_input){.path = path, .fd = -1, .file_bytes = UINT64_MAX};
	input->fd = strcmp(path, "-") == 0 ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)
					   : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (input->fd < 0 || fstat(input->fd, &about) != 0) {
		status = neap_fail_errno(err, errno, "opening the trace %s", path);
		goto out;
	}
	if (S_ISDIR(about.st_mode)) {
		status = neap_fail(err, NEAP_EINVAL, "%s is a folder, not a trace", path);
		goto out;
	}
	if (S_ISREG(about.st_mode))
		input->file_bytes = (uint64_t)about.st_size;
	input->window = malloc(CAPACITY);
	if (!input->window) {
		status = neap_fail(err, NEAP_ENOMEM, "reading %s: out of host memory", path);
		goto out;
	}
	while (have < 16 && (got = read_raw(input, input->window + have, 4096 - have)) > 0)
		have += got;
	input->at = input->window;
	input->end = input->window + have;
	if (input->failed) {
		status = input->failed;
		if (err)
			*err = input->error;
	} else if (have >= sizeof zstd_magic && !memcmp(input->window, zstd_magic, sizeof zstd_magic)) {
		status = begin_zstd(input, err);
	}
out:
	if (status)
		neap_input_close(input);
	return status;
}

void neap_input_close(struct neap_input *input)
{
	if (input->inflate)
		ZSTD_freeDCtx(input->inflate->context);
	free(input->inflate);
	free(input->window);
	if (input->fd >= 0)
		close(input->fd);
	*input = (struct neap_input){.fd = -1};
}
