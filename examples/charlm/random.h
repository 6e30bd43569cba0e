/* charlm/random.h: random numbers that depend only on the place at which they are asked for: (seed, a, b). */
#ifndef CHARLM_RANDOM_H
#define CHARLM_RANDOM_H

#include <stdint.h>

struct random {
	uint64_t state;
};

struct random random_from(uint64_t seed, uint64_t a, uint64_t b);
uint64_t random_next(struct random *random);
double random_gauss(struct random *random); /* mean 0, deviation 1 */

#endif
