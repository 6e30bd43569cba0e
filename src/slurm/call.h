/* slurm/call.h: runs one of Slurm's commands by its argv, never through a shell.
 *
 * It runs in a process group of its own, so that Ctrl-C on our terminal does not interrupt it: else we would not know
 * whether sbatch has submitted. Environment variables that change the behaviour or output of these commands are
 * removed (SQUEUE_*, SACCT_*, and some of sbatch's).
 */
#ifndef NEAP_SLURM_CALL_H
#define NEAP_SLURM_CALL_H

#include "base/buffer.h"

/* Runs the command to its end. NEAP_OK: it ran, and `output` has its stdout. `complaint` has its error, the last line
 * of its stderr or its exit status; "" if it ended with 0. Errors: NEAP_ENOTSUP when it is not on PATH;
 * NEAP_ETIMEDOUT after two minutes, when it is killed; NEAP_EPROTO for more output than any cluster gives;
 * NEAP_ENOMEM, NEAP_EIO. */
enum neap_status neap_slurm_call(char *const *argv, struct neap_buffer *output, char complaint[200],
				 struct neap_error *err);

/* Copies the last line of a text that is not blank, made printable, without "NAME: error: ". */
void neap_slurm_last_line(const struct neap_buffer *text, char *line, size_t capacity);

#endif
