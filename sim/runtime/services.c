/* The table of services.h. */
#include "sim/runtime/code.h"
#include "sim/runtime/runtime.h"

static bool architecture(int device, int *ret_capability, int *ret_multiprocessors)
{
	int count = 0;

	if (runtime_open() != CUDA_SUCCESS || runtime_cuda.cuDeviceGetCount(&count) != CUDA_SUCCESS || device < 0 ||
	    device >= count)
		return false;
	*ret_capability = runtime_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) * 10 +
			  runtime_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
	*ret_multiprocessors = runtime_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
	return true;
}

static bool gate(void *stream, uint64_t address, size_t bytes, const struct runtime_gate *functions, void *argument)
{
	return gate_add(stream, address, bytes, functions, argument);
}

static int launch(void *stream, const char *name)
{
	int result = runtime_ready();

	if (result == CUDA_SUCCESS)
		code_library(name);
	return result == CUDA_SUCCESS ? runtime_launch(stream, name, 0) : result;
}

/* Makes the range read as zeros. Does nothing in a blind call: the host computes its results next, and would need the
 * pages again. */
static void forget(uint64_t address, size_t bytes)
{
	if (!values_blind())
		contents_forget(address, bytes);
}

static const struct runtime_services services = {
	.version = RUNTIME_SERVICES_VERSION,
	.device = runtime_device,
	.architecture = architecture,
	.read = contents_read,
	.write = contents_write,
	.forget = forget,
	.holds = contents_hold,
	.known = values_known,
	.mark = values_mark,
	.gate = gate,
	.launch = launch,
	.uses = values_used,
	.tally = tally_count,
};

NEAP_API const struct runtime_services *neap_runtime_get_services(void);
const struct runtime_services *neap_runtime_get_services(void) { return &services; }
