/* charlm/options.h: what the command line says. */
#ifndef CHARLM_OPTIONS_H
#define CHARLM_OPTIONS_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A way to need less memory: never, when memory was not enough, or from the start. */
enum use { USE_OFF, USE_ALLOW, USE_ON };

struct options {
	const char *text, *checkpoint, *losses; /* files; NULL: not given */
	uint64_t steps, batch, micro_batch, seed;
	uint64_t layers, width, heads, context;
	double rate;
	enum use efficient_attention, mixed_precision, checkpointing;
	uint64_t checkpoint_every, log_every, leak_bytes_per_step;
	bool resume, help;
};

/* Starts from the defaults; NEAP_EINVAL with a message for what cannot be understood or does not fit together. The
 * texts are argv's. */
enum neap_status options_parse(struct options *options, int argc, char **argv, struct neap_error *err);

/* The help, in lines, into `text`. */
void options_help(char *text, size_t room);

#endif
