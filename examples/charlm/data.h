/* charlm/data.h: a text as numbers, and the samples of each step. */
#ifndef CHARLM_DATA_H
#define CHARLM_DATA_H

#include "neap/status.h"

#include <stddef.h>
#include <stdint.h>

struct data {
	unsigned char *ids; /* one for each byte of the text, below `vocabulary` */
	size_t length;
	uint32_t vocabulary;  /* how many different bytes there are */
	double entropy_nats;  /* of a byte, from how often each occurs: the loss of a model that uses no context */
	uint64_t fingerprint; /* of the text */
};

/* The text must be longer than `context`, and no longer than 64 MiB. */
enum neap_status data_load(struct data *data, const char *path, size_t context, struct neap_error *err);
void data_fini(struct data *data); /* zeroed is fine */

/* Fills `count` samples of a step, ids and, one character later, targets; `first` is the number of the first sample
 * within the step. A sample depends only on (seed, step, its number), so that splitting a step changes nothing. */
void data_samples(const struct data *data, uint64_t seed, uint64_t step, size_t first, size_t count, size_t context,
		  int32_t *ret_ids, int32_t *ret_targets);

#endif
