/* device/loader.c: finds a backend's library and fills the table with its functions.
 *
 *   cuda   dlopen("libcuda.so.1"), the system's search
 *   sim    dlopen("FOLDER/libcuda.so.1"), by absolute path, so that nothing else in the process can find it
 *
 * A function's address comes from cuGetProcAddress_v2 under its plain name, as of CUDA 12.0, else from the versioned
 * name that the library exports: the plain exported names are an older ABI.
 */
#include "device/loader.h"
#include "base/error.h"
#include "base/file.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CUDA_VERSION_WANTED 12000

enum need { OPTIONAL, REQUIRED };

enum neap_status neap_backend_resolve(enum neap_backend backend, enum neap_backend *ret_backend,
				      struct neap_error *err)
{
	const char *wanted = getenv("NEAP_DEVICE");

	if (backend == NEAP_BACKEND_CUDA || backend == NEAP_BACKEND_SIM)
		*ret_backend = backend;
	else if (backend != NEAP_BACKEND_DEFAULT)
		return neap_fail(err, NEAP_EINVAL, "%d is not a backend", (int)backend);
	else if (!wanted || !*wanted || strcmp(wanted, "cuda") == 0)
		*ret_backend = NEAP_BACKEND_CUDA;
	else if (strcmp(wanted, "sim") == 0)
		*ret_backend = NEAP_BACKEND_SIM;
	else
		return neap_fail(err, NEAP_EINVAL, "NEAP_DEVICE is \"%.40s\": expected \"cuda\" or \"sim\"", wanted);
	return NEAP_OK;
}

/* Finds the folder of the object that has this code. */
static bool own_folder(char folder[PATH_MAX])
{
	struct link_map *map = NULL;
	Dl_info info;
	char *resolved;

	if (!dladdr1((void *)(uintptr_t)neap_sim_folder, &info, (void **)&map, RTLD_DL_LINKMAP))
		return false;
	/* The main program has no name there; its dli_fname is argv[0], which can be anything. */
	const char *object = map && map->l_name[0] ? info.dli_fname : "/proc/self/exe";
	if (!(resolved = realpath(object, folder)))
		return false;
	*strrchr(resolved, '/') = '\0';
	return true;
}

static bool holds_simulator(const char *folder)
{
	char library[PATH_MAX];

	return neap_path_join(library, sizeof library, folder, "libcuda.so.1") == NEAP_OK &&
	       access(library, R_OK) == 0;
}

enum neap_status neap_sim_folder(char *text, size_t capacity, struct neap_error *err)
{
	/* In a wheel; beside the installed library; from the installed command; in the build tree. */
	static const char *const places[] = {"sim", "neap/sim", NEAP_LIBRARIES_FROM_COMMAND "/neap/sim",
					     "../sim/driver"};
	const char *given = getenv("NEAP_SIM_PATH");
	char own[PATH_MAX], candidate[PATH_MAX], found[PATH_MAX];
	bool ok = false;

	if (given && *given) {
		if (!realpath(given, found) || !holds_simulator(found))
			return neap_fail(err, NEAP_ENOENT, "no libcuda.so.1 in NEAP_SIM_PATH (%s)", given);
		ok = true;
	} else if (own_folder(own)) {
		for (size_t i = 0; i < sizeof places / sizeof places[0] && !ok; i++)
			ok = neap_path_join(candidate, sizeof candidate, own, places[i]) == NEAP_OK &&
			     realpath(candidate, found) && holds_simulator(found);
		if (!ok)
			return neap_fail(
				err, NEAP_ENOENT,
				"neap's simulator is not installed beside %s: set NEAP_SIM_PATH to its folder", own);
	}
	if (!ok)
		return neap_fail(err, NEAP_ENOENT, "looking for neap's simulator: set NEAP_SIM_PATH to its folder");
	if (strlen(found) >= capacity)
		return neap_fail(err, NEAP_EINVAL, "the path %.100s is too long", found);
	strcpy(text, found);
	return NEAP_OK;
}

static enum neap_status open_library(enum neap_backend backend, const char *name, void **ret_library,
				     struct neap_error *err)
{
	char folder[PATH_MAX], path[PATH_MAX];
	enum neap_status status;

	if (backend == NEAP_BACKEND_SIM) {
		if ((status = neap_sim_folder(folder, sizeof folder, err)))
			return status;
		if (neap_path_join(path, sizeof path, folder, name) != NEAP_OK)
			return neap_fail(err, NEAP_EINVAL, "the path %.100s is too long", folder);
		name = path;
	}
	void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		const char *why = dlerror();
		if (!why)
			why = name;
		if (backend == NEAP_BACKEND_SIM)
			return neap_fail(err, NEAP_ENODEVICE, "loading neap's simulator: %.180s", why);
		return neap_fail(err, NEAP_ENODEVICE, "no NVIDIA driver (%.160s); " NEAP_SIM_HINT, why);
	}
	*ret_library = library;
	return NEAP_OK;
}

static const struct neap_sim_calls *simulator_calls(void *library)
{
	const struct neap_sim_calls *(*get)(void) = NULL;
	void *symbol = dlsym(library, "neap_sim_get_calls");

	if (!symbol)
		return NULL;
	memcpy(&get, &symbol, sizeof get);
	const struct neap_sim_calls *calls = get();
	return calls && calls->version == 1 ? calls : NULL;
}

static void *cuda_address(void *library, neap_get_proc_address ask, const char *name, const char *symbol)
{
	CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
	void *address = NULL;

	if (ask && ask(name, &address, CUDA_VERSION_WANTED, 0, &found) == CUDA_SUCCESS &&
	    found == CU_GET_PROC_ADDRESS_SUCCESS && address)
		return address;
	return dlsym(library, symbol);
}

enum neap_status neap_load_cuda(enum neap_backend backend, struct neap_loaded_cuda *ret_loaded,
				struct neap_error *err)
{
	struct neap_loaded_cuda loaded = {.backend = backend};
	neap_get_proc_address ask = NULL;
	enum neap_status status = open_library(backend, "libcuda.so.1", &loaded.library, err);

	if (status)
		return status;
	void *address = dlsym(loaded.library, "cuGetProcAddress_v2");
	memcpy(&ask, &address, sizeof ask);
#define X(need, name, symbol, parameters)                                                                            \
	address = cuda_address(loaded.library, ask, #name, #symbol);                                                 \
	memcpy(&loaded.table.name, &address, sizeof address);
#include "device/cuda_functions.h"
#undef X
	loaded.sim = simulator_calls(loaded.library);
	if (loaded.sim)
		loaded.backend = NEAP_BACKEND_SIM;
	const char *missing = neap_cuda_missing(&loaded.table);
	if (missing) {
		dlclose(loaded.library);
		return neap_fail(err, NEAP_ENOTSUP,
				 "libcuda.so.1 has no %s: neap needs a driver for CUDA 12.0 or newer", missing);
	}
	*ret_loaded = loaded;
	return NEAP_OK;
}

/* Whether the function is the simulator's: the library path may lead there. */
static bool is_simulator(const void *function)
{
	char folder[PATH_MAX], library[PATH_MAX];
	Dl_info info;

	if (!dladdr(function, &info) || !realpath(info.dli_fname, library) ||
	    neap_sim_folder(folder, sizeof folder, NULL) != NEAP_OK)
		return false;
	*strrchr(library, '/') = '\0';
	return strcmp(library, folder) == 0;
}

static void *nvml_address(void *library, const char *newest, const char *older)
{
	void *address = dlsym(library, newest);

	return address || strcmp(older, "0") == 0 ? address : dlsym(library, older);
}

enum neap_status neap_load_nvml(enum neap_backend backend, struct neap_loaded_nvml *ret_loaded,
				struct neap_error *err)
{
	struct neap_loaded_nvml loaded = {.backend = backend};
	enum neap_status status = open_library(backend, "libnvidia-ml.so.1", &loaded.library, err);
	void *address;

	if (status)
		return status;
#define X(need, type, name, newest, older, parameters)                                                               \
	address = nvml_address(loaded.library, #newest, #older);                                                     \
	memcpy(&loaded.table.name, &address, sizeof address);
#include "device/nvml_functions.h"
#undef X
	address = dlsym(loaded.library, "nvmlShutdown");
	if (address && is_simulator(address))
		loaded.backend = NEAP_BACKEND_SIM;
	const char *missing = neap_nvml_missing(&loaded.table);
	if (missing) {
		dlclose(loaded.library);
		return neap_fail(err, NEAP_ENOTSUP, "libnvidia-ml.so.1 has no %s: the driver is too old", missing);
	}
	*ret_loaded = loaded;
	return NEAP_OK;
}

const char *neap_cuda_missing(const struct neap_cuda *table)
{
#define X(need, name, symbol, parameters)                                                                            \
	if (need == REQUIRED && !table->name)                                                                        \
		return #name;
#include "device/cuda_functions.h"
#undef X
	return NULL;
}

const char *neap_nvml_missing(const struct neap_nvml *table)
{
#define X(need, type, name, newest, older, parameters)                                                               \
	if (need == REQUIRED && !table->name)                                                                        \
		return #newest;
#include "device/nvml_functions.h"
#undef X
	return NULL;
}
