/* cli/estimate_model.h: `neap estimate --model`: the command that it runs where the user has no script, which is
 * neap's own program (python/launch/neap_model_program.py) with the user's choices as its arguments. They are
 * parameters of the command, so that --fit and --try can change them:
 *
 *   --model llama --batch 4   ->   python .../neap_model_program.py --model=llama --batch={batch} ...
 *                                  --param batch=4 ...
 *
 * What the program refuses (no such model, no network, a library that is missing), it says in one sentence, and ends
 * with the status of sysexits.h that `neap estimate` then ends with. One thread. */
#ifndef NEAP_CLI_ESTIMATE_MODEL_H
#define NEAP_CLI_ESTIMATE_MODEL_H

#include "cli/command.h"
#include "store/result.h"

#define ESTIMATE_MODEL_CHOICES 9
#define ESTIMATE_MODEL_CHANGES 4

/* A zeroed struct is that of a command without --model. */
struct estimate_model {
	const char *name; /* NULL: no --model was given */
	char script[4400];
	char **argv;                                  /* of the command, NULL-terminated */
	char *parameters[ESTIMATE_MODEL_CHOICES + 1]; /* "batch=4", NULL-terminated */
	char *arguments[ESTIMATE_MODEL_CHOICES + 3];  /* "--model=llama", "--batch={batch}", NULL-terminated */
};

/* Reads the options that go with --model. Without it: says so where one of them is given. Prints what is wrong, and
 * returns the exit code. The caller calls estimate_model_fini, also after a failure. */
int estimate_model_parse(const struct neap_arguments *arguments, struct estimate_model *model);
void estimate_model_fini(struct estimate_model *model);

/* The changes of training that --plan combines where the user names none, without those that an option has decided:
 * "checkpointing=1". NULL-terminated. */
void estimate_model_changes(const struct neap_arguments *arguments,
			    const char *ret_changes[ESTIMATE_MODEL_CHANGES + 1]);

/* --print-script: the program on stdout, with the arguments that it would get. Returns the exit code. */
int estimate_model_print(const struct estimate_model *model);

/* The changes of training that the program has in it already: bits 1u << enum neap_rung. */
uint32_t estimate_model_rungs(const struct estimate_model *model);

/* Whether the program refused the model: prints its sentence, and returns the exit code; else 0. */
int estimate_model_refused(const struct estimate_model *model, const struct neap_result *result);

/* "llama: task=lora batch=4", for the report; the caller frees it. NULL: out of memory. */
char *estimate_model_text(const struct estimate_model *model, const struct neap_result *result);

#endif
