/* proto/device_answer.h: one device in the answer to info, clear, reset_peak and fraction. One table lists its
 * figures: the agent writes an answer by it, and the command reads the answer and makes JSON by it.
 */
#ifndef NEAP_PROTO_DEVICE_ANSWER_H
#define NEAP_PROTO_DEVICE_ANSWER_H

#include "neap/external.h"
#include "proto/fields.h"

/* The kinds of answers in which a figure is shown. */
enum {
	NEAP_SHOWN_HELD = 1,    /* the allocator's bytes */
	NEAP_SHOWN_CLEARED = 2, /* after its cache was emptied */
	NEAP_SHOWN_LIMITED = 4, /* after it was limited */
};

struct neap_device_figure {
	const char *name; /* of the member in struct neap_device_answer, and in JSON */
	unsigned field;   /* enum neap_field */
	size_t offset;
	uint64_t absent; /* its value if the answer lacks it */
	unsigned shown;
};

extern const struct neap_device_figure neap_device_figures[];
extern const size_t neap_device_figure_count;

static inline uint64_t neap_device_figure(const struct neap_device_answer *device,
					  const struct neap_device_figure *figure)
{
	return *(const uint64_t *)((const char *)device + figure->offset);
}

/* Initialises an answer without any figure. */
void neap_device_answer_init(struct neap_device_answer *device);

/* Writes the answer as a group NEAP_FIELD_DEVICE. Omits figures that are UINT64_MAX. */
void neap_device_answer_write(struct neap_field_writer *writer, const struct neap_device_answer *device);

/* The `n`th device of a reply. A figure that `needed` (bits NEAP_SHOWN_) shows must be there, unless it may be
 * unknown. Errors: NEAP_ENOENT when there are no more devices; NEAP_EPROTO: this one is malformed. */
enum neap_status neap_device_answer_read(const struct neap_fields *reply, size_t n, unsigned needed,
					 struct neap_device_answer *ret_device);

#endif
