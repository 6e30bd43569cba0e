/* cli/cmd_serve.c: `neap serve`: metrics for Prometheus, a live page and JSON over HTTP. This thread takes samples,
 * the server's thread answers. */
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/units.h"
#include "cli/command.h"
#include "serve/data.h"
#include "serve/http.h"

#include <signal.h>
#include <time.h>

#define LISTEN         "127.0.0.1:9401"
#define HOSTS_MOST     16
#define EVERY_LEAST_NS (100 * NEAP_NS_PER_MS)

static int run(const struct neap_arguments *arguments);

const struct neap_command neap_command_serve = {
	.name = "serve",
	.usage = "[--listen ADDRESS:PORT] [--host NAME]... [--every S]",
	.summary = "serve metrics for Prometheus, a live page and JSON",
	.details = neap_help_serve,
	.options =
		(const struct neap_option[]){
			{"listen", "ADDRESS:PORT", "where (default " LISTEN "; port 0: any that is free)"},
			{"host", "NAME", "another name or address by which clients ask for it; may be repeated"},
			{"every", "S", "look every S seconds (or 500ms, 2m, ...; default 1, at least 100ms)"},
			{NULL, NULL, NULL},
		},
	.run = run,
};

static void block_signals(sigset_t *ret_set)
{
	sigemptyset(ret_set);
	sigaddset(ret_set, SIGINT);
	sigaddset(ret_set, SIGTERM);
	sigaddset(ret_set, SIGHUP);
	sigprocmask(SIG_BLOCK, ret_set, NULL); /* before the server's thread starts, which inherits this mask */
	signal(SIGPIPE, SIG_IGN);
}

/* Takes samples until a signal asks to end. Returns the signal's number. */
static int serve(struct neap_serve_data *data, struct neap_serve_http *http, uint64_t every_ns,
		 const sigset_t *signals)
{
	const uint64_t sweep_ns = every_ns < NEAP_NS_PER_S ? every_ns : NEAP_NS_PER_S;
	struct neap_deadline next = neap_deadline_in(neap_clock_system(), every_ns);
	bool was_up = true;
	for (;;) {
		struct timespec pause = {.tv_sec = (time_t)(sweep_ns / NEAP_NS_PER_S),
					 .tv_nsec = (long)(sweep_ns % NEAP_NS_PER_S)};
		int number = sigtimedwait(signals, NULL, &pause);
		if (number > 0)
			return number;
		neap_serve_http_sweep(http);
		struct neap_error err = {0};
		if (!neap_deadline_over(&next))
			continue;
		next = neap_deadline_in(next.clock, every_ns);
		bool up = neap_serve_data_sample(data, &err) == NEAP_OK;
		if (up != was_up)
			neap_log(neap_log_stderr(), NEAP_LOG_WARNING, "%s",
				 up ? "the devices can be read again" : err.message);
		was_up = up;
	}
}

static void announce(const struct neap_serve_http *http)
{
	printf("Serving on http://%s/ (page), /metrics, /api; Ctrl-C ends it\n", neap_serve_http_address(http));
	if (!neap_serve_http_is_local(http))
		fputs("neap serve: everyone who can reach this address can read the users and command lines of GPU "
		      "processes\n",
		      stderr);
	fflush(stdout);
}

static int run(const struct neap_arguments *arguments)
{
	const char *listen = neap_argument(arguments, "listen"), *every = neap_argument(arguments, "every");
	struct neap_monitor *monitor = NULL;
	struct neap_serve_data *data = NULL;
	struct neap_serve_http *http = NULL;
	struct neap_error err = {0};
	uint64_t every_ns = NEAP_NS_PER_S;
	char folder[4096];
	const char *hosts[HOSTS_MOST + 1] = {0};
	sigset_t signals;
	int number = 0;
	for (size_t i = 0; (hosts[i] = neap_argument_nth(arguments, "host", i)); i++)
		if (i == HOSTS_MOST)
			return neap_misuse(arguments, "--host: at most %d", HOSTS_MOST);
	if (every && neap_duration_parse(every, &every_ns, &err) != NEAP_OK)
		return neap_misuse(arguments, "--every: %s", err.message);
	if (every_ns < EVERY_LEAST_NS)
		return neap_misuse(arguments, "--every: at least 100ms");
	block_signals(&signals);
	enum neap_status status = neap_monitor_open(NEAP_BACKEND_DEFAULT, &monitor, &err);
	if (!status)
		status = neap_path_runtime(folder, sizeof folder, &err);
	if (!status)
		status = neap_serve_data_create(monitor, folder, every_ns, &data, &err);
	if (!status)
		status = neap_serve_data_sample(data, &err);
	const struct neap_serve_http_options options = {listen ? listen : LISTEN, hosts, neap_serve_data_answer,
							data};
	if (!status)
		status = neap_serve_http_start(&options, &http, &err);
	if (!status) {
		announce(http);
		number = serve(data, http, every_ns, &signals);
	}
	neap_serve_http_stop(http);
	neap_serve_data_destroy(data);
	neap_monitor_close(monitor);
	if (status)
		return neap_complain("serve", &err);
	return number == SIGINT ? NEAP_EXIT_OK : 128 + number;
}
