/* Memory of other devices: which devices may use it.
 *
 *   cuMemAlloc        its own device; others once a context of theirs enabled access to that device's
 *   pools             its own device; others as set by cuMemPoolSetAccess
 *   virtual memory    as set by cuMemSetAccess, for each mapping
 *
 * Kernels must obey this. Copies may go through any device.
 */
#include "sim/driver/state.h"

CUmemAccess_flags sim_access_of(const struct sim_mapping *mapping, uint32_t device)
{
	uint32_t owner = mapping->handle->device;

	if (mapping->reservation->kind == SIM_RESERVED)
		return mapping->access[device];
	if (device == owner)
		return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	if (mapping->reservation->pool)
		return mapping->reservation->pool->access[device];
	return sim_peer_enabled(device, owner) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

/* The current context's device, and its peer's. Lock held. */
static CUresult find_two(CUcontext peer, struct CUctx_st **ret_own)
{
	CUcontext own = sim_current_context();

	if (!own || !peer || !sim_context_known(peer) || peer->device == own->device)
		return CUDA_ERROR_INVALID_CONTEXT;
	*ret_own = own;
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	struct CUctx_st *own = NULL;
	CUresult result;

	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	result = find_two(peer, &own);
	if (result == CUDA_SUCCESS && !sim_peers(own->device, peer->device))
		result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	else if (result == CUDA_SUCCESS && (own->peers & (1u << peer->device)))
		result = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	else if (result == CUDA_SUCCESS)
		own->peers |= 1u << peer->device;
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuCtxDisablePeerAccess(CUcontext peer)
{
	struct CUctx_st *own = NULL;
	CUresult result;

	pthread_mutex_lock(&sim.lock);
	result = find_two(peer, &own);
	if (result == CUDA_SUCCESS && !(own->peers & (1u << peer->device)))
		result = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	else if (result == CUDA_SUCCESS)
		own->peers &= ~(1u << peer->device);
	pthread_mutex_unlock(&sim.lock);
	return result;
}
