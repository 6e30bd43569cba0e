/* series/slurm_gather.c: what Slurm and the folders say of the attempts under way, and what follows: results into the
 * history, ends into the journal. See slurm_decide.h for the decisions.
 */
#include "series/slurm_internal.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/owner.h"
#include "series/run_stage.h"
#include "series/slurm_call.h"
#include "series/slurm_claim.h"
#include "series/slurm_decide.h"
#include "series/slurm_task.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LAST_WORDS_BYTES 4096
#define JOBS_ASKED       200 /* of one sacct */

/* Which experiment has this task under way. */
struct place {
	uint64_t key;
	size_t at;
};

static uint64_t key_of(uint32_t job, uint32_t task) { return (uint64_t)job << 32 | task; }

static int by_key(const void *left, const void *right)
{
	const struct place *a = left, *b = right;
	return a->key < b->key ? -1 : a->key > b->key;
}

static uint32_t job_of(const struct neap_series_state *state, size_t at)
{
	uint32_t submission = state->ends[at].submission;
	return submission ? state->jobs[submission - 1] : 0;
}

static const char *name_of(const struct neap_slurm *slurm, size_t at)
{
	return slurm->series.spec->experiments[at].name;
}

/* All open ones whose task is known, sorted; NULL without memory. Whoever has claimed the attempt is who runs it:
 * mostly the task that it was submitted for. */
static struct place *make_places(const struct neap_slurm *slurm, size_t *ret_count)
{
	const struct neap_series_state *state = &slurm->series.state;
	struct place *places = calloc(state->count, sizeof *places);
	size_t count = 0;
	for (size_t i = 0; places && i < state->count; i++) {
		struct neap_slurm_claim claim = {job_of(state, i), state->ends[i].task};
		struct neap_attempt attempt;
		if (!state->experiments[i].open ||
		    neap_attempt_init(&attempt, slurm->series.summary->folder, name_of(slurm, i),
				      state->experiments[i].attempts, NULL))
			continue;
		neap_slurm_claim_read(attempt.folder, &claim, NULL);
		if (claim.job)
			places[count++] = (struct place){key_of(claim.job, claim.task), i};
	}
	if (places)
		qsort(places, count, sizeof *places, by_key);
	*ret_count = count;
	return places;
}

static void note_seen(struct neap_slurm *slurm, const struct place *places, size_t count,
		      const struct neap_slurm_seen *seen)
{
	struct place wanted = {.key = key_of(seen->job, seen->task)};
	const struct place *found = bsearch(&wanted, places, count, sizeof *places, by_key);
	if (found)
		slurm->seen[found->at] = *seen;
}

/* Runs one of its commands; `complaint` is why it refused, "" when it did not. */
static enum neap_status ask(const char *const *texts, struct neap_words *words, struct neap_buffer *output,
			    char complaint[200], struct neap_error *err)
{
	struct neap_buffer errors = {0};
	enum neap_status status = NEAP_OK;
	int code = 0;
	for (size_t i = 0; texts[i] && !status; i++)
		if (neap_words_add(words, texts[i]))
			status = neap_fail(err, NEAP_ENOMEM, "asking Slurm: out of memory");
	if (!status)
		status = neap_slurm_call(words, output, &errors, &code, err);
	complaint[0] = '\0';
	if (!status && code) {
		neap_slurm_complaint(&errors, complaint, 200);
		if (!*complaint)
			snprintf(complaint, 200, "exit status %d", code);
	}
	neap_buffer_fini(&errors);
	return status;
}

/* Calls for each line until one does not parse: false, and `bad` (room for 64) has its beginning. */
static bool each_line(struct neap_slurm *slurm, const struct neap_buffer *output, const struct place *places,
		      size_t count,
		      enum neap_status (*parse)(const char *line, size_t length, struct neap_slurm_seen *ret_seen),
		      char *bad)
{
	const char *text = neap_buffer_string(output), *end = text + output->length;
	while (text < end) {
		const char *newline = memchr(text, '\n', (size_t)(end - text));
		size_t length = (size_t)((newline ? newline : end) - text);
		struct neap_slurm_seen seen;
		enum neap_status status = length ? parse(text, length, &seen) : NEAP_ENOENT;
		if (status == NEAP_EPARSE) {
			struct neap_buffer line = {0};
			neap_buffer_append(&line, text, length);
			neap_slurm_complaint(&line, bad, 64);
			neap_buffer_fini(&line);
			return false;
		}
		if (!status)
			note_seen(slurm, places, count, &seen);
		text += length + 1;
	}
	return true;
}

/* What is under way, and what has ended not long ago. What is not listed is over. */
static enum neap_status ask_squeue(struct neap_slurm *slurm, const struct place *places, size_t count,
				   struct neap_error *err)
{
	char user[32], complaint[200], bad[64];
	struct neap_words words = {0};
	struct neap_buffer output = {0};
	snprintf(user, sizeof user, "--user=%u", (unsigned)getuid());
	enum neap_status status = ask((const char *const[]){"squeue", "--all", "--noheader", "--array",
							    "--states=all", user, "--format=%F|%K|%T|%r|%N", NULL},
				      &words, &output, complaint, err);
	if (status == NEAP_ETIMEDOUT || status == NEAP_EPROTO) { /* a controller that is down comes back */
		snprintf(complaint, sizeof complaint, "%s", err->message);
		status = NEAP_OK;
	}
	if (!status && *complaint)
		neap_series_say(&slurm->series, "squeue cannot say what runs: %s", complaint);
	else if (!status && !each_line(slurm, &output, places, count, neap_slurm_squeue_line, bad))
		neap_series_say(&slurm->series, "squeue printed a line that cannot be read: '%s'", bad);
	else
		slurm->asked = !status;
	neap_words_fini(&words);
	neap_buffer_fini(&output);
	return status;
}

/* What the accounting still knows of those that the controller has forgotten. Not every cluster has it. */
static enum neap_status ask_sacct(struct neap_slurm *slurm, const struct place *places, size_t count,
				  struct neap_error *err)
{
	struct neap_words words = {0};
	struct neap_buffer output = {0}, jobs = {0};
	struct neap_error ignored = {0};
	char complaint[200], bad[64];
	uint32_t last = 0;
	size_t asked = 0;
	for (size_t i = 0; i < count && asked < JOBS_ASKED; i++) {
		uint32_t job = (uint32_t)(places[i].key >> 32);
		if (slurm->seen[places[i].at].job || job == last)
			continue;
		neap_buffer_format(&jobs, "%s%" PRIu32, asked++ ? "," : "--jobs=", job);
		last = job;
	}
	enum neap_status status = neap_buffer_status(&jobs, err);
	if (asked && !status &&
	    !ask((const char *const[]){"sacct", "--noheader", "--parsable2", "--allocations",
				       neap_buffer_string(&jobs), "--format=JobID,State,NodeList", NULL},
		 &words, &output, complaint, &ignored) &&
	    !*complaint && !each_line(slurm, &output, places, count, neap_slurm_sacct_line, bad))
		neap_series_say(&slurm->series, "sacct printed a line that cannot be read: '%s'", bad);
	neap_words_fini(&words);
	neap_buffer_fini(&output);
	neap_buffer_fini(&jobs);
	return status;
}

static void output_path(const struct neap_slurm *slurm, size_t at, char path[4400])
{
	const struct neap_series_end *end = &slurm->series.state.ends[at];
	snprintf(path, 4400, "%s/slurm/%" PRIu32 "-%" PRIu32 ".out", slurm->folder, end->submission, end->task);
}

/* The end of a file; 0 bytes when it is not there. */
static size_t read_tail(const char *path, char text[LAST_WORDS_BYTES])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return 0;
	off_t end = lseek(fd, 0, SEEK_END);
	ssize_t got = pread(fd, text, LAST_WORDS_BYTES, end > LAST_WORDS_BYTES ? end - LAST_WORDS_BYTES : 0);
	close(fd);
	return got > 0 ? (size_t)got : 0;
}

/* Nobody knows it any more, but slurmstepd may have said why it ended it. */
static enum neap_slurm_state read_last_words(const struct neap_slurm *slurm, size_t at)
{
	char path[4400], text[LAST_WORDS_BYTES];
	output_path(slurm, at, path);
	return neap_slurm_last_words(text, read_tail(path, text));
}

static enum neap_status ask_slurm(struct neap_slurm *slurm, struct neap_error *err)
{
	size_t count = 0;
	const struct neap_series_state *state = &slurm->series.state;
	slurm->asked = false;
	memset(slurm->seen, 0, state->count * sizeof *slurm->seen);
	struct place *places = make_places(slurm, &count);
	enum neap_status status = places ? NEAP_OK : neap_fail(err, NEAP_ENOMEM, "asking Slurm: out of memory");
	if (!status)
		status = ask_squeue(slurm, places, count, err);
	if (!status && slurm->asked) {
		/* The accounting may believe that what the controller lost still runs. */
		bool *listed = calloc(count + 1, sizeof *listed);
		for (size_t i = 0; listed && i < count; i++)
			listed[i] = slurm->seen[places[i].at].job != 0;
		status = listed ? ask_sacct(slurm, places, count, err)
				: neap_fail(err, NEAP_ENOMEM, "asking Slurm: out of memory");
		for (size_t i = 0; !status && i < count; i++) {
			struct neap_slurm_seen *seen = &slurm->seen[places[i].at];
			if (!listed[i] && (seen->state == NEAP_SLURM_PENDING || seen->state == NEAP_SLURM_RUNNING))
				*seen = (struct neap_slurm_seen){0};
			if (seen->state == NEAP_SLURM_GONE)
				seen->state = read_last_words(slurm, places[i].at);
		}
		free(listed);
	}
	free(places);
	return status;
}

/* --- one attempt --------------------------------------------------------------------------------------------------
 */

static struct neap_step step_of(const struct neap_slurm *slurm, size_t at)
{
	return (struct neap_step){NEAP_STEP_TAKE, at, slurm->series.state.experiments[at].attempts};
}

static enum neap_status append_of(struct neap_slurm *slurm, const char *type, size_t at, struct neap_error *err)
{
	return neap_series_append(
		&slurm->series,
		neap_series_record_of(type, name_of(slurm, at), slurm->series.state.experiments[at].attempts), err);
}

static void say_of(struct neap_slurm *slurm, size_t at, const char *why)
{
	neap_series_say(&slurm->series, "[%zu/%zu] %s: attempt %" PRIu32 ": %s", at + 1, slurm->series.spec->count,
			name_of(slurm, at), slurm->series.state.experiments[at].attempts, why);
}

/* A lost attempt, with the last thing that was said in a file. */
static enum neap_status lose(struct neap_slurm *slurm, size_t at, const char *why, const char *path,
			     struct neap_error *err)
{
	char tail[LAST_WORDS_BYTES], last[160], text[400];
	struct neap_buffer bytes = {0};
	neap_buffer_append(&bytes, tail, read_tail(path, tail));
	neap_slurm_complaint(&bytes, last, sizeof last);
	neap_buffer_fini(&bytes);
	snprintf(text, sizeof text, "is lost: %s%s%s", why, *last ? ": " : "", last);
	say_of(slurm, at, text);
	return append_of(slurm, "lost", at, err);
}

/* All that is known of an open attempt. */
struct found {
	struct neap_attempt attempt;
	struct neap_slurm_claim claim, next; /* of the attempt, and of the one after it */
	struct neap_slurm_facts facts;
	struct neap_result result; /* where facts.has_result; ours to free */
	bool damaged;              /* there is a result file that cannot be read */
};

static enum neap_status read_claims(struct neap_slurm *slurm, size_t at, struct found *found, struct neap_error *err)
{
	struct neap_attempt next;
	uint32_t number = slurm->series.state.experiments[at].attempts;
	enum neap_status status = neap_slurm_claim_read(found->attempt.folder, &found->claim, err);
	if (status == NEAP_ENOENT)
		return NEAP_OK;
	if (status)
		return status;
	found->facts.claimed = found->claim.job ? NEAP_SLURM_BEGUN : NEAP_SLURM_WITHDRAWN;
	if (!found->claim.job)
		return NEAP_OK;
	status = neap_attempt_init(&next, slurm->series.summary->folder, name_of(slurm, at), number + 1, err);
	if (!status)
		status = neap_slurm_claim_read(next.folder, &found->next, err);
	if (status == NEAP_ENOENT)
		return NEAP_OK;
	found->facts.begun_again =
		!status && found->next.job == found->claim.job && found->next.task == found->claim.task;
	return status;
}

/* NFS remembers for up to a minute that a name was not there. Opening a folder asks the server whether it has
 * changed: then what other machines have put into it since is seen. */
static void look_afresh(const char *folder)
{
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
}

static enum neap_status look_at(struct neap_slurm *slurm, size_t at, struct found *found, struct neap_error *err)
{
	const struct neap_series_state *state = &slurm->series.state;
	enum neap_step_found there = NEAP_STEP_FOUND_NOTHING;
	struct neap_error why = {0};
	char path[4096];
	*found = (struct found){.facts = {.has_job = job_of(state, at) != 0}};
	found->facts.state = slurm->seen[at].state;
	found->facts.asked = slurm->asked;
	enum neap_status status = neap_attempt_init(&found->attempt, slurm->series.summary->folder,
						    name_of(slurm, at), state->experiments[at].attempts, err);
	if (!status && !neap_path_join(path, sizeof path, slurm->folder, "runs")) {
		look_afresh(path);
		look_afresh(found->attempt.folder);
	}
	if (!status)
		status = read_claims(slurm, at, found, err);
	/* The lock before the result: who holds it leaves a result first. */
	if (!status && found->facts.claimed == NEAP_SLURM_BEGUN && slurm->asked &&
	    slurm->seen[at].state != NEAP_SLURM_PENDING && slurm->seen[at].state != NEAP_SLURM_RUNNING)
		status = neap_attempt_find(&found->attempt, &there, err);
	/* Slurm knows better than a file of a node's, where there are no locks, that the task is over. */
	if (!status && there == NEAP_STEP_FOUND_LOCK && neap_owner_forget(found->attempt.folder))
		status = neap_attempt_find(&found->attempt, &there, err);
	found->facts.lock_held = there == NEAP_STEP_FOUND_LOCK;
	if (!status && neap_path_join(path, sizeof path, found->attempt.folder, "result.json"))
		status = neap_fail(err, NEAP_EINVAL, "the folder's name is too long: %.120s", found->attempt.folder);
	if (status)
		return status;
	/* What its task left in its last moment is as good as a result; ESTATE: the run was to be started again. */
	if (there == NEAP_STEP_FOUND_ENDED) {
		status = neap_run_stage_recover_locked(found->attempt.folder, err);
		if (status && status != NEAP_ESTATE && status != NEAP_EPARSE)
			return status;
	}
	status = neap_result_read(path, &found->result, &why);
	found->damaged = status == NEAP_EPARSE;
	found->facts.has_result = status == NEAP_OK;
	if (found->facts.has_result)
		found->facts.outcome = found->result.outcome;
	else if (status == NEAP_ENOENT || status == NEAP_EPARSE)
		status = NEAP_OK;
	else if (err)
		*err = why;
	return status;
}

/* The time that a file was last written, in nanoseconds since 1970; 0 when it is not there. */
static uint64_t written_ns(const char *path)
{
	struct stat info;
	if (stat(path, &info))
		return 0;
	return (uint64_t)info.st_mtim.tv_sec * NEAP_NS_PER_S + (uint64_t)info.st_mtim.tv_nsec;
}

/* A result for one that had no time to leave its own. Its claim says when it began, slurmstepd's last words when it
 * ended. */
static enum neap_status make_result(struct neap_slurm *slurm, size_t at, struct found *found, struct neap_error *err)
{
	const struct neap_experiment *experiment = &slurm->series.spec->experiments[at];
	struct neap_result *result = &found->result;
	char path[4400];
	char *command = neap_words_join(&experiment->command), *params = neap_words_join(&experiment->params);
	enum neap_status status = neap_result_init(result, err);
	if (!status && (!command || !params))
		status = neap_fail(err, NEAP_ENOMEM, "gathering a series: out of memory");
	const struct {
		char **field;
		const char *text;
	} texts[] = {
		{&result->name, experiment->name},
		{&result->command, command},
		{&result->parameters, params},
		{&result->run_id, slurm->series.state.ends[at].run_id},
	};
	for (size_t i = 0; i < sizeof texts / sizeof *texts && !status; i++)
		status = neap_result_set(texts[i].field, texts[i].text, err);
	free(command);
	free(params);
	found->facts.has_result = true; /* what there is of it is to be freed */
	snprintf(path, sizeof path, "%s/claim", found->attempt.folder);
	result->started_wall_ns = written_ns(path);
	output_path(slurm, at, path);
	result->ended_wall_ns = written_ns(path);
	if (result->ended_wall_ns < result->started_wall_ns)
		result->ended_wall_ns = result->started_wall_ns;
	result->duration_ns = result->ended_wall_ns - result->started_wall_ns;
	result->exit_status = 128 + 9;
	return status;
}

/* Writes what Slurm knows better than the run itself could. */
static enum neap_status amend_result(struct neap_slurm *slurm, size_t at, struct found *found,
				     const struct neap_slurm_verdict *verdict, struct neap_error *err)
{
	char path[4200], evidence[320];
	const struct neap_slurm_claim *claim = &found->claim;
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
	neap_series_say_end(series, step, &found->result);
	if (neap_series_is_deviceless(series, step, &found->result)) { /* Slurm waits for a device, and chooses it */
		neap_series_say(series, "[%zu/%zu] %s: its device was lost: another attempt (%u of %d)", at + 1,
				series->spec->count, name_of(slurm, at), series->state.experiments[at].deviceless + 1,
				NEAP_SERIES_LOST_LIMIT - 1);
		return append_of(slurm, "device_lost", at, err);
	}
	if (neap_series_is_to_be_retried(series, step, &found->result)) {
		neap_series_say(series, "[%zu/%zu] %s: failed, another attempt (%u of %s)", at + 1,
				series->spec->count, name_of(slurm, at), series->state.experiments[at].failed + 1,
				series->spec->experiments[at].retry_failed);
		return append_of(slurm, "retry", at, err);
	}
	int code = found->result.exit_status;
	return neap_series_append(series,
				  neap_series_record_end(name_of(slurm, at), step.attempt, found->result.outcome,
							 code < 0 || code > 255 ? 255 : code),
				  err);
}

/* The task that Slurm has requeued goes on as the next attempt, under the same submission. */
static enum neap_status follow(struct neap_slurm *slurm, size_t at, const struct found *found, struct neap_error *err)
{
	const struct neap_series_end *end = &slurm->series.state.ends[at];
	char first[NEAP_RUN_ID_ROOM], run_id[NEAP_RUN_ID_ROOM];
	snprintf(first, sizeof first, "%s", end->run_id);
	char *suffix = strstr(first, ".r");
	if (suffix)
		*suffix = '\0';
	neap_slurm_run_id(first, found->next.restarts, run_id);
	return neap_series_append(&slurm->series,
				  neap_series_record_task(&slurm->series.spec->experiments[at],
							  slurm->series.state.experiments[at].attempts + 1, run_id,
							  end->submission, end->task),
				  err);
}

static enum neap_status cancel(struct neap_slurm *slurm, size_t at, struct found *found, const char *why,
			       struct neap_error *err)
{
	bool by_user = slurm->seen[at].state == NEAP_SLURM_CANCELLED;
	if (found->facts.has_result)
		neap_series_keep(&slurm->series, &found->result);
	say_of(slurm, at, why);
	enum neap_status status = append_of(slurm, "cancel", at, err);
	if (!status && found->facts.begun_again)
		return follow(slurm, at, found, err);
	slurm->withheld[at] = by_user && !slurm->first_look;
	return status;
}

static enum neap_status withdraw(struct neap_slurm *slurm, size_t at, struct found *found,
				 const struct neap_slurm_verdict *verdict, bool *ret_moved, struct neap_error *err)
{
	bool withdrawn = false;
	enum neap_status status = neap_slurm_withdraw(slurm, at, &withdrawn, err);
	*ret_moved = withdrawn; /* else it was begun at this very instant: the next look sees it */
	if (status || !withdrawn)
		return status;
	if (!verdict->counts)
		return cancel(slurm, at, found, verdict->why, err);
	char path[4400];
	output_path(slurm, at, path);
	return lose(slurm, at, verdict->why, path, err);
}

/* *ret_moved: the journal says more than before. */
static enum neap_status go_on_with(struct neap_slurm *slurm, size_t at, bool *ret_moved, struct neap_error *err)
{
	struct found found;
	char path[4200];
	enum neap_status status = look_at(slurm, at, &found, err);
	struct neap_slurm_verdict verdict = neap_slurm_decide(&found.facts);
	*ret_moved = !status && verdict.action != NEAP_SLURM_WAIT;
	if (!status && found.damaged) {
		*ret_moved = true;
		say_of(slurm, at, "is lost: its result is damaged");
		status = append_of(slurm, "lost", at, err);
	} else if (!status) {
		switch (verdict.action) {
		case NEAP_SLURM_WAIT:
			break;
		case NEAP_SLURM_TAKE:
			status = take(slurm, at, &found, &verdict, err);
			break;
		case NEAP_SLURM_CANCEL:
			status = cancel(slurm, at, &found, verdict.why, err);
			break;
		case NEAP_SLURM_WITHDRAW:
			status = withdraw(slurm, at, &found, &verdict, ret_moved, err);
			break;
		case NEAP_SLURM_LOSE:
			snprintf(path, sizeof path, "%s/neap.log", found.attempt.folder);
			status = lose(slurm, at, verdict.why, path, err);
			break;
		}
	}
	if (found.facts.has_result)
		neap_result_fini(&found.result);
	neap_attempt_fini(&found.attempt);
	return status;
}

/* --- all of them --------------------------------------------------------------------------------------------------
 */

/* Killed between sbatch and the journal: a task that has begun knows its job. */
static enum neap_status find_jobs(struct neap_slurm *slurm, struct neap_error *err)
{
	struct neap_series_state *state = &slurm->series.state;
	enum neap_status status = NEAP_OK;
	for (size_t i = 0; i < state->count && !status; i++) {
		struct neap_slurm_claim claim = {0};
		struct neap_attempt attempt;
		if (!state->experiments[i].open || job_of(state, i))
			continue;
		status = neap_attempt_init(&attempt, slurm->series.summary->folder, name_of(slurm, i),
					   state->experiments[i].attempts, err);
		if (!status && !neap_slurm_claim_read(attempt.folder, &claim, NULL) && claim.job)
			status = neap_series_append(
				&slurm->series, neap_series_record_submit(state->ends[i].submission, claim.job), err);
	}
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

static void count_one(struct neap_slurm *slurm, size_t at)
{
	const struct neap_slurm_seen *seen = &slurm->seen[at];
	const struct neap_series_end *end = &slurm->series.state.ends[at];
	char on[NEAP_SLURM_WORD_ROOM + 4] = "";
	neap_slurm_add_job(slurm->summary, job_of(&slurm->series.state, at));
	if (seen->state != NEAP_SLURM_RUNNING) {
		slurm->summary->pending += seen->state == NEAP_SLURM_PENDING;
		return;
	}
	slurm->summary->running++;
	if (slurm->told[at] == slurm->series.state.experiments[at].attempts)
		return;
	slurm->told[at] = slurm->series.state.experiments[at].attempts;
	if (*seen->nodes)
		snprintf(on, sizeof on, " on %s", seen->nodes);
	neap_series_say(&slurm->series, "[%zu/%zu] %s: running%s, task %" PRIu32 "_%" PRIu32, at + 1,
			slurm->series.spec->count, name_of(slurm, at), on, seen->job, end->task);
}

enum neap_status neap_slurm_gather(struct neap_slurm *slurm, struct neap_error *err)
{
	struct neap_series_state *state = &slurm->series.state;
	struct neap_slurm_summary *summary = slurm->summary;
	summary->running = summary->pending = summary->job_count = 0;
	if (neap_step_open(state->experiments, state->count, 0) == state->count)
		return NEAP_OK;
	enum neap_status status = find_jobs(slurm, err);
	if (!status)
		status = ask_slurm(slurm, err);
	for (size_t i = 0; i < state->count && !status; i++) {
		bool moved = true;
		while (state->experiments[i].open && moved && !status)
			status = go_on_with(slurm, i, &moved, err);
		if (state->experiments[i].open && !status)
			count_one(slurm, i);
	}
	return status;
}
