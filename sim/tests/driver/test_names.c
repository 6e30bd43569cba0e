/* How programs find the driver's functions: cuGetProcAddress and dlsym. */
#include "sim_test.h"

#include "base/buffer.h"
#include "base/file.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* CUDA 13's header has a function type for each version that changed the function. Skipped without it. */
static void versions_are_those_of_cudas_header(void **state)
{
	static const struct {
		int version;
		const char *names;
	} introduced[] = {
#include "sim/driver/introduced.h"
	};
	struct neap_buffer header = {0};
	char type[128];

	(void)state;
	if (neap_file_read("/usr/local/cuda/include/cudaTypedefs.h", 1 << 20, &header, NULL) != NEAP_OK ||
	    !strstr(neap_buffer_string(&header), "_v13000"))
		skip();
	for (size_t i = 0; i < sizeof introduced / sizeof introduced[0]; i++)
		for (const char *at = introduced[i].names; *at; at += strcspn(at, " "), at += *at == ' ') {
			int length = (int)strcspn(at, " ");

			snprintf(type, sizeof type, "PFN_%.*s_v%d)", length, at, introduced[i].version);
			if (!strstr(neap_buffer_string(&header), type) && strncmp(at, "cuProfiler", 10) != 0)
				fail_msg("no %s in cudaTypedefs.h", type);
		}
	neap_buffer_fini(&header);
}

static void functions_are_found_by_name(void **state)
{
	static const char *const all[] = {
#define X(need, name, symbol, parameters) #name,
#include "device/cuda_functions.h"
#undef X
	};
	char path[4096];
	CUdriverProcAddressQueryResult status;
	neap_get_proc_address get;
	void *function, *library;

	(void)state;
	sim_load();
	snprintf(path, sizeof path, "%s/libcuda.so.1", getenv("NEAP_SIM_PATH"));
	library = dlopen(path, RTLD_NOW);
	assert_non_null(library);
	function = dlsym(library, "cuGetProcAddress_v2");
	assert_non_null(function);
	memcpy(&get, &function, sizeof get);
	assert_ok(get("cuMemAlloc", &function, 12040, 0, &status));
	assert_int_equal(status, CU_GET_PROC_ADDRESS_SUCCESS);
	assert_memory_equal(&function, &t.cuda.cuMemAlloc, sizeof function);
	assert_answer(get("cuMemTeleport", &function, 12040, 0, &status), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	assert_null(function);
	assert_answer(get("cuMemAlloc", &function, 3010, 0, &status), CUDA_ERROR_NOT_FOUND); /* of 32 bits */
	assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	assert_ok(get("cuMemAlloc", &function, 3020, 0, NULL));
	assert_ok(get("cuInit", &function, 2000, 0, &status));
	assert_answer(get("cuMemCreate", &function, 10010, 0, &status), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		const char *suffix = strrchr(all[i], '_');

		if (get(all[i], &function, 13000, 0, &status) != CUDA_SUCCESS && !(suffix && suffix[1] == 'v'))
			fail_msg("%s is not in introduced.h", all[i]);
	}
	assert_answer(get(NULL, &function, 12040, 0, &status), CUDA_ERROR_INVALID_VALUE);
	/* Functions whose parameters changed are found by the program's version of CUDA; a default stream per thread
	 * is accepted. */
	assert_ok(get("cuMemAdvise", &function, 12000, 2, &status));
	assert_memory_equal(&function, &t.cuda.cuMemAdvise_v1, sizeof function);
	assert_ok(get("cuMemAdvise", &function, 13000, 0, &status));
	assert_memory_equal(&function, &t.cuda.cuMemAdvise_v2, sizeof function);
	assert_answer(get("cuMemAdvise_v2", &function, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
	assert_answer(get("cuStreamGetCaptureInfo", &function, 11000, 0, &status), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	assert_answer(get("cuMemAlloc", &function, 13000, 4, &status), CUDA_ERROR_INVALID_VALUE);
	assert_null(dlsym(library, "cuMemAlloc")); /* the older ABI is not there */
	assert_null(dlsym(library, "cuArrayCreate_v2"));
	assert_null(dlsym(library, "cuTexObjectCreate"));
	assert_null(dlsym(library, "cuImportExternalMemory"));
	assert_null(dlsym(library, "cuGetExportTable"));
	assert_null(dlsym(library, "neap_status_name"));
	dlclose(library);
}

/* A library that contains a text of NVIDIA's runtime asks for tables that do not exist: a note for `neap run`. */
static void a_foreign_runtime_is_noted(void **state)
{
	static const volatile char mark[] = "/cudart.shm.%x";
	struct neap_buffer note = {0};
	neap_get_proc_address get;
	void *function, *library;
	char folder[] = "/tmp/neap-note-XXXXXX", path[4096];

	(void)state;
	assert_non_null(mkdtemp(folder));
	setenv("NEAP_RUN_DIR", folder, 1);
	snprintf(path, sizeof path, "%s/libcuda.so.1", getenv("NEAP_SIM_PATH"));
	library = dlopen(path, RTLD_NOW);
	assert_non_null(library);
	function = dlsym(library, "cuGetProcAddress_v2");
	memcpy(&get, &function, sizeof get);
	assert_int_equal(mark[0], '/'); /* it is in this program */
	for (int i = 0; i < 2; i++)
		assert_answer(get("cuGetExportTable", &function, 3000, 0, NULL), CUDA_ERROR_NOT_FOUND);
	unsetenv("NEAP_RUN_DIR");
	snprintf(path, sizeof path, "%s/note.%d", folder, (int)getpid());
	assert_int_equal(neap_file_read(path, 4096, &note, NULL), NEAP_OK);
	assert_non_null(strstr(neap_buffer_string(&note), "test_sim_names contains NVIDIA's own CUDA runtime"));
	assert_ptr_equal(strchr(neap_buffer_string(&note), '\n') + 1,
			 neap_buffer_string(&note) + note.length); /* once */
	neap_buffer_fini(&note);
	unlink(path);
	rmdir(folder);
	dlclose(library);
}

/* Names that releases of PyTorch look up with dlsym, without a version: 2.5 to 2.8 fail at the first expandable
 * segment if one is missing. */
static void pytorch_finds_plain_names(void **state)
{
	static const char *const names[] = {"cuDeviceGetAttribute",
					    "cuMemAddressReserve",
					    "cuMemRelease",
					    "cuMemMap",
					    "cuMemAddressFree",
					    "cuMemSetAccess",
					    "cuMemUnmap",
					    "cuMemCreate",
					    "cuMemGetAllocationGranularity",
					    "cuMemExportToShareableHandle",
					    "cuMemImportFromShareableHandle",
					    "cuMemsetD32Async",
					    "cuStreamWriteValue32",
					    "cuGetErrorString",
					    "cuMulticastAddDevice",
					    "cuMulticastBindMem",
					    "cuMulticastCreate",
					    "cuCtxPopCurrent",
					    "cuCtxPushCurrent"};
	CUresult (*write)(CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags);
	char path[4096];
	void *function, *library;

	(void)state;
	sim_begin("plain", "mem=64MiB");
	snprintf(path, sizeof path, "%s/libcuda.so.1", getenv("NEAP_SIM_PATH"));
	library = dlopen(path, RTLD_NOW);
	assert_non_null(library);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (!dlsym(library, names[i]))
			fail_msg("%s is missing", names[i]);
	function = dlsym(library, "cuStreamWriteValue32");
	memcpy(&write, &function, sizeof write);
	assert_answer(write(NULL, 4096, 1, 0), CUDA_ERROR_NOT_SUPPORTED);
	dlclose(library);
	sim_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(versions_are_those_of_cudas_header),
		cmocka_unit_test(functions_are_found_by_name),
		cmocka_unit_test(a_foreign_runtime_is_noted),
		cmocka_unit_test(pytorch_finds_plain_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
