/* checkpoint/pickle.h: reads plain values from a pickle without executing it. libc only, pure, any thread.
 *
 * The machine is that of pickle/pickle.h. If a call would make an object, the reader has a blank value instead. It
 * reads texts, numbers, and the items of dicts, including the attributes of objects. Protocols 0 to 5.
 *
 *   torch.save({"callbacks": {"ModelCheckpoint{...}": {"best_model_path": "a.ckpt"}}})
 *     items(name "ModelCheckpoint{...}", ["best_model_path", "a.ckpt"]), then items(name "callbacks", ...), ...
 *
 * Limits: a million values on the stack and in the memo. Time and memory grow with the length of the pickle.
 */
#ifndef NEAP_CHECKPOINT_PICKLE_H
#define NEAP_CHECKPOINT_PICKLE_H

#include "pickle/pickle.h"

/* Besides those of every pickle. A TEXT has `text` and `length`: it points into the pickle. */
enum checkpoint_pickle_type {
	/* a tensor of one number, which is in a storage beside the pickle. a: the number of its storage; b: its index
	 * there; detail: enum checkpoint_pickle_element */
	CHECKPOINT_PICKLE_SCALAR = NEAP_PICKLE_OWN,
	/* within the reader only */
	CHECKPOINT_PICKLE_GLOBAL,  /* its name, as a TEXT */
	CHECKPOINT_PICKLE_NOTHING, /* () */
	CHECKPOINT_PICKLE_STORAGE,
	CHECKPOINT_PICKLE_ARGUMENTS, /* of a call that makes a scalar */
};

/* The element type of a storage, by the name of its class. */
enum checkpoint_pickle_element {
	CHECKPOINT_PICKLE_UNKNOWN,
	CHECKPOINT_PICKLE_FLOAT32,
	CHECKPOINT_PICKLE_FLOAT64,
	CHECKPOINT_PICKLE_FLOAT16,
	CHECKPOINT_PICKLE_BFLOAT16,
};

struct checkpoint_pickle_visitor {
	/* Called with some items of a dict: `items` has keys and values in turn; `count` counts both. `name`: the
	 * value before the dict on the stack, which is its key if the dict is itself a value of a dict. Inner dicts
	 * come before the dict that has them. */
	void (*items)(void *context, const struct neap_pickled *name, const struct neap_pickled *items, size_t count);
	void *context;
};

/* Errors: NEAP_EPARSE with the position; NEAP_ENOMEM. Items visited before the error stay visited. */
enum neap_status checkpoint_pickle_scan(const void *pickle, size_t length,
					const struct checkpoint_pickle_visitor *visitor, struct neap_error *err);

/* Whether the value is this text. */
bool checkpoint_pickle_is(const struct neap_pickled *value, const char *text);

#endif
