/* cli/cmd_queue.c: `neap queue`: shows which runs hold GPU memory and which wait for it, and changes that
 * (src/queue). */
#include "analyze/saturate.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/print.h"
#include "cli/run_estimate.h"
#include "cli/run_options.h"
#include "machine/who.h"
#include "queue/added.h"
#include "queue/edit.h"
#include "queue/lease.h"
#include "queue/queue_json.h"
#include "queue/sample.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOCK_NS         (10 * NEAP_NS_PER_S)
#define COMMAND_COLUMNS 50

static int run(const struct neap_arguments *arguments);

const struct neap_command neap_command_queue = {
	.name = "queue",
	.usage = "[--json] | add [options] -- COMMAND [ARGUMENT...] | pause [ID] | resume [ID] | move ID "
		 "first|last|N | end ID | unit",
	.summary = "runs that wait for GPU memory: who holds it, who is next; add, pause, move, end",
	.details = neap_help_queue,
	.options =
		(const struct neap_option[]){
			{"json", NULL, "one JSON object"},
			{"needs", "SIZE",
			 "add: the device memory that it needs: a size, 'device' (all) or 'estimate'; default "
			 "device"},
			{"gpus", "N", "add: on N GPUs, with --needs on each; default 1"},
			{"device", "DEVICE", "add: on this device alone: index or UUID"},
			{"name", "NAME", "add: the run's name; default: the program's name"},
			{"directory", "PATH", "add: the folder to start it in; default: this one"},
			{"param", "NAME=VALUE", "add: as of 'neap run'; may be given several times"},
			{"on-oom", "RULES|auto", "add: as of 'neap run'"},
			{"retries", "N", "add: as of 'neap run'"},
			{"time-limit", "DURATION", "add: as of 'neap run'"},
			{"wait-limit", "DURATION", "add: as of 'neap run'; default none"},
			{NULL, NULL, NULL},
		},
	.takes_rest = true,
	.operands_max = 3,
	.run = run,
};

/* An open queue, and the devices beside it. */
struct context {
	const struct neap_arguments *arguments;
	struct neap_queue queue;
	struct neap_monitor *monitor; /* NULL: there is no driver */
	char program[PATH_MAX];
};

/* --- add --- */

static int read_needs(struct context *context, struct neap_added *added)
{
	const char *needs = neap_argument(context->arguments, "needs"),
		   *gpus = neap_argument(context->arguments, "gpus");
	struct neap_error err = {0};
	uint64_t count = 1;
	added->needs = (struct neap_needs){NEAP_NEEDS_DEVICE, 0};
	if (gpus && (neap_u64_parse(gpus, &count, NULL) || !count || count > NEAP_GPUS))
		return neap_misuse(context->arguments, "--gpus: expected a number from 1 to %d, not '%s'", NEAP_GPUS,
				   gpus);
	added->gpus = (uint32_t)count;
	added->device = neap_argument(context->arguments, "device");
	if (count > 1 && added->device)
		return neap_misuse(context->arguments, "--gpus %s, and one device named: give one of them", gpus);
	if (needs && !strcmp(needs, "estimate"))
		return run_estimate_first(context->arguments, &added->needs);
	if (needs && neap_needs_parse(needs, &added->needs, &err))
		return neap_misuse(context->arguments, "--needs: %s", err.message);
	if (added->needs.kind == NEAP_NEEDS_NONE)
		return neap_misuse(context->arguments, "--needs none takes no turn: 'neap run' starts it at once");
	if (added->needs.kind == NEAP_NEEDS_BYTES && !added->needs.bytes)
		return neap_misuse(context->arguments, "--needs: expected a size above 0");
	return NEAP_EXIT_OK;
}

/* The options for `neap run`. */
static enum neap_status make_options(const struct context *context, const struct neap_added *added,
				     struct neap_argv *options, struct neap_error *err)
{
	static const char *const passed[] = {"name", "param", "on-oom", "retries", "time-limit", "wait-limit"};
	const struct neap_arguments *arguments = context->arguments;
	const char *directory = neap_argument(arguments, "directory"), *value;
	char path[PATH_MAX];
	bool failed = false;
	if (!realpath(directory ? directory : ".", path))
		return neap_fail(err, NEAP_ENOENT, "there is no folder %s", directory ? directory : ".");
	for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
		for (size_t n = 0; !failed && (value = neap_argument_nth(arguments, passed[i], n)); n++)
			failed = neap_argv_format(options, "--%s=%s", passed[i], value);
	failed = failed || neap_argv_format(options, "--directory=%s", path) ||
		 neap_argv_format(options, "--gpus=%u", added->gpus);
	if (!failed && added->needs.kind == NEAP_NEEDS_BYTES)
		failed = neap_argv_format(options, "--needs=%" PRIu64, added->needs.bytes);
	else if (!failed)
		failed = neap_argv_add(options, "--needs=device");
	if (!failed && added->device)
		failed = neap_argv_format(options, "--only-device=%s", added->device);
	return failed ? neap_fail(err, NEAP_ENOMEM, "out of host memory") : NEAP_OK;
}

/* Checks the options as `neap run` will read them later, when no user watches. */
static int check_options(const struct neap_arguments *arguments)
{
	struct neap_supervise_options run = {0};
	struct neap_argv command = {0};
	int code = run_options_parse(arguments, &command, &run);
	neap_argv_fini(&command);
	return code;
}

static int add(struct context *context)
{
	struct neap_argv options = {0};
	struct neap_added added = {.options = &options, .command = neap_rest(context->arguments)};
	struct neap_ticket ticket;
	struct neap_error err = {0};
	if (!added.command[0])
		return neap_misuse(context->arguments, "add: no command: neap queue add -- COMMAND");
	if (!context->monitor && neap_monitor_open(NEAP_BACKEND_DEFAULT, &context->monitor, &err))
		return neap_complain("queue", &err);
	int code = check_options(context->arguments);
	if (!code)
		code = read_needs(context, &added);
	if (code)
		return code;
	enum neap_status status = make_options(context, &added, &options, &err);
	if (!status)
		status = neap_queue_add(&context->queue, context->monitor, &added, &ticket, &err);
	neap_argv_fini(&options);
	if (status)
		return neap_complain("queue", &err);
	printf("%" PRIu64 ": added; its output goes to %s\n", ticket.number, NEAP_PRINTABLE(ticket.folder));
	return NEAP_EXIT_OK;
}

/* --- the others --- */

static int read_number(const struct context *context, const char *text, uint64_t *ret_number)
{
	if (neap_u64_parse(text, ret_number, NULL) || !*ret_number)
		return neap_misuse(context->arguments, "expected the number of a ticket, not '%s'", text);
	return NEAP_EXIT_OK;
}

static int pause_or_resume(struct context *context, bool pause)
{
	struct neap_error err = {0};
	uint64_t number = 0;
	size_t count = 0;
	int code = NEAP_EXIT_OK;
	if (neap_operand_count(context->arguments) > 1)
		code = read_number(context, neap_operand(context->arguments, 1), &number);
	if (code)
		return code;
	if (neap_queue_pause(&context->queue, number, pause, &count, &err))
		return neap_complain("queue", &err);
	printf("%zu %s\n", count, pause ? "paused" : "resumed");
	return NEAP_EXIT_OK;
}

static int move(struct context *context)
{
	struct neap_error err = {0};
	const struct neap_arguments *arguments = context->arguments;
	uint64_t number = 0, place = 1;
	if (neap_operand_count(arguments) != 3)
		return neap_misuse(arguments, "move: expected the number of a ticket, and first, last or a place");
	const char *where = neap_operand(arguments, 2);
	int code = read_number(context, neap_operand(arguments, 1), &number);
	if (code)
		return code;
	if (!strcmp(where, "last"))
		place = UINT64_MAX;
	else if (strcmp(where, "first") != 0 && (neap_u64_parse(where, &place, NULL) || !place))
		return neap_misuse(arguments, "move: expected first, last or a place from 1, not '%s'", where);
	return neap_queue_move(&context->queue, number, place, &err) ? neap_complain("queue", &err) : NEAP_EXIT_OK;
}

static int end(struct context *context)
{
	struct neap_error err = {0};
	uint64_t number = 0;
	bool signalled = false;
	if (neap_operand_count(context->arguments) != 2)
		return neap_misuse(context->arguments, "end: expected the number of a ticket");
	int code = read_number(context, neap_operand(context->arguments, 1), &number);
	if (code)
		return code;
	if (neap_queue_end(&context->queue, number, &signalled, &err))
		return neap_complain("queue", &err);
	printf("%" PRIu64 ": %s\n", number, signalled ? "asked to end" : "removed");
	return NEAP_EXIT_OK;
}

static void print_devices(const struct neap_queue_sample *sample)
{
	for (size_t i = 0; i < sample->device_count; i++)
		if (*sample->uuids[i])
			printf("GPU %zu  %s: %s free of %s, %s of it promised\n", i, NEAP_PRINTABLE(sample->names[i]),
			       NEAP_SIZE(sample->devices[i].free_bytes), NEAP_SIZE(sample->devices[i].total_bytes),
			       NEAP_SIZE(neap_queue_promised(sample, i)));
		else
			printf("GPU %zu  cannot be read\n", i);
}

static void print_queue(const struct neap_queue *queue, const struct neap_tickets *tickets,
			const struct neap_queue_sample *sample)
{
	char user[64], gpus[64], time[NEAP_WHO_TIME_CAPACITY], needs[80], words[40], command[64];
	print_devices(sample);
	if (!tickets->count) {
		printf("The queue is empty (%s); 'neap history' lists what ran\n", NEAP_PRINTABLE(queue->folder));
		return;
	}
	printf("\n%5s  %-10s %-18s %9s  %-5s %-22s %s\n", "ID", "USER", "STATE", "FOR", "GPU", "NEEDS", "COMMAND");
	for (size_t i = 0; i < tickets->count; i++) {
		const struct neap_ticket *ticket = &tickets->items[i];
		neap_lease_needs(ticket, needs, sizeof needs);
		printf("%5" PRIu64 "  %-10s %-18s %9s  %-5s %-22s %s\n", ticket->number,
		       neap_ticket_user(ticket, user), neap_ticket_state_text(tickets, sample, i, words),
		       neap_who_time_format(neap_less(neap_wall_ns(), ticket->since_wall_ns), time),
		       neap_ticket_gpus(ticket, sample, gpus), needs,
		       neap_who_cut(NEAP_PRINTABLE(ticket->command), COMMAND_COLUMNS, command, sizeof command));
	}
}

static int show(struct context *context)
{
	struct neap_error err = {0};
	struct neap_tickets tickets = {0};
	struct neap_queue_sample sample = {0};
	enum neap_status status = neap_queue_lock(&context->queue, LOCK_NS, &err);
	if (status)
		return neap_complain("queue", &err);
	status = neap_queue_read(&context->queue, &tickets, &err);
	neap_queue_unlock(&context->queue);
	if (!status)
		status = neap_queue_sample_take(&tickets, context->monitor, &sample, &err);
	int code = NEAP_EXIT_OK;
	if (status)
		code = neap_complain("queue", &err);
	else if (neap_argument(context->arguments, "json"))
		code = json_print("queue", neap_queue_json(&context->queue, &tickets, &sample), JSON_INDENT(2));
	else
		print_queue(&context->queue, &tickets, &sample);
	neap_queue_sample_fini(&sample);
	free(tickets.items);
	return code;
}

/* `text` as a word of a unit's line. */
static void print_word(const char *text)
{
	putchar('"');
	for (; *text; text++) {
		if (strchr("%\\\"", *text))
			putchar(*text == '%' ? '%' : '\\');
		putchar(*text);
	}
	putchar('"');
}

static void print_setting(const char *name, const char *value)
{
	char text[PATH_MAX + 64];
	if (!value || !*value)
		return;
	snprintf(text, sizeof text, "%s=%s", name, value);
	fputs("Environment=", stdout);
	print_word(text);
	putchar('\n');
}

/* A unit for systemd that starts the runner with the machine. Runs that the runner started continue when it is
 * stopped. systemd restarts it whenever it fails: the queue's folder may appear later. */
static int print_unit(struct context *context)
{
	puts("# ~/.config/systemd/user/neap-queue.service, as 'neap queue unit' printed it. Then, once:\n"
	     "#   systemctl --user enable neap-queue && loginctl enable-linger\n"
	     "[Unit]\n"
	     "Description=neap: added commands that wait for GPU memory\n"
	     "StartLimitIntervalSec=0\n"
	     "\n"
	     "[Service]");
	fputs("ExecStart=", stdout);
	print_word(context->program);
	puts(" queue run");
	print_setting("NEAP_QUEUE", context->queue.folder);
	print_setting("XDG_STATE_HOME", getenv("XDG_STATE_HOME"));
	puts("KillMode=process\n"
	     "Restart=on-failure\n"
	     "RestartSec=30\n"
	     "\n"
	     "[Install]\n"
	     "WantedBy=default.target");
	return NEAP_EXIT_OK;
}

/* The runner has no terminal: an error shows only in its exit status. */
static int runner(struct context *context)
{
	return neap_exit_of(neap_queue_runner(&context->queue, context->program, NULL));
}

static int choose(struct context *context)
{
	const struct neap_arguments *arguments = context->arguments;
	const char *verb = neap_operand_count(arguments) ? neap_operand(arguments, 0) : "";
	if (strcmp(verb, "add") != 0 && neap_rest(arguments)[0])
		return neap_misuse(arguments, "a command is only for 'neap queue add'");
	if (!*verb)
		return show(context);
	if (!strcmp(verb, "add"))
		return add(context);
	if (!strcmp(verb, "pause") || !strcmp(verb, "resume"))
		return pause_or_resume(context, *verb == 'p');
	if (!strcmp(verb, "move"))
		return move(context);
	if (!strcmp(verb, "end"))
		return end(context);
	if (!strcmp(verb, "unit"))
		return print_unit(context);
	if (!strcmp(verb, "run"))
		return runner(context);
	return neap_misuse(arguments, "expected add, pause, resume, move, end or unit, not '%s'", verb);
}

static int run(const struct neap_arguments *arguments)
{
	struct context context = {.arguments = arguments};
	struct neap_error err = {0};
	ssize_t length = readlink("/proc/self/exe", context.program, sizeof context.program - 1);
	if (length < 0)
		return neap_complain("queue", &(struct neap_error){NEAP_EIO, .message = "/proc cannot be read"});
	neap_monitor_open(NEAP_BACKEND_DEFAULT, &context.monitor, NULL); /* without a driver the queue is shown */
	enum neap_backend backend = context.monitor ? neap_monitor_backend(context.monitor) : NEAP_BACKEND_DEFAULT;
	int code = neap_queue_open(backend, &context.queue, &err) ? neap_complain("queue", &err) : choose(&context);
	bool runs = neap_operand_count(arguments) && !strcmp(neap_operand(arguments, 0), "run");
	if (!code && !runs && neap_queue_revive(&context.queue, context.program, &err))
		code = neap_complain("queue", &err);
	neap_queue_close(&context.queue);
	neap_monitor_close(context.monitor);
	return code;
}
