/* charlm/random.c: see the header. A counter through the finaliser of splitmix64 (Steele, Lea, Flood 2014). */
#include "random.h"

#include <math.h>

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
	return x ^ (x >> 31);
}

struct random random_from(uint64_t seed, uint64_t a, uint64_t b)
{
	return (struct random){mix(mix(mix(seed + 1) + a + 1) + b + 1)};
}

uint64_t random_next(struct random *random)
{
	random->state += UINT64_C(0x9E3779B97F4A7C15);
	return mix(random->state);
}

double random_gauss(struct random *random)
{
	double u = ((double)(random_next(random) >> 11) + 1) / 9007199254740993.0;
	double angle = (double)(random_next(random) >> 11) / 9007199254740992.0 * 6.283185307179586;

	return sqrt(-2 * log(u)) * cos(angle);
}
