/* Loads neap's launcher into a Python that runs on this driver without it, because PYTHONPATH was replaced. The
 * launcher is loaded when the driver is first used. `neap run` names its folder in NEAP_LAUNCH. */
#include "sim/driver/state.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef int (*add_function)(int (*call)(void *argument), void *argument);
typedef int (*run_function)(const char *code, void *flags);

static const char code[] = "exec('''\n"
			   "try:\n"
			   "    import importlib.util, os, sys\n"
			   "    if not any(getattr(finder, 'neap_launch', None) for finder in sys.meta_path):\n"
			   "        path = os.path.join(os.environ['NEAP_LAUNCH'], 'sitecustomize.py')\n"
			   "        spec = importlib.util.spec_from_file_location('_neap_launch', path)\n"
			   "        launch = importlib.util.module_from_spec(spec)\n"
			   "        spec.loader.exec_module(launch)\n"
			   "        launch.begin_late()\n"
			   "except Exception:\n"
			   "    pass\n"
			   "''', {})\n";

static void *symbol(const char *name) { return dlsym(RTLD_DEFAULT, name); }

/* Runs in Python's main thread, between two of its instructions. 0: no exception. */
static int load_launcher(void *argument)
{
	void *found = symbol("PyRun_SimpleStringFlags");
	run_function run;

	(void)argument;
	memcpy(&run, &found, sizeof run);
	if (run)
		(void)run(code, NULL);
	return 0;
}

void sim_reach_python(void)
{
	static atomic_flag reached = ATOMIC_FLAG_INIT;
	const char *launch = getenv("NEAP_LAUNCH");
	void *found = launch && *launch ? symbol("Py_AddPendingCall") : NULL;
	add_function add;

	if (!found || atomic_flag_test_and_set(&reached))
		return;
	memcpy(&add, &found, sizeof add);
	(void)add(load_launcher, NULL); /* fails if Python's queue is full: then Python stays without the launcher */
}
