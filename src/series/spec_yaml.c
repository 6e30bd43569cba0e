/* series/spec_yaml.c: see spec_yaml.h. The tree in memory: its nodes in the order of the text.
 *
 *   | mapping, span 6 | key | list, span 3 | item | item | key | ...
 *
 *   invariant: a node's children lie in the span - 1 nodes after it
 */
#include "series/spec_yaml.h"

#include "base/error.h"
#include "base/file.h"
#include "base/spawn.h"
#include "series/spec_yaml_parse.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

struct neap_yaml_node {
	enum neap_yaml_kind kind;
	uint32_t line, column;
	uint32_t count;   /* TEXT: bytes; LIST: items; MAPPING: pairs */
	uint32_t span;    /* how many nodes: this one and all below it */
	const char *text; /* TEXT: points into the tree; not terminated */
};

struct neap_yaml_document {
	struct neap_buffer tree;
	struct neap_yaml_node *nodes;
	size_t count;
};

/* --- the parser in a process of its own ---------------------------------------------------------------------------
 */

/* The child's first message. */
struct verdict {
	enum neap_status status;
	struct neap_error err;
};

struct text {
	const char *bytes;
	size_t length;
};

/* In the child: parses, sends the verdict and the tree. A crash here is harmless: the child has no handlers and
 * writes no core dump. */
static int parse_and_send(void *context)
{
	const struct text *text = context;
	struct neap_buffer tree = {0};
	struct verdict verdict = {0};
	prctl(PR_SET_DUMPABLE, 0);
	verdict.status = neap_yaml_parse(text->bytes, text->length, &tree, &verdict.err);
	bool sent = !neap_fd_write(STDOUT_FILENO, &verdict, sizeof verdict, NULL) &&
		    (verdict.status || !neap_fd_write(STDOUT_FILENO, tree.data, tree.length, NULL));
	return sent ? 0 : 1;
}

/* Takes the verdict and the tree apart. `code`: the child's exit code. */
static enum neap_status take(const struct neap_buffer *sent, int code, struct neap_buffer *ret_tree,
			     struct neap_error *err)
{
	struct verdict verdict;
	if (sent->length < sizeof verdict)
		return neap_fail(err, NEAP_ENOMEM, "reading YAML: out of memory");
	memcpy(&verdict, sent->data, sizeof verdict);
	if (verdict.status) {
		if (err)
			*err = verdict.err;
		return verdict.status;
	}
	if (code > 0)
		return neap_fail(err, NEAP_ENOMEM, "reading YAML: its parser did not come to its end");
	neap_buffer_append(ret_tree, sent->data + sizeof verdict, sent->length - sizeof verdict);
	return neap_buffer_status(ret_tree, err);
}

static enum neap_status parse_apart(const char *text, size_t length, struct neap_buffer *ret_tree,
				    struct neap_error *err)
{
	struct text parsed = {text, length};
	struct neap_buffer sent = {0};
	const struct neap_spawn spawn = {.doing = "reading YAML",
					 .run = parse_and_send,
					 .context = &parsed,
					 .death_signal = SIGKILL,
					 .output = &sent};
	int code = 0;
	enum neap_status status = neap_spawn_run(&spawn, &code, err);
	if (!status)
		status = take(&sent, code, ret_tree, err);
	neap_buffer_fini(&sent);
	return status;
}

/* --- the tree ----------------------------------------------------------------------------------------------------
 */

/* Makes the node at *at and all nodes below it. False: the tree is cut short. */
static bool make_nodes(struct neap_yaml_document *document, size_t *at)
{
	struct neap_yaml_flat flat;
	struct neap_yaml_node *node = &document->nodes[document->count];
	size_t first = document->count, left = document->tree.length - *at;
	if (left < sizeof flat)
		return false;
	memcpy(&flat, document->tree.data + *at, sizeof flat);
	*at += sizeof flat;
	document->count++;
	*node = (struct neap_yaml_node){(enum neap_yaml_kind)flat.kind, flat.line, flat.column, flat.length, 1, NULL};
	if (flat.kind == NEAP_YAML_TEXT) {
		node->text = document->tree.data + *at;
		*at += flat.length;
		return flat.length <= left - sizeof flat;
	}
	size_t children = flat.kind == NEAP_YAML_LIST      ? flat.length
			  : flat.kind == NEAP_YAML_MAPPING ? 2 * (size_t)flat.length
							   : 0;
	for (size_t i = 0; i < children; i++)
		if (!make_nodes(document, at))
			return false;
	node->span = (uint32_t)(document->count - first);
	return true;
}

enum neap_status neap_yaml_open(const char *text, size_t length, bool apart, struct neap_yaml_document **ret_document,
				struct neap_yaml *ret_root, struct neap_error *err)
{
	struct neap_yaml_document *document = calloc(1, sizeof *document);
	size_t at = 0;
	if (!document)
		return neap_fail(err, NEAP_ENOMEM, "reading YAML: out of memory");
	enum neap_status status = apart ? parse_apart(text, length, &document->tree, err)
					: neap_yaml_parse(text, length, &document->tree, err);
	/* at most this many nodes fit into the bytes */
	if (!status && !(document->nodes = calloc(document->tree.length / sizeof(struct neap_yaml_flat) + 1,
						  sizeof *document->nodes)))
		status = neap_fail(err, NEAP_ENOMEM, "reading YAML: out of memory");
	if (!status && (!make_nodes(document, &at) || at != document->tree.length))
		status = neap_fail(err, NEAP_EINTERNAL, "reading YAML: its parser sent half of it");
	if (status) {
		neap_yaml_close(document);
		return status;
	}
	*ret_document = document;
	*ret_root = (struct neap_yaml){document->nodes, document->nodes->line, document->nodes->column};
	return NEAP_OK;
}

void neap_yaml_close(struct neap_yaml_document *document)
{
	if (!document)
		return;
	neap_buffer_fini(&document->tree);
	free(document->nodes);
	free(document);
}

bool neap_yaml_is_list(struct neap_yaml value) { return value.node && value.node->kind == NEAP_YAML_LIST; }

bool neap_yaml_is_text(struct neap_yaml value) { return value.node && value.node->kind == NEAP_YAML_TEXT; }

enum neap_status neap_yaml_text(struct neap_yaml value, const char *what, char **ret_text, struct neap_error *err)
{
	if (!neap_yaml_is_text(value)) {
		const char *kind = "nothing";
		if (neap_yaml_is_list(value))
			kind = "a list";
		else if (value.node && value.node->kind == NEAP_YAML_MAPPING)
			kind = "a mapping";
		return neap_fail_at(err, value.line, value.column, "%s: expected a text or a number, not %s", what,
				    kind);
	}
	size_t length = value.node->count;
	if (memchr(value.node->text, 0, length))
		return neap_fail_at(err, value.line, value.column, "%s: expected a text without zero bytes", what);
	char *copy = strndup(value.node->text, length);
	if (!copy)
		return neap_fail(err, NEAP_ENOMEM, "reading YAML: out of memory");
	*ret_text = copy;
	return NEAP_OK;
}

static struct neap_yaml value_of(const struct neap_yaml_node *node)
{
	return (struct neap_yaml){node, node->line, node->column};
}

enum neap_status neap_yaml_each_item(struct neap_yaml list,
				     enum neap_status (*visit)(void *context, struct neap_yaml item,
							       struct neap_error *err),
				     void *context, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	const struct neap_yaml_node *item = list.node + 1;
	for (uint32_t i = 0; !status && i < list.node->count; i++, item += item->span)
		status = visit(context, value_of(item), err);
	return status;
}

enum neap_status neap_yaml_each_pair(struct neap_yaml mapping, const char *what,
				     enum neap_status (*visit)(void *context, struct neap_yaml key,
							       struct neap_yaml value, struct neap_error *err),
				     void *context, struct neap_error *err)
{
	if (!mapping.node || mapping.node->kind != NEAP_YAML_MAPPING)
		return neap_fail_at(err, mapping.line, mapping.column, "%s: expected a mapping (key: value)", what);
	enum neap_status status = NEAP_OK;
	const struct neap_yaml_node *key = mapping.node + 1;
	for (uint32_t i = 0; !status && i < mapping.node->count; i++) {
		const struct neap_yaml_node *value = key + key->span;
		status = visit(context, value_of(key), value_of(value), err);
		key = value + value->span;
	}
	return status;
}
