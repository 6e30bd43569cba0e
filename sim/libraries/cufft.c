/* cuFFT: plans and their work areas.
 *
 * A plan has sizes and a type. The library allocates its work area with it, or (after cufftSetAutoAllocation(plan,
 * 0), as in PyTorch) the program does:
 *
 *   cufftCreate --> [plan] --> cufftMakePlan... --> size --> cudaMalloc here, or cufftSetWorkArea there
 *
 * cuFFT's documentation bounds the size: one to eight complex elements for each element of the transforms. A real
 * transform has half as many complex elements.
 */
#include "sim/libraries/stand_in.h"

#include <pthread.h>
#include <stdlib.h>

enum { /* cufftResult */
       INVALID_PLAN = 1,
       ALLOC_FAILED = 2,
       INVALID_TYPE = 3,
       INVALID_VALUE = 4,
       SETUP_FAILED = 7,
       INVALID_SIZE = 8,
};

#if STAND_IN_MAJOR == 11
#define MINOR 4
#else
#define MINOR 0
#endif

struct plan {
	bool used;
	bool manual; /* the program provides the work area */
	void *stream;
	void *area; /* made here */
	size_t bytes;
};

/* A plan is a small number: its index here plus 1. */
static struct {
	pthread_mutex_t lock;
	struct plan *plans;
	int count;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Lock held. */
static struct plan *plan_of(int number)
{
	return number > 0 && number <= all.count && all.plans[number - 1].used ? &all.plans[number - 1] : NULL;
}

static int create(int *ret_number)
{
	struct plan *plans;
	int i;

	for (i = 0; i < all.count && all.plans[i].used; i++)
		;
	if (i == all.count) {
		plans = realloc(all.plans, sizeof *plans * (size_t)(all.count + 64));
		if (!plans)
			return ALLOC_FAILED;
		memset(plans + all.count, 0, sizeof *plans * 64);
		all.plans = plans;
		all.count += 64;
	}
	all.plans[i] = (struct plan){.used = true};
	*ret_number = i + 1;
	return 0;
}

int cufftCreate(int *ret_plan)
{
	int status;

	if (!ret_plan)
		return INVALID_VALUE;
	if (!stand_in_services())
		return SETUP_FAILED;
	pthread_mutex_lock(&all.lock);
	status = create(ret_plan);
	pthread_mutex_unlock(&all.lock);
	return status;
}

intptr_t cufft_stream(uintptr_t first, void **ret_stream);
intptr_t cufft_stream(uintptr_t first, void **ret_stream)
{
	const struct plan *plan;

	pthread_mutex_lock(&all.lock);
	plan = plan_of((int)first);
	if (plan)
		*ret_stream = plan->stream;
	pthread_mutex_unlock(&all.lock);
	return plan ? 0 : INVALID_PLAN;
}

/* Device memory, allocated like the library's. */
static bool allocate(void **ret_area, size_t bytes)
{
	int (*function)(void **, size_t) = NULL;
	void *symbol = dlsym(RTLD_DEFAULT, "cudaMalloc");

	if (!symbol)
		return false;
	memcpy(&function, &symbol, sizeof function);
	return function(ret_area, bytes) == 0;
}

static void release(void *area)
{
	int (*function)(void *) = NULL;
	void *symbol = dlsym(RTLD_DEFAULT, "cudaFree");

	if (!area || !symbol)
		return;
	memcpy(&function, &symbol, sizeof function);
	function(area);
}

int cufftDestroy(int number)
{
	struct plan *plan;
	void *area = NULL;

	pthread_mutex_lock(&all.lock);
	plan = plan_of(number);
	if (plan) {
		area = plan->area;
		*plan = (struct plan){.used = false};
	}
	pthread_mutex_unlock(&all.lock);
	release(area);
	return plan ? 0 : INVALID_PLAN;
}

int cufftSetStream(int number, void *stream)
{
	struct plan *plan;

	pthread_mutex_lock(&all.lock);
	plan = plan_of(number);
	if (plan)
		plan->stream = stream;
	pthread_mutex_unlock(&all.lock);
	return plan ? 0 : INVALID_PLAN;
}

int cufftSetAutoAllocation(int number, int automatic)
{
	struct plan *plan;

	pthread_mutex_lock(&all.lock);
	plan = plan_of(number);
	if (plan)
		plan->manual = automatic == 0;
	pthread_mutex_unlock(&all.lock);
	return plan ? 0 : INVALID_PLAN;
}

/* The program's area replaces the plan's own. */
int cufftSetWorkArea(int number, void *area)
{
	struct plan *plan;
	void *old = NULL;

	(void)area;
	pthread_mutex_lock(&all.lock);
	plan = plan_of(number);
	if (plan) {
		old = plan->area;
		plan->area = NULL;
	}
	pthread_mutex_unlock(&all.lock);
	release(old);
	return plan ? 0 : INVALID_PLAN;
}

int cufftGetSize(int number, size_t *ret_bytes)
{
	const struct plan *plan;

	if (!ret_bytes)
		return INVALID_VALUE;
	pthread_mutex_lock(&all.lock);
	plan = plan_of(number);
	if (plan)
		*ret_bytes = plan->bytes;
	pthread_mutex_unlock(&all.lock);
	return plan ? 0 : INVALID_PLAN;
}

/* The elements of the transform. */
struct transform {
	int rank;
	int64_t sides[3];
	int64_t batches;
	uint64_t element; /* bytes of a complex number; 0: not a type */
	bool real;        /* one side is real */
};

/* cufftType: bits of the two sides' types */
static void set_type(struct transform *transform, int type)
{
	switch (type) {
	case 0x29: /* C2C */
	case 0x2a: /* R2C */
	case 0x2c: /* C2R */
		transform->element = 8;
		break;
	case 0x69: /* Z2Z */
	case 0x6a: /* D2Z */
	case 0x6c: /* Z2D */
		transform->element = 16;
		break;
	default:
		transform->element = 0;
	}
	transform->real = type != 0x29 && type != 0x69;
}

/* cudaDataType of the three sides: 0 to 2 and 14 are real, 4 f32, 5 f64, 6 f16, 15 bf16 complex. */
static void set_types(struct transform *transform, int input, int output, int execution)
{
	transform->element = execution == 5 ? 16 : execution == 4 ? 8 : execution == 6 || execution == 15 ? 4 : 0;
	transform->real = (input >= 0 && input <= 2) || input == 14 || (output >= 0 && output <= 2) || output == 14;
}

/* Counts the interval and returns its lower end. */
static int size_of(const char *function, const struct transform *transform, size_t *ret_bytes)
{
	uint64_t elements = (uint64_t)transform->batches;
	uint64_t low;
	int i;

	if (transform->element == 0)
		return INVALID_TYPE;
	if (transform->rank < 1 || transform->rank > 3 || transform->batches < 1)
		return INVALID_SIZE;
	for (i = 0; i < transform->rank; i++) {
		const uint64_t side = (uint64_t)transform->sides[i];

		if (transform->sides[i] < 1)
			return INVALID_SIZE;
		elements *= transform->real && i == transform->rank - 1 ? side / 2 + 1 : side;
	}
	low = elements * transform->element;
	stand_in_workspace(function, low, 8 * low);
	*ret_bytes = low;
	return 0;
}

/* Sets a plan's transform, and allocates its work area unless the program provides it. */
static int make(const char *function, int number, const struct transform *transform, size_t *ret_bytes)
{
	struct plan *plan;
	void *area = NULL;
	size_t bytes = 0;
	int status = size_of(function, transform, &bytes);
	bool manual;

	pthread_mutex_lock(&all.lock);
	plan = plan_of(number);
	manual = plan && plan->manual;
	pthread_mutex_unlock(&all.lock);
	if (!plan)
		return INVALID_PLAN;
	if (status != 0)
		return status;
	if (!manual && !allocate(&area, bytes))
		return ALLOC_FAILED;
	pthread_mutex_lock(&all.lock);
	plan = plan_of(number);
	if (plan) {
		plan->area = area;
		plan->bytes = bytes;
	}
	pthread_mutex_unlock(&all.lock);
	if (!plan)
		release(area);
	if (ret_bytes)
		*ret_bytes = bytes;
	return plan ? 0 : INVALID_PLAN;
}

/* A plan made in one call. */
static int plan_whole(const char *function, int *ret_plan, struct transform transform)
{
	int number = 0;
	int status = ret_plan ? cufftCreate(&number) : INVALID_VALUE;

	if (status != 0)
		return status;
	status = make(function, number, &transform, NULL);
	if (status != 0) {
		cufftDestroy(number);
		return status;
	}
	*ret_plan = number;
	return 0;
}

/* The functions' arguments. */
static struct transform cube(int rank, int64_t x, int64_t y, int64_t z, int type, int64_t batches)
{
	struct transform transform = {.rank = rank, .sides = {x, y, z}, .batches = batches};

	set_type(&transform, type);
	return transform;
}

static struct transform many(int rank, const int *sides, int type, int64_t batches)
{
	struct transform transform = cube(rank, 0, 0, 0, type, batches);
	int i;

	for (i = 0; sides && i < rank && i < 3; i++)
		transform.sides[i] = sides[i];
	return transform;
}

static struct transform many_64(int rank, const long long *sides, int type, int64_t batches)
{
	struct transform transform = cube(rank, 0, 0, 0, type, batches);
	int i;

	for (i = 0; sides && i < rank && i < 3; i++)
		transform.sides[i] = sides[i];
	return transform;
}

static struct transform typed(int rank, const long long *sides, int input, int output, int execution, int64_t batches)
{
	struct transform transform = many_64(rank, sides, 0, batches);

	set_types(&transform, input, output, execution);
	return transform;
}

/* Estimate functions need no plan; GetSize and MakePlan functions have one. */
static int estimate(const char *function, struct transform transform, size_t *ret_bytes)
{
	size_t bytes = 0;
	int status = size_of(function, &transform, &bytes);

	if (!ret_bytes)
		return INVALID_VALUE;
	if (status == 0)
		*ret_bytes = bytes;
	return status;
}

static int get_size(const char *function, int number, struct transform transform, size_t *ret_bytes)
{
	size_t bytes;
	int status = cufftGetSize(number, &bytes);

	return status == 0 ? estimate(function, transform, ret_bytes) : status;
}

static int make_plan(const char *function, int number, struct transform transform, size_t *ret_bytes)
{
	return ret_bytes ? make(function, number, &transform, ret_bytes) : INVALID_VALUE;
}

int cufftEstimate1d(int x, int type, int batches, size_t *ret_bytes)
{
	return estimate(__func__, cube(1, x, 0, 0, type, batches), ret_bytes);
}

int cufftEstimate2d(int x, int y, int type, size_t *ret_bytes)
{
	return estimate(__func__, cube(2, x, y, 0, type, 1), ret_bytes);
}

int cufftEstimate3d(int x, int y, int z, int type, size_t *ret_bytes)
{
	return estimate(__func__, cube(3, x, y, z, type, 1), ret_bytes);
}

/* The layout of the data in memory does not matter for the work area. */
#define LAYOUT const int *in_sides, int in_step, int in_distance, const int *out_sides, int out_step, int out_distance
#define LAYOUT_64                                                                                                    \
	const long long *in_sides, long long in_step, long long in_distance, const long long *out_sides,             \
		long long out_step, long long out_distance
#define UNUSED_LAYOUT                                                                                                \
	(void)in_sides, (void)in_step, (void)in_distance, (void)out_sides, (void)out_step, (void)out_distance

int cufftEstimateMany(int rank, const int *sides, LAYOUT, int type, int batches, size_t *ret_bytes)
{
	UNUSED_LAYOUT;
	return estimate(__func__, many(rank, sides, type, batches), ret_bytes);
}

#define WITH_PLAN(does, name_1d, name_2d, name_3d, name_many, name_many_64, name_typed)                              \
	int name_1d(int plan, int x, int type, int batches, size_t *ret_bytes)                                       \
	{                                                                                                            \
		return does(__func__, plan, cube(1, x, 0, 0, type, batches), ret_bytes);                             \
	}                                                                                                            \
	int name_2d(int plan, int x, int y, int type, size_t *ret_bytes)                                             \
	{                                                                                                            \
		return does(__func__, plan, cube(2, x, y, 0, type, 1), ret_bytes);                                   \
	}                                                                                                            \
	int name_3d(int plan, int x, int y, int z, int type, size_t *ret_bytes)                                      \
	{                                                                                                            \
		return does(__func__, plan, cube(3, x, y, z, type, 1), ret_bytes);                                   \
	}                                                                                                            \
	int name_many(int plan, int rank, const int *sides, LAYOUT, int type, int batches, size_t *ret_bytes)        \
	{                                                                                                            \
		UNUSED_LAYOUT;                                                                                       \
		return does(__func__, plan, many(rank, sides, type, batches), ret_bytes);                            \
	}                                                                                                            \
	int name_many_64(int plan, int rank, const long long *sides, LAYOUT_64, int type, long long batches,         \
			 size_t *ret_bytes)                                                                          \
	{                                                                                                            \
		UNUSED_LAYOUT;                                                                                       \
		return does(__func__, plan, many_64(rank, sides, type, batches), ret_bytes);                         \
	}                                                                                                            \
	int name_typed(int plan, int rank, const long long *sides, const long long *in_sides, long long in_step,     \
		       long long in_distance, int input, const long long *out_sides, long long out_step,             \
		       long long out_distance, int output, long long batches, size_t *ret_bytes, int execution)      \
	{                                                                                                            \
		UNUSED_LAYOUT;                                                                                       \
		return does(__func__, plan, typed(rank, sides, input, output, execution, batches), ret_bytes);       \
	}
WITH_PLAN(get_size, cufftGetSize1d, cufftGetSize2d, cufftGetSize3d, cufftGetSizeMany, cufftGetSizeMany64,
	  cufftXtGetSizeMany)
WITH_PLAN(make_plan, cufftMakePlan1d, cufftMakePlan2d, cufftMakePlan3d, cufftMakePlanMany, cufftMakePlanMany64,
	  cufftXtMakePlanMany)

int cufftPlan1d(int *ret_plan, int x, int type, int batches)
{
	return plan_whole(__func__, ret_plan, cube(1, x, 0, 0, type, batches));
}

int cufftPlan2d(int *ret_plan, int x, int y, int type)
{
	return plan_whole(__func__, ret_plan, cube(2, x, y, 0, type, 1));
}

int cufftPlan3d(int *ret_plan, int x, int y, int z, int type)
{
	return plan_whole(__func__, ret_plan, cube(3, x, y, z, type, 1));
}

int cufftPlanMany(int *ret_plan, int rank, const int *sides, LAYOUT, int type, int batches)
{
	UNUSED_LAYOUT;
	return plan_whole(__func__, ret_plan, many(rank, sides, type, batches));
}

int cufftGetProperty(int type, int *ret_value)
{
	static const int values[] = {STAND_IN_MAJOR, MINOR, 0};

	if (!ret_value || type < 0 || type > 2)
		return INVALID_VALUE;
	*ret_value = values[type];
	return 0;
}

int cufftGetVersion(int *ret_version)
{
	if (!ret_version)
		return INVALID_VALUE;
	*ret_version = STAND_IN_MAJOR * 1000 + MINOR * 100;
	return 0;
}
