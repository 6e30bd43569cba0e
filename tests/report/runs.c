#include "runs.h"
#include "base/buffer.h"
#include "base/units.h"
#include "report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000ull

static void set(char **field, const char *text)
{
	if (neap_result_set(field, text, NULL) != NEAP_OK)
		abort();
}

/* A warm-up, then a sawtooth of `teeth` per step over a floor that grows by `leak` bytes a step. */
static void draw(struct neap_result *result, uint64_t floor, uint64_t amplitude, int teeth, uint64_t leak)
{
	const size_t count = 600;

	result->samples = calloc(count, sizeof *result->samples);
	if (!result->samples)
		abort();
	for (size_t i = 0; i < count; i++) {
		size_t step = i / 20, within = i % 20 * (size_t)teeth % 20;
		uint64_t allocated = i < 10 ? floor * i / 10 : floor + step * leak + amplitude * within / 20;
		uint64_t reserved = allocated > result->peak_reserved_bytes ? allocated : result->peak_reserved_bytes;
		result->peak_reserved_bytes = (reserved + NEAP_MIB * 2 - 1) / (NEAP_MIB * 2) * NEAP_MIB * 2;
		result->samples[i] = (struct neap_result_sample){
			.time_ns = i * 8 * MS,
			.allocated_bytes = allocated,
			.reserved_bytes = result->peak_reserved_bytes,
			.device_bytes = i % 5 ? UINT64_MAX : result->peak_reserved_bytes + 160 * NEAP_MIB,
		};
		if (allocated > result->peak_allocated_bytes)
			result->peak_allocated_bytes = allocated;
	}
	result->sample_count = count;
	result->peak_device_bytes = result->peak_reserved_bytes + 160 * NEAP_MIB;
	result->headroom_bytes = result->device_total_bytes - result->peak_device_bytes;
}

static void common(struct neap_result *result, const char *name, const char *command)
{
	if (neap_result_init(result, NULL) != NEAP_OK)
		abort();
	set(&result->name, name);
	set(&result->command, command);
	set(&result->run_id, "20261121-0930-0001");
	set(&result->device_name, "Simulated GPU");
	set(&result->device_uuid, "GPU-deadbeef-0102-0304-0506-0708090a0b0c");
	set(&result->backend, "sim");
	set(&result->leak_verdict, "clean");
	result->started_wall_ns = 1795253400ull * 1000 * MS;
	result->duration_ns = 4800 * MS;
	result->device_total_bytes = 2 * NEAP_GIB;
	result->attached = true;
	result->drained = true;
	result->drain_ns = 3100000;
	result->steps = 30;
	result->last_loss = 2.1734;
}

void runs_init(struct neap_result results[RUN_COUNT])
{
	struct neap_buffer card_text = {0};
	struct neap_oom_card card;

	common(&results[0], "plain", "charlm --steps 30 --batch 16");
	set(&results[0].parameters, "micro_batch=16 accumulate=1");
	draw(&results[0], 300 * NEAP_MIB, 250 * NEAP_MIB, 1, 0);
	set(&results[0].fluctuation, "250 MiB once per step: forward and backward");

	results[0].micro_batch = 16;
	results[0].accumulate = 1;
	results[0].advised_micro_batch = 107;
	set(&results[0].advice, "micro-batch 107 is the largest predicted to fit (now 16): it would reserve 92.0 MiB "
				"of the 94.0 MiB that this process can have, headroom 2.00 MiB");

	common(&results[1], "too large", "charlm --steps 30 --batch 64");
	draw(&results[1], 620 * NEAP_MIB, 1100 * NEAP_MIB, 2, 0);
	results[1].ooms = results[1].rungs = 1;
	set(&results[1].rung, "micro_batch 64 -> 32, accumulate 1 -> 2");
	set(&results[1].cleanup, "3 cleanups gave back 1.02 GiB in 2.10 ms");
	card_of_capacity(&card);
	neap_report_oom_card(&card_text, &card);
	set(&results[1].oom_card, neap_buffer_string(&card_text));
	neap_buffer_fini(&card_text);

	common(&results[2], "accumulation", "charlm --steps 30 --batch 4 --accumulate 4");
	draw(&results[2], 300 * NEAP_MIB, 70 * NEAP_MIB, 4, 0);
	set(&results[2].fluctuation, "70.0 MiB, four times per step: accumulation");

	common(&results[3], "leaky", "charlm --steps 30 --leak 1MiB");
	draw(&results[3], 300 * NEAP_MIB, 250 * NEAP_MIB, 1, 8 * NEAP_MIB);
	set(&results[3].leak_verdict, "leak");
	results[3].memory_ends_low_step = 190;
	results[3].memory_ends_step = 200;
	results[3].memory_ends_high_step = 220;
	results[3].restarts = 2;
	results[3].leak_bytes_per_step = 8.0 * NEAP_MIB;
	results[3].leak_confidence = 0.9993;

	common(&results[4], "missing", "no-such-program");
	results[4].outcome = NEAP_OUTCOME_NOT_FOUND;
	results[4].exit_status = 127;
	results[4].attached = false;
	results[4].steps = 0;
	results[4].last_loss = NAN;
	set(&results[4].leak_verdict, "not watched");
	set(&results[4].evidence, "exit status 127: sh: no-such-program: not found");
	set(&results[4].folder, "/night/runs/missing-1");
	set(&results[4].last_lines_of, "stderr");
	set(&results[4].last_lines, "starting\nsh: no-such-program: not found\n");
}

void runs_fini(struct neap_result results[RUN_COUNT])
{
	for (int i = 0; i < RUN_COUNT; i++)
		neap_result_fini(&results[i]);
}

void card_of_capacity(struct neap_oom_card *ret_card)
{
	struct neap_oom_card card = {
		.source = NEAP_TRACE_RECORDING,
		.event = NEAP_OOM_UNKNOWN,
		.step = 7,
		.requested_bytes = 512 * NEAP_MIB,
		.block_bytes = 512 * NEAP_MIB,
		.tag = "attention scores",
		.device_total_bytes = 2 * NEAP_GIB,
		.device_free_bytes = 100 * NEAP_MIB,
		.limit_bytes = UINT64_MAX,
		.allocated_bytes = 1700 * NEAP_MIB,
		.reserved_bytes = 1720 * NEAP_MIB,
		.room_bytes = 1820 * NEAP_MIB,
		.cached_bytes = 20 * NEAP_MIB,
		.others_bytes = 228 * NEAP_MIB,
		.largest_free_bytes = 12 * NEAP_MIB,
		.shortfall_bytes = 392 * NEAP_MIB,
		.cause = NEAP_OOM_CAPACITY,
		.tags = {{"activations", 1200 * NEAP_MIB, 1210 * NEAP_MIB, 96},
			 {"optimizer", 320 * NEAP_MIB, 320 * NEAP_MIB, 24},
			 {"", 180 * NEAP_MIB, 190 * NEAP_MIB, 3}},
		.tag_count = 3,
		.fixes = {{NEAP_FIX_SMALLER_MICRO_BATCH, 600 * NEAP_MIB, 30 * NEAP_MIB, true, false,
			   "micro-batch 64 -> 32, accumulation 1 -> 2 (effective batch stays 64)",
			   "half of what was allocated per step, measured over 7 steps"},
			  {NEAP_FIX_MIXED_PRECISION, 0, 0, false, true, "mixed precision", ""},
			  {NEAP_FIX_CHECKPOINTING, 300 * NEAP_MIB, 0, false, false, "gradient checkpointing",
			   "activations of the layers kept"}},
		.fix_count = 3,
		.split = {64, 1, 1},
		.rung_taken = NEAP_RUNG_SPLIT,
		.split_after = {32, 2, 1},
	};

	*ret_card = card;
}

void card_of_fragmentation(struct neap_oom_card *ret_card)
{
	card_of_capacity(ret_card);
	ret_card->cause = NEAP_OOM_FRAGMENTATION;
	ret_card->allocated_bytes = 900 * NEAP_MIB;
	ret_card->cached_bytes = 820 * NEAP_MIB;
	ret_card->largest_free_bytes = 240 * NEAP_MIB;
	ret_card->limit_bytes = 1800 * NEAP_MIB;
	ret_card->pending_bytes = 16 * NEAP_MIB;
	ret_card->others_asked = 2;
	ret_card->others_freed_bytes = 96 * NEAP_MIB;
	ret_card->tag[0] = '\0';
	ret_card->tag_count = 0;
	ret_card->fix_count = 0;
	ret_card->split = (struct neap_split){0};
	ret_card->rung_taken = NEAP_RUNG_NONE;
}
