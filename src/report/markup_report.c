/* report/markup_report.c: makes markup, one part of the report at a time. The part's lines become rows of cells; a
 * line that only continues the line before joins the last cell of that line. */
#include "report/markup_report.h"

#include "report/cells.h"
#include "report/markup.h"
#include "report/words.h"
#include "report/wrap.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define CELLS  12   /* at most in a row; further cells are joined to the last */
#define DEEPER 3    /* levels of indentation that have a class of their own */
#define HEADED 3    /* cells that make a line the head of a table */
#define GAP    "  " /* at least, between cells */

struct row {
	size_t indent, count;
	size_t width;        /* of its last line, in columns */
	size_t cells[CELLS]; /* where each begins in the part's text, NUL-terminated there */
};

struct part {
	struct neap_buffer text; /* of the cells */
	struct row *rows;
	size_t count, capacity;
	bool failed;
};

static size_t indent_of(const char *line) { return strspn(line, " "); }

/* Whether `line` continues `row`: neap_report_wrap breaks a line only where the next word does not fit. */
static bool continues(const struct row *row, const char *line, size_t length)
{
	size_t indent = indent_of(line), word = 0;
	while (indent + word < length && line[indent + word] != ' ')
		word++;
	bool below = row->count > 1 ? indent > row->indent + 2 : indent >= row->indent;
	return below && row->width + 1 + neap_report_width(line + indent, word) > NEAP_WRAP_COLUMNS;
}

/* A cell's text without its NUL, so that more can follow. */
static void open_last(struct part *part)
{
	if (part->text.length)
		part->text.length--;
}

static void put_cell(struct part *part, struct row *row, const char *text, size_t length)
{
	row->cells[row->count++] = part->text.length;
	neap_buffer_append(&part->text, text, length);
	neap_buffer_append(&part->text, "", 1);
}

static void split(struct part *part, struct row *row, const char *line, size_t length)
{
	size_t from = row->indent;
	for (size_t at = from; at < length; at++) {
		if (strncmp(line + at, GAP, strlen(GAP)) || row->count + 1 == CELLS)
			continue;
		put_cell(part, row, line + from, at - from);
		from = at + strspn(line + at, " ");
		at = from - 1;
	}
	if (from < length)
		put_cell(part, row, line + from, length - from);
}

static void add_line(struct part *part, const char *line, size_t length)
{
	struct row *last = part->count ? &part->rows[part->count - 1] : NULL;
	size_t width = neap_report_width(line, length);

	if (last && continues(last, line, length)) {
		open_last(part);
		neap_buffer_text(&part->text, " ");
		neap_buffer_append(&part->text, line + indent_of(line), length - indent_of(line));
		neap_buffer_append(&part->text, "", 1);
		last->width = width;
		return;
	}
	if (part->count == part->capacity) {
		size_t capacity = part->capacity ? 2 * part->capacity : 32;
		struct row *grown = realloc(part->rows, capacity * sizeof *grown);
		part->failed |= !grown;
		if (!grown)
			return;
		part->rows = grown;
		part->capacity = capacity;
	}
	struct row *row = &part->rows[part->count++];
	*row = (struct row){.indent = indent_of(line), .width = width};
	split(part, row, line, length);
}

static const char *cell(const struct part *part, const struct row *row, size_t number)
{
	return part->text.data + row->cells[number];
}

static bool is_number(const char *text)
{
	return isdigit((unsigned char)text[0]) ||
	       ((text[0] == '+' || text[0] == '-') && isdigit((unsigned char)text[1]));
}

/* Writes a cell of figures: no line breaks between a number and its unit. */
static void put_figures(struct neap_buffer *out, const char *text)
{
	struct neap_buffer joined = {0};
	for (size_t i = 0; text[i]; i++)
		neap_buffer_text(&joined, i && text[i] == ' ' && isdigit((unsigned char)text[i - 1])
						  ? "\xC2\xA0"
						  : (char[]){text[i], '\0'});
	neap_markup_text(out, neap_buffer_string(&joined));
	out->failed |= joined.failed;
	neap_buffer_fini(&joined);
}

static const char *tone(const char *text)
{
	return !strcmp(text, "yes") ? "good" : !strcmp(text, "no") ? "bad" : !strcmp(text, "probably") ? "warn" : "";
}

/* Whether the head of a table begins with its second column. */
static bool unnamed(const struct part *part)
{
	return part->count > 1 && part->rows[0].count > 1 && part->rows[0].indent > part->rows[1].indent;
}

static bool is_headed(const struct part *part) { return part->rows[0].count >= HEADED || unnamed(part); }

static void put_row(struct neap_buffer *out, const struct part *part, const struct row *row, size_t columns,
		    size_t indent)
{
	bool headed = is_headed(part), number = is_number(cell(part, row, 0));
	size_t deeper = row->indent > indent && !number ? (row->indent - indent + 1) / 2 : 0;
	size_t blank =
		number && row->indent > indent && row->count + 1 == columns; /* the cell above applies to it too */

	if (deeper)
		neap_buffer_format(out, "<tr class=\"in%zu\">", deeper > DEEPER ? (size_t)DEEPER : deeper);
	else
		neap_buffer_text(out, blank ? "<tr><td></td>" : "<tr>");
	for (size_t i = 0; i < row->count; i++) {
		const char *text = cell(part, row, i);
		bool last = i + 1 == row->count;
		bool right = is_number(text) && (last ? headed : row->count > 1);
		neap_buffer_format(out, "<td class=\"%s%s\"", right ? "right" : "", tone(text));
		if (last && !right && row->count + blank < columns)
			neap_buffer_format(out, " colspan=\"%zu\"", columns - row->count - blank + 1);
		neap_buffer_text(out, ">");
		(right ? put_figures : neap_markup_text)(out, text);
		neap_buffer_text(out, "</td>");
	}
	for (size_t i = row->count; headed && is_number(cell(part, row, row->count - 1)) && i < columns; i++)
		neap_buffer_text(out, "<td></td>");
	neap_buffer_text(out, "</tr>\n");
}

/* The first cell of a column below its head; "" if the column has none. */
static const char *first_below(const struct part *part, size_t column)
{
	for (size_t i = 1; i < part->count; i++)
		if (column < part->rows[i].count)
			return cell(part, &part->rows[i], column);
	return "";
}

/* Writes the heads of the columns, aligned as their cells. */
static void put_table_head(struct neap_buffer *out, const struct part *part)
{
	const struct row *head = &part->rows[0];

	size_t blank = unnamed(part); /* the first column has no head */
	neap_buffer_text(out, blank ? "<thead><tr><td></td>" : "<thead><tr>");
	for (size_t i = 0; i < head->count; i++) {
		bool right = is_number(first_below(part, i + blank));
		neap_buffer_format(out, "<th scope=\"col\"%s>", right ? " class=\"right\"" : "");
		neap_words_put(out, cell(part, head, i));
		neap_buffer_text(out, "</th>");
	}
	neap_buffer_text(out, "</tr></thead>");
}

/* Writes a heading, or a part that has one line. */
static void put_line(struct neap_buffer *out, const char *tag, const struct part *part, const struct row *row)
{
	neap_buffer_format(out, "<%s>", tag);
	for (size_t i = 0; i < row->count; i++) {
		neap_buffer_text(out, i ? " " : "");
		neap_markup_text(out, cell(part, row, i));
	}
	neap_buffer_format(out, "</%s>\n", tag);
}

static void put_part(struct neap_buffer *out, const struct part *part)
{
	const struct row *head = &part->rows[0];
	size_t columns = is_headed(part) ? head->count + unnamed(part) : 0, indent = SIZE_MAX;

	if (part->count == 1 && !is_headed(part)) {
		put_line(out, "p", part, head);
		return;
	}
	for (size_t i = !is_headed(part); i < part->count; i++) {
		columns = part->rows[i].count > columns ? part->rows[i].count : columns;
		indent = i > 0 && part->rows[i].indent < indent ? part->rows[i].indent : indent;
	}
	if (!is_headed(part))
		put_line(out, "h3", part, head);
	neap_buffer_text(out, "<div class=\"scroll\" tabindex=\"0\"><table>");
	if (is_headed(part))
		put_table_head(out, part);
	neap_buffer_text(out, "<tbody>\n");
	for (size_t i = 1; i < part->count; i++)
		put_row(out, part, &part->rows[i], columns, indent);
	neap_buffer_text(out, "</tbody></table></div>\n");
}

static void end_part(struct neap_buffer *out, struct part *part)
{
	out->failed |= part->failed || part->text.failed;
	if (part->count > 0 && !out->failed)
		put_part(out, part);
	part->count = 0;
	neap_buffer_clear(&part->text);
}

void neap_markup_report(struct neap_buffer *out, const char *text)
{
	struct part part = {0};

	while (*text) {
		size_t length = strcspn(text, "\n"), shown = length;
		while (shown > 0 && text[shown - 1] == ' ')
			shown--;
		if (shown == 0)
			end_part(out, &part);
		else
			add_line(&part, text, shown);
		text += length + (text[length] == '\n');
	}
	end_part(out, &part);
	neap_buffer_fini(&part.text);
	free(part.rows);
}
