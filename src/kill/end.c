/* kill/end.c: see end.h. */
#include "kill/end.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define POLL_NS (10 * NEAP_NS_PER_MS)
/* The time between two searches for new processes. Each search reads all processes. */
#define NEWCOMERS_NS   (50 * NEAP_NS_PER_MS)
#define NEWCOMERS_COST 10 /* so a search takes at most a tenth of the time */
#define STOP_ROUNDS    200
#define KILL_TRIES     5
#define KILL_WAIT_NS   (30 * NEAP_NS_PER_S)

struct snapshot {
	struct neap_process *processes;
	size_t count;
	bool failed;
};

static bool keep_process(void *context, const struct neap_process *process)
{
	struct snapshot *snapshot = context;
	snapshot->failed = !neap_array_grow(&snapshot->processes, snapshot->count, sizeof *process);
	if (snapshot->failed)
		return false;
	struct neap_process *kept = &snapshot->processes[snapshot->count];
	snapshot->count += neap_process_read(process->pid, kept, NULL) == NEAP_OK;
	return true;
}

static enum neap_status take_snapshot(struct snapshot *snapshot, struct neap_error *err)
{
	enum neap_status status = neap_process_each(keep_process, snapshot, err);
	if (!status && snapshot->failed)
		status = neap_fail(err, NEAP_ENOMEM, "out of memory");
	return status;
}

enum neap_status neap_kill_plan_now(const struct neap_kill_choice *choices, size_t choice_count,
				    struct neap_kill_plan *ret_plan, struct neap_error *err)
{
	struct snapshot all = {0};
	enum neap_status status = take_snapshot(&all, err);
	if (!status)
		status = neap_kill_plan_make(all.processes, all.count, choices, choice_count, getpid(), getuid(),
					     ret_plan, err);
	free(all.processes);
	return status;
}

/* The current time, in the unit of a process's start time. */
static uint64_t now_ticks(void)
{
	uint64_t per_second = (uint64_t)sysconf(_SC_CLK_TCK), now_ns = neap_boot_ns();
	return now_ns / NEAP_NS_PER_S * per_second + now_ns % NEAP_NS_PER_S * per_second / NEAP_NS_PER_S;
}

static bool is_alive(const struct neap_ended *one)
{
	return neap_process_alive(one->process.pid, one->process.start_ticks);
}

static void send(const struct neap_ended *one, int number)
{
	int fd = neap_process_open(one->process.pid, one->process.start_ticks);
	if (fd < 0)
		return;
	neap_pidfd_signal(fd, number);
	close(fd);
}

/* Adds processes that have appeared since to the plan and to work->ended. */
static enum neap_status add_newcomers(struct neap_kill_work *work, uint64_t since_ticks, size_t *ret_added,
				      struct neap_error *err)
{
	struct snapshot all = {0};
	size_t before = work->plan.target_count;
	enum neap_status status = take_snapshot(&all, err);
	*ret_added = 0;
	if (!status) {
		struct neap_ended *grown = realloc(work->ended, (before + all.count + 1) * sizeof *grown);
		if (grown)
			work->ended = grown;
		else
			status = neap_fail(err, NEAP_ENOMEM, "out of memory");
	}
	if (!status)
		status = neap_kill_plan_extend(all.processes, all.count, getpid(), getuid(), since_ticks, &work->plan,
					       ret_added, err);
	for (size_t i = before; i < work->plan.target_count; i++)
		work->ended[i] = (struct neap_ended){.process = work->plan.targets[i].process};
	free(all.processes);
	return status;
}

/* Marks processes that have ended as ended by `number`. Returns how many of the first `count` still live. */
static size_t count_alive(struct neap_kill_work *work, size_t count, int number)
{
	size_t alive = 0;
	for (size_t i = 0; i < count; i++) {
		if (work->ended[i].ended_by)
			continue;
		if (is_alive(&work->ended[i]))
			alive++;
		else
			work->ended[i].ended_by = number;
	}
	return alive;
}

/* Sends SIGTERM, and waits until all have ended or the grace is over. */
static enum neap_status ask_to_end(struct neap_kill_work *work, uint64_t since_ticks, struct neap_error *err)
{
	const struct neap_clock *clock = neap_clock_system();
	const struct neap_deadline end = neap_deadline_in_ms(clock, work->grace_ms);
	uint64_t poll_ns = 0;
	size_t asked = 0, added = 0;
	for (;;) {
		size_t all = work->plan.target_count;
		bool none_left = count_alive(work, asked, SIGTERM) == 0;
		/* Signal all first. Signal new processes only when all others have ended, because those may end the
		 * new ones themselves. */
		for (size_t i = asked; none_left && i < all; i++)
			send(&work->ended[i], SIGTERM);
		for (size_t i = asked; none_left && i < all; i++)
			send(&work->ended[i], SIGCONT); /* a stopped process must run to end */
		asked = none_left ? all : asked;
		bool gone = count_alive(work, all, SIGTERM) == 0;
		enum neap_status status = NEAP_OK;
		uint64_t begun_ns = neap_clock_now(clock);
		if (gone || begun_ns >= poll_ns) {
			status = add_newcomers(work, since_ticks, &added, err);
			uint64_t pause_ns = NEWCOMERS_COST * (neap_clock_now(clock) - begun_ns);
			poll_ns = begun_ns + (pause_ns > NEWCOMERS_NS ? pause_ns : NEWCOMERS_NS);
		}
		if (status || (gone && !added) || neap_deadline_over(&end))
			return status;
		neap_clock_sleep(clock, POLL_NS);
	}
}

/* Stops all processes, and those that they started before they were stopped. */
static enum neap_status stop(struct neap_kill_work *work, uint64_t since_ticks, struct neap_error *err)
{
	size_t stopped = 0, added = 1;
	enum neap_status status = NEAP_OK;
	for (int round = 0; !status && added && round < STOP_ROUNDS; round++) {
		for (; stopped < work->plan.target_count; stopped++)
			if (!work->ended[stopped].ended_by)
				send(&work->ended[stopped], SIGSTOP);
		status = add_newcomers(work, since_ticks, &added, err);
	}
	return status;
}

static void wait_killed(struct neap_kill_work *work)
{
	const struct neap_deadline end = neap_deadline_in(neap_clock_system(), KILL_WAIT_NS);
	while (count_alive(work, work->plan.target_count, SIGKILL) && !neap_deadline_over(&end))
		neap_clock_sleep(end.clock, POLL_NS);
}

enum neap_status neap_kill_end(struct neap_kill_work *work, struct neap_error *err)
{
	size_t added = 0;
	uint64_t since_ticks = now_ticks() - 1;
	work->ended = calloc(work->plan.target_count + 1, sizeof *work->ended);
	if (!work->ended)
		return neap_fail(err, NEAP_ENOMEM, "out of memory; nothing was ended");
	for (size_t i = 0; i < work->plan.target_count; i++)
		work->ended[i].process = work->plan.targets[i].process;
	enum neap_status status = ask_to_end(work, since_ticks, err);
	for (int tries = 0; tries < KILL_TRIES && (added || count_alive(work, work->plan.target_count, SIGTERM));
	     tries++) {
		enum neap_status looked = stop(work, since_ticks, status ? NULL : err);
		for (size_t i = 0; i < work->plan.target_count; i++)
			if (!work->ended[i].ended_by)
				send(&work->ended[i], SIGKILL);
		wait_killed(work);
		if (!looked)
			looked = add_newcomers(work, since_ticks, &added, status ? NULL : err);
		status = status ? status : looked;
		if (status)
			break;
	}
	return status;
}
