/* cli/run_python.c: see run_python.h. */
#include "cli/run_python.h"

#include "base/buffer.h"
#include "base/file.h"
#include "base/paths.h"
#include "base/units.h"
#include "cli/print.h"
#include "device/driver.h"
#include "device/loader.h"
#include "run/outsider.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOTES 16 /* more would be the same */

/* The launcher's folder, as seen from this program: in the build tree, where it is installed, in a wheel. */
bool run_python_launch(char path[RUN_PYTHON_CAPACITY])
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

bool run_python_simulator(char sim[RUN_PYTHON_CAPACITY], char runtime[RUN_PYTHON_CAPACITY])
{
	static const char *const places[] = {"runtime", "../runtime"}; /* installed; in the build tree */
	char wanted[RUN_PYTHON_CAPACITY], found[PATH_MAX];
	if (neap_sim_folder(sim, RUN_PYTHON_CAPACITY, NULL) != NEAP_OK)
		return false;
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		if (neap_path_join(wanted, sizeof wanted, sim, places[i]) != NEAP_OK || !realpath(wanted, found))
			continue;
		strcpy(runtime, found);
		return true;
	}
	return false;
}

static void add_entry(struct run_python *python, const char *name, const char *value, const char *rest)
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

/* Adds the path on which the loader finds the simulator. A folder with a ':' would be two. */
static void add_loader(struct run_python *python, const char *sim, const char *runtime, bool is_python)
{
	const char *before = getenv("LD_LIBRARY_PATH");
	char folders[2 * RUN_PYTHON_CAPACITY];
	if (strchr(sim, ':') || strchr(runtime, ':'))
		return;
	snprintf(folders, sizeof folders, "%s%s%s", sim, is_python ? "" : ":", is_python ? "" : runtime);
	add_entry(python, "LD_LIBRARY_PATH", folders, before ? before : "");
}

/* Adds what leads to the simulator. False: the command is not to run on it, or cannot. */
static bool add_simulator(const char *word, struct run_python *python)
{
	char sim[RUN_PYTHON_CAPACITY], runtime[RUN_PYTHON_CAPACITY];
	enum neap_backend backend;
	if (neap_backend_resolve(NEAP_BACKEND_DEFAULT, &backend, NULL) != NEAP_OK || backend != NEAP_BACKEND_SIM ||
	    !run_python_simulator(sim, runtime))
		return false;
	add_entry(python, "NEAP_SIM_PATH", sim, "");
	add_entry(python, "NEAP_SIM_RUNTIME", runtime, "");
	add_loader(python, sim, runtime, runs_python(word));
	return true;
}

void run_python_make(char *const *command, struct run_python *ret_python)
{
	struct run_python python = {0};
	char launch[RUN_PYTHON_CAPACITY];
	const char *attach = getenv("NEAP_ATTACH"), *before = getenv("PYTHONPATH");
	const char *const *argv = (const char *const *)command;
	const char *isolated = neap_python_isolated(argv);
	bool simulated = add_simulator(argv[0], &python);
	if (attach && !strcmp(attach, "0") && !simulated)
		goto out;
	if (isolated)
		snprintf(python.trouble, RUN_PYTHON_CAPACITY,
			 "%s %s ignores %s: the program runs, but is not attached%s (without %s it would be)",
			 argv[0], isolated, strcmp(isolated, "-S") ? "PYTHONPATH" : "sitecustomize",
			 simulated ? " or simulated" : "", isolated);
	if (!run_python_launch(launch)) {
		if (neap_is_python(argv[0]))
			snprintf(python.trouble, RUN_PYTHON_CAPACITY,
				 "Python programs are not attached: share/neap/python/launch is missing beside this "
				 "command (install neap whole, by 'meson install')");
		goto out;
	}
	if (strchr(launch, ':')) {
		snprintf(python.trouble, RUN_PYTHON_CAPACITY,
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
	/* An empty part of the path would be the working folder. */
	if (strncmp(before, launch, length) || (before[length] != ':' && before[length]))
		add_entry(&python, "PYTHONPATH", launch, before);
out:
	*ret_python = python;
}

void run_python_fini(struct run_python *python)
{
	for (size_t i = 0; i < python->count; i++)
		free(python->entries[i]);
	*python = (struct run_python){0};
}

void run_python_print_notes(const char *folder, FILE *out)
{
	DIR *entries = opendir(folder);
	struct dirent *entry;
	size_t printed = 0;
	while (entries && printed < NOTES && (entry = readdir(entries))) {
		struct neap_buffer text = {0};
		char path[PATH_MAX];
		uint64_t pid;
		if (strncmp(entry->d_name, "note.", 5) != 0 ||
		    neap_u64_parse(entry->d_name + 5, &pid, NULL) != NEAP_OK ||
		    neap_path_join(path, sizeof path, folder, entry->d_name) != NEAP_OK)
			continue;
		if (neap_file_read(path, 65536, &text, NULL) == NEAP_OK) {
			(void)neap_buffer_string(&text); /* ends it with a NUL */
			char *rest = text.data, *note;
			while (printed < NOTES && (note = strsep(&rest, "\n")) != NULL) {
				if (!*note)
					continue;
				fprintf(out, "  note      process %s: ", entry->d_name + 5);
				print_safe_text(out, note);
				fputc('\n', out);
				printed++;
			}
		}
		neap_buffer_fini(&text);
	}
	if (entries)
		closedir(entries);
}
