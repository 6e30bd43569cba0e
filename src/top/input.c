/* top/input.c: keys and samples change the view: see view.h. */
#include "top/view.h"

#include "base/printable.h"
#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 10

static const char *const sort_names[NEAP_TOP_SORTS] = {"memory", "growth", "busy", "cpu", "host",
						       "time",   "pid",    "user", "name"};
static const char *const verb_names[] = {"nothing", "clear", "fraction", "kill"};

const char *neap_top_sort_name(enum neap_top_sort sort) { return sort < NEAP_TOP_SORTS ? sort_names[sort] : NULL; }
const char *neap_top_verb_name(enum neap_top_verb verb) { return verb_names[verb]; }

bool neap_top_sort_parse(const char *name, enum neap_top_sort *ret_sort)
{
	for (int i = 0; i < NEAP_TOP_SORTS; i++) {
		if (strcmp(sort_names[i], name) != 0)
			continue;
		*ret_sort = (enum neap_top_sort)i;
		return true;
	}
	return false;
}

static void set_target(struct neap_top_target *target, const struct neap_top_process *process)
{
	*target = (struct neap_top_target){.pid = process->pid, .start_ticks = process->start_ticks};
	neap_printable(target->command, sizeof target->command, process->command);
}

static void select_row(struct neap_top_view *view, const struct neap_top_rows *rows, size_t row)
{
	view->selected = (struct neap_top_target){0};
	view->selected_row = 0;
	if (rows->count == 0)
		return;
	view->selected_row = row < rows->count ? row : rows->count - 1;
	set_target(&view->selected, rows->rows[view->selected_row].process);
}

/* Moves the selection up or down, at most to the end of the list. */
static void move(struct neap_top_view *view, const struct neap_top_rows *rows, long by)
{
	size_t row = neap_top_rows_selected(rows, view);
	if (row == rows->count)
		select_row(view, rows, view->selected_row);
	else if (by < 0)
		select_row(view, rows, row > (size_t)-by ? row - (size_t)-by : 0);
	else
		select_row(view, rows, row + (size_t)by);
}

/* Selects the next row that the search finds: from the row after the selected one on, with `here` from the selected
 * one on. */
static void find_next(struct neap_top_view *view, const struct neap_top_rows *rows, bool here)
{
	size_t row = neap_top_rows_selected(rows, view);
	if (row == rows->count)
		row = 0;
	for (size_t i = here ? 0 : 1; view->search[0] && i <= rows->count; i++) {
		size_t at = rows->count ? (row + i) % rows->count : 0;
		if (at < rows->count && neap_top_matches(rows->rows[at].process, view->search)) {
			select_row(view, rows, at);
			return;
		}
	}
	if (view->search[0])
		snprintf(view->notice, sizeof view->notice, "no process has \"%s\"", view->search);
}

static void move_device(struct neap_top_view *view, const struct neap_top_history *history, bool back)
{
	const struct neap_top_sample *sample = neap_top_history_at(history, 0);
	size_t count = sample ? sample->device_count : 0;
	if (count > 0)
		view->device = (view->device + (back ? count - 1 : 1)) % count;
}

/* Makes the selected process the verb's target, if the verb can act on it. NULL: it cannot; a notice says why. */
static const struct neap_top_process *choose_target(struct neap_top_view *view,
						    const struct neap_top_history *history, enum neap_top_verb verb)
{
	const struct neap_top_sample *sample = neap_top_history_at(history, 0);
	const struct neap_top_process *process =
		sample ? neap_top_find(sample, view->selected.pid, view->selected.start_ticks) : NULL;
	if (!process) {
		snprintf(view->notice, sizeof view->notice, "select a process first (arrow keys)");
		return NULL;
	}
	if (verb != NEAP_TOP_KILL && !process->attached) {
		snprintf(view->notice, sizeof view->notice,
			 "process %d is not attached: neap can only end it (start it with 'neap run')",
			 (int)process->pid);
		return NULL;
	}
	set_target(&view->target, process);
	view->verb = verb;
	view->text[0] = '\0';
	view->text_row = 0;
	return process;
}

static enum neap_top_effect begin_verb(struct neap_top_view *view, const struct neap_top_history *history,
				       enum neap_top_verb verb)
{
	if (!choose_target(view, history, verb))
		return NEAP_TOP_DRAW;
	if (verb == NEAP_TOP_KILL) {
		view->mode = NEAP_TOP_WAIT;
		return NEAP_TOP_PREVIEW;
	}
	view->entry[0] = '\0';
	view->mode = verb == NEAP_TOP_FRACTION ? NEAP_TOP_ENTER_FRACTION : NEAP_TOP_CONFIRM;
	return NEAP_TOP_DRAW;
}

static void begin_entry(struct neap_top_view *view, enum neap_top_mode mode, const char *text)
{
	view->mode = mode;
	snprintf(view->entry, sizeof view->entry, "%s", text);
}

/* Handles a key that moves the selection; false: the key is no such key. */
static bool press_move(struct neap_top_view *view, const struct neap_top_rows *rows, uint32_t key)
{
	switch (key) {
	case NEAP_TOP_KEY_UP:
		move(view, rows, -1);
		return true;
	case NEAP_TOP_KEY_DOWN:
		move(view, rows, 1);
		return true;
	case NEAP_TOP_KEY_PAGE_UP:
		move(view, rows, -PAGE);
		return true;
	case NEAP_TOP_KEY_PAGE_DOWN:
		move(view, rows, PAGE);
		return true;
	case NEAP_TOP_KEY_HOME:
		select_row(view, rows, 0);
		return true;
	case NEAP_TOP_KEY_END:
		select_row(view, rows, SIZE_MAX);
		return true;
	case 'n':
		find_next(view, rows, false);
		return true;
	}
	return false;
}

static void press_choice(struct neap_top_view *view, const struct neap_top_history *history, uint32_t key)
{
	switch (key) {
	case NEAP_TOP_KEY_TAB:
	case NEAP_TOP_KEY_BACK_TAB:
		move_device(view, history, key == NEAP_TOP_KEY_BACK_TAB);
		break;
	case 's':
	case '.':
		view->sort = (enum neap_top_sort)((view->sort + 1) % NEAP_TOP_SORTS);
		break;
	case ',':
		view->sort = (enum neap_top_sort)((view->sort + NEAP_TOP_SORTS - 1) % NEAP_TOP_SORTS);
		break;
	case 'r':
		view->reversed = !view->reversed;
		break;
	case 't':
		view->flat = !view->flat;
		break;
	case 'p':
		view->paused = !view->paused;
		break;
	case '/':
		begin_entry(view, NEAP_TOP_ENTER_SEARCH, "");
		break;
	case '&':
		begin_entry(view, NEAP_TOP_ENTER_FILTER, view->filter);
		break;
	case NEAP_TOP_KEY_ESCAPE:
		view->filter[0] = view->search[0] = '\0';
		break;
	case '?':
	case 'h':
		view->mode = NEAP_TOP_HELP;
		break;
	}
}

static enum neap_top_effect press_list(struct neap_top_view *view, const struct neap_top_history *history,
				       const struct neap_top_rows *rows, uint32_t key)
{
	switch (key) {
	case 'q':
		return NEAP_TOP_QUIT;
	case 'c':
		return begin_verb(view, history, NEAP_TOP_CLEAR);
	case 'f':
		return begin_verb(view, history, NEAP_TOP_FRACTION);
	case 'k':
	case 'T':
		return begin_verb(view, history, NEAP_TOP_KILL);
	}
	if (!press_move(view, rows, key))
		press_choice(view, history, key);
	return NEAP_TOP_DRAW;
}

static void end_entry(struct neap_top_view *view, const struct neap_top_rows *rows)
{
	double fraction;
	enum neap_top_mode mode = view->mode;
	view->mode = NEAP_TOP_LIST;
	if (mode == NEAP_TOP_ENTER_FILTER) {
		memcpy(view->filter, view->entry, sizeof view->filter);
	} else if (mode == NEAP_TOP_ENTER_SEARCH) {
		memcpy(view->search, view->entry, sizeof view->search);
		find_next(view, rows, true);
	} else if (neap_fraction_parse(view->entry, &fraction, NULL) == NEAP_OK) {
		memcpy(view->fraction, view->entry, sizeof view->fraction);
		view->mode = NEAP_TOP_CONFIRM;
	} else {
		snprintf(view->notice, sizeof view->notice,
			 "a fraction is a number above 0 and at most 1, not \"%s\"", view->entry);
	}
}

/* Accepts only ASCII: names of users, commands and runs rarely have more. */
static void press_entry(struct neap_top_view *view, const struct neap_top_rows *rows, uint32_t key)
{
	size_t length = strlen(view->entry);
	if (key == NEAP_TOP_KEY_ENTER)
		end_entry(view, rows);
	else if (key == NEAP_TOP_KEY_ESCAPE)
		view->mode = NEAP_TOP_LIST;
	else if (key == NEAP_TOP_KEY_BACKSPACE && length > 0)
		view->entry[length - 1] = '\0';
	else if (key >= 0x20 && key < 0x7f && length + 1 < sizeof view->entry)
		memcpy(view->entry + length, (char[]){(char)key, '\0'}, 2);
}

static size_t line_count(const char *text)
{
	size_t lines = 0;
	for (; *text; text++)
		lines += *text == '\n' || !text[1];
	return lines;
}

/* Scrolls the text if the key does that; false: it does not. */
static bool scroll(struct neap_top_view *view, uint32_t key)
{
	size_t lines = line_count(view->text);
	if (key == NEAP_TOP_KEY_UP && view->text_row > 0)
		view->text_row--;
	else if (key == NEAP_TOP_KEY_DOWN && view->text_row + 1 < lines)
		view->text_row++;
	else
		return key == NEAP_TOP_KEY_UP || key == NEAP_TOP_KEY_DOWN;
	return true;
}

static enum neap_top_effect press_confirm(struct neap_top_view *view, uint32_t key)
{
	if (scroll(view, key))
		return NEAP_TOP_DRAW;
	if (key == 'y' || key == 'Y') {
		view->mode = NEAP_TOP_WAIT;
		return NEAP_TOP_RUN;
	}
	view->mode = NEAP_TOP_LIST;
	snprintf(view->notice, sizeof view->notice, "nothing was done");
	return NEAP_TOP_DRAW;
}

static enum neap_top_effect press(struct neap_top_view *view, const struct neap_top_history *history,
				  const struct neap_top_rows *rows, uint32_t key)
{
	switch (view->mode) {
	case NEAP_TOP_LIST:
		return press_list(view, history, rows, key);
	case NEAP_TOP_ENTER_FILTER:
	case NEAP_TOP_ENTER_SEARCH:
	case NEAP_TOP_ENTER_FRACTION:
		press_entry(view, rows, key);
		break;
	case NEAP_TOP_CONFIRM:
		return press_confirm(view, key);
	case NEAP_TOP_SHOW:
		if (!scroll(view, key))
			view->mode = NEAP_TOP_LIST;
		break;
	case NEAP_TOP_HELP:
		view->mode = NEAP_TOP_LIST;
		break;
	case NEAP_TOP_WAIT: /* the verb ends within its own timeouts; until then the only possible key is q */
		return key == 'q' ? NEAP_TOP_QUIT : NEAP_TOP_DRAW;
	}
	return NEAP_TOP_DRAW;
}

/* Selects another process if a filter hides the selected one: a verb must act on a process that the user sees. */
static void keep_selected(struct neap_top_view *view, const struct neap_top_history *history)
{
	struct neap_top_rows rows = {0};
	if (neap_top_rows_make(history, view, &rows, NULL) != NEAP_OK)
		return;
	size_t row = neap_top_rows_selected(&rows, view);
	if (row < rows.count)
		view->selected_row = row;
	else
		select_row(view, &rows, view->selected_row);
	free(rows.rows);
}

enum neap_top_effect neap_top_press(struct neap_top_view *view, const struct neap_top_history *history, uint32_t key)
{
	struct neap_top_rows rows = {0};
	view->notice[0] = '\0';
	if (neap_top_rows_make(history, view, &rows, NULL) != NEAP_OK)
		return key == 'q' ? NEAP_TOP_QUIT : NEAP_TOP_DRAW;
	enum neap_top_effect effect = press(view, history, &rows, key);
	free(rows.rows);
	keep_selected(view, history);
	return effect;
}

/* Withdraws a question about a process that has ended. */
static void withdraw(struct neap_top_view *view, const struct neap_top_sample *sample)
{
	bool asking = view->mode == NEAP_TOP_CONFIRM || view->mode == NEAP_TOP_ENTER_FRACTION;
	if (!asking || neap_top_find(sample, view->target.pid, view->target.start_ticks))
		return;
	view->mode = NEAP_TOP_LIST;
	snprintf(view->notice, sizeof view->notice, "process %d (%.40s) is gone: nothing was done",
		 (int)view->target.pid, view->target.command);
}

void neap_top_settle(struct neap_top_view *view, const struct neap_top_history *history)
{
	const struct neap_top_sample *sample = neap_top_history_at(history, 0);
	if (!sample)
		return;
	if (view->device >= sample->device_count)
		view->device = 0;
	withdraw(view, sample);
	struct neap_top_target before = view->selected;
	bool gone = before.pid && !neap_top_find(sample, before.pid, before.start_ticks);
	if (gone && !view->notice[0])
		snprintf(view->notice, sizeof view->notice, "process %d (%.40s) is gone", (int)before.pid,
			 before.command);
	keep_selected(view, history);
}

static void set_text(struct neap_top_view *view, const char *text)
{
	snprintf(view->text, sizeof view->text, "%s", text);
	neap_printable_lines(view->text);
	view->text_row = 0;
}

void neap_top_ask(struct neap_top_view *view, const char *text)
{
	set_text(view, text);
	view->mode = NEAP_TOP_CONFIRM;
}

void neap_top_report(struct neap_top_view *view, const char *text)
{
	set_text(view, text);
	view->mode = NEAP_TOP_SHOW;
}
