/* slurm/task.c: see task.h. */
#include "slurm/task.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "series/series_attempt.h"
#include "slurm/claim.h"
#include "slurm/decide.h"
#include "slurm/plan.h"
#include "store/json_memory.h"
#include "store/result.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCHEMA     2
#define WORK_BYTES (16u * 1024 * 1024)
/* The series may be looking at the lock at this very instant. */
#define LOCK_TRIES 500
#define LOCK_PAUSE (20 * NEAP_NS_PER_MS)

/* --- N.json -------------------------------------------------------------------------------------------------------
 */

static void hash_text(const struct neap_spec *spec, char text[17]) { snprintf(text, 17, "%016" PRIx64, spec->hash); }

enum neap_status neap_slurm_work_write(const char *path, const struct neap_spec *spec,
				       const struct neap_slurm_work *work, size_t count, struct neap_error *err)
{
	char hash[17];
	const uint64_t failures = neap_json_failures();
	json_t *list = json_array();
	hash_text(spec, hash);
	for (size_t i = 0; i < count; i++)
		json_array_append_new(list,
				      json_pack("{s:s, s:I, s:s}", "name", spec->experiments[work[i].experiment].name,
						"attempt", (json_int_t)work[i].attempt, "needs", work[i].needs));
	json_t *root = json_pack("{s:i, s:s, s:o}", "schema", SCHEMA, "spec_hash", hash, "experiments", list);
	char *text = neap_json_dump(root, JSON_INDENT(1));
	json_decref(root);
	enum neap_status status = text && neap_json_failures() == failures
					  ? neap_file_write(path, text, strlen(text), err)
					  : neap_fail(err, NEAP_ENOMEM, "writing %.150s: out of memory", path);
	free(text);
	return status;
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));
	return text ? text : "";
}

static bool parse_entry(const json_t *entry, const struct neap_spec *spec, struct neap_slurm_work *work)
{
	json_int_t attempt = json_integer_value(json_object_get(entry, "attempt"));
	const char *needs = text_of(entry, "needs");
	while (work->experiment < spec->count &&
	       strcmp(spec->experiments[work->experiment].name, text_of(entry, "name")) != 0)
		work->experiment++;
	if (work->experiment == spec->count || attempt < 1 || attempt > UINT32_MAX / 2 || !*needs ||
	    strlen(needs) >= sizeof work->needs)
		return false;
	work->attempt = (uint32_t)attempt;
	strcpy(work->needs, needs);
	return true;
}

static enum neap_status parse_work(const json_t *root, const char *path, const struct neap_spec *spec,
				   struct neap_slurm_work **ret_work, size_t *ret_count, struct neap_error *err)
{
	const json_t *list = json_object_get(root, "experiments");
	size_t count = json_array_size(list);
	char hash[17];
	hash_text(spec, hash);
	if (json_integer_value(json_object_get(root, "schema")) != SCHEMA || !count)
		return neap_fail(err, NEAP_EPARSE, "%.150s: expected the experiments of a submission, schema %d",
				 path, SCHEMA);
	if (strcmp(text_of(root, "spec_hash"), hash) != 0)
		return neap_fail(err, NEAP_EPARSE, "%.150s: made from another series file", path);
	struct neap_slurm_work *work = calloc(count, sizeof *work);
	if (!work)
		return neap_fail(err, NEAP_ENOMEM, "reading %.150s: out of memory", path);
	for (size_t i = 0; i < count; i++)
		if (!parse_entry(json_array_get(list, i), spec, &work[i])) {
			free(work);
			return neap_fail(err, NEAP_EPARSE, "%.150s: its experiment %zu makes no sense", path, i + 1);
		}
	*ret_work = work;
	*ret_count = count;
	return NEAP_OK;
}

enum neap_status neap_slurm_work_read(const char *path, const struct neap_spec *spec,
				      struct neap_slurm_work **ret_work, size_t *ret_count, struct neap_error *err)
{
	struct neap_buffer text = {0};
	json_error_t where;
	enum neap_status status = neap_file_read(path, WORK_BYTES, &text, err);
	const uint64_t failures = neap_json_failures();
	json_t *root = status ? NULL : neap_json_load(neap_buffer_string(&text), text.length, &where);
	if (neap_json_failures() != failures)
		status = neap_fail(err, NEAP_ENOMEM, "reading %.150s: out of memory", path);
	if (!status)
		status = parse_work(root, path, spec, ret_work, ret_count, err);
	json_decref(root);
	neap_buffer_fini(&text);
	return status;
}

/* --- the task -----------------------------------------------------------------------------------------------------
 */

/* A number from Slurm's environment. */
static bool number_from(const char *name, uint32_t *ret_number)
{
	uint64_t number = 0;
	const char *text = getenv(name);
	if (!text || neap_u64_parse(text, &number, NULL) || number > UINT32_MAX)
		return false;
	*ret_number = (uint32_t)number;
	return true;
}

static enum neap_status read_environment(struct neap_slurm_claim *claim, struct neap_error *err)
{
	const char *node = getenv("SLURMD_NODENAME");
	if (!number_from("SLURM_ARRAY_JOB_ID", &claim->job) || !claim->job ||
	    !number_from("SLURM_ARRAY_TASK_ID", &claim->task) || !claim->task)
		return neap_fail(err, NEAP_EINVAL,
				 "this is what a task of Slurm's job array runs: SLURM_ARRAY_JOB_ID and "
				 "SLURM_ARRAY_TASK_ID are not set");
	number_from("SLURM_RESTART_COUNT", &claim->restarts);
	if (node && *node && !strpbrk(node, " \t\n"))
		snprintf(claim->node, sizeof claim->node, "%s", node);
	neap_run_id_make(claim->run_id);
	return NEAP_OK;
}

/* A result that no other attempt has to follow. Errors: it is there, and cannot be read now. */
static enum neap_status find_end(const char *folder, bool *ret_end, struct neap_error *err)
{
	char path[4096];
	struct neap_result result = {0};
	*ret_end = false;
	if (neap_path_join(path, sizeof path, folder, "result.json"))
		return NEAP_OK;
	enum neap_status status = neap_result_read(path, &result, err);
	if (status)
		return status == NEAP_ENOENT || status == NEAP_EPARSE ? NEAP_OK : status;
	*ret_end = !neap_slurm_may_have_ended(result.outcome);
	neap_result_fini(&result);
	return NEAP_OK;
}

/* Whether an attempt is an earlier start of this task, ended by Slurm. */
static enum neap_status find_requeued(const struct neap_slurm_claim *claim, const char *folder, bool *ret_requeued,
				      struct neap_error *err)
{
	struct neap_slurm_claim other = {0};
	bool ended = false;
	enum neap_status status = neap_slurm_claim_read(folder, &other, err);
	if (status == NEAP_EPARSE) /* damaged: nobody's to run */
		status = NEAP_OK;
	else if (!status)
		status = find_end(folder, &ended, err);
	*ret_requeued =
		!ended && other.job == claim->job && other.task == claim->task && other.restarts < claim->restarts;
	return status;
}

/* NEAP_EEXIST: another task has claimed it. */
static enum neap_status claim_one(const struct neap_slurm_claim *claim, const char *series_folder,
				  const char *experiment, uint32_t first, struct neap_attempt *attempt,
				  struct neap_error *err)
{
	bool requeued = true;
	enum neap_status status = NEAP_EEXIST;
	for (uint32_t i = 0; status == NEAP_EEXIST && requeued && i <= claim->restarts; i++) {
		status = neap_attempt_init(attempt, series_folder, experiment, first + i, err);
		if (!status)
			status = neap_slurm_claim_make(attempt->folder, claim, err);
		enum neap_status found =
			status == NEAP_EEXIST ? find_requeued(claim, attempt->folder, &requeued, err) : NEAP_OK;
		if (found)
			return found;
	}
	return status;
}

/* The next one that nobody has begun. NEAP_EEXIST: there is none. */
static enum neap_status claim_next(const struct neap_slurm_claim *claim, const struct neap_spec *spec,
				   const char *folder, const struct neap_slurm_work *work, size_t count,
				   const struct neap_slurm_work **ret_chosen, struct neap_attempt *attempt,
				   struct neap_error *err)
{
	enum neap_status status = NEAP_EEXIST;
	for (size_t i = 0; status == NEAP_EEXIST && i < count; i++) {
		const struct neap_slurm_work *next = &work[(claim->task - 1 + i) % count];
		status = claim_one(claim, folder, spec->experiments[next->experiment].name, next->attempt, attempt,
				   err);
		if (!status)
			*ret_chosen = next;
	}
	return status;
}

/* What a login session has and a job has not. */
static void leave_session(void)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	if (runtime && access(runtime, W_OK | X_OK))
		unsetenv("XDG_RUNTIME_DIR");
}

static enum neap_status become(const struct neap_slurm_claim *claim, const struct neap_experiment *experiment,
			       const char *needs, struct neap_attempt *attempt, const char *program,
			       struct neap_error *err)
{
	enum neap_status status;
	for (int i = 0; (status = neap_attempt_claim(attempt, err)) == NEAP_EBUSY && i < LOCK_TRIES; i++)
		neap_clock_sleep(neap_clock_system(), LOCK_PAUSE);
	if (status)
		return status;
	leave_session();
	return neap_attempt_become(attempt, program, experiment, needs, claim->run_id, err);
}

/* The task's output is read by people, and by neap_slurm_last_words. */
static void tell(const struct neap_slurm_claim *claim, const struct neap_experiment *experiment,
		 const struct neap_attempt *attempt, void (*say)(const char *line))
{
	char line[400];
	snprintf(line, sizeof line, NEAP_SLURM_BEGINS " %" PRIu32 "_%" PRIu32 " runs %.80s in %.250s", claim->job,
		 claim->task, experiment->name, attempt->folder);
	say(line);
}

enum neap_status neap_slurm_task_run(const struct neap_spec *spec, const char *folder, uint32_t submission,
				     const char *program, void (*say)(const char *line), struct neap_error *err)
{
	struct neap_slurm_claim claim = {0};
	struct neap_slurm_work *work = NULL;
	const struct neap_slurm_work *chosen = NULL;
	struct neap_attempt attempt = {.lock_fd = -1, .pidfd = -1, .log_fd = -1};
	char path[4096];
	size_t count = 0;
	enum neap_status status = read_environment(&claim, err);
	if (!status)
		status = neap_slurm_path(folder, submission, ".json", path, err);
	if (!status)
		status = neap_slurm_work_read(path, spec, &work, &count, err);
	if (!status)
		status = claim_next(&claim, spec, folder, work, count, &chosen, &attempt, err);
	if (status == NEAP_EEXIST) {
		say(NEAP_SLURM_BEGINS ": other tasks have begun every experiment of this array: nothing to do");
		status = NEAP_OK;
	} else if (!status) {
		tell(&claim, &spec->experiments[chosen->experiment], &attempt, say);
		status =
			become(&claim, &spec->experiments[chosen->experiment], chosen->needs, &attempt, program, err);
	}
	neap_attempt_fini(&attempt);
	free(work);
	return status;
}
