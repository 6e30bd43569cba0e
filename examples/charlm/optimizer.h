/* charlm/optimizer.h: AdamW, with a warm-up and a cosine decay of the learning rate. */
#ifndef CHARLM_OPTIMIZER_H
#define CHARLM_OPTIMIZER_H

#include "model.h"

struct optimizer {
	struct model *model;
	double rate;
	uint64_t warmup_steps, total_steps;
	real **moments; /* two for each parameter, on the device, tagged "optimizer" */
};

/* The model outlives the optimizer. */
enum neap_status optimizer_init(struct optimizer *optimizer, struct model *model, double rate, uint64_t total_steps,
				struct neap_error *err);
void optimizer_fini(struct optimizer *optimizer); /* zeroed is fine */

/* Queues the update from the gradients as they are. `step` from 1. */
void optimizer_step(struct optimizer *optimizer, uint64_t step);

#endif
