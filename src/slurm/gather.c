/* slurm/gather.c: finds each experiment's state from claims, results and the queue. Puts results into the history,
 * starts and ends into the journal. See slurm/decide.h for the decisions.
 *
 * The order of a check matters: first the claims, then the queue, then the results. A task claims while it is in the
 * queue, and leaves its result before it leaves the queue: so a task that had claimed and is not listed has ended,
 * and its result, if any, is there.
 */
#include "slurm/internal.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/owner.h"
#include "run/run_stage.h"
#include "slurm/call.h"
#include "slurm/decide.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LAST_WORDS_BYTES 4096

static const char *name_of(const struct neap_slurm *slurm, size_t at)
{
	return slurm->series.spec->experiments[at].name;
}

uint32_t neap_slurm_job_of(const struct neap_slurm *slurm, size_t at)
{
	uint32_t submission = slurm->series.state.ends[at].submission;
	return submission ? slurm->series.state.jobs[submission - 1] : 0;
}

static enum neap_status folder_of(const struct neap_slurm *slurm, size_t at, uint32_t number,
				  struct neap_attempt *attempt, struct neap_error *err)
{
	return neap_attempt_init(attempt, slurm->folder, name_of(slurm, at), number, err);
}

static void output_path(const struct neap_slurm *slurm, uint32_t job, uint32_t task, char path[4400])
{
	snprintf(path, 4400, "%s/slurm/%" PRIu32 "-%" PRIu32 ".out", slurm->folder, job, task);
}

/* The end of a file: false when it is not there. */
static bool read_tail(const char *path, struct neap_buffer *tail)
{
	char text[LAST_WORDS_BYTES];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return false;
	off_t end = lseek(fd, 0, SEEK_END);
	ssize_t got = pread(fd, text, sizeof text, end > LAST_WORDS_BYTES ? end - LAST_WORDS_BYTES : 0);
	close(fd);
	neap_buffer_append(tail, text, got > 0 ? (size_t)got : 0);
	return true;
}

static enum neap_slurm_cause find_cause(const struct neap_slurm *slurm, uint32_t job, uint32_t task)
{
	char path[4400];
	struct neap_buffer tail = {0};
	output_path(slurm, job, task, path);
	read_tail(path, &tail);
	enum neap_slurm_cause cause = neap_slurm_last_cause(neap_buffer_string(&tail), tail.length);
	neap_buffer_fini(&tail);
	return cause;
}

/* NFS caches a missing name for up to a minute. Opening the folder asks the server whether it has changed, so that
 * other machines' files appear. */
static void refresh(const char *folder)
{
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
}

/* NEAP_ENOENT: no task has claimed it. */
static enum neap_status read_claim(const struct neap_slurm *slurm, size_t at, uint32_t number,
				   struct neap_slurm_claim *ret_claim, struct neap_error *err)
{
	struct neap_attempt attempt;
	enum neap_status status = folder_of(slurm, at, number, &attempt, err);
	if (status)
		return status;
	refresh(attempt.folder);
	return neap_slurm_claim_read(attempt.folder, ret_claim, err);
}

/* --- one attempt --------------------------------------------------------------------------------------------------
 */

static struct neap_step step_of(const struct neap_slurm *slurm, size_t at)
{
	return (struct neap_step){NEAP_STEP_TAKE, at, slurm->checked[at].attempt};
}

/* The start of the attempt, if it is not in the journal yet, and its end. */
static enum neap_status append_end(struct neap_slurm *slurm, size_t at, json_t *end, struct neap_error *err)
{
	const struct neap_slurm_checked *checked = &slurm->checked[at];
	enum neap_status status = NEAP_OK;
	if (!slurm->series.state.experiments[at].open)
		status = neap_series_append(&slurm->series,
					    neap_series_record_start(&slurm->series.spec->experiments[at],
								     checked->attempt, checked->claim.run_id, "", ""),
					    err);
	if (!status)
		return neap_series_append(&slurm->series, end, err);
	json_decref(end);
	return status;
}

static enum neap_status append_of(struct neap_slurm *slurm, const char *type, size_t at, struct neap_error *err)
{
	return append_end(slurm, at, neap_series_record_of(type, name_of(slurm, at), slurm->checked[at].attempt),
			  err);
}

static void report_of(struct neap_slurm *slurm, size_t at, const char *why)
{
	neap_series_report_line(&slurm->series, "[%zu/%zu] %s: attempt %" PRIu32 ": %s", at + 1,
				slurm->series.spec->count, name_of(slurm, at), slurm->checked[at].attempt, why);
}

/* Reports a lost attempt, with the last line of a file. */
static void report_lost(struct neap_slurm *slurm, size_t at, const char *why, const char *path)
{
	char last[160];
	struct neap_buffer tail = {0};
	read_tail(path, &tail);
	neap_slurm_last_line(&tail, last, sizeof last);
	neap_buffer_fini(&tail);
	neap_series_report_line(&slurm->series, "[%zu/%zu] %s: attempt %" PRIu32 " is lost: %s%s%s", at + 1,
				slurm->series.spec->count, name_of(slurm, at), slurm->checked[at].attempt, why,
				*last ? ": " : "", last);
}

/* The state of a claimed attempt, from its folder and the queue. */
struct found {
	struct neap_attempt attempt;
	struct neap_slurm_facts facts;
	struct neap_result result; /* where facts.has_result; ours to free */
	bool damaged;              /* its result file cannot be read */
};

static enum neap_status find_begun_again(const struct neap_slurm *slurm, size_t at, bool *ret_again,
					 struct neap_error *err)
{
	const struct neap_slurm_checked *checked = &slurm->checked[at];
	struct neap_slurm_claim next = {0};
	enum neap_status status = read_claim(slurm, at, checked->attempt + 1, &next, err);
	*ret_again = !status && next.job == checked->claim.job && next.task == checked->claim.task;
	return status == NEAP_ENOENT ? NEAP_OK : status;
}

/* Whether its supervisor is alive, as far as locks show. A command that ended before its supervisor died still gets a
 * result. */
static enum neap_status find_supervisor(struct found *found, struct neap_error *err)
{
	enum neap_step_found there = NEAP_STEP_FOUND_NOTHING;
	enum neap_status status = neap_attempt_find(&found->attempt, &there, err);
	/* Without locks, a file names an owner on another machine: Slurm reports that it has ended. */
	if (!status && there == NEAP_STEP_FOUND_LOCK && neap_owner_forget(found->attempt.folder))
		status = neap_attempt_find(&found->attempt, &there, err);
	found->facts.lock_held = there == NEAP_STEP_FOUND_LOCK;
	if (status || there != NEAP_STEP_FOUND_ENDED)
		return status;
	status = neap_run_stage_recover_locked(found->attempt.folder, err);
	return status == NEAP_ESTATE || status == NEAP_EPARSE ? NEAP_OK : status; /* no result can be made */
}

static enum neap_status read_result(struct found *found, struct neap_error *err)
{
	char path[4200];
	struct neap_error why = {0};
	snprintf(path, sizeof path, "%s/result.json", found->attempt.folder);
	enum neap_status status = neap_result_read(path, &found->result, &why);
	found->damaged = status == NEAP_EPARSE;
	found->facts.has_result = status == NEAP_OK;
	if (found->facts.has_result)
		found->facts.outcome = found->result.outcome;
	if (status == NEAP_ENOENT || status == NEAP_EPARSE)
		return NEAP_OK;
	if (status && err)
		*err = why;
	return status;
}

static enum neap_status find(struct neap_slurm *slurm, size_t at, struct found *found, struct neap_error *err)
{
	const struct neap_slurm_claim *claim = &slurm->checked[at].claim;
	*found = (struct found){0};
	found->facts.gone = slurm->asked && !neap_slurm_queue_has(slurm, claim->job, claim->task);
	enum neap_status status = folder_of(slurm, at, slurm->checked[at].attempt, &found->attempt, err);
	if (!status)
		status = find_begun_again(slurm, at, &found->facts.begun_again, err);
	refresh(found->attempt.folder);
	/* Check the lock before the result: a supervisor writes its result before it frees the lock. */
	if (!status && found->facts.gone)
		status = find_supervisor(found, err);
	if (!status)
		status = read_result(found, err);
	if (found->facts.gone)
		found->facts.cause = find_cause(slurm, claim->job, claim->task);
	return status;
}

/* When a file was last written, in nanoseconds since 1970; 0: it does not exist. */
static uint64_t written_ns(const char *path)
{
	struct stat info;
	if (stat(path, &info))
		return 0;
	return (uint64_t)info.st_mtim.tv_sec * NEAP_NS_PER_S + (uint64_t)info.st_mtim.tv_nsec;
}

/* Makes a result for an attempt that had no time to write its own. Its claim was written at its start, the task's
 * output last at its end. */
static enum neap_status make_result(struct neap_slurm *slurm, size_t at, struct found *found, struct neap_error *err)
{
	const struct neap_slurm_claim *claim = &slurm->checked[at].claim;
	struct neap_result *result = &found->result;
	char path[4400];
	enum neap_status status = neap_series_make_result(&slurm->series, at, "", result, err);
	found->facts.has_result = true; /* a partial result must be freed too */
	if (!status)
		status = neap_result_set(&result->run_id, claim->run_id, err);
	snprintf(path, sizeof path, "%s/claim", found->attempt.folder);
	result->started_wall_ns = written_ns(path);
	output_path(slurm, claim->job, claim->task, path);
	result->ended_wall_ns = written_ns(path);
	if (result->ended_wall_ns < result->started_wall_ns)
		result->ended_wall_ns = result->started_wall_ns;
	result->duration_ns = result->ended_wall_ns - result->started_wall_ns;
	result->exit_status = 128 + 9;
	return status;
}

/* Writes into the result why Slurm ended the run. */
static enum neap_status amend_result(struct neap_slurm *slurm, size_t at, struct found *found,
				     const struct neap_slurm_verdict *verdict, struct neap_error *err)
{
	char path[4200], evidence[320];
	const struct neap_slurm_claim *claim = &slurm->checked[at].claim;
	enum neap_status status = found->facts.has_result ? NEAP_OK : make_result(slurm, at, found, err);
	snprintf(evidence, sizeof evidence, "%s (task %" PRIu32 "_%" PRIu32 " on %s)", verdict->why, claim->job,
		 claim->task, claim->node);
	found->result.outcome = verdict->outcome;
	if (!status)
		status = neap_result_set(&found->result.evidence, evidence, err);
	snprintf(path, sizeof path, "%s/result.json", found->attempt.folder);
	return status ? status : neap_result_write(path, &found->result, err);
}

static enum neap_status take(struct neap_slurm *slurm, size_t at, struct found *found,
			     const struct neap_slurm_verdict *verdict, struct neap_error *err)
{
	struct neap_series *series = &slurm->series;
	struct neap_step step = step_of(slurm, at);
	enum neap_status status = NEAP_OK;
	if (*verdict->why)
		status = amend_result(slurm, at, found, verdict, err);
	if (status)
		return status;
	neap_series_keep(series, &found->result);
	neap_series_report_end(series, step, &found->result);
	if (neap_series_is_deviceless(series, step, &found->result)) { /* Slurm waits for a device, and chooses it */
		neap_series_report_line(series, "[%zu/%zu] %s: its device was lost: another attempt (%u of %d)",
					at + 1, series->spec->count, name_of(slurm, at),
					series->state.experiments[at].deviceless + 1, NEAP_SERIES_LOST_LIMIT - 1);
		return append_of(slurm, "device_lost", at, err);
	}
	if (neap_series_is_to_be_retried(series, step, &found->result)) {
		neap_series_report_line(series, "[%zu/%zu] %s: failed, another attempt (%u of %s)", at + 1,
					series->spec->count, name_of(slurm, at),
					series->state.experiments[at].failed + 1,
					series->spec->experiments[at].retry_failed);
		return append_of(slurm, "retry", at, err);
	}
	int code = found->result.exit_status;
	return append_end(slurm, at,
			  neap_series_record_end(name_of(slurm, at), step.attempt, found->result.outcome,
						 code < 0 || code > 255 ? 255 : code),
			  err);
}

static enum neap_status cancel(struct neap_slurm *slurm, size_t at, struct found *found, const char *why,
			       struct neap_error *err)
{
	if (found->facts.has_result)
		neap_series_keep(&slurm->series, &found->result);
	report_of(slurm, at, why);
	if (found->facts.cause == NEAP_SLURM_CANCELLED && !found->facts.begun_again)
		slurm->checked[at].withheld = !slurm->first_check;
	return append_of(slurm, "cancel", at, err);
}

static enum neap_status lose(struct neap_slurm *slurm, size_t at, struct found *found, const char *why,
			     struct neap_error *err)
{
	char path[4200];
	snprintf(path, sizeof path, "%s/neap.log", found->attempt.folder);
	report_lost(slurm, at, why, path);
	return append_of(slurm, "lost", at, err);
}

/* Checks an attempt that a task has claimed. *ret_moved: the journal has grown. */
static enum neap_status check_claimed(struct neap_slurm *slurm, size_t at, bool *ret_moved, struct neap_error *err)
{
	struct found found;
	enum neap_status status = find(slurm, at, &found, err);
	struct neap_slurm_verdict verdict = neap_slurm_decide(&found.facts);
	if (found.damaged)
		verdict = (struct neap_slurm_verdict){NEAP_SLURM_LOSE, NEAP_OUTCOME_LOST, "its result is damaged"};
	slurm->checked[at].place = NEAP_SLURM_BEGUN;
	*ret_moved = *ret_moved || (!status && verdict.action != NEAP_SLURM_WAIT);
	if (!status && verdict.action == NEAP_SLURM_TAKE)
		status = take(slurm, at, &found, &verdict, err);
	else if (!status && verdict.action == NEAP_SLURM_CANCEL)
		status = cancel(slurm, at, &found, verdict.why, err);
	else if (!status && verdict.action == NEAP_SLURM_LOSE)
		status = lose(slurm, at, &found, verdict.why, err);
	if (found.facts.has_result)
		neap_result_fini(&found.result);
	neap_attempt_fini(&found.attempt);
	return status;
}

/* Handles an experiment whose task ended without a claim. If the task has no output, it was cancelled in the queue.
 * If it had started and failed, that counts as a lost attempt. */
static enum neap_status check_gone(struct neap_slurm *slurm, size_t at, bool *ret_moved, struct neap_error *err)
{
	struct neap_slurm_checked *checked = &slurm->checked[at];
	const struct neap_series_end *end = &slurm->series.state.ends[at];
	uint32_t job = neap_slurm_job_of(slurm, at);
	enum neap_slurm_cause cause = find_cause(slurm, job, end->task);
	char path[4400];
	output_path(slurm, job, end->task, path);
	checked->place = NEAP_SLURM_READY;
	if (!access(path, F_OK) && cause != NEAP_SLURM_CANCELLED && cause != NEAP_SLURM_TAKEN_BACK) {
		report_lost(slurm, at, "its task ended before it had begun", path);
		*ret_moved = true;
		return neap_series_append(
			&slurm->series, neap_series_record_of("unbegun", name_of(slurm, at), checked->attempt), err);
	}
	if (checked->shown_cancelled == end->submission)
		return NEAP_OK;
	checked->shown_cancelled = end->submission;
	checked->withheld = !slurm->first_check;
	report_of(slurm, at, "its task was cancelled before it had begun");
	return NEAP_OK;
}

static enum neap_status check_unclaimed(struct neap_slurm *slurm, size_t at, bool *ret_moved, struct neap_error *err)
{
	struct neap_slurm_checked *checked = &slurm->checked[at];
	struct neap_slurm_claim claim;
	uint32_t job = neap_slurm_job_of(slurm, at);
	checked->place = NEAP_SLURM_READY;
	if (!job)
		return NEAP_OK;
	checked->place = NEAP_SLURM_QUEUED;
	if (!slurm->asked || neap_slurm_queue_has(slurm, job, slurm->series.state.ends[at].task))
		return NEAP_OK;
	enum neap_status status = read_claim(slurm, at, checked->attempt, &claim, err);
	if (status == NEAP_ENOENT)
		return check_gone(slurm, at, ret_moved, err);
	*ret_moved = true; /* claimed since the last check */
	return status;
}

/* --- all of them --------------------------------------------------------------------------------------------------
 */

static enum neap_status read_claims(struct neap_slurm *slurm, struct neap_error *err)
{
	const struct neap_series_state *state = &slurm->series.state;
	char path[4200];
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof path, "%s/%s", slurm->folder, i ? "slurm" : "runs");
		refresh(path);
	}
	for (size_t i = 0; i < state->count; i++) {
		struct neap_slurm_checked *checked = &slurm->checked[i];
		checked->attempt = state->experiments[i].attempts + !state->experiments[i].open;
		checked->claimed = false;
		if (state->experiments[i].ended)
			continue;
		enum neap_status status = read_claim(slurm, i, checked->attempt, &checked->claim, err);
		if (status && status != NEAP_ENOENT)
			return status;
		checked->claimed = !status;
	}
	return NEAP_OK;
}

/* Checks everything once. *ret_moved: check again. */
static enum neap_status check_all(struct neap_slurm *slurm, bool *ret_moved, struct neap_error *err)
{
	const struct neap_series_state *state = &slurm->series.state;
	*ret_moved = false;
	enum neap_status status = read_claims(slurm, err);
	if (!status && state->submissions)
		status = neap_slurm_queue_ask(slurm, err);
	for (size_t i = 0; i < state->count && !status; i++)
		if (!state->experiments[i].ended)
			status = slurm->checked[i].claimed ? check_claimed(slurm, i, ret_moved, err)
							   : check_unclaimed(slurm, i, ret_moved, err);
	return status;
}

void neap_slurm_add_job(struct neap_slurm_summary *summary, uint32_t job)
{
	for (size_t i = 0; i < summary->job_count; i++)
		if (summary->jobs[i] == job)
			return;
	if (job && summary->job_count < NEAP_SLURM_JOBS_SHOWN)
		summary->jobs[summary->job_count++] = job;
}

bool neap_slurm_is_ready(const struct neap_slurm *slurm, size_t at)
{
	const struct neap_slurm_checked *checked = &slurm->checked[at];
	return !slurm->series.state.experiments[at].ended && checked->place == NEAP_SLURM_READY && !checked->withheld;
}

static void count_one(struct neap_slurm *slurm, size_t at)
{
	struct neap_slurm_checked *checked = &slurm->checked[at];
	const struct neap_slurm_claim *claim = &checked->claim;
	slurm->summary->pending += checked->place == NEAP_SLURM_QUEUED;
	slurm->summary->running += checked->place == NEAP_SLURM_BEGUN;
	if (checked->place != NEAP_SLURM_READY)
		neap_slurm_add_job(slurm->summary,
				   checked->place == NEAP_SLURM_BEGUN ? claim->job : neap_slurm_job_of(slurm, at));
	if (checked->place != NEAP_SLURM_BEGUN || checked->shown_running == checked->attempt)
		return;
	checked->shown_running = checked->attempt;
	neap_series_report_line(&slurm->series, "[%zu/%zu] %s: running on %s, task %" PRIu32 "_%" PRIu32, at + 1,
				slurm->series.spec->count, name_of(slurm, at), claim->node, claim->job, claim->task);
}

enum neap_status neap_slurm_gather(struct neap_slurm *slurm, struct neap_error *err)
{
	const struct neap_series_state *state = &slurm->series.state;
	struct neap_slurm_summary *summary = slurm->summary;
	enum neap_status status = NEAP_OK;
	bool moved = true;
	summary->running = summary->pending = summary->job_count = 0;
	while (moved && !status)
		status = check_all(slurm, &moved, err);
	for (size_t i = 0; i < state->count && !status; i++)
		if (!state->experiments[i].ended)
			count_one(slurm, i);
	return status;
}
