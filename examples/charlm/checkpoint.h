/* charlm/checkpoint.h: the whole state of a training run in one file, written whole or not at all.
 *
 *   header | for each parameter: value, first moment, second moment | check sum of all before it
 *
 * The header names what the checkpoint was made for. A checkpoint for another text, model, seed, batch or rate is
 * refused, because the run would silently become a different one.
 */
#ifndef CHARLM_CHECKPOINT_H
#define CHARLM_CHECKPOINT_H

#include "model.h"

/* What must be equal for a run to continue as if it had never stopped. */
struct checkpoint_key {
	uint64_t text, seed, batch, total_steps, number_bytes;
	double rate;
	struct model_shape shape;
};

/* Where a run's checkpoints go: into the file `path`, each in place of the one before; or, if one of the keeps is not
 * 0, into the folder `path`, under names with step and loss. */
struct checkpoints {
	const char *path;
	uint64_t keep_last, keep_best;
	struct checkpoint_key key;
};

/* Once the new one is durable, removes all others of a folder but the newest `keep_last` and the `keep_best` with the
 * lowest losses. Checkpoints that cannot be removed are reported on stderr; that is no failure. */
enum neap_status checkpoint_save(const struct checkpoints *all, struct model *model, uint64_t step, double loss,
				 struct neap_error *err);
/* Loads the newest checkpoint. NEAP_ENOENT: there is none. After any other failure the model must not be used. */
enum neap_status checkpoint_load(const struct checkpoints *all, struct model *model, uint64_t *ret_step,
				 struct neap_error *err);

#endif
