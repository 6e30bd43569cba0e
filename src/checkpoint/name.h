/* checkpoint/name.h: reads a checkpoint's name: numbers with the words before them. Pure; any thread.
 *
 *   epoch=3-val_loss=0.123.ckpt      epoch 3, val_loss 0.123
 *   step_100_loss0.5.pt              step 100, loss 0.5
 *   checkpoint-500                   checkpoint 500
 *
 * Words are compared without case, and '-', '/', ' ' and '.' are '_' in them.
 */
#ifndef NEAP_CHECKPOINT_NAME_H
#define NEAP_CHECKPOINT_NAME_H

#include "neap/checkpoint.h"

#define CHECKPOINT_WORD_CAPACITY 64

struct checkpoint_number {
	char word[CHECKPOINT_WORD_CAPACITY]; /* before it, normalized: "val_loss", "step"; "" none */
	const char *text;                    /* its characters in the name, without the sign */
	size_t length;
	bool negative;
	bool whole; /* digits only, no sign: `count` is its value */
	bool apart; /* no letter touches it; false for the 50 of "resnet50", which is part of a name */
	uint64_t count;
};

/* Finds the next number of the name, from *at on, and moves *at behind it. False: there are no more. */
bool checkpoint_number_next(const char **at, struct checkpoint_number *ret_number);

/* What a number counts. A name's place in time is its number of the first kind here that it has. */
enum checkpoint_count { CHECKPOINT_STEP, CHECKPOINT_EPOCH, CHECKPOINT_ORDINAL, CHECKPOINT_BARE, CHECKPOINT_COUNTS };

/* Reads a checkpoint's place in time from its name. False: the name has none. */
bool checkpoint_count_read(const char *name, enum checkpoint_count *ret_kind, uint64_t *ret_count);

/* Copies a word in its normal form; cuts it if it is too long. */
void checkpoint_word_normalize(const char *text, size_t length, char ret_word[CHECKPOINT_WORD_CAPACITY]);

/* Finds the well-known metric at the end of a normalized word, with its qualifiers: "mymodel_val_loss" -> "val_loss".
 * Returns its mode; NEAP_METRIC_MODE_UNKNOWN: there is none. `ret_metric` may be NULL. */
enum neap_metric_mode checkpoint_metric_known(const char *word, char ret_metric[CHECKPOINT_WORD_CAPACITY]);

/* Reads the metric's value from the name. Returns 0: not there; 1: there; 2: there with several values. */
int checkpoint_metric_read(const char *name, const char *metric, double *ret_value);

/* Classifies a file or folder by its name. `folder`: it is a folder. A name without an extension, or with one that
 * other data use too (.bin, .tar, ...), needs a step, an epoch or a metric to be a checkpoint. */
enum checkpoint_class {
	CHECKPOINT_OTHER,
	CHECKPOINT_ONE,
	CHECKPOINT_TEMPORARY, /* an unfinished save, running or killed: of neap, Orbax or Hugging Face's Trainer */
	CHECKPOINT_PART,      /* one of several files: model-00001-of-00002.safetensors */
	CHECKPOINT_EXTRA,     /* a part of a checkpoint (group.h). checkpoint_classify never returns it */
};
enum checkpoint_class checkpoint_classify(const char *name, bool folder, const char *pattern);
/* Whether the name has the number of a well-known metric. */
bool checkpoint_has_metric(const char *name);
/* Whether it is a name that a trainer reuses, without a number: last.ckpt, model_best.pth.tar, final.pt, ... */
bool checkpoint_is_named(const char *name);
/* Whether "best" is a word of the name. */
bool checkpoint_says_best(const char *name);
/* Whether it is a file of metrics or a pin by its extension, or hidden. Then it is no checkpoint, whatever the
 * pattern.
 */
bool checkpoint_is_beside(const char *name);
/* Whether it is an index such as x.safetensors.index.json: it belongs to a set of parts and has no metrics. */
bool checkpoint_is_index(const char *name);
/* Whether parts of checkpoints use this extension. Other data may use it too. */
bool checkpoint_is_content(const char *name);
/* The same, including extensions of an optimizer's state and the like: rng_epoch_5.npy. */
bool checkpoint_is_helper(const char *name);
/* Writes the nth name that a sidecar of `main` may have into `text`. False: past the last, or it does not fit. */
bool checkpoint_sidecar_name(const char *main, size_t n, char *text, size_t capacity);
/* The first n whose name drops main's last extension. Names below it keep main's whole name. */
#define CHECKPOINT_SIDECAR_SHORT 3

#endif
