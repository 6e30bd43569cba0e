/* charlm/options.h: what the command line says. */
#ifndef CHARLM_OPTIONS_H
#define CHARLM_OPTIONS_H

#include "neap/train.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A way to need less memory: never, when memory was not enough, or from the start. */
enum use { USE_OFF, USE_ALLOW, USE_ON };

enum { TRIALS_MAX = 16 };

struct options {
	const char *text, *checkpoint, *losses; /* files; NULL: not given */
	uint64_t steps, batch, micro_batch, seed;
	uint64_t layers, width, heads, context;
	double rate;
	const char *rates; /* NULL: not given; else checked, and in trial_rates */
	double trial_rates[TRIALS_MAX];
	size_t trials;
	enum use efficient_attention, mixed_precision, checkpointing;
	uint64_t checkpoint_every, keep_last, keep_best; /* one of the keeps: the checkpoint is a folder of them */
	uint64_t log_every, leak_bytes_per_step;
	struct neap_levels device, host; /* of memory that is left */
	uint64_t host_limit_bytes;
	uint32_t cleanup_points; /* bits 1u << enum neap_cleanup_reason */
	uint64_t cleanup_every_steps, cleanup_every_epochs, cleanup_every_ticks;
	enum neap_on_leak on_leak;
	uint64_t leak_margin_steps;
	bool clear_memory_on_start, resume, help;
};

/* Starts from the defaults; NEAP_EINVAL with a message for what cannot be understood or does not fit together. The
 * texts are argv's. */
enum neap_status options_parse(struct options *options, int argc, char **argv, struct neap_error *err);

/* Prints the help on stdout. */
void options_help(void);

#endif
