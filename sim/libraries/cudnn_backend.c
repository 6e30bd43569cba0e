/* cuDNN: descriptors of the graph API: create, set, finalize, get. cudnn_graph.c interprets them. */
#include "sim/libraries/cudnn_backend.h"

#include "base/array.h"

#include <stdlib.h>

struct cudnn_contents *cudnn_contents_create(int type)
{
	struct cudnn_contents *contents = calloc(1, sizeof *contents);

	if (!contents)
		return NULL;
	atomic_init(&contents->references, 1);
	contents->type = type;
	return contents;
}

struct cudnn_contents *cudnn_contents_share(struct cudnn_contents *contents)
{
	atomic_fetch_add(&contents->references, 1);
	return contents;
}

static void attribute_release(struct cudnn_attribute *attribute)
{
	struct cudnn_contents **parts = attribute->elements;

	for (int64_t i = 0; attribute->type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < attribute->count; i++)
		cudnn_contents_release(parts[i]);
	free(attribute->elements);
}

void cudnn_contents_release(struct cudnn_contents *contents)
{
	if (!contents || atomic_fetch_sub(&contents->references, 1) > 1)
		return;
	for (size_t i = 0; i < contents->count; i++)
		attribute_release(&contents->attributes[i]);
	free(contents->attributes);
	free(contents);
}

/* Bytes of an element of an attribute, 0: no such type. Enumerators have 4. */
static size_t element_bytes(int type)
{
	switch (type) {
	case CUDNN_TYPE_BOOLEAN:
	case CUDNN_TYPE_CHAR:
		return 1;
	case CUDNN_TYPE_HANDLE:
	case CUDNN_TYPE_INT64:
	case CUDNN_TYPE_DOUBLE:
	case CUDNN_TYPE_VOID_PTR:
	case CUDNN_TYPE_BACKEND_DESCRIPTOR:
		return 8;
	case CUDNN_TYPE_FRACTION:
		return 16;
	default:
		return type >= 0 && type < CUDNN_TYPE_COUNT ? 4 : 0;
	}
}

static struct cudnn_attribute *find(const struct cudnn_contents *contents, int name)
{
	for (size_t i = 0; i < contents->count; i++)
		if (contents->attributes[i].name == name)
			return &contents->attributes[i];
	return NULL;
}

const struct cudnn_attribute *cudnn_contents_find(const struct cudnn_contents *contents, int name)
{
	return find(contents, name);
}

const struct cudnn_attribute *cudnn_contents_typed(const struct cudnn_contents *contents, int name, int type)
{
	const struct cudnn_attribute *attribute = find(contents, name);

	return attribute && attribute->type == type && attribute->count > 0 ? attribute : NULL;
}

struct cudnn_contents *cudnn_contents_part(const struct cudnn_contents *contents, int name, int type)
{
	const struct cudnn_attribute *attribute =
		contents ? cudnn_contents_typed(contents, name, CUDNN_TYPE_BACKEND_DESCRIPTOR) : NULL;
	struct cudnn_contents *part = attribute ? ((struct cudnn_contents **)attribute->elements)[0] : NULL;

	return part && part->type == type ? part : NULL;
}

static struct cudnn_attribute *append(struct cudnn_contents *contents)
{
	if (!neap_array_grow(&contents->attributes, contents->count, sizeof *contents->attributes))
		return NULL;
	contents->attributes[contents->count] = (struct cudnn_attribute){0};
	return &contents->attributes[contents->count++];
}

bool cudnn_contents_set(struct cudnn_contents *contents, int name, int type, int64_t count, const void *elements)
{
	size_t bytes = (size_t)count * element_bytes(type);
	struct cudnn_attribute *attribute = find(contents, name);
	struct cudnn_contents *const *parts = elements;
	void *copy = calloc(1, bytes + 1);

	if (copy && !attribute)
		attribute = append(contents);
	if (!copy || !attribute) {
		free(copy);
		return false;
	}
	if (count > 0)
		memcpy(copy, elements, bytes);
	for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; i++)
		cudnn_contents_share(parts[i]);
	attribute_release(attribute);
	*attribute = (struct cudnn_attribute){name, type, count, copy};
	return true;
}

/* Attributes are numbered in ranges, one for each type of descriptor. A range ends where the next begins, so that
 * attributes of newer versions are also stored. Sorted by number. */
static const struct {
	int first;
	int type;
} ranges[] = {
	{0, CUDNN_BACKEND_POINTWISE},
	{100, CUDNN_BACKEND_CONVOLUTION},
	{200, CUDNN_BACKEND_ENGINEHEUR},
	{300, CUDNN_BACKEND_ENGINECFG},
	{400, CUDNN_BACKEND_EXECUTION_PLAN},
	{500, CUDNN_BACKEND_INTERMEDIATE_INFO},
	{600, CUDNN_BACKEND_KNOB_CHOICE},
	{700, CUDNN_BACKEND_CONVOLUTION_FORWARD},
	{706, CUDNN_BACKEND_CONVOLUTION_BACKWARD_DATA},
	{712, CUDNN_BACKEND_CONVOLUTION_BACKWARD_FILTER},
	{750, CUDNN_BACKEND_OPERATION_POINTWISE},
	{770, CUDNN_BACKEND_GEN_STATS},
	{780, CUDNN_BACKEND_BN_FINALIZE},
	{800, CUDNN_BACKEND_OPERATIONGRAPH},
	{900, CUDNN_BACKEND_TENSOR},
	{1000, CUDNN_BACKEND_VARIANT_PACK},
	{1100, CUDNN_BACKEND_LAYOUT_INFO},
	{1200, CUDNN_BACKEND_KNOB_INFO},
	{1300, CUDNN_BACKEND_ENGINE},
	{1500, CUDNN_BACKEND_MATMUL},
	{1520, CUDNN_BACKEND_OPERATION_MATMUL},
	{1600, CUDNN_BACKEND_REDUCTION},
	{1610, CUDNN_BACKEND_OPERATION_REDUCTION},
	{1620, CUDNN_BACKEND_BN_BWD_WEIGHTS},
	{1700, CUDNN_BACKEND_RESAMPLE},
	{1710, CUDNN_BACKEND_RESAMPLE_FWD},
	{1720, CUDNN_BACKEND_RESAMPLE_BWD},
	{1800, CUDNN_BACKEND_CONCAT},
	{1900, CUDNN_BACKEND_SIGNAL},
	{1950, CUDNN_BACKEND_PAGED_CACHE_LOAD},
	{2000, CUDNN_BACKEND_NORM_FORWARD},
	{2100, CUDNN_BACKEND_NORM_BACKWARD},
	{2200, CUDNN_BACKEND_RESHAPE},
	{2250, CUDNN_BACKEND_EXPAND_BAND_MATRIX},
	{2270, CUDNN_BACKEND_CONTRACT_BAND_MATRIX},
	{2300, CUDNN_BACKEND_RNG},
	{2310, CUDNN_BACKEND_OPERATION_RNG},
	{2400, CUDNN_BACKEND_KERNEL_CACHE},
	{2500, CUDNN_BACKEND_BLOCK_SCALE_QUANTIZE},
	{2600, CUDNN_BACKEND_BLOCK_SCALE_DEQUANTIZE},
	{2700, CUDNN_BACKEND_DEVICEPROP},
	{2800, CUDNN_BACKEND_SDPA_FWD},
	{2851, CUDNN_BACKEND_SDPA_BWD},
	{2900, CUDNN_BACKEND_MOE_GROUPED_MATMUL},
	{2951, CUDNN_BACKEND_MOE_GROUPED_MATMUL_BWD},
	{3000, CUDNN_BACKEND_DIAGONAL_BAND_MASK},
	{3100, CUDNN_BACKEND_SOFTMAX},
	{3200, CUDNN_BACKEND_TRANSPOSE},
	{3300, CUDNN_BACKEND_SLICE},
	{3400, CUDNN_BACKEND_ROPE_FWD},
	{3410, CUDNN_BACKEND_ROPE_BWD},
	{3500, -1},
};

static bool belongs(int name, int type)
{
	size_t i = 0;

	if (name < 0 || name >= 3500)
		return false;
	while (ranges[i + 1].first <= name)
		i++;
	return ranges[i].type == type;
}

static bool type_known(int type)
{
	for (size_t i = 0; ranges[i].type >= 0; i++)
		if (ranges[i].type == type)
			return true;
	return false;
}

/* A text form of a plan or a device, for another process: there are no plans or devices that it could describe. */
static bool is_text(int name)
{
	return name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION ||
	       name == CUDNN_ATTR_KERNEL_CACHE_JSON_REPRESENTATION ||
	       name == CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION;
}

/* The program's descriptor. */
struct cudnn_descriptor {
	struct cudnn_contents *contents;
};

int cudnnBackendCreateDescriptor(int type, struct cudnn_descriptor **ret_descriptor)
{
	struct cudnn_descriptor *descriptor;

	if (!ret_descriptor)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnBackendCreateDescriptor");
	*ret_descriptor = NULL;
	if (!type_known(type))
		return cudnn_refuse("cudnnBackendCreateDescriptor", "no such type of descriptor");
	descriptor = calloc(1, sizeof *descriptor);
	if (descriptor)
		descriptor->contents = cudnn_contents_create(type);
	if (!descriptor || !descriptor->contents) {
		free(descriptor);
		return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
	}
	*ret_descriptor = descriptor;
	return 0;
}

int cudnnBackendDestroyDescriptor(struct cudnn_descriptor *descriptor)
{
	if (!descriptor)
		return 0;
	cudnn_contents_release(descriptor->contents);
	free(descriptor);
	return 0;
}

/* The reason why an attribute cannot be set or read; 0: it can. */
static int check(const struct cudnn_descriptor *descriptor, int name, int type, bool finalized)
{
	if (!descriptor)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the descriptor is NULL");
	if (descriptor->contents->finalized != finalized)
		return cudnn_fail(CUDNN_STATUS_NOT_INITIALIZED,
				  finalized ? "the descriptor is not finalized" : "the descriptor is finalized");
	if (!belongs(name, descriptor->contents->type))
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
				  "the descriptor has no attribute of this name");
	if (element_bytes(type) == 0)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "no such type of attribute");
	return is_text(name) ? cudnn_refuse("cudnnBackendGetAttribute (text)", "plans have no text form") : 0;
}

static int set_parts(struct cudnn_contents *contents, int name, int64_t count,
		     struct cudnn_descriptor *const *descriptors)
{
	struct cudnn_contents **parts = calloc((size_t)count + 1, sizeof(struct cudnn_contents *));
	int status = parts ? 0 : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;

	for (int64_t i = 0; !status && i < count; i++) {
		if (!descriptors[i])
			status = cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a descriptor is NULL");
		else if (!descriptors[i]->contents->finalized)
			status = cudnn_fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor is not finalized");
		else
			parts[i] = descriptors[i]->contents;
	}
	if (!status && !cudnn_contents_set(contents, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, parts))
		status = CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
	free(parts);
	return status;
}

int cudnnBackendSetAttribute(struct cudnn_descriptor *descriptor, int name, int type, int64_t count,
			     const void *elements)
{
	int status = check(descriptor, name, type, false);

	if (status)
		return status;
	if (count < 0 || count > INT32_MAX || (count > 0 && !elements))
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "an attribute's elements are missing");
	if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
		return set_parts(descriptor->contents, name, count, elements);
	if (!cudnn_contents_set(descriptor->contents, name, type, count, elements))
		return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
	return 0;
}

int cudnnBackendFinalize(struct cudnn_descriptor *descriptor)
{
	int status;

	if (!descriptor)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnBackendFinalize");
	if (descriptor->contents->finalized)
		return 0;
	status = cudnn_graph_finalize(descriptor->contents);
	if (!status)
		descriptor->contents->finalized = true;
	return status;
}

/* Fills the program's descriptors with an attribute's contents. */
static int get_parts(const struct cudnn_attribute *attribute, int64_t requested,
		     struct cudnn_descriptor *const *ret_descriptors)
{
	struct cudnn_contents **parts = attribute->elements;

	for (int64_t i = 0; i < requested && i < attribute->count; i++) {
		if (!ret_descriptors[i])
			return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a descriptor to fill is NULL");
		if (ret_descriptors[i]->contents->type != parts[i]->type)
			return cudnn_fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
					  "a descriptor to fill is of another type");
		cudnn_contents_share(parts[i]);
		cudnn_contents_release(ret_descriptors[i]->contents);
		ret_descriptors[i]->contents = parts[i];
	}
	return 0;
}

/* An attribute that was never set has no elements. */
int cudnnBackendGetAttribute(const struct cudnn_descriptor *descriptor, int name, int type, int64_t requested,
			     int64_t *ret_count, void *ret_elements)
{
	const struct cudnn_attribute *attribute;
	int status = check(descriptor, name, type, true);

	if (status)
		return status;
	if (requested < 0 || (requested == 0 && !ret_count))
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "no pointer for the attribute");
	attribute = cudnn_contents_find(descriptor->contents, name);
	if (attribute && attribute->type != type)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "the attribute is of another type");
	if (ret_count)
		*ret_count = attribute ? attribute->count : 0;
	if (!attribute || !ret_elements)
		return 0;
	if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
		return get_parts(attribute, requested, ret_elements);
	memcpy(ret_elements, attribute->elements,
	       (size_t)(requested < attribute->count ? requested : attribute->count) * element_bytes(type));
	return 0;
}

const struct cudnn_contents *cudnn_backend_contents(const struct cudnn_descriptor *descriptor, int type)
{
	if (!descriptor || !descriptor->contents->finalized || descriptor->contents->type != type)
		return NULL;
	return descriptor->contents;
}
