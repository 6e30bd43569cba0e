/* charlm/trainer.h: one training run: the loop of neap/train.h, with everything around it. */
#ifndef CHARLM_TRAINER_H
#define CHARLM_TRAINER_H

#include "data.h"
#include "device.h"
#include "options.h"

#include <signal.h>

/* Trains from the first step, or from the checkpoint, to the last step or until `*stop` is not 0; then saves, if a
 * checkpoint is asked for. Progress goes to stdout, neap's lines to stderr. NEAP_EOOM: the ladder is at its end.
 * NEAP_ECANCELED: stopped by `*stop`, or because the session wished so: *ret_wish. */
enum neap_status trainer_run(const struct options *options, struct gpu *gpu, const struct data *data,
			     const volatile sig_atomic_t *stop, enum neap_train_wish *ret_wish,
			     struct neap_error *err);

#endif
