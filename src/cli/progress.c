/* cli/progress.c: see progress.h. */
#include "cli/progress.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/print.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define WIDTH       80 /* where the terminal does not say */
#define WIDTH_LEAST 20
#define WIDTH_MOST  1000
#define CLEAR       "\r\033[K"

/* Whole seconds below a minute. */
static const char *format_time(uint64_t ns, char text[NEAP_UNITS_CAPACITY])
{
	if (ns >= 60 * NEAP_NS_PER_S)
		return neap_duration_format(ns, text);
	snprintf(text, NEAP_UNITS_CAPACITY, "%llu s", (unsigned long long)(ns / NEAP_NS_PER_S));
	return text;
}

static void format_run(const struct neap_series_progress *progress, const struct neap_progress_run *run,
		       struct neap_buffer *out)
{
	char first[NEAP_UNITS_CAPACITY], second[NEAP_UNITS_CAPACITY];
	neap_buffer_format(out, "[%zu/%zu] %s: %s", run->number, progress->count, run->name,
			   format_time(run->elapsed_ns, first));
	if (run->left_ns != UINT64_MAX)
		neap_buffer_format(out, ", about %s left", format_time(run->left_ns, first));
	if (run->step)
		neap_buffer_format(out, ", step %" PRIu64, run->step);
	if (isfinite(run->loss))
		neap_buffer_format(out, ", loss %.4g", run->loss);
	if (run->used_bytes && run->limit_bytes != UINT64_MAX)
		neap_buffer_format(out, ", %s of %s", neap_size_format(run->used_bytes, first),
				   neap_size_format(run->limit_bytes, second));
	else if (run->used_bytes)
		neap_buffer_format(out, ", %s", neap_size_format(run->used_bytes, first));
}

void progress_format(const struct neap_series_progress *progress, size_t width, char *text, size_t capacity)
{
	struct neap_buffer out = {0};
	text[0] = '\0';
	if (width < WIDTH_LEAST || capacity <= width || !progress->running_count)
		return;
	for (size_t i = 0; i < progress->running_count; i++) {
		neap_buffer_text(&out, i ? " | " : "");
		format_run(progress, &progress->running[i], &out);
	}
	if (!out.failed && out.length <= width)
		strcpy(text, neap_buffer_string(&out));
	else if (!out.failed)
		snprintf(text, capacity, "%.*s...", (int)width - 3, neap_buffer_string(&out));
	neap_buffer_fini(&out);
}

void progress_begin(struct progress_line *line, FILE *stream)
{
	const char *kind = getenv("TERM");
	bool able = isatty(fileno(stream)) && kind && *kind && strcmp(kind, "dumb") != 0;
	*line = (struct progress_line){.stream = able ? stream : NULL};
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
	/* a shell in the foreground has the line to itself */
	if (!line->stream || tcgetpgrp(fileno(line->stream)) != getpgrp())
		return;
	progress_format(progress, width_of(line->stream), text, sizeof text);
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
