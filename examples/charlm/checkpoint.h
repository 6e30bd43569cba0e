/* charlm/checkpoint.h: the whole state of a training run in one file, written whole or not at all.
 *
 *   header | for each parameter: value, first moment, second moment | check sum of all before it
 *
 * The header says for what it was made; one made for another text, model, seed, batch or rate is refused, because the
 * run would silently become a different one.
 */
#ifndef CHARLM_CHECKPOINT_H
#define CHARLM_CHECKPOINT_H

#include "model.h"

/* What must be equal for a run to go on as if it had never stopped. */
struct checkpoint_key {
	uint64_t text, seed, batch, total_steps;
	double rate;
	struct model_shape shape;
	uint32_t number_bytes;
};

enum neap_status checkpoint_save(const char *path, const struct checkpoint_key *key, struct model *model,
				 uint64_t step, struct neap_error *err);
/* Into FOLDER, under a name with step and loss. Once it is durable, all go but the newest `keep_last` and those of
 * the `keep_best` lowest losses; what could not be removed is said on stderr, and no failure. */
enum neap_status checkpoint_save_in(const char *folder, uint64_t keep_last, uint64_t keep_best,
				    const struct checkpoint_key *key, struct model *model, uint64_t step, double loss,
				    struct neap_error *err);
/* The path of the newest in FOLDER. NEAP_ENOENT: there is none, or no folder. */
enum neap_status checkpoint_newest(const char *folder, char *path, size_t room, struct neap_error *err);
/* NEAP_ENOENT: there is none. On any failure the model must not be used. */
enum neap_status checkpoint_load(const char *path, const struct checkpoint_key *key, struct model *model,
				 uint64_t *ret_step, struct neap_error *err);

#endif
