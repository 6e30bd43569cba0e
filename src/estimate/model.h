/* estimate/model.h: the command that `neap estimate --model` runs if the user has no script. It runs neap's own
 * program (python/launch/neap_model_program.py), with the user's choices as its arguments. They are parameters of the
 * command, so that --fit and --try can change them:
 *
 *   --model llama --batch 4   ->   python .../neap_model_program.py --model=llama --batch={batch} ...
 *                                  --param batch=4 ...
 *
 * If the program refuses (no such model, no network, a missing library), it prints one sentence and ends with the
 * status of sysexits.h that `neap estimate` then ends with. One thread. */
#ifndef NEAP_ESTIMATE_MODEL_H
#define NEAP_ESTIMATE_MODEL_H

#include "store/result.h"

#define NEAP_ESTIMATE_MODEL_CHOICES 9
#define NEAP_ESTIMATE_MODEL_CHANGES 4

/* The options that go with --model, in the order of neap_estimate_model_given's values: "task", "batch", ... */
extern const char *const neap_estimate_model_choices[NEAP_ESTIMATE_MODEL_CHOICES];

/* What the user gave; borrowed. NULL: not given. */
struct neap_estimate_model_given {
	const char *name;
	const char *values[NEAP_ESTIMATE_MODEL_CHOICES]; /* by neap_estimate_model_choices; "": a flag */
	const char *ranks, *steps;
	bool plans;          /* --plan: gradients accumulate */
	char *const *python; /* the Python to run it with, NULL-terminated; empty: python or python3 of PATH */
};

/* A zeroed struct means a command without --model. */
struct neap_estimate_model {
	struct neap_estimate_model_given given;
	char script[4400];
	char **argv;                                       /* of the command, NULL-terminated */
	char *parameters[NEAP_ESTIMATE_MODEL_CHOICES + 1]; /* "batch=4", NULL-terminated */
	char *arguments[NEAP_ESTIMATE_MODEL_CHOICES + 3];  /* "--model=llama", "--batch={batch}", NULL-terminated */
};

/* Makes the command. The caller calls neap_estimate_model_fini, also after a failure. Errors: NEAP_EINVAL for a
 * choice that makes no sense, NEAP_ENOENT for a path without a config, NEAP_ENOTSUP if neap's program is not
 * installed, NEAP_ENOMEM. */
enum neap_status neap_estimate_model_make(const struct neap_estimate_model_given *given,
					  struct neap_estimate_model *model, struct neap_error *err);
void neap_estimate_model_fini(struct neap_estimate_model *model);

/* The changes of training that --plan combines if the user names none ("checkpointing=1"), without those that the
 * user has chosen. NULL-terminated. */
void neap_estimate_model_changes(const struct neap_estimate_model *model,
				 const char *ret_changes[NEAP_ESTIMATE_MODEL_CHANGES + 1]);

/* The changes of training that the program makes already, as bits 1u << enum neap_rung. */
uint32_t neap_estimate_model_rungs(const struct neap_estimate_model *model);

/* "llama: task=lora batch=4", for the report; the caller frees it. NULL: out of memory. */
char *neap_estimate_model_text(const struct neap_estimate_model *model, const struct neap_result *result);

#endif
