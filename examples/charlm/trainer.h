/* charlm/trainer.h: one training run: the loop of neap/train.h, with everything around it. */
#ifndef CHARLM_TRAINER_H
#define CHARLM_TRAINER_H

#include "data.h"
#include "device.h"
#include "options.h"

#include <signal.h>

struct trainer_end {
	enum neap_train_request request;     /* why it stopped; NEAP_TRAIN_GO_ON: the session did not ask for it */
	struct neap_train_settings settings; /* in force at the end */
};

/* Trains from the first step, or from the checkpoint, to the last step or until `*stop` is not 0; then saves, if a
 * checkpoint was asked for. Progress goes to stdout, neap's lines to stderr. NEAP_EOOM: the ladder is at its end.
 * NEAP_ECANCELED: stopped by `*stop`, or because the session asked for it. NEAP_EINTERNAL: the allocator's books were
 * wrong at the end. *ret_end is written in any case. */
enum neap_status trainer_run(const struct options *options, struct gpu *gpu, const struct data *data,
			     const volatile sig_atomic_t *stop, struct trainer_end *ret_end, struct neap_error *err);

#endif
