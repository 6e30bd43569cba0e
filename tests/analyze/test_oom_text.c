/* Out-of-memory messages in every wording, and texts that are no such message. */
#include "analyze/oom_text.h"

#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN NEAP_OOM_TEXT_UNKNOWN

static struct neap_oom_text first(const char *text)
{
	struct neap_oom_text found;
	size_t position = 0;
	assert_int_equal(neap_oom_text_next(text, strlen(text), &position, &found, NULL), NEAP_OK);
	return found;
}

/* The text's figures are rounded to two decimals. */
static void assert_size(uint64_t bytes, double value, uint64_t unit)
{
	double off = (double)bytes - value * (double)unit;
	assert_true(off <= 1 && off >= -1);
}

static void test_cached(void **state)
{
	(void)state;
	struct neap_oom_text found =
		first("RuntimeError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 3; 7.43 GiB total "
		      "capacity; 6.89 GiB already allocated; 2.94 MiB free; 47.24 MiB cached)");
	assert_int_equal(found.wording, NEAP_WORDING_CACHED);
	assert_string_equal(found.backend, "CUDA");
	assert_int_equal(found.gpu, 3);
	assert_size(found.tried_bytes, 512, MIB);
	assert_size(found.total_bytes, 7.43, GIB);
	assert_size(found.allocated_bytes, 6.89, GIB);
	assert_size(found.free_bytes, 2.94, MIB);
	assert_size(found.cached_bytes, 47.24, MIB);
	assert_int_equal(found.reserved_bytes, found.allocated_bytes + found.cached_bytes);
	assert_true(found.others_have_own_context);
	assert_int_equal(found.cause, NEAP_TEXT_CAPACITY);
	assert_false(found.close_call);
}

static void test_reserved(void **state)
{
	(void)state;
	struct neap_oom_text found = first(
		"CUDA out of memory. Tried to allocate 128.00 MiB (GPU 0; 4.00 GiB total capacity; 2.20 GiB already "
		"allocated; 44.64 MiB free; 2.41 GiB reserved in total by PyTorch) If reserved memory is >> "
		"allocated "
		"memory try setting max_split_size_mb");
	assert_int_equal(found.wording, NEAP_WORDING_RESERVED);
	assert_size(found.cached_bytes, 2.41 - 2.20, GIB);
	assert_int_equal(found.cause, NEAP_TEXT_FRAGMENTATION); /* 83 MiB missing, 215 MiB cached */
	assert_int_equal(found.shortfall_bytes, found.tried_bytes - found.free_bytes);

	found = first(
		"CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.69 GiB total capacity; 10.00 GiB already "
		"allocated; 1.00 GiB free; 10.10 GiB reserved in total by PyTorch)");
	/* 12.6 GiB are neither free nor PyTorch's: far more than a context */
	assert_int_equal(found.cause, NEAP_TEXT_NEIGHBOURS);
	found = first(
		"CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 12.60 GiB total capacity; 10.00 GiB already "
		"allocated; 1.00 GiB free; 10.10 GiB reserved in total by PyTorch)");
	assert_int_equal(found.cause, NEAP_TEXT_CAPACITY); /* 1.5 GiB may be the context alone */
	found = first(
		"CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.00 GiB total capacity; 10.00 GiB already "
		"allocated; 60.00 GiB free; 11.50 GiB allowed; 10.10 GiB reserved in total by PyTorch)");
	assert_int_equal(found.cause, NEAP_TEXT_LIMIT);
	assert_size(found.allowed_bytes, 11.5, GIB);
	/* 102 MiB cached would cover 15, but others hold 20.6 of the 23.7 GiB. */
	found = first(
		"CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.69 GiB total capacity; 3.00 GiB already "
		"allocated; 5.19 MiB free; 3.10 GiB reserved in total by PyTorch)");
	assert_int_equal(found.cause, NEAP_TEXT_NEIGHBOURS);
	found = first(
		"CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.69 GiB total capacity; 2.00 GiB already "
		"allocated; 5.19 MiB free; 3.10 GiB reserved in total by PyTorch)");
	assert_int_equal(found.cause, NEAP_TEXT_FRAGMENTATION); /* a third of its own memory */
}

static const char sentences[] = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 764.00 MiB. GPU 1 has "
				"a total capacity of 47.37 GiB of "
				"which 442.88 MiB is free. Process 77 has 1.00 GiB memory in use. Process 78 has "
				"512.00 MiB memory in use. Including "
				"non-PyTorch memory, this process has 45.40 GiB memory in use. 40.00 GiB allowed; Of "
				"the allocated memory 42.40 GiB is "
				"allocated by PyTorch, with 2.00 GiB allocated in private pools (e.g., CUDA Graphs), "
				"and 100.00 MiB is reserved by "
				"PyTorch but unallocated. If reserved but unallocated memory is large";

static void assert_sentences(const struct neap_oom_text *found)
{
	assert_int_equal(found->wording, NEAP_WORDING_SENTENCES);
	assert_int_equal(found->gpu, 1);
	assert_size(found->tried_bytes, 764, MIB);
	assert_size(found->total_bytes, 47.37, GIB);
	assert_size(found->free_bytes, 442.88, MIB);
	assert_size(found->process_bytes, 45.40, GIB);
	assert_size(found->allowed_bytes, 40, GIB);
	assert_size(found->allocated_bytes, 42.40, GIB);
	assert_size(found->private_bytes, 2, GIB);
	assert_size(found->cached_bytes, 100, MIB);
	assert_int_equal(found->process_count, 2);
	assert_int_equal(found->processes[0].pid, 77);
	assert_size(found->processes[1].bytes, 512, MIB);
	assert_int_equal(found->cause, NEAP_TEXT_NEIGHBOURS);
}

static void test_sentences(void **state)
{
	(void)state;
	struct neap_oom_text found = first(sentences);
	assert_sentences(&found);
	assert_int_equal(found.others_bytes, found.total_bytes - found.free_bytes - found.process_bytes);
	assert_false(found.self_by_other_pid);
}

/* A log wraps at any blank, and draws boxes and colours: the same message is read. */
static void test_wrapped(void **state)
{
	(void)state;
	char text[4 * sizeof sentences];
	const char *seams[] = {"\n", "\r\n", " \xe2\x94\x82\n\xe2\x94\x82 ", "\033[31m \033[0m", "  |\n| "};
	for (size_t seam = 0; seam < sizeof seams / sizeof seams[0]; seam++) {
		size_t length = 0, blanks = 0;
		for (const char *at = sentences; *at; at++) {
			/* the blanks of the opening stay */
			if (*at == ' ' && ++blanks > 4 && blanks % 3 == 0) {
				strcpy(text + length, seams[seam]);
				length += strlen(seams[seam]);
			} else {
				text[length++] = *at;
			}
		}
		text[length] = '\0';
		struct neap_oom_text found = first(text);
		assert_sentences(&found);
	}
}

static void test_oddities(void **state)
{
	(void)state;
	/* 2.1 misspelt it; a negative number was printed unsigned */
	struct neap_oom_text found = first(
		"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacty of 23.69 GiB of which "
		"1.00 GiB is "
		"free. Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use. Of the "
		"allocated "
		"memory 20.20 GiB is allocated by PyTorch, and 1.10 GiB is reserved by PyTorch but unallocated.");
	assert_true(found.absurd_process);
	assert_int_equal(found.process_bytes, UNKNOWN);
	assert_int_equal(found.cause, NEAP_TEXT_FRAGMENTATION);

	/* in a container the process lists itself under its PID outside */
	found = first("CUDA out of memory. Tried to allocate 3.25 GiB. GPU 1 has a total capacity of 93.02 GiB of "
		      "which 1.18 GiB "
		      "is free. Process 2752205 has 91.82 GiB memory in use. Of the allocated memory 90.63 GiB is "
		      "allocated by "
		      "PyTorch, and 120.54 MiB is reserved by PyTorch but unallocated.");
	assert_true(found.self_by_other_pid);
	assert_int_equal(found.process_count, 0);
	assert_int_equal(found.cause, NEAP_TEXT_CAPACITY);

	/* more allocated than the device has */
	found = first("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of "
		      "which 0 bytes is "
		      "free. Of the allocated memory 14.51 GiB is allocated by PyTorch, and 15.90 MiB is reserved by "
		      "PyTorch but "
		      "unallocated.");
	assert_true(found.spilled);
	assert_int_equal(found.free_bytes, 0);
	assert_int_equal(found.cause, NEAP_TEXT_CAPACITY);
	assert_true(found.close_call == (found.shortfall_bytes - found.cached_bytes <= found.slack_bytes));

	/* one tensor larger than the device */
	found = first("CUDA out of memory. Tried to allocate 130206.04 GiB. GPU 0 has a total capacity of 23.56 GiB "
		      "of which 16.57 "
		      "GiB is free. Including non-PyTorch memory, this process has 6.97 GiB memory in use.");
	assert_int_equal(found.cause, NEAP_TEXT_REQUEST);

	/* enough was free */
	found = first("HIP out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 23.56 GiB of "
		      "which 16.57 "
		      "GiB is free. Including non-PyTorch memory, this process has 6.97 GiB memory in use.");
	assert_string_equal(found.backend, "HIP");
	assert_int_equal(found.cause, NEAP_TEXT_REFUSED);

	/* cut short */
	found = first(
		"CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.69 GiB total capacity; 21.18 GiB alrea");
	assert_int_equal(found.cause, NEAP_TEXT_UNKNOWN);
	assert_int_equal(found.free_bytes, UNKNOWN);
}

static void test_bare_and_none(void **state)
{
	(void)state;
	const char *bare[] = {
		"RuntimeError: CUDA error: out of memory\nCUDA kernel errors might",
		"RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/THCStorage.cu:58",
		"CUDA_ERROR_OUT_OF_MEMORY: out of memory"};
	for (size_t i = 0; i < sizeof bare / sizeof bare[0]; i++) {
		struct neap_oom_text found = first(bare[i]);
		assert_int_equal(found.wording, NEAP_WORDING_BARE);
		assert_string_equal(found.backend, "CUDA");
		assert_int_equal(found.cause, NEAP_TEXT_UNKNOWN);
	}
	const char *none[] = {"", "out of memory", "CUDA out of memor", "Killed"};
	struct neap_oom_text found = {.gpu = 42};
	for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
		size_t position = 0;
		assert_int_equal(neap_oom_text_next(none[i], strlen(none[i]), &position, &found, NULL), NEAP_ENOENT);
		assert_int_equal(found.gpu, 42);
	}
}

/* A full device: the driver has a small rest, larger than the request, and cannot hand it out. */
static void test_full_of_neighbours(void **state)
{
	(void)state;
	struct neap_oom_text found = first("Tried... CUDA out of memory. Tried to allocate 2.00 MiB (GPU 0; 3.79 GiB "
					   "total capacity; 654.97 MiB already "
					   "allocated; 6.00 MiB free; 666.00 MiB reserved in total by PyTorch)");
	assert_int_equal(found.cause, NEAP_TEXT_NEIGHBOURS);
	assert_size(found.others_bytes, 3.79 - (6. + 666.) / 1024, GIB);
	found = first("CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 15.77 GiB of "
		      "which 6.00 MiB is "
		      "free. Process 123 has 15.00 GiB memory in use. Including non-PyTorch memory, this process has "
		      "700.00 MiB "
		      "memory in use. Of the allocated memory 400.00 MiB is allocated by PyTorch, and 12.00 MiB is "
		      "reserved by "
		      "PyTorch but unallocated.");
	assert_int_equal(found.cause, NEAP_TEXT_NEIGHBOURS);
	assert_int_equal(found.processes[0].pid, 123);
	/* There is room, so something else refused. */
	found = first(
		"CUDA out of memory. Tried to allocate 2.00 MiB (GPU 0; 3.79 GiB total capacity; 654.97 MiB already "
		"allocated; 600.00 MiB free; 666.00 MiB reserved in total by PyTorch)");
	assert_int_equal(found.cause, NEAP_TEXT_REFUSED);
}

static void test_async(void **state)
{
	(void)state;
	struct neap_oom_text found = first(
		"torch.OutOfMemoryError: Allocation on device 1 would exceed allowed memory. (out of memory)\n"
		"Currently allocated     : 20.00 GiB\nRequested               : 6.00 GiB\n"
		"Device limit            : 24.00 GiB\nFree (according to CUDA): 3.00 GiB\n"
		"PyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB");
	assert_int_equal(found.wording, NEAP_WORDING_ASYNC);
	assert_int_equal(found.gpu, 1);
	assert_size(found.tried_bytes, 6, GIB);
	assert_size(found.allocated_bytes, 20, GIB);
	assert_size(found.total_bytes, 24, GIB);
	assert_size(found.free_bytes, 3, GIB);
	assert_int_equal(found.allowed_bytes, UNKNOWN); /* 2^64 is none */
	assert_int_equal(found.cause, NEAP_TEXT_CAPACITY);
	found = first(
		"Allocation on device 0 would exceed allowed memory. (out of memory) Currently allocated : 5.00 GiB "
		"Requested : 2.00 GiB Device limit : 24.00 GiB Free (according to CUDA): 15.00 GiB PyTorch limit "
		"(set by "
		"user-supplied memory fraction) : 6.00 GiB");
	assert_int_equal(found.cause, NEAP_TEXT_LIMIT);
	size_t position = 0;
	const char *none = "Allocation on device 0 went well";
	assert_int_equal(neap_oom_text_next(none, strlen(none), &position, &found, NULL), NEAP_ENOENT);
}

static void test_other_programs(void **state)
{
	(void)state;
	struct neap_oom_text found =
		first("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
		      "allocate 17179869184 bytes.");
	assert_int_equal(found.wording, NEAP_WORDING_JAX);
	assert_int_equal(found.tried_bytes, 16 * GIB);
	found = first("RESOURCE_EXHAUSTED: Failed to allocate request for 2.00GiB (2147483648B) on device ordinal 0");
	assert_int_equal(found.tried_bytes, 2 * GIB);
	found = first("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`");
	assert_string_equal(found.backend, "cuBLAS");
	assert_int_equal(found.wording, NEAP_WORDING_LIBRARY);
	found = first("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED");
	assert_string_equal(found.backend, "cuDNN");
	found = first("NCCL WARN Cuda failure 2 'out of memory'");
	assert_string_equal(found.backend, "NCCL");
}

/* Two in a row: neither message takes the other's figures. */
static void test_several(void **state)
{
	(void)state;
	const char text[] =
		"x\nCUDA out of memory. Tried to allocate 1.00 GiB. CUDA out of memory. Tried to allocate 2.00 GiB "
		"(GPU "
		"0; 4.00 GiB total capacity; 3.00 GiB already allocated; 0 bytes free; 3.00 GiB reserved in total by "
		"PyTorch)";
	struct neap_oom_text one, two;
	size_t position = 0;
	assert_int_equal(neap_oom_text_next(text, sizeof text - 1, &position, &one, NULL), NEAP_OK);
	assert_int_equal(neap_oom_text_next(text, sizeof text - 1, &position, &two, NULL), NEAP_OK);
	assert_int_equal(neap_oom_text_next(text, sizeof text - 1, &position, &two, NULL), NEAP_ENOENT);
	assert_int_equal(one.position, 2);
	assert_size(one.tried_bytes, 1, GIB);
	assert_int_equal(one.total_bytes, UNKNOWN);
	assert_size(two.tried_bytes, 2, GIB);
}

static const char vllm[] =
	"INFO worker.py:267] the current vLLM instance can use total_gpu_memory (23.58GiB) x gpu_memory_utilization "
	"(0.90) = 21.22GiB\nINFO worker.py:267] model weights take 21.21GiB; non_torch_memory takes 0.20GiB; PyTorch "
	"activation peak memory takes 0.37GiB; the rest of the memory reserved for KV Cache is "
	"-0.56GiB.\nValueError: No "
	"available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the "
	"engine.\n";

/* Its figures stand before the message, in words that differ from version to version. */
static void test_vllm(void **state)
{
	(void)state;
	struct neap_oom_text found = first(vllm);
	assert_int_equal(found.wording, NEAP_WORDING_VLLM);
	assert_string_equal(found.backend, "vLLM");
	assert_size(found.total_bytes, 23.58, GIB);
	assert_size(found.weights_bytes, 21.21, GIB);
	assert_size(found.outside_bytes, 0.20, GIB);
	assert_size(found.activation_bytes, 0.37, GIB);
	assert_int_equal(found.cause, NEAP_TEXT_LIMIT);
	assert_true(found.utilization > .899 && found.utilization < .901);
	assert_true(found.least_utilization > .923 && found.least_utilization < .924); /* 21.78 of 23.58 */
	assert_size(found.shortfall_bytes, 21.21 + .20 + .37 - .9 * 23.58, GIB);

	found = first("total_gpu_memory     15.00GiB\ngpu_memory_utilization 0.90\nmodel weights take 14.96GiB\n"
		      "non_torch_memory     1.79GiB\nPyTorch activation peak memory       1.26GiB\n"
		      "available_kv_cache_memory -4.51GiB\nNo available memory for the cache blocks.");
	assert_size(found.outside_bytes, 1.79, GIB);
	assert_size(found.activation_bytes, 1.26, GIB);
	assert_int_equal(found.cause, NEAP_TEXT_CAPACITY); /* 18.01 of 15 */

	found = first("Model loading took 64.24 GiB and 0.97 seconds\nAvailable KV cache memory: -0.30 GiB\n"
		      "ValueError: No available memory for the cache blocks.");
	assert_size(found.weights_bytes, 64.24, GIB);
	assert_size(found.shortfall_bytes, .3, GIB);
	assert_int_equal(found.cause, NEAP_TEXT_UNKNOWN);

	found = first("Available KV cache memory: 8.11 GiB\nNo available memory for the cache blocks");
	assert_int_equal(found.shortfall_bytes, UNKNOWN); /* of another engine: nothing was missing there */
	assert_true(neap_oom_text_bare(&found));
}

static void test_slurm(void **state)
{
	(void)state;
	static const struct {
		const char *text, *step;
	} cases[] = {
		{"slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0. Some of the step tasks have "
		 "been "
		 "OOM Killed.",
		 "11300781.0"},
		{"[2026-01-02T03:04:05.006] error: Detected 2 oom_kill events in StepId=7.batch. Some of the step "
		 "tasks",
		 "7.batch"},
		{"slurmstepd: error: Detected 1 oom-kill event(s) in StepId=938.batch cgroup. Some of your processes",
		 "938.batch"},
		{"slurmstepd: error: Detected 2 oom-kill event(s) in step 3756240.batch cgroup.", "3756240.batch"},
		{"slurmstepd: error: Exceeded job memory limit at some point.\nStepId=9.0", ""},
		{"slurmstepd: Exceeded step memory limit at some point.", ""},
		{"StepId=1.0\nslurmstepd: error: Step 123.0 exceeded memory limit (4297612 > 4194304), being killed",
		 "123.0"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct neap_oom_text found = first(cases[i].text);
		assert_int_equal(found.wording, NEAP_WORDING_SLURM);
		assert_int_equal(found.cause, NEAP_TEXT_HOST);
		assert_string_equal(found.step, cases[i].step);
		assert_int_equal(found.process_bytes, UNKNOWN); /* the last case's unit is not known */
	}
	struct neap_oom_text found =
		first("slurmstepd: error: StepId=7.batch exceeded memory limit (734003200 > 52428800), being killed");
	assert_string_equal(found.step, "7.batch");
	assert_int_equal(found.process_bytes, 700 * MIB);
	assert_int_equal(found.allowed_bytes, 50 * MIB);
	assert_int_equal(found.shortfall_bytes, 650 * MIB);
	found = first("StepId=7.0 exceeded memory limit (50 > 700), being killed");
	assert_int_equal(found.process_bytes, UNKNOWN);
}

/* Any bytes: a message or none, and the search ends. */
static void mutate(const char *whole, size_t size, unsigned *seed)
{
	for (unsigned round = 0; round < 3000; round++) {
		char text[sizeof sentences + sizeof vllm];
		assert_true(size <= sizeof text);
		memcpy(text, whole, size);
		for (unsigned i = 0; i < 1 + round % 9; i++)
			text[(unsigned)rand_r(seed) % size] = (char)rand_r(seed);
		size_t length = (unsigned)rand_r(seed) % size + 1, position = 0;
		char *exact = malloc(length); /* an address sanitizer sees a byte too far */
		assert_non_null(exact);
		memcpy(exact, text, length);
		struct neap_oom_text found;
		unsigned count = 0;
		while (neap_oom_text_next(exact, length, &position, &found, NULL) == NEAP_OK) {
			assert_true(++count < 10);
			assert_true(found.position < length && position <= length);
			assert_true(found.process_count <= NEAP_OOM_TEXT_PROCESSES);
			assert_true(found.shortfall_bytes == UNKNOWN || found.shortfall_bytes <= found.tried_bytes);
		}
		free(exact);
	}
}

static void test_mutations(void **state)
{
	(void)state;
	static const char slurm[] =
		"error: StepId=7.batch exceeded memory limit (734003200 > 52428800), being killed\nslurmstepd: "
		"error: "
		"Detected 1 oom_kill event in StepId=7.batch. Some of the step tasks have been OOM Killed.";
	unsigned seed = 20261121;
	printf("seed %u\n", seed);
	mutate(sentences, sizeof sentences, &seed);
	mutate(vllm, sizeof vllm, &seed);
	mutate(slurm, sizeof slurm, &seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cached),
		cmocka_unit_test(test_reserved),
		cmocka_unit_test(test_sentences),
		cmocka_unit_test(test_wrapped),
		cmocka_unit_test(test_oddities),
		cmocka_unit_test(test_bare_and_none),
		cmocka_unit_test(test_full_of_neighbours),
		cmocka_unit_test(test_async),
		cmocka_unit_test(test_other_programs),
		cmocka_unit_test(test_several),
		cmocka_unit_test(test_vllm),
		cmocka_unit_test(test_slurm),
		cmocka_unit_test(test_mutations),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
