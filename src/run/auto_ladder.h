/* run/auto_ladder.h: `--on-oom auto`: makes a ladder from the batch. It finds the batch in the command's options, if
 * they are those of transformers or Lightning. Else a program that uses one of these reports its batch. Reads one
 * file.
 *
 *   python run_clm.py --per_device_train_batch_size 32 --model gpt2
 *   -> {per_device_train_batch_size} and {gradient_accumulation_steps} in its place, and the rule
 *      "halve per_device_train_batch_size, double gradient_accumulation_steps"
 *
 * If the command names no accumulation, it is 1, and the option is added at the command's end.
 *
 * If the command names no batch, the program is asked. NEAP_BATCH_PARTS in its environment is 1 at first, and each
 * rung doubles it. python/neap/_divide.py divides each batch into so many parts, and multiplies the accumulation by
 * the same number. It writes to RUN/batch.PID the values that the program asked for, then the values in force:
 *
 *   per_device_train_batch_size=32
 *   gradient_accumulation_steps=1
 *   per_device_train_batch_size=16
 *   gradient_accumulation_steps=2
 */
#ifndef NEAP_RUN_AUTO_LADDER_H
#define NEAP_RUN_AUTO_LADDER_H

#include "run/argv.h"
#include "run/degrade.h"

/* Adds the two parameters, and writes the command with their names in place of the values. If there was no parameter
 * before, braces in the command keep their meaning. On failure nothing has changed. Errors: NEAP_ENOENT for a command
 * that names no such batch; NEAP_EPARSE for a value that cannot be halved or doubled; NEAP_EEXIST for a parameter
 * that is there already; NEAP_ENOMEM. */
enum neap_status neap_ladder_auto(char *const *command, struct neap_parameters *parameters,
				  struct neap_ladder *ret_ladder, struct neap_argv *ret_command,
				  struct neap_error *err);

/* Reads a file that the program wrote. *ret_ladder: the rule that halves the batch and doubles the accumulation.
 * Errors: NEAP_EPARSE, NEAP_EEXIST or NEAP_EINVAL if the content has another form; those of reading. */
enum neap_status neap_ladder_read_batch(const char *path, struct neap_parameters *ret_asked,
					struct neap_parameters *ret_now, struct neap_ladder *ret_ladder,
					struct neap_error *err);

/* Returns into how many parts the program divided the batch; 0: the quotient is not a whole number. */
uint64_t neap_ladder_parts(const struct neap_parameters *asked, const struct neap_parameters *now);

#endif
