/* top/device.c: a device's bar, its legend and its curve. */
#include "top/parts.h"

#include "base/printable.h"
#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SENSORS_LEAST 90 /* columns of a screen that has their figures, too */

static const struct {
	const char *name, *utf8, *ascii;
} glyphs[NEAP_TOP_PARTS] = {
	{"driver", "\xe2\x94\x80", "r"},       /* line */
	{"context", "\xe2\x96\x92", "c"},      /* medium shade */
	{"allocated", "\xe2\x96\x88", "#"},    /* full block */
	{"cached", "\xe2\x96\x93", "="},       /* dark shade */
	{"not attached", "\xe2\x96\x91", "n"}, /* light shade */
	{"unexplained", "?", "?"},
	{"free", "\xc2\xb7", "."}, /* middle dot */
};

/* The parts in the order in which they are drawn: first those that can grow, last the free and the driver's own. */
static const size_t drawn[NEAP_TOP_PARTS] = {2, 3, 1, 4, 5, 6, 0};

static enum neap_top_style style_of(size_t part) { return (enum neap_top_style)(NEAP_TOP_PART_RESERVED + part); }

static const char *glyph_of(size_t part, bool ascii) { return ascii ? glyphs[part].ascii : glyphs[part].utf8; }

static uint64_t bytes_of(const struct neap_ledger *ledger, size_t part)
{
	switch (style_of(part)) {
	case NEAP_TOP_PART_RESERVED:
		return ledger->driver_reserved;
	case NEAP_TOP_PART_CONTEXT:
		return ledger->contexts;
	case NEAP_TOP_PART_ALLOCATED:
		return ledger->allocated;
	case NEAP_TOP_PART_CACHED:
		return ledger->cached;
	case NEAP_TOP_PART_NOT_ATTACHED:
		return ledger->not_attached;
	case NEAP_TOP_PART_UNEXPLAINED:
		return ledger->unexplained > 0 ? (uint64_t)ledger->unexplained : 0;
	default:
		return ledger->free;
	}
}

/* As nvidia-smi counts it: without the driver's own part. */
static uint64_t used_of(const struct neap_ledger *ledger)
{
	uint64_t used = ledger->total - ledger->free;
	return used > ledger->driver_reserved ? used - ledger->driver_reserved : 0;
}

const char *neap_top_size(uint64_t bytes, char text[NEAP_TOP_SIZE_CAPACITY])
{
	static const char units[] = "BKMGTPE";
	double value = (double)bytes;
	size_t unit = 0;
	while (value >= 999.5 && unit + 1 < strlen(units)) {
		value /= 1024;
		unit++;
	}
	if (unit == 0)
		snprintf(text, NEAP_TOP_SIZE_CAPACITY, "%.0f", value);
	else
		snprintf(text, NEAP_TOP_SIZE_CAPACITY, "%.*f%c",
			 value < 9.995   ? 2
			 : value < 99.95 ? 1
					 : 0,
			 value, units[unit]);
	return text;
}

const char *neap_top_change(int64_t bytes, char text[NEAP_TOP_SIZE_CAPACITY])
{
	char size[NEAP_TOP_SIZE_CAPACITY];
	uint64_t magnitude = bytes < 0 ? (uint64_t)0 - (uint64_t)bytes : (uint64_t)bytes;
	snprintf(text, NEAP_TOP_SIZE_CAPACITY, "%s%.14s",
		 bytes < 0   ? "-"
		 : bytes > 0 ? "+"
			     : "",
		 neap_top_size(magnitude, size));
	return text;
}

void neap_top_split(const struct neap_ledger *ledger, size_t width, size_t ret_cells[NEAP_TOP_PARTS])
{
	double share[NEAP_TOP_PARTS], sum = 0;
	size_t used = 0;
	for (size_t i = 0; i < NEAP_TOP_PARTS; i++)
		sum += (double)bytes_of(ledger, i);
	for (size_t i = 0; i < NEAP_TOP_PARTS; i++) {
		double bytes = (double)bytes_of(ledger, i);
		share[i] = sum > 0 ? bytes / sum * (double)width : 0;
		ret_cells[i] = share[i] >= 1 ? (size_t)share[i] : bytes > 0;
		used += ret_cells[i];
	}
	/* Corrects the rounding to whole cells: while cells are left, gives one to the part that lost most; while
	 * there are too many, takes one from the part that gained most. */
	while (used != width && sum > 0) {
		size_t best = NEAP_TOP_PARTS;
		for (size_t i = 0; i < NEAP_TOP_PARTS; i++) {
			double gap = share[i] - (double)ret_cells[i];
			double best_gap = best < NEAP_TOP_PARTS ? share[best] - (double)ret_cells[best] : 0;
			bool movable = used < width ? share[i] > 0 : ret_cells[i] > (width >= NEAP_TOP_PARTS);
			if (movable && (best == NEAP_TOP_PARTS || (used < width ? gap > best_gap : gap < best_gap)))
				best = i;
		}
		if (best == NEAP_TOP_PARTS)
			break;
		ret_cells[best] += used < width ? 1 : (size_t)-1;
		used += used < width ? 1 : (size_t)-1;
	}
}

static size_t draw_bar(struct neap_top_grid *grid, const struct neap_top_device *device, struct neap_top_place place)
{
	size_t cells[NEAP_TOP_PARTS];
	size_t end = place.end ? place.end : grid->width;
	neap_top_split(&device->ledger, end > place.column ? end - place.column : 0, cells);
	for (size_t i = 0; i < NEAP_TOP_PARTS; i++) {
		place.style = style_of(drawn[i]);
		place.column = neap_top_fill(grid, place, glyph_of(drawn[i], grid->ascii), cells[drawn[i]]);
	}
	return place.column;
}

static void describe(const struct neap_top_device *device, bool sensors, char *text, size_t capacity)
{
	char used[NEAP_UNITS_CAPACITY], total[NEAP_UNITS_CAPACITY], limit[16] = "";
	size_t at =
		(size_t)snprintf(text, capacity, "%s of %s used", neap_size_format(used_of(&device->ledger), used),
				 neap_size_format(device->ledger.total, total));
	if (device->utilization_percent >= 0)
		at += (size_t)snprintf(text + at, capacity - at, "  %3d %% busy", device->utilization_percent);
	if (!sensors)
		return;
	if (device->temperature_celsius >= 0)
		at += (size_t)snprintf(text + at, capacity - at, "  %d C", device->temperature_celsius);
	if (device->power_limit_watts >= 0)
		snprintf(limit, sizeof limit, "/%d", device->power_limit_watts);
	if (device->power_watts >= 0)
		at += (size_t)snprintf(text + at, capacity - at, "  %d%s W", device->power_watts, limit);
	if (device->clock_mhz >= 0)
		snprintf(text + at, capacity - at, "  %d MHz", device->clock_mhz);
}

static size_t draw_index(struct neap_top_grid *grid, const struct neap_top_view *view, size_t device,
			 struct neap_top_place place)
{
	place.style = NEAP_TOP_TITLE;
	bool marked = device == view->device && !view->once;
	return neap_top_putf(grid, place, "%s%zu ", marked ? ">" : " ", device);
}

void neap_top_draw_device(struct neap_top_grid *grid, const struct neap_top_sample *sample,
			  const struct neap_top_view *view, size_t device, struct neap_top_place place)
{
	const struct neap_top_device *one = &sample->devices[device];
	char text[128];
	describe(one, grid->width >= SENSORS_LEAST, text, sizeof text);
	size_t wide = neap_top_columns(text);
	struct neap_top_place name = place, figures = place;
	name.column = draw_index(grid, view, device, place);
	name.end = grid->width > wide + name.column + 1 ? grid->width - wide - 1 : name.column + 1;
	name.style = NEAP_TOP_TITLE;
	name.column = neap_top_put(grid, name, one->name);
	name.style = NEAP_TOP_PLAIN;
	if (one->kind == NEAP_TOP_UNIFIED)
		neap_top_put(grid, name, " (unified memory, shared with the host)");
	figures.column = name.end;
	neap_top_put_right(grid, figures, text);
	draw_bar(grid, one, (struct neap_top_place){.row = place.row + 1, .column = 3});
}

void neap_top_draw_device_line(struct neap_top_grid *grid, const struct neap_top_sample *sample,
			       const struct neap_top_view *view, size_t device, struct neap_top_place place)
{
	const struct neap_top_device *one = &sample->devices[device];
	char used[NEAP_TOP_SIZE_CAPACITY], total[NEAP_TOP_SIZE_CAPACITY], text[64], busy[16] = "";
	if (one->utilization_percent >= 0)
		snprintf(busy, sizeof busy, " %3d%%", one->utilization_percent);
	snprintf(text, sizeof text, "%s/%s%s%s", neap_top_size(used_of(&one->ledger), used),
		 neap_top_size(one->ledger.total, total), one->kind == NEAP_TOP_UNIFIED ? " unified" : "", busy);
	size_t wide = neap_top_columns(text);
	struct neap_top_place bar = place, figures = place;
	bar.column = draw_index(grid, view, device, place);
	bar.end = grid->width > wide + 2 + bar.column ? grid->width - wide - 1 : bar.column;
	figures.column = bar.end > bar.column ? draw_bar(grid, one, bar) : bar.column;
	neap_top_put_right(grid, figures, text);
}

size_t neap_top_draw_legend(struct neap_top_grid *grid, const struct neap_top_device *device, size_t width,
			    bool ascii, size_t row)
{
	size_t first = row, column = 1;
	for (size_t i = 0; i < NEAP_TOP_PARTS; i++) {
		char text[64], size[NEAP_TOP_SIZE_CAPACITY];
		size_t part = drawn[i];
		bool unexplained = style_of(part) == NEAP_TOP_PART_UNEXPLAINED;
		snprintf(text, sizeof text, " %s %s", glyphs[part].name,
			 unexplained ? neap_top_change(device->ledger.unexplained, size)
				     : neap_top_size(bytes_of(&device->ledger, part), size));
		if (column > 1 && column + 1 + strlen(text) > width) {
			row++;
			column = 1;
		}
		if (grid) {
			struct neap_top_place place = {.row = row, .column = column, .style = style_of(part)};
			place.column = neap_top_put(grid, place, glyph_of(part, ascii));
			place.style = unexplained && device->ledger.unexplained ? NEAP_TOP_WARN : NEAP_TOP_PLAIN;
			neap_top_put(grid, place, text);
		}
		column += 1 + strlen(text) + 2;
	}
	return row - first + 1;
}

/* -- the curve: a column is a group of instants; it shows the one with the most memory in use -------------------- */

struct point {
	bool known;
	struct neap_ledger ledger;
	int utilization; /* the largest of the group; -1: not known */
};

/* Fills `columns` points, the newest last. Each shows `group` samples. Groups are counted from the first sample ever
 * taken, so that a group keeps its samples while it moves to the left. */
static void collect(const struct neap_top_history *history, size_t device, size_t group, struct point *points,
		    size_t columns)
{
	uint64_t newest = history->taken ? (history->taken - 1) / group : 0;
	for (size_t i = 0; i < columns; i++)
		points[i] = (struct point){.utilization = -1};
	for (size_t age = 0; age < history->count; age++) {
		const struct neap_top_sample *sample = neap_top_history_at(history, age);
		uint64_t back = newest - (history->taken - 1 - age) / group;
		if (back >= columns || device >= sample->device_count)
			continue;
		struct point *point = &points[columns - 1 - back];
		const struct neap_top_device *one = &sample->devices[device];
		if (!point->known || used_of(&one->ledger) > used_of(&point->ledger))
			point->ledger = one->ledger;
		if (one->utilization_percent > point->utilization)
			point->utilization = one->utilization_percent;
		point->known = true;
	}
}

/* The part in which a level of the curve lies, counted from the bottom; the free part if it is above all use. The
 * driver's own part is not in the curve. */
static size_t part_at(const struct neap_ledger *ledger, double level)
{
	double sum = 0;
	for (size_t i = 0; i + 2 < NEAP_TOP_PARTS; i++) {
		sum += (double)bytes_of(ledger, drawn[i]);
		if (level < sum)
			return drawn[i];
	}
	return NEAP_TOP_PARTS - 1;
}

static const char *const eighths[] = {" ",
				      "\xe2\x96\x81",
				      "\xe2\x96\x82",
				      "\xe2\x96\x83",
				      "\xe2\x96\x84",
				      "\xe2\x96\x85",
				      "\xe2\x96\x86",
				      "\xe2\x96\x87",
				      "\xe2\x96\x88"};

/* Draws one cell of the curve with the part at its middle. If the curve ends in the cell, fills it by eighths. */
static void draw_point(struct neap_top_grid *grid, const struct point *point, struct neap_top_place place,
		       double bottom, double step)
{
	double used = (double)used_of(&point->ledger);
	double filled = (used - bottom) / step;
	if (!point->known || filled <= 0)
		return;
	double middle = bottom + (filled < 1 ? filled : 1) * step / 2;
	size_t part = part_at(&point->ledger, middle);
	place.style = style_of(part);
	size_t eighth = filled >= 1 ? 8 : (size_t)ceil(filled * 8);
	if (grid->ascii)
		neap_top_put(grid, place, filled >= 0.5 || bottom <= 0 ? glyphs[part].ascii : "_");
	else
		neap_top_put(grid, place, filled >= 1 ? glyph_of(part, false) : eighths[eighth]);
}

static void draw_utilization(struct neap_top_grid *grid, const struct point *points, size_t columns,
			     struct neap_top_place place)
{
	static const char *const levels[] = {".", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
	size_t left = place.column;
	neap_top_put(grid, (struct neap_top_place){.row = place.row, .style = NEAP_TOP_DIM}, "  busy");
	for (size_t i = 0; i < columns; i++) {
		int percent =
			points[i].utilization < 100 ? points[i].utilization : 100; /* a driver may report more */
		place.column = left + i;
		if (percent < 0)
			continue;
		size_t eighth = (size_t)percent * 8 / 100, tenth = (size_t)percent / 10;
		neap_top_put(grid, place,
			     grid->ascii ? levels[tenth < 10 ? tenth : 9] : eighths[eighth ? eighth : 1]);
	}
}

#define LABEL 7 /* columns left of the curve */

void neap_top_draw_curve(struct neap_top_grid *grid, const struct neap_top_history *history,
			 const struct neap_top_view *view, size_t row, size_t rows)
{
	struct point points[NEAP_TOP_HISTORY];
	const struct neap_top_sample *sample = neap_top_history_at(history, 0), *oldest;
	if (!sample || view->device >= sample->device_count || grid->width < LABEL + 8 || rows < 3)
		return;
	size_t columns = grid->width - LABEL < NEAP_TOP_HISTORY ? grid->width - LABEL : NEAP_TOP_HISTORY;
	size_t group = (NEAP_TOP_HISTORY + columns - 1) / columns;
	char text[NEAP_UNITS_CAPACITY], size[NEAP_TOP_SIZE_CAPACITY], peak_text[NEAP_UNITS_CAPACITY];
	uint64_t peak = 0;
	bool busy = false;
	collect(history, view->device, group, points, columns);
	for (size_t i = 0; i < columns; i++) {
		peak = points[i].known && used_of(&points[i].ledger) > peak ? used_of(&points[i].ledger) : peak;
		busy |= points[i].utilization >= 0;
	}
	oldest = neap_top_history_at(history, history->count - 1);
	neap_top_putf(grid, (struct neap_top_place){.row = row, .style = NEAP_TOP_DIM},
		      " GPU %zu, the last %s: %s used at most", view->device,
		      neap_duration_format(sample->time_ns - oldest->time_ns, text),
		      neap_size_format(peak, peak_text));
	uint64_t total = sample->devices[view->device].ledger.total;
	size_t lines = rows - 1 - (busy && rows > 3);
	double step = (double)total / (double)lines;
	struct neap_top_place label = {.row = row + 1, .end = LABEL - 1, .style = NEAP_TOP_DIM};
	neap_top_put_right(grid, label, neap_top_size(total, size));
	label.row = row + lines;
	neap_top_put_right(grid, label, "0");
	for (size_t line = 0; line < lines; line++)
		for (size_t i = 0; i < columns; i++)
			draw_point(grid, &points[i],
				   (struct neap_top_place){.row = row + lines - line, .column = LABEL + i},
				   step * (double)line, step);
	if (busy && rows > 3)
		draw_utilization(grid, points, columns,
				 (struct neap_top_place){.row = row + rows - 1, .column = LABEL});
}
