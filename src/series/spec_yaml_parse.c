/* series/spec_yaml_parse.c: parses YAML with libfyaml into the flat tree of spec_yaml_parse.h.
 *
 * libfyaml has a place for scalars, not for collections. So a mapping or list gets the place of its first scalar, and
 * an empty one gets the place of the value before it.
 */
#include "series/spec_yaml_parse.h"

#include "base/error.h"
#include "base/printable.h"

#include <libfyaml.h>
#include <stdlib.h>
#include <string.h>

/* Deeper nesting is refused before it is read. */
#define DEPTH 16

struct place {
	struct fy_node *node; /* NULL: no value */
	uint32_t line, column;
};

/* A node with its place, aliases followed; `line` and `column` if it has none of its own. */
static struct place place(struct fy_node *node, uint32_t line, uint32_t column)
{
	if (node && fy_node_is_alias(node))
		node = fy_node_resolve_alias(node);
	struct place value = {node, line, column};
	struct fy_node *first = node;
	for (int depth = 0; first && depth < DEPTH && !fy_node_is_scalar(first); depth++) {
		void *cursor = NULL;
		if (fy_node_is_mapping(first))
			first = fy_node_pair_key(fy_node_mapping_iterate(first, &cursor));
		else
			first = fy_node_sequence_iterate(first, &cursor);
	}
	struct fy_token *token = first && fy_node_is_scalar(first) ? fy_node_get_scalar_token(first) : NULL;
	const struct fy_mark *mark = token ? fy_token_start_mark(token) : NULL;
	if (mark && mark->line >= 0 && mark->column >= 0) {
		value.line = (uint32_t)mark->line + 1;
		value.column = (uint32_t)mark->column + 1;
	}
	return value;
}

/* The parser's first error, with its place. */
static enum neap_status syntax_error(struct fy_diag *diag, struct neap_error *err)
{
	void *cursor = NULL;
	const struct fy_diag_error *first = diag ? fy_diag_errors_iterate(diag, &cursor) : NULL;
	if (!first)
		return neap_fail_at(err, 1, 1, "expected YAML");
	uint32_t line = first->line > 0 ? (uint32_t)first->line : 1;
	uint32_t column = first->column > 0 ? (uint32_t)first->column : 1;
	return neap_fail_at(err, line, column, "not YAML: %.180s", first->msg ? first->msg : "syntax error");
}

/* libfyaml 0.7.12 loops forever in a directive with a broken character: refuse both. */
static enum neap_status check_text(const char *text, size_t length, struct neap_error *err)
{
	uint32_t line = 1, column = 1, c;
	for (size_t at = 0, step; at < length; at += step) {
		step = neap_utf8_next(text + at, length - at, &c);
		if (c == UINT32_MAX || c == 0x7f || (c < 0x20 && c != '\t' && c != '\n' && c != '\r'))
			return neap_fail_at(err, line, column, "expected text in UTF-8, not byte 0x%02x",
					    (unsigned char)text[at]);
		if (c == '%' && column == 1)
			return neap_fail_at(err, line, column, "expected no YAML directive (%%)");
		line += c == '\n';
		column = c == '\n' ? 1 : column + 1;
	}
	return NEAP_OK;
}

/* The tree being written. */
struct writer {
	struct neap_buffer *tree;
	size_t nodes;
	struct neap_error *err;
};

static void put(struct writer *writer, enum neap_yaml_kind kind, const struct place *at, const char *text,
		size_t length)
{
	struct neap_yaml_flat flat = {(uint32_t)kind, at->line, at->column, (uint32_t)length};
	neap_buffer_append(writer->tree, &flat, sizeof flat);
	if (text)
		neap_buffer_append(writer->tree, text, length);
	writer->nodes++;
}

/* Writes the count of a list or mapping, which is known only at its end, into its node. */
static void put_count(struct writer *writer, size_t offset, uint32_t count)
{
	if (!writer->tree->failed)
		memcpy(writer->tree->data + offset + offsetof(struct neap_yaml_flat, length), &count, sizeof count);
}

static enum neap_status put_node(struct writer *writer, struct place at, int depth);

static enum neap_status put_children(struct writer *writer, struct place at, int depth)
{
	void *cursor = NULL;
	struct fy_node *item;
	struct fy_node_pair *pair;
	size_t offset = writer->tree->length;
	uint32_t count = 0;
	bool list = fy_node_is_sequence(at.node);
	enum neap_status status = NEAP_OK;
	put(writer, list ? NEAP_YAML_LIST : NEAP_YAML_MAPPING, &at, NULL, 0);
	while (!status && list && (item = fy_node_sequence_iterate(at.node, &cursor))) {
		status = put_node(writer, place(item, at.line, at.column), depth + 1);
		count++;
	}
	while (!status && !list && (pair = fy_node_mapping_iterate(at.node, &cursor))) {
		struct place key = place(fy_node_pair_key(pair), at.line, at.column);
		status = put_node(writer, key, depth + 1);
		if (!status)
			status = put_node(writer, place(fy_node_pair_value(pair), key.line, key.column), depth + 1);
		count++;
	}
	put_count(writer, offset, count);
	return status;
}

/* Writes a node and all below it. Aliases are followed, so a short text can make a large tree: its size is limited.
 */
static enum neap_status put_node(struct writer *writer, struct place at, int depth)
{
	size_t length = 0;
	if (depth > DEPTH) /* an alias to its own ancestor: reading stops at this depth */
		at.node = NULL;
	if (writer->nodes >= NEAP_YAML_NODES || writer->tree->length > NEAP_YAML_BYTES)
		return neap_fail_at(writer->err, at.line, at.column,
				    "too many values, aliases followed: expected at most %d", NEAP_YAML_NODES);
	if (at.node && !fy_node_is_scalar(at.node))
		return put_children(writer, at, depth);
	bool text = at.node && !fy_node_is_alias(at.node) && !fy_node_is_null(at.node);
	const char *scalar = text ? fy_node_get_scalar(at.node, &length) : NULL;
	put(writer, text ? NEAP_YAML_TEXT : NEAP_YAML_NOTHING, &at, scalar, scalar ? length : 0);
	return NEAP_OK;
}

/* Parses exactly one document, whose root is a mapping. */
static enum neap_status parse(struct fy_parser *parser, struct fy_diag *diag, struct neap_buffer *tree,
			      struct neap_error *err)
{
	struct writer writer = {.tree = tree, .err = err};
	struct fy_document *second = NULL, *first = fy_parse_load_document(parser);
	struct place root = place(first ? fy_document_root(first) : NULL, 1, 1);
	enum neap_status status = NEAP_OK;
	if (!first && fy_parser_get_stream_error(parser))
		status = syntax_error(diag, err);
	else if (!root.node || !fy_node_is_mapping(root.node))
		status = neap_fail_at(err, root.line, root.column,
				      "expected a mapping with the keys name, defaults and experiments");
	if (!status)
		second = fy_parse_load_document(parser);
	if (second) {
		struct place at = place(fy_document_root(second), 1, 1);
		status = neap_fail_at(err, at.line, at.column, "expected one document, not a second one");
	} else if (!status && fy_parser_get_stream_error(parser)) {
		status = syntax_error(diag, err);
	}
	if (!status)
		status = put_node(&writer, root, 0);
	if (second)
		fy_parse_document_destroy(parser, second);
	if (first)
		fy_parse_document_destroy(parser, first);
	return status ? status : neap_buffer_status(tree, err);
}

enum neap_status neap_yaml_parse(const char *text, size_t length, struct neap_buffer *tree, struct neap_error *err)
{
	struct neap_error local;
	err = err ? err : &local;
	enum neap_status status = check_text(text, length, err);
	if (status)
		return status;
	struct fy_diag_cfg diag_options;
	fy_diag_cfg_default(&diag_options);
	diag_options.fp = NULL;
	diag_options.colorize = false;
	struct fy_diag *diag = fy_diag_create(&diag_options);
	struct fy_parse_cfg options = {.flags = FYPCF_QUIET, .diag = diag};
	struct fy_parser *parser = diag ? fy_parser_create(&options) : NULL;
	if (diag)
		fy_diag_set_collect_errors(diag, true);
	if (!parser || fy_parser_set_string(parser, text, length))
		status = neap_fail(err, NEAP_ENOMEM, "reading YAML: out of memory");
	else
		status = parse(parser, diag, tree, err);
	if (parser)
		fy_parser_destroy(parser);
	if (diag)
		fy_diag_destroy(diag);
	return status;
}
