/* checkpoint/role.h: which checkpoint a file is a part of, judged by its name. Pure; any thread.
 *
 *   model_epoch_5.pt, optimizer_epoch_5.pt, rng_epoch_5.pt       one checkpoint: the names differ in their roles only
 *   x-00001-of-00002.safetensors, x.safetensors.index.json       one: they differ in their numbers of parts only
 *   model_step100_rank0.pt, model_step100_rank1.pt               likewise
 *
 * Taken out of a name: its extension, words for roles (model, optimizer, scheduler, scaler, rng, ema, generator, ...)
 * and fillers (state, dict, checkpoint, ...), numbers of parts (rank 0, shard 3, 00001-of-00002) and metrics. The
 * rest is the key: parts of one checkpoint have the same key.
 */
#ifndef NEAP_CHECKPOINT_ROLE_H
#define NEAP_CHECKPOINT_ROLE_H

#include <stdbool.h>
#include <stdint.h>

struct checkpoint_role {
	uint64_t key;  /* hash of what is left of the name */
	bool part;     /* it has a role or the number of a part: files with the same key belong to it */
	bool aux;      /* optimizer, scheduler, scaler, rng, ema and no model: nothing by itself */
	bool index;    /* of x.safetensors.index.json and the like: says which part has what */
	bool numbered; /* a number is left in the key */
	uint64_t only; /* that number, where it is whole and the only one; UINT64_MAX: it is not */
	uint64_t set;  /* of x-00001-of-00003.bin: hash of the name but for 00001; 0: it is not such a name */
	uint64_t of;   /* 3 */
};

void checkpoint_role_read(const char *name, struct checkpoint_role *ret_role);

#endif
