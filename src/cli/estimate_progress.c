/* cli/estimate_progress.c: see estimate_progress.h. */
#include "cli/estimate_progress.h"

#include "base/clock.h"
#include "estimate/ask.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRAW_NS  (200 * NEAP_NS_PER_MS)
#define PLAIN_NS (10 * NEAP_NS_PER_S)
#define CLEAR    "\r\033[K"

static volatile sig_atomic_t interrupted_by;
static void on_signal(int number) { interrupted_by = number; }
int estimate_interrupted(void) { return interrupted_by; }

void estimate_catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static bool is_terminal(void)
{
	const char *kind = getenv("TERM");
	return isatty(STDERR_FILENO) && kind && strcmp(kind, "dumb") != 0;
}

static void show(struct estimate_progress *progress, const char *what, uint64_t elapsed_ns)
{
	uint64_t next_ns = progress->next_ns;
	if (!next_ns && !is_terminal())
		next_ns = PLAIN_NS;
	if (elapsed_ns < next_ns)
		return;
	progress->next_ns = elapsed_ns + (is_terminal() ? DRAW_NS : PLAIN_NS);
	fprintf(stderr, is_terminal() ? CLEAR "%s, %llu s" : NEAP_ESTIMATE_STILL "%s, %llu s\n", what,
		(unsigned long long)(elapsed_ns / NEAP_NS_PER_S));
	fflush(stderr);
}

static void end(struct estimate_progress *progress)
{
	if (is_terminal())
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
