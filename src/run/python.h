/* run/python.h: settings of `neap run` for commands that are, or start, Python programs. It puts the folder of
 * python/launch/sitecustomize.py first on their PYTHONPATH. With NEAP_DEVICE=sim, a variable names the folder of
 * neap's stand-ins for NVIDIA's libraries, so that PyTorch runs on the simulator. LD_LIBRARY_PATH leads other
 * programs there:
 *
 *   any command         the simulator's folder: libcuda.so.1, libnvidia-ml.so.1
 *   other than Python   the stand-ins' folder, too. Python gets no path to them: its launcher loads them, or refuses
 *                       what cannot be simulated, and a path would lead PyTorch past that refusal
 *
 * NEAP_LAUNCH names the launcher's folder to the simulator, which loads it into a Python whose PYTHONPATH was
 * replaced. The variables are set even if the command needs none of them. */
#ifndef NEAP_RUN_PYTHON_H
#define NEAP_RUN_PYTHON_H

#include <stdbool.h>
#include <stddef.h>

#define NEAP_RUN_PYTHON_CAPACITY 4400

#define NEAP_RUN_PYTHON_MAX 5

struct neap_run_python {
	char *entries[NEAP_RUN_PYTHON_MAX]; /* "NAME=VALUE" for the command's environment */
	size_t count;
	char trouble[NEAP_RUN_PYTHON_CAPACITY]; /* why Python programs will not be attached, and what to do; "" */
};

/* Reads this process's environment. With NEAP_ATTACH=0 a program is not attached, but still simulated. Omits
 * variables that it cannot set. The caller calls neap_run_python_fini. */
void neap_run_python_make(char *const *command, struct neap_run_python *ret_python);
void neap_run_python_fini(struct neap_run_python *python);

/* The folder with sitecustomize.py. False: it is not beside this program. */
bool neap_run_python_find_launcher(char path[NEAP_RUN_PYTHON_CAPACITY]);

/* The folders of the simulator and of its stand-ins for NVIDIA's runtime libraries. False: one of them is not there.
 */
bool neap_run_python_find_simulator(char sim[NEAP_RUN_PYTHON_CAPACITY], char runtime[NEAP_RUN_PYTHON_CAPACITY]);

#endif
