/* series/slurm_task.c: see slurm_task.h. */
#include "series/slurm_task.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "series/series_attempt.h"
#include "series/slurm_claim.h"
#include "series/slurm_decide.h"
#include "series/slurm_plan.h"
#include "store/json_memory.h"
#include "store/result.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TASKS_BYTES (16u * 1024 * 1024)
/* The series may be looking at the lock at this very instant. */
#define LOCK_TRIES 500
#define LOCK_PAUSE (20 * NEAP_NS_PER_MS)

static void hash_text(const struct neap_spec *spec, char text[17]) { snprintf(text, 17, "%016" PRIx64, spec->hash); }

enum neap_status neap_slurm_tasks_write(const char *path, const struct neap_spec *spec,
					const struct neap_slurm_task *tasks, size_t count, struct neap_error *err)
{
	char hash[17];
	const uint64_t failures = neap_json_failures();
	json_t *list = json_array();
	hash_text(spec, hash);
	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, json_pack("{s:I, s:s, s:I, s:s, s:s}", "task", (json_int_t)tasks[i].task,
						      "experiment", spec->experiments[tasks[i].experiment].name,
						      "attempt", (json_int_t)tasks[i].attempt, "run_id",
						      tasks[i].run_id, "needs", tasks[i].needs));
	json_t *root = json_pack("{s:i, s:s, s:o}", "schema", 1, "spec_hash", hash, "tasks", list);
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

static bool parse_task(const json_t *entry, const struct neap_spec *spec, struct neap_slurm_task *task)
{
	json_int_t attempt = json_integer_value(json_object_get(entry, "attempt"));
	const char *run_id = text_of(entry, "run_id"), *needs = text_of(entry, "needs");
	while (task->experiment < spec->count &&
	       strcmp(spec->experiments[task->experiment].name, text_of(entry, "experiment")) != 0)
		task->experiment++;
	if (task->experiment == spec->count || attempt < 1 || attempt > UINT32_MAX / 2 || !*run_id || !*needs ||
	    strlen(run_id) >= sizeof task->run_id || strlen(needs) >= sizeof task->needs)
		return false;
	task->attempt = (uint32_t)attempt;
	strcpy(task->run_id, run_id);
	strcpy(task->needs, needs);
	return true;
}

enum neap_status neap_slurm_tasks_read(const char *path, const struct neap_spec *spec, uint32_t number,
				       struct neap_slurm_task *ret_task, struct neap_error *err)
{
	struct neap_buffer text = {0};
	struct neap_slurm_task task = {.task = number};
	json_error_t where;
	json_t *root = NULL, *entry = NULL;
	char hash[17];
	size_t index;
	enum neap_status status = neap_file_read(path, TASKS_BYTES, &text, err);
	if (status)
		goto out;
	hash_text(spec, hash);
	const uint64_t failures = neap_json_failures();
	root = neap_json_load(neap_buffer_string(&text), text.length, &where);
	if (neap_json_failures() != failures) {
		status = neap_fail(err, NEAP_ENOMEM, "reading %.150s: out of memory", path);
		goto out;
	}
	if (!root || json_integer_value(json_object_get(root, "schema")) != 1 ||
	    !json_is_array(json_object_get(root, "tasks"))) {
		status = neap_fail(err, NEAP_EPARSE, "%.150s: expected the tasks of a submission, schema 1", path);
		goto out;
	}
	if (strcmp(text_of(root, "spec_hash"), hash) != 0) {
		status = neap_fail(err, NEAP_EPARSE, "%.150s: made from another series file", path);
		goto out;
	}
	status = neap_fail(err, NEAP_ENOENT, "%.150s: no task %" PRIu32 " was submitted", path, number);
	json_array_foreach(json_object_get(root, "tasks"), index, entry)
	{
		if (json_integer_value(json_object_get(entry, "task")) != (json_int_t)number)
			continue;
		status = parse_task(entry, spec, &task)
				 ? NEAP_OK
				 : neap_fail(err, NEAP_EPARSE, "%.150s: task %" PRIu32 " makes no sense", path,
					     number);
		break;
	}
	if (!status)
		*ret_task = task;
out:
	json_decref(root);
	neap_buffer_fini(&text);
	return status;
}

void neap_slurm_run_id(const char *first, uint32_t restarts, char run_id[NEAP_RUN_ID_ROOM])
{
	if (restarts)
		snprintf(run_id, NEAP_RUN_ID_ROOM, "%.50s.r%" PRIu32, first, restarts);
	else
		snprintf(run_id, NEAP_RUN_ID_ROOM, "%s", first);
}

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
	    !number_from("SLURM_ARRAY_TASK_ID", &claim->task))
		return neap_fail(err, NEAP_EINVAL,
				 "this is what a task of Slurm's job array runs: SLURM_ARRAY_JOB_ID and "
				 "SLURM_ARRAY_TASK_ID are not set");
	number_from("SLURM_RESTART_COUNT", &claim->restarts);
	if (node && *node && !strpbrk(node, " \t\n"))
		snprintf(claim->node, sizeof claim->node, "%s", node);
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

/* The first attempt from `attempt` on that is not this task's own of an earlier start. NEAP_EEXIST: it is someone
 * else's, and `note` says whose. */
static enum neap_status claim_attempt(const struct neap_slurm_claim *claim, const char *series_folder,
				      const char *experiment, uint32_t number, struct neap_attempt *attempt,
				      char *note, struct neap_error *err)
{
	struct neap_slurm_claim other = {0};
	for (uint32_t i = 0; i <= claim->restarts; i++) {
		enum neap_status status = neap_attempt_init(attempt, series_folder, experiment, number + i, err);
		if (!status)
			status = neap_slurm_claim_make(attempt->folder, claim, err);
		if (status != NEAP_EEXIST)
			return status;
		status = neap_slurm_claim_read(attempt->folder, &other, err);
		bool end = false;
		if (!status)
			status = find_end(attempt->folder, &end, err);
		if (status)
			return status;
		if (!other.job)
			snprintf(note, 256, "attempt %" PRIu32 " of %.80s was withdrawn: nothing to do", number + i,
				 experiment);
		else if (end)
			snprintf(note, 256, "attempt %" PRIu32 " of %.80s has a result: nothing to do", number + i,
				 experiment);
		else if (other.job != claim->job || other.task != claim->task || other.restarts >= claim->restarts)
			snprintf(note, 256,
				 "attempt %" PRIu32 " of %.80s was begun by task %" PRIu32 "_%" PRIu32
				 " on %s: nothing to do",
				 number + i, experiment, other.job, other.task, other.node);
		if (*note)
			return NEAP_EEXIST;
	}
	return neap_fail(err, NEAP_EINTERNAL, "more attempts of '%.80s' than Slurm restarted it", experiment);
}

/* What a login session has and a job has not. */
static void leave_session(void)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	if (runtime && access(runtime, W_OK | X_OK))
		unsetenv("XDG_RUNTIME_DIR");
}

static enum neap_status become(struct neap_attempt *attempt, const struct neap_spec *spec,
			       const struct neap_slurm_task *task, uint32_t restarts, const char *program,
			       struct neap_error *err)
{
	char run_id[NEAP_RUN_ID_ROOM];
	enum neap_status status;
	for (int i = 0; (status = neap_attempt_claim(attempt, err)) == NEAP_EBUSY && i < LOCK_TRIES; i++)
		neap_clock_sleep(neap_clock_system(), LOCK_PAUSE);
	if (status)
		return status;
	leave_session();
	neap_slurm_run_id(task->run_id, restarts, run_id);
	return neap_attempt_become(attempt, program, &spec->experiments[task->experiment], task->needs, run_id, err);
}

enum neap_status neap_slurm_task_run(const struct neap_spec *spec, const char *folder, uint32_t submission,
				     const char *program, char *note, struct neap_error *err)
{
	struct neap_slurm_claim claim = {0};
	struct neap_slurm_task task;
	struct neap_attempt attempt = {.lock_fd = -1, .pidfd = -1, .log_fd = -1};
	char path[4096];
	note[0] = '\0';
	enum neap_status status = read_environment(&claim, err);
	if (!status)
		status = neap_slurm_path(folder, submission, ".json", path, err);
	if (!status)
		status = neap_slurm_tasks_read(path, spec, claim.task, &task, err);
	if (!status)
		status = claim_attempt(&claim, folder, spec->experiments[task.experiment].name, task.attempt,
				       &attempt, note, err);
	if (status == NEAP_EEXIST && *note)
		return NEAP_OK;
	if (!status)
		status = become(&attempt, spec, &task, claim.restarts, program, err);
	neap_attempt_fini(&attempt);
	return status;
}
