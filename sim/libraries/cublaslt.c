/* cuBLASLt: products. The library allocates nothing: the program asks the heuristic for an algorithm within the
 * workspace that it is willing to give, allocates that, and passes it to cublasLtMatmul.
 *
 *   preference (at most 32 MiB) --AlgoGetHeuristic--> algorithm + size --> program allocates --> cublasLtMatmul
 *
 * The size that the real heuristic returns is not documented: between 0 and the preference's maximum. Here it is 0.
 * The memory is unknown only for a program that allocates by the answer. PyTorch always allocates its maximum, so its
 * memory is exact. The algorithm remembers the maximum: cublasLtMatmul counts an interval only if the program passes
 * a smaller workspace.
 */
#include "sim/libraries/attributes.h"
#include "sim/libraries/cublas_common.h"
#include "sim/libraries/cublaslt_describe.h"
#include "sim/libraries/stand_in.h"

#include <pthread.h>
#include <stdlib.h>

struct algorithm { /* cublasLtMatmulAlgo_t, 64 bytes, which programs copy */
	int32_t id;
	uint32_t tile;
	int32_t split;
	uint32_t reduction;
	uint32_t swizzle;
	uint32_t custom;
	uint32_t stages;
	uint16_t inner;
	uint16_t cluster;
	uint64_t workspace_bytes; /* the preference's maximum; 0 without a heuristic */
	uint64_t reserved[3];
};
_Static_assert(sizeof(struct algorithm) == 64, "cublasLtMatmulAlgo_t");

static const struct attribute algorithm_rows[] = {
	ATTRIBUTE(0, struct algorithm, id),      ATTRIBUTE(1, struct algorithm, tile),
	ATTRIBUTE(2, struct algorithm, split),   ATTRIBUTE(3, struct algorithm, reduction),
	ATTRIBUTE(4, struct algorithm, swizzle), ATTRIBUTE(5, struct algorithm, custom),
	ATTRIBUTE(6, struct algorithm, stages),  ATTRIBUTE(7, struct algorithm, inner),
	ATTRIBUTE(8, struct algorithm, cluster),
};
static const struct attributes algorithm_table = ATTRIBUTES(algorithm_rows);

/* The capabilities of the one algorithm: everything but splitting, which needs a workspace. */
struct capabilities {
	int32_t no;
	int32_t yes;
	uint32_t all;
	uint32_t undefined; /* the only tile and the only stages */
	uint64_t none;
	uint32_t alignment;
};

static const struct attribute capability_rows[] = {
	ATTRIBUTE(0, struct capabilities, no),         ATTRIBUTE(1, struct capabilities, no),
	ATTRIBUTE(2, struct capabilities, no),         ATTRIBUTE(3, struct capabilities, yes),
	ATTRIBUTE(4, struct capabilities, yes),        ATTRIBUTE(5, struct capabilities, no),
	ATTRIBUTE(6, struct capabilities, undefined),  ATTRIBUTE(7, struct capabilities, no),
	ATTRIBUTE(10, struct capabilities, yes),       ATTRIBUTE(11, struct capabilities, all),
	ATTRIBUTE(12, struct capabilities, all),       ATTRIBUTE(13, struct capabilities, undefined),
	ATTRIBUTE(14, struct capabilities, no),        ATTRIBUTE(15, struct capabilities, none),
	ATTRIBUTE(16, struct capabilities, alignment), ATTRIBUTE(17, struct capabilities, alignment),
	ATTRIBUTE(18, struct capabilities, alignment), ATTRIBUTE(19, struct capabilities, alignment),
	ATTRIBUTE(21, struct capabilities, yes),       ATTRIBUTE(22, struct capabilities, yes),
};
static const struct attributes capability_table = ATTRIBUTES(capability_rows);

struct result { /* cublasLtMatmulHeuristicResult_t */
	struct algorithm algorithm;
	size_t workspace_bytes;
	int status;
	float waves;
	int reserved[4];
};

int cublasLtCreate(uint64_t **ret_handle)
{
	const struct runtime_services *services = stand_in_services();
	int capability = 0;
	int multiprocessors = 0;

	if (!ret_handle)
		return CUBLAS_INVALID_VALUE;
	*ret_handle = NULL;
	if (!services || !services->architecture(services->device(), &capability, &multiprocessors))
		return CUBLAS_NOT_INITIALIZED;
	*ret_handle = calloc(1, sizeof **ret_handle);
	return *ret_handle ? 0 : CUBLAS_ALLOC_FAILED;
}

int cublasLtDestroy(uint64_t *handle)
{
	free(handle);
	return 0;
}

/* A cuBLAS handle is also a cuBLASLt handle. */
int cublasLtMatmul(const void *handle, const void *matmul, const void *alpha, const void *a, const void *a_layout,
		   const void *b, const void *b_layout, const void *beta, const void *c, const void *c_layout,
		   void *d, const void *d_layout, const struct algorithm *algorithm, void *workspace,
		   size_t workspace_bytes, void *stream)
{
	(void)alpha, (void)a, (void)b, (void)beta, (void)c, (void)d, (void)workspace;
	if (!handle)
		return CUBLAS_NOT_INITIALIZED;
	if (!matmul || !a_layout || !b_layout || !c_layout || !d_layout)
		return CUBLAS_INVALID_VALUE;
	if (algorithm && workspace_bytes < algorithm->workspace_bytes)
		stand_in_workspace("cublasLtMatmul", workspace_bytes, algorithm->workspace_bytes);
	return (int)stand_in_compute("cublasLtMatmul", stream);
}

static void answer(struct result *result, uint64_t workspace_bytes)
{
	*result = (struct result){.algorithm = {.split = 1, .workspace_bytes = workspace_bytes}, .waves = 1};
}

int cublasLtMatmulAlgoGetHeuristic(const void *handle, const void *matmul, const void *a_layout, const void *b_layout,
				   const void *c_layout, const void *d_layout, const struct preference *preference,
				   int count, struct result *results, int *ret_count)
{
	if (!handle)
		return CUBLAS_NOT_INITIALIZED;
	if (!matmul || !a_layout || !b_layout || !c_layout || !d_layout || count < 1 || !results || !ret_count)
		return CUBLAS_INVALID_VALUE;
	answer(results, preference ? preference->workspace_bytes : 0);
	*ret_count = 1;
	return 0;
}

int cublasLtMatmulAlgoCheck(const void *handle, const void *matmul, const void *a_layout, const void *b_layout,
			    const void *c_layout, const void *d_layout, const struct algorithm *algorithm,
			    struct result *result)
{
	if (!handle)
		return CUBLAS_NOT_INITIALIZED;
	if (!matmul || !a_layout || !b_layout || !c_layout || !d_layout || !algorithm || !result)
		return CUBLAS_INVALID_VALUE;
	answer(result, algorithm->workspace_bytes);
	result->algorithm = *algorithm;
	return 0;
}

int cublasLtMatmulAlgoGetIds(const void *handle, int compute_type, int scale_type, int a_type, int b_type, int c_type,
			     int d_type, int count, int *ids, int *ret_count)
{
	(void)compute_type, (void)scale_type, (void)a_type, (void)b_type, (void)c_type, (void)d_type;
	if (!handle)
		return CUBLAS_NOT_INITIALIZED;
	if (count < 1 || !ids || !ret_count)
		return CUBLAS_INVALID_VALUE;
	ids[0] = 0;
	*ret_count = 1;
	return 0;
}

int cublasLtMatmulAlgoInit(const void *handle, int compute_type, int scale_type, int a_type, int b_type, int c_type,
			   int d_type, int id, struct algorithm *algorithm)
{
	(void)compute_type, (void)scale_type, (void)a_type, (void)b_type, (void)c_type, (void)d_type;
	if (!handle)
		return CUBLAS_NOT_INITIALIZED;
	if (id != 0 || !algorithm)
		return CUBLAS_INVALID_VALUE;
	*algorithm = (struct algorithm){.split = 1};
	return 0;
}

int cublasLtMatmulAlgoConfigSetAttribute(struct algorithm *algorithm, int number, const void *from, size_t bytes)
{
	return attributes_set(&algorithm_table, algorithm, number, from, bytes) ? 0 : CUBLAS_INVALID_VALUE;
}

int cublasLtMatmulAlgoConfigGetAttribute(const struct algorithm *algorithm, int number, void *to, size_t bytes,
					 size_t *ret_bytes)
{
	return attributes_get(&algorithm_table, algorithm, number, to, bytes, ret_bytes) ? 0 : CUBLAS_INVALID_VALUE;
}

int cublasLtMatmulAlgoCapGetAttribute(const struct algorithm *algorithm, int number, void *to, size_t bytes,
				      size_t *ret_bytes)
{
	static const struct capabilities capabilities = {.yes = 1, .all = UINT32_MAX, .alignment = 1};

	if (!algorithm)
		return CUBLAS_INVALID_VALUE;
	return attributes_get(&capability_table, &capabilities, number, to, bytes, ret_bytes) ? 0
											      : CUBLAS_INVALID_VALUE;
}

size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }

size_t cublasLtGetCudartVersion(void) { return CUBLAS_RUNTIME; }

int cublasLtGetProperty(int type, int *ret_value) { return cublas_property(type, ret_value); }

const char *cublasLtGetStatusName(int code) { return cublas_status_name(code); }

const char *cublasLtGetStatusString(int code) { return cublas_status_text(code); }

static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static size_t cache_capacity = 8192;

int cublasLtHeuristicsCacheGetCapacity(size_t *ret_capacity)
{
	if (!ret_capacity)
		return CUBLAS_INVALID_VALUE;
	pthread_mutex_lock(&cache_lock);
	*ret_capacity = cache_capacity;
	pthread_mutex_unlock(&cache_lock);
	return 0;
}

int cublasLtHeuristicsCacheSetCapacity(size_t capacity)
{
	pthread_mutex_lock(&cache_lock);
	cache_capacity = capacity;
	pthread_mutex_unlock(&cache_lock);
	return 0;
}
