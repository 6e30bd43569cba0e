/* series/series_end.c: ends an attempt: takes its result, or counts it as lost, canceled or given up. Journals each
 * end before the next step. */
#include "series/series_internal.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "run/orphans.h"
#include "run/recordings.h"
#include "run/run_stage.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define GONE_LOOKS 1200
/* A supervisor's exit status when there is no device (EX_UNAVAILABLE). */
#define NO_DEVICE 69
/* If this many supervisors in a row die before they start their command, something is wrong with this machine. */
#define UNBEGUN_LIMIT      3
#define READ_PAUSE_NS      (20 * NEAP_NS_PER_MS)
#define READ_PAUSE_MOST_NS (2 * NEAP_NS_PER_S)

static const char *name_of(const struct neap_series *series, struct neap_step step)
{
	return series->spec->experiments[step.experiment].name;
}

/* Called when the supervisor's lock is free, so it is about to exit: reaps it before its attempt is dropped. */
static void reap(struct neap_running *running)
{
	for (int i = 0; running->attempt.child && i < GONE_LOOKS; i++)
		neap_attempt_sleep(&running->attempt, NEAP_SERIES_SAMPLE_MS);
}

void neap_series_release(struct neap_series *series, struct neap_running *running)
{
	if (running->of < series->spec->count) {
		neap_series_show(running);
		neap_attempt_fini(&running->attempt);
	}
	running->of = series->spec->count;
}

void neap_series_report_end(const struct neap_series *series, struct neap_step step, const struct neap_result *result)
{
	char took[NEAP_UNITS_CAPACITY], peak[NEAP_UNITS_CAPACITY], drain[NEAP_UNITS_CAPACITY], memory[400] = "";
	uint64_t bytes = result->peak_device_bytes > result->peak_reserved_bytes ? result->peak_device_bytes
										 : result->peak_reserved_bytes;
	if (bytes)
		snprintf(memory, sizeof memory, ", peak %s, %s%s", neap_size_format(bytes, peak),
			 result->drained ? "drained in " : "not drained: ",
			 result->drained ? neap_duration_format(result->drain_ns, drain) : result->drain_note);
	neap_series_report_line(series, "[%zu/%zu] %s: %s in %s%s%s%s%s%s", step.experiment + 1, series->spec->count,
				name_of(series, step), neap_outcome_name(result->outcome),
				neap_duration_format(result->duration_ns, took), memory, *result->rung ? ", " : "",
				result->rung, *result->evidence ? ": " : "", result->evidence);
}

/* Loses an attempt whose result cannot be read, and reports that. */
static enum neap_status lose_damaged(struct neap_series *series, struct neap_step step, struct neap_error *err)
{
	series->unbegun = 0;
	neap_series_report_line(series, "[%zu/%zu] %s: attempt %u is lost: its result is damaged: %s",
				step.experiment + 1, series->spec->count, name_of(series, step), step.attempt,
				err->message);
	enum neap_status status =
		neap_series_append(series, neap_series_record_of("lost", name_of(series, step), step.attempt), err);
	neap_series_release(series, series->now);
	return status;
}

bool neap_series_is_to_be_retried(const struct neap_series *series, struct neap_step step,
				  const struct neap_result *result)
{
	const char *limit = series->spec->experiments[step.experiment].retry_failed;
	bool failed = result->outcome == NEAP_OUTCOME_FAILED || result->outcome == NEAP_OUTCOME_SIGNALED ||
		      result->outcome == NEAP_OUTCOME_HOST_OOM || result->outcome == NEAP_OUTCOME_TIMEOUT;
	return failed && limit && series->state.experiments[step.experiment].failed < strtoul(limit, NULL, 10);
}

bool neap_series_is_deviceless(const struct neap_series *series, struct neap_step step,
			       const struct neap_result *result)
{
	return result->outcome == NEAP_OUTCOME_NO_DEVICE &&
	       series->state.experiments[step.experiment].deviceless + 1 < NEAP_SERIES_LOST_LIMIT;
}

/* Retries a read that failed because memory was short or the disk did not answer, before the series stops.
 */
static enum neap_status read_patiently(const char *path, struct neap_result *ret_result, struct neap_error *err)
{
	enum neap_status status = neap_result_read(path, ret_result, err);
	for (uint64_t pause_ns = READ_PAUSE_NS;
	     (status == NEAP_ENOMEM || status == NEAP_EIO) && pause_ns <= READ_PAUSE_MOST_NS; pause_ns *= 2) {
		neap_clock_sleep(neap_clock_system(), pause_ns);
		status = neap_result_read(path, ret_result, err);
	}
	return status;
}

enum neap_status neap_series_take(struct neap_series *series, struct neap_step step, struct neap_error *err)
{
	char path[4096];
	struct neap_result result = {0};
	bool waited = series->now->attempt.child || series->now->attempt.exit_code >= 0;
	if (neap_path_join(path, sizeof path, series->now->attempt.folder, "result.json"))
		return neap_fail(err, NEAP_EINVAL, "the folder's name is too long: %.120s",
				 series->now->attempt.folder);
	enum neap_status status = read_patiently(path, &result, err);
	if (status == NEAP_EPARSE) /* damaged or edited by hand: there is no result */
		return lose_damaged(series, step, err);
	if (status)
		return status;
	reap(series->now);
	series->unbegun = 0;
	neap_series_show(series->now);
	neap_series_keep(series, &result);
	if (result.device_uuid && result.device_uuid[0])
		series->device_seen = true;
	/* An attempt canceled on its own is over; one canceled together with the series (this process or a killed
	 * one) is not. */
	if (result.outcome == NEAP_OUTCOME_CANCELED && (series->now->cancels || !waited)) {
		status = neap_series_append(
			series, neap_series_record_of("cancel", name_of(series, step), step.attempt), err);
	} else if (neap_series_is_deviceless(series, step, &result)) {
		neap_series_report_end(series, step, &result);
		status = neap_series_append(
			series, neap_series_record_of("device_lost", name_of(series, step), step.attempt), err);
		if (!status)
			status = neap_series_device_return(series, step, result.device_uuid, err);
	} else if (neap_series_is_to_be_retried(series, step, &result)) {
		neap_series_report_end(series, step, &result);
		neap_series_report_line(series, "[%zu/%zu] %s: failed, another attempt (%u of %s)",
					step.experiment + 1, series->spec->count, name_of(series, step),
					series->state.experiments[step.experiment].failed + 1,
					series->spec->experiments[step.experiment].retry_failed);
		status = neap_series_append(series,
					    neap_series_record_of("retry", name_of(series, step), step.attempt), err);
	} else {
		int code = result.exit_status < 0 || result.exit_status > 255 ? 255 : result.exit_status;
		neap_series_report_end(series, step, &result);
		status = neap_series_append(
			series, neap_series_record_end(name_of(series, step), step.attempt, result.outcome, code),
			err);
	}
	neap_result_fini(&result);
	neap_series_release(series, series->now);
	return status;
}

/* A supervisor's exit codes for a failure to start: usage, data, no input, no device, no disk space. The attempt does
 * not count as lost: a full disk must not use up an experiment's attempts. */
static bool is_refusal(int code) { return (code >= 64 && code <= 69) || code == 73 || code == 74; }
/* Other codes of sysexits.h: the supervisor failed later (disk full, ...). Codes from 128 on mean that it was killed:
 * that is no failure of its own. */
static bool is_failure(int code) { return code >= 70 && code <= 78; }

static void report_orphan(void *context, const struct neap_ended *orphan)
{
	neap_series_report_line(context, "process %d (%s) was left behind%s", orphan->process.pid,
				orphan->process.command, orphan->ended_by ? ", ended" : " and cannot be ended");
}

void neap_series_end_leftovers(const struct neap_series *series, const char *run_id)
{
	struct neap_error err = {0};
	size_t count = 0;
	const struct neap_orphans_of of = {.run_id = run_id};
	if (neap_orphans_end_all(&of, report_orphan, (void *)(uintptr_t)series, &count, &err))
		neap_series_report_line(series, "processes left behind were not looked for: %s", err.message);
}

/* Ends the command's children: the command died with its supervisor, but they did not, and they would hold memory
 * during the next attempt. Call before the loss is journaled: if we are killed in between, the series searches again.
 */
static void end_orphans(struct neap_series *series, struct neap_step step)
{
	neap_series_end_leftovers(series, series->state.ends[step.experiment].run_id);
}

/* Reports an attempt without a result. */
static enum neap_status report_lost(struct neap_series *series, struct neap_step step, bool began, bool canceled,
				    int code, struct neap_error *err)
{
	neap_series_report_line(series, "[%zu/%zu] %s: attempt %u %s", step.experiment + 1, series->spec->count,
				name_of(series, step), step.attempt,
				canceled ? "was ended before it began"
				: began  ? "is lost: its supervisor is gone without a result"
					 : "never began: its supervisor is gone");
	series->unbegun = began || canceled || code < 0 ? 0 : series->unbegun + 1;
	if (series->unbegun < UNBEGUN_LIMIT)
		return NEAP_OK;
	return neap_fail(err, NEAP_EINTERNAL,
			 "%d supervisors in a row were ended before they began their command, the last with status "
			 "%d: see %.100s/runs/%.60s-%u/neap.log",
			 UNBEGUN_LIMIT, code, series->summary->folder, name_of(series, step), step.attempt);
}

/* Handles an attempt without a result. Only a started attempt can be lost. */
enum neap_status neap_series_lose(struct neap_series *series, struct neap_step step, bool began,
				  struct neap_error *err)
{
	const char *name = name_of(series, step);
	reap(series->now);
	end_orphans(series, step);
	neap_recordings_cut(series->now->attempt.folder);
	int code = series->now->attempt.exit_code;
	/* If a supervisor gets SIGTERM before it reads signals, it leaves no result. */
	bool refused = is_refusal(code), canceled = series->now->cancels && code == 128 + SIGTERM;
	enum neap_status status = neap_series_append(
		series, neap_series_record_of(refused || canceled || !began ? "cancel" : "lost", name, step.attempt),
		err);
	neap_series_release(series, series->now);
	if (status)
		return status;
	if (code == NO_DEVICE && !series->ending && neap_series_device_wait(series, step, &status, err))
		return status;
	if (refused || is_failure(code)) {
		series->summary->supervisor_exit = code;
		return code == 74
			       ? neap_fail(err, NEAP_EINTERNAL,
					   "the supervisor of '%s' could not write in %.150s/runs: is the disk full?",
					   name, series->summary->folder)
			       : neap_fail(err, NEAP_EINTERNAL,
					   "the supervisor of '%s' ended with %d before it had a result", name, code);
	}
	return report_lost(series, step, began, canceled, code, err);
}

/* Called when the supervisor was killed after its command had ended: ends the command's leftovers and makes the
 * result. */
enum neap_status neap_series_take_ended(struct neap_series *series, struct neap_step step, struct neap_error *err)
{
	reap(series->now);
	end_orphans(series, step);
	enum neap_status status = neap_run_stage_recover_locked(series->now->attempt.folder, err);
	if (status == NEAP_ESTATE)
		return neap_series_lose(series, step, true, err);
	if (status == NEAP_EPARSE)
		return lose_damaged(series, step, err);
	if (status)
		return status;
	neap_run_stage_forget(series->now->attempt.folder); /* the result exists, and the journal has the rest */
	return neap_series_take(series, step, err);
}

enum neap_status neap_series_give_up(struct neap_series *series, struct neap_step step, struct neap_error *err)
{
	neap_series_report_line(series, "[%zu/%zu] %s: given up after %d lost attempts", step.experiment + 1,
				series->spec->count, name_of(series, step), NEAP_SERIES_LOST_LIMIT);
	return neap_series_append(series, neap_series_record_of("give_up", name_of(series, step), step.attempt), err);
}
