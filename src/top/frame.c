/* top/frame.c: see frame.h. */
#include "top/frame.h"

#include "base/error.h"
#include "base/units.h"
#include "top/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_LEAST  5 /* rows of the table, head included; below this, devices give way */
#define LIST_WANTED 9 /* below this, the curve does */

/* The rows of each part. */
struct layout {
	size_t device_rows;   /* of each device: 1 or 2 */
	size_t devices;       /* how many are shown; if not all, a line after them counts the others */
	size_t legend, curve; /* rows; 0: not shown */
	size_t list, bottom;
	size_t height;
};

static const char help[] = "Keys\n"
			   "  Up, Down, PgUp, PgDn, Home, End   select a process\n"
			   "  Tab                               the next GPU in the legend and the curve\n"
			   "  s, . or ,; r                      sort by another key; reverse\n"
			   "  t                                 tree or list\n"
			   "  &                                 filter: only processes with this text\n"
			   "  /, n                              search; the next one\n"
			   "  Esc                               no filter, no search\n"
			   "  p                                 pause\n"
			   "  c, f, k or T                      neap clear, fraction or kill for the\n"
			   "                                    selected process: asks first\n"
			   "  q, Ctrl-C                         quit\n";

static size_t device_lines(const struct layout *layout, size_t count)
{
	return layout->devices * layout->device_rows + (layout->devices < count);
}

static void plan_devices(struct layout *layout, size_t count, size_t capacity)
{
	layout->devices = count;
	layout->device_rows = 2 * count <= capacity ? 2 : 1;
	if (count * layout->device_rows > capacity)
		layout->devices = capacity > 1 ? capacity - 1 : 0;
}

/* Whether text is shown in place of the processes. */
static bool shows_text(const struct neap_top_view *view)
{
	return view->mode == NEAP_TOP_HELP || view->mode == NEAP_TOP_SHOW ||
	       (view->mode == NEAP_TOP_CONFIRM && view->text[0]);
}

static size_t legend_rows(const struct neap_top_sample *sample, const struct neap_top_view *view, size_t device)
{
	return neap_top_draw_legend(NULL, &sample->devices[device], view->width, view->ascii, 0);
}

static struct layout plan(const struct neap_top_history *history, const struct neap_top_view *view, size_t rows)
{
	const struct neap_top_sample *sample = neap_top_history_at(history, 0);
	size_t count = sample ? sample->device_count : 0;
	struct layout layout = {.height = view->height, .device_rows = 2, .devices = count};
	if (view->once) {
		layout.list = 1 + (rows > 0 ? rows : 1);
		layout.bottom = sample && sample->unlisted > 0;
		layout.height = 1 + layout.list + layout.bottom;
		for (size_t i = 0; i < count; i++)
			layout.height += 2 + legend_rows(sample, view, i);
		return layout;
	}
	if (count > 0)
		layout.legend = legend_rows(sample, view, view->device);
	layout.bottom = layout.height > 3 ? 2 : 0;
	if (layout.height < 3 * LIST_LEAST)
		layout.legend = 0;
	size_t fixed = 1 + layout.legend + layout.bottom;
	plan_devices(&layout, count, layout.height > fixed + LIST_LEAST ? layout.height - fixed - LIST_LEAST : 0);
	fixed += device_lines(&layout, count);
	size_t left = layout.height > fixed ? layout.height - fixed : 0;
	if (count > 0 && left >= LIST_WANTED + 4 && !shows_text(view))
		layout.curve =
			left - LIST_WANTED < 4 + layout.height / 8 ? left - LIST_WANTED : 4 + layout.height / 8;
	layout.list = left - layout.curve;
	return layout;
}

/* Writes what memory the host, or its control group, has left, in at most `capacity` columns, or "". */
static void describe_host(const struct neap_top_sample *sample, size_t capacity, char *text, size_t text_capacity)
{
	static const struct {
		bool by_group;
		const char *before, *after;
	} forms[] = {{true, "host", " left (cgroup limit)"},
		     {true, "cgroup", " left"},
		     {true, "cgroup", ""},
		     {false, "host", " left"},
		     {false, "host", ""}};
	char size[NEAP_UNITS_CAPACITY];

	neap_size_format(sample->host_available_bytes, size);
	for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
		if (forms[i].by_group == sample->host_by_group &&
		    (size_t)snprintf(text, text_capacity, "%s: %s%s", forms[i].before, size, forms[i].after) <=
			    capacity)
			return;
	text[0] = '\0';
}

static void draw_header(struct neap_top_grid *grid, const struct neap_top_sample *sample,
			const struct neap_top_view *view)
{
	char left[128], middle[192] = "", host[96];
	size_t using = 0;
	snprintf(left, sizeof left, "neap top  %s%s%s%s", view->clock, view->every[0] ? ", every " : "", view->every,
		 view->paused ? ", paused" : "");
	for (size_t i = 0; sample && i < sample->process_count; i++)
		using += !sample->processes[i].launcher;
	if (sample)
		snprintf(middle, sizeof middle, "   %zu GPU%s%s, %zu process%s%s%s", sample->device_count,
			 sample->device_count == 1 ? "" : "s", sample->simulated ? " (simulated)" : "", using,
			 using == 1 ? "" : "es", view->filter[0] ? ", only with " : "", view->filter);
	struct neap_top_place place = {.style = NEAP_TOP_TITLE};
	place.column = neap_top_put(grid, place, left);
	place.style = NEAP_TOP_PLAIN;
	place.column = neap_top_put(grid, place, middle);
	if (sample && sample->host_known && place.column + 2 < grid->width) {
		describe_host(sample, grid->width - place.column - 2, host, sizeof host);
		place.style = sample->host_by_group ? NEAP_TOP_WARN : NEAP_TOP_PLAIN;
		neap_top_put_right(grid, place, host);
	}
}

/* Draws each device with its legend. Returns the row after them. */
static size_t draw_devices_once(struct neap_top_grid *grid, const struct neap_top_sample *sample,
				const struct neap_top_view *view, size_t row)
{
	for (size_t i = 0; i < sample->device_count; i++) {
		neap_top_draw_device(grid, sample, view, i, (struct neap_top_place){.row = row});
		row += 2;
		row += neap_top_draw_legend(grid, &sample->devices[i], grid->width, grid->ascii, row);
	}
	return row;
}

/* Draws the devices for which there are rows, the view's device among them. Returns the row after them. */
static size_t draw_devices(struct neap_top_grid *grid, const struct neap_top_sample *sample,
			   const struct neap_top_view *view, const struct layout *layout, size_t row)
{
	size_t first =
		view->device >= layout->devices && layout->devices > 0 ? view->device + 1 - layout->devices : 0;
	for (size_t i = first; i < first + layout->devices; i++, row += layout->device_rows) {
		struct neap_top_place place = {.row = row};
		if (layout->device_rows == 2)
			neap_top_draw_device(grid, sample, view, i, place);
		else
			neap_top_draw_device_line(grid, sample, view, i, place);
	}
	if (layout->devices < sample->device_count)
		neap_top_putf(grid, (struct neap_top_place){.row = row++, .column = 1, .style = NEAP_TOP_DIM},
			      "and %zu more GPU%s (Tab)", sample->device_count - layout->devices,
			      sample->device_count - layout->devices == 1 ? "" : "s");
	return row;
}

/* Writes the line above the keys: the selected process. */
static void describe(const struct neap_top_process *process, char *text, size_t capacity)
{
	char strays[32], stray[64] = "";
	if (process->stray)
		snprintf(stray, sizeof stray, " [a stray context on GPU %s]",
			 neap_top_device_set(process->stray, strays));
	snprintf(text, capacity, "%d%s%s%s%s%s: %s", (int)process->pid, process->run_id[0] ? " run " : "",
		 process->run_id, process->attached || process->launcher ? "" : " (not attached)", stray,
		 process->note[0] ? " [see its note in neap info]" : "", process->command);
}

static void draw_status(struct neap_top_grid *grid, const struct neap_top_sample *sample,
			const struct neap_top_view *view, size_t row)
{
	char text[512] = "", size[NEAP_UNITS_CAPACITY];
	const struct neap_top_process *process =
		sample ? neap_top_find(sample, view->selected.pid, view->selected.start_ticks) : NULL;
	enum neap_top_style style = NEAP_TOP_WARN;
	if (view->problem[0]) {
		snprintf(text, sizeof text, "no new figures: %s", view->problem);
	} else if (view->notice[0]) {
		snprintf(text, sizeof text, "%s", view->notice);
	} else if (sample && sample->unlisted > 0 && (view->once || !process)) {
		snprintf(text, sizeof text, "%zu attached process%s %s reserved on devices that NVML does not list",
			 sample->unlisted, sample->unlisted == 1 ? " has" : "es have",
			 neap_size_format(sample->unlisted_bytes, size));
	} else if (process) {
		describe(process, text, sizeof text);
		style = NEAP_TOP_DIM;
	}
	neap_top_put(grid, (struct neap_top_place){.row = row, .column = 1, .style = style}, text);
}

static void draw_keys(struct neap_top_grid *grid, size_t row)
{
	static const struct {
		const char *key, *what;
	} keys[] = {{"q", "quit"},   {"?", "keys"},   {"c", "clear"}, {"f", "fraction"}, {"k", "kill"}, {"s", "sort"},
		    {"&", "filter"}, {"/", "search"}, {"Tab", "GPU"}, {"t", "tree"},     {"p", "pause"}};
	struct neap_top_place place = {.row = row, .column = 1};
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
		if (place.column + strlen(keys[i].key) + 1 + strlen(keys[i].what) > grid->width)
			break;
		place.style = NEAP_TOP_KEY;
		place.column = neap_top_put(grid, place, keys[i].key) + 1;
		place.style = NEAP_TOP_DIM;
		place.column = neap_top_put(grid, place, keys[i].what) + 2;
	}
}

static void question(const struct neap_top_view *view, char *text, size_t capacity)
{
	const struct neap_top_target *target = &view->target;
	switch (view->verb) {
	case NEAP_TOP_CLEAR:
		snprintf(text, capacity, "Empty the cache of process %d (%s)? [y/N]", (int)target->pid,
			 target->command);
		break;
	case NEAP_TOP_FRACTION:
		snprintf(text, capacity, "Limit process %d to %s of each GPU (%s)? [y/N]", (int)target->pid,
			 view->fraction, target->command);
		break;
	default:
		snprintf(text, capacity, "End these processes? [y/N]");
	}
}

/* Draws the last line: the keys, a question, or the typed text. */
static void draw_prompt(struct neap_top_grid *grid, const struct neap_top_view *view, size_t row)
{
	char text[256];
	struct neap_top_place place = {.row = row, .column = 1, .style = NEAP_TOP_TITLE};
	switch (view->mode) {
	case NEAP_TOP_LIST:
		draw_keys(grid, row);
		return;
	case NEAP_TOP_ENTER_FILTER:
		snprintf(text, sizeof text, "Only processes with: %s_", view->entry);
		break;
	case NEAP_TOP_ENTER_SEARCH:
		snprintf(text, sizeof text, "Search: %s_", view->entry);
		break;
	case NEAP_TOP_ENTER_FRACTION:
		snprintf(text, sizeof text, "Fraction of each GPU that process %d may reserve (0 to 1): %s_",
			 (int)view->target.pid, view->entry);
		break;
	case NEAP_TOP_CONFIRM:
		question(view, text, sizeof text);
		break;
	case NEAP_TOP_WAIT:
		snprintf(text, sizeof text, "neap %s works on process %d ...", neap_top_verb_name(view->verb),
			 (int)view->target.pid);
		break;
	case NEAP_TOP_SHOW:
	case NEAP_TOP_HELP:
		snprintf(text, sizeof text, "any key: back to the list");
		break;
	}
	neap_top_put(grid, place, text);
}

/* Draws lines of text in place of the processes. */
static void draw_text(struct neap_top_grid *grid, const char *text, size_t first, struct neap_top_place place,
		      size_t rows)
{
	char line[1024];
	for (size_t i = 0; *text && rows > 0; i++) {
		size_t length = strcspn(text, "\n");
		snprintf(line, sizeof line, "%.*s", (int)(length < sizeof line ? length : sizeof line - 1), text);
		text += length + (text[length] == '\n');
		if (i < first)
			continue;
		neap_top_put(grid, place, line);
		place.row++;
		rows--;
	}
}

static void draw_list(struct neap_top_grid *grid, const struct neap_top_view *view, const struct neap_top_rows *rows,
		      const struct layout *layout, size_t row)
{
	struct neap_top_place place = {.row = row, .column = 1};
	if (view->mode == NEAP_TOP_HELP)
		draw_text(grid, help, 0, place, layout->list);
	else if (shows_text(view))
		draw_text(grid, view->text, view->text_row, place, layout->list);
	else
		neap_top_draw_processes(grid, view, rows, row, layout->list);
}

static void draw(struct neap_top_grid *grid, const struct neap_top_history *history, const struct neap_top_view *view,
		 const struct neap_top_rows *rows, const struct layout *layout)
{
	const struct neap_top_sample *sample = neap_top_history_at(history, 0);
	size_t row = 1;
	draw_header(grid, sample, view);
	if (sample)
		row = view->once ? draw_devices_once(grid, sample, view, row)
				 : draw_devices(grid, sample, view, layout, row);
	if (layout->legend > 0)
		row += neap_top_draw_legend(grid, &sample->devices[view->device], grid->width, grid->ascii, row);
	if (layout->curve > 0)
		neap_top_draw_curve(grid, history, view, row, layout->curve);
	draw_list(grid, view, rows, layout, row + layout->curve);
	if (layout->bottom > 0)
		draw_status(grid, sample, view, grid->height - layout->bottom);
	if (layout->bottom > 1)
		draw_prompt(grid, view, grid->height - 1);
}

enum neap_status neap_top_frame_make(const struct neap_top_history *history, const struct neap_top_view *view,
				     struct neap_top_grid *ret_grid, struct neap_error *err)
{
	struct neap_top_rows rows = {0};
	struct neap_top_grid grid = {0};
	enum neap_status status = neap_top_rows_make(history, view, &rows, err);
	if (status)
		return status;
	struct layout layout = plan(history, view, rows.count);
	status = neap_top_grid_init(view->width, layout.height, view->ascii, &grid, err);
	if (!status) {
		draw(&grid, history, view, &rows, &layout);
		*ret_grid = grid;
	}
	free(rows.rows);
	return status;
}
