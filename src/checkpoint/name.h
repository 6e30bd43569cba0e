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

#define CHECKPOINT_WORD_ROOM 64

struct checkpoint_number {
	char word[CHECKPOINT_WORD_ROOM]; /* before it, normalized: "val_loss", "step"; "" none */
	const char *text;                /* its characters in the name, sign apart */
	size_t length;
	bool negative;
	bool whole; /* digits only: `count` holds it */
	bool apart; /* no letter touches it: the 50 of "resnet50" is part of a name */
	uint64_t count;
};

/* The next number of the name from *at on; moves *at behind it. False: no more. */
bool checkpoint_number_next(const char **at, struct checkpoint_number *ret_number);

/* What a number counts, best first. A checkpoint's place in time is its number of the smallest kind. */
enum checkpoint_count { CHECKPOINT_STEP, CHECKPOINT_EPOCH, CHECKPOINT_ORDINAL, CHECKPOINT_BARE, CHECKPOINT_COUNTS };

/* The name's place in time. False: its name tells none. */
bool checkpoint_count_read(const char *name, enum checkpoint_count *ret_kind, uint64_t *ret_count);

/* Copies a word in its normal form; cuts it if it is too long. */
void checkpoint_word_normalize(const char *text, size_t length, char ret_word[CHECKPOINT_WORD_ROOM]);

/* The well-known metric that a (normal) word ends with, with what qualifies it: "mymodel_val_loss" -> "val_loss".
 * UNKNOWN: none. `ret_metric` may be NULL. */
enum neap_metric_mode checkpoint_metric_known(const char *word, char ret_metric[CHECKPOINT_WORD_ROOM]);

/* The metric in the name. 0: not there, 1: there, 2: there with several values. */
int checkpoint_metric_read(const char *name, const char *metric, double *ret_value);

/* Judges a file or folder by its name. `folder`: it is one. Extensions that other data have too (.bin, .tar,
 * ...) and names without one need a step, an epoch or a metric. */
enum checkpoint_class {
	CHECKPOINT_OTHER,
	CHECKPOINT_ONE,
	CHECKPOINT_TEMPORARY, /* a save that is under way, or was killed: of neap, Orbax or Hugging Face's Trainer */
	CHECKPOINT_PART,      /* one of several files: model-00001-of-00002.safetensors */
	CHECKPOINT_EXTRA, /* no checkpoint by itself, but it goes with one: group.h. Never from checkpoint_classify */
};
enum checkpoint_class checkpoint_classify(const char *name, bool folder, const char *pattern);
/* Whether the name has the number of a well-known metric. With a count (checkpoint_count_read), the number tells
 * checkpoints apart. */
bool checkpoint_has_metric(const char *name);
/* last.ckpt, model_best.pth.tar, final.pt, ...: a trainer's own, without a number of its own. */
bool checkpoint_is_named(const char *name);
/* Whether "best" is a word of the name. */
bool checkpoint_says_best(const char *name);
/* Whether it is, by its extension, a file of metrics or a pin, or hidden: never a checkpoint, whatever the pattern.
 */
bool checkpoint_is_beside(const char *name);
/* x.safetensors.index.json and the like: beside the parts of a set, and no metrics. */
bool checkpoint_is_index(const char *name);
/* Whether parts of checkpoints have this extension: a checkpoint's own, or one that other data also have.
 */
bool checkpoint_is_content(const char *name);
/* The same, of an optimizer's state and the like: rng_epoch_5.npy. */
bool checkpoint_is_helper(const char *name);
/* The nth name that a sidecar of `main` may have, into `text`; false past the last, or when it does not fit. */
bool checkpoint_sidecar_name(const char *main, size_t n, char *text, size_t room);
/* Those below this one have the whole of main's name in theirs; from it on, its last extension is taken off. */
#define CHECKPOINT_SIDECAR_SHORT 3

#endif
