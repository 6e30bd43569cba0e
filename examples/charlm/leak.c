/* charlm/leak.c: the leaked tensors, in a list. The agent's thread may drop it while the training continues: hence a
 * lock.
 */
#include "leak.h"

#include "neap/attach.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

struct leaked {
	struct leaked *next;
	void *memory;
	size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct leaked *list;
static struct neap_alloc *alloc; /* of all tensors in the list */

/* Empties the list. With `give_back` it frees the memory, and returns how many bytes that was. */
static uint64_t empty(bool give_back)
{
	uint64_t bytes = 0;

	pthread_mutex_lock(&lock);
	for (struct leaked *first; (first = list); free(first)) {
		list = first->next;
		if (give_back && neap_free(alloc, (uint64_t)(uintptr_t)first->memory) == NEAP_OK)
			bytes += first->bytes;
	}
	pthread_mutex_unlock(&lock);
	return bytes;
}

static uint64_t drop(void *context, bool force)
{
	(void)context;
	return force ? empty(true) : 0;
}

void leak_some(struct gpu *gpu, size_t bytes)
{
	static bool registered;
	void *memory = gpu_new(gpu, "activations", bytes);
	struct leaked *leaked = memory ? malloc(sizeof *leaked) : NULL;

	if (!leaked) /* not even remembered */
		return;
	*leaked = (struct leaked){.memory = memory, .bytes = bytes};
	pthread_mutex_lock(&lock);
	alloc = gpu_alloc(gpu);
	leaked->next = list;
	list = leaked;
	pthread_mutex_unlock(&lock);
	if (!registered)
		neap_attach_on_clear(drop, NULL);
	registered = true;
}

void leak_forget(void) { empty(false); }
