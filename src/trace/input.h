/* trace/input.h: the bytes of a trace file in order, decompressed when they are zstd's, through a window of bounded
 * size. One thread.
 *
 *   window:  [ read already | at ... end )      position of `at` = base + (at - window)
 */
#ifndef NEAP_TRACE_INPUT_H
#define NEAP_TRACE_INPUT_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEAP_INPUT_WINDOW (1u << 18) /* bytes: the most that neap_input_fill can make available */

struct neap_input {
	const unsigned char *at, *end; /* unread bytes of the window; the reader moves `at` */
	const char *path;              /* borrowed */
	unsigned char *window;
	uint64_t base;       /* position of the window's first byte in the decompressed data */
	uint64_t file_bytes; /* the size of the file on disk; UINT64_MAX: it is a pipe */
	uint64_t raw_bytes;  /* read from the file so far */
	bool ended;          /* nothing follows the window */
	bool compressed;
	int fd;
	enum neap_status failed; /* why reading ended early; NEAP_OK at the file's end */
	struct neap_error error; /* its message */
	struct neap_inflate *inflate;
};

/* Opens PATH ("-": standard input) and reads its first bytes; of a pipe, waits for them. Errors: NEAP_ENOENT,
 * NEAP_EPERM, NEAP_EIO, NEAP_ENOMEM; NEAP_EPARSE when it begins like zstd but is not. */
enum neap_status neap_input_open(struct neap_input *input, const char *path, struct neap_error *err);
/* Makes at least `bytes` (at most NEAP_INPUT_WINDOW) unread bytes available by moving the window. False: the input
 * ends or fails before. Pointers into the window become invalid. */
bool neap_input_fill(struct neap_input *input, size_t bytes);
void neap_input_close(struct neap_input *input);

static inline uint64_t neap_input_position(const struct neap_input *input)
{
	return input->base + (uint64_t)(input->at - input->window);
}

static inline bool neap_input_has(struct neap_input *input, size_t bytes)
{
	return (size_t)(input->end - input->at) >= bytes || neap_input_fill(input, bytes);
}

#endif
