/* checkpoint/together.h: records which files in the trash form one checkpoint.
 *
 * A batch of the trash has a file .parts, written and flushed before the first part is moved. If a kill or a failure
 * leaves a group half in the folder and half in the trash, neap finds it by .parts and restores it whole.
 *
 *   "INODE NAME" NUL, for each part; NUL after each group
 *
 *   a group is split  =  one of its parts is in the folder under its name and inode, and one is in the batch
 */
#ifndef NEAP_CHECKPOINT_TOGETHER_H
#define NEAP_CHECKPOINT_TOGETHER_H

#include "neap/checkpoint.h"

#include "base/buffer.h"
#include "base/map.h"

#define CHECKPOINT_PARTS ".parts"

struct checkpoint_together_part {
	const char *name;
	uint64_t inode;
	size_t group; /* from 0 */
};

/* The contents of a batch's .parts; zeroed: empty. */
struct checkpoint_together {
	struct neap_buffer text; /* holds the names */
	struct checkpoint_together_part *parts;
	size_t count, groups;
};

/* Writes .parts for the checkpoints that the plan drops; writes nothing if none has several parts. The file is on
 * disk when this returns. */
enum neap_status checkpoint_together_write(int batch_fd, const struct neap_retention_plan *plan,
					   struct neap_error *err);

/* Reads .parts. A missing file counts as empty. Damaged records are dropped: if the file was not written whole,
 * nothing was moved. Errors: the file cannot be read. The caller calls checkpoint_together_fini, also after a
 * failure. */
enum neap_status checkpoint_together_read(int batch_fd, struct checkpoint_together *ret_together,
					  struct neap_error *err);
/* Parses `text`, which the caller has filled. False: the host is out of memory. */
bool checkpoint_together_parse(struct checkpoint_together *together);
void checkpoint_together_fini(struct checkpoint_together *together);

/* Returns the group of the name, or `groups` if it has none. */
size_t checkpoint_together_find(const struct checkpoint_together *together, const char *name);

/* Brings back the parts of split groups. The caller has locked the batch. `ret_mended` gets the inodes of all parts
 * of each group that got a part back; it may be NULL. Returns 0 or the first errno. */
int checkpoint_together_mend(const struct checkpoint_together *together, int batch_fd, int folder_fd,
			     struct neap_map *ret_mended);

#endif
