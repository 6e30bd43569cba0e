/* series/spec_yaml.c: see spec_yaml.h.
 *
 * libfyaml gives scalars a place but collections none: a mapping or list stands where its first scalar stands, an
 * empty one where the value before it did.
 */
#include "series/spec_yaml.h"

#include "base/error.h"

#include <libfyaml.h>
#include <stdlib.h>
#include <string.h>

struct neap_yaml_document {
	struct fy_parser *parser;
	struct fy_document *document;
};

/* Deep nesting is refused before it is followed. */
#define DEPTH 16

static struct neap_yaml place(struct fy_node *node, uint32_t line, uint32_t column)
{
	if (node && fy_node_is_alias(node))
		node = fy_node_resolve_alias(node);
	struct neap_yaml value = {node, line, column};
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

/* The parser's own first complaint, with its place. */
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

/* The length of the UTF-8 character at `text`, or 0 when it is none. */
static size_t character(const unsigned char *text, size_t length)
{
	size_t more = *text < 0x80 ? 0 : *text >= 0xc2 && *text < 0xe0 ? 1 : (*text & 0xf0) == 0xe0 ? 2 : 3;
	if (*text >= 0x80 && (*text < 0xc2 || *text > 0xf4))
		return 0;
	if (more >= length)
		return 0;
	for (size_t i = 1; i <= more; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	if ((*text == 0xe0 && text[1] < 0xa0) || (*text == 0xed && text[1] > 0x9f) ||
	    (*text == 0xf0 && text[1] < 0x90) || (*text == 0xf4 && text[1] > 0x8f))
		return 0;
	return more + 1;
}

/* libfyaml 0.7.12 loops for ever in a directive with a broken character: neither reaches it. */
static enum neap_status check_text(const char *text, size_t length, struct neap_error *err)
{
	const unsigned char *bytes = (const unsigned char *)text;
	uint32_t line = 1, column = 1;
	for (size_t at = 0, step; at < length; at += step) {
		step = character(bytes + at, length - at);
		bool control = bytes[at] < 0x20 && !strchr("\t\n\r", bytes[at] ? bytes[at] : 1);
		if (!step || control || bytes[at] == 0x7f)
			return neap_fail_at(err, line, column, "expected text in UTF-8, not byte 0x%02x", bytes[at]);
		if (bytes[at] == '%' && column == 1)
			return neap_fail_at(err, line, column, "expected no YAML directive (%%)");
		line += bytes[at] == '\n';
		column = bytes[at] == '\n' ? 1 : column + 1;
	}
	return NEAP_OK;
}

enum neap_status neap_yaml_open(const char *text, size_t length, struct neap_yaml_document **ret_document,
				struct neap_yaml *ret_root, struct neap_error *err)
{
	enum neap_status status = check_text(text, length, err);
	if (status)
		return status;
	struct fy_diag_cfg diag_options;
	fy_diag_cfg_default(&diag_options);
	diag_options.fp = NULL;
	diag_options.colorize = false;
	struct fy_diag *diag = fy_diag_create(&diag_options);
	struct neap_yaml_document *document = calloc(1, sizeof *document);
	struct fy_parse_cfg options = {.flags = FYPCF_QUIET, .diag = diag};
	struct fy_document *second = NULL;
	status = NEAP_ENOMEM;
	if (!document || !diag)
		goto out;
	fy_diag_set_collect_errors(diag, true);
	document->parser = fy_parser_create(&options);
	if (!document->parser || fy_parser_set_string(document->parser, text, length))
		goto out;
	document->document = fy_parse_load_document(document->parser);
	struct fy_node *root = document->document ? fy_document_root(document->document) : NULL;
	if (!document->document && fy_parser_get_stream_error(document->parser)) {
		status = syntax_error(diag, err);
		goto out;
	}
	if (!root || !fy_node_is_mapping(root)) {
		struct neap_yaml at = place(root, 1, 1);
		status = neap_fail_at(err, at.line, at.column,
				      "expected a mapping with the keys name, defaults and experiments");
		goto out;
	}
	second = fy_parse_load_document(document->parser);
	if (second) {
		struct neap_yaml at = place(fy_document_root(second), 1, 1);
		status = neap_fail_at(err, at.line, at.column, "expected one document, not a second one");
		goto out;
	}
	if (fy_parser_get_stream_error(document->parser)) {
		status = syntax_error(diag, err);
		goto out;
	}
	*ret_document = document;
	*ret_root = place(root, 1, 1);
	document = NULL;
	status = NEAP_OK;
out:
	if (status == NEAP_ENOMEM)
		neap_fail(err, NEAP_ENOMEM, "reading YAML: out of memory");
	if (second)
		fy_parse_document_destroy(document ? document->parser : NULL, second);
	neap_yaml_close(document);
	fy_diag_destroy(diag);
	return status;
}

void neap_yaml_close(struct neap_yaml_document *document)
{
	if (!document)
		return;
	if (document->document)
		fy_parse_document_destroy(document->parser, document->document);
	if (document->parser)
		fy_parser_destroy(document->parser);
	free(document);
}

bool neap_yaml_is_list(struct neap_yaml value) { return value.node && fy_node_is_sequence(value.node); }

bool neap_yaml_is_text(struct neap_yaml value)
{
	return value.node && fy_node_is_scalar(value.node) && !fy_node_is_alias(value.node) &&
	       !fy_node_is_null(value.node);
}

enum neap_status neap_yaml_text(struct neap_yaml value, const char *what, char **ret_text, struct neap_error *err)
{
	if (!neap_yaml_is_text(value)) {
		const char *kind = "nothing";
		if (neap_yaml_is_list(value))
			kind = "a list";
		else if (value.node && fy_node_is_mapping(value.node))
			kind = "a mapping";
		return neap_fail_at(err, value.line, value.column, "%s: expected a text or a number, not %s", what,
				    kind);
	}
	size_t length = 0;
	const char *text = fy_node_get_scalar(value.node, &length);
	if (!text)
		length = 0;
	if (length && memchr(text, 0, length))
		return neap_fail_at(err, value.line, value.column, "%s: expected a text without zero bytes", what);
	char *copy = strndup(text ? text : "", length);
	if (!copy)
		return neap_fail(err, NEAP_ENOMEM, "reading YAML: out of memory");
	*ret_text = copy;
	return NEAP_OK;
}

enum neap_status neap_yaml_each_item(struct neap_yaml list,
				     enum neap_status (*visit)(void *context, struct neap_yaml item,
							       struct neap_error *err),
				     void *context, struct neap_error *err)
{
	void *cursor = NULL;
	struct fy_node *item;
	enum neap_status status = NEAP_OK;
	while (!status && (item = fy_node_sequence_iterate(list.node, &cursor)))
		status = visit(context, place(item, list.line, list.column), err);
	return status;
}

enum neap_status neap_yaml_each_pair(struct neap_yaml mapping, const char *what,
				     enum neap_status (*visit)(void *context, struct neap_yaml key,
							       struct neap_yaml value, struct neap_error *err),
				     void *context, struct neap_error *err)
{
	if (!mapping.node || !fy_node_is_mapping(mapping.node))
		return neap_fail_at(err, mapping.line, mapping.column, "%s: expected a mapping (key: value)", what);
	void *cursor = NULL;
	struct fy_node_pair *pair;
	enum neap_status status = NEAP_OK;
	while (!status && (pair = fy_node_mapping_iterate(mapping.node, &cursor))) {
		struct neap_yaml key = place(fy_node_pair_key(pair), mapping.line, mapping.column);
		status = visit(context, key, place(fy_node_pair_value(pair), key.line, key.column), err);
	}
	return status;
}
