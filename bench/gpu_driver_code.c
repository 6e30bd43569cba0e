/* bench/gpu_driver_code.c: measures how much device memory a kernel's code and its local memory take, with PTX that
 * is written here. */
#include "gpu_driver.h"

#include <stdlib.h>
#include <string.h>

#define HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"

static const char spinning[] = HEAD ".visible .entry spin(.param .u64 time)\n"
				    "{\n"
				    "	.reg .u64 %begin, %now, %time;\n"
				    "	.reg .pred %more;\n"
				    "	ld.param.u64 %time, [time];\n"
				    "	mov.u64 %begin, %globaltimer;\n"
				    "again:\n"
				    "	mov.u64 %now, %globaltimer;\n"
				    "	sub.u64 %now, %now, %begin;\n"
				    "	setp.lt.u64 %more, %now, %time;\n"
				    "	@%more bra again;\n"
				    "	ret;\n"
				    "}\n";

/* Writes and reads its frame at places that the compiler does not know, so that the frame stays in local memory. */
static const char framed[] = HEAD ".visible .entry framed(.param .u64 out, .param .u64 place)\n"
				  "{\n"
				  "	.local .align 16 .b8 frame[%u];\n"
				  "	.reg .u64 %%out, %%place, %%at;\n"
				  "	.reg .u32 %%value;\n"
				  "	.reg .pred %%never;\n"
				  "	ld.param.u64 %%out, [out];\n"
				  "	ld.param.u64 %%place, [place];\n"
				  "	mov.u64 %%at, frame;\n"
				  "	add.u64 %%at, %%at, %%place;\n"
				  "	cvt.u32.u64 %%value, %%place;\n"
				  "	st.local.u32 [%%at], %%value;\n"
				  "	ld.local.u32 %%value, [%%at+4];\n"
				  "	setp.eq.u32 %%never, %%value, 123456789;\n"
				  "	@%%never st.global.u32 [%%out], %%value;\n"
				  "	ret;\n"
				  "}\n";

static const char long_begin[] = HEAD ".visible .entry longer(.param .u64 out, .param .u64 place)\n"
				      "{\n"
				      "	.reg .u64 %out, %place;\n"
				      "	.reg .f32 %a, %b;\n"
				      "	.reg .pred %never;\n"
				      "	ld.param.u64 %out, [out];\n"
				      "	ld.param.u64 %place, [place];\n"
				      "	cvt.rn.f32.u64 %a, %place;\n"
				      "	cvt.rn.f32.u64 %b, %out;\n";
static const char long_end[] = "	setp.eq.f32 %never, %a, 0f3F9E0652;\n"
			       "	@%never st.global.f32 [%out], %a;\n"
			       "	ret;\n"
			       "}\n";

CUfunction spinning_kernel(struct bench *bench)
{
	CUfunction kernel = NULL;
	CUmodule module = NULL;

	if (!bench->cuda->cuModuleLoadData || !bench->cuda->cuModuleGetFunction || !bench->cuda->cuLaunchKernel) {
		snprintf(bench->failed, sizeof bench->failed, "the driver loads no modules");
		return NULL;
	}
	if (!ok(bench, bench->cuda->cuModuleLoadData(&module, spinning), "cuModuleLoadData") ||
	    !ok(bench, bench->cuda->cuModuleGetFunction(&kernel, module, "spin"), "cuModuleGetFunction"))
		return NULL;
	return kernel;
}

bool spin(struct bench *bench, CUfunction kernel, CUstream stream, uint64_t ns)
{
	void *parameters[] = {&ns};

	return ok(bench, bench->cuda->cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL),
		  "cuLaunchKernel");
}

static void report_attribute(struct bench *bench, const char *key, CUfunction_attribute attribute, CUfunction kernel)
{
	int value = 0;

	if (bench->cuda->cuFuncGetAttribute && !bench->cuda->cuFuncGetAttribute(&value, attribute, kernel))
		report_signed(bench->out, key, value);
}

/* Loads, launches, launches again, unloads, and reports after each by how much free memory has fallen. */
static void measure(struct bench *bench, const char *name, const char *kernel_name, const char *ptx)
{
	uint64_t before = free_bytes(bench), zero = 0, began = now_ns();
	void *parameters[] = {&zero, &zero};
	CUfunction kernel = NULL;
	CUmodule module = NULL;

	report_object(bench->out, name);
	bool good = ok(bench, bench->cuda->cuModuleLoadData(&module, ptx), "cuModuleLoadData");
	report_number(bench->out, "load_ms", (double)(now_ns() - began) / 1e6);
	report_signed(bench->out, "after_load_bytes", (int64_t)(before - free_bytes(bench)));
	if (good &&
	    ok(bench, bench->cuda->cuModuleGetFunction(&kernel, module, kernel_name), "cuModuleGetFunction")) {
		report_signed(bench->out, "after_get_function_bytes", (int64_t)(before - free_bytes(bench)));
		report_attribute(bench, "local_bytes_of_a_thread", CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel);
		report_attribute(bench, "registers", CU_FUNC_ATTRIBUTE_NUM_REGS, kernel);
		for (int i = 1; i <= 2 && good; i++) {
			began = now_ns();
			good = ok(bench,
				  bench->cuda->cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL),
				  "cuLaunchKernel") &&
			       ok(bench, bench->cuda->cuCtxSynchronize(), "cuCtxSynchronize");
			report_number(bench->out, i == 1 ? "first_launch_ms" : "second_launch_ms",
				      (double)(now_ns() - began) / 1e6);
			report_signed(bench->out, i == 1 ? "after_first_launch_bytes" : "after_second_launch_bytes",
				      (int64_t)(before - free_bytes(bench)));
		}
	}
	if (module && bench->cuda->cuModuleUnload)
		bench->cuda->cuModuleUnload(module);
	report_signed(bench->out, "after_unload_bytes", (int64_t)(before - free_bytes(bench)));
	report_close(bench->out);
}

static void measure_frame(struct bench *bench, unsigned bytes)
{
	char ptx[2048], name[64];

	snprintf(ptx, sizeof ptx, framed, bytes);
	snprintf(name, sizeof name, "frame of %u bytes", bytes);
	measure(bench, name, "framed", ptx);
}

static void measure_length(struct bench *bench, unsigned instructions)
{
	static const char one[] = "	fma.rn.f32 %a, %a, %b, %a;\n";
	char *ptx = malloc(sizeof long_begin + sizeof long_end + instructions * sizeof one), *end = ptx, name[64];

	if (!ptx)
		return;
	end = stpcpy(end, long_begin);
	for (unsigned i = 0; i < instructions; i++)
		end = stpcpy(end, one);
	stpcpy(end, long_end);
	snprintf(name, sizeof name, "code of %u instructions", instructions);
	measure(bench, name, "longer", ptx);
	free(ptx);
}

static void report_stack(struct bench *bench, const char *key)
{
	size_t value = 0;

	if (bench->cuda->cuCtxGetLimit && !bench->cuda->cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE))
		report_count(bench->out, key, value);
}

static void code(struct bench *bench)
{
	static const unsigned frames[] = {256, 1024, 2048, 4096, 16384, 65536, 1024};
	static const unsigned lengths[] = {16, 1000, 4096, 8192};
	int multiprocessors = 0, threads = 0;

	if (!bench_open(bench))
		return;
	CUfunction kernel = spinning_kernel(bench);
	if (!kernel || !spin(bench, kernel, NULL, 1000) ||
	    !ok(bench, bench->cuda->cuCtxSynchronize(), "cuCtxSynchronize"))
		return;
	bench->cuda->cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, bench->device);
	bench->cuda->cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
					  bench->device);
	report_signed(bench->out, "multiprocessors", multiprocessors);
	report_signed(bench->out, "threads_of_a_multiprocessor", threads);
	report_stack(bench, "stack_limit_bytes");
	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0] && !bench->failed[0]; i++)
		measure_length(bench, lengths[i]);
	for (size_t i = 0; i < sizeof frames / sizeof frames[0] && !bench->failed[0]; i++)
		measure_frame(bench, frames[i]);
	report_stack(bench, "stack_limit_bytes_then");
}

void part_code(struct bench *bench)
{
	setenv("CUDA_MODULE_LOADING", "EAGER", 1);
	code(bench);
}

void part_code_lazy(struct bench *bench)
{
	setenv("CUDA_MODULE_LOADING", "LAZY", 1);
	code(bench);
}
