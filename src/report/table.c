/* report/table.c: the ranked table. Columns are as wide as what stands in them; the rung, the longest, takes what is
 * left of 120 columns and goes on below where that is too little.
 *
 *   NAME      OUTCOME      PEAK  HEADROOM    DRAIN  RETRIES  RUNG                  LEAK            TIME
 *   big       ok       5.98 GiB  1.52 GiB  3.10 ms        0  micro_batch 64 -> 16,  clean         12.3 s
 *                                                            accumulate 1 -> 4
 */
#include "report/cells.h"
#include "report/report.h"

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

/* Bytes of `text` that fit `width` columns. With `words`, broken after a comma, else after a space, where it lies in
 * them: "micro_batch 64 -> 32," stays together. */
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

static void put_row(struct neap_buffer *out, const struct neap_report_cells *cells, const size_t *widths, bool color)
{
	const char *rung = cells->text[NEAP_COLUMN_RUNG];
	size_t taken = fitting(rung, widths[NEAP_COLUMN_RUNG], true);
	size_t start = out->length, indent = 0;

	for (int i = 0; i < NEAP_COLUMN_COUNT; i++) {
		struct cell cell = {.text = cells->text[i],
				    .length =
					    i == NEAP_COLUMN_RUNG ? taken : fitting(cells->text[i], widths[i], false),
				    .width = widths[i],
				    .right = neap_report_headings[i].right,
				    .tone = cells->tone[i]};
		put_cell(out, cell, color);
		if (i < NEAP_COLUMN_RUNG)
			indent += widths[i] + GAP;
	}
	trim_line(out, start);
	for (rung += taken; *rung; rung += taken) {
		start = out->length;
		spaces(out, indent);
		taken = fitting(rung, widths[NEAP_COLUMN_RUNG], true);
		put_cell(out,
			 (struct cell){rung, taken, widths[NEAP_COLUMN_RUNG], false, cells->tone[NEAP_COLUMN_RUNG]},
			 color);
		trim_line(out, start);
	}
}

static void widen(size_t *widths, const struct neap_report_cells *cells)
{
	for (int i = 0; i < NEAP_COLUMN_COUNT; i++) {
		size_t width = neap_report_width(cells->text[i], strlen(cells->text[i]));
		size_t limit = i == NEAP_COLUMN_NAME   ? NAME_LIMIT
			       : i == NEAP_COLUMN_RUNG ? TABLE_COLUMNS
						       : CELL_LIMIT;
		if (width > limit)
			width = limit;
		if (width > widths[i])
			widths[i] = width;
	}
}

static void limit_rung(size_t *widths)
{
	size_t others = (NEAP_COLUMN_COUNT - 1) * GAP;

	for (int i = 0; i < NEAP_COLUMN_COUNT; i++)
		if (i != NEAP_COLUMN_RUNG)
			others += widths[i];
	/* NAME_LIMIT and CELL_LIMIT leave a rung of at least a few columns in the worst case. */
	size_t room = others + 8 < TABLE_COLUMNS ? TABLE_COLUMNS - others : 8;
	if (widths[NEAP_COLUMN_RUNG] > room)
		widths[NEAP_COLUMN_RUNG] = room;
}

void neap_report_failures(struct neap_buffer *out, const struct neap_result *results, size_t count)
{
	char name[256], text[512];
	bool any = false;

	for (size_t i = 0; i < count; i++) {
		const struct neap_result *result = &results[i];
		if (result->outcome == NEAP_OUTCOME_OK)
			continue;
		neap_report_clean(name, sizeof(name), result->name);
		neap_report_clean(text, sizeof(text), result->evidence);
		neap_buffer_format(out, "\n%s: %s%s%s\n", name, neap_outcome_name(result->outcome),
				   text[0] ? ": " : "", text);
		char folder[4096];
		neap_report_clean(folder, sizeof(folder), result->folder);
		if (folder[0])
			neap_buffer_format(out, "  in %s\n", folder);
		any = any || folder[0];
	}
	if (any)
		neap_buffer_text(out,
				 "\n'neap explain FOLDER' shows the last lines that such a run wrote, and what is "
				 "known of its memory\n");
}

void neap_report_table(struct neap_buffer *out, const struct neap_result *results, size_t count, bool color)
{
	const struct neap_result **ranked = neap_report_rank(results, count);
	struct neap_report_cells cells, headings = {0};
	size_t widths[NEAP_COLUMN_COUNT] = {0};

	if (!ranked) {
		out->failed = true;
		return;
	}
	for (int i = 0; i < NEAP_COLUMN_COUNT; i++)
		for (size_t c = 0; neap_report_headings[i].title[c]; c++)
			headings.text[i][c] = (char)toupper((unsigned char)neap_report_headings[i].title[c]);
	widen(widths, &headings);
	for (size_t i = 0; i < count; i++) {
		neap_report_cells(ranked[i], &cells);
		widen(widths, &cells);
	}
	limit_rung(widths);
	if (color)
		neap_buffer_text(out, "\033[1m");
	put_row(out, &headings, widths, false);
	if (color)
		neap_buffer_text(out, "\033[0m");
	for (size_t i = 0; i < count; i++) {
		neap_report_cells(ranked[i], &cells);
		put_row(out, &cells, widths, color);
	}
	free(ranked);
}
