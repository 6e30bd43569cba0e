/* report/columns.c: see columns.h. */
#include "report/columns.h"

#include "base/error.h"
#include "base/printable.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum neap_status neap_report_order_parse(const char *text, enum neap_report_order *ret_order, struct neap_error *err)
{
	static const char *const names[] = {"peak", "file", "loss", "time"}; /* as enum neap_report_order */

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!text || strcmp(text, names[i]) == 0) {
			*ret_order = (enum neap_report_order)i;
			return NEAP_OK;
		}
	return neap_fail(err, NEAP_EINVAL, "expected file, peak, loss or time, not '%.40s'", text);
}

/* The value of a parameter in "a=1 b=x y c=3": the value ends where the next parameter begins. Returns its length; 0:
 * not there. */
static size_t find_value(const struct neap_report_columns *columns, const char *text, const char *name,
			 const char **ret_value)
{
	size_t length = strlen(name);
	const char *at = text;

	while (at && !(strncmp(at, name, length) == 0 && at[length] == '='))
		at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL;
	if (!at)
		return 0;
	*ret_value = at += length + 1;
	for (const char *end = at; (end = strchr(end, ' ')); end++)
		for (size_t i = 0; i < columns->param_count; i++) {
			size_t next = strlen(columns->params[i]);
			if (strncmp(end + 1, columns->params[i], next) == 0 && end[1 + next] == '=')
				return (size_t)(end - at);
		}
	return strlen(at);
}

static void value_of(const struct neap_report_columns *columns, const struct neap_result *result, const char *name,
		     char *ret_text, size_t capacity)
{
	const char *value = "";
	char text[256];
	size_t length = find_value(columns, result->parameters, name, &value);

	snprintf(text, sizeof text, "%.*s", (int)(length < sizeof text ? length : sizeof text - 1), value);
	neap_printable(ret_text, capacity, length ? text : "-");
}

/* Whether two results differ in this parameter, or one lacks it. */
static bool differs(const struct neap_report_columns *columns, const struct neap_result *results, size_t count,
		    const char *name)
{
	char first[256], text[256];

	for (size_t i = 0; i < count; i++) {
		value_of(columns, &results[i], name, i ? text : first, sizeof text);
		if (i && strcmp(first, text) != 0)
			return true;
	}
	return false;
}

static enum neap_status add(struct neap_report_columns *columns, enum neap_report_kind kind,
			    enum neap_report_column cell, const char *title, struct neap_error *err)
{
	if (columns->count == NEAP_REPORT_COLUMNS)
		return neap_fail(err, NEAP_EINVAL, "more than %d columns", NEAP_REPORT_COLUMNS);
	struct neap_report_column_chosen *column = &columns->items[columns->count++];
	column->kind = kind;
	column->cell = cell;
	neap_printable(column->title, sizeof column->title, title);
	return NEAP_OK;
}

static enum neap_status add_differing(struct neap_report_columns *columns, const struct neap_result *results,
				      size_t count, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;

	for (size_t i = 0; !status && i < columns->param_count; i++)
		if (differs(columns, results, count, columns->params[i]))
			status = add(columns, NEAP_KIND_PARAM, 0, columns->params[i], err);
	return status;
}

static enum neap_status refuse(const struct neap_report_columns *columns, const char *name, struct neap_error *err)
{
	char known[200] = "";
	size_t used = 0;

	for (int i = 0; i < NEAP_COLUMN_COUNT; i++)
		used += (size_t)snprintf(known + used, sizeof known - used, "%s, ", neap_report_headings[i].title);
	return neap_fail(err, NEAP_EINVAL, "no column '%.40s': %sloss, steps, params%s", name, known,
			 columns->param_count ? " or a parameter's name" : "");
}

static enum neap_status add_named(struct neap_report_columns *columns, const char *name,
				  const struct neap_result *results, size_t count, struct neap_error *err)
{
	for (int i = 0; i < NEAP_COLUMN_COUNT; i++)
		if (strcmp(name, neap_report_headings[i].title) == 0)
			return add(columns, NEAP_KIND_CELL, (enum neap_report_column)i, name, err);
	if (strcmp(name, "loss") == 0)
		return add(columns, NEAP_KIND_LOSS, 0, name, err);
	if (strcmp(name, "steps") == 0)
		return add(columns, NEAP_KIND_STEPS, 0, name, err);
	if (strcmp(name, "params") == 0)
		return add_differing(columns, results, count, err);
	for (size_t i = 0; i < columns->param_count; i++)
		if (strcmp(name, columns->params[i]) == 0)
			return add(columns, NEAP_KIND_PARAM, 0, name, err);
	return refuse(columns, name, err);
}

enum neap_status neap_report_columns_parse(const char *list, char *const *params, size_t param_count,
					   const struct neap_result *results, size_t count,
					   struct neap_report_columns *ret_columns, struct neap_error *err)
{
	struct neap_report_columns columns = {.params = params, .param_count = param_count};
	enum neap_status status = NEAP_OK;

	for (int i = 0; !list && i < NEAP_COLUMN_COUNT; i++)
		status =
			add(&columns, NEAP_KIND_CELL, (enum neap_report_column)i, neap_report_headings[i].title, err);
	for (const char *at = list; !status && at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		char name[128];
		snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
		status = add_named(&columns, name, results, count, err);
	}
	if (!status)
		*ret_columns = columns;
	return status;
}

void neap_report_column_text(const struct neap_report_columns *columns, size_t column,
			     const struct neap_result *result, const struct neap_report_cells *cells, char *ret_text,
			     size_t capacity)
{
	const struct neap_report_column_chosen *chosen = &columns->items[column];

	snprintf(ret_text, capacity, "-");
	if (chosen->kind == NEAP_KIND_CELL)
		snprintf(ret_text, capacity, "%s", cells->text[chosen->cell]);
	else if (chosen->kind == NEAP_KIND_LOSS && isfinite(result->last_loss))
		snprintf(ret_text, capacity, "%.6g", result->last_loss);
	else if (chosen->kind == NEAP_KIND_STEPS && result->steps)
		snprintf(ret_text, capacity, "%" PRIu64, result->steps);
	else if (chosen->kind == NEAP_KIND_PARAM)
		value_of(columns, result, chosen->title, ret_text, capacity);
}

bool neap_report_column_right(const struct neap_report_columns *columns, size_t column)
{
	const struct neap_report_column_chosen *chosen = &columns->items[column];

	return chosen->kind == NEAP_KIND_CELL ? neap_report_headings[chosen->cell].right
					      : chosen->kind != NEAP_KIND_PARAM;
}

/* A result's weight in this order: heavier ones come first. */
static double weight(const struct neap_result *result, enum neap_report_order order)
{
	switch (order) {
	case NEAP_ORDER_PEAK:
		return (double)neap_report_peak(result);
	case NEAP_ORDER_LOSS:
		return isfinite(result->last_loss) ? -result->last_loss : -(double)INFINITY;
	case NEAP_ORDER_TIME:
		return (double)result->duration_ns;
	case NEAP_ORDER_FILE:
		break;
	}
	return 0;
}

struct weighed {
	double weight;
	const struct neap_result *result;
};

static int by_weight(const void *a, const void *b)
{
	const struct weighed *left = a, *right = b;

	if (left->weight != right->weight)
		return left->weight < right->weight ? 1 : -1;
	return left->result < right->result ? -1 : left->result > right->result; /* they lie in one array */
}

const struct neap_result **neap_report_ordered(const struct neap_report_columns *columns,
					       const struct neap_result *results, size_t count)
{
	const struct neap_result **ordered = calloc(count ? count : 1, sizeof *ordered);
	struct weighed *weighed = calloc(count ? count : 1, sizeof *weighed);

	for (size_t i = 0; i < count && ordered && weighed; i++)
		weighed[i] = (struct weighed){weight(&results[i], columns->order), &results[i]};
	if (ordered && weighed)
		qsort(weighed, count, sizeof *weighed, by_weight);
	for (size_t i = 0; i < count && ordered && weighed; i++)
		ordered[i] = weighed[i].result;
	if (!weighed) {
		free(ordered);
		ordered = NULL;
	}
	free(weighed);
	return ordered;
}
