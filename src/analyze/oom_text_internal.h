/* analyze/oom_text_internal.h: shared by the readers of messages. */
#ifndef NEAP_ANALYZE_OOM_TEXT_INTERNAL_H
#define NEAP_ANALYZE_OOM_TEXT_INTERNAL_H

#include "analyze/oom_text.h"

/* A size, its unit, and half of its last digit. */
struct figure {
	uint64_t bytes, half_digit;
};

static const struct figure unknown = {NEAP_OOM_TEXT_UNKNOWN, 0};

static inline bool known(uint64_t bytes) { return bytes != NEAP_OOM_TEXT_UNKNOWN; }
static inline struct figure either(struct figure one, struct figure other) { return known(one.bytes) ? one : other; }

/* Stores a figure in its field, and adds its rounding error to slack_bytes. */
static inline void take(struct neap_oom_text *found, uint64_t *field, struct figure figure)
{
	*field = figure.bytes;
	found->slack_bytes += figure.half_digit;
}

/* Reads "1.50 GiB" or "512 bytes" at the start of `text`. */
bool neap_oom_figure_read(const char *text, struct figure *ret_figure);

/* oom_text_jobs.c. `before`: the part of the log between the previous message and this one; any bytes. */
void neap_oom_vllm_read(const char *before, size_t length, struct neap_oom_text *found);
/* `text`: the message, from its opening on. */
void neap_oom_slurm_read(const char *before, size_t before_length, const char *text, size_t length,
			 struct neap_oom_text *found);

#endif
