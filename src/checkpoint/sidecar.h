/* checkpoint/sidecar.h: the numbers in a file of metrics that stands beside a checkpoint. libc only, pure, any
 * thread.
 *
 * JSON is read strictly, whole, at most 64 levels deep; NaN, Infinity and -Infinity are taken as numbers, as Python
 * writes them. YAML is read as far as people use it here: "word: number" at the beginning of a line; what is indented
 * under such a line, and lists, are passed over; a line that is neither is an error.
 */
#ifndef NEAP_CHECKPOINT_SIDECAR_H
#define NEAP_CHECKPOINT_SIDECAR_H

#include "checkpoint/name.h"

/* `word`: the key, normalized. `depth`: 1 for those of the file itself, more inside lists and objects. */
struct checkpoint_sidecar_visitor {
	void (*number)(void *context, const char *word, unsigned depth, double value);
	void *context;
};

/* `text` is terminated at `length`. Errors: NEAP_EPARSE with line and column. What was visited before stays visited.
 */
enum neap_status checkpoint_json_scan(const char *text, size_t length,
				      const struct checkpoint_sidecar_visitor *visitor, struct neap_error *err);
enum neap_status checkpoint_yaml_scan(const char *text, size_t length,
				      const struct checkpoint_sidecar_visitor *visitor, struct neap_error *err);

#endif
