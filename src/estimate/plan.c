/* estimate/plan.c: chooses the GPUs, and which of them share a run: those with the same compute capability and as
 * many multiprocessors, since kernels' scratch depends on both. */
#include "estimate/estimate.h"

#include "base/error.h"
#include "base/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define COMMON "h200-141gb,h100-80gb,a100-80gb,a100-40gb,rtx5090-32gb,rtx4090-24gb,t4-16gb"

void neap_estimate_architecture(const struct sim_profile *profile, char text[16])
{
	snprintf(text, 16, "sm_%d%d", profile->compute_major, profile->compute_minor);
}

static bool same_run(const struct sim_profile *a, const struct sim_profile *b)
{
	return a->compute_major == b->compute_major && a->compute_minor == b->compute_minor &&
	       a->multiprocessors == b->multiprocessors;
}

static const struct sim_profile *find_profile(const char *gpu_name)
{
	size_t count;
	const struct sim_profile *profiles = sim_profiles(&count);
	for (size_t i = 0; i < count; i++)
		if (strcmp(profiles[i].gpu_name, gpu_name) == 0)
			return &profiles[i];
	return NULL;
}

static enum neap_status add_gpu(struct neap_estimate_plan *plan, const struct sim_profile *profile,
				uint64_t total_bytes, uint64_t reserved_bytes, struct neap_error *err)
{
	struct neap_estimate_gpu *gpu = &plan->gpus[plan->count];
	if (plan->count == NEAP_ESTIMATE_GPUS)
		return neap_fail(err, NEAP_EINVAL, "more than %d GPUs", NEAP_ESTIMATE_GPUS);
	snprintf(gpu->name, sizeof gpu->name, "%s", profile->name);
	gpu->profile = profile;
	gpu->total_bytes = total_bytes;
	gpu->reserved_bytes = reserved_bytes;
	plan->count++;
	return NEAP_OK;
}

/* Adds this machine's GPUs. */
static enum neap_status add_here(struct neap_estimate_plan *plan, const struct neap_estimate_here *here,
				 struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	for (size_t i = 0; !status && i < here->count; i++) {
		const struct sim_profile *profile = find_profile(here->gpus[i].gpu_name);
		status =
			profile ? add_gpu(plan, profile, here->gpus[i].total_bytes, here->gpus[i].reserved_bytes, err)
				: neap_fail(err, NEAP_EPARSE,
					    "neap has no profile of this machine's %s: name one that is like it (see "
					    "'neap sim profiles')",
					    here->gpus[i].gpu_name);
	}
	if (here->devices > plan->devices)
		plan->devices = here->devices;
	return status;
}

/* Adds the GPUs that one word of the list names. */
static enum neap_status add_word(struct neap_estimate_plan *plan, const char *word, size_t length,
				 const struct neap_estimate_here *here, struct neap_error *err)
{
	char text[160];
	struct sim_spec spec;
	snprintf(text, sizeof text, "%.*s", (int)length, word);
	if (here && strcmp(text, NEAP_ESTIMATE_HERE) == 0)
		return add_here(plan, here, err);
	if (!text[0] || strchr(text, '=') || sim_spec_parse(text, &spec, NULL) != NEAP_OK)
		return neap_fail(err, NEAP_EPARSE, "'%s' is not a profile: 'neap sim profiles' lists them", text);
	const struct sim_profile *profile = find_profile(spec.gpu_name);
	if (!profile)
		return neap_fail(err, NEAP_EINTERNAL, "no profile is called '%s'", spec.gpu_name);
	if (spec.device_count > plan->devices)
		plan->devices = spec.device_count;
	return add_gpu(plan, profile, spec.total_bytes, spec.reserved_bytes, err);
}

/* Gives the GPUs of one architecture a common run, on the largest of them. */
static void group(struct neap_estimate_plan *plan)
{
	for (size_t i = 0; i < plan->count; i++) {
		struct neap_estimate_gpu *gpu = &plan->gpus[i];
		size_t run = 0;
		while (run < plan->run_count && !same_run(plan->gpus[plan->run_gpus[run]].profile, gpu->profile))
			run++;
		if (run == plan->run_count)
			plan->run_gpus[plan->run_count++] = i;
		else if (gpu->total_bytes > plan->gpus[plan->run_gpus[run]].total_bytes)
			plan->run_gpus[run] = i;
		gpu->run = run;
		if (gpu->total_bytes > plan->memory_bytes)
			plan->memory_bytes = gpu->total_bytes;
	}
}

enum neap_status neap_estimate_plan(const char *gpus, uint64_t limit_bytes, const struct neap_estimate_here *here,
				    struct neap_estimate_plan *ret_plan, struct neap_error *err)
{
	struct neap_estimate_plan plan = {.devices = 1};
	const char *at = gpus ? gpus : limit_bytes ? "h100-80gb" : COMMON;
	for (;; at++) {
		size_t length = strcspn(at, ",");
		enum neap_status status = add_word(&plan, at, length, here, err);
		if (status)
			return status;
		at += length;
		if (!*at)
			break;
	}
	if (limit_bytes) {
		struct neap_estimate_gpu *gpu = &plan.gpus[0];
		plan.count = 1;
		neap_size_format(limit_bytes, gpu->name);
		gpu->total_bytes = limit_bytes;
		gpu->reserved_bytes = 0;
		gpu->is_limit = true;
	}
	group(&plan);
	*ret_plan = plan;
	return NEAP_OK;
}

bool neap_estimate_values_known(const char *values)
{
	return !strcmp(values, "auto") || !strcmp(values, "full") || !strcmp(values, "none");
}

enum neap_status neap_estimate_bound_values(struct neap_estimate_plan *plan, const char *simulated,
					    struct neap_error *err)
{
	struct sim_spec spec;
	if (!simulated || !strstr(simulated, "values_memory="))
		return NEAP_OK;
	enum neap_status status = sim_spec_parse(simulated, &spec, err);
	if (status)
		return status;
	plan->values_memory_bytes = spec.values_memory_bytes ? spec.values_memory_bytes : 1; /* 0 is the default */
	return NEAP_OK;
}

void neap_estimate_spec(const struct neap_estimate_plan *plan, size_t run, uint64_t memory_bytes, const char *world,
			char *ret_text, size_t capacity)
{
	const struct neap_estimate_gpu *gpu = &plan->gpus[plan->run_gpus[run]];
	uint64_t total = memory_bytes ? memory_bytes : plan->memory_bytes;
	uint64_t most = gpu->is_limit ? (uint64_t)gpu->profile->total_mib * NEAP_MIB : 0;
	const char *values = plan->values ? plan->values : "auto";
	snprintf(ret_text, capacity, "%ux%s,mem=%" PRIu64 ",reserved=%" PRIu64 ",context=%" PRIu64 ",%s%s,world=%s",
		 plan->devices, gpu->profile->name, total > most ? total : most, gpu->reserved_bytes,
		 (uint64_t)(gpu->profile->context_mib * NEAP_MIB),
		 strcmp(values, "none") ? "values=" : "backing=", values, world);
	size_t length = strlen(ret_text);
	if (plan->values_memory_bytes)
		snprintf(ret_text + length, capacity - length, ",values_memory=%" PRIu64, plan->values_memory_bytes);
}
