/* Capture and graphs: the driver's.
 *
 * CUDA 13 added edge data to the arguments of some functions; the driver's newest form has it. A graph's nodes do
 * nothing when it is launched.
 */
#include "sim/runtime/runtime.h"

bool runtime_capturing(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	return runtime_cuda.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

int runtime_cudaStreamIsCapturing(CUstream stream, int *status)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuStreamIsCapturing(stream, status) : result;
}

int runtime_cudaStreamBeginCapture(CUstream stream, int mode)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuStreamBeginCapture(stream, mode) : result;
}

int runtime_cudaStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
					  const CUgraphEdgeData *edges, size_t count, int mode)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS
		       ? runtime_cuda.cuStreamBeginCaptureToGraph(stream, graph, dependencies, edges, count, mode)
		       : result;
}

int runtime_cudaStreamEndCapture(CUstream stream, CUgraph *graph)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuStreamEndCapture(stream, graph) : result;
}

int runtime_cudaThreadExchangeStreamCaptureMode(int *mode)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuThreadExchangeStreamCaptureMode(mode) : result;
}

static int capture_info(CUstream stream, int *status, unsigned long long *id, CUgraph *graph,
			const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count)
{
	cuuint64_t number = 0;
	int result = runtime_ready();

	if (result == CUDA_SUCCESS)
		result = runtime_cuda.cuStreamGetCaptureInfo_v3(stream, status, &number, graph, dependencies, edges,
								count);
	if (result == CUDA_SUCCESS && id)
		*id = number;
	return result;
}

#if RUNTIME_MAJOR == 12
int runtime_cudaStreamGetCaptureInfo(CUstream stream, int *status, unsigned long long *id)
{
	return capture_info(stream, status, id, NULL, NULL, NULL, NULL);
}

int runtime_cudaStreamGetCaptureInfo_v2(CUstream stream, int *status, unsigned long long *id, CUgraph *graph,
					const CUgraphNode **dependencies, size_t *count)
{
	return capture_info(stream, status, id, graph, dependencies, NULL, count);
}

int runtime_cudaStreamGetCaptureInfo_v3(CUstream stream, int *status, unsigned long long *id, CUgraph *graph,
					const CUgraphNode **dependencies, const CUgraphEdgeData **edges,
					size_t *count)
{
	return capture_info(stream, status, id, graph, dependencies, edges, count);
}

int runtime_cudaStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *dependencies, size_t count,
						unsigned int flags)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS
		       ? runtime_cuda.cuStreamUpdateCaptureDependencies_v2(stream, dependencies, NULL, count, flags)
		       : result;
}

int runtime_cudaGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *dependencies, size_t *count)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuGraphNodeGetDependencies_v2(node, dependencies, NULL, count)
				      : result;
}
#else
int runtime_cudaStreamGetCaptureInfo(CUstream stream, int *status, unsigned long long *id, CUgraph *graph,
				     const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count)
{
	return capture_info(stream, status, id, graph, dependencies, edges, count);
}

int runtime_cudaStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *dependencies,
						const CUgraphEdgeData *edges, size_t count, unsigned int flags)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS
		       ? runtime_cuda.cuStreamUpdateCaptureDependencies_v2(stream, dependencies, edges, count, flags)
		       : result;
}

int runtime_cudaGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *dependencies, CUgraphEdgeData *edges,
					 size_t *count)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuGraphNodeGetDependencies_v2(node, dependencies, edges, count)
				      : result;
}
#endif

/* -- graphs ------------------------------------------------------------------------------------------------------ */

int runtime_cudaGraphCreate(CUgraph *graph, unsigned int flags)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuGraphCreate(graph, flags) : result;
}

int runtime_cudaGraphDestroy(CUgraph graph)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuGraphDestroy(graph) : result;
}

int runtime_cudaGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuGraphGetNodes(graph, nodes, count) : result;
}

int runtime_cudaGraphNodeGetType(CUgraphNode node, int *type)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuGraphNodeGetType(node, type) : result;
}

int runtime_cudaGraphDebugDotPrint(CUgraph graph, const char *path, unsigned int flags)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuGraphDebugDotPrint(graph, path, flags) : result;
}

int runtime_cudaGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuGraphInstantiateWithFlags(executable, graph, flags) : result;
}

int runtime_cudaGraphInstantiate(CUgraphExec *executable, CUgraph graph, unsigned long long flags)
{
	return runtime_cudaGraphInstantiateWithFlags(executable, graph, flags);
}

int runtime_cudaGraphLaunch(CUgraphExec executable, CUstream stream)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuGraphLaunch(executable, stream) : result;
}

int runtime_cudaGraphUpload(CUgraphExec executable, CUstream stream)
{
	int result = runtime_ready();

	return result == CUDA_SUCCESS ? runtime_cuda.cuGraphUpload(executable, stream) : result;
}

int runtime_cudaGraphExecDestroy(CUgraphExec executable)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuGraphExecDestroy(executable) : result;
}

/* -- objects that live as long as a graph needs them ------------------------------------------------------------- */

int runtime_cudaUserObjectCreate(CUuserObject *object, void *pointer, CUhostFn destroy, unsigned int count,
				 unsigned int flags)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuUserObjectCreate(object, pointer, destroy, count, flags)
				      : result;
}

int runtime_cudaUserObjectRetain(CUuserObject object, unsigned int count)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuUserObjectRetain(object, count) : result;
}

int runtime_cudaUserObjectRelease(CUuserObject object, unsigned int count)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuUserObjectRelease(object, count) : result;
}

int runtime_cudaGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuGraphRetainUserObject(graph, object, count, flags) : result;
}

int runtime_cudaGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
	int result = runtime_open();

	return result == CUDA_SUCCESS ? runtime_cuda.cuGraphReleaseUserObject(graph, object, count) : result;
}
