/* analyze/step_model.h: one step of a recording as operations whose sizes depend on the micro-batch. For advice.c. */
#ifndef NEAP_ANALYZE_STEP_MODEL_H
#define NEAP_ANALYZE_STEP_MODEL_H

#include "neap/event.h"
#include "neap/train.h"
#include "replay/rerun.h"
#include "trace/record.h"

struct neap_step_tags;

/* The settings in force at the end of a recording, and those before them. */
struct neap_last_settings {
	struct neap_split split, before; /* before.micro_batch 0: there was no earlier split */
	uint64_t since_ns, before_since_ns;
	uint64_t until_ns; /* when they changed again, or the request failed; UINT64_MAX: neither happened */
	uint16_t device;   /* the device of the session's allocator */
	bool from_change;  /* the step that begins with the change of settings counts as whole */
	/* Without a session: where the micro-batch comes from, and another source that differs. */
	bool found, many_devices; /* many: the process uses several */
	struct neap_event_batch batch;
	/* For PyTorch's own allocator, whose blocks have stacks as tags: which stacks belong to the optimizer. */
	const struct neap_step_tags *tags;
};

/* Facts about the program's stacks. */
struct neap_step_tags {
	bool (*of_optimizer)(const void *context, uint32_t tag);
	const void *context;
};

/* The settings of the last session; without one, those that neap found in the program. False: the recording has
 * neither. */
bool neap_last_settings(const struct neap_record *record, struct neap_last_settings *ret_settings);
/* The settings that neap found in a program without a session, on one device. False: none. */
bool neap_found_settings(const struct neap_record *record, uint16_t device, struct neap_last_settings *ret_settings);

/* Scratch memory of a reduction: 1 MiB for each multiprocessor of the largest GPUs. */
#define NEAP_STEP_SCRATCH (192ull << 20)

/* Bytes at micro-batch m: fixed + sample * m. */
struct neap_step_size {
	uint64_t fixed, sample;
	uint64_t
		/* For each sample, if it may be a kernel's scratch: then it grows from `fixed` up to
		 * NEAP_STEP_SCRATCH. */
		scratch;
	bool smaller; /* its micro-batch had one sample less than the largest of its step */
};
/* Returns the bytes at a micro-batch. `as_recorded`: with one sample less if `smaller`; else as if all parts had this
 * size. Saturates. */
uint64_t neap_step_bytes(const struct neap_step_size *size, uint64_t micro_batch, bool as_recorded);

struct neap_step_model {
	struct neap_rerun_op *ops;    /* the base, then the step, with the sizes that were recorded */
	struct neap_step_size *sizes; /* of the step's operations */
	size_t base_count, step_count, slot_count;
	uint64_t base_bytes; /* the rounded bytes that are live when the step begins */
	/* The part of base_bytes that no event of the recording explains; one block of the base. */
	uint64_t unknown_bytes;
	uint64_t peak_allocated_bytes, peak_reserved_bytes; /* measured in that step */
	bool closed;     /* the step ends with the same live blocks with which it began, so it can be repeated */
	bool two_splits; /* two splits show how some sizes depend on the micro-batch */
};

#define NEAP_STEP_SHORT 8192 /* operations; a longer step is repeated only once */

/* Takes the step with the highest peak among those that are whole in the recording and ran with these settings.
 * Errors: NEAP_ENOENT when there is none; NEAP_EPARSE when its events do not fit together; NEAP_ENOMEM. */
enum neap_status neap_step_model_make(const struct neap_record *record, const struct neap_last_settings *settings,
				      struct neap_step_model *ret_model, struct neap_error *err);
/* Covers the program from its beginning to the end of its third step (or of its last, if there are fewer), to be
 * replayed once, because later steps find the memory as the first ones have split it. Its base is empty. Errors:
 * NEAP_ENOENT when that is not in the recording, or is very long; NEAP_ENOMEM. */
enum neap_status neap_step_model_first(const struct neap_record *record, const struct neap_last_settings *settings,
				       struct neap_step_model *ret_model, struct neap_error *err);
void neap_step_model_fini(struct neap_step_model *model);

/* Makes the step's operations at a micro-batch: step_count of them. */
void neap_step_ops(const struct neap_step_model *model, uint64_t micro_batch, bool as_recorded,
		   struct neap_rerun_op *ret_ops);
/* Makes a rerun of the step with these operations. It repeats the step three times if that is possible and the step
 * is short, because fragmentation shows from the second time on. The caller sets the device's memory and the
 * pages. */
struct neap_rerun neap_step_rerun(const struct neap_step_model *model, const struct neap_rerun_op *ops);

#endif
