/* charlm/leak.c: what has leaked, in a list. The agent's thread may drop it while the training continues: one lock.
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

static struct {
	pthread_mutex_t lock;
	struct neap_alloc *alloc;
	struct leaked *list;
	bool registered;
} leak = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void pop(void)
{
	struct leaked *first = leak.list;

	leak.list = first->next;
	free(first);
}

static uint64_t drop(void *context, bool force)
{
	uint64_t bytes = 0;

	(void)context;
	pthread_mutex_lock(&leak.lock);
	while (force && leak.list) {
		if (neap_free(leak.alloc, (uint64_t)(uintptr_t)leak.list->memory) == NEAP_OK)
			bytes += leak.list->bytes;
		pop();
	}
	pthread_mutex_unlock(&leak.lock);
	return bytes;
}

void leak_some(struct gpu *gpu, size_t bytes)
{
	void *memory = gpu_new(gpu, "activations", bytes);
	struct leaked *leaked = memory ? malloc(sizeof *leaked) : NULL;

	if (!leaked) /* not even remembered */
		return;
	*leaked = (struct leaked){.memory = memory, .bytes = bytes};
	pthread_mutex_lock(&leak.lock);
	leak.alloc = gpu_alloc(gpu);
	leaked->next = leak.list;
	leak.list = leaked;
	bool registered = leak.registered;
	leak.registered = true;
	pthread_mutex_unlock(&leak.lock);
	if (!registered)
		neap_attach_on_clear(drop, NULL);
}

void leak_forget(void)
{
	pthread_mutex_lock(&leak.lock);
	while (leak.list)
		pop();
	pthread_mutex_unlock(&leak.lock);
}
