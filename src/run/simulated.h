/* run/simulated.h: reports what neap's stand-ins for NVIDIA's libraries (sim/runtime) did not model in a run.
 *
 *   RUN/simulated.PID   of each process that loaded them; empty while there is nothing to report. For each function:
 *
 *                           GAP LIBRARY FUNCTION CALLS LOW HIGH
 *
 *                       GAP is values, workspace, refused, transfer or kernel (enum runtime_gap in
 *                       sim/runtime/services.h). LOW and HIGH bound the bytes of a workspace (HIGH 2^64 - 1: no
 *                       bound is known); 0 for the others.
 *
 * A process writes its file again, whole, whenever its tally grows, so a reader sees each call once. The program's
 * processes write the files and may write anything: every length and every count is capped, and lines of another form
 * are skipped.
 */
#ifndef NEAP_RUN_SIMULATED_H
#define NEAP_RUN_SIMULATED_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

#define NEAP_SIMULATED_UNBOUNDED UINT64_MAX
#define NEAP_SIMULATED_GAPS      64 /* functions listed by name; calls of further ones are counted together */

/* In the order of the report. */
enum neap_gap {
	NEAP_GAP_WORKSPACE,
	NEAP_GAP_REFUSED,
	NEAP_GAP_TRANSFER,
	NEAP_GAP_KERNEL,
	NEAP_GAP_VALUES,
	NEAP_GAPS
};

struct neap_simulated_gap {
	enum neap_gap kind;
	char library[32], function[96];
	uint64_t calls;
	/* Of one call: the least and the most of all calls; high NEAP_SIMULATED_UNBOUNDED: the most is not known */
	uint64_t low_bytes, high_bytes;
};

/* The sum over processes. A zeroed struct is empty. */
struct neap_simulated {
	uint64_t processes; /* how many processes loaded the stand-ins */
	struct neap_simulated_gap gaps[NEAP_SIMULATED_GAPS];
	size_t gap_count;
	uint64_t calls[NEAP_GAPS]; /* of each kind, also those without a place in `gaps` */
};

/* Adds the lines of one process's file. */
void neap_simulated_add(struct neap_simulated *simulated, const char *text, size_t length);

/* Whether some process of the run has loaded the stand-ins. */
bool neap_simulated_is_used(const char *folder);

/* Adds every RUN/simulated.PID. An unreadable file counts as empty. */
void neap_simulated_read(const char *folder, struct neap_simulated *simulated);

/* "no kernel ran; workspaces not modelled: cuDNN cudnnX (12 calls, 0 B to 205 KiB each); refused: ...": one
 * line. Nothing where no process loaded the stand-ins. */
void neap_simulated_text(const struct neap_simulated *simulated, struct neap_buffer *out);

#endif
