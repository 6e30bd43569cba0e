/* support/watched.h: a recording of PyTorch's own allocator, as an attached process writes it. A training's requests
 * go through the model of PyTorch's allocator (replay/torch_policy.h), and what it does is recorded, with stacks in
 * the file beside it.
 */
#ifndef NEAP_TESTS_WATCHED_H
#define NEAP_TESTS_WATCHED_H

#include "base/clock.h"
#include "neap/trace.h"
#include "replay/torch_policy.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WATCHED_LAYERS 8
#define WATCHED_MIB    (1ull << 20)

/* Lines of the program, by their stacks' numbers. */
enum watched_line {
	WATCHED_MODEL,
	WATCHED_FORWARD,
	WATCHED_BACKWARD,
	WATCHED_OPTIMIZER,
	WATCHED_LEAK,
	WATCHED_EVALUATION,
	WATCHED_LOSS
};

struct watched {
	struct neap_recorder *recorder; /* NULL: this process's own recording, if it is attached */
	const struct neap_observer *observer;
	struct neap_policy *policy;
	char path[256];
	uint64_t now_ns, tick_ns; /* each event takes a tick */
	uint64_t allocated, reserved, peak, low;
	uint64_t steps, events;
	uint32_t tag; /* of the next request */
	bool failed;  /* the last request */
	void *parameters[WATCHED_LAYERS], *states[WATCHED_LAYERS], *gradients[WATCHED_LAYERS];
	void (*seen)(void *context, const struct neap_event *event); /* each event of the allocator; NULL: nobody */
	void *context;
};

static inline void watched_emit(struct watched *watched, struct neap_event event)
{
	watched->now_ns =
		watched->recorder ? watched->now_ns + watched->tick_ns : neap_clock_now(neap_clock_system());
	event.time_ns = watched->now_ns;
	watched->observer->event(watched->observer->context, &event);
	watched->events++;
	if (watched->seen)
		watched->seen(watched->context, &event);
}

static inline void watched_observe(void *context, enum neap_torch_action action, uint64_t address, uint64_t size,
				   uint64_t stream)
{
	static const enum neap_event_kind kinds[] = {NEAP_EVENT_ALLOC,          NEAP_EVENT_FREE_REQUESTED,
						     NEAP_EVENT_FREE_COMPLETED, NEAP_EVENT_SEGMENT_ALLOC,
						     NEAP_EVENT_SEGMENT_FREE,   NEAP_EVENT_SEGMENT_MAP,
						     NEAP_EVENT_SEGMENT_UNMAP};
	struct watched *watched = context;
	uint64_t bytes = (size + 511) / 512 * 512;

	if (action == NEAP_TORCH_OOM) {
		watched->failed = true;
		/* PyTorch's observers see what it requested from the driver. */
		size = size <= WATCHED_MIB ? 2 * WATCHED_MIB
		       : size < 10 * WATCHED_MIB
			       ? 20 * WATCHED_MIB
			       : (size + 2 * WATCHED_MIB - 1) / (2 * WATCHED_MIB) * (2 * WATCHED_MIB);
		watched_emit(watched, neap_event_of_oom(0, (struct neap_event_oom){
								   .held = {watched->allocated, watched->reserved},
								   .tag = watched->tag,
								   .flags = NEAP_OOM_OTHER,
								   .device_free_bytes = address,
								   .requested_bytes = size,
								   .bytes = size}));
		return;
	}
	if (action == NEAP_TORCH_SEGMENT_ALLOC || action == NEAP_TORCH_SEGMENT_MAP)
		watched->reserved += size;
	else if (action == NEAP_TORCH_SEGMENT_FREE || action == NEAP_TORCH_SEGMENT_UNMAP)
		watched->reserved -= size;
	else if (action == NEAP_TORCH_ALLOC)
		watched->allocated += bytes;
	else if (action == NEAP_TORCH_FREE_REQUESTED)
		watched->allocated -= bytes;
	watched->peak = watched->allocated > watched->peak ? watched->allocated : watched->peak;
	watched->low = watched->allocated < watched->low ? watched->allocated : watched->low;
	struct neap_event_held held = {watched->allocated, watched->reserved};
	if (action >= NEAP_TORCH_SEGMENT_ALLOC)
		watched_emit(watched, neap_event_of_segment(kinds[action], 0,
							    (struct neap_event_segment){.held = held,
											.stream = stream,
											.address = address,
											.bytes = size}));
	else
		watched_emit(watched,
			     neap_event_of_allocation(kinds[action], 0,
						      (struct neap_event_allocation){
							      .held = held,
							      .tag = action == NEAP_TORCH_ALLOC ? watched->tag : 0,
							      .stream = (uint32_t)stream,
							      .address = address,
							      .requested_bytes = size,
							      .bytes = bytes}));
}

/* NULL: memory ran out. */
static inline void *watched_alloc(struct watched *watched, uint64_t bytes, enum watched_line line)
{
	void *block = NULL;

	watched->tag = NEAP_EVENT_FIRST_STACK + (uint32_t)line;
	watched->failed = false;
	enum neap_status status = watched->policy->alloc(watched->policy, bytes, 0, 0, &block, NULL);
	assert_true(status == NEAP_OK || status == NEAP_EOOM);
	return block;
}

static inline void watched_free(struct watched *watched, void *block)
{
	if (block)
		assert_int_equal(watched->policy->free(watched->policy, block, NULL), NEAP_OK);
}

/* `settings`: PYTORCH_CUDA_ALLOC_CONF. `device_bytes` 0: without limit. `observer`: of this process's own recording;
 * NULL: makes one. */
static inline void watched_open(struct watched *watched, const char *folder, const char *settings,
				uint64_t device_bytes, uint64_t allocation_capacity,
				const struct neap_observer *observer)
{
	struct neap_torch_options options = {
		.rules = neap_torch_rules(NEAP_TORCH_NEWEST, &(unsigned){0}, &(unsigned){0}),
		.device_bytes = device_bytes,
		.observe = watched_observe,
		.context = watched};
	char path[256];

	*watched = (struct watched){.now_ns = 1000000000, .tick_ns = 1000, .low = UINT64_MAX};
	snprintf(watched->path, sizeof watched->path, "%s/record.%d", folder, (int)getpid());
	if (!observer)
		assert_int_equal(
			neap_recorder_create(watched->path, 0, allocation_capacity, &watched->recorder, NULL),
			NEAP_OK);
	watched->observer = observer ? observer : neap_recorder_observer(watched->recorder);
	neap_torch_settings_default(&options.settings);
	assert_int_equal(neap_torch_settings_parse(settings, &options.settings, NULL), NEAP_OK);
	assert_int_equal(neap_torch_create(&options, &watched->policy, NULL), NEAP_OK);
	snprintf(path, sizeof path, "%s/stacks.%d", folder, (int)getpid());
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fprintf(file, "neap-stacks 1\ttorch 2.15.0\tconf %s\n", settings);
	fputs("0\t/lib/torch/nn/modules/module.py\t900\tconvert\t/home/me/gpt.py\t11\tbuild\n"
	      "1\t/lib/torch/nn/functional.py\t77\tlinear\t/home/me/gpt.py\t42\tforward\n"
	      "2\t/lib/torch/autograd/graph.py\t5\tbackward\t/home/me/gpt.py\t60\t<module>\n"
	      "3\t/lib/torch/optim/adamw.py\t112\tstep\t/home/me/gpt.py\t61\t<module>\n"
	      "4\t/home/me/gpt.py\t70\tlog_loss\n"
	      "5\t/lib/torch/nn/functional.py\t77\tlinear\t/home/me/gpt.py\t42\tforward\t/home/me/"
	      "gpt.py\t80\tevaluate\n"
	      "6\t/lib/torch/nn/functional.py\t3494\tcross_entropy\t/home/me/gpt.py\t59\t<module>\n",
	      file);
	fclose(file);
	for (size_t i = 0; i < WATCHED_LAYERS; i++)
		watched->parameters[i] = watched_alloc(watched, 4 * WATCHED_MIB, WATCHED_MODEL);
}

static inline void watched_begin(struct watched *watched, const char *folder, const char *settings,
				 uint64_t device_bytes, uint64_t allocation_capacity)
{
	watched_open(watched, folder, settings, device_bytes, allocation_capacity, NULL);
}

/* One training step: activations of `mib` MiB for each layer, gradients that live into the next step, the optimizer's
 * state in the first. False: memory ran out in it. */
static inline bool watched_step(struct watched *watched, uint64_t mib)
{
	void *activations[WATCHED_LAYERS] = {0};
	bool ok = true;

	for (size_t i = 0; i < WATCHED_LAYERS; i++) {
		watched_free(watched, watched->gradients[i]);
		watched->gradients[i] = NULL;
	}
	for (size_t i = 0; ok && i < WATCHED_LAYERS; i++) {
		void *scratch = watched_alloc(watched, 3 * WATCHED_MIB, WATCHED_FORWARD);
		activations[i] = scratch ? watched_alloc(watched, mib * WATCHED_MIB, WATCHED_FORWARD) : NULL;
		ok = activations[i] != NULL;
		watched_free(watched, scratch);
	}
	for (size_t i = WATCHED_LAYERS; i-- > 0;) {
		if (ok)
			watched->gradients[i] = watched_alloc(watched, 4 * WATCHED_MIB, WATCHED_BACKWARD);
		watched_free(watched, activations[i]);
	}
	for (size_t i = 0; ok && i < WATCHED_LAYERS && !watched->states[i]; i++)
		watched->states[i] = watched_alloc(watched, 8 * WATCHED_MIB, WATCHED_OPTIMIZER);
	if (!ok)
		return false;
	watched->steps++;
	watched_emit(watched,
		     neap_event_of_step(0, (struct neap_event_step){.held = {watched->allocated, watched->reserved},
								    .micro_batches = 1,
								    .number = watched->steps,
								    .peak_bytes = watched->peak,
								    .lowest_bytes = watched->low}));
	watched->peak = watched->low = watched->allocated;
	return true;
}

static inline void watched_end(struct watched *watched)
{
	watched->policy->destroy(watched->policy);
	neap_recorder_destroy(watched->recorder);
}

#endif
