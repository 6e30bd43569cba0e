/* cli/progress.c: see progress.h. */
#include "cli/progress.h"

#include "base/clock.h"
#include "cli/print.h"
#include "estimate/ask.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define WIDTH      80 /* if the terminal does not report it */
#define WIDTH_MOST 1000
#define CLEAR      "\r\033[K"
#define DRAW_NS    (200 * NEAP_NS_PER_MS)
#define PLAIN_NS   (10 * NEAP_NS_PER_S)

bool progress_able(FILE *stream)
{
	const char *kind = getenv("TERM");
	return isatty(fileno(stream)) && kind && *kind && strcmp(kind, "dumb") != 0;
}

void progress_begin(struct progress_line *line, FILE *stream)
{
	*line = (struct progress_line){.stream = progress_able(stream) ? stream : NULL};
}

static size_t width_of(FILE *stream)
{
	struct winsize size = {0};
	size_t width = ioctl(fileno(stream), TIOCGWINSZ, &size) || !size.ws_col ? WIDTH : size.ws_col;
	return (width < WIDTH_MOST ? width : WIDTH_MOST) - 1; /* the last column wraps on some terminals */
}

void progress_draw(struct progress_line *line, const struct neap_series_progress *progress)
{
	char text[sizeof line->text];
	/* do not draw over the line of a shell in the foreground */
	if (!line->stream || tcgetpgrp(fileno(line->stream)) != getpgrp())
		return;
	neap_series_progress_format(progress, width_of(line->stream), text, sizeof text);
	if (!strcmp(text, line->text))
		return;
	progress_clear(line);
	print_safe_text(line->stream, text);
	fflush(line->stream);
	strcpy(line->text, text);
}

void progress_clear(struct progress_line *line)
{
	if (!*line->text)
		return;
	fputs(CLEAR, line->stream);
	fflush(line->stream);
	line->text[0] = '\0';
}

/* --- one text, while a run waits --- */

void progress_show(void *context, const char *text)
{
	char line[400];
	size_t width = width_of(stderr) + 1; /* and the NUL */
	(void)context;
	neap_printable(line, width < sizeof line ? width : sizeof line, text);
	fprintf(stderr, CLEAR "%s", line);
	fflush(stderr);
}

/* --- runs of an estimate --- */

static volatile sig_atomic_t interrupted_by;
static void on_signal(int number) { interrupted_by = number; }
int estimate_interrupted(void) { return interrupted_by; }

void estimate_catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static void show(struct estimate_progress *progress, const char *what, uint64_t elapsed_ns)
{
	uint64_t next_ns = progress->next_ns;
	if (!next_ns && !progress_able(stderr))
		next_ns = PLAIN_NS;
	if (elapsed_ns < next_ns)
		return;
	progress->next_ns = elapsed_ns + (progress_able(stderr) ? DRAW_NS : PLAIN_NS);
	fprintf(stderr, progress_able(stderr) ? CLEAR "%s, %llu s" : NEAP_ESTIMATE_STILL "%s, %llu s\n", what,
		(unsigned long long)(elapsed_ns / NEAP_NS_PER_S));
	fflush(stderr);
}

static void end(struct estimate_progress *progress)
{
	if (progress_able(stderr))
		fputs(CLEAR, stderr);
	fflush(stderr);
	*progress = (struct estimate_progress){0};
}

bool estimate_progress_go_on(void *context, const char *what, uint64_t elapsed_ns)
{
	if (what && *what)
		show(context, what, elapsed_ns);
	else if (what)
		end(context);
	return !interrupted_by;
}
