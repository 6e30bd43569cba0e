/* charlm/options.h: what the command line says. */
#ifndef CHARLM_OPTIONS_H
#define CHARLM_OPTIONS_H

#include "model.h"

#include "neap/train.h"

enum { RATES_MAX = 16 };

struct options {
	const char *text, *checkpoint, *losses; /* files; NULL: not given */
	struct neap_train_options session;      /* complete: batch, steps, rungs, thresholds, cleanups */
	struct model_shape shape;               /* but for the vocabulary */
	double rate;
	struct rates {
		size_t count; /* 0: no trials */
		double list[RATES_MAX];
	} rates;
	uint64_t seed, checkpoint_every, log_every, leak_bytes_per_step;
	uint64_t keep_last, keep_best; /* one of them: the checkpoint is a folder of them */
	bool resume, help;
};

/* Starts from the defaults; NEAP_EINVAL with a message for what cannot be understood or does not fit together. The
 * texts are argv's. */
enum neap_status options_parse(struct options *options, int argc, char **argv, struct neap_error *err);

/* Prints the help on stdout. */
void options_help(void);

#endif
