/* Modules, functions, launches, occupancy. */
#include "sim_test.h"

#include "base/buffer.h"
#include "base/file.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char ptx[] = "// a comment\n"
			  ".version 8.0\n.target sm_80\n.address_size 64\n"
			  ".visible .global .align 8 .f32 weights[16];\n"
			  ".const .align 4 .b8 table[3] = {1, 2, 3};\n"
			  "/* .entry hidden( */\n"
			  ".visible .entry add(.param .u64 right, .param .u64 .ptr .global .align 4 left)\n"
			  "{\n.reg .b32 %r<3>;\n.shared .align 4 .b8 tile[64];\nret;\n}\n"
			  ".func (.param .b32 out) helper() { ret; }\n"
			  ".entry scale() { ret; }\n";

/* The parts of a cubin that are read: an ELF file with a symbol table. */
struct cubin {
	Elf64_Ehdr header;
	Elf64_Shdr sections[3]; /* none, symbols, names */
	Elf64_Sym symbols[4];   /* none, a kernel, a variable, an undefined symbol */
	char names[32];
};

static struct cubin make_cubin(void)
{
	struct cubin cubin = {
		.header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
			   .e_machine = 190,
			   .e_shoff = offsetof(struct cubin, sections),
			   .e_shentsize = sizeof(Elf64_Shdr),
			   .e_shnum = 3},
		.sections = {{0},
			     {.sh_type = SHT_SYMTAB,
			      .sh_link = 2,
			      .sh_offset = offsetof(struct cubin, symbols),
			      .sh_size = sizeof cubin.symbols},
			     {.sh_type = SHT_STRTAB,
			      .sh_offset = offsetof(struct cubin, names),
			      .sh_size = sizeof cubin.names}},
		.symbols = {{0},
			    {.st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = 1},
			    {.st_name = 8,
			     .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT),
			     .st_shndx = 1,
			     .st_size = 40},
			    {.st_name = 14, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = SHN_UNDEF}},
		.names = "\0kernel\0state\0vprintf"};

	return cubin;
}

static CUresult launch(CUfunction function, unsigned int grid, unsigned int block, unsigned int shared,
		       CUstream stream)
{
	return t.cuda.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, stream, NULL, NULL);
}

static void ptx_names_its_functions_and_variables(void **state)
{
	CUmodule module, nothing;
	CUfunction add, scale, again;
	CUdeviceptr address, other;
	const char *name;
	size_t bytes;

	(void)state;
	sim_begin("ptx", "mem=256MiB");
	uint64_t before = sim_free_bytes();
	assert_ok(t.cuda.cuModuleLoadData(&module, ptx));
	assert_int_equal(sim_free_bytes(), before);
	assert_ok(t.cuda.cuModuleGetFunction(&add, module, "add"));
	assert_ok(t.cuda.cuModuleGetFunction(&scale, module, "scale"));
	assert_ok(t.cuda.cuModuleGetFunction(&again, module, "add"));
	assert_ptr_equal(add, again);
	assert_answer(t.cuda.cuModuleGetFunction(&again, module, "hidden"), CUDA_ERROR_NOT_FOUND);
	assert_answer(t.cuda.cuModuleGetFunction(&again, module, "helper"), CUDA_ERROR_NOT_FOUND);
	assert_answer(t.cuda.cuModuleGetFunction(&again, module, "weights"), CUDA_ERROR_NOT_FOUND);
	assert_ok(t.cuda.cuFuncGetName(&name, add));
	assert_string_equal(name, "add");
	assert_ok(t.cuda.cuFuncGetModule(&nothing, add));
	assert_ptr_equal(nothing, module);

	assert_ok(t.cuda.cuModuleGetGlobal(&address, &bytes, module, "weights"));
	assert_int_equal(bytes, 64);
	assert_ok(t.cuda.cuModuleGetGlobal(&other, &bytes, module, "table"));
	assert_int_equal(bytes, 3);
	assert_true(other >= address + 64);
	assert_int_equal(sim_free_bytes(), before - PAGE); /* variables are memory */
	assert_ok(t.cuda.cuMemsetD32(address, 7, 16));
	assert_answer(t.cuda.cuMemFree(address), CUDA_ERROR_INVALID_VALUE); /* they are the module's */
	assert_answer(t.cuda.cuModuleGetGlobal(&address, &bytes, module, "tile"), CUDA_ERROR_NOT_FOUND);
	assert_answer(t.cuda.cuModuleGetGlobal(&address, &bytes, module, "left"), CUDA_ERROR_NOT_FOUND);
	assert_answer(t.cuda.cuModuleGetGlobal(&address, &bytes, module, "%r"), CUDA_ERROR_NOT_FOUND);
	assert_ok(t.cuda.cuCtxSynchronize());
	assert_ok(t.cuda.cuModuleUnload(module));
	assert_int_equal(sim_free_bytes(), before);
	assert_answer(t.cuda.cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
	assert_answer(launch(add, 1, 1, 0, NULL), CUDA_ERROR_INVALID_HANDLE);
	sim_end();
}

static void a_cubin_names_them_too_and_damage_is_refused(void **state)
{
	static const unsigned int fat[] = {0xba55ed50u, 0};
	struct cubin cubin = make_cubin();
	char path[] = "/tmp/neap-cubin-XXXXXX";
	CUmodule module;
	CUfunction function;
	CUdeviceptr address;
	size_t bytes;
	int fd = mkstemp(path);

	(void)state;
	sim_begin("cubin", "mem=256MiB");
	assert_ok(t.cuda.cuModuleLoadData(&module, &cubin));
	assert_ok(t.cuda.cuModuleGetFunction(&function, module, "kernel"));
	assert_answer(t.cuda.cuModuleGetFunction(&function, module, "vprintf"), CUDA_ERROR_NOT_FOUND);
	assert_answer(t.cuda.cuModuleGetFunction(&function, module, "state"), CUDA_ERROR_NOT_FOUND);
	assert_ok(t.cuda.cuModuleGetGlobal(&address, &bytes, module, "state"));
	assert_int_equal(bytes, 40);
	assert_ok(t.cuda.cuModuleUnload(module));

	assert_ok(t.cuda.cuModuleLoadData(&module, fat)); /* its names are unknown: all of them count as present */
	assert_ok(t.cuda.cuModuleGetFunction(&function, module, "whatever"));
	assert_answer(t.cuda.cuModuleGetGlobal(&address, &bytes, module, "whatever"), CUDA_ERROR_NOT_FOUND);
	assert_ok(t.cuda.cuModuleUnload(module));

	assert_answer(t.cuda.cuModuleLoadData(&module, "no code"), CUDA_ERROR_INVALID_IMAGE);
	assert_answer(t.cuda.cuModuleLoadData(&module, ""), CUDA_ERROR_INVALID_IMAGE);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, &cubin, sizeof cubin), sizeof cubin);
	assert_ok(t.cuda.cuModuleLoad(&module, path));
	assert_ok(t.cuda.cuModuleGetFunction(&function, module, "kernel"));
	assert_ok(t.cuda.cuModuleUnload(module));
	assert_int_equal(ftruncate(fd, sizeof cubin - 64), 0); /* names and symbols are beyond its end */
	assert_answer(t.cuda.cuModuleLoad(&module, path), CUDA_ERROR_INVALID_IMAGE);
	assert_int_equal(ftruncate(fd, 20), 0);
	assert_answer(t.cuda.cuModuleLoad(&module, path), CUDA_ERROR_INVALID_IMAGE);
	assert_answer(t.cuda.cuModuleLoad(&module, "/nowhere/at.all"), CUDA_ERROR_FILE_NOT_FOUND);
	cubin.header.e_machine = EM_X86_64;
	assert_answer(t.cuda.cuModuleLoadData(&module, &cubin), CUDA_ERROR_INVALID_IMAGE);
	close(fd);
	unlink(path);
	sim_end();
}

/* Under `neap estimate`: the size of the code of modules that the program loads itself. */
static void modules_are_accounted_for(void **state)
{
	struct cubin cubin = make_cubin();
	char folder[] = "/tmp/neap-modules-XXXXXX", path[64], text[64] = "";
	CUmodule module;
	CUlibrary library;
	FILE *file;

	(void)state;
	sim_begin("modules", "mem=256MiB");
	cubin.sections[2].sh_flags = SHF_ALLOC;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/code.%d", folder, (int)getpid());
	assert_ok(t.cuda.cuModuleLoadData(&module, &cubin));
	setenv("NEAP_RUN_DIR", folder, 1);
	setenv("NEAP_ESTIMATE", "1", 1);
	assert_ok(t.cuda.cuModuleLoadData(&module, &cubin));
	assert_ok(t.cuda.cuModuleLoadData(&module, ptx));
	assert_ok(t.cuda.cuLibraryLoadData(&library, &cubin, NULL, NULL, 0, NULL, NULL, 0));
	unsetenv("NEAP_ESTIMATE");
	unsetenv("NEAP_RUN_DIR");
	file = fopen(path, "r");
	assert_non_null(file);
	assert_true(fread(text, 1, sizeof text - 1, file) > 0);
	fclose(file);
	assert_string_equal(text, "cubin 32\ncubin 0\ncubin 32\n"); /* PTX: unknown */
	unlink(path);
	rmdir(folder);
	sim_end();
}

static void a_library_is_of_no_context(void **state)
{
	CUlibrary library, same;
	CUkernel kernel, kernels[4];
	CUfunction function;
	CUmodule module;
	CUcontext second;
	CUstream stream;
	CUdeviceptr address, other;
	const char *name;
	unsigned int count;
	int value;

	(void)state;
	sim_begin("library", "mem=256MiB,gpus=2");
	assert_ok(t.cuda.cuCtxSetCurrent(NULL));
	assert_ok(t.cuda.cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
	assert_ok(t.cuda.cuLibraryGetKernel(&kernel, library, "scale"));
	assert_answer(t.cuda.cuLibraryGetKernel(&kernels[0], library, "nothing"), CUDA_ERROR_NOT_FOUND);
	assert_ok(t.cuda.cuLibraryGetKernelCount(&count, library));
	assert_int_equal(count, 2);
	assert_ok(t.cuda.cuLibraryEnumerateKernels(kernels, 4, library));
	assert_true(kernels[0] == kernel || kernels[1] == kernel);
	assert_ok(t.cuda.cuKernelGetName(&name, kernel));
	assert_string_equal(name, "scale");
	assert_ok(t.cuda.cuKernelGetLibrary(&same, kernel));
	assert_ptr_equal(same, library);
	assert_ok(t.cuda.cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 1));
	assert_int_equal(value, 1024);
	assert_answer(t.cuda.cuKernelGetFunction(&function, kernel), CUDA_ERROR_INVALID_CONTEXT);

	assert_ok(t.cuda.cuDevicePrimaryCtxRetain(&second, 1));
	assert_ok(t.cuda.cuCtxSetCurrent(second));
	assert_ok(t.cuda.cuKernelGetFunction(&function, kernel));
	assert_ok(launch(function, 1, 32, 0, NULL));
	assert_ok(launch((CUfunction)kernel, 1, 32, 0, NULL));
	assert_ok(t.cuda.cuLibraryGetGlobal(&other, NULL, library, "weights"));
	assert_ok(t.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	assert_ok(t.cuda.cuLibraryGetModule(&module, library));
	assert_answer(t.cuda.cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE); /* it is the library's */

	assert_ok(t.cuda.cuCtxSetCurrent(t.context));
	assert_answer(launch(function, 1, 32, 0, NULL), CUDA_ERROR_INVALID_HANDLE); /* of the other device */
	assert_answer(launch(function, 1, 32, 0, stream), CUDA_ERROR_INVALID_HANDLE);
	assert_ok(launch((CUfunction)kernel, 1, 32, 0, stream)); /* its context is that of the stream */
	assert_ok(t.cuda.cuLibraryGetGlobal(&address, NULL, library, "weights"));
	assert_true(address != other);                  /* each device has its own */
	assert_ok(t.cuda.cuDevicePrimaryCtxRelease(1)); /* unloads its module as well */
	assert_ok(launch((CUfunction)kernel, 1, 32, 0, NULL));
	assert_answer(launch(function, 1, 32, 0, NULL), CUDA_ERROR_INVALID_HANDLE);
	assert_ok(t.cuda.cuLibraryUnload(library));
	assert_answer(t.cuda.cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
	assert_answer(launch((CUfunction)kernel, 1, 32, 0, NULL), CUDA_ERROR_INVALID_HANDLE);
	sim_end();
}

static int attribute(CUfunction function, CUfunction_attribute which)
{
	int value = -77;

	assert_ok(t.cuda.cuFuncGetAttribute(&value, which, function));
	return value;
}

/* Of modules that the process loaded itself, but not of the runtime's kernels, and not of a module that was
 * refused. */
static void loaded_kernels_are_counted(void **state)
{
	struct neap_sim_kernel own = {.name = "own"};
	CUfunction function;
	CUmodule module;

	(void)state;
	sim_begin("launch", "h100-80gb");
	uint64_t before = t.loaded_launches();
	assert_ok(t.cuda.cuModuleLoadData(&module, ptx));
	assert_ok(t.cuda.cuModuleGetFunction(&function, module, "add"));
	assert_int_equal(t.sim->launch(NULL, &own), 0);
	assert_answer(launch(function, 0, 1, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(t.loaded_launches(), before);
	assert_ok(launch(function, 1, 1, 0, NULL));
	assert_ok(launch(function, 1, 1, 0, NULL));
	assert_int_equal(t.loaded_launches(), before + 2);
	sim_end();
}

/* In a program without CUDA's runtime: noted by the first launch, once. */
static void a_kernel_is_noted(void **state)
{
	char folder[] = "/tmp/neap-note-XXXXXX", path[64];
	struct neap_buffer note = {0};
	CUfunction function;
	CUmodule module;

	(void)state;
	assert_non_null(mkdtemp(folder));
	setenv("NEAP_RUN_DIR", folder, 1);
	sim_begin("noted", "h100-80gb");
	assert_ok(t.cuda.cuModuleLoadData(&module, ptx));
	assert_ok(t.cuda.cuModuleGetFunction(&function, module, "add"));
	assert_ok(launch(function, 1, 1, 0, NULL));
	assert_ok(launch(function, 1, 1, 0, NULL));
	sim_end();
	unsetenv("NEAP_RUN_DIR");
	snprintf(path, sizeof path, "%s/note.%d", folder, (int)getpid());
	assert_int_equal(neap_file_read(path, 4096, &note, NULL), NEAP_OK);
	assert_string_equal(neap_buffer_string(&note),
			    "kernel add was launched and computed nothing, as every kernel here: what it would have "
			    "written keeps its old bytes\n");
	neap_buffer_fini(&note);
	unlink(path);
	rmdir(folder);
}

static void launches_are_checked(void **state)
{
	CUlaunchAttribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
	CUlaunchConfig config = {.gridDimX = 8,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = 64,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .attrs = &cluster,
				 .numAttrs = 1};
	void *parameters[1] = {NULL};
	CUfunction function;
	CUmodule module;

	(void)state;
	sim_begin("launch", "h100-80gb");
	assert_ok(t.cuda.cuModuleLoadData(&module, ptx));
	assert_ok(t.cuda.cuModuleGetFunction(&function, module, "add"));
	assert_ok(launch(function, 0x7fffffff, 1024, 48 << 10, NULL));
	assert_answer(launch(function, 0, 1, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_answer(launch(function, 1, 0, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_answer(launch(function, 1, 1025, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuLaunchKernel(function, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL),
		      CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 65, 0, NULL, NULL, NULL),
		      CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, parameters),
		      CUDA_ERROR_INVALID_VALUE);
	assert_answer(launch(function, 1, 1, (48 << 10) + 1, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 << 10));
	assert_int_equal(attribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES), 227 << 10);
	assert_ok(launch(function, 1, 1, 227 << 10, NULL));
	assert_answer(
		t.cuda.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (227 << 10) + 1),
		CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NUM_REGS, 16), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(attribute(function, CU_FUNC_ATTRIBUTE_BINARY_VERSION), 90);

	assert_ok(t.cuda.cuLaunchCooperativeKernel(function, 132, 1, 1, 1024, 1, 1, 0, NULL, NULL));
	assert_ok(t.cuda.cuLaunchCooperativeKernel(function, 264, 1, 1, 1024, 1, 1, 0, NULL, NULL));
	assert_answer(t.cuda.cuLaunchCooperativeKernel(function, 265, 1, 1, 1024, 1, 1, 0, NULL, NULL),
		      CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	cluster.value.clusterDim.x = 4, cluster.value.clusterDim.y = cluster.value.clusterDim.z = 1;
	assert_ok(t.cuda.cuLaunchKernelEx(&config, function, NULL, NULL));
	config.gridDimX = 9;
	assert_answer(t.cuda.cuLaunchKernelEx(&config, function, NULL, NULL), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	config.gridDimX = 16;
	cluster.value.clusterDim.x = 16;
	assert_answer(t.cuda.cuLaunchKernelEx(&config, function, NULL, NULL), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	assert_ok(t.cuda.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
	assert_ok(t.cuda.cuLaunchKernelEx(&config, function, NULL, NULL));
	assert_answer(launch((CUfunction)(uintptr_t)&config, 1, 1, 0, NULL), CUDA_ERROR_INVALID_HANDLE);
	assert_answer(launch(function, 1, 1, 0, (CUstream)(uintptr_t)&config), CUDA_ERROR_INVALID_HANDLE);
	assert_answer(sim_kernel(NULL, "wild", 4096, 8, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_answer(launch(function, 1, 1, 0, NULL), CUDA_ERROR_ILLEGAL_ADDRESS); /* sticky */
	t.sim->forgive();
	assert_ok(t.cuda.cuModuleUnload(module));
	sim_end();
}

/* As the programming guide's table of technical specifications allows. */
static void occupancy_is_the_least_of_four_limits(void **state)
{
	static const struct {
		const char *device;
		int block;
		size_t shared;
		int blocks;
	} cases[] = {
		{"h100-80gb", 128, 0, 16},        /* 2048 threads */
		{"h100-80gb", 32, 0, 32},         /* block slots */
		{"h100-80gb", 128, 100 << 10, 2}, /* 228 KiB of shared memory, 1 KiB of each block CUDA's own */
		{"h100-80gb", 128, 114 << 10, 1}, {"h100-80gb", 128, 227 << 10, 1}, {"h100-80gb", 1024, 0, 2},
		{"t4-16gb", 1024, 0, 1},          {"t4-16gb", 128, 0, 8},           {"t4-16gb", 128, 40 << 10, 1},
		{"rtx3090-24gb", 96, 0, 16},      {"rtx3090-24gb", 128, 0, 12},     {"rtx4090-24gb", 32, 0, 24},
		{"v100-16gb", 64, 24 << 10, 4},   {"rtx5090-32gb", 512, 0, 3},      {"a100-80gb", 33, 0, 32},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		CUfunction function;
		CUmodule module;
		int blocks = -1;

		sim_begin("occupancy", cases[i].device);
		assert_ok(t.cuda.cuModuleLoadData(&module, ptx));
		assert_ok(t.cuda.cuModuleGetFunction(&function, module, "add"));
		assert_ok(t.cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, cases[i].block,
									     cases[i].shared));
		if (blocks != cases[i].blocks)
			fail_msg("%s, %d threads, %zu bytes: %d blocks, expected %d", cases[i].device, cases[i].block,
				 cases[i].shared, blocks, cases[i].blocks);
		assert_ok(t.cuda.cuModuleUnload(module));
		sim_end();
	}
}

static size_t CUDAAPI shared_of_block(int block_size) { return (size_t)block_size * 64; }

static void a_launch_can_be_proposed(void **state)
{
	CUlaunchAttribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
	CUlaunchConfig config = {.gridDimX = 8,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = 1024,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .attrs = &cluster,
				 .numAttrs = 1};
	CUfunction function;
	CUmodule module;
	int grid, block, clusters;
	size_t shared;

	(void)state;
	sim_begin("propose", "rtx3090-24gb");
	assert_ok(t.cuda.cuModuleLoadData(&module, ptx));
	assert_ok(t.cuda.cuModuleGetFunction(&function, module, "add"));
	assert_ok(t.cuda.cuOccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, 0, 0));
	assert_int_equal(block, 768); /* two of them are the 1536 threads; one of 1024 is not */
	assert_int_equal(grid, 2 * 82);
	assert_ok(t.cuda.cuOccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, 0, 100));
	assert_true(block <= 100);
	assert_ok(t.cuda.cuOccupancyMaxPotentialBlockSize(&grid, &block, function, shared_of_block, 0, 0));
	assert_int_equal(block, 768); /* 48 KiB each */
	assert_ok(t.cuda.cuOccupancyAvailableDynamicSMemPerBlock(&shared, function, 4, 128));
	assert_int_equal(shared, 24 << 10);
	assert_answer(t.cuda.cuOccupancyMaxActiveClusters(&clusters, function, &config), CUDA_ERROR_NOT_SUPPORTED);
	assert_ok(t.cuda.cuModuleUnload(module));
	sim_end();

	sim_begin("propose", "h100-80gb");
	assert_ok(t.cuda.cuModuleLoadData(&module, ptx));
	assert_ok(t.cuda.cuModuleGetFunction(&function, module, "add"));
	assert_answer(t.cuda.cuOccupancyMaxActiveClusters(&clusters, function, &config), CUDA_ERROR_INVALID_VALUE);
	cluster.value.clusterDim.x = 2, cluster.value.clusterDim.y = cluster.value.clusterDim.z = 1;
	assert_ok(t.cuda.cuOccupancyMaxActiveClusters(&clusters, function, &config));
	assert_int_equal(clusters, 132);
	assert_ok(t.cuda.cuOccupancyMaxPotentialClusterSize(&clusters, function, &config));
	assert_int_equal(clusters, 8);
	assert_ok(t.cuda.cuModuleUnload(module));
	sim_end();
}

/* NEAP_SIM_KERNEL: the duration of kernels without their own. */
static void a_kernel_takes_the_time_that_is_set(void **state)
{
	struct neap_sim_kernel kernel = {.name = "nothing"}, slow = {.name = "slow", .duration_ns = 1000000000};
	const char *message;
	CUfunction function;
	CUmodule module;
	CUstream stream;

	(void)state;
	sim_begin("instant", "mem=256MiB");
	assert_ok(t.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	assert_ok(t.sim->launch(stream, &kernel));
	assert_ok(t.cuda.cuStreamQuery(stream));
	assert_ok(t.sim->launch(stream, &slow));
	assert_ok(t.sim->launch(stream, &kernel)); /* behind it */
	assert_answer(t.cuda.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	uint64_t before = t.sim->now_ns();
	assert_ok(t.cuda.cuStreamSynchronize(stream));
	assert_true(t.sim->now_ns() - before > 900000000);
	assert_ok(t.cuda.cuStreamDestroy(stream));
	sim_end();

	sim_name_world("slow", "mem=256MiB");
	setenv("NEAP_SIM_KERNEL", "1s", 1);
	assert_ok(t.cuda.cuInit(0));
	assert_ok(t.cuda.cuDevicePrimaryCtxRetain(&t.context, 0));
	assert_ok(t.cuda.cuCtxSetCurrent(t.context));
	assert_ok(t.cuda.cuModuleLoadData(&module, ptx));
	assert_ok(t.cuda.cuModuleGetFunction(&function, module, "add"));
	assert_ok(t.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	before = t.sim->now_ns();
	assert_ok(launch(function, 1, 1, 0, stream));
	assert_ok(t.sim->launch(stream, &kernel));
	assert_answer(t.cuda.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	t.sim->hold(1);
	t.sim->step(1500000000);
	assert_answer(t.cuda.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	assert_answer(t.cuda.cuStreamSynchronize(stream), CUDA_ERROR_NOT_READY); /* it would wait for ever */
	t.sim->step(500000000);
	assert_ok(t.cuda.cuStreamQuery(stream));
	t.sim->hold(0);
	assert_ok(launch(function, 1, 1, 0, stream));
	assert_ok(t.cuda.cuCtxSynchronize());
	assert_true(t.sim->now_ns() - before >= 3000000000);
	assert_ok(t.cuda.cuStreamDestroy(stream));
	assert_ok(t.cuda.cuModuleUnload(module));
	sim_end();

	setenv("NEAP_SIM_KERNEL", "soon", 1);
	assert_answer(t.cuda.cuInit(0), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &message));
	assert_non_null(strstr(message, "NEAP_SIM_KERNEL"));
	unsetenv("NEAP_SIM_KERNEL");
}

/* The null stream is a barrier, even if its kernels take no time. */
static void kernels_that_are_nothing_still_order(void **state)
{
	struct neap_sim_kernel kernel = {.name = "nothing"};
	CUstream a, b;
	CUdeviceptr memory;

	(void)state;
	sim_begin("barrier", "mem=256MiB");
	assert_ok(t.cuda.cuStreamCreate(&a, CU_STREAM_DEFAULT));
	assert_ok(t.cuda.cuStreamCreate(&b, CU_STREAM_DEFAULT));
	assert_ok(t.cuda.cuMemAlloc(&memory, PAGE));
	assert_ok(sim_kernel(a, "writer", memory, 64, 1));
	assert_ok(t.sim->launch(NULL, &kernel));
	assert_ok(sim_kernel(b, "reader", memory, 64, 0));
	assert_ok(sim_kernel(a, "reader too", memory, 64, 0));
	assert_answer(sim_kernel(a, "second writer", memory, 64, 1), CUDA_ERROR_ILLEGAL_ADDRESS); /* b reads it */
	t.sim->forgive();
	assert_ok(t.cuda.cuMemFree(memory));
	assert_ok(t.cuda.cuStreamDestroy(a));
	assert_ok(t.cuda.cuStreamDestroy(b));
	sim_end();
}

static void tensor_maps_are_checked(void **state)
{
	CUtensorMap map;
	cuuint64_t sizes[2] = {64, 64}, strides[1] = {128};
	uint32_t box[2] = {64, 64}, steps[2] = {1, 1};

	(void)state;
	sim_begin("tensormap", "h100-80gb");
#define ENCODE(rank, address, swizzle)                                                                               \
	t.cuda.cuTensorMapEncodeTiled(&map, 6 /* half */, rank, (void *)(uintptr_t)(address), sizes, strides, box,   \
				      steps, 0, swizzle, 0, 0)
	assert_ok(ENCODE(2, 4096, 3));
	assert_answer(ENCODE(2, 4096, 2), CUDA_ERROR_INVALID_VALUE); /* the box is wider than 64 bytes */
	assert_answer(ENCODE(2, 4100, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(ENCODE(6, 4096, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(ENCODE(0, 4096, 0), CUDA_ERROR_INVALID_VALUE);
	strides[0] = 120;
	assert_answer(ENCODE(2, 4096, 0), CUDA_ERROR_INVALID_VALUE);
	strides[0] = 128, box[1] = 257;
	assert_answer(ENCODE(2, 4096, 0), CUDA_ERROR_INVALID_VALUE);
	box[1] = 64;
	sim_end();
	sim_begin("tensormap", "a100-80gb");
	assert_answer(ENCODE(2, 4096, 3), CUDA_ERROR_NOT_SUPPORTED);
	sim_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_kernel_is_noted), /* first: a process notes one kernel */
		cmocka_unit_test(ptx_names_its_functions_and_variables),
		cmocka_unit_test(a_cubin_names_them_too_and_damage_is_refused),
		cmocka_unit_test(modules_are_accounted_for),
		cmocka_unit_test(a_library_is_of_no_context),
		cmocka_unit_test(loaded_kernels_are_counted),
		cmocka_unit_test(launches_are_checked),
		cmocka_unit_test(occupancy_is_the_least_of_four_limits),
		cmocka_unit_test(a_launch_can_be_proposed),
		cmocka_unit_test(a_kernel_takes_the_time_that_is_set),
		cmocka_unit_test(kernels_that_are_nothing_still_order),
		cmocka_unit_test(tensor_maps_are_checked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
