/* report/table.c: the ranked table. Columns are as wide as their widest cell. The rung, which is the longest, takes
 * the rest of the 120 columns, and continues on the next line if that is too little.
 *
 *   NAME      OUTCOME      PEAK  HEADROOM    DRAIN  RETRIES  RUNG                  LEAK            TIME
 *   big       ok       5.98 GiB  1.52 GiB  3.10 ms        0  micro_batch 64 -> 16,  clean         12.3 s
 *                                                            accumulate 1 -> 4
 */
#include "report/cells.h"
#include "report/columns.h"
#include "report/report.h"

#include "base/printable.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_COLUMNS 120
#define GAP           2
#define NAME_LIMIT    32
#define CELL_LIMIT    16

static void spaces(struct neap_buffer *out, size_t count)
{
	while (count-- > 0)
		neap_buffer_append(out, " ", 1);
}

static const char *tone_code(enum neap_report_tone tone)
{
	return tone == NEAP_TONE_GOOD ? "\033[32m" : tone == NEAP_TONE_WARN ? "\033[33m" : "\033[31m";
}

/* Bytes of `text` that fit `width` columns. With `words`, breaks after a comma, else after a space, if it has one:
 * "micro_batch 64 -> 32," stays together. */
static size_t fitting(const char *text, size_t width, bool words)
{
	size_t bytes = 0, columns = 0, space = 0, comma = 0;

	for (; text[bytes]; bytes++) {
		columns += ((unsigned char)text[bytes] & 0xc0) != 0x80;
		if (columns > width && !(words && text[bytes] == ' '))
			return words && comma > 0 ? comma : words && space > 0 ? space : bytes;
		if (text[bytes] == ' ') {
			space = bytes + 1;
			comma = bytes > 0 && text[bytes - 1] == ',' ? space : comma;
		}
	}
	return bytes;
}

struct cell {
	const char *text;
	size_t length, width; /* bytes to print; columns to fill */
	bool right;
	enum neap_report_tone tone;
};

static void put_cell(struct neap_buffer *out, struct cell cell, bool color)
{
	while (cell.length > 0 && cell.text[cell.length - 1] == ' ')
		cell.length--;
	size_t columns = neap_report_width(cell.text, cell.length);
	size_t padding = columns < cell.width ? cell.width - columns : 0;
	bool tinted = color && cell.tone != NEAP_TONE_PLAIN && cell.length > 0;

	spaces(out, cell.right ? padding : 0);
	if (tinted)
		neap_buffer_text(out, tone_code(cell.tone));
	neap_buffer_append(out, cell.text, cell.length);
	if (tinted)
		neap_buffer_text(out, "\033[0m");
	spaces(out, (cell.right ? 0 : padding) + GAP);
}

static void trim_line(struct neap_buffer *out, size_t start)
{
	while (out->length > start && out->data[out->length - 1] == ' ')
		out->data[--out->length] = '\0';
	neap_buffer_text(out, "\n");
}

/* The cells of one line of the table. */
struct row {
	char text[NEAP_REPORT_COLUMNS][256];
	enum neap_report_tone tone[NEAP_REPORT_COLUMNS];
};

static bool is_rung(const struct neap_report_columns *columns, size_t column)
{
	return columns->items[column].kind == NEAP_KIND_CELL && columns->items[column].cell == NEAP_COLUMN_RUNG;
}

static void fill_row(const struct neap_report_columns *columns, const struct neap_result *result, struct row *row)
{
	struct neap_report_cells cells;

	neap_report_cells(result, &cells);
	for (size_t i = 0; i < columns->count; i++) {
		bool cell = columns->items[i].kind == NEAP_KIND_CELL;
		neap_report_column_text(columns, i, result, &cells, row->text[i], sizeof row->text[i]);
		row->tone[i] = cell ? cells.tone[columns->items[i].cell] : NEAP_TONE_PLAIN;
	}
}

/* The rung, if there is one, continues below. */
static void put_row(struct neap_buffer *out, const struct neap_report_columns *columns, const struct row *row,
		    const size_t *widths, bool color)
{
	size_t start = out->length, indent = 0, at = columns->count, taken = 0;

	for (size_t i = 0; i < columns->count; i++) {
		size_t length = fitting(row->text[i], widths[i], is_rung(columns, i));
		struct cell cell = {row->text[i], length, widths[i], neap_report_column_right(columns, i),
				    row->tone[i]};
		put_cell(out, cell, color);
		if (is_rung(columns, i)) {
			at = i;
			taken = length;
		} else if (at == columns->count) {
			indent += widths[i] + GAP;
		}
	}
	trim_line(out, start);
	if (at == columns->count)
		return;
	for (const char *rung = row->text[at] + taken; *rung; rung += taken) {
		start = out->length;
		spaces(out, indent);
		taken = fitting(rung, widths[at], true);
		put_cell(out, (struct cell){rung, taken, widths[at], false, row->tone[at]}, color);
		trim_line(out, start);
	}
}

static void widen(const struct neap_report_columns *columns, size_t *widths, const struct row *row)
{
	for (size_t i = 0; i < columns->count; i++) {
		const struct neap_report_column_chosen *column = &columns->items[i];
		size_t width = neap_report_width(row->text[i], strlen(row->text[i]));
		bool name = column->kind == NEAP_KIND_PARAM ||
			    (column->kind == NEAP_KIND_CELL && column->cell == NEAP_COLUMN_NAME);
		size_t limit = name ? NAME_LIMIT : is_rung(columns, i) ? TABLE_COLUMNS : CELL_LIMIT;
		if (width > limit)
			width = limit;
		if (width > widths[i])
			widths[i] = width;
	}
}

static void limit_rung(const struct neap_report_columns *columns, size_t *widths)
{
	size_t others = columns->count ? (columns->count - 1) * GAP : 0;

	for (size_t i = 0; i < columns->count; i++)
		if (!is_rung(columns, i))
			others += widths[i];
	/* With the usual columns, NAME_LIMIT and CELL_LIMIT leave it at least a few columns in the worst case. */
	size_t capacity = others + 8 < TABLE_COLUMNS ? TABLE_COLUMNS - others : 8;
	for (size_t i = 0; i < columns->count; i++)
		if (is_rung(columns, i) && widths[i] > capacity)
			widths[i] = capacity;
}

void neap_report_failures(struct neap_buffer *out, const struct neap_result *results, size_t count)
{
	char name[256], text[512];
	bool any = false;

	for (size_t i = 0; i < count; i++) {
		const struct neap_result *result = &results[i];
		if (result->outcome == NEAP_OUTCOME_OK)
			continue;
		neap_printable(name, sizeof name, result->name);
		neap_printable(text, sizeof text, result->evidence);
		neap_buffer_format(out, "\n%s: %s%s%s\n", name, neap_outcome_name(result->outcome),
				   text[0] ? ": " : "", text);
		char folder[4096];
		neap_printable(folder, sizeof folder, result->folder);
		if (folder[0])
			neap_buffer_format(out, "  in %s\n", folder);
		any = any || folder[0];
	}
	if (any)
		neap_buffer_text(out,
				 "\n'neap explain FOLDER' shows the last lines that such a run wrote, and what is "
				 "known of its memory\n");
}

void neap_report_table(struct neap_buffer *out, const struct neap_result *results, size_t count,
		       const struct neap_report_columns *columns, bool color)
{
	const struct neap_result **ordered = neap_report_ordered(columns, results, count);
	struct row row = {0};
	size_t widths[NEAP_REPORT_COLUMNS] = {0};

	if (!ordered) {
		out->failed = true;
		return;
	}
	for (size_t i = 0; i < count; i++) {
		fill_row(columns, ordered[i], &row);
		widen(columns, widths, &row);
	}
	row = (struct row){0};
	for (size_t i = 0; i < columns->count; i++)
		for (size_t c = 0; columns->items[i].title[c]; c++)
			row.text[i][c] = (char)toupper((unsigned char)columns->items[i].title[c]);
	widen(columns, widths, &row);
	limit_rung(columns, widths);
	if (color)
		neap_buffer_text(out, "\033[1m");
	put_row(out, columns, &row, widths, false);
	if (color)
		neap_buffer_text(out, "\033[0m");
	for (size_t i = 0; i < count; i++) {
		fill_row(columns, ordered[i], &row);
		put_row(out, columns, &row, widths, color);
	}
	free(ordered);
}
