/* checkpoint/recorded.h: reads which checkpoint the trainer itself recorded as the best, and by which metric. Reads
 * only; executes no pickle. One thread.
 *
 *   Hugging Face's Trainer   trainer_state.json of the last checkpoint-N or of the folder itself, and
 *                            training_args.bin beside it
 *   Lightning                the newest .ckpt: the state of its ModelCheckpoint callbacks
 *   Orbax                    STEP/metrics/metrics: the metrics that its manager may choose by, but not which one it
 *                            uses, nor whether low or high is better
 */
#ifndef NEAP_CHECKPOINT_RECORDED_H
#define NEAP_CHECKPOINT_RECORDED_H

#include "checkpoint/name.h"

struct scan;

/* A value that the record gives to a checkpoint of the folder. */
struct checkpoint_score {
	char name[256];
	double value;
};

struct checkpoint_record {
	const char *trainer;               /* static storage */
	char source[320];                  /* the file it was read from, in the folder */
	char best[256];                    /* a name; "": none was recorded */
	char folder[256];                  /* the name of the folder that `best` was in; "": not recorded */
	bool here;                         /* `best` is in this folder */
	char metric[CHECKPOINT_WORD_ROOM]; /* "": not recorded */
	enum neap_metric_mode mode;
	char several[256];               /* Orbax: two metrics or more, "loss, score"; then `metric` is empty */
	uint64_t until_ns;               /* when it was written: it does not know newer checkpoints */
	uint64_t until_step;             /* the step at which it was written; UINT64_MAX: not recorded */
	uint64_t best_step;              /* where the best value was measured; UINT64_MAX: not recorded */
	struct checkpoint_score *scores; /* of `metric` */
	size_t score_count;
};

struct checkpoint_records {
	struct checkpoint_record *at;
	size_t count;
};

/* Files that cannot be read or understood add no record. Errors: NEAP_ENOMEM. The caller calls
 * checkpoint_records_fini, also after a failure. */
enum neap_status checkpoint_records_read(const struct scan *scan, struct checkpoint_records *ret_records,
					 struct neap_error *err);
void checkpoint_records_fini(struct checkpoint_records *records);

/* Finds the record's value for the checkpoint of this name. False: it has none. */
bool checkpoint_record_score(const struct checkpoint_record *record, const char *name, double *ret_value);

/* --- the parts that read one file each --- */

/* Reads a trainer_state.json. NEAP_EPARSE: it is something else. */
enum neap_status checkpoint_read_state(const char *text, size_t length, struct checkpoint_record *ret_record);
/* Reads the pickle of a training_args.bin and adds its metric and mode to the record. */
void checkpoint_read_arguments(const void *pickle, size_t length, struct checkpoint_record *record);
/* Reads an open .ckpt of Lightning: adds a record for each callback that monitors a metric. False: no memory. */
bool checkpoint_read_lightning(int fd, struct checkpoint_records *records);

#endif
