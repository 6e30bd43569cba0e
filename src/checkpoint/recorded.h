/* checkpoint/recorded.h: which checkpoint the trainer itself recorded as the best, and by which metric. Reads only;
 * no pickle is executed. One thread.
 *
 *   Hugging Face's Trainer   checkpoint-N/trainer_state.json (that of the last step, or of the folder itself), and
 *                            training_args.bin beside it
 *   Lightning                the newest .ckpt: the state of its ModelCheckpoint callbacks
 *   Orbax                    STEP/metrics/metrics: the metrics that its manager chooses by, but not which one, nor
 *                            the direction
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
	char folder[256];                  /* the name of the folder that it was in, as far as recorded */
	bool here;                         /* it is in this folder */
	char metric[CHECKPOINT_WORD_ROOM]; /* "": not recorded */
	enum neap_metric_mode mode;
	char several[256];               /* Orbax: two metrics or more, "loss, score"; then `metric` is empty */
	uint64_t until_ns;               /* it knows nothing of checkpoints that are younger */
	uint64_t until_step;             /* likewise; UINT64_MAX: not recorded */
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

/* Its value for the checkpoint of this name, if it has one. */
bool checkpoint_record_score(const struct checkpoint_record *record, const char *name, double *ret_value);

/* --- the parts that read one file each --- */

/* A trainer_state.json; NEAP_EPARSE: it is none. */
enum neap_status checkpoint_read_state(const char *text, size_t length, struct checkpoint_record *ret_record);
/* The pickle of a training_args.bin: adds metric and mode to the record. */
void checkpoint_read_arguments(const void *pickle, size_t length, struct checkpoint_record *record);
/* A .ckpt of Lightning, open: adds a record for each of its callbacks that monitors a metric. False: no memory. */
bool checkpoint_read_lightning(int fd, struct checkpoint_records *records);

#endif
