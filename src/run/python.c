/* run/python.c: see the header. */
#include "run/python.h"

#include "base/file.h"
#include "base/paths.h"
#include "device/driver.h"
#include "device/loader.h"
#include "run/outsider.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The launcher's folder, as seen from this program: in the build tree, where it is installed, in a wheel. */
bool neap_run_python_find_launcher(char path[NEAP_RUN_PYTHON_CAPACITY])
{
	static const char *const places[] = {"../python/launch", "../share/neap/python/launch", "launch"};
	char self[PATH_MAX], wanted[PATH_MAX], found[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
	if (length <= 0)
		return false;
	self[length] = '\0';
	char *slash = strrchr(self, '/');
	if (!slash)
		return false;
	*slash = '\0';
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		if (snprintf(wanted, sizeof wanted, "%s/%s/sitecustomize.py", self, places[i]) >=
			    (int)sizeof wanted ||
		    !realpath(wanted, found))
			continue;
		*strrchr(found, '/') = '\0';
		strcpy(path, found);
		return true;
	}
	return false;
}

bool neap_run_python_find_simulator(char sim[NEAP_RUN_PYTHON_CAPACITY], char runtime[NEAP_RUN_PYTHON_CAPACITY])
{
	static const char *const places[] = {"runtime", "../runtime"}; /* installed; in the build tree */
	char wanted[NEAP_RUN_PYTHON_CAPACITY], found[PATH_MAX];
	if (neap_sim_folder(sim, NEAP_RUN_PYTHON_CAPACITY, NULL) != NEAP_OK)
		return false;
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		if (neap_path_join(wanted, sizeof wanted, sim, places[i]) != NEAP_OK || !realpath(wanted, found))
			continue;
		strcpy(runtime, found);
		return true;
	}
	return false;
}

static void add_entry(struct neap_run_python *python, const char *name, const char *value, const char *rest)
{
	if (asprintf(&python->entries[python->count], "%s=%s%s%s", name, value, rest[0] ? ":" : "", rest) >= 0)
		python->count++;
}

/* Whether a command is a Python, or a script of one: "#!/usr/bin/env python3". */
static bool runs_python(const char *word)
{
	char path[PATH_MAX], line[256] = "", *rest = line, *part;
	if (neap_is_python(word))
		return true;
	if (!strchr(word, '/') && neap_path_search(word, path))
		word = path;
	FILE *file = fopen(word, "re");
	if (!file)
		return false;
	if (!fgets(line, sizeof line, file))
		line[0] = '\0';
	fclose(file);
	line[strcspn(line, "\n")] = '\0';
	while (!strncmp(line, "#!", 2) && (part = strsep(&rest, " ")))
		if (neap_is_python(part + (part == line ? 2 : 0)))
			return true;
	return false;
}

/* Adds the path on which the loader finds the simulator. A folder whose name has a ':' cannot be on it. */
static void add_loader(struct neap_run_python *python, const char *sim, const char *runtime, bool is_python)
{
	const char *before = getenv("LD_LIBRARY_PATH");
	char folders[2 * NEAP_RUN_PYTHON_CAPACITY];
	if (strchr(sim, ':') || strchr(runtime, ':'))
		return;
	snprintf(folders, sizeof folders, "%s%s%s", sim, is_python ? "" : ":", is_python ? "" : runtime);
	add_entry(python, "LD_LIBRARY_PATH", folders, before ? before : "");
}

/* Adds the variables that lead to the simulator. False: the command should not, or cannot, run on it. */
static bool add_simulator(const char *word, struct neap_run_python *python)
{
	char sim[NEAP_RUN_PYTHON_CAPACITY], runtime[NEAP_RUN_PYTHON_CAPACITY];
	enum neap_backend backend;
	if (neap_backend_resolve(NEAP_BACKEND_DEFAULT, &backend, NULL) != NEAP_OK || backend != NEAP_BACKEND_SIM ||
	    !neap_run_python_find_simulator(sim, runtime))
		return false;
	add_entry(python, "NEAP_SIM_PATH", sim, "");
	add_entry(python, "NEAP_SIM_RUNTIME", runtime, "");
	add_loader(python, sim, runtime, runs_python(word));
	return true;
}

void neap_run_python_make(char *const *command, struct neap_run_python *ret_python)
{
	struct neap_run_python python = {0};
	char launch[NEAP_RUN_PYTHON_CAPACITY];
	const char *attach = getenv("NEAP_ATTACH"), *before = getenv("PYTHONPATH");
	const char *const *argv = (const char *const *)command;
	const char *isolated = neap_python_isolated(argv);
	bool simulated = add_simulator(argv[0], &python);
	if (attach && !strcmp(attach, "0") && !simulated)
		goto out;
	if (isolated)
		snprintf(python.trouble, NEAP_RUN_PYTHON_CAPACITY,
			 "%s %s ignores %s: the program runs, but is not attached%s (without %s it would be)",
			 argv[0], isolated, strcmp(isolated, "-S") ? "PYTHONPATH" : "sitecustomize",
			 simulated ? " or simulated" : "", isolated);
	if (!neap_run_python_find_launcher(launch)) {
		if (neap_is_python(argv[0]))
			snprintf(python.trouble, NEAP_RUN_PYTHON_CAPACITY,
				 "Python programs are not attached: share/neap/python/launch is missing beside this "
				 "command (install neap whole, by 'meson install')");
		goto out;
	}
	if (strchr(launch, ':')) {
		snprintf(python.trouble, NEAP_RUN_PYTHON_CAPACITY,
			 "Python programs are not attached: PYTHONPATH cannot hold the path %s, for its ':' (install "
			 "neap, or move its folder, to a path without one)",
			 launch);
		goto out;
	}
	if (simulated)
		add_entry(&python, "NEAP_LAUNCH", launch, "");
	if (!before)
		before = "";
	size_t length = strlen(launch);
	/* An empty part of the path would mean the working folder. */
	if (strncmp(before, launch, length) || (before[length] != ':' && before[length]))
		add_entry(&python, "PYTHONPATH", launch, before);
out:
	*ret_python = python;
}

void neap_run_python_fini(struct neap_run_python *python)
{
	for (size_t i = 0; i < python->count; i++)
		free(python->entries[i]);
	*python = (struct neap_run_python){0};
}
