/* run/supervise_wait.c: before a start, waits until the run may start. If there is a queue (turn.h), the first start
 * waits for the run's turn, which also assigns its devices. At a restart the run already has its lease, and only
 * waits for the memory.
 */
#include "run/supervise_internal.h"

#include "base/error.h"
#include "base/process.h"
#include "base/units.h"

#include <stdio.h>
#include <string.h>

#define POLL_NS (100 * NEAP_NS_PER_MS)

struct wait {
	struct neap_supervise *run;
	const struct neap_turn *turn; /* NULL: only memory decides */
	uint64_t begun_ns, read_ns;
	uint64_t alone_ns; /* how long the run has waited while no other run of the queue was in the way */
	char size[NEAP_UNITS_CAPACITY];
	struct neap_turn_answer answer;
	char shown[400];
	struct neap_error unread; /* why the device could not be read */
	enum { UNLOGGED, LOGGED_OTHERS, LOGGED_MEMORY } logged;
};

static void log_holders(const struct neap_supervise *run, const char *what)
{
	const struct neap_reading *reading = &run->observe.now;
	char free_text[NEAP_UNITS_CAPACITY], bytes[NEAP_UNITS_CAPACITY];
	struct neap_buffer text = {0};
	neap_buffer_format(&text, "Waiting for %s of %s: %s free", what, reading->name,
			   neap_size_format(reading->free_bytes, free_text));
	for (size_t i = 0; reading->processes_known && i < reading->process_count && i < 8; i++) {
		struct neap_process process = {0};
		const struct neap_reading_process *holder = &reading->processes[i];
		bool named = !neap_process_read(holder->pid, &process, NULL);
		neap_buffer_format(&text, "%s process %d%s%s%s holds %s", i ? "," : ";", holder->pid,
				   named ? " (" : "", named ? process.command : "", named ? ")" : "",
				   holder->bytes == NEAP_BYTES_UNKNOWN ? "some"
								       : neap_size_format(holder->bytes, bytes));
	}
	neap_log(run->options.log, NEAP_LOG_WARNING, "%s", neap_buffer_string(&text));
	neap_buffer_fini(&text);
}

/* If the user named no device, watches the first one that the run may use. */
static void watch(struct neap_supervise *run, const struct neap_turn_answer *answer)
{
	if (run->options.device || !answer->device_count || answer->devices[0] >= run->observe.device_count)
		return;
	run->observe.watched = answer->devices[0];
	neap_observe_read(&run->observe, NULL);
}

/* Errors: the queue's. */
static enum neap_status sample(struct wait *wait, struct neap_error *err)
{
	struct neap_supervise *run = wait->run;
	const struct neap_needs *needs = &run->options.needs;
	wait->unread = (struct neap_error){0};
	if (wait->turn) {
		enum neap_status status =
			wait->turn->ask(wait->turn->context, run->monitor, &wait->answer, &wait->unread);
		if (status && status != NEAP_ENODEVICE) {
			if (err)
				*err = wait->unread;
			return status;
		}
		watch(run, &wait->answer);
		return NEAP_OK;
	}
	wait->answer = (struct neap_turn_answer){.found = NEAP_ROOM_LATER, .wait_ns = POLL_NS};
	if (needs->kind == NEAP_NEEDS_NONE || !run->monitor)
		wait->answer.found = NEAP_ROOM_NOW;
	else if (!neap_observe_read(&run->observe, &wait->unread))
		wait->answer.found = neap_needs_headroom(needs, &run->observe.now);
	return NEAP_OK;
}

/* Writes why the run will not start; "": it continues to wait. */
static void give_up(const struct wait *wait, char *why, size_t capacity)
{
	const struct neap_supervise *run = wait->run;
	const struct neap_turn_answer *answer = &wait->answer;
	bool patient = wait->turn && wait->turn->patient;
	uint64_t waited_ns = patient ? wait->alone_ns : wait->read_ns - wait->begun_ns;
	bool over = answer->found != NEAP_ROOM_NOW && waited_ns >= run->options.wait_limit_ns;
	why[0] = '\0';
	if (answer->found == NEAP_ROOM_NEVER && answer->text[0])
		snprintf(why, capacity, "%s", answer->text);
	else if (answer->found == NEAP_ROOM_NEVER)
		snprintf(why, capacity, "Needs %s, more than %s has", wait->size, run->observe.now.name);
	else if (wait->unread.status && over)
		snprintf(why, capacity, "The device could not be read: %s", wait->unread.message);
	else if (over && answer->text[0] && answer->others)
		snprintf(why, capacity, "Gave up. %s", answer->text);
	else if (over)
		snprintf(why, capacity, "Gave up waiting for %s of %s", wait->size, run->observe.now.name);
}

static void show(struct wait *wait, const char *text)
{
	if (!wait->turn || !wait->turn->show || !strcmp(text, wait->shown))
		return;
	wait->turn->show(wait->turn->context, text);
	snprintf(wait->shown, sizeof wait->shown, "%s", text);
}

/* Logs why the run waits, and logs again when the reason becomes one of another kind. */
static void report(struct wait *wait)
{
	const struct neap_supervise *run = wait->run;
	const struct neap_log_sink *log = run->options.log;
	bool others = wait->answer.others && !wait->unread.status;
	int kind = others ? LOGGED_OTHERS : LOGGED_MEMORY;
	if ((int)wait->logged != kind) {
		show(wait, "");
		if (wait->unread.status)
			neap_log(log, NEAP_LOG_WARNING, "Waiting for %s of the device, which cannot be read: %s",
				 wait->size, wait->unread.message);
		else if (others)
			neap_log(log, NEAP_LOG_WARNING, "%s", wait->answer.text);
		else
			log_holders(run, wait->size);
	}
	wait->logged = others ? LOGGED_OTHERS : LOGGED_MEMORY;
	show(wait, wait->unread.status ? "" : wait->answer.text);
}

/* Uses the devices that the turn assigned. */
static void take_devices(struct neap_supervise *run, const struct neap_turn_answer *answer)
{
	size_t length = 0;
	run->unwatched[0] = '\0';
	run->observe.pinned = true;
	for (size_t i = 0; answer->narrowed && i < answer->device_count && length < sizeof run->visible; i++)
		length += (size_t)snprintf(run->visible + length, sizeof run->visible - length, "%s%s", i ? "," : "",
					   answer->uuids[i]);
}

enum neap_status neap_supervise_wait(struct neap_supervise *run, struct neap_evidence *evidence, bool *ret_may_start,
				     struct neap_error *err)
{
	struct wait wait = {.run = run,
			    .turn = run->started_once ? NULL : run->options.turn,
			    .begun_ns = neap_supervise_now(run),
			    .size = "the whole"};
	char why[480] = "";
	enum neap_status status = NEAP_OK;
	wait.read_ns = wait.begun_ns;
	if (run->options.needs.kind == NEAP_NEEDS_BYTES)
		neap_size_format(run->options.needs.bytes, wait.size);
	for (;;) {
		bool others = wait.answer.others;
		uint64_t before_ns = wait.read_ns;
		status = sample(&wait, err);
		wait.read_ns = neap_supervise_now(run);
		wait.alone_ns += others ? 0 : wait.read_ns - before_ns;
		give_up(&wait, why, sizeof why);
		if (status || why[0] || wait.answer.found == NEAP_ROOM_NOW || run->cancel_count)
			break;
		report(&wait);
		neap_child_wait(run, wait.answer.wait_ns);
	}
	show(&wait, "");
	*ret_may_start = !status && wait.answer.found == NEAP_ROOM_NOW && !run->cancel_count;
	if (*ret_may_start && wait.turn)
		take_devices(run, &wait.answer);
	run->waited_ns += wait.logged != UNLOGGED ? neap_supervise_now(run) - wait.begun_ns : 0;
	evidence->no_memory = !status && !*ret_may_start && !run->cancel_count;
	snprintf(evidence->wait_text, sizeof evidence->wait_text, "%s", why);
	evidence->canceled_by = run->canceled_by;
	if (why[0])
		neap_log(run->options.log, NEAP_LOG_ERROR, "%s", why);
	return status;
}
