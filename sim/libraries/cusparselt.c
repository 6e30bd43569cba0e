/* cuSPARSELt: products with a sparse matrix that keeps 2 of 4 elements (1 of 2 if they have 4 bytes).
 *
 * The program owns the memory of handles, descriptors and plans; here they store the settings. A compressed matrix is
 * the kept elements, and metadata that marks them:
 *
 *   values    rows x columns / 2 elements
 *   metadata  one bit for each element of the whole matrix (4-byte types: two), its sides rounded up to 32 and 64
 *
 * That gives the published sizes: 9/16 of a 16-bit matrix and 10/16 of an 8-bit one (PyTorch computes with these),
 * 384 bytes for 8 x 16 of 16 bits (NVIDIA's CUDALibrarySamples, issue 95). Not documented, and counted: the workspace
 * of a product (0, at most one 4-byte accumulator for each element of the result, an assumption), and the buffer of a
 * compression (0, at most the compressed matrix, an assumption).
 */
#include "sim/libraries/attributes.h"
#include "sim/libraries/cusparse_common.h"
#include "sim/libraries/stand_in.h"

#define MAJOR 0
#define MINOR 8
#define PATCH 0

#define MAGIC 0x6e6373706c743031ull

/* The API's opaque types have 512 bytes or more; the handle's first are the magic number. */
enum { OPAQUE_BYTES = 512 };

struct matrix {
	int64_t rows;
	int64_t columns;
	int64_t leading;
	int64_t batch_stride;
	int type;
	int order;
	int batches;
	bool structured;
};

static const struct attribute matrix_rows[] = {
	ATTRIBUTE(0, struct matrix, batches),
	ATTRIBUTE(1, struct matrix, batch_stride),
};
static const struct attributes matrix_table = ATTRIBUTES(matrix_rows);

struct product {
	struct matrix a;
	struct matrix b;
	struct matrix d;
	int operations[2];
	int compute_type;
	struct {
		int relu;
		float upper;
		float threshold;
		int gelu;
		float scaling;
		int alpha_vector;
		int beta_vector;
		int scale_modes[5]; /* A, B, C, D, D's output */
		int64_t bias_stride;
		void *bias;
		void *sparse;
		void *scales[5];
	} set;
};

static const struct attribute product_rows[] = {
	ATTRIBUTE(0, struct product, set.relu),
	ATTRIBUTE(1, struct product, set.upper),
	ATTRIBUTE(2, struct product, set.threshold),
	ATTRIBUTE(3, struct product, set.gelu),
	ATTRIBUTE(4, struct product, set.scaling),
	ATTRIBUTE(5, struct product, set.alpha_vector),
	ATTRIBUTE(6, struct product, set.beta_vector),
	ATTRIBUTE(7, struct product, set.bias_stride),
	ATTRIBUTE(8, struct product, set.bias),
	ATTRIBUTE(9, struct product, set.sparse),
	ATTRIBUTE(10, struct product, set.scale_modes[0]),
	ATTRIBUTE(11, struct product, set.scale_modes[1]),
	ATTRIBUTE(12, struct product, set.scale_modes[2]),
	ATTRIBUTE(13, struct product, set.scale_modes[3]),
	ATTRIBUTE(14, struct product, set.scale_modes[4]),
	ATTRIBUTE(15, struct product, set.scales[0]),
	ATTRIBUTE(16, struct product, set.scales[1]),
	ATTRIBUTE(17, struct product, set.scales[2]),
	ATTRIBUTE(18, struct product, set.scales[3]),
	ATTRIBUTE(19, struct product, set.scales[4]),
};
static const struct attributes product_table = ATTRIBUTES(product_rows);

struct selection {
	int config;
	int configs; /* their number */
	int iterations;
	int split;
	int split_mode;
	int split_buffers;
};

static const struct attribute selection_rows[] = {
	ATTRIBUTE(0, struct selection, config),     ATTRIBUTE(1, struct selection, configs),
	ATTRIBUTE(2, struct selection, iterations), ATTRIBUTE(3, struct selection, split),
	ATTRIBUTE(4, struct selection, split_mode), ATTRIBUTE(5, struct selection, split_buffers),
};
static const struct attributes selection_table = ATTRIBUTES(selection_rows);

struct plan {
	struct matrix sparse;
	struct matrix result;
};

_Static_assert(sizeof(struct matrix) <= OPAQUE_BYTES && sizeof(struct product) <= OPAQUE_BYTES &&
		       sizeof(struct selection) <= OPAQUE_BYTES && sizeof(struct plan) <= OPAQUE_BYTES,
	       "a descriptor fits the API's opaque type");

static bool known(const uint64_t *handle) { return handle && *handle == MAGIC; }

int cusparseLtInit(uint64_t *handle)
{
	const struct runtime_services *services = stand_in_services();
	int capability = 0;
	int multiprocessors = 0;

	if (!handle)
		return INVALID_VALUE;
	if (!services || !services->architecture(services->device(), &capability, &multiprocessors))
		return NOT_INITIALIZED;
	*handle = MAGIC;
	return 0;
}

int cusparseLtDestroy(const uint64_t *handle) { return known(handle) ? 0 : NOT_INITIALIZED; }

int cusparseLtGetVersion(const uint64_t *handle, int *ret_version)
{
	(void)handle;
	if (!ret_version)
		return INVALID_VALUE;
	*ret_version = MAJOR * 1000000 + MINOR * 100 + PATCH;
	return 0;
}

int cusparseLtGetProperty(int type, int *ret_value)
{
	static const int values[] = {MAJOR, MINOR, PATCH};

	if (!ret_value || type < 0 || type > 2)
		return INVALID_VALUE;
	*ret_value = values[type];
	return 0;
}

const char *cusparseLtGetErrorName(int status) { return cusparse_status_name(status); }

const char *cusparseLtGetErrorString(int status) { return cusparse_status_text(status); }

static int describe(const uint64_t *handle, struct matrix *matrix, const struct matrix *content)
{
	if (!known(handle))
		return NOT_INITIALIZED;
	if (!matrix || content->rows < 1 || content->columns < 1)
		return INVALID_VALUE;
	*matrix = *content;
	matrix->batches = 1;
	return 0;
}

int cusparseLtDenseDescriptorInit(const uint64_t *handle, struct matrix *matrix, int64_t rows, int64_t columns,
				  int64_t leading, uint32_t alignment, int type, int order)
{
	struct matrix content = {.rows = rows, .columns = columns, .leading = leading, .type = type, .order = order};

	(void)alignment;
	return describe(handle, matrix, &content);
}

int cusparseLtStructuredDescriptorInit(const uint64_t *handle, struct matrix *matrix, int64_t rows, int64_t columns,
				       int64_t leading, uint32_t alignment, int type, int order, int sparsity)
{
	struct matrix content = {.rows = rows,
				 .columns = columns,
				 .leading = leading,
				 .type = type,
				 .order = order,
				 .structured = true};

	(void)alignment, (void)sparsity;
	return describe(handle, matrix, &content);
}

#define SET_AND_GET(set_name, get_name, type, table)                                                                 \
	int set_name(const uint64_t *handle, struct type *object, int number, const void *from, size_t bytes)        \
	{                                                                                                            \
		if (!known(handle))                                                                                  \
			return NOT_INITIALIZED;                                                                      \
		return attributes_set(&table, object, number, from, bytes) ? 0 : INVALID_VALUE;                      \
	}                                                                                                            \
	int get_name(const uint64_t *handle, const struct type *object, int number, void *to, size_t bytes)          \
	{                                                                                                            \
		if (!known(handle))                                                                                  \
			return NOT_INITIALIZED;                                                                      \
		return bytes && attributes_get(&table, object, number, to, bytes, NULL) ? 0 : INVALID_VALUE;         \
	}
SET_AND_GET(cusparseLtMatDescSetAttribute, cusparseLtMatDescGetAttribute, matrix, matrix_table)
SET_AND_GET(cusparseLtMatmulDescSetAttribute, cusparseLtMatmulDescGetAttribute, product, product_table)
SET_AND_GET(cusparseLtMatmulAlgSetAttribute, cusparseLtMatmulAlgGetAttribute, selection, selection_table)

int cusparseLtMatmulDescriptorInit(const uint64_t *handle, struct product *product, int a_operation, int b_operation,
				   const struct matrix *a, const struct matrix *b, const struct matrix *c,
				   const struct matrix *d, int compute_type)
{
	if (!known(handle))
		return NOT_INITIALIZED;
	if (!product || !a || !b || !c || !d || a->structured == b->structured)
		return INVALID_VALUE;
	*product = (struct product){
		.a = *a, .b = *b, .d = *d, .operations = {a_operation, b_operation}, .compute_type = compute_type};
	return 0;
}

int cusparseLtMatmulAlgSelectionInit(const uint64_t *handle, struct selection *selection,
				     const struct product *product, int algorithm)
{
	(void)algorithm;
	if (!known(handle))
		return NOT_INITIALIZED;
	if (!selection || !product)
		return INVALID_VALUE;
	*selection = (struct selection){.configs = 1, .iterations = 5, .split = 1};
	return 0;
}

int cusparseLtMatmulPlanInit(const uint64_t *handle, struct plan *plan, const struct product *product,
			     const struct selection *selection)
{
	(void)selection;
	if (!known(handle))
		return NOT_INITIALIZED;
	if (!plan || !product)
		return INVALID_VALUE;
	*plan = (struct plan){.sparse = product->a.structured ? product->a : product->b, .result = product->d};
	return 0;
}

static uint64_t elements(const struct matrix *matrix)
{
	return (uint64_t)matrix->rows * (uint64_t)matrix->columns *
	       (uint64_t)(matrix->batches > 0 ? matrix->batches : 1);
}

int cusparseLtMatmulGetWorkspace(const uint64_t *handle, const struct plan *plan, size_t *ret_bytes)
{
	if (!known(handle))
		return NOT_INITIALIZED;
	if (!plan || !ret_bytes)
		return INVALID_VALUE;
	*ret_bytes = 0;
	stand_in_workspace("cusparseLtMatmulGetWorkspace", 0, 4 * elements(&plan->result));
	return 0;
}

static int multiply(const char *function, const uint64_t *handle, const struct plan *plan, void **streams, int count)
{
	if (!known(handle))
		return NOT_INITIALIZED;
	if (!plan || count < 0 || (count > 0 && !streams))
		return INVALID_VALUE;
	return (int)stand_in_compute(function, count > 0 ? streams[0] : NULL);
}

int cusparseLtMatmul(const uint64_t *handle, const struct plan *plan, const void *alpha, const void *a, const void *b,
		     const void *beta, const void *c, void *d, void *workspace, void **streams, int32_t count)
{
	(void)alpha, (void)a, (void)b, (void)beta, (void)c, (void)d, (void)workspace;
	return multiply(__func__, handle, plan, streams, count);
}

int cusparseLtMatmulSearch(const uint64_t *handle, struct plan *plan, const void *alpha, const void *a, const void *b,
			   const void *beta, const void *c, void *d, void *workspace, void **streams, int32_t count)
{
	(void)alpha, (void)a, (void)b, (void)beta, (void)c, (void)d, (void)workspace;
	return multiply(__func__, handle, plan, streams, count);
}

static uint64_t round_up(int64_t value, uint64_t unit) { return ((uint64_t)value + unit - 1) / unit * unit; }

static int compressed(const char *function, const struct matrix *matrix, size_t *ret_bytes, size_t *ret_buffer_bytes)
{
	const uint64_t bytes = cusparse_type_bytes(matrix->type);
	const uint64_t batches = (uint64_t)(matrix->batches > 0 ? matrix->batches : 1);
	const uint64_t bits = bytes == 4 ? 2 : 1;
	uint64_t all = batches * round_up(matrix->rows, 32) * round_up(matrix->columns, 64);

	if (!ret_bytes || !ret_buffer_bytes)
		return INVALID_VALUE;
	*ret_bytes = elements(matrix) / 2 * bytes + all * bits / 8;
	*ret_buffer_bytes = 0;
	stand_in_workspace(function, 0, *ret_bytes);
	return 0;
}

int cusparseLtSpMMACompressedSize(const uint64_t *handle, const struct plan *plan, size_t *ret_bytes,
				  size_t *ret_buffer_bytes)
{
	if (!known(handle))
		return NOT_INITIALIZED;
	return plan ? compressed(__func__, &plan->sparse, ret_bytes, ret_buffer_bytes) : INVALID_VALUE;
}

int cusparseLtSpMMACompressedSize2(const uint64_t *handle, const struct matrix *matrix, size_t *ret_bytes,
				   size_t *ret_buffer_bytes)
{
	if (!known(handle))
		return NOT_INITIALIZED;
	return matrix && matrix->structured ? compressed(__func__, matrix, ret_bytes, ret_buffer_bytes)
					    : INVALID_VALUE;
}
