/* neap/checkpoint.h: checkpoints on disk: written whole or not at all, and kept by rules that compose.
 *
 * Saving. A checkpoint becomes visible by commit, durable and whole; only then may older ones go.
 *
 * Retention. `neap_retention_plan_make` reads one folder and decides, and changes nothing; `neap_retention_apply`
 * carries the plan out. A checkpoint goes only if a delete rule applies to it and no keep rule does: keep rules
 * always win.
 *
 *   keep     best N by a metric; newest N; every K steps; pinned; resumed from; young. In any case: the newest (by
 *            step and by time; both, if these disagree), open ones, those that a symbolic link or a `latest` file
 *            names, unreadable ones, those on another file system, last.*, best.* and the like, and those with
 *            neither a step nor a metric (unless a pattern says which names are checkpoints)
 *   delete   older than a time; beyond a number or a total size; or all the rest
 *
 * Rules apply to each folder by itself; folders below are not entered, but may be checkpoints themselves (sharded
 * ones, checkpoint-500/). A checkpoint that goes is renamed into FOLDER/.neap-trash, on the same file system, and can
 * be restored until its time is over: a crash at any instant leaves each checkpoint whole, in the folder or in the
 * trash.
 *
 * Files that belong together by their names are one checkpoint: model_epoch_5.pt with optimizer_epoch_5.pt, the parts
 * of several ranks, shards with their index. A torn checkpoint does not count among the newest and the best. The
 * trainer's own record says which is the best (Hugging Face's Trainer, Lightning, Orbax), else names and files beside
 * them do.
 *
 *   FOLDER/NAME                                 a checkpoint: one file, or one folder, or several
 *   FOLDER/NAME.json, .yaml, .yml               its metrics; also with NAME's last extension taken off; for a folder
 *                                               also NAME/metrics.json and so on. They go, and come back, with it.
 *   FOLDER/NAME.pin                             an empty file: never delete NAME; also a file .pin in the folder NAME
 *   FOLDER/.neap-trash/until-SECONDS-PID-N/     the files that one apply moved; they may be deleted from SECONDS
 *   since 1970 on
 *
 * Threads: any thread may use any checkpoint, plan or folder, but only one thread at a time may use the same one.
 * Processes may work on the same folder at the same time: files that changed since the plan was made are left alone.
 * Nothing here prints.
 */
#ifndef NEAP_CHECKPOINT_H
#define NEAP_CHECKPOINT_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- saving ------------------------------------------------------------------------------------------------------
 */

struct neap_checkpoint;

/* Begins a checkpoint, which is written beside PATH. Commit flushes it, renames it over PATH, and flushes the folder.
 * Until then, and after any failure, a reader sees the old file. */
NEAP_API enum neap_status neap_checkpoint_begin(const char *path, struct neap_checkpoint **ret_checkpoint,
						struct neap_error *err);
NEAP_API enum neap_status neap_checkpoint_write(struct neap_checkpoint *checkpoint, const void *bytes, size_t length,
						struct neap_error *err);
/* Frees the checkpoint, whether it succeeds or not. */
NEAP_API enum neap_status neap_checkpoint_commit(struct neap_checkpoint *checkpoint, struct neap_error *err);
/* Drops and frees it. NULL is fine. */
NEAP_API void neap_checkpoint_abort(struct neap_checkpoint *checkpoint);

/* --- retention: rules --------------------------------------------------------------------------------------------
 */

enum neap_metric_mode {
	NEAP_METRIC_MODE_UNKNOWN = 0,
	NEAP_METRIC_MIN = 1, /* lower is better */
	NEAP_METRIC_MAX = 2,
};

/* All zero: no rule, nothing is deleted. Texts are borrowed for the time of the call. */
struct neap_retention_options {
	/* keep; 0: this rule is off */
	uint64_t keep_best;
	uint64_t keep_last;         /* the newest N by step, and the newest N by time */
	uint64_t keep_every_steps;  /* those whose step is a multiple of this */
	uint64_t grace_ns;          /* those changed less than this ago */
	const char *metric;         /* "val_loss"; NULL: the well-known one that most checkpoints carry */
	enum neap_metric_mode mode; /* UNKNOWN: by the metric's name, if that is a well-known one; else an error */
	bool newest_for_best; /* where no checkpoint carries a metric: the newest instead of the best; false: an error
			       */
	const char *const *pins; /* names or patterns, fnmatch(3) */
	size_t pin_count;
	const char *resume;  /* the name of the one to resume from; NULL: only those that links and the like name */
	const char *pattern; /* fnmatch(3): which names are checkpoints; NULL: by the usual names and extensions */
	/* delete; 0: this rule is off */
	uint64_t older_than_ns;
	uint64_t max_checkpoints; /* at most so many stay; the oldest go first */
	uint64_t max_total_bytes; /* of all checkpoints of the folder; likewise */
	bool best_yields; /* if these two are still exceeded, the best N go as well, the worst first, but never the
			     very best; false: they stay */
	bool delete_rest; /* all that no keep rule holds, whatever its age */
	/* for apply */
	uint64_t trash_ns; /* for how long it can be restored; 0: deleted when apply ends */
};

/* The defaults of the command: keep the best 5 (or the newest, see newest_for_best), which yield to limits; delete
 * what is older than 7 days; a grace of 10 minutes; 1 day in the trash. "At most N, whatever their age" is keep_best
 * and max_checkpoints N, older_than_ns and grace_ns 0. */
NEAP_API void neap_retention_defaults(struct neap_retention_options *ret_options);

/* --- retention: plan ---------------------------------------------------------------------------------------------
 */

#define NEAP_STEP_UNKNOWN UINT64_MAX

/* The facts about a checkpoint: `facts`. */
enum neap_checkpoint_fact {
	NEAP_CHECKPOINT_FOLDER = 1u << 0,
	NEAP_CHECKPOINT_MEASURED = 1u << 1, /* `metric` was found; it may be NaN */
	NEAP_CHECKPOINT_PINNED = 1u << 2,
	NEAP_CHECKPOINT_RESUME = 1u << 3, /* options.resume, or named by a link or a `latest` file here */
	NEAP_CHECKPOINT_NAMED =
		1u << 4, /* last.ckpt, best.pt, ...: a trainer's own; takes no place among the best or newest */
	NEAP_CHECKPOINT_OPEN = 1u << 5, /* open in, or mapped by, a process of this user (of anyone, for root) */
	NEAP_CHECKPOINT_UNREADABLE = 1u << 6, /* part of it, or of what stands beside it, cannot be read */
	NEAP_CHECKPOINT_ELSEWHERE = 1u << 7,  /* on another file system: it cannot be renamed into the trash */
	NEAP_CHECKPOINT_UNFINISHED = 1u << 8, /* a temporary of a save that was killed; no keep rule counts it */
	NEAP_CHECKPOINT_UNNUMBERED = 1u << 9, /* it has neither a step nor a metric: it may be any file */
	NEAP_CHECKPOINT_TORN = 1u << 10, /* not whole, see `torn`: it is never counted as the newest or the best */
	NEAP_CHECKPOINT_HALF = 1u << 11, /* an optimizer, a scheduler, ... whose model is not here */
	NEAP_CHECKPOINT_RECORDED = 1u << 12, /* its trainer recorded, or its name says, that it is the best */
};

/* Why a checkpoint stays (`keep`), or would go (`drop`). */
enum neap_retention_reason {
	NEAP_KEEP_PINNED = 1u << 0,
	NEAP_KEEP_RESUME = 1u << 1,
	NEAP_KEEP_NEWEST = 1u << 2,
	NEAP_KEEP_BEST = 1u << 3,
	NEAP_KEEP_LAST = 1u << 4,
	NEAP_KEEP_EVERY = 1u << 5,
	NEAP_KEEP_YOUNG = 1u << 6,
	NEAP_KEEP_NAMED = 1u << 7,
	NEAP_KEEP_OPEN = 1u << 8,
	NEAP_KEEP_UNREADABLE = 1u << 9,
	NEAP_KEEP_ELSEWHERE = 1u << 10,
	NEAP_KEEP_UNNUMBERED = 1u << 11,
	NEAP_KEEP_HALF = 1u << 12,
	NEAP_KEEP_RECORDED = 1u << 13,
	NEAP_DROP_OLD = 1u << 16,
	NEAP_DROP_SIZE = 1u << 17,
	NEAP_DROP_REST = 1u << 18,
	NEAP_DROP_UNFINISHED = 1u << 19,
	NEAP_DROP_TORN = 1u << 20,
	NEAP_DROP_COUNT = 1u << 21,
};

enum neap_retention_done {
	NEAP_RETENTION_NOTHING = 0, /* it stays, or apply was not called */
	NEAP_RETENTION_MOVED = 1,   /* into the trash */
	NEAP_RETENTION_GONE = 2,    /* another process removed it */
	NEAP_RETENTION_CHANGED = 3, /* it was changed or opened since the plan was made: it stays */
	NEAP_RETENTION_FAILED = 4,  /* `cause` is the errno: it stays */
};

/* One of the files and folders of a checkpoint. */
struct neap_retention_part {
	char *name; /* in the folder */
	uint64_t bytes, modified_ns, device, inode;
	bool folder;
};

struct neap_retention_entry {
	const char *name;                  /* in the folder; of several parts: the first's */
	struct neap_retention_part *parts; /* the model first; they stay, or go, together */
	size_t part_count;
	uint64_t bytes;       /* of all parts */
	uint64_t freed_bytes; /* the part of these without another hard link */
	uint64_t modified_ns; /* since 1970; of a folder: its youngest file's; UINT64_MAX: after the year 2554 */
	uint64_t device, inode;
	uint64_t step; /* or epoch, if the folder counts those; NEAP_STEP_UNKNOWN */
	double metric;
	uint32_t facts;     /* enum neap_checkpoint_fact */
	uint32_t reasons;   /* enum neap_retention_reason; it goes if `drop` is set */
	uint32_t best_rank; /* from 1; 0: not among the best N */
	uint32_t done;      /* enum neap_retention_done, set by apply */
	int32_t cause;      /* errno, likewise */
	const char *torn;   /* why it is not whole ("it is empty"); NULL: it is, that cannot be determined, or nobody
			       looked, since it goes whether it is torn or not */
	bool drop;
};

struct neap_retention_plan {
	char *folder;
	struct neap_retention_entry *entries; /* newest first */
	size_t count;
	char metric[64];                     /* "" none was found or asked for */
	char source[512];                    /* the trainer whose record names the best one, and its file; "": none */
	enum neap_metric_mode mode;          /* of it */
	bool metric_inferred, mode_inferred; /* found from names and files beside them, not in `source` */
	bool newest_for_best;                /* no metric: the newest stand for the best */
	bool order_disagrees;                /* the highest step is not the youngest file */
	size_t keep_count, drop_count;
	uint64_t keep_bytes, drop_bytes;
	uint64_t freed_bytes; /* of drop_bytes, once deleted for good */
	uint64_t over_bytes;  /* by how much the kept ones alone exceed max_total_bytes */
	uint64_t over_count;  /* and max_checkpoints */
	size_t link_count;    /* symbolic links: never followed out of the folder, never deleted */
	size_t trash_count;   /* checkpoints in the trash */
	uint64_t trash_bytes;
	uint64_t trash_until_s; /* when the first of them may go, since 1970; 0: none */
	uint64_t made_ns;       /* the `now` it was made for */
};

/* Reads the folder and decides. `now_ns`: since 1970; 0: the clock's time. The caller calls neap_retention_plan_fini.
 * Errors: NEAP_ENOENT, NEAP_EPERM and the like for the folder; NEAP_ESTATE: the folder is itself one checkpoint;
 * NEAP_EINVAL when best is asked for and cannot be determined: no metric, a metric of unknown mode, every value is
 * NaN, or what trainers recorded disagrees. */
NEAP_API enum neap_status neap_retention_plan_make(const char *folder, const struct neap_retention_options *options,
						   uint64_t now_ns, struct neap_retention_plan *ret_plan,
						   struct neap_error *err);
NEAP_API void neap_retention_plan_fini(struct neap_retention_plan *plan);

/* The pure part, which plan_make calls: sets the entries' reasons and the plan's sums, from the entries' facts and
 * the plan's metric and mode. Puts the entries in order. Errors: NEAP_EINVAL as above, NEAP_ENOMEM. */
NEAP_API enum neap_status neap_retention_decide(struct neap_retention_plan *plan,
						const struct neap_retention_options *options, uint64_t now_ns,
						struct neap_error *err);

/* "best 1: val_loss 0.121, newest" or "older than 7 d", into `text` (always terminated). Returns `text`. */
NEAP_API const char *neap_retention_reason_text(const struct neap_retention_plan *plan,
						const struct neap_retention_options *options, size_t index,
						char *text, size_t capacity);

/* --- retention: folders ------------------------------------------------------------------------------------------
 */

struct neap_retention_folder {
	char *path;
	size_t count; /* names in it that are checkpoints or parts of one; 0: it has only a trash */
	bool trash;
};

struct neap_retention_folders {
	struct neap_retention_folder *at; /* by path */
	size_t count;
	bool incomplete; /* some folders were not read: too many, too deep, or not readable */
};

/* Finds the folders below `folder`, without itself, that hold checkpoints or a trash: folders of runs. Does not enter
 * checkpoints, hidden folders, links and mounts. `most`: reads at most this many folders; 0: all. The caller calls
 * neap_retention_folders_fini. Errors: as for the folder of neap_retention_plan_make.
 */
NEAP_API enum neap_status neap_retention_find_folders(const char *folder,
						      const struct neap_retention_options *options, size_t most,
						      struct neap_retention_folders *ret_folders,
						      struct neap_error *err);
NEAP_API void neap_retention_folders_fini(struct neap_retention_folders *folders);

/* --- retention: effects ------------------------------------------------------------------------------------------
 */

struct neap_retention_result {
	size_t moved_count, failed_count, changed_count;
	uint64_t moved_bytes;
	size_t deleted_count; /* checkpoints of the trash that were deleted for good */
	uint64_t deleted_bytes;
	size_t restored_count;
	uint64_t trash_until_s; /* when the moved files may be deleted */
};

/* Moves the checkpoints that the plan drops into the trash, oldest first, then deletes those whose time in the trash
 * is over. Flushes the newest to disk before anything goes. A checkpoint that cannot be moved stays and is marked in
 * its entry; the others still go. Returns the first failure. `ret_result` is filled in any case. */
NEAP_API enum neap_status neap_retention_apply(struct neap_retention_plan *plan,
					       const struct neap_retention_options *options,
					       struct neap_retention_result *ret_result, struct neap_error *err);

/* Restores every checkpoint of the folder's trash whose name matches the fnmatch(3) pattern. A checkpoint whose name
 * is taken stays in the trash: NEAP_EEXIST, after the others. So does one that another process is working on:
 * NEAP_EBUSY, try again. NEAP_ENOENT: nothing matches. */
NEAP_API enum neap_status neap_retention_restore(const char *folder, const char *pattern,
						 struct neap_retention_result *ret_result, struct neap_error *err);

/* Deletes the contents of the folder's trash for good: all of it, or only the files whose time is over. NEAP_EBUSY:
 * `all`, and files that another process is working on were left; try again. */
NEAP_API enum neap_status neap_retention_empty_trash(const char *folder, bool all,
						     struct neap_retention_result *ret_result,
						     struct neap_error *err);

/* Commits, then applies retention in the file's folder, with this file as the one that a restart resumes from. So the
 * new file is durable before an old one goes. If the commit fails, returns that and deletes nothing. If retention
 * fails, the save is not lost: `ret_retention` (may be NULL) gets the error. Frees the checkpoint.
 */
NEAP_API enum neap_status neap_checkpoint_commit_and_retain(struct neap_checkpoint *checkpoint,
							    const struct neap_retention_options *options,
							    struct neap_retention_result *ret_result,
							    struct neap_error *ret_retention, struct neap_error *err);

#ifdef __cplusplus
}
#endif
#endif
