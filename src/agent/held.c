/* agent/held.c: asks the driver how much memory this process holds. With an external allocator neap did not make the
 * context, and cannot know its size otherwise. */
#include "neap/external.h"

#include "base/error.h"
#include "device/loader.h"

#include <unistd.h>

enum neap_status neap_external_held(const unsigned char *uuid, uint64_t *ret_bytes, struct neap_error *err)
{
	struct neap_loaded_nvml loaded;
	uint64_t bytes = 0;
	enum neap_status status = neap_load_nvml(NEAP_BACKEND_DEFAULT, &loaded, err);
	if (status)
		return status;
	nvmlReturn_t result = loaded.table.nvmlInit();
	if (result != NVML_SUCCESS)
		return neap_nvml_fail(&loaded.table, result, err, "starting NVML");
	bool known = neap_nvml_process_bytes(&loaded.table, uuid, getpid(), &bytes);
	loaded.table.nvmlShutdown();
	if (!known)
		return neap_fail(err, NEAP_ENOENT, "the driver does not tell what this process holds");
	*ret_bytes = bytes;
	return NEAP_OK;
}
