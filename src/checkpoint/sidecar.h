/* checkpoint/sidecar.h: reads the numbers (and texts) in a file of metrics beside a checkpoint. libc only, any
 * thread; pure, except checkpoint_text_read.
 *
 * JSON is read strictly and whole, at most 64 levels deep. NaN, Infinity and -Infinity count as numbers, as Python
 * writes them. Of YAML only a part is read: "word: number" at the beginning of a line. Indented lines and lists are
 * skipped; any other line is an error.
 */
#ifndef NEAP_CHECKPOINT_SIDECAR_H
#define NEAP_CHECKPOINT_SIDECAR_H

#include "checkpoint/name.h"

#include "base/buffer.h"

/* `word`: the key, normalized. `depth`: 1 for keys at the top of the file, more inside lists and objects. */
struct checkpoint_sidecar_visitor {
	void (*number)(void *context, const char *word, unsigned depth, double value);
	/* Called with a text of JSON, its escapes resolved, not terminated. May be NULL. */
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
