/* sim/libraries/cudnn_backend.h: descriptors of cuDNN's graph API.
 *
 *   cudnnBackendDescriptor_t  ->  contents  ->  attributes: name, type, elements
 *     the program's, unique        shared           of type "descriptor": other contents
 *
 * A descriptor owns its contents until it is finalized. After that they never change, so descriptors and attributes
 * share them by reference count: a program may destroy a tensor's descriptor as soon as an operation has it, and Get
 * also returns a reference. Only finalized contents become attributes, so there are no cycles.
 */
#ifndef NEAP_RUNTIME_LIBRARIES_CUDNN_BACKEND_H
#define NEAP_RUNTIME_LIBRARIES_CUDNN_BACKEND_H

#include "sim/libraries/cudnn_state.h"

#include <stdatomic.h>

struct cudnn_attribute {
	int name;
	int type;
	int64_t count;
	void *elements; /* of type CUDNN_TYPE_BACKEND_DESCRIPTOR: struct cudnn_contents *, one reference each */
};

struct cudnn_contents {
	atomic_int references;
	int type; /* cudnnBackendDescriptorType_t */
	bool finalized;
	atomic_bool executed; /* a variant pack: a plan has run with it */
	size_t count;
	struct cudnn_attribute *attributes;
};

/* One reference. NULL: host out of memory. */
struct cudnn_contents *cudnn_contents_create(int type);
struct cudnn_contents *cudnn_contents_share(struct cudnn_contents *contents);
void cudnn_contents_release(struct cudnn_contents *contents);

/* Replaces an attribute with copies of `count` elements; contents are shared. False: host out of memory. */
bool cudnn_contents_set(struct cudnn_contents *contents, int name, int type, int64_t count, const void *elements);
/* The attribute, or NULL. */
const struct cudnn_attribute *cudnn_contents_find(const struct cudnn_contents *contents, int name);
/* The attribute, if it has this type. */
const struct cudnn_attribute *cudnn_contents_typed(const struct cudnn_contents *contents, int name, int type);
/* The first contents of an attribute, if they are of this descriptor type, else NULL. */
struct cudnn_contents *cudnn_contents_part(const struct cudnn_contents *contents, int name, int type);

/* The contents of a program's descriptor. NULL: unknown, not finalized, or of another type. */
struct cudnn_descriptor;
const struct cudnn_contents *cudnn_backend_contents(const struct cudnn_descriptor *descriptor, int type);

/* Checks contents before they are finalized, and adds the attributes that the library provides. Returns a status. */
int cudnn_graph_finalize(struct cudnn_contents *contents);

#endif
