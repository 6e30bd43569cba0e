/* cli/top_screen.c: see top_screen.h.
 *
 * ncurses is loaded when a screen begins: linked, it would cost every other command a part of its start.
 */
#define NCURSES_WIDECHAR         1
#define NCURSES_NOMACROS         1 /* its macros are named clear, move, erase, ... */
#define NCURSES_ENABLE_STDBOOL_H 1
#include <curses.h>
#include <term.h>
#undef lines
#undef columns

#include "cli/top_screen.h"

#include "base/error.h"
#include "top/view.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define SIDE_MOST 1000 /* the most columns, and rows, that are drawn */
#define LIBRARY   "libncursesw.so.6"

/* The functions of ncurses that are used. */
static struct {
	__typeof__(use_env) *use_env;
	__typeof__(newterm) *newterm;
	__typeof__(resizeterm) *resizeterm;
	__typeof__(delscreen) *delscreen;
	__typeof__(endwin) *endwin;
	__typeof__(tigetstr) *tigetstr;
	__typeof__(cbreak) *cbreak;
	__typeof__(noecho) *noecho;
	__typeof__(nonl) *nonl;
	__typeof__(set_escdelay) *set_escdelay;
	__typeof__(keypad) *keypad;
	__typeof__(nodelay) *nodelay;
	__typeof__(leaveok) *leaveok;
	__typeof__(curs_set) *curs_set;
	__typeof__(has_colors) *has_colors;
	__typeof__(start_color) *start_color;
	__typeof__(use_default_colors) *use_default_colors;
	__typeof__(init_pair) *init_pair;
	__typeof__(getmaxx) *getmaxx;
	__typeof__(getmaxy) *getmaxy;
	__typeof__(wattrset) *wattrset;
	__typeof__(wmove) *wmove;
	__typeof__(waddnstr) *waddnstr;
	__typeof__(wrefresh) *wrefresh;
	__typeof__(wgetch) *wgetch;
	__typeof__(COLOR_PAIR) *COLOR_PAIR;
	WINDOW **window; /* its stdscr */
} curses;

static SCREEN *screen; /* NULL: not begun */
static bool has_color;

static const short colors[NEAP_TOP_STYLES] = {
	[NEAP_TOP_PLAIN] = -1,
	[NEAP_TOP_TITLE] = -1,
	[NEAP_TOP_DIM] = -1,
	[NEAP_TOP_WARN] = COLOR_YELLOW,
	[NEAP_TOP_MATCH] = COLOR_YELLOW,
	[NEAP_TOP_KEY] = -1,
	[NEAP_TOP_PART_RESERVED] = -1,
	[NEAP_TOP_PART_CONTEXT] = COLOR_BLUE,
	[NEAP_TOP_PART_ALLOCATED] = COLOR_GREEN,
	[NEAP_TOP_PART_CACHED] = COLOR_CYAN,
	[NEAP_TOP_PART_NOT_ATTACHED] = COLOR_MAGENTA,
	[NEAP_TOP_PART_UNEXPLAINED] = COLOR_RED,
	[NEAP_TOP_PART_FREE] = -1,
};

static attr_t attributes_of(const struct neap_top_cell *cell)
{
	attr_t attributes = cell->selected ? A_REVERSE : A_NORMAL;
	switch ((enum neap_top_style)cell->style) {
	case NEAP_TOP_TITLE:
	case NEAP_TOP_MATCH:
	case NEAP_TOP_KEY:
		attributes |= A_BOLD;
		break;
	case NEAP_TOP_DIM:
	case NEAP_TOP_PART_RESERVED:
	case NEAP_TOP_PART_FREE:
		attributes |= A_DIM;
		break;
	default:
		break;
	}
	return has_color ? attributes | (attr_t)curses.COLOR_PAIR(cell->style + 1) : attributes;
}

static enum neap_status load(struct neap_error *err)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	char why[128] = "it lacks a function";
	if (!library) {
		snprintf(why, sizeof why, "%s", dlerror());
		library = dlopen(NULL, RTLD_NOW); /* linked, as in a wheel, where it has another name */
	}
	bool whole = library && (curses.window = dlsym(library, "stdscr"));
#define LOAD(name) whole = whole && (curses.name = (__typeof__(name) *)dlsym(library, #name))
	LOAD(use_env);
	LOAD(newterm);
	LOAD(resizeterm);
	LOAD(delscreen);
	LOAD(endwin);
	LOAD(tigetstr);
	LOAD(cbreak);
	LOAD(noecho);
	LOAD(nonl);
	LOAD(set_escdelay);
	LOAD(keypad);
	LOAD(nodelay);
	LOAD(leaveok);
	LOAD(curs_set);
	LOAD(has_colors);
	LOAD(start_color);
	LOAD(use_default_colors);
	LOAD(init_pair);
	LOAD(getmaxx);
	LOAD(getmaxy);
	LOAD(wattrset);
	LOAD(wmove);
	LOAD(waddnstr);
	LOAD(wrefresh);
	LOAD(wgetch);
	LOAD(COLOR_PAIR);
#undef LOAD
	if (whole)
		return NEAP_OK;
	return neap_fail(err, NEAP_ENOTSUP,
			 "drawing on a terminal needs " LIBRARY " (Debian's package libncursesw6): %.100s; 'neap top "
			 "--once' prints one frame",
			 why);
}

static void ignore(int number) { (void)number; }

static int bounded(int wanted, int now) { return wanted < 1 ? now : wanted > SIDE_MOST ? SIDE_MOST : wanted; }

/* ncurses holds sizes in 16 bits and crashes on larger ones, so only this file gives it the terminal's size. ncurses
 * does not handle a signal that has a handler: this handler only ends poll. */
static void catch_resizes(void)
{
	struct sigaction action = {.sa_handler = ignore};
	sigaction(SIGWINCH, &action, NULL);
	curses.use_env(FALSE);
}

static void fit(void)
{
	struct winsize size = {0};
	int height = curses.getmaxy(*curses.window), width = curses.getmaxx(*curses.window);
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
		return;
	int new_height = bounded(size.ws_row, height), new_width = bounded(size.ws_col, width);
	if (new_height != height || new_width != width)
		curses.resizeterm(new_height, new_width);
}

enum neap_status top_screen_begin(bool color, struct neap_error *err)
{
	const char *term = getenv("TERM");
	enum neap_status status = load(err);
	if (status)
		return status;
	catch_resizes();
	screen = curses.newterm(NULL, stdout, stdin);
	const char *address = screen ? curses.tigetstr("cup") : NULL;
	if (!screen || !address || address == (const char *)-1) {
		top_screen_end();
		return neap_fail(err, NEAP_ENOTSUP,
				 "the terminal '%.40s' cannot be drawn on; 'neap top --once' prints one frame",
				 term ? term : "");
	}
	curses.cbreak();
	curses.noecho();
	curses.nonl();
	curses.set_escdelay(25);
	curses.keypad(*curses.window, TRUE);
	curses.nodelay(*curses.window, TRUE);
	curses.leaveok(*curses.window, TRUE);
	curses.curs_set(0);
	has_color = color && curses.has_colors() && curses.start_color() == OK && curses.use_default_colors() == OK;
	for (short style = 0; has_color && style < NEAP_TOP_STYLES; style++)
		curses.init_pair((short)(style + 1), colors[style], -1);
	return NEAP_OK;
}

void top_screen_end(void)
{
	if (!screen)
		return;
	curses.endwin();
	curses.delscreen(screen);
	screen = NULL;
}

void top_screen_size(size_t *ret_width, size_t *ret_height)
{
	fit();
	int height = curses.getmaxy(*curses.window), width = curses.getmaxx(*curses.window);
	*ret_width = width > 0 ? (size_t)width : 1;
	*ret_height = height > 0 ? (size_t)height : 1;
}

void top_screen_draw(const struct neap_top_grid *grid)
{
	for (size_t row = 0; row < grid->height; row++) {
		for (size_t column = 0; column < grid->width; column++) {
			const struct neap_top_cell *cell = &grid->cells[row * grid->width + column];
			curses.wattrset(*curses.window, (int)attributes_of(cell));
			curses.wmove(*curses.window, (int)row, (int)column);
			curses.waddnstr(*curses.window, cell->text[0] ? cell->text : " ", -1);
		}
	}
	curses.wrefresh(*curses.window);
}

static uint32_t key_of(int code)
{
	static const struct {
		int code;
		uint32_t key;
	} keys[] = {{KEY_UP, NEAP_TOP_KEY_UP},         {KEY_DOWN, NEAP_TOP_KEY_DOWN},
		    {KEY_PPAGE, NEAP_TOP_KEY_PAGE_UP}, {KEY_NPAGE, NEAP_TOP_KEY_PAGE_DOWN},
		    {KEY_HOME, NEAP_TOP_KEY_HOME},     {KEY_END, NEAP_TOP_KEY_END},
		    {KEY_BTAB, NEAP_TOP_KEY_BACK_TAB}, {KEY_BACKSPACE, NEAP_TOP_KEY_BACKSPACE},
		    {KEY_ENTER, NEAP_TOP_KEY_ENTER},   {'\r', NEAP_TOP_KEY_ENTER},
		    {'\n', NEAP_TOP_KEY_ENTER},        {'\t', NEAP_TOP_KEY_TAB},
		    {0x7f, NEAP_TOP_KEY_BACKSPACE},    {'\b', NEAP_TOP_KEY_BACKSPACE},
		    {0x1b, NEAP_TOP_KEY_ESCAPE}};
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		if (keys[i].code == code)
			return keys[i].key;
	return code >= 0x20 && code < 0x7f ? (uint32_t)code : 0;
}

bool top_screen_key(uint32_t *ret_key)
{
	for (;;) {
		int code = curses.wgetch(*curses.window);
		if (code == ERR)
			return false;
		if (code == KEY_RESIZE)
			continue;
		*ret_key = key_of(code);
		return true;
	}
}
