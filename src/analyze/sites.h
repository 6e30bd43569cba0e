/* analyze/sites.h: finds, for each stack, the line of the program that allocated, and the phase of the program. Pure.
 *
 * The line is the innermost Python frame outside torch and Python's own library. If there is none, it is the
 * innermost Python frame; else autograd's node, or the innermost frame that is not the allocator's own. In a
 * recording of neap's it is the tag.
 *
 * The phase follows from names that have the same meaning in every program (torch/optim, autograd::Engine,
 * nn.Module._call_impl, functions named forward, backward or step, losses of nn.functional, cuBLAS's workspaces,
 * Dynamo's and Inductor's compilers), the innermost first.
 */
#ifndef NEAP_ANALYZE_SITES_H
#define NEAP_ANALYZE_SITES_H

#include "trace/trace.h"

enum neap_phase {
	NEAP_PHASE_UNKNOWN,
	NEAP_PHASE_MODEL, /* made, moved or loaded: Module.to, load_state_dict, ... */
	NEAP_PHASE_FORWARD,
	NEAP_PHASE_BACKWARD,
	NEAP_PHASE_OPTIMIZER,
	NEAP_PHASE_ZERO_GRAD,
	NEAP_PHASE_WORKSPACE,
	NEAP_PHASE_THREAD,    /* in a thread without Python: autograd's, which may also make a library's workspace */
	NEAP_PHASE_COMPILING, /* torch.compile, and the timing of kernels to choose from */
	/* A line of the program itself that keeps the blocks that it makes, as far as the trace shows. */
	NEAP_PHASE_KEEPING,
	NEAP_PHASE_CHOOSING, /* a line that keeps some of them; categories.h sets both */
};

struct neap_sites {
	const struct neap_trace *trace; /* borrowed */
	uint32_t *frames;               /* by stack: index in trace->frames; [0] is 0 */
	uint8_t *phases;                /* by stack: enum neap_phase */
};

/* Errors: NEAP_ENOMEM. */
enum neap_status neap_sites_make(const struct neap_trace *trace, struct neap_sites *ret_sites,
				 struct neap_error *err);
void neap_sites_fini(struct neap_sites *sites);

/* Whether the stack has a line: autograd's threads have none. */
static inline bool neap_has_line(const struct neap_sites *sites, uint32_t stack)
{
	return stack > 0 && sites->phases[stack] != NEAP_PHASE_THREAD;
}

/* "train/gpt.py:69 forward": the last two parts of the file's path; a tag, or a C++ function, is its name alone. */
void neap_site_text(const struct neap_trace *trace, uint32_t frame, char *ret_text, size_t capacity);

#endif
