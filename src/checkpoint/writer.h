/* checkpoint/writer.h: what is known of each program that writes checkpoints: how its folders and files are
 * recognised, and what it records of its best checkpoint. writer.c has a row for each. Reads only; executes no
 * pickle. One thread.
 */
#ifndef NEAP_CHECKPOINT_WRITER_H
#define NEAP_CHECKPOINT_WRITER_H

#include "checkpoint/listing.h"
#include "checkpoint/name.h"

struct scan;

/* --- recognition --- */

/* Whether a writer makes files or folders with this name until a checkpoint is finished. */
bool checkpoint_is_unfinished(const char *name, bool folder);
/* Whether the folder NAME has a file by which a writer marks a checkpoint, whatever the folder's name. */
bool checkpoint_is_marked(int folder_fd, const char *name);
/* Whether a folder with these names is itself one checkpoint: it has files that only such a folder has. */
bool checkpoint_is_one(const struct checkpoint_listing *names);
/* The nth file in a checkpoint's folder that may have values of metrics; NULL: past the last. */
const char *checkpoint_metrics_file(size_t n);

/* --- records --- */

/* A value that the record gives to a checkpoint of the folder. */
struct checkpoint_score {
	char name[256];
	double value;
};

/* Which checkpoint the writer itself recorded as the best, and by which metric. */
struct checkpoint_record {
	const char *trainer;                   /* static storage */
	char source[320];                      /* the file it was read from, in the folder */
	char best[256];                        /* a name; "": none was recorded */
	char folder[256];                      /* the name of the folder that `best` was in; "": not recorded */
	bool here;                             /* `best` is in this folder */
	char metric[CHECKPOINT_WORD_CAPACITY]; /* "": not recorded */
	enum neap_metric_mode mode;
	char several[256];               /* Orbax: two metrics or more, "loss, score"; then `metric` is empty */
	uint64_t until_step;             /* the step at which it was written; UINT64_MAX: not recorded */
	uint64_t best_step;              /* where the best value was measured; UINT64_MAX: not recorded */
	struct checkpoint_score *scores; /* of `metric` */
	size_t score_count;
};

struct checkpoint_records {
	struct checkpoint_record *at;
	size_t count;
};

/* Reads the newest record of each writer. Files that cannot be read or understood add none. Errors: NEAP_ENOMEM. The
 * caller calls checkpoint_records_fini, also after a failure. */
enum neap_status checkpoint_records_read(const struct scan *scan, struct checkpoint_records *ret_records,
					 struct neap_error *err);
void checkpoint_records_fini(struct checkpoint_records *records);

/* Finds the record's value for the checkpoint of this name. False: it has none. */
bool checkpoint_record_score(const struct checkpoint_record *record, const char *name, double *ret_value);

/* --- for the readers of one writer's record --- */

/* Adds a copy of the record, with its scores. False: no memory; the scores stay the caller's. */
bool checkpoint_record_add(struct checkpoint_records *records, const struct checkpoint_record *record);
/* Copies the last name of a path. False: it has none, or it is too long; `to` is untouched. */
bool checkpoint_base_copy(char to[256], const char *path, size_t length);

/* Readers: PATH is the file with the record, in the folder `folder_fd`. Add what they find. False: no memory. */
bool checkpoint_read_trainer_state(int folder_fd, const char *path, struct checkpoint_records *records);
bool checkpoint_read_lightning(int folder_fd, const char *path, struct checkpoint_records *records);
bool checkpoint_read_orbax(int folder_fd, const char *path, struct checkpoint_records *records);

/* Reads the text of a trainer_state.json. NEAP_EPARSE: it is something else. */
enum neap_status checkpoint_read_state(const char *text, size_t length, struct checkpoint_record *ret_record);
/* Reads the pickle of a training_args.bin and adds its metric and mode to the record. */
void checkpoint_read_arguments(const void *pickle, size_t length, struct checkpoint_record *record);
/* Reads an open .ckpt of Lightning. False: no memory. */
bool checkpoint_read_callbacks(int fd, struct checkpoint_records *records);

#endif
