/* top/view.h: what the person at `neap top` has chosen, and how a key changes it. Pure: no terminal, no files. One
 * thread.
 *
 *   key --neap_top_press--> view, and an effect: what the command must do
 *   sample --neap_top_settle--> view: the selected process may have ended
 *
 *   LIST --k--> effect PREVIEW --neap_top_ask--> CONFIRM --y--> effect RUN --neap_top_report--> TEXT -key--> LIST
 *        --c--> CONFIRM
 *        --f--> ENTER_FRACTION --Enter--> CONFIRM
 *
 * Nothing is done to a process without "y" to a question that names it.
 */
#ifndef NEAP_TOP_VIEW_H
#define NEAP_TOP_VIEW_H

#include "top/sample.h"

#define NEAP_TOP_ENTRY 64
#define NEAP_TOP_TEXT  8192

/* Keys: a character's number, or one of these. */
enum neap_top_key {
	NEAP_TOP_KEY_ENTER = 0x110000, /* beyond Unicode */
	NEAP_TOP_KEY_ESCAPE,
	NEAP_TOP_KEY_BACKSPACE,
	NEAP_TOP_KEY_TAB,
	NEAP_TOP_KEY_BACK_TAB,
	NEAP_TOP_KEY_UP,
	NEAP_TOP_KEY_DOWN,
	NEAP_TOP_KEY_PAGE_UP,
	NEAP_TOP_KEY_PAGE_DOWN,
	NEAP_TOP_KEY_HOME,
	NEAP_TOP_KEY_END,
};

enum neap_top_sort {
	NEAP_TOP_BY_MEMORY, /* the most first; so too those up to time */
	NEAP_TOP_BY_GROWTH,
	NEAP_TOP_BY_BUSY,
	NEAP_TOP_BY_CPU,
	NEAP_TOP_BY_HOST,
	NEAP_TOP_BY_TIME,
	NEAP_TOP_BY_PID,
	NEAP_TOP_BY_USER,
	NEAP_TOP_BY_NAME,
	NEAP_TOP_SORTS
};

enum neap_top_mode {
	NEAP_TOP_LIST,
	NEAP_TOP_ENTER_FILTER,
	NEAP_TOP_ENTER_SEARCH,
	NEAP_TOP_ENTER_FRACTION,
	NEAP_TOP_CONFIRM, /* `text` stands above the question */
	NEAP_TOP_WAIT,    /* a verb runs */
	NEAP_TOP_SHOW,    /* `text` has its output */
	NEAP_TOP_HELP,
};

enum neap_top_verb { NEAP_TOP_NOTHING, NEAP_TOP_CLEAR, NEAP_TOP_FRACTION, NEAP_TOP_KILL };

enum neap_top_effect {
	NEAP_TOP_DRAW,    /* the view may have changed */
	NEAP_TOP_PREVIEW, /* find out what `verb` would do, then neap_top_ask or neap_top_report */
	NEAP_TOP_RUN,     /* do `verb` to process `target`, then neap_top_report */
	NEAP_TOP_QUIT,
};

struct neap_top_target {
	pid_t pid;
	uint64_t start_ticks;
	char command[64];
};

struct neap_top_view {
	size_t width, height;
	bool ascii;
	bool once; /* one frame for a file: no keys, no selection, every process */
	char clock[16], every[32];
	char problem[256]; /* why there is no newer sample; "": there is one */
	char notice[128];  /* one line; the next key removes it */
	size_t device;     /* the device whose curve is shown */
	enum neap_top_sort sort;
	bool reversed, flat, paused;
	struct neap_top_target selected; /* PID 0: none */
	size_t selected_row;             /* its last row, which is selected when the process ends */
	char filter[NEAP_TOP_ENTRY], search[NEAP_TOP_ENTRY], entry[NEAP_TOP_ENTRY];
	enum neap_top_mode mode;
	enum neap_top_verb verb;
	struct neap_top_target target; /* of the verb */
	char fraction[NEAP_TOP_ENTRY];
	char text[NEAP_TOP_TEXT];
	size_t text_row; /* the first line of it that is shown */
};

/* "memory", ...; NULL: past the end. Static storage. */
const char *neap_top_sort_name(enum neap_top_sort sort);
bool neap_top_sort_parse(const char *name, enum neap_top_sort *ret_sort);
/* "clear", "fraction", "kill". */
const char *neap_top_verb_name(enum neap_top_verb verb);

/* Handles a key. */
enum neap_top_effect neap_top_press(struct neap_top_view *view, const struct neap_top_history *history, uint32_t key);

/* Call it after each new sample, also the first. Selects a process if none is selected, reports that the selected one
 * has ended, and withdraws a question about a process that has ended. */
void neap_top_settle(struct neap_top_view *view, const struct neap_top_history *history);

/* The answer to PREVIEW: asks whether to continue, with `text` above the question. */
void neap_top_ask(struct neap_top_view *view, const char *text);
/* The output of a verb, or why it cannot be done. */
void neap_top_report(struct neap_top_view *view, const char *text);

/* -- rows of the list, in the order and with the filter of a view ------------------------------------------------ */

struct neap_top_row {
	const struct neap_top_process *process; /* of the newest sample */
	unsigned depth;                         /* 0: a root; else its parent is the last row before with depth - 1 */
	bool last;                              /* its parent's last child */
	uint64_t open;                          /* bit D: a line of depth D continues below this row */
	bool growth_known;
	int64_t growth;  /* bytes a minute */
	int cpu_percent; /* -1: not known */
};

struct neap_top_rows {
	struct neap_top_row *rows;
	size_t count;
};

/* Errors: NEAP_ENOMEM. The caller frees rows->rows. */
enum neap_status neap_top_rows_make(const struct neap_top_history *history, const struct neap_top_view *view,
				    struct neap_top_rows *ret_rows, struct neap_error *err);
/* The row of the selected process; rows->count: none. */
size_t neap_top_rows_selected(const struct neap_top_rows *rows, const struct neap_top_view *view);
/* Whether the command, user, PID or run of a process contains `text`, letter case apart. "" is in all. */
bool neap_top_matches(const struct neap_top_process *process, const char *text);

#endif
