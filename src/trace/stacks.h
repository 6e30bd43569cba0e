/* trace/stacks.h: the stacks beside a recording of PyTorch's own allocator: "stacks.PID" for "record.PID", or
 * "history.PID" if the recording's events come from PyTorch's own history (python/neap/_history.py).
 *
 *     neap-stacks 1<TAB>torch 2.15.0<TAB>conf expandable_segments:True
 *     0<TAB>/home/me/train.py<TAB>12<TAB>forward<TAB>/home/me/train.py<TAB>40<TAB><module>
 *
 * The first line names the release and the allocator's settings. Each other line is a stack: its number, then file,
 * line and function of each frame, innermost first. A number alone is a thread without Python, as those are in which
 * PyTorch's autograd computes backward: its stack has one frame, NEAP_STACKS_THREAD. The process that records appends
 * whole lines; the last one may be cut short.
 *
 * The file is hostile: every number is checked, a line that is not a stack is skipped and counted.
 */
#ifndef NEAP_TRACE_STACKS_H
#define NEAP_TRACE_STACKS_H

#include "trace/build.h"

#define NEAP_STACKS_MAX    65536u      /* stacks; a line with a higher number is skipped */
#define NEAP_STACKS_BYTES  (20u << 20) /* of the file; the writer stops at 16 MiB */
#define NEAP_STACKS_FRAMES 32u         /* of one stack; the rest is skipped */
#define NEAP_STACKS_MAGIC  "neap-stacks 1\t"
#define NEAP_STACKS_THREAD "autograd's threads, no Python line"

/* calls[n]: the number in the trace (struct neap_trace_call) of stack number n; 0: there is none. */
struct neap_stacks {
	uint32_t *calls;
	size_t count;
};

/* Reads the text into the trace, with its settings. False, with nothing read: the text does not begin like such a
 * file. A failed allocation is in build->failed. Free with neap_stacks_fini. */
bool neap_stacks_parse(const char *text, size_t length, struct neap_build *build, struct neap_stacks *ret_stacks);
/* The same, for the file beside a recording. */
bool neap_stacks_read(const char *recording, struct neap_build *build, struct neap_stacks *ret_stacks);
void neap_stacks_fini(struct neap_stacks *stacks);

#endif
