/* series/spec_yaml.h: reads YAML into a tree whose values have their place in the text.
 *
 * A struct neap_yaml is a value with its place (line and column from 1); aliases are followed. It lives as long as
 * its document. All errors are NEAP_EPARSE with that place and what was expected, or NEAP_ENOMEM. One thread.
 */
#ifndef NEAP_SERIES_SPEC_YAML_H
#define NEAP_SERIES_SPEC_YAML_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>

struct neap_yaml_node;
struct neap_yaml_document;

struct neap_yaml {
	const struct neap_yaml_node *node; /* NULL: not read yet */
	uint32_t line, column;
};

/* Parses exactly one document, whose root is a mapping. `apart`: parses in a child process; if the parser crashes, as
 * libfyaml does when memory runs out, returns NEAP_ENOMEM. Then no other thread may run. */
enum neap_status neap_yaml_open(const char *text, size_t length, bool apart, struct neap_yaml_document **ret_document,
				struct neap_yaml *ret_root, struct neap_error *err);
void neap_yaml_close(struct neap_yaml_document *document);

bool neap_yaml_is_list(struct neap_yaml value);
bool neap_yaml_is_text(struct neap_yaml value); /* any scalar but null */

/* Copies a scalar, with quotes and escapes resolved; the caller frees it. Refuses null and zero bytes. `what` names
 * the value in messages. */
enum neap_status neap_yaml_text(struct neap_yaml value, const char *what, char **ret_text, struct neap_error *err);

/* Calls `visit` for each item until it fails. Returns the last status. */
enum neap_status neap_yaml_each_item(struct neap_yaml list,
				     enum neap_status (*visit)(void *context, struct neap_yaml item,
							       struct neap_error *err),
				     void *context, struct neap_error *err);
/* Calls `visit` for each pair until it fails. Refuses anything but a mapping. */
enum neap_status neap_yaml_each_pair(struct neap_yaml mapping, const char *what,
				     enum neap_status (*visit)(void *context, struct neap_yaml key,
							       struct neap_yaml value, struct neap_error *err),
				     void *context, struct neap_error *err);
#endif
