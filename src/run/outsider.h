/* run/outsider.h: explains why a process of a run that uses a device is not attached, from its command line and its
 * environment, while it runs. */
#ifndef NEAP_RUN_OUTSIDER_H
#define NEAP_RUN_OUTSIDER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The facts about a process that decide whether it is attached. */
struct neap_outsider {
	const char *const *argv; /* its command line, ended by NULL */
	const char *attach;      /* NEAP_ATTACH of its environment; NULL: not set */
	const char *python_path; /* PYTHONPATH, likewise */
	const char *no_runtime;  /* why no process of the run can be attached; NULL: they can */
};

/* Whether a command's first word is a Python: "python", "/usr/bin/python3.11". */
bool neap_is_python(const char *word);

/* Returns the option that makes Python ignore PYTHONPATH ("-I", "-E") or its sitecustomize ("-S"); NULL if there is
 * none, or if the command is not Python. */
const char *neap_python_isolated(const char *const *argv);

/* Pure; static text, or `no_runtime`. */
const char *neap_outsider_why(const struct neap_outsider *process);

/* Returns whether the process is a Python whose environment or options keep neap out; then it also writes the text of
 * neap_outsider_describe. */
bool neap_outsider_is_astray(pid_t pid, char *text, size_t capacity);

/* Writes "process 17 (python3 train.py): WHY" into `text`, as far as the process can be read. `no_runtime`: as in
 * struct neap_outsider. False: the process has exited, or host memory is short. */
bool neap_outsider_describe(pid_t pid, const char *no_runtime, char *text, size_t capacity);

#endif
