/* report/columns.h: chooses a table's columns and the order of its rows. Pure functions. */
#ifndef NEAP_REPORT_COLUMNS_H
#define NEAP_REPORT_COLUMNS_H

#include "report/cells.h"

#define NEAP_REPORT_COLUMNS 32
#define NEAP_REPORT_TITLE   48

enum neap_report_kind {
	NEAP_KIND_CELL, /* of struct neap_report_cells */
	NEAP_KIND_LOSS, /* the last one */
	NEAP_KIND_STEPS,
	NEAP_KIND_PARAM, /* a parameter, whose name is the title */
};

enum neap_report_order {
	NEAP_ORDER_PEAK, /* the highest first */
	NEAP_ORDER_FILE,
	NEAP_ORDER_LOSS, /* the lowest first, unknown ones last */
	NEAP_ORDER_TIME, /* the longest first */
};

/* `params`: the names of all parameters, borrowed: by them a result's parameters are split into values.
 */
struct neap_report_columns {
	struct neap_report_column_chosen {
		enum neap_report_kind kind;
		enum neap_report_column cell;
		char title[NEAP_REPORT_TITLE];
	} items[NEAP_REPORT_COLUMNS];
	size_t count;
	enum neap_report_order order;
	char *const *params;
	size_t param_count;
};

/* "file", "peak", "loss" or "time"; NULL: peak. Errors: NEAP_EINVAL. */
enum neap_status neap_report_order_parse(const char *text, enum neap_report_order *ret_order, struct neap_error *err);

/* "name,outcome,params,loss": titles of cells, "loss", "steps", names of parameters, and "params" for those that
 * differ between the results. NULL: the cells. Errors: NEAP_EINVAL for an unknown one; the message lists the known
 * ones. */
enum neap_status neap_report_columns_parse(const char *list, char *const *params, size_t param_count,
					   const struct neap_result *results, size_t count,
					   struct neap_report_columns *ret_columns, struct neap_error *err);

/* The text of a column; "-" if unknown. `cells` are the result's. */
void neap_report_column_text(const struct neap_report_columns *columns, size_t column,
			     const struct neap_result *result, const struct neap_report_cells *cells, char *ret_text,
			     size_t capacity);
/* Whether the column has numbers, which are aligned to the right. */
bool neap_report_column_right(const struct neap_report_columns *columns, size_t column);

/* Returns `count` pointers into `results` in the chosen order, equal ones in their own; free() it. NULL: out of
 * memory. */
const struct neap_result **neap_report_ordered(const struct neap_report_columns *columns,
					       const struct neap_result *results, size_t count);

#endif
