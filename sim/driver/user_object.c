/* User objects: resources that a program wants destroyed when the last graph that needs them is gone. The destructor
 * really runs: once, without any lock, on the thread that drops the last reference. */
#include "sim/driver/graph.h"

#include <stdlib.h>

struct CUuserObject_st {
	void *pointer;
	CUhostFn destroy;
	uint64_t references; /* the program's and those of graphs */
	uint64_t own;        /* how many of the references the program has */
};

static uint64_t key(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

static bool known(CUuserObject object)
{
	uint64_t value;

	return object && neap_map_get(&sim.objects, key(object), &value);
}

bool sim_holds_add(struct sim_hold **holds, CUuserObject object, unsigned int count)
{
	struct sim_hold *hold = *holds;

	while (hold && hold->object != object)
		hold = hold->next;
	if (!hold) {
		hold = malloc(sizeof *hold);
		if (!hold)
			return false;
		*hold = (struct sim_hold){.next = *holds, .object = object};
		*holds = hold;
	}
	hold->count += count;
	object->references += count;
	return true;
}

void sim_holds_forget(struct sim_hold *holds)
{
	while (holds) {
		struct sim_hold *next = holds->next;

		holds->object->references -= holds->count;
		if (holds->object->references == 0) {
			neap_map_remove(&sim.objects, key(holds->object), NULL);
			free(holds->object);
		}
		free(holds);
		holds = next;
	}
}

/* Drops references; true if they were the last: the caller then destroys the object. Lock held. */
static bool drop(CUuserObject object, uint64_t count)
{
	object->references -= count;
	if (object->references > 0)
		return false;
	neap_map_remove(&sim.objects, key(object), NULL);
	return true;
}

static void finish(CUuserObject object)
{
	object->destroy(object->pointer);
	free(object);
}

void sim_holds_release(struct sim_hold *holds)
{
	while (holds) {
		struct sim_hold *next = holds->next;
		CUuserObject object = holds->object;
		bool last;

		pthread_mutex_lock(&sim.lock);
		last = drop(object, holds->count);
		pthread_mutex_unlock(&sim.lock);
		if (last)
			finish(object);
		free(holds);
		holds = next;
	}
}

CUresult sim_cuUserObjectCreate(CUuserObject *object, void *pointer, CUhostFn destroy, unsigned int references,
				unsigned int flags)
{
	CUuserObject made;
	bool stored;

	if (!object || !destroy || references == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return CUDA_ERROR_INVALID_VALUE;
	made = malloc(sizeof *made);
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*made = (struct CUuserObject_st){pointer, destroy, references, references};
	pthread_mutex_lock(&sim.lock);
	stored = neap_map_put(&sim.objects, key(made), 1);
	pthread_mutex_unlock(&sim.lock);
	if (!stored) {
		free(made);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*object = made;
	return CUDA_SUCCESS;
}

CUresult sim_cuUserObjectRetain(CUuserObject object, unsigned int count)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&sim.lock);
	if (known(object) && count > 0) {
		object->references += count;
		object->own += count;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuUserObjectRelease(CUuserObject object, unsigned int count)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	bool last = false;

	pthread_mutex_lock(&sim.lock);
	if (known(object) && count > 0 && count <= object->own) {
		object->own -= count;
		last = drop(object, count);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	if (last)
		finish(object);
	return result;
}

/* CU_GRAPH_USER_OBJECT_MOVE: the program gives its references to the graph. */
CUresult sim_cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)
{
	bool move = flags == CU_GRAPH_USER_OBJECT_MOVE;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&sim.lock);
	if (sim_graph_known(graph) && known(object) && count > 0 && flags <= CU_GRAPH_USER_OBJECT_MOVE &&
	    (!move || count <= object->own)) {
		result = sim_holds_add(&graph->holds, object, count) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
		if (result == CUDA_SUCCESS && move) {
			object->own -= count;
			object->references -= count;
		}
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct sim_hold **link, *hold;
	bool last = false;

	pthread_mutex_lock(&sim.lock);
	if (sim_graph_known(graph) && known(object) && count > 0) {
		for (link = &graph->holds; *link && (*link)->object != object; link = &(*link)->next)
			;
		hold = *link;
		if (hold && hold->count >= count) {
			hold->count -= count;
			if (hold->count == 0) {
				*link = hold->next;
				free(hold);
			}
			last = drop(object, count);
			result = CUDA_SUCCESS;
		}
	}
	pthread_mutex_unlock(&sim.lock);
	if (last)
		finish(object);
	return result;
}
