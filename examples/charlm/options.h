/* charlm/options.h: the options of the command line. */
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
	uint64_t keep_last, keep_best; /* if one is set, the checkpoint is a folder of them */
	bool resume, help;
};

/* Starts from the defaults; NEAP_EINVAL, with a message, if an argument cannot be understood or does not fit another.
 * The texts are argv's. */
enum neap_status options_parse(struct options *options, int argc, char **argv, struct neap_error *err);

/* Prints the help on stdout. */
void options_help(void);

#endif
