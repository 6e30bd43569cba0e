/* checkpoint/role.h: finds which checkpoint a file is a part of, by its name. Pure; any thread.
 *
 *   model_epoch_5.pt, optimizer_epoch_5.pt, rng_epoch_5.pt       one checkpoint: only the roles differ
 *   x-00001-of-00002.safetensors, x.safetensors.index.json       one: only the numbers of parts differ
 *   model_step100_rank0.pt, model_step100_rank1.pt               one: only the numbers of parts differ
 *
 * Parts of one checkpoint have the same key. The key is the name without its extension, words for roles (model,
 * optimizer, scheduler, scaler, rng, ema, generator, ...), fillers (state, dict, checkpoint, ...), numbers of parts
 * (rank 0, shard 3, 00001-of-00002) and metrics.
 */
#ifndef NEAP_CHECKPOINT_ROLE_H
#define NEAP_CHECKPOINT_ROLE_H

#include <stdbool.h>
#include <stdint.h>

struct checkpoint_role {
	uint64_t key;  /* hash of the rest of the name */
	bool part;     /* it has a role or a part's number: files with the same key belong to the same checkpoint */
	bool aux;      /* it has a helper's role (optimizer, scheduler, scaler, rng, ema) and no model's */
	bool index;    /* x.safetensors.index.json and the like: lists which part has which tensors */
	bool numbered; /* the key has a number */
	uint64_t only; /* that number, if it is whole and the only one; else UINT64_MAX */
	uint64_t set;  /* of x-00001-of-00003.bin: hash of the name without 00001; 0: the name is not of this form */
	uint64_t of;   /* of x-00001-of-00003.bin: 3 */
};

void checkpoint_role_read(const char *name, struct checkpoint_role *ret_role);

#endif
