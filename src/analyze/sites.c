/* analyze/sites.c: a stack takes the answer of its innermost frame that has one. A parent's number is lower than its
 * children's, so one pass over the tree of calls is enough. */
#include "analyze/sites.h"

#include "base/error.h"
#include "trace/stacks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum rank { RANK_PLUMBING, RANK_NATIVE, RANK_NODE, RANK_LIBRARY, RANK_PROGRAM };

static bool ends(const char *text, const char *end)
{
	size_t length = strlen(text), tail = strlen(end);
	return length >= tail && strcmp(text + length - tail, end) == 0;
}

static bool begins(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

static bool is_any(const char *text, const char *const *words)
{
	for (; *words; words++)
		if (strcmp(text, *words) == 0)
			return true;
	return false;
}

/* PyTorch's own modules, installed or in a checkout. A program may stand in a folder of that name, too. */
static bool of_torch(const char *file)
{
	static const char *const modules[] = {"_",         "amp/",           "ao/",           "autograd/",
					      "backends/", "compiler/",      "cuda/",         "distributed/",
					      "export/",   "distributions/", "func/",         "functional",
					      "fx/",       "jit/",           "library",       "multiprocessing/",
					      "nn/",       "onnx/",          "optim/",        "overrides",
					      "profiler/", "quantization/",  "serialization", "sparse/",
					      "storage",   "testing/",       "utils/",        NULL};
	if (strstr(file, "-packages/torch/"))
		return true;
	for (const char *at = file; (at = strstr(at, "torch/")); at += strlen("torch/"))
		for (size_t i = 0; modules[i] && (at == file || at[-1] == '/'); i++)
			if (begins(at + strlen("torch/"), modules[i]))
				return true;
	return false;
}

/* What torch.compile has written: CACHE/i6/ci642mh5izv...py, a hash in the folder of its second and third letter. */
static bool is_generated(const char *file)
{
	const char *name = strrchr(file, '/');
	return name && name - file >= 3 && strlen(name) > 40 && name[-3] == '/' && name[1] == 'c' &&
	       strncmp(name - 2, name + 2, 2) == 0;
}

/* neap's own modules in Python, which stand between a program and PyTorch in a run of neap estimate. */
static bool of_neap(const char *file)
{
	return strstr(file, "/neap/_") || begins(file, "neap/_") || ends(file, "/neap/hooks.py");
}

/* Python's own modules: lib/python3.12/contextlib.py, but not packages that are installed beside them. */
static bool of_python(const char *file)
{
	const char *lib = strstr(file, "/lib/python");
	return begins(file, "<") || (lib && !strstr(lib, "site-packages") && !strstr(lib, "dist-packages"));
}

static enum rank rank_of(const struct neap_trace *trace, const struct neap_trace_frame *frame)
{
	static const char *const plumbing[] = {"torch::unwind",
					       "torch::CapturedTraceback",
					       "torch::cuda::(anonymous",
					       "c10::",
					       "at::detail::empty",
					       "Py",
					       "_Py",
					       "__libc",
					       NULL};
	const char *file = neap_trace_text(trace, frame->file), *name = neap_trace_text(trace, frame->name);
	if (neap_trace_of_neap(trace))
		return RANK_PROGRAM;
	if (begins(name, "__torch_")) /* a tensor subclass's __torch_function__, between any line and its operation */
		return RANK_LIBRARY;
	if (ends(file, ".py") || begins(file, "<"))
		return of_torch(file) || of_python(file) || of_neap(file) || is_generated(file) ? RANK_LIBRARY
												: RANK_PROGRAM;
	if (!name[0] || strcmp(name, "??") == 0 || strcmp(name, "_start") == 0)
		return RANK_PLUMBING;
	for (size_t i = 0; plumbing[i]; i++)
		if (begins(name, plumbing[i]))
			return RANK_PLUMBING;
	/* Autograd's threads have no Python frames, so the graph's node is the best answer. */
	return strstr(name, "Backward") && strstr(name, "::apply(") ? RANK_NODE : RANK_NATIVE;
}

/* Whether the function returns before the code that it compiles runs. Other functions in these files call compiled
 * code. */
static bool compiles(const char *file, const char *name)
{
	static const char *const functions[] = {"compile_fx_inner",          "autotune_to_one_config", "_bench",
						"coordinate_descent_tuning", "benchmark_all_configs",  NULL};
	return ends(file, "torch/_dynamo/convert_frame.py") ||
	       ends(file, "torch/_inductor/runtime/benchmarking.py") ||
	       ((strstr(file, "torch/_inductor/") || ends(file, "triton/runtime/autotuner.py")) &&
		is_any(name, functions));
}

/* Whether it is a function of a loss, such as cross_entropy or mse_loss, which a program may call outside a
 * module. */
static bool is_loss(const char *file, const char *name)
{
	return ends(file, "torch/nn/functional.py") && (ends(name, "_loss") || strstr(name, "entropy"));
}

static enum neap_phase phase_of_python(const char *file, const char *name)
{
	static const char *const step[] = {"step", "_init_group", "_step", "wrapper", "profile_hook_step", NULL};
	static const char *const model[] = {"load_state_dict", "_load_from_state_dict", "from_pretrained",
					    "init_weights",    "reset_parameters",      "init_weight",
					    "build_model",     "initialize_parameters", NULL};
	/* module.cuda() is _apply(lambda t: t.cuda()). */
	static const char *const moved[] = {"_apply", "convert", "to", "cuda", "to_empty", "<lambda>", NULL};
	if (strcmp(name, "zero_grad") == 0)
		return NEAP_PHASE_ZERO_GRAD;
	if (compiles(file, name))
		return NEAP_PHASE_COMPILING;
	if (strstr(file, "torch/optim/") || (strstr(file, "optim") && is_any(name, step)))
		return NEAP_PHASE_OPTIMIZER;
	if (strcmp(name, "backward") == 0 || strstr(file, "torch/autograd/"))
		return NEAP_PHASE_BACKWARD;
	/* At the start of the second forward DDP replaces the buckets that hold its gradients. */
	if (ends(file, "torch/nn/parallel/distributed.py") && strcmp(name, "_pre_forward") == 0)
		return NEAP_PHASE_BACKWARD;
	if (strcmp(name, "forward") == 0 || is_loss(file, name))
		return NEAP_PHASE_FORWARD;
	if (strstr(file, "torch/nn/modules/") && strcmp(name, "__init__") == 0) /* parameters made directly on the
										   device */
		return NEAP_PHASE_MODEL;
	if (ends(file, "torch/nn/modules/module.py"))
		return is_any(name, moved) ? NEAP_PHASE_MODEL : NEAP_PHASE_FORWARD;
	return is_any(name, model) ? NEAP_PHASE_MODEL : NEAP_PHASE_UNKNOWN;
}

static enum neap_phase phase_of(const struct neap_trace *trace, const struct neap_trace_frame *frame)
{
	const char *file = neap_trace_text(trace, frame->file), *name = neap_trace_text(trace, frame->name);
	if (neap_trace_of_neap(trace))
		return NEAP_PHASE_UNKNOWN;
	if (ends(file, ".py"))
		return phase_of_python(file, name);
	if (strstr(name, "orkspace") && (strstr(name, "cublas") || strstr(name, "Blas") || strstr(name, "BLAS") ||
					 strstr(name, "cudnn") || strstr(name, "Cudnn")))
		return NEAP_PHASE_WORKSPACE;
	if (strcmp(name, NEAP_STACKS_THREAD) == 0)
		return NEAP_PHASE_THREAD;
	return strstr(name, "autograd::Engine") ? NEAP_PHASE_BACKWARD : NEAP_PHASE_UNKNOWN;
}

enum neap_status neap_sites_make(const struct neap_trace *trace, struct neap_sites *ret_sites, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	uint32_t *frames = calloc(trace->call_count + 1, sizeof *frames);
	uint8_t *phases = calloc(trace->call_count + 1, 1), *ranks = calloc(trace->frame_count + 1, 1);
	uint8_t *own = calloc(trace->frame_count + 1, 1);

	if (!frames || !phases || !ranks || !own) {
		status = neap_fail(err, NEAP_ENOMEM, "no memory for the lines of a trace's stacks");
		goto out;
	}
	for (size_t i = 1; i < trace->frame_count; i++) {
		ranks[i] = (uint8_t)rank_of(trace, &trace->frames[i]);
		own[i] = (uint8_t)phase_of(trace, &trace->frames[i]);
	}
	for (size_t i = 1; i < trace->call_count; i++) {
		const struct neap_trace_call *call = &trace->calls[i];
		uint32_t outer = call->parent < i ? call->parent : 0;
		bool nearer = !frames[outer] || ranks[call->frame] >= ranks[frames[outer]];
		frames[i] = nearer ? call->frame : frames[outer];
		phases[i] = own[call->frame] ? own[call->frame] : phases[outer];
	}
	*ret_sites = (struct neap_sites){.trace = trace, .frames = frames, .phases = phases};
	frames = NULL;
	phases = NULL;
out:
	free(frames);
	free(phases);
	free(ranks);
	free(own);
	return status;
}

void neap_sites_fini(struct neap_sites *sites)
{
	free(sites->frames);
	free(sites->phases);
	*sites = (struct neap_sites){0};
}

void neap_site_text(const struct neap_trace *trace, uint32_t frame, char *ret_text, size_t capacity)
{
	const struct neap_trace_frame *found = &trace->frames[frame < trace->frame_count ? frame : 0];
	const char *file = neap_trace_text(trace, found->file), *name = neap_trace_text(trace, found->name);
	const char *tail = file + strlen(file);

	/* Else it is a tag, or a C++ function without its arguments. */
	if (!ends(file, ".py") && !begins(file, "<")) {
		snprintf(ret_text, capacity, "%.*s", (int)strcspn(name, "("), name);
		if (!ret_text[0])
			snprintf(ret_text, capacity, "%s", name[0] ? name : "?");
		return;
	}
	for (int slashes = 0; tail > file && (tail[-1] != '/' || ++slashes < 2); tail--)
		;
	if (found->line)
		snprintf(ret_text, capacity, "%s:%u %s", tail, found->line, name);
	else
		snprintf(ret_text, capacity, "%s %s", tail, name);
}
