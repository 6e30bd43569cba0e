/* Modules and libraries: loaded images, their functions by name, their variables in device memory. Code takes no
 * device memory here; variables take whole pages, once the program asks for one. */
#include "sim/driver/module.h"

#include <stdlib.h>
#include <string.h>

#define VARIABLE_ALIGN 256

/* Results of a load's log options: nothing was logged. */
#define LOG_BYTES_INFO  4 /* CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES */
#define LOG_BYTES_ERROR 6 /* CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES */

static bool known(const struct neap_map *map, const void *pointer)
{
	uint64_t value;

	return pointer && neap_map_get(map, (uint64_t)(uintptr_t)pointer, &value);
}

struct CUfunc_st *sim_function_known(CUfunction function)
{
	return known(&sim.functions, function) ? function : NULL;
}

/* -- functions, lock held ---------------------------------------------------------------------------------------- */

static void functions_free(struct CUfunc_st *function)
{
	while (function) {
		struct CUfunc_st *next = function->next;

		neap_map_remove(&sim.functions, (uint64_t)(uintptr_t)function, NULL);
		free(function->name);
		free(function);
		function = next;
	}
}

static CUresult function_create(const char *name, CUmodule module, CUlibrary library, struct CUfunc_st **list,
				struct CUfunc_st **ret_function)
{
	struct CUfunc_st *function = calloc(1, sizeof *function);

	if (!function)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*function = (struct CUfunc_st){.name = strdup(name),
				       .module = module,
				       .library = library,
				       .shared_limit = SIM_SHARED_PER_BLOCK,
				       .carveout = -1};
	if (!function->name || !neap_map_put(&sim.functions, (uint64_t)(uintptr_t)function, 1)) {
		free(function->name);
		free(function);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	function->next = *list;
	*list = *ret_function = function;
	return CUDA_SUCCESS;
}

/* The function with this name; creates it at the first request. */
static CUresult function_get(const struct sim_image *image, const char *name, CUmodule module, CUlibrary library,
			     struct CUfunc_st **list, struct CUfunc_st **ret_function)
{
	const struct sim_symbol *symbol;
	CUresult result;

	for (struct CUfunc_st *function = *list; function; function = function->next)
		if (strcmp(function->name, name) == 0) {
			*ret_function = function;
			return CUDA_SUCCESS;
		}
	symbol = sim_image_find(image, name, true);
	if (!image->open && !symbol)
		return CUDA_ERROR_NOT_FOUND;
	result = function_create(name, module, library, list, ret_function);
	if (result == CUDA_SUCCESS && symbol)
		(*ret_function)->parameters = symbol->parameters;
	return result;
}

/* -- variables, lock held ---------------------------------------------------------------------------------------- */

static uint64_t aligned(uint64_t bytes) { return (bytes + VARIABLE_ALIGN - 1) / VARIABLE_ALIGN * VARIABLE_ALIGN; }

/* Returns the offset of a variable among those of its image; if `symbol` is NULL, the size of all of them
 * together. */
static uint64_t variable_offset(const struct sim_image *image, const struct sim_symbol *symbol)
{
	uint64_t offset = 0;

	for (size_t i = 0; i < image->count && &image->symbols[i] != symbol; i++)
		if (!image->symbols[i].kernel)
			offset += aligned(image->symbols[i].bytes);
	return offset;
}

/* The address and size of a variable. Lock held. */
static CUresult find_variable(CUmodule module, const char *name, uint64_t *ret_address, uint64_t *ret_bytes)
{
	const struct sim_symbol *symbol = sim_image_find(module->image, name, false);
	CUresult result = CUDA_SUCCESS;

	if (!symbol || symbol->bytes == 0)
		return CUDA_ERROR_NOT_FOUND;
	if (!module->variables)
		result = sim_allocate(module->context->device, variable_offset(module->image, NULL), SIM_STATIC,
				      &module->variables);
	if (result != CUDA_SUCCESS)
		return result;
	module->variables->context = module->context;
	*ret_address = module->variables->range.start + variable_offset(module->image, symbol);
	*ret_bytes = symbol->bytes;
	return CUDA_SUCCESS;
}

/* -- modules ----------------------------------------------------------------------------------------------------- */

/* Lock held. Takes over `own`, unless it belongs to a library. */
static CUresult module_create(CUcontext context, CUlibrary library, struct sim_image *own, CUmodule *ret_module)
{
	CUmodule module = calloc(1, sizeof *module);

	if (!module || !neap_map_put(&sim.modules, (uint64_t)(uintptr_t)module, 1)) {
		free(module);
		if (own)
			sim_image_fini(own);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	module->context = context;
	module->library = library;
	module->own = own ? *own : (struct sim_image){0};
	module->image = library ? &library->image : &module->own;
	if (library) {
		module->next = library->modules;
		library->modules = module;
	}
	*ret_module = module;
	return CUDA_SUCCESS;
}

/* Lock held. */
static void module_free(CUmodule module)
{
	neap_map_remove(&sim.modules, (uint64_t)(uintptr_t)module, NULL);
	functions_free(module->functions);
	if (module->variables)
		sim_deallocate(module->variables);
	for (CUmodule *place = module->library ? &module->library->modules : NULL; place && *place;
	     place = &(*place)->next)
		if (*place == module) {
			*place = module->next;
			break;
		}
	sim_image_fini(&module->own);
	free(module);
}

void sim_modules_drop(CUcontext context)
{
	const struct neap_map_slot *slot;
	size_t cursor = 0;

	while ((slot = neap_map_next(&sim.modules, &cursor)) != NULL) {
		CUmodule module = (CUmodule)(uintptr_t)slot->key;

		if (module->context != context)
			continue;
		module_free(module);
		cursor = 0; /* removal moves slots */
	}
}

static CUresult module_load(CUmodule *module, struct sim_image *image, CUresult result)
{
	CUcontext context = sim_current_context();

	if (result != CUDA_SUCCESS)
		return result;
	if (!context) {
		sim_image_fini(image);
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	pthread_mutex_lock(&sim.lock);
	sim_account_module(image->loaded_bytes);
	result = module_create(context, NULL, image, module);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuModuleLoad(CUmodule *module, const char *path)
{
	struct sim_image image;

	if (!module || !path)
		return CUDA_ERROR_INVALID_VALUE;
	return module_load(module, &image, sim_image_read_file(path, &image));
}

CUresult sim_cuModuleLoadData(CUmodule *module, const void *data)
{
	struct sim_image image;

	if (!module || !data)
		return CUDA_ERROR_INVALID_VALUE;
	return module_load(module, &image, sim_image_read(data, &image));
}

CUresult sim_cuModuleLoadFatBinary(CUmodule *module, const void *data) { return sim_cuModuleLoadData(module, data); }

/* Sets the option for a log's size to 0: nothing was logged. */
static void report_nothing_logged(unsigned int count, const CUjit_option *options, void **values)
{
	for (unsigned int i = 0; options && values && i < count; i++)
		if (options[i] == LOG_BYTES_INFO || options[i] == LOG_BYTES_ERROR)
			values[i] = NULL;
}

CUresult sim_cuModuleLoadDataEx(CUmodule *module, const void *data, unsigned int count, CUjit_option *options,
				void **values)
{
	report_nothing_logged(count, options, values);
	return sim_cuModuleLoadData(module, data);
}

CUresult sim_cuModuleUnload(CUmodule module)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	pthread_mutex_lock(&sim.lock);
	if (known(&sim.modules, module) && !module->library) {
		const struct sim_reservation *variables = module->variables;

		result = !variables || sim_flight_clear("cuModuleUnload", variables->range.start,
							variables->range.bytes)
				 ? CUDA_SUCCESS
				 : CUDA_ERROR_ILLEGAL_ADDRESS;
		if (result == CUDA_SUCCESS)
			module_free(module);
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* Lazy loading is CUDA's default since 12.2. */
CUresult sim_cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = CU_MODULE_LAZY_LOADING;
	return CUDA_SUCCESS;
}

CUresult sim_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	if (!function || !name)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (known(&sim.modules, module))
		result = function_get(module->image, name, module, NULL, &module->functions, function);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* Lock held. */
static CUresult give_variable(CUmodule module, const char *name, CUdeviceptr *address, size_t *bytes)
{
	uint64_t found_address = 0, found_bytes = 0;
	CUresult result = find_variable(module, name, &found_address, &found_bytes);

	if (result == CUDA_SUCCESS && address)
		*address = found_address;
	if (result == CUDA_SUCCESS && bytes)
		*bytes = found_bytes;
	return result;
}

CUresult sim_cuModuleGetGlobal(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (known(&sim.modules, module))
		result = give_variable(module, name, address, bytes);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* -- libraries --------------------------------------------------------------------------------------------------- */

static CUresult library_load(CUlibrary *ret_library, struct sim_image *image, CUresult result)
{
	CUlibrary library;

	if (result != CUDA_SUCCESS)
		return result;
	library = calloc(1, sizeof *library);
	pthread_mutex_lock(&sim.lock);
	if (library && !neap_map_put(&sim.libraries, (uint64_t)(uintptr_t)library, 1)) {
		free(library);
		library = NULL;
	}
	pthread_mutex_unlock(&sim.lock);
	if (!library) {
		sim_image_fini(image);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	sim_account_module(image->loaded_bytes);
	library->image = *image;
	*ret_library = library;
	return CUDA_SUCCESS;
}

CUresult sim_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options, void **jit_values,
			       unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count)
{
	struct sim_image image;

	(void)options, (void)values, (void)count; /* they are about storing the code, and no code is stored */
	if (!library || !code)
		return CUDA_ERROR_INVALID_VALUE;
	report_nothing_logged(jit_count, jit_options, jit_values);
	return library_load(library, &image, sim_image_read(code, &image));
}

CUresult sim_cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit_options, void **jit_values,
				   unsigned int jit_count, CUlibraryOption *options, void **values,
				   unsigned int count)
{
	struct sim_image image;

	(void)options, (void)values, (void)count;
	if (!library || !path)
		return CUDA_ERROR_INVALID_VALUE;
	report_nothing_logged(jit_count, jit_options, jit_values);
	return library_load(library, &image, sim_image_read_file(path, &image));
}

/* Lock held. */
static void library_free(CUlibrary library)
{
	neap_map_remove(&sim.libraries, (uint64_t)(uintptr_t)library, NULL);
	while (library->modules)
		module_free(library->modules);
	functions_free(library->kernels);
	sim_image_fini(&library->image);
	free(library);
}

void sim_libraries_drop(void)
{
	const struct neap_map_slot *slot;
	size_t cursor = 0;

	while ((slot = neap_map_next(&sim.libraries, &cursor)) != NULL) {
		library_free((CUlibrary)(uintptr_t)slot->key);
		cursor = 0;
	}
}

CUresult sim_cuLibraryUnload(CUlibrary library)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	pthread_mutex_lock(&sim.lock);
	if (known(&sim.libraries, library)) {
		library_free(library);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	struct CUfunc_st *function = NULL;
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	if (!kernel || !name)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (known(&sim.libraries, library))
		result = function_get(&library->image, name, NULL, library, &library->kernels, &function);
	pthread_mutex_unlock(&sim.lock);
	if (result == CUDA_SUCCESS)
		*kernel = (CUkernel)function;
	return result;
}

/* A fat binary's count is unknown. */
CUresult sim_cuLibraryGetKernelCount(unsigned int *count, CUlibrary library)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;
	unsigned int kernels = 0;

	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (known(&sim.libraries, library)) {
		for (size_t i = 0; i < library->image.count; i++)
			kernels += library->image.symbols[i].kernel;
		result = library->image.open ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	if (result == CUDA_SUCCESS)
		*count = kernels;
	return result;
}

CUresult sim_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int count, CUlibrary library)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;
	unsigned int given = 0;

	if (!kernels || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (known(&sim.libraries, library))
		result = library->image.open ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
	for (size_t i = 0; result == CUDA_SUCCESS && i < library->image.count && given < count; i++) {
		struct CUfunc_st *function = NULL;

		if (!library->image.symbols[i].kernel)
			continue;
		result = function_get(&library->image, library->image.symbols[i].name, NULL, library,
				      &library->kernels, &function);
		kernels[given++] = (CUkernel)function;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* Lock held. The library's module in the calling thread's context; creates it at the first request. */
static CUresult library_module(CUlibrary library, CUmodule *ret_module)
{
	CUcontext context = sim_current_context();

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	for (CUmodule module = library->modules; module; module = module->next)
		if (module->context == context) {
			*ret_module = module;
			return CUDA_SUCCESS;
		}
	return module_create(context, library, NULL, ret_module);
}

CUresult sim_cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	if (!module)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (known(&sim.libraries, library))
		result = library_module(library, module);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;
	CUmodule module = NULL;

	if (!name || (!address && !bytes))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (known(&sim.libraries, library))
		result = library_module(library, &module);
	if (result == CUDA_SUCCESS)
		result = give_variable(module, name, address, bytes);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* An image does not say which of its variables are managed. */
CUresult sim_cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name)
{
	bool there;

	if (!name || (!address && !bytes))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	there = known(&sim.libraries, library);
	pthread_mutex_unlock(&sim.lock);
	return there ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;
	struct CUfunc_st *named;
	CUmodule module = NULL;

	if (!function)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	named = sim_function_known((CUfunction)kernel);
	if (named && named->library)
		result = library_module(named->library, &module);
	if (result == CUDA_SUCCESS)
		result = function_get(module->image, named->name, module, NULL, &module->functions, function);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;
	struct CUfunc_st *named;

	if (!library)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	named = sim_function_known((CUfunction)kernel);
	if (named && named->library) {
		*library = named->library;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}
