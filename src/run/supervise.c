/* run/supervise.c: the sequence of a run. outcome.c, drain.c and degrade.c decide the next action; this file takes
 * it.
 */
#include "run/supervise_internal.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "base/units.h"
#include "device/leftovers.h"
#include "run/holders.h"
#include "run/killed.h"
#include "run/orphans.h"
#include "run/run_stage.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define POLL_NS       (50 * NEAP_NS_PER_MS)
#define DRAIN_POLL_NS (20 * NEAP_NS_PER_MS)
/* Time for the command's leftover processes to end by themselves, as many do. */
#define LEAVING_NS      (500 * NEAP_NS_PER_MS)
#define LEAVING_POLL_NS (10 * NEAP_NS_PER_MS)
/* The kernel needs a while to unmap a large process after SIGKILL, longer on a loaded machine. */
#define KILLED_NS (60 * NEAP_NS_PER_S)
/* The longest drain for a command that was never seen on a device: another process causes any later change. */
#define UNSEEN_DRAIN_NS (2 * NEAP_NS_PER_S)

/* How long until the next action is due. */
static uint64_t next_ns(const struct neap_supervise *run, uint64_t now_ns, uint64_t poll_ns)
{
	uint64_t next = poll_ns > now_ns ? poll_ns - now_ns : 0;
	uint64_t due_ns = neap_limits_due_ns(&run->options.limits, &run->limits, now_ns - run->started_ns, now_ns);
	return due_ns < next ? due_ns : next;
}

/* Stops waiting for a command that survives SIGKILL inside a driver call. The run still writes its result, and
 * reports the memory that the command holds as not given back. */
static void abandon_child(struct neap_supervise *run, uint64_t now_ns)
{
	struct neap_process process = {0};
	char waited[NEAP_UNITS_CAPACITY];
	if (run->child.ended || !run->child.killed_ns || now_ns - run->child.killed_ns < KILLED_NS)
		return;
	bool read = !neap_process_read(run->child.pid, &process, NULL);
	neap_log(run->options.log, NEAP_LOG_ERROR,
		 "Process %d (%s) has not ended %s after SIGKILL (its state is %c%s): neap leaves it with the "
		 "device memory it holds",
		 (int)run->child.pid, read ? process.command : "unknown",
		 neap_duration_format(now_ns - run->child.killed_ns, waited), read ? process.state : '?',
		 process.state == 'D' ? ", inside a call of the kernel's" : "");
	run->child.ended = true;
	run->child.wait_status = SIGKILL; /* as it would have ended */
	run->child.ended_ns = now_ns;
}

/* A Python that finds no libraries of NVIDIA's ends within 50 ms. */
static uint64_t pause_ns(const struct neap_supervise *run, uint64_t now_ns)
{
	return run->astray_ns && now_ns - run->started_ns < POLL_NS ? POLL_NS / 5 : POLL_NS;
}

static void observe_until_end(struct neap_supervise *run)
{
	uint64_t poll_ns = run->started_ns;
	while (!run->child.ended) {
		uint64_t now_ns = neap_supervise_now(run);
		if (now_ns >= poll_ns) {
			neap_observe_take(&run->observe, now_ns);
			neap_supervise_keep_poll(run); /* before the cards, which read it, too */
			neap_facts_show_cards(run);
			neap_facts_show_simulated(run);
			neap_supervise_astray_poll(run, now_ns);
			now_ns = neap_supervise_now(run);
			poll_ns = now_ns + pause_ns(run, now_ns);
		}
		now_ns = neap_supervise_limits_poll(run, now_ns);
		neap_child_wait(run, next_ns(run, now_ns, poll_ns));
		abandon_child(run, neap_supervise_now(run));
	}
}

/* Asks the driver whether the command failed because its device is gone. */
static void find_device(struct neap_supervise *run, struct neap_evidence *evidence)
{
	struct neap_error err = {0};
	if (run->observe.watched < run->observe.device_count &&
	    neap_observe_read(&run->observe, &err) == NEAP_ENODEVICE)
		snprintf(evidence->lost_text, sizeof evidence->lost_text, "%s", err.message);
}

/* The prefix of the names of device files. False: there are none. The simulator uses plain files instead, if
 * NEAP_SIM_FILES names their folder. */
static bool device_files(const struct neap_supervise *run, char prefix[512])
{
	const char *folder = getenv("NEAP_SIM_FILES");
	bool simulated = run->monitor && neap_monitor_backend(run->monitor) == NEAP_BACKEND_SIM;
	if (simulated && (!folder || !*folder))
		return false;
	snprintf(prefix, 512, "%.490s/nvidia", simulated ? folder : "/dev");
	return true;
}

struct leftovers {
	struct neap_supervise *run;
	struct neap_holders holders; /* read before the leftovers were ended */
};

static void report_leftover(void *context, const struct neap_ended *orphan)
{
	const struct leftovers *leftovers = context;
	const struct neap_log_sink *log = leftovers->run->options.log;
	const struct neap_process *process = &orphan->process;
	const char *path = NULL;
	for (size_t i = 0; i < leftovers->holders.count && i < NEAP_HOLDERS; i++)
		if (leftovers->holders.items[i].process.pid == process->pid)
			path = leftovers->holders.items[i].path;
	if (orphan->ended_by)
		neap_log(log, NEAP_LOG_WARNING, "Ended process %d (%s), which the command left running%s%s%s (SIG%s)",
			 process->pid, process->command, path ? " with " : "", path ? path : "", path ? " open" : "",
			 sigabbrev_np(orphan->ended_by));
	else
		neap_log(log, NEAP_LOG_ERROR,
			 "Process %d (%s), which the command left running%s%s%s, cannot be ended", process->pid,
			 process->command, path ? " with " : "", path ? path : "", path ? " open" : "");
}

/* Gives leftover processes a moment to end by themselves, for example Python's resource tracker, which removes the
 * command's shared memory, or the last process of a pipe. False: there was none. */
static bool wait_for_leavers(struct neap_supervise *run)
{
	uint64_t begun_ns = neap_supervise_now(run);
	unsigned cancels = run->cancel_count;
	const struct neap_orphans_of of = neap_supervise_processes(run);
	struct neap_process left;
	for (size_t count, polls = 0;; polls++) {
		if (neap_orphans_find(&of, &left, 1, &count, NULL) || !count)
			return polls > 0;
		if (neap_supervise_now(run) - begun_ns >= LEAVING_NS || run->cancel_count > cancels)
			return true;
		neap_child_wait(run, LEAVING_POLL_NS);
	}
}

/* Ends the processes that the command left running. Returns the time when the run's last process ended. */
static uint64_t end_leftovers(struct neap_supervise *run)
{
	struct neap_error err = {0};
	size_t count = 0;
	if (!wait_for_leavers(run))
		return run->child.ended_ns;
	struct leftovers leftovers = {.run = run};
	char prefix[512];
	if (device_files(run, prefix))
		neap_holders_find(prefix, &leftovers.holders, NULL);
	const struct neap_orphans_of of = neap_supervise_processes(run);
	if (neap_orphans_end_all(&of, report_leftover, &leftovers, &count, &err))
		neap_log(run->options.log, NEAP_LOG_WARNING, "Processes left behind were not looked for: %s",
			 err.message);
	neap_child_wait(run, 0); /* reaps them */
	return neap_supervise_now(run);
}

static double gigabytes(uint64_t bytes) { return (double)bytes / (double)NEAP_GIB; }

/* Logs the lines of a cleanup, with the peaks of the run. */
static void log_cleanup(struct neap_supervise *run)
{
	const struct neap_log_sink *log = run->options.log;
	const struct neap_observe *observe = &run->observe;
	uint64_t allocated_bytes = 0, reserved_bytes = 0;
	if (observe->watched >= observe->device_count)
		return;
	neap_observe_peaks(observe, &allocated_bytes, &reserved_bytes);
	neap_log(log, NEAP_LOG_INFO, "Cleaning up CUDA memory...");
	neap_log(log, NEAP_LOG_INFO, "Clearing CUDA cache...");
	if (observe->attached_count) /* the processes have exited, so nothing is allocated */
		neap_log(log, NEAP_LOG_INFO,
			 "CUDA memory stats after cleanup: allocated=0.00GB, max_allocated=%.2fGB, reserved=0.00GB, "
			 "max_reserved=%.2fGB",
			 gigabytes(allocated_bytes), gigabytes(reserved_bytes));
}

static void log_driver_report(struct neap_supervise *run)
{
	const struct neap_log_sink *log = run->options.log;
	const struct neap_reading *reading = &run->observe.now;
	if (neap_observe_read(&run->observe, NULL))
		return;
	neap_log(log, NEAP_LOG_INFO, "Asking the driver for GPU memory (as nvidia-smi reports it)...");
	neap_log(log, NEAP_LOG_INFO, "NVIDIA-SMI report:");
	neap_log(log, NEAP_LOG_INFO, "memory.used [MiB], memory.free [MiB]");
	neap_log(log, NEAP_LOG_INFO, "%llu, %llu", (unsigned long long)(reading->used_bytes / NEAP_MIB),
		 (unsigned long long)(reading->free_bytes / NEAP_MIB));
}

/* Adds to drain_note the processes that have device files open: the driver may list no process for memory that is
 * still used. */
static void name_holders(struct neap_supervise *run)
{
	struct neap_holders holders;
	struct neap_buffer text = {0};
	size_t length = strlen(run->drain_note);
	char prefix[512];
	if (!device_files(run, prefix) || neap_holders_find(prefix, &holders, NULL))
		return;
	neap_holders_text(&holders, &text);
	snprintf(run->drain_note + length, sizeof run->drain_note - length, "; %s", neap_buffer_string(&text));
	neap_buffer_fini(&text);
}

/* Waits until the memory that the run held is free again. */
static void drain(struct neap_supervise *run, uint64_t ended_ns)
{
	uint64_t limit_ns = run->options.drain_limit_ns, pause_ns = NEAP_NS_PER_MS;
	unsigned cancels = run->cancel_count;
	char text[NEAP_UNITS_CAPACITY];
	run->drained = false;
	run->drain_note[0] = '\0';
	run->drain_ns = 0;
	if (run->observe.watched >= run->observe.device_count) {
		snprintf(run->drain_note, sizeof run->drain_note, "%s",
			 !run->monitor       ? "no driver"
			 : run->unwatched[0] ? run->unwatched
					     : "no device is visible");
		return;
	}
	struct neap_error err = {0};
	if (neap_observe_read(&run->observe, &err)) {
		snprintf(run->drain_note, sizeof run->drain_note, "the device cannot be read: %s", err.message);
		return;
	}
	if (!neap_observe_used(&run->observe) && limit_ns > UNSEEN_DRAIN_NS)
		limit_ns = UNSEEN_DRAIN_NS;
	for (;;) {
		uint64_t left = neap_observe_left(&run->observe);
		run->drain_ns = neap_supervise_now(run) - ended_ns;
		if (!left) {
			run->drained = true;
			return;
		}
		if (run->drain_ns >= limit_ns || run->cancel_count > cancels) {
			snprintf(run->drain_note, sizeof run->drain_note, "%s still held after %s%s",
				 neap_size_format(left, text),
				 neap_duration_format(run->drain_ns, (char[NEAP_UNITS_CAPACITY]){0}),
				 run->cancel_count > cancels ? " (interrupted)" : "");
			name_holders(run);
			neap_log(run->options.log, NEAP_LOG_WARNING, "Memory was not given back: %s",
				 run->drain_note);
			return;
		}
		neap_child_wait(run, pause_ns);
		pause_ns = pause_ns * 2 < DRAIN_POLL_NS ? pause_ns * 2 : DRAIN_POLL_NS;
	}
}

/* Collects the evidence that is known once the command has ended. Runs in this process or in the guard. */
static void gather(struct neap_supervise *run, struct neap_evidence *evidence)
{
	neap_supervise_last_read(run, evidence);
	neap_supervise_read_batch(run);
	neap_facts_meet_recorded(run);
	evidence->started = true;
	evidence->killed_by = neap_killed_by(run->folder, neap_wall_ns());
	evidence->wait_status = run->child.wait_status;
	evidence->canceled_by = run->canceled_by;
	neap_supervise_limits_evidence(run, evidence);
	evidence->host_kills = neap_host_kills(&evidence->host_counter) - run->host_kills;
}

/* Writes the end to disk before acting on it: if the supervisor is killed afterwards, nothing is lost. Then releases
 * the guard, which is no longer needed to write it. */
static void note_end(struct neap_supervise *run, const struct neap_evidence *evidence)
{
	struct neap_error err = {0};
	neap_supervise_headroom_for_end(run);
	enum neap_status status = NEAP_ENOMEM;
	for (int tries = 0; status == NEAP_ENOMEM && tries < 5; tries++)
		status = neap_run_stage_end(run, evidence, neap_supervise_has_rung(run), &err);
	if (status)
		neap_log(run->options.log, NEAP_LOG_WARNING, "The command's end is not on disk yet: %s", err.message);
	else
		neap_guard_release(&run->guard);
}

void neap_supervise_take_over(struct neap_supervise *run, int wait_status)
{
	struct neap_evidence evidence = {0};
	if (neap_run_stage_read(run->folder) != NEAP_STAGE_BEGAN)
		return;
	run->options.log = NULL;
	run->options.show = NULL;
	run->last_card = (struct neap_buffer){0};
	run->guard = (struct neap_guard){.to_fd = -1, .from_fd = -1};
	neap_tee_join(&run->tee);
	run->child.ended = true;
	run->child.wait_status = wait_status;
	run->child.ended_ns = neap_supervise_now(run);
	gather(run, &evidence);
	note_end(run, &evidence);
}

/* Starts the command once and runs it to its end. */
static enum neap_status run_once(struct neap_supervise *run, struct neap_evidence *evidence, struct neap_error *err)
{
	char **argv = NULL;
	run->limits = (struct neap_limits_state){0};
	run->host_poll_ns = 0;
	run->cards_shown = 0;
	run->drained = true;
	run->child = (struct neap_child){0};
	neap_supervise_forget_batch(run);
	enum neap_status status = neap_supervise_argv(run, &argv, err);
	if (status)
		return status;
	bool may_start = false;
	status = neap_supervise_wait(run, evidence, &may_start, err);
	if (status || !may_start)
		goto out;
	neap_killed_forget(run->folder);
	run->host_kills = neap_host_kills(&evidence->host_counter);
	run->started_ns = neap_supervise_now(run);
	neap_observe_start(&run->observe, run->started_ns);
	const bool first = !run->started_once;
	if (first)
		status = neap_run_stage_begin(run, err);
	if (first && !status) {
		neap_group_make(run->run_id, &run->group); /* not before: only the guard would remove the group */
		run->started_once = true;
		run->first_started_ns = run->started_ns;
		run->first_wall_ns = neap_wall_ns();
	}
	if (!status)
		status = neap_child_start(run, argv, &evidence->spawn_errno, err);
	if (status && first)
		neap_run_stage_forget(run->folder); /* no command was started: the run may be tried again */
	if (status || evidence->spawn_errno) {
		bool in_folder = evidence->spawn_errno < 0; /* the child could not enter its folder */
		evidence->spawn_errno = abs(evidence->spawn_errno);
		snprintf(evidence->spawn_name, sizeof evidence->spawn_name, "%s",
			 in_folder ? run->options.directory : argv[0]);
		if (!status)
			neap_log(run->options.log, NEAP_LOG_ERROR, "Cannot %s '%s': %s", in_folder ? "run in" : "run",
				 evidence->spawn_name, strerror(evidence->spawn_errno));
		goto out;
	}
	observe_until_end(run);
	neap_supervise_keep_end(run); /* the rings still hold the newest events */
	gather(run, evidence);
	note_end(run, evidence);
	find_device(run, evidence);
	if (evidence->lost_text[0])
		note_end(run, evidence);
	log_cleanup(run);
	drain(run, end_leftovers(run));
	log_driver_report(run);
	neap_facts_evidence(run, evidence);
out:
	neap_supervise_argv_free(argv);
	return status;
}

/* Before the first start, ends processes that earlier runs left on the devices. If that fails, the run starts anyway.
 */
static void clear_leftovers(struct neap_supervise *run)
{
	struct neap_leftovers_options options = {.run_id = run->run_id, .log = run->options.log};
	struct neap_leftovers found;
	struct neap_error err = {.message = "no driver"};
	if (!run->monitor || neap_leftovers_clear(run->monitor, &options, &found, &err))
		neap_log(run->options.log, NEAP_LOG_WARNING, "Leftovers of earlier runs were not looked for: %s",
			 err.message);
	else
		log_driver_report(run);
}

enum neap_status neap_supervise_run(struct neap_supervise *run, struct neap_result *ret_result,
				    struct neap_error *err)
{
	struct neap_verdict verdict;
	run->rung = 0;
	if (run->options.clear_memory_on_start)
		clear_leftovers(run);
	do {
		struct neap_evidence evidence = {0};
		enum neap_status status = run_once(run, &evidence, err);
		if (status)
			return status;
		neap_outcome_decide(&evidence, &verdict);
	} while (neap_supervise_again(run, &verdict));
	return neap_facts_result(run, &verdict, ret_result, err);
}
