/* cli/cmd_top.c: `neap top`: devices and processes, live. Takes and keeps samples (top/sample.h), and shows the
 * frames that src/top makes of them: on a terminal (top_screen.h) until the user leaves, or once as text.
 *
 *   poll: a key, the output of a verb, or time for the next sample -> the view changes -> a frame is drawn
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/paths.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/top_screen.h"
#include "top/command.h"
#include "top/frame.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WIDTH_DEFAULT  80
#define WIDTH_LEAST    20
#define WIDTH_MOST     1000
#define EVERY_NS       NEAP_NS_PER_S
#define EVERY_LEAST_NS (100 * NEAP_NS_PER_MS)

static int run(const struct neap_arguments *arguments);

const struct neap_command neap_command_top = {
	.name = "top",
	.alias = "watch",
	.usage = "[--every S] [--sort KEY] [--ascii] [--once [--width N]]",
	.summary = "watch devices and processes, and what their memory is used for",
	.details = neap_help_top,
	.options =
		(const struct neap_option[]){
			{"every", "S", "look every S seconds (or 500ms, 2m, ...; default 1, at least 100ms)"},
			{"sort", "KEY", "processes by memory, growth, busy, cpu, host, time, pid, user or name"},
			{"ascii", NULL, "draw with ASCII alone; the default where the locale is not UTF-8"},
			{"once", NULL, "print one frame, with every process, and end"},
			{"width", "N", "with --once: columns (default 80)"},
			{NULL, NULL, NULL},
		},
	.run = run,
};

struct top {
	struct neap_monitor *monitor;
	char folder[4096];
	uint64_t every_ns;
	struct neap_deadline next; /* of the next sample */
	bool color;
	struct neap_top_view view;
	struct neap_top_history history;
	struct neap_top_command verb;
};

static volatile sig_atomic_t ended_by;

static void end(int number) { ended_by = number; }

static void catch_signals(void)
{
	struct sigaction action = {.sa_handler = end}; /* no SA_RESTART: poll returns */
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
}

static enum neap_status take_sample(struct top *top, struct neap_error *err)
{
	struct neap_top_sample sample = {0};
	time_t now = time(NULL);
	struct tm local = {0};
	enum neap_status status = neap_top_take(top->monitor, top->folder, &sample, err);
	if (status)
		return status;
	localtime_r(&now, &local);
	strftime(top->view.clock, sizeof top->view.clock, "%H:%M:%S", &local);
	neap_top_history_take(&top->history, &sample);
	neap_top_settle(&top->view, &top->history);
	return NEAP_OK;
}

static int print_once(struct top *top)
{
	struct neap_error err = {0};
	struct neap_top_grid grid = {0};
	struct neap_buffer text = {0};
	enum neap_status status = take_sample(top, &err);
	if (!status)
		status = neap_top_frame_make(&top->history, &top->view, &grid, &err);
	if (!status) {
		neap_top_grid_print(&grid, top->color, &text);
		status = neap_buffer_status(&text, &err);
	}
	if (!status)
		fputs(neap_buffer_string(&text), stdout);
	neap_buffer_fini(&text);
	neap_top_grid_fini(&grid);
	return status ? neap_complain("top", &err) : NEAP_EXIT_OK;
}

static enum neap_status draw(struct top *top, struct neap_error *err)
{
	struct neap_top_grid grid = {0};
	top_screen_size(&top->view.width, &top->view.height);
	enum neap_status status = neap_top_frame_make(&top->history, &top->view, &grid, err);
	if (!status)
		top_screen_draw(&grid);
	neap_top_grid_fini(&grid);
	return status;
}

static void sample_again(struct top *top)
{
	struct neap_error err = {0};
	if (!neap_deadline_over(&top->next))
		return;
	top->next = neap_deadline_in(neap_clock_system(), top->every_ns);
	if (top->view.paused)
		return;
	top->view.problem[0] = '\0';
	if (take_sample(top, &err) != NEAP_OK)
		snprintf(top->view.problem, sizeof top->view.problem, "%s", err.message);
}

static void start_verb(struct top *top, bool preview)
{
	struct neap_error err = {0};
	if (neap_top_command_start(&top->verb, &top->view, preview, &err) != NEAP_OK)
		neap_top_report(&top->view, err.message);
}

static void read_verb(struct top *top)
{
	int code;
	if (!top->verb.pid || !neap_top_command_read(&top->verb, &code))
		return;
	if (top->verb.preview && code == NEAP_EXIT_OK)
		neap_top_ask(&top->view, top->verb.text);
	else
		neap_top_report(&top->view, top->verb.text[0] ? top->verb.text : "It printed nothing.");
	top->next.ns = 0; /* show the effect at once */
}

/* False: the user leaves. */
static bool read_keys(struct top *top)
{
	uint32_t key;
	while (top_screen_key(&key)) {
		switch (neap_top_press(&top->view, &top->history, key)) {
		case NEAP_TOP_QUIT:
			return false;
		case NEAP_TOP_PREVIEW:
			start_verb(top, true);
			break;
		case NEAP_TOP_RUN:
			start_verb(top, false);
			break;
		case NEAP_TOP_DRAW:
			break;
		}
	}
	return true;
}

/* Waits for whatever comes first. False: the terminal is gone. */
static bool wait_for_event(struct top *top)
{
	struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = top->verb.fd, .events = POLLIN}};
	int ready = poll(fds, top->verb.pid ? 2 : 1, neap_deadline_poll_ms(&top->next));
	if (ready < 0)
		return errno == EINTR;
	return !(fds[0].revents & (POLLHUP | POLLERR | POLLNVAL));
}

static int watch(struct top *top)
{
	struct neap_error err = {0};
	enum neap_status status =
		take_sample(top, &err); /* an error of the first sample is printed before the screen begins */
	if (!status)
		status = top_screen_begin(top->color, &err);
	if (status)
		return neap_complain("top", &err);
	catch_signals();
	top->next = neap_deadline_in(neap_clock_system(), top->every_ns);
	while (!ended_by && !(status = draw(top, &err))) {
		if (!wait_for_event(top) || !read_keys(top))
			break;
		read_verb(top);
		sample_again(top);
	}
	top_screen_end();
	if (top->verb.pid)
		printf("neap %s continues.\n", neap_top_verb_name(top->view.verb));
	neap_top_command_leave(&top->verb);
	if (status)
		return neap_complain("top", &err);
	return ended_by && ended_by != SIGINT ? 128 + ended_by : NEAP_EXIT_OK;
}

static int read_width(const struct neap_arguments *arguments, struct top *top)
{
	const char *text = neap_argument(arguments, "width");
	uint64_t width = WIDTH_DEFAULT;
	if (text && !top->view.once)
		return neap_misuse(arguments, "--width is for --once; a terminal has its own");
	if (text && (neap_u64_parse(text, &width, NULL) != NEAP_OK || width < WIDTH_LEAST || width > WIDTH_MOST))
		return neap_misuse(arguments, "--width: expected %d to %d columns, not '%s'", WIDTH_LEAST, WIDTH_MOST,
				   text);
	top->view.width = (size_t)width;
	return NEAP_EXIT_OK;
}

static int read_request(const struct neap_arguments *arguments, struct top *top)
{
	const char *every = neap_argument(arguments, "every"), *sort = neap_argument(arguments, "sort");
	struct neap_error err = {0};
	setlocale(LC_CTYPE, "");
	top->view.ascii = neap_argument(arguments, "ascii") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0;
	top->view.once = neap_argument(arguments, "once");
	top->color = neap_color(arguments, stdout);
	top->every_ns = EVERY_NS;
	if (every && top->view.once)
		return neap_misuse(arguments, "--once or --every, not both");
	if (every && neap_duration_parse(every, &top->every_ns, &err) != NEAP_OK)
		return neap_misuse(arguments, "--every: %s", err.message);
	if (top->every_ns < EVERY_LEAST_NS)
		return neap_misuse(arguments, "--every: at least 100ms");
	if (sort && !neap_top_sort_parse(sort, &top->view.sort))
		return neap_misuse(arguments,
				   "--sort is memory, growth, busy, cpu, host, time, pid, user or name, not '%s'",
				   sort);
	if (!top->view.once && (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)))
		return neap_misuse(arguments, "there is no terminal to draw on; --once prints one frame");
	if (!top->view.once)
		snprintf(top->view.every, sizeof top->view.every, "%s", every ? every : "1s");
	return read_width(arguments, top);
}

static int run(const struct neap_arguments *arguments)
{
	struct neap_error err = {0};
	struct top *top = calloc(1, sizeof *top);
	if (!top) {
		fputs("neap top: out of memory\n", stderr);
		return NEAP_EXIT_OS;
	}
	int code = read_request(arguments, top);
	if (code != NEAP_EXIT_OK) {
		free(top);
		return code;
	}
	enum neap_status status = neap_monitor_open(NEAP_BACKEND_DEFAULT, &top->monitor, &err);
	if (!status)
		status = neap_path_runtime(top->folder, sizeof top->folder, &err);
	if (status)
		code = neap_complain("top", &err);
	else
		code = top->view.once ? print_once(top) : watch(top);
	neap_monitor_close(top->monitor);
	neap_top_history_fini(&top->history);
	free(top);
	return code;
}
