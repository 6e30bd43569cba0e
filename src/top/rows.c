/* top/rows.c: which processes the list shows, in which order, and which stands below which.
 *
 * A process stands below its nearest ancestor that is shown too. The view's key orders siblings. By memory and growth
 * a process counts together with all processes below it, so that the tree that holds the most comes first.
 */
#include "top/view.h"

#include "base/error.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MOST 20

struct node {
	struct neap_top_row row;
	size_t parent;     /* index of another node; SIZE_MAX: a root */
	double held, grew; /* with all below it, in a tree */
	bool shown;
};

struct forest {
	struct node *nodes;
	size_t count;
	struct neap_top_rows *rows;
};

static bool contains(const char *text, const char *part)
{
	for (; *text; text++) {
		size_t i = 0;
		while (part[i] && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i]))
			i++;
		if (!part[i])
			return true;
	}
	return !*part;
}

bool neap_top_matches(const struct neap_top_process *process, const char *text)
{
	char pid[16];
	snprintf(pid, sizeof pid, "%d", (int)process->pid);
	return contains(process->command, text) || contains(process->user, text) || contains(process->run_id, text) ||
	       contains(pid, text);
}

/* Unknown times come last. */
static double seconds(uint64_t ns) { return ns == UINT64_MAX ? -1.0 : (double)ns; }

static int by_number(double a, double b) { return (a > b) - (a < b); }

static int compare_by(const struct node *a, const struct node *b, enum neap_top_sort sort)
{
	const struct neap_top_process *one = a->row.process, *other = b->row.process;
	switch (sort) {
	case NEAP_TOP_BY_MEMORY:
		return by_number(b->held, a->held);
	case NEAP_TOP_BY_GROWTH:
		return by_number(b->grew, a->grew);
	case NEAP_TOP_BY_BUSY:
		return by_number(other->busy_percent, one->busy_percent);
	case NEAP_TOP_BY_CPU:
		return by_number(b->row.cpu_percent, a->row.cpu_percent);
	case NEAP_TOP_BY_HOST:
		return by_number((double)other->host_bytes, (double)one->host_bytes);
	case NEAP_TOP_BY_TIME:
		return by_number(seconds(other->run_ns), seconds(one->run_ns));
	case NEAP_TOP_BY_USER:
		return strcmp(one->user, other->user);
	case NEAP_TOP_BY_NAME:
		return strcmp(one->command, other->command);
	case NEAP_TOP_BY_PID:
	case NEAP_TOP_SORTS:
		break;
	}
	return 0;
}

struct order {
	enum neap_top_sort sort;
	bool reversed;
};

static int compare(const void *a, const void *b, void *context)
{
	const struct node *one = a, *other = b;
	const struct order *order = context;
	int result = compare_by(one, other, order->sort);
	if (result == 0)
		result = by_number((double)one->row.process->pid, (double)other->row.process->pid);
	return order->reversed ? -result : result;
}

static size_t find_pid(const struct forest *forest, pid_t pid)
{
	size_t i = 0;
	while (i < forest->count && forest->nodes[i].row.process->pid != pid)
		i++;
	return i;
}

/* Finds each node's parent. The nodes must be in their final order. */
static void link_parents(struct forest *forest)
{
	for (size_t i = 0; i < forest->count; i++) {
		struct node *node = &forest->nodes[i];
		size_t parent =
			node->row.process->parent ? find_pid(forest, node->row.process->parent) : forest->count;
		node->parent = parent < forest->count && parent != i ? parent : SIZE_MAX;
	}
}

static void add_to_ancestors(struct forest *forest)
{
	for (size_t i = 0; i < forest->count; i++) {
		const struct node *node = &forest->nodes[i];
		double held = (double)neap_top_held(node->row.process);
		double grew = node->row.growth_known ? (double)node->row.growth : 0;
		size_t at = node->parent;
		for (size_t steps = 0; at != SIZE_MAX && steps < forest->count; steps++) {
			forest->nodes[at].held += held;
			forest->nodes[at].grew += grew;
			at = forest->nodes[at].parent;
		}
	}
}

static bool more_siblings(const struct forest *forest, size_t index)
{
	for (size_t i = index + 1; i < forest->count; i++)
		if (forest->nodes[i].parent == forest->nodes[index].parent && !forest->nodes[i].shown)
			return true;
	return false;
}

static void show(struct forest *forest, size_t index, unsigned depth, uint64_t open)
{
	struct node *node = &forest->nodes[index];
	node->shown = true;
	node->row.depth = depth;
	node->row.last = !more_siblings(forest, index);
	node->row.open = open;
	forest->rows->rows[forest->rows->count++] = node->row;
	uint64_t below = node->row.last || depth == 0 ? open : open | 1ull << depth;
	for (size_t i = 0; depth < DEPTH_MOST && i < forest->count; i++)
		if (forest->nodes[i].parent == index && !forest->nodes[i].shown)
			show(forest, i, depth + 1, below);
}

static void show_all(struct forest *forest, bool flat)
{
	for (size_t i = 0; i < forest->count; i++)
		if (flat || forest->nodes[i].parent == SIZE_MAX)
			show(forest, i, 0, 0);
	for (size_t i = 0; i < forest->count; i++) /* those deeper than DEPTH_MOST, and parents of each other */
		if (!forest->nodes[i].shown)
			show(forest, i, 0, 0);
}

static void fill(struct forest *forest, const struct neap_top_history *history, const struct neap_top_view *view)
{
	const struct neap_top_sample *sample = neap_top_history_at(history, 0);
	for (size_t i = 0; sample && i < sample->process_count; i++) {
		const struct neap_top_process *process = &sample->processes[i];
		if (!neap_top_matches(process, view->filter) || (view->flat && process->launcher))
			continue;
		struct node *node = &forest->nodes[forest->count++];
		node->row.process = process;
		node->row.growth_known = !process->launcher && neap_top_growth(history, process, &node->row.growth);
		node->row.cpu_percent = neap_top_cpu_percent(history, process);
		node->held = (double)neap_top_held(process);
		node->grew = (double)node->row.growth;
		node->parent = SIZE_MAX;
	}
}

enum neap_status neap_top_rows_make(const struct neap_top_history *history, const struct neap_top_view *view,
				    struct neap_top_rows *ret_rows, struct neap_error *err)
{
	const struct neap_top_sample *sample = neap_top_history_at(history, 0);
	size_t capacity = (sample ? sample->process_count : 0) + 1;
	struct neap_top_rows rows = {.rows = calloc(capacity, sizeof *rows.rows)};
	struct forest forest = {.nodes = calloc(capacity, sizeof *forest.nodes), .rows = &rows};
	if (!rows.rows || !forest.nodes) {
		free(rows.rows);
		free(forest.nodes);
		return neap_fail(err, NEAP_ENOMEM, "listing the processes: out of memory");
	}
	fill(&forest, history, view);
	if (!view->flat) {
		link_parents(&forest);
		add_to_ancestors(&forest);
	}
	struct order order = {view->sort, view->reversed};
	qsort_r(forest.nodes, forest.count, sizeof *forest.nodes, compare, &order);
	if (!view->flat)
		link_parents(&forest);
	show_all(&forest, view->flat);
	free(forest.nodes);
	*ret_rows = rows;
	return NEAP_OK;
}

size_t neap_top_rows_selected(const struct neap_top_rows *rows, const struct neap_top_view *view)
{
	size_t i = 0;
	while (i < rows->count && (rows->rows[i].process->pid != view->selected.pid ||
				   rows->rows[i].process->start_ticks != view->selected.start_ticks))
		i++;
	return i;
}
