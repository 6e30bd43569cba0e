/* slurm/call.h: one of Slurm's commands, started by its words and never through a shell.
 *
 * It runs in a process group of its own, so that Ctrl-C on our terminal does not end it half-way: whether sbatch has
 * submitted would not be known. Variables by which users give these commands habits of their own are not passed on
 * (SQUEUE_*, SACCT_*, and of sbatch's those that change what it does or prints).
 */
#ifndef NEAP_SLURM_CALL_H
#define NEAP_SLURM_CALL_H

#include "base/buffer.h"
#include "run/words.h"

/* Runs it to its end. NEAP_OK: it ran, `output` has what it wrote, and `complaint` why it refused: its last words on
 * stderr or its exit status; "" when it ended with 0. Errors: NEAP_ENOTSUP when it is not on PATH; NEAP_ETIMEDOUT
 * after two minutes, it is killed then; NEAP_EPROTO for more output than any cluster gives; NEAP_ENOMEM, NEAP_EIO. */
enum neap_status neap_slurm_call(const struct neap_words *words, struct neap_buffer *output, char complaint[200],
				 struct neap_error *err);

/* The last line of a text that is not blank, made printable, without "NAME: error: ". */
void neap_slurm_last_line(const struct neap_buffer *text, char *line, size_t room);

#endif
