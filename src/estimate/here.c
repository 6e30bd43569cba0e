/* estimate/here.c: see here.h. */
#include "estimate/here.h"

#include "base/error.h"
#include "machine/gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool neap_estimate_names_here(const char *gpus)
{
	for (const char *at = gpus; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (strcspn(at, ",") == strlen(NEAP_ESTIMATE_HERE) &&
		    !strncmp(at, NEAP_ESTIMATE_HERE, strlen(NEAP_ESTIMATE_HERE)))
			return true;
	return false;
}

static void add(struct neap_estimate_here *here, const struct neap_gpu *gpu)
{
	size_t at = 0;
	while (at < here->count &&
	       (here->gpus[at].total_bytes != gpu->total_bytes || strcmp(here->gpus[at].gpu_name, gpu->name) != 0))
		at++;
	if (at == here->count && here->count < NEAP_ESTIMATE_HERE_MOST) {
		snprintf(here->gpus[at].gpu_name, sizeof here->gpus[at].gpu_name, "%s", gpu->name);
		here->gpus[at].total_bytes = gpu->total_bytes;
		here->gpus[at].reserved_bytes = gpu->reserved_bytes;
		here->count++;
	}
}

/* Only the driver can resolve a list of numbers (neap_gpus_find names only the first). The list still says how many
 * devices there are. */
static unsigned count_listed(void)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	unsigned count = list && *list;
	for (const char *at = list; at && *at; at++)
		count += *at == ',';
	return count;
}

enum neap_status neap_estimate_find_here(struct neap_estimate_here *ret_here, struct neap_error *err)
{
	struct neap_estimate_here here = {0};
	struct neap_gpus gpus;
	enum neap_status status = neap_gpus_find(&gpus, err);
	for (size_t i = 0; !status && i < gpus.count; i++)
		add(&here, &gpus.items[i]);
	if (!status && !here.count)
		status = neap_fail(err, NEAP_ENODEVICE, "this machine has no GPU that CUDA_VISIBLE_DEVICES lists");
	if (status)
		return status;
	here.devices = gpus.count == 1 && count_listed() > 1 ? count_listed() : (unsigned)gpus.count;
	if (here.devices > SIM_DEVICE_LIMIT)
		here.devices = SIM_DEVICE_LIMIT;
	*ret_here = here;
	return NEAP_OK;
}
