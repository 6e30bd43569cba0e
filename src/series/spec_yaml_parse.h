/* series/spec_yaml_parse.h: parses YAML into a flat tree; only for spec_yaml.c.
 *
 * A tree has its nodes in the order of the text: each is a struct neap_yaml_flat and, for a text, its bytes. After a
 * list come its items, after a mapping its keys and values in turn.
 *
 * libfyaml does not survive an allocation that fails: it crashes. So it mostly runs in a process of its own.
 */
#ifndef NEAP_SERIES_SPEC_YAML_PARSE_H
#define NEAP_SERIES_SPEC_YAML_PARSE_H

#include "base/buffer.h"

#define NEAP_YAML_NODES 400000
#define NEAP_YAML_BYTES (16u << 20)

enum neap_yaml_kind { NEAP_YAML_NOTHING /* or null */, NEAP_YAML_TEXT, NEAP_YAML_LIST, NEAP_YAML_MAPPING };

struct neap_yaml_flat {
	uint32_t kind; /* enum neap_yaml_kind */
	uint32_t line, column;
	uint32_t length; /* TEXT: bytes; LIST: items; MAPPING: pairs */
};

/* Appends the tree of the one document in `text`, whose root is a mapping. Errors: NEAP_EPARSE with a place,
 * NEAP_ENOMEM if libfyaml survives it. */
enum neap_status neap_yaml_parse(const char *text, size_t length, struct neap_buffer *tree, struct neap_error *err);

#endif
