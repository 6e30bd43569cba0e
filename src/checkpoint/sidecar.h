/* checkpoint/sidecar.h: the numbers (and texts) in a file of metrics that stands beside a checkpoint. libc only, any
 * thread; pure, but for checkpoint_text_read.
 *
 * JSON is read strictly, whole, at most 64 levels deep; NaN, Infinity and -Infinity are taken as numbers, as Python
 * writes them. YAML is read as far as people use it here: "word: number" at the beginning of a line; indented lines
 * below it and lists are skipped; any other line is an error.
 */
#ifndef NEAP_CHECKPOINT_SIDECAR_H
#define NEAP_CHECKPOINT_SIDECAR_H

#include "checkpoint/name.h"

#include "base/buffer.h"

/* `word`: the key, normalized. `depth`: 1 for those of the file itself, more inside lists and objects. */
struct checkpoint_sidecar_visitor {
	void (*number)(void *context, const char *word, unsigned depth, double value);
	/* May be NULL. Of JSON only: a text, its escapes resolved; not terminated. */
	void (*text)(void *context, const char *word, unsigned depth, const char *text, size_t length);
	void *context;
};

/* `text` is terminated at `length`. Errors: NEAP_EPARSE with line and column. Numbers visited before the error stay
 * visited.
 */
enum neap_status checkpoint_json_scan(const char *text, size_t length,
				      const struct checkpoint_sidecar_visitor *visitor, struct neap_error *err);
enum neap_status checkpoint_yaml_scan(const char *text, size_t length,
				      const struct checkpoint_sidecar_visitor *visitor, struct neap_error *err);

/* Reads the file NAME whole; links are not followed. False: it cannot be read, or has more than `most` bytes;
 * `ret_cause`: the errno. The caller calls neap_buffer_fini in any case. */
bool checkpoint_text_read(int folder_fd, const char *name, size_t most, struct neap_buffer *text, int *ret_cause);

#endif
