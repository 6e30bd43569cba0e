/* run/auto_ladder.h: `--on-oom auto`: the ladder of a command that names its batch as transformers' or Lightning's
 * command lines do. Pure, but for host memory.
 *
 *   python run_clm.py --per_device_train_batch_size 32 --model gpt2
 *   -> {per_device_train_batch_size} and {gradient_accumulation_steps} in its place, and the rule
 *      "halve per_device_train_batch_size, double gradient_accumulation_steps"
 *
 * If the command names no accumulation, it is 1, and the option is added at the command's end.
 */
#ifndef NEAP_RUN_AUTO_LADDER_H
#define NEAP_RUN_AUTO_LADDER_H

#include "run/degrade.h"
#include "run/words.h"

/* Adds the two parameters, and writes the command with their names in place of the values. If there was no parameter
 * before, braces in it stay what they are. On failure nothing has changed. Errors: NEAP_ENOENT for a command that
 * names no such batch; NEAP_EPARSE for a value that cannot be halved or doubled; NEAP_EEXIST for a parameter that is
 * there already; NEAP_ENOMEM. */
enum neap_status neap_ladder_auto(char *const *command, struct neap_parameters *parameters,
				  struct neap_ladder *ret_ladder, struct neap_words *ret_command,
				  struct neap_error *err);

#endif
