/* replay/rerun.c: turns operations into calls of the allocator. */
#include "replay/rerun.h"

#include "base/error.h"
#include "neap/alloc.h"
#include "replay/paper.h"

#include <stdlib.h>

/* Returns a stream's handle, which is only a name here because the device never waits for work: aligned, and NULL
 * only for the default stream. */
static void *stream_of(uint32_t number) { return (void *)(uintptr_t)((uint64_t)number * 16); }

/* NEAP_EOOM: out of device memory. */
static enum neap_status play(struct neap_alloc *alloc, const struct neap_rerun *rerun,
			     const struct neap_rerun_op *ops, size_t count, uint64_t *addresses,
			     struct neap_error *err)
{
	enum neap_status status = NEAP_OK;

	for (size_t i = 0; !status && i < count; i++) {
		if (ops[i].slot >= rerun->slot_count)
			return neap_fail(err, NEAP_EINVAL, "operation %zu: slot %u of %zu", i, ops[i].slot,
					 rerun->slot_count);
		uint64_t *address = &addresses[ops[i].slot];
		neap_free(alloc, *address);
		*address = 0;
		if (ops[i].bytes)
			status = neap_malloc(alloc, ops[i].bytes, stream_of(ops[i].stream), address, err);
	}
	return status;
}

static void take_peaks(struct neap_alloc *alloc, struct neap_rerun_result *result)
{
	struct neap_stats stats;

	neap_get_stats(alloc, &stats);
	result->peak_reserved_bytes = (uint64_t)stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].peak;
	result->peak_allocated_bytes = (uint64_t)stats.metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL].peak;
	result->flushes = (uint64_t)stats.num_alloc_retries;
}

enum neap_status neap_rerun(const struct neap_rerun *rerun, struct neap_rerun_result *ret_result,
			    struct neap_error *err)
{
	if (rerun->other)
		return rerun->other(rerun, ret_result, err);
	uint64_t *addresses = calloc(rerun->slot_count + 1, sizeof *addresses);
	struct neap_rerun_result result = {0};
	struct neap_alloc *alloc = NULL;
	struct neap_paper paper = {0};
	enum neap_status status = NEAP_OK;

	if (!addresses)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory for a replay");
	status = neap_paper_open(&paper, rerun->room_bytes, rerun->page_bytes, err);
	if (!status)
		status = neap_alloc_create(paper.device, NULL, &alloc, err);
	if (!status)
		status = play(alloc, rerun, rerun->base, rerun->base_count, addresses, err);
	for (unsigned pass = 0; !status && pass < rerun->passes; pass++)
		status = play(alloc, rerun, rerun->step, rerun->step_count, addresses, err);
	result.fits = status == NEAP_OK;
	if (status == NEAP_EOOM)
		status = NEAP_OK;
	if (alloc)
		take_peaks(alloc, &result);
	neap_alloc_destroy(alloc);
	neap_paper_close(&paper);
	free(addresses);
	if (!status)
		*ret_result = result;
	return status;
}
