/* cuRAND: generators. They draw no numbers: a generator on the host writes zeros, one on the device nothing.
 *
 * A generator on the device keeps its state in device memory, from its first numbers on; the size is not documented.
 * The interval is from 0 to one state of the largest kind (72 bytes, MRG32k3a in curand_kernel.h) for each of the
 * threads that the device runs at once (2048 a multiprocessor).
 */
#include "sim/libraries/stand_in.h"

#include <stdlib.h>

enum { /* curandStatus_t */
       NOT_INITIALIZED = 101,
       ALLOCATION_FAILED = 102,
       TYPE_ERROR = 103,
       OUT_OF_RANGE = 104,
};

#define MAJOR 10
#define MINOR 4

#define MAGIC 0x6e63757261303031ull

struct generator {
	uint64_t magic;
	bool host;
	bool seeded; /* the state was counted */
	void *stream;
};

static struct generator *known(struct generator *generator)
{
	return generator && generator->magic == MAGIC ? generator : NULL;
}

static int create(struct generator **ret_generator, int type, bool host)
{
	if (!ret_generator)
		return OUT_OF_RANGE;
	*ret_generator = NULL;
	if (type < 100 || type > 204)
		return TYPE_ERROR;
	if (!stand_in_services())
		return NOT_INITIALIZED;
	*ret_generator = calloc(1, sizeof **ret_generator);
	if (!*ret_generator)
		return ALLOCATION_FAILED;
	(*ret_generator)->magic = MAGIC;
	(*ret_generator)->host = host;
	return 0;
}

int curandCreateGenerator(struct generator **ret_generator, int type) { return create(ret_generator, type, false); }

int curandCreateGeneratorHost(struct generator **ret_generator, int type)
{
	return create(ret_generator, type, true);
}

int curandDestroyGenerator(struct generator *generator)
{
	if (!known(generator))
		return NOT_INITIALIZED;
	generator->magic = 0;
	free(generator);
	return 0;
}

int curandSetStream(struct generator *generator, void *stream)
{
	if (!known(generator))
		return NOT_INITIALIZED;
	generator->stream = stream;
	return 0;
}

static void count_state(struct generator *generator)
{
	const struct runtime_services *services = stand_in_services();
	int capability = 0;
	int multiprocessors = 0;

	if (generator->host || generator->seeded || !services ||
	    !services->architecture(services->device(), &capability, &multiprocessors))
		return;
	generator->seeded = true;
	stand_in_workspace("curandGenerateSeeds", 0, (uint64_t)multiprocessors * 2048 * 72);
}

static int generate(const char *function, struct generator *generator, void *to, size_t count, size_t bytes)
{
	if (!known(generator))
		return NOT_INITIALIZED;
	count_state(generator);
	if (!generator->host)
		return (int)stand_in_compute(function, generator->stream);
	stand_in_zero((uintptr_t)to, count * bytes);
	return (int)stand_in_values(function);
}

int curandGenerateSeeds(struct generator *generator) { return generate(__func__, generator, NULL, 0, 0); }

int curandGenerate(struct generator *generator, void *to, size_t count)
{
	return generate(__func__, generator, to, count, 4);
}

int curandGenerateLongLong(struct generator *generator, void *to, size_t count)
{
	return generate(__func__, generator, to, count, 8);
}

int curandGenerateUniform(struct generator *generator, void *to, size_t count)
{
	return generate(__func__, generator, to, count, 4);
}

int curandGenerateUniformDouble(struct generator *generator, void *to, size_t count)
{
	return generate(__func__, generator, to, count, 8);
}

int curandGenerateNormal(struct generator *generator, void *to, size_t count, float mean, float deviation)
{
	(void)mean, (void)deviation;
	return generate(__func__, generator, to, count, 4);
}

int curandGenerateNormalDouble(struct generator *generator, void *to, size_t count, double mean, double deviation)
{
	(void)mean, (void)deviation;
	return generate(__func__, generator, to, count, 8);
}

int curandGenerateLogNormal(struct generator *generator, void *to, size_t count, float mean, float deviation)
{
	(void)mean, (void)deviation;
	return generate(__func__, generator, to, count, 4);
}

int curandGenerateLogNormalDouble(struct generator *generator, void *to, size_t count, double mean, double deviation)
{
	(void)mean, (void)deviation;
	return generate(__func__, generator, to, count, 8);
}

int curandGeneratePoisson(struct generator *generator, void *to, size_t count, double lambda)
{
	(void)lambda;
	return generate(__func__, generator, to, count, 4);
}

int curandGeneratePoissonMethod(struct generator *generator, void *to, size_t count, double lambda, int method)
{
	(void)lambda, (void)method;
	return generate(__func__, generator, to, count, 4);
}

int curandGetProperty(int type, int *ret_value)
{
	static const int values[] = {MAJOR, MINOR, 0};

	if (!ret_value || type < 0 || type > 2)
		return OUT_OF_RANGE;
	*ret_value = values[type];
	return 0;
}

int curandGetVersion(int *ret_version)
{
	if (!ret_version)
		return OUT_OF_RANGE;
	*ret_version = MAJOR * 1000 + MINOR * 100;
	return 0;
}
