/* checkpoint/write.c: writes a checkpoint whole or not at all, with begin, append and commit of base/file.h.
 *
 * If a write fails, its temporary file is deleted at once: usually the disk is full, and this frees the space. Later
 * writes and the commit return the first error again. */
#include "neap/checkpoint.h"

#include "base/error.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

#define PLANS_MOST 10

struct neap_checkpoint {
	struct neap_file file;
	struct neap_error failure; /* the first error; status NEAP_OK: none */
};

enum neap_status neap_checkpoint_begin(const char *path, struct neap_checkpoint **ret_checkpoint,
				       struct neap_error *err)
{
	struct neap_checkpoint *checkpoint;
	enum neap_status status;

	if (!path || !path[0])
		return neap_fail(err, NEAP_EINVAL, "a checkpoint needs a path");
	checkpoint = calloc(1, sizeof *checkpoint);
	if (!checkpoint)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory to begin checkpoint %s", path);
	status = neap_file_begin(&checkpoint->file, path, 0644, err);
	if (status) {
		free(checkpoint);
		return status;
	}
	*ret_checkpoint = checkpoint;
	return NEAP_OK;
}

static enum neap_status repeat(const struct neap_checkpoint *checkpoint, struct neap_error *err)
{
	if (err)
		*err = checkpoint->failure;
	return checkpoint->failure.status;
}

enum neap_status neap_checkpoint_write(struct neap_checkpoint *checkpoint, const void *bytes, size_t length,
				       struct neap_error *err)
{
	enum neap_status status;

	if (checkpoint->failure.status != NEAP_OK)
		return repeat(checkpoint, err);
	status = neap_file_append(&checkpoint->file, bytes, length, &checkpoint->failure);
	if (!status)
		return NEAP_OK;
	neap_error_prefix(&checkpoint->failure, "checkpoint");
	checkpoint->failure.status = status;
	neap_file_abort(&checkpoint->file);
	return repeat(checkpoint, err);
}

enum neap_status neap_checkpoint_commit(struct neap_checkpoint *checkpoint, struct neap_error *err)
{
	enum neap_status status;

	if (checkpoint->failure.status != NEAP_OK) {
		status = repeat(checkpoint, err);
	} else {
		status = neap_file_commit(&checkpoint->file, err);
		if (status)
			neap_error_prefix(err, "checkpoint");
	}
	neap_checkpoint_abort(checkpoint);
	return status;
}

void neap_checkpoint_abort(struct neap_checkpoint *checkpoint)
{
	if (!checkpoint)
		return;
	neap_file_abort(&checkpoint->file);
	free(checkpoint);
}

/* Applies retention to the folder of the committed file. Cuts `path` in two at its last slash. */
static enum neap_status retain(char *path, const struct neap_retention_options *options,
			       struct neap_retention_result *ret_result, struct neap_error *err)
{
	struct neap_retention_options own = *options;
	struct neap_retention_plan plan;
	char *slash = strrchr(path, '/');

	own.resume = slash ? slash + 1 : path;
	if (slash)
		*slash = '\0';
	const char *folder = !slash ? "." : slash == path ? "/" : path;
	enum neap_status status = NEAP_EBUSY;
	/* NEAP_EBUSY: another process changed the folder between plan and apply, and nothing was done. Plan again. */
	for (int round = 0; status == NEAP_EBUSY && ret_result->moved_count == 0 && round < PLANS_MOST; round++) {
		*err = (struct neap_error){0};
		status = neap_retention_plan_make(folder, &own, 0, &plan, err);
		if (status)
			return status;
		status = neap_retention_apply(&plan, &own, ret_result, err);
		neap_retention_plan_fini(&plan);
	}
	return status;
}

enum neap_status neap_checkpoint_commit_and_retain(struct neap_checkpoint *checkpoint,
						   const struct neap_retention_options *options,
						   struct neap_retention_result *ret_result,
						   struct neap_error *ret_retention, struct neap_error *err)
{
	struct neap_retention_result result = {0};
	struct neap_error retention = {0};
	char *path = strdup(checkpoint->file.path);
	enum neap_status status = neap_checkpoint_commit(checkpoint, err);

	if (!status && !path)
		neap_fail(&retention, NEAP_ENOMEM, "out of host memory: no old checkpoint was looked for");
	else if (!status)
		retain(path, options, &result, &retention);
	free(path);
	if (status)
		return status;
	if (ret_result)
		*ret_result = result;
	if (ret_retention)
		*ret_retention = retention;
	return NEAP_OK;
}
