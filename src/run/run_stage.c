/* run/run_stage.c: see run_stage.h. `ended` is an object:
 *
 *   {"schema": 1, "rung_left": B, "ooms": N, "started_ns": T, "log_offset": N,
 *    "evidence": {...},   the supervisor's own: struct neap_evidence without the fields from recordings and logs
 *    "result": {...}}     store/result.h, with the figures known so far
 *
 * It is read like any file from outside, though only neap writes it.
 */
#include "run/run_stage.h"

#include "base/owner.h"
#include "run/recordings.h"
#include "run/supervise_internal.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "store/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define SCHEMA      1
#define ENDED_LIMIT (1u << 20)
#define SETTLE_NS   (60 * NEAP_NS_PER_S)

static bool is_there(const char *folder, const char *name)
{
	char path[4200];
	return !neap_path_join(path, sizeof path, folder, name) && !access(path, F_OK);
}

enum neap_run_stage neap_run_stage_read(const char *folder)
{
	if (is_there(folder, "result.json"))
		return NEAP_STAGE_OVER;
	if (is_there(folder, "ended"))
		return NEAP_STAGE_ENDED;
	return is_there(folder, "began") ? NEAP_STAGE_BEGAN : NEAP_STAGE_UNBEGUN;
}

static void forget(const char *folder, const char *name)
{
	char path[4200];
	if (!neap_path_join(path, sizeof path, folder, name))
		unlink(path);
}

bool neap_run_stage_is_kept(const char *folder) { return !is_there(folder, "ended"); }

void neap_run_stage_forget(const char *folder)
{
	forget(folder, "began");
	forget(folder, "ended");
}

enum neap_status neap_run_stage_begin(const struct neap_supervise *run, struct neap_error *err)
{
	char path[4200], line[128];
	enum neap_status status = neap_path_join(path, sizeof path, run->folder, "began");
	int length = snprintf(line, sizeof line, "%s %" PRIu64 "\n", run->run_id, neap_wall_ns());
	if (status)
		return neap_fail(err, status, "the path of %s/began is too long", run->folder);
	forget(run->folder, "ended"); /* left by an earlier run that never started */
	return neap_file_write(path, line, (size_t)length, err);
}

void neap_run_stage_begin_again(const struct neap_supervise *run)
{
	forget(run->folder, "ended");
	neap_sync_folder(run->folder, NULL);
}

/* The numbers and texts of the evidence, written and read by this table. */
static const struct {
	const char *key;
	size_t offset, capacity; /* capacity 0: an int */
} evidence_fields[] = {
#define NUMBER(name) #name, offsetof(struct neap_evidence, name), 0
#define TEXT(name)   #name, offsetof(struct neap_evidence, name), sizeof((struct neap_evidence *)0)->name
	{NUMBER(wait_status)}, {NUMBER(canceled_by)}, {NUMBER(killed_by)}, {TEXT(lost_text)},
	{TEXT(limit_text)},    {TEXT(stderr_line)},   {TEXT(lost_line)},   {TEXT(error_line)},
#undef NUMBER
#undef TEXT
};
#define EVIDENCE_FIELDS (sizeof evidence_fields / sizeof *evidence_fields)

static json_t *evidence_value(const struct neap_evidence *evidence)
{
	json_t *object = json_pack("{s:b, s:I}", "timed_out", evidence->timed_out, "host_kills",
				   (json_int_t)evidence->host_kills);
	for (size_t i = 0; i < EVIDENCE_FIELDS; i++) {
		const char *place = (const char *)evidence + evidence_fields[i].offset;
		neap_json_set(object, evidence_fields[i].key,
			      evidence_fields[i].capacity ? neap_json_text(place)
							  : json_integer(*(const int *)place));
	}
	return object;
}

static bool read_evidence(const json_t *object, struct neap_evidence *evidence)
{
	if (!json_is_boolean(json_object_get(object, "timed_out")) ||
	    !neap_json_get_number(object, "host_kills", &evidence->host_kills))
		return false;
	evidence->timed_out = json_is_true(json_object_get(object, "timed_out"));
	for (size_t i = 0; i < EVIDENCE_FIELDS; i++) {
		char *place = (char *)evidence + evidence_fields[i].offset;
		const json_t *value = json_object_get(object, evidence_fields[i].key);
		if (evidence_fields[i].capacity ? !json_is_string(value) : !json_is_integer(value))
			return false;
		if (evidence_fields[i].capacity)
			snprintf(place, evidence_fields[i].capacity, "%s", json_string_value(value));
		else
			*(int *)place = (int)json_integer_value(value);
	}
	evidence->started = true;
	return true;
}

static enum neap_status format_end(struct neap_supervise *run, const struct neap_evidence *evidence, bool rung_left,
				   struct neap_buffer *text, struct neap_error *err)
{
	struct neap_result result = {0};
	struct neap_verdict verdict;
	const uint64_t failures = neap_json_failures();
	json_t *object = evidence_value(evidence);
	char *dumped = neap_json_dump(object, JSON_COMPACT);
	enum neap_status status = NEAP_OK;
	if (!dumped || neap_json_failures() != failures)
		status = neap_fail(err, NEAP_ENOMEM, "out of host memory while noting a command's end");
	json_decref(object);
	neap_outcome_decide(evidence, &verdict);
	if (!status)
		status = neap_facts_plain(run, &verdict, &result, err);
	if (!status) {
		neap_buffer_format(text,
				   "{\"schema\": %d, \"rung_left\": %s, \"ooms\": %" PRIu64
				   ", \"started_ns\": %" PRIu64 ", \"log_offset\": %" PRIu64 ", \"evidence\": ",
				   SCHEMA, rung_left ? "true" : "false", run->ooms, run->started_ns, run->log_offset);
		neap_buffer_text(text, dumped);
		neap_buffer_text(text, ", \"result\": ");
		status = neap_result_format("the end of a command", &result, text, err);
		neap_buffer_text(text, "}\n");
		neap_result_fini(&result);
	}
	free(dumped);
	return status ? status : neap_buffer_status(text, err);
}

enum neap_status neap_run_stage_end(struct neap_supervise *run, const struct neap_evidence *evidence, bool rung_left,
				    struct neap_error *err)
{
	char path[4200];
	struct neap_buffer text = {0};
	enum neap_status status = neap_path_join(path, sizeof path, run->folder, "ended");
	if (!status)
		status = format_end(run, evidence, rung_left, &text, err);
	if (!status)
		status = neap_file_write(path, text.data, text.length, err);
	neap_buffer_fini(&text);
	return status;
}

struct end {
	struct neap_evidence evidence;
	struct neap_result result;
	bool rung_left;
	uint64_t ooms, started_ns, log_offset;
};

static enum neap_status parse_end(const char *path, const json_t *root, struct end *end, struct neap_error *err)
{
	struct neap_buffer text = {0};
	if (json_integer_value(json_object_get(root, "schema")) != SCHEMA ||
	    !json_is_boolean(json_object_get(root, "rung_left")) || !neap_json_get_number(root, "ooms", &end->ooms) ||
	    !neap_json_get_number(root, "started_ns", &end->started_ns) ||
	    !neap_json_get_number(root, "log_offset", &end->log_offset) ||
	    !read_evidence(json_object_get(root, "evidence"), &end->evidence))
		return neap_fail(err, NEAP_EPARSE, "%.150s: expected the end of a command, schema %d", path, SCHEMA);
	end->rung_left = json_is_true(json_object_get(root, "rung_left"));
	const json_t *result = json_object_get(root, "result");
	if (!json_is_object(result))
		return neap_fail(err, NEAP_EPARSE, "%.150s: expected a result", path);
	char *dumped = neap_json_dump(result, JSON_REAL_PRECISION(17));
	neap_buffer_text(&text, dumped ? dumped : ""); /* the caller checks neap_json_failures */
	free(dumped);
	enum neap_status status = neap_buffer_status(&text, err);
	if (!status)
		status = neap_result_parse(path, &text, &end->result, err);
	neap_buffer_fini(&text);
	return status;
}

static enum neap_status read_end(const char *folder, struct end *end, struct neap_error *err)
{
	char path[4200];
	struct neap_buffer text = {0};
	json_t *root = NULL;
	const uint64_t failures = neap_json_failures();
	enum neap_status status = neap_path_join(path, sizeof path, folder, "ended");
	if (!status)
		status = neap_file_read(path, ENDED_LIMIT, &text, err);
	if (status)
		return status;
	status = neap_json_parse(path, neap_buffer_string(&text), text.length, &root, err);
	neap_buffer_fini(&text);
	if (!status)
		status = parse_end(path, root, end, err);
	json_decref(root);
	if (neap_json_failures() != failures)
		status = neap_fail(err, NEAP_ENOMEM, "reading %.150s: out of host memory", path);
	return status;
}

/* Makes the result as the supervisor would have made it, but without waiting for memory to drain. */
static enum neap_status complete(const char *folder, struct end *end, struct neap_error *err)
{
	struct neap_verdict verdict;
	struct neap_supervise *run = calloc(1, sizeof *run);
	if (!run)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory while making a run's result");
	snprintf(run->folder, sizeof run->folder, "%s", folder);
	snprintf(run->run_id, sizeof run->run_id, "%s", end->result.run_id);
	run->log_offset = end->log_offset;
	run->started_ns = end->started_ns;
	run->ooms = end->ooms;
	neap_facts_evidence(run, &end->evidence);
	neap_outcome_decide(&end->evidence, &verdict);
	enum neap_status status = NEAP_OK;
	if (verdict.outcome == NEAP_OUTCOME_OOM && end->rung_left)
		status = neap_fail(err, NEAP_ESTATE, "device memory ran out, and it was to be started again");
	if (!status)
		status = neap_facts_complete(run, &verdict, &end->result, err);
	if (!status)
		status = neap_result_set(&end->result.drain_note, "not waited for: the supervisor was ended first",
					 err);
	end->result.drained = false;
	neap_buffer_fini(&run->last_card);
	free(run);
	return status;
}

enum neap_status neap_run_stage_recover(const char *folder, struct neap_error *err)
{
	char path[4200];
	struct end end = {0};
	enum neap_status status = read_end(folder, &end, err);
	if (!status)
		status = complete(folder, &end, err);
	if (!status)
		status = neap_path_join(path, sizeof path, folder, "result.json");
	if (!status)
		status = neap_result_write(path, &end.result, err);
	if (!status)
		neap_recordings_cut(folder);
	neap_result_fini(&end.result);
	return status;
}

enum neap_status neap_run_stage_recover_locked(const char *folder, struct neap_error *err)
{
	char path[4200];
	if (neap_path_join(path, sizeof path, folder, "lock"))
		return neap_fail(err, NEAP_EINVAL, "the folder's name is too long: %.120s", folder);
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return neap_fail_errno(err, errno, "opening %.150s", path);
	int failed = flock(fd, LOCK_EX | LOCK_NB) ? errno : 0;
	bool owned = failed && neap_owner_is_needed(failed);
	enum neap_status status = NEAP_OK;
	if (owned)
		status = neap_owner_take(folder, err);
	else if (failed)
		status = neap_fail_errno(err, failed, "locking %.150s", path);
	enum neap_run_stage stage = neap_run_stage_read(folder);
	if (!status && stage == NEAP_STAGE_ENDED)
		status = neap_run_stage_recover(folder, err);
	else if (!status && stage != NEAP_STAGE_UNBEGUN) /* its supervisor has not made the result */
		neap_recordings_cut(folder);
	if (owned)
		neap_owner_leave(folder);
	close(fd);
	return status;
}

enum neap_run_stage neap_run_stage_resolve(const char *folder)
{
	const struct neap_deadline end = neap_deadline_in(neap_clock_system(), SETTLE_NS);
	while (neap_run_stage_read(folder) != NEAP_STAGE_OVER &&
	       neap_run_stage_recover_locked(folder, NULL) == NEAP_EBUSY && !neap_deadline_over(&end))
		neap_clock_sleep(end.clock, NEAP_NS_PER_MS);
	return neap_run_stage_read(folder);
}
