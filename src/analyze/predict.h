/* analyze/predict.h: predicts how much memory a step needs with other settings: a smaller or larger micro-batch,
 * memory-efficient attention, mixed precision, gradient checkpointing. Pure.
 *
 * It starts from the bytes live at one instant of this run (its peak, or a failure), by kind. Each kind becomes an
 * interval, and the sum of these is the prediction. Nothing in it is fitted to any program.
 *
 *   kind         micro-batch   efficient attention   mixed precision   checkpointing
 *   activations  scale         stay                  x 1/2 .. 3/4      x (1/L + (1 - 1/L) s), s = 0.02 .. 0.12
 *   attention    scale         x 0 .. 1/8            x 1/2 .. 3/4      likewise
 *   temporaries  scale         stay                  x 1/2 .. 3/4      stay
 *   inputs       scale         stay                  stay              stay
 *   parameters   stay          stay                  x 1 .. 3/2        stay
 *   model        stay          stay                  stay              stay
 *   unknown      0 .. scale    stay                  stay              stay
 *   leaked       stay          stay                  stay              stay
 *
 * Mixed precision: half to all of the activations change from 32 bits to 16 (it assumes that they are in 32), and
 * copies of the parameters in 16 bits may be added. Checkpointing with L layers computes one layer at a time again
 * and keeps each one's input, whose share s of a layer's activations is 1/8 at most and 1/50 at least (a
 * transformer's is about 1/18). If L is not known, the factor is 1/10 .. 1/2: it assumes that sqrt(L) of the L layers
 * are kept (Chen et al. 2016, arXiv:1604.06174), for L = 100 and 4. */
#ifndef NEAP_ANALYZE_PREDICT_H
#define NEAP_ANALYZE_PREDICT_H

#include "neap/train.h"
#include "trace/record.h"

/* Bytes live at one instant. By tag: "activations", "attention" (its scores), "temporaries", "batch" (inputs),
 * "parameters", "gradients", "optimizer" and "workspace" (model, which stays); any other is unknown. */
struct neap_demand {
	uint64_t activations, attention, temporaries, inputs, parameters, model, unknown;
	uint64_t leaked; /* bytes that are kept over the steps or grow with them, whatever their tag: these stay */
};

void neap_demand_add(struct neap_demand *demand, const char *tag, uint64_t bytes);
/* Notes that `bytes` are leaked. Moves those that do not count as leaked yet, from activations and other kinds. */
void neap_demand_leak(struct neap_demand *demand, uint64_t bytes);
uint64_t neap_demand_total(const struct neap_demand *demand);

/* The demand at the highest allocated bytes since the settings last changed, as far back as the recording has
 * allocations; if steps before these were higher, the difference counts as unknown. False when the recording has no
 * end of a session, or its allocations do not add up to what was allocated. */
bool neap_demand_at_peak(const struct neap_record *record, struct neap_demand *ret_demand);

struct neap_prediction {
	uint64_t bytes, uncertainty_bytes; /* the middle of the interval, and half its width */
};

/* Predicts. `demand` was measured with `from`; `layers` 0: not known. False: it cannot predict, because a rung is in
 * force in `from` and not in `to`, or a micro-batch is 0. */
bool neap_predict(const struct neap_demand *demand, const struct neap_train_settings *from,
		  const struct neap_train_settings *to, uint32_t layers, struct neap_prediction *ret_prediction);

/* The predicted saving of one rung alone. */
struct neap_saving {
	enum neap_rung rung;
	uint64_t bytes, uncertainty_bytes;
};
#define NEAP_SAVINGS 3

/* Predicts the saving of each rung, in the ladder's order. Skips rungs among the bits `active`, and those without any
 * effect. Returns how many. */
size_t neap_predict_savings(const struct neap_demand *demand, uint32_t active, uint32_t layers,
			    struct neap_saving ret_savings[NEAP_SAVINGS]);
/* "memory-efficient attention 960 KiB ± 64.0 KiB, ... of the peak of 12.1 MiB (predicted, each alone)"; "" for none.
 */
void neap_savings_text(const struct neap_saving *savings, size_t count, uint64_t peak_bytes, char *ret_text,
		       size_t capacity);

#endif
