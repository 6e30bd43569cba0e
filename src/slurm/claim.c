/* slurm/claim.c: see claim.h. */
#include "slurm/claim.h"

#include "base/buffer.h"
#include "base/error.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One line. */
#define CLAIM_BYTES 256

static enum neap_status write_beside(int fd, const char *path, const struct neap_slurm_claim *claim,
				     struct neap_error *err)
{
	char text[CLAIM_BYTES];
	snprintf(text, sizeof text, "job %" PRIu32 " task %" PRIu32 " restart %" PRIu32 " node %s run %s\n",
		 claim->job, claim->task, claim->restarts, *claim->node ? claim->node : "-", claim->run_id);
	enum neap_status status = neap_fd_write(fd, text, strlen(text), err);
	if (!status && fsync(fd))
		status = neap_fail_errno(err, errno, "flushing to disk");
	if (status)
		neap_error_prefix(err, "writing %.150s", path);
	return status;
}

enum neap_status neap_slurm_claim_make(const char *folder, const struct neap_slurm_claim *claim,
				       struct neap_error *err)
{
	char path[4096], beside[4096];
	struct stat info;
	enum neap_status status = neap_make_folder(folder, 0700, err);
	if (status)
		return status;
	if (neap_path_join(path, sizeof path, folder, "claim") ||
	    neap_path_join(beside, sizeof beside, folder, "claim.XXXXXX"))
		return neap_fail(err, NEAP_EINVAL, "the folder's name is too long: %.120s", folder);
	int fd = mkostemp(beside, O_CLOEXEC);
	if (fd < 0)
		return neap_fail_errno(err, errno, "creating %.150s", beside);
	status = write_beside(fd, beside, claim, err);
	if (!status && link(beside, path)) {
		int cause = errno;
		/* Over NFS an answer may be lost and the call repeated: two links show that it succeeded. */
		if (fstat(fd, &info) || info.st_nlink != 2)
			status = cause == EEXIST ? neap_fail(err, NEAP_EEXIST, "%.150s is there already", path)
						 : neap_fail_errno(err, cause, "linking %.150s", path);
	}
	close(fd);
	unlink(beside);
	return status ? status : neap_sync_folder(folder, err);
}

static bool parse_claim(const char *text, struct neap_slurm_claim *claim)
{
	int length = 0;
	return sscanf(text, "job %" SCNu32 " task %" SCNu32 " restart %" SCNu32 " node %63s run %63s%n", &claim->job,
		      &claim->task, &claim->restarts, claim->node, claim->run_id, &length) == 5 &&
	       claim->job && !strcmp(text + length, "\n");
}

enum neap_status neap_slurm_claim_read(const char *folder, struct neap_slurm_claim *ret_claim, struct neap_error *err)
{
	char path[4096];
	struct neap_slurm_claim claim = {0};
	struct neap_buffer text = {0};
	if (neap_path_join(path, sizeof path, folder, "claim"))
		return neap_fail(err, NEAP_EINVAL, "the folder's name is too long: %.120s", folder);
	enum neap_status status = neap_file_read(path, CLAIM_BYTES, &text, err);
	if (!status &&
	    (strlen(neap_buffer_string(&text)) != text.length || !parse_claim(neap_buffer_string(&text), &claim)))
		status = neap_fail(err, NEAP_EPARSE,
				   "%.150s is damaged: expected the task that has begun the attempt", path);
	neap_buffer_fini(&text);
	if (!status)
		*ret_claim = claim;
	return status;
}
