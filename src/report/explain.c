/* report/explain.c: an out-of-memory message read by analyze/oom_text.h, for people.
 *
 * The text follows from the message's figures alone. Facts that the figures do not show (which tensor, which line,
 * how much a smaller batch saves) it calls unknown, and it names the command that measures them. */
#include "report/explain.h"

#include "base/units.h"
#include "report/wrap.h"
#include "store/json_rows.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool known(uint64_t bytes) { return bytes != NEAP_OOM_TEXT_UNKNOWN; }

static void line(struct neap_buffer *out, const char *what, uint64_t bytes, const char *note)
{
	if (known(bytes))
		neap_buffer_format(out, "    %-32s %10s%s%s\n", what, NEAP_SIZE(bytes), note[0] ? "  " : "", note);
}

static void put_figures(struct neap_buffer *out, const struct neap_oom_text *found)
{
	char share[64] = "";
	line(out, "S  asked of the driver", found->tried_bytes,
	     "the segment PyTorch would have made for the request");
	line(out, "F  free on the device", found->free_bytes, "");
	line(out, "C  cached, pinned by live blocks", found->cached_bytes, "whole segments were given back before");
	line(out, "A  allocated by PyTorch", found->allocated_bytes, "");
	line(out, "   of it in private pools", found->private_bytes, "CUDA graphs: not available to others");
	line(out, found->wording == NEAP_WORDING_SLURM ? "M  the job's processes" : "M  this process in all",
	     found->process_bytes, found->self_by_other_pid ? "listed under its PID outside the container" : "");
	line(out, "O  held by others", found->others_bytes,
	     found->others_have_own_context ? "this process's own context and libraries among it" : "");
	for (size_t i = 0; i < found->process_count; i++) {
		char name[48];
		snprintf(name, sizeof name, "   process %" PRIu64, found->processes[i].pid);
		line(out, name, found->processes[i].bytes, "");
	}
	line(out, "W  weights", found->weights_bytes, "");
	line(out, "N  outside PyTorch", found->outside_bytes, "");
	line(out, "P  activations at their peak", found->activation_bytes, "of the profiling run");
	if (found->utilization > 0)
		snprintf(share, sizeof share, "gpu_memory_utilization %.4g of the device", found->utilization);
	line(out, found->wording == NEAP_WORDING_SLURM ? "L  limit of the job" : "L  limit of the process",
	     found->allowed_bytes, share);
	line(out, "T  the device", found->total_bytes, "");
	if (found->absurd_process)
		neap_buffer_text(out, "    (what the process holds was printed as a number below zero: left out)\n");
}

/* Whether fragmentation failed the request, but fixing it would save little. */
static bool nearly_full(const struct neap_oom_text *found)
{
	return known(found->cached_bytes) && known(found->reserved_bytes) &&
	       found->cached_bytes < found->reserved_bytes / 10;
}

static void put_capacity(struct neap_buffer *out, const struct neap_oom_text *found, uint64_t missing)
{
	neap_buffer_format(out, "capacity: with everything cached in one piece, %s would still be missing",
			   NEAP_SIZE(missing));
	if (known(found->allocated_bytes) && found->allocated_bytes > 0)
		neap_buffer_format(out, " (S - F - C): live memory must fall by %.1f %%.",
				   100. * (double)missing / (double)found->allocated_bytes);
	else
		neap_buffer_text(out, " (S - F - C).");
}

static void put_unknown(struct neap_buffer *out, enum neap_oom_wording wording)
{
	const char *text = "unknown: the text lacks the figures it would take.";

	if (wording == NEAP_WORDING_BARE)
		text = "unknown: these words come without a figure. The allocation was made outside PyTorch's "
		       "allocator (a context, a library, another program), or by a very old one.";
	else if (wording == NEAP_WORDING_LIBRARY)
		text = "unknown: a library asked the driver for memory of its own and got none. What PyTorch caches "
		       "is "
		       "not free for it, so the device can be full while PyTorch itself still runs.";
	else if (wording == NEAP_WORDING_JAX)
		text = "unknown: the text says what was asked for, not what was free. JAX takes three quarters of "
		       "the "
		       "device when it starts, whatever it needs.";
	else if (wording == NEAP_WORDING_VLLM)
		text = "unknown: weights, activations and what is outside PyTorch leave nothing of vLLM's share of "
		       "the "
		       "device for the KV cache. How much each takes stands in its log before this message, not in "
		       "this text.";
	neap_buffer_text(out, text);
}

/* Says that nothing is left of vLLM's share of the device. */
static void put_share(struct neap_buffer *out, const struct neap_oom_text *found)
{
	neap_buffer_format(out, "%s: ", found->cause == NEAP_TEXT_LIMIT ? "the limit" : "capacity");
	if (known(found->weights_bytes) && known(found->outside_bytes) && known(found->activation_bytes))
		neap_buffer_format(out, "weights, activations and what is outside PyTorch take %s (W + N + P)",
				   NEAP_SIZE(found->weights_bytes + found->outside_bytes + found->activation_bytes));
	else
		neap_buffer_text(out, "what the model takes before its first request");
	if (known(found->allowed_bytes))
		neap_buffer_format(out, "%s of the %s that vLLM may have (L)",
				   known(found->shortfall_bytes) && found->shortfall_bytes ? " instead" : "",
				   NEAP_SIZE(found->allowed_bytes));
	neap_buffer_text(out, ": nothing is left for the KV cache");
	if (known(found->shortfall_bytes) && found->shortfall_bytes)
		neap_buffer_format(out, ", %s are missing before its first block", NEAP_SIZE(found->shortfall_bytes));
	neap_buffer_text(out, found->cause == NEAP_TEXT_LIMIT
				      ? "."
				      : ". That is more than the device has: no share of it is enough.");
}

static void put_host(struct neap_buffer *out, const struct neap_oom_text *found)
{
	neap_buffer_text(out, "host memory: the processes of the job passed its limit, for which the kernel kills "
			      "processes. This is the node's memory, not the GPU's");
	if (known(found->process_bytes) && known(found->allowed_bytes))
		neap_buffer_format(out, ": they had %s (M) of %s (L), %s too much.", NEAP_SIZE(found->process_bytes),
				   NEAP_SIZE(found->allowed_bytes), NEAP_SIZE(found->shortfall_bytes));
	else
		neap_buffer_text(out, ". The text does not say how much they had.");
}

static void put_text_cause(struct neap_buffer *out, const struct neap_oom_text *found)
{
	uint64_t missing = found->shortfall_bytes, cached = known(found->cached_bytes) ? found->cached_bytes : 0;

	if (found->wording == NEAP_WORDING_VLLM && found->cause != NEAP_TEXT_UNKNOWN) {
		put_share(out, found);
		return;
	}
	switch (found->cause) {
	case NEAP_TEXT_REQUEST:
		neap_buffer_format(out, "the request alone: %s is more than %s %s has.",
				   NEAP_SIZE(found->tried_bytes),
				   NEAP_SIZE(known(found->allowed_bytes) ? found->allowed_bytes : found->total_bytes),
				   known(found->allowed_bytes) ? "the process's limit" : "the whole device");
		break;
	case NEAP_TEXT_LIMIT:
		neap_buffer_format(out, "the limit: %s was free and %s asked, but the process may reserve only %s.",
				   NEAP_SIZE(found->free_bytes), NEAP_SIZE(found->tried_bytes),
				   NEAP_SIZE(found->allowed_bytes));
		break;
	case NEAP_TEXT_FRAGMENTATION:
		neap_buffer_format(out,
				   "fragmentation: %s was missing (S - F) and %s is cached (C), but not in one "
				   "piece: live blocks pin the segments it lies in.",
				   NEAP_SIZE(missing), NEAP_SIZE(cached));
		break;
	case NEAP_TEXT_NEIGHBOURS:
		if (missing == 0) {
			neap_buffer_format(out,
					   "neighbours: the device is full. Others hold %s (O); the last %s (F) lie "
					   "in pieces that the driver cannot hand out.",
					   NEAP_SIZE(found->others_bytes), NEAP_SIZE(found->free_bytes));
			break;
		}
		neap_buffer_format(out,
				   "neighbours: %s was missing (%s); others hold %s (O). Alone on the device it "
				   "would have fitted.",
				   NEAP_SIZE(missing > cached ? missing - cached : missing),
				   missing > cached ? "S - F - C" : "S - F", NEAP_SIZE(found->others_bytes));
		break;
	case NEAP_TEXT_BOTH:
		neap_buffer_format(out,
				   "neighbours and fragmentation: %s was missing (S - F); others hold %s (O), %s is "
				   "cached (C): only both together cover it.",
				   NEAP_SIZE(missing), NEAP_SIZE(found->others_bytes), NEAP_SIZE(cached));
		break;
	case NEAP_TEXT_CAPACITY:
		put_capacity(out, found, missing - cached);
		break;
	case NEAP_TEXT_REFUSED:
		neap_buffer_format(out,
				   "refused although %s was free and %s asked: the figures are of an instant later. "
				   "Another process gave memory back meanwhile, or a limit outside PyTorch (MIG, "
				   "vGPU, a container's quota) refused.",
				   NEAP_SIZE(found->free_bytes), NEAP_SIZE(found->tried_bytes));
		break;
	case NEAP_TEXT_HOST:
		put_host(out, found);
		break;
	case NEAP_TEXT_UNKNOWN:
		put_unknown(out, found->wording);
		if (known(missing))
			neap_buffer_format(out, " %s are missing before the first block.", NEAP_SIZE(missing));
		break;
	}
}

static void put_verdict(struct neap_buffer *out, const struct neap_oom_text *found)
{
	put_text_cause(out, found);
	if (found->cause == NEAP_TEXT_FRAGMENTATION && nearly_full(found))
		neap_buffer_text(out, " That is under a tenth of what is reserved: the device is nearly full of live "
				      "memory, and a little more will not fit in any case.");
	if (found->close_call)
		neap_buffer_format(out, " A close call: the text's figures are rounded, by %s together.",
				   NEAP_SIZE(found->slack_bytes));
	if (found->spilled)
		neap_buffer_text(out,
				 " More is allocated than the device has: the driver (as on Windows) moved memory to "
				 "the host, which is slow.");
}

/* What to try, best first. */
struct advice {
	char texts[8][512]; /* a message has 5 at most */
	size_t count;
};

static void advise(struct advice *advice, const char *format, ...) NEAP_PRINTF(2, 3);
static void advise(struct advice *advice, const char *format, ...)
{
	va_list list;
	assert(advice->count < sizeof advice->texts / sizeof *advice->texts);
	va_start(list, format);
	vsnprintf(advice->texts[advice->count++], sizeof *advice->texts, format, list);
	va_end(list);
}

static void advise_pieces(const struct neap_oom_text *found, struct advice *advice)
{
	if (found->wording == NEAP_WORDING_SENTENCES)
		advise(advice,
		       "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (neap run --enable -- ...): segments that "
		       "grow "
		       "in place. If it was on already, this cause is ruled out: the message prints the hint either "
		       "way.");
	else
		advise(advice, "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 (PyTorch 1.10 or later; from 2.1 "
			       "expandable_segments:True is better).");
	advise(advice, "Shapes that vary pin segments: pad to a few lengths, or run the largest batch first.");
}

static void advise_less(struct advice *advice)
{
	advise(advice,
	       "A smaller micro-batch with as much more accumulation keeps the effective batch: neap run --param "
	       "micro_batch=N --param accumulate=1 --on-oom 'halve micro_batch, double accumulate' -- ...");
	advise(advice,
	       "How much each change saves is not in this text: neap run -- COMMAND measures the run and predicts "
	       "it.");
}

static void advise_vllm(const struct neap_oom_text *found, struct advice *advice)
{
	double least = found->least_utilization;
	if (least > 0 && least < 1)
		advise(advice,
		       "--gpu-memory-utilization above %.3f: from there on something is left for the cache. What "
		       "other "
		       "processes hold of the device limits it: neap info names them.",
		       least);
	else if (found->cause == NEAP_TEXT_UNKNOWN)
		advise(advice,
		       "--gpu-memory-utilization nearer to 1, unless other processes need the device (neap info "
		       "names "
		       "them). Set low to share a device, it has to cover the weights as well.");
	advise(advice, "Less for activations: a smaller --max-model-len, --max-num-batched-tokens or --max-num-seqs; "
		       "--enforce-eager leaves out what CUDA graphs take.");
	advise(advice,
	       "Less for weights: a quantized model (--quantization), or --tensor-parallel-size N over N GPUs.");
}

static void advise_host(const struct neap_oom_text *found, struct advice *advice)
{
	int job = (int)strspn(found->step, "0123456789_");
	advise(advice,
	       "More for the job: sbatch --mem=SIZE for each node, or --mem-per-cpu. What it had: sacct -j %.*s "
	       "--format=JobID,State,ReqMem,MaxRSS (it samples, and can miss a short peak).",
	       job > 0 ? job : 3, job > 0 ? found->step : "JOB");
	advise(advice,
	       "Each worker of a DataLoader is a process of its own: fewer num_workers, a smaller prefetch_factor, "
	       "arrays rather than lists of Python objects. Each rank has workers of its own.");
	advise(advice,
	       "Checkpoints that every rank reads into host memory: torch.load(..., mmap=True), or one rank reads "
	       "and "
	       "sends. Files in /dev/shm, and in /tmp where that is in memory, count as well.");
	advise(advice,
	       "neap run --max-host SIZE -- ... warns from 90 %% of a limit on, and ends the command in order, with "
	       "time "
	       "to save, before the kernel kills it.");
}

static void give_advice(const struct neap_oom_text *found, struct advice *advice)
{
	if (found->wording == NEAP_WORDING_VLLM) {
		advise_vllm(found, advice);
		return;
	}
	switch (found->cause) {
	case NEAP_TEXT_HOST:
		advise_host(found, advice);
		break;
	case NEAP_TEXT_REQUEST:
		advise(advice,
		       "Look at the line that asked: often a wrong shape, a matrix of all pairs, or logits of a "
		       "whole "
		       "sequence. No setting makes it fit; compute it in pieces.");
		break;
	case NEAP_TEXT_LIMIT:
		advise(advice, "Raise or drop the limit: torch.cuda.set_per_process_memory_fraction(), "
			       "per_process_memory_fraction "
			       "in the settings, or neap fraction F --pid P on the running process.");
		break;
	case NEAP_TEXT_BOTH:
	case NEAP_TEXT_NEIGHBOURS:
		if (found->process_count > 0)
			advise(advice,
			       "Process %" PRIu64
			       " holds %s: neap info says whose it is and how much is only cached; neap "
			       "clear --pid gives cached memory back, neap kill --pid ends your own.",
			       found->processes[0].pid, NEAP_SIZE(found->processes[0].bytes));
		else
			advise(advice,
			       "neap info names who holds the device, and how much is only cached; leftovers of "
			       "your own "
			       "earlier runs: neap kill --mine --dry-run.");
		if (found->cause == NEAP_TEXT_BOTH)
			advise_pieces(found, advice);
		break;
	case NEAP_TEXT_FRAGMENTATION:
		advise_pieces(found, advice);
		if (nearly_full(found))
			advise_less(advice);
		break;
	case NEAP_TEXT_CAPACITY:
		advise_less(advice);
		if (known(found->private_bytes) && found->private_bytes > 0)
			advise(advice, "CUDA graphs keep %s in private pools: fewer captured shapes free it.",
			       NEAP_SIZE(found->private_bytes));
		break;
	case NEAP_TEXT_REFUSED:
		advise(advice, "Run it again under neap run: it records what the driver said at that instant.");
		break;
	case NEAP_TEXT_UNKNOWN:
		if (found->wording == NEAP_WORDING_LIBRARY)
			advise(advice, "Leave room outside PyTorch's cache: neap run --fraction 0.9 -- ..., or "
				       "torch.cuda.set_per_process_memory_fraction(0.9).");
		else if (found->wording == NEAP_WORDING_JAX)
			advise(advice, "XLA_PYTHON_CLIENT_MEM_FRACTION=0.9 lets JAX take more of an empty device; "
				       "XLA_PYTHON_CLIENT_PREALLOCATE=false lets it share one.");
		advise(advice, "neap info: who holds the device now. neap run -- COMMAND records the next one.");
		break;
	}
	if (known(found->process_bytes) && known(found->reserved_bytes) &&
	    found->process_bytes > found->reserved_bytes + (1ull << 30))
		advise(advice,
		       "%s of this process is outside PyTorch (context, NCCL, cuDNN, other libraries): M - A - C.",
		       NEAP_SIZE(found->process_bytes - found->reserved_bytes));
}

void neap_report_oom_text(struct neap_buffer *out, const struct neap_oom_text *found)
{
	struct neap_buffer verdict = {0};
	struct advice advice = {.count = 0};
	char gpu[48] = "";

	if (found->gpu >= 0)
		snprintf(gpu, sizeof gpu, ", GPU %d", found->gpu);
	if (found->line) /* 0: it was not read from a log */
		neap_buffer_format(out, "Line %" PRIu32 ": ", found->line);
	if (found->step[0])
		snprintf(gpu, sizeof gpu, ", step %s", found->step);
	neap_buffer_format(out, "%s out of %smemory%s (worded as by %s)\n\n", found->backend,
			   found->cause == NEAP_TEXT_HOST ? "host " : "", gpu, neap_oom_wording_name(found->wording));
	put_figures(out, found);
	put_verdict(&verdict, found);
	neap_buffer_text(out, neap_oom_text_bare(found) ? "" : "\n");
	neap_report_wrap(out, "  Cause: ", neap_buffer_string(&verdict));
	neap_buffer_text(out, "\n  Try first\n");
	give_advice(found, &advice);
	for (size_t i = 0; i < advice.count; i++) {
		char first[16];
		snprintf(first, sizeof first, "    %zu. ", i + 1);
		neap_report_wrap(out, first, advice.texts[i]);
	}
	neap_buffer_fini(&verdict);
}

json_t *neap_report_oom_text_json(const struct neap_oom_text *found)
{
	struct neap_buffer verdict = {0};
	struct advice advice = {.count = 0};
	json_t *processes = json_array(), *texts = json_array();

	for (size_t i = 0; i < found->process_count; i++)
		neap_json_add(processes, JSON(NUMBER("pid", found->processes[i].pid),
					      KNOWN("bytes", found->processes[i].bytes)));
	put_verdict(&verdict, found);
	give_advice(found, &advice);
	for (size_t i = 0; i < advice.count; i++)
		neap_json_add(texts, neap_json_text(advice.texts[i]));
	json_t *object = JSON(
		INTEGER("line", found->line), TEXT("backend", found->backend), KNOWN("gpu", found->gpu),
		TEXT("wording", neap_oom_wording_name(found->wording)), KNOWN("tried_bytes", found->tried_bytes),
		KNOWN("total_bytes", found->total_bytes), KNOWN("free_bytes", found->free_bytes),
		KNOWN("allowed_bytes", found->allowed_bytes), KNOWN("process_bytes", found->process_bytes),
		KNOWN("allocated_bytes", found->allocated_bytes), KNOWN("private_pools_bytes", found->private_bytes),
		KNOWN("cached_bytes", found->cached_bytes), KNOWN("reserved_bytes", found->reserved_bytes),
		KNOWN("others_bytes", found->others_bytes), KNOWN("weights_bytes", found->weights_bytes),
		KNOWN("outside_pytorch_bytes", found->outside_bytes),
		KNOWN("activations_bytes", found->activation_bytes), KNOWN("shortfall_bytes", found->shortfall_bytes),
		KNOWN("slack_bytes", found->slack_bytes), VALUE("processes", processes),
		TEXT("cause", neap_oom_text_cause_name(found->cause)), GIVEN("utilization", found->utilization),
		GIVEN("least_utilization", found->least_utilization), GIVEN("step", found->step),
		BOOL("close_call", found->close_call),
		VALUE("verdict", verdict.failed ? NULL : neap_json_text(neap_buffer_string(&verdict))),
		VALUE("advice", texts));
	neap_buffer_fini(&verdict);
	return object;
}
