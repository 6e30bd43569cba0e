/* estimate/context.c: the device memory that a process takes beside PyTorch's allocator, part by part.
 *
 *   driver           the context itself: the profile's figure, which was read on such a GPU
 *   driver versions how much more other versions of the driver take: published figures differ by up to 61 MiB
 *   code             the kernels that the program used (code.h): of PyTorch and of extensions
 *   own modules      modules that the program compiles and loads: those of Triton and torch.compile
 *   cuBLAS code      cuBLAS chooses its kernels by rules of its own: at most all of its modules
 *   library code     likewise for NVIDIA's other libraries: a part of their code is assumed
 *   stack            the threads' stacks, where a kernel needs more than a context's first limit
 *   cuBLAS, NCCL     what these libraries allocate themselves: the stand-ins count it (sim/libraries)
 */
#include "estimate/estimate.h"

#include "analyze/saturate.h"
#include "base/units.h"
#include "sim/profiles/architecture.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* All code of a process that left no list of it, with lazy loading, which is the default of today's drivers. */
#define CODE_BYTES (512 * NEAP_MIB)
/* The kernels of NVIDIA's libraries other than cuBLAS and NCCL. A whole process on an H100 took 0.16 GiB beyond its
 * context (vllm#12126, all code included), one on an RTX PRO 5000 some 100 MiB. All kernels of cuDNN 9.26 have 295 to
 * 412 MiB, those of cuSOLVER 41 to 102, those of cuSPARSE 78 to 98. */
#define LIBRARY_BYTES (256 * NEAP_MIB)
/* The code of cuBLAS before CUDA 13. */
#define CUBLAS_BYTES (384 * NEAP_MIB)
/* All code of a process with CUDA_MODULE_LOADING=EAGER. All libraries of PyTorch 2.1 and PyTorch itself took 0.45 GiB
 * more on an A100 (github.com/stas00/ml-engineering). */
#define EAGER_BYTES (1024 * NEAP_MIB)
/* How much more another version of the driver may take than the profile's figure. An A100: 420 MiB, and 0.47 GiB with
 * another driver; a B200: 560 and 612 MiB. */
#define VERSIONS_BYTES (64 * NEAP_MIB)
/* The cudaLimitStackSize that a context begins with. A driver raises it when a kernel needs more (cuCtxSetLimit), in
 * units. */
#define STACK_LIMIT 1024
#define STACK_UNIT  512

const char *neap_estimate_source_name(enum neap_estimate_source source)
{
	static const char *const names[] = {[NEAP_ESTIMATE_COMPUTED] = "computed",
					    [NEAP_ESTIMATE_DOCUMENTED] = "documented",
					    [NEAP_ESTIMATE_PUBLISHED] = "published",
					    [NEAP_ESTIMATE_ASSUMED] = "assumed"};
	return names[source];
}

/* Returns the library that allocates this workspace itself: cuBLAS does with each handle and NCCL with each
 * communicator. NULL: PyTorch allocates the workspace for the library. */
static const char *own_pool(const struct neap_simulated_gap *gap)
{
	if (gap->kind != NEAP_GAP_WORKSPACE)
		return NULL;
	return !strcmp(gap->library, "NCCL") ? "NCCL" : !strncmp(gap->function, "cublasCreate", 12) ? "cuBLAS" : NULL;
}

static void add(struct neap_estimate_context *context, const char *name, uint64_t low, uint64_t high,
		enum neap_estimate_source source)
{
	if (!high)
		return;
	context->low_bytes = neap_plus(context->low_bytes, low);
	context->high_bytes = neap_plus(context->high_bytes, high);
	for (size_t i = 0; i < context->part_count; i++)
		if (!strcmp(context->parts[i].name, name)) {
			context->parts[i].low_bytes = neap_plus(context->parts[i].low_bytes, low);
			context->parts[i].high_bytes = neap_plus(context->parts[i].high_bytes, high);
			return;
		}
	context->parts[context->part_count++] = (struct neap_estimate_part){name, low, high, source};
}

/* All modules of libcublas.so.13 and libcublasLt.so.13, by compute capability. Of CUDA 13.0 and 13.2, the larger
 * figure. */
static const struct {
	int capability;
	uint64_t mib;
} cublas_code[] = {{75, 124}, {80, 139}, {86, 138}, {89, 161}, {90, 375}, {100, 151}, {103, 150}, {120, 210}};

static void add_cublas(struct neap_estimate_context *context, const struct neap_estimate_run *run,
		       const struct sim_profile *profile)
{
	int capability = profile->compute_major * 10 + profile->compute_minor;
	if (run->code.eager || run->code.unread) /* EAGER_BYTES and CODE_BYTES include it */
		return;
	for (size_t i = 0; i < sizeof cublas_code / sizeof cublas_code[0]; i++)
		if (cublas_code[i].capability == capability && !strncmp(run->cuda, "13.", 3)) {
			add(context, "cuBLAS code", 0, cublas_code[i].mib * NEAP_MIB, NEAP_ESTIMATE_COMPUTED);
			return;
		}
	add(context, "cuBLAS code", 0, CUBLAS_BYTES, NEAP_ESTIMATE_ASSUMED);
}

static void add_code(struct neap_estimate_context *context, const struct neap_code *code)
{
	if (code->known)
		add(context, "code", code->low_bytes, code->high_bytes, NEAP_ESTIMATE_COMPUTED);
	add(context, "own modules", 0, code->own_bytes, NEAP_ESTIMATE_COMPUTED);
	if (!code->known || code->unread)
		add(context, "library code", 0, code->eager ? EAGER_BYTES : CODE_BYTES, NEAP_ESTIMATE_ASSUMED);
	else if (code->eager || *code->beside)
		add(context, "library code", 0, code->eager ? EAGER_BYTES : LIBRARY_BYTES, NEAP_ESTIMATE_ASSUMED);
}

/* Adds the stacks: each thread that a device can run at once has one. */
static void add_stack(struct neap_estimate_context *context, const struct neap_code *code,
		      const struct sim_profile *profile)
{
	const struct sim_architecture *architecture =
		sim_architecture_find(profile->compute_major, profile->compute_minor);
	uint64_t threads = (uint64_t)profile->multiprocessors * (uint64_t)architecture->threads;
	uint64_t stack = (code->stack_bytes + STACK_UNIT - 1) / STACK_UNIT * STACK_UNIT;
	if (stack > STACK_LIMIT)
		add(context, "stack", 0, (stack - STACK_LIMIT) * threads, NEAP_ESTIMATE_COMPUTED);
}

struct neap_estimate_context neap_estimate_context(const struct neap_estimate_plan *plan, size_t gpu,
						   const struct neap_estimate_run *run)
{
	const struct sim_profile *profile = plan->gpus[gpu].profile;
	struct neap_estimate_context context = {0};
	uint64_t processes = run->process_count ? run->process_count : 1;
	uint64_t bare = profile->context_mib * NEAP_MIB, seen = bare;
	if (run->code.known && profile->context_seen_mib) /* else CODE_BYTES includes it */
		seen = profile->context_seen_mib * NEAP_MIB;
	add(&context, "driver", seen < bare ? seen : bare, seen > bare ? seen : bare, NEAP_ESTIMATE_PUBLISHED);
	if (run->code.known)
		add(&context, "driver versions", 0, neap_less(bare + VERSIONS_BYTES, seen > bare ? seen : bare),
		    NEAP_ESTIMATE_ASSUMED);
	add_code(&context, &run->code);
	if (run->code.known && run->code.cublas)
		add_cublas(&context, run, profile);
	add_stack(&context, &run->code, profile);
	for (size_t i = 0; i < run->gaps.gap_count; i++) {
		const struct neap_simulated_gap *gap = &run->gaps.gaps[i];
		uint64_t calls = gap->calls / processes + (gap->calls % processes > 0);
		if (own_pool(gap)) /* counts one process, because the others make as many calls */
			add(&context, own_pool(gap), 0, neap_to_bytes((double)gap->high_bytes * (double)calls),
			    NEAP_ESTIMATE_DOCUMENTED);
	}
	return context;
}

uint64_t neap_estimate_workspace(const struct neap_estimate_run *run)
{
	uint64_t most = 0;
	for (size_t i = 0; i < run->gaps.gap_count; i++) {
		const struct neap_simulated_gap *gap = &run->gaps.gaps[i];
		if (gap->kind == NEAP_GAP_WORKSPACE && !own_pool(gap) &&
		    gap->high_bytes != NEAP_SIMULATED_UNBOUNDED && gap->high_bytes - gap->low_bytes > most)
			most = gap->high_bytes - gap->low_bytes;
	}
	return most;
}

bool neap_estimate_is_unbounded(const struct neap_estimate_run *run)
{
	for (size_t i = 0; i < run->gaps.gap_count; i++) {
		const struct neap_simulated_gap *gap = &run->gaps.gaps[i];
		if (gap->kind == NEAP_GAP_WORKSPACE && gap->high_bytes == NEAP_SIMULATED_UNBOUNDED)
			return true;
	}
	return false;
}

void neap_estimate_part_text(const struct neap_estimate_plan *plan, size_t gpu, const struct neap_estimate_run *run,
			     const struct neap_estimate_part *part, char *ret_text, size_t capacity)
{
	const struct sim_profile *profile = plan->gpus[gpu].profile;
	const struct neap_code *code = &run->code;
	char what[256];
	if (!strcmp(part->name, "driver") && profile->context_seen)
		snprintf(what, sizeof what, "the driver's context on this GPU (profile %s; %s)", profile->name,
			 profile->context_seen);
	else if (!strcmp(part->name, "driver"))
		snprintf(what, sizeof what, "the driver's context on this GPU (profile %s)", profile->name);
	else if (!strcmp(part->name, "driver versions"))
		snprintf(what, sizeof what, "other versions of the driver");
	else if (!strcmp(part->name, "code") && code->eager)
		snprintf(what, sizeof what, "all %" PRIu64 " modules, loaded eagerly, most of them of %s",
			 code->modules, code->library);
	else if (!strcmp(part->name, "code"))
		snprintf(what, sizeof what,
			 "%" PRIu64 " kernel%s, or all of the %" PRIu64 " module%s that they are in, of %s",
			 code->kernels, code->kernels == 1 ? "" : "s", code->modules, code->modules == 1 ? "" : "s",
			 code->library);
	else if (!strcmp(part->name, "own modules"))
		snprintf(what, sizeof what, "%" PRIu64 " modules that the program compiled, as Triton does",
			 code->own_modules);
	else if (!strcmp(part->name, "library code") && !code->known)
		snprintf(what, sizeof what, "code that the driver loads");
	else if (!strcmp(part->name, "library code") && code->unread)
		snprintf(what, sizeof what,
			 "%" PRIu64 " kernels or modules whose code is not known, and NVIDIA's libraries",
			 code->unread);
	else if (!strcmp(part->name, "library code"))
		snprintf(what, sizeof what, "kernels of NVIDIA's libraries%s%s", *code->beside ? ": " : "",
			 code->beside);
	else if (!strcmp(part->name, "cuBLAS code"))
		snprintf(what, sizeof what, "kernels of cuBLAS, at most all of its modules for this architecture");
	else if (!strcmp(part->name, "stack"))
		snprintf(what, sizeof what, "%" PRIu64 " bytes of stack for each thread, as a kernel needs",
			 code->stack_bytes);
	else
		snprintf(what, sizeof what, "what %s allocates itself", part->name);
	snprintf(ret_text, capacity, "%s: %s", neap_estimate_source_name(part->source), what);
}
