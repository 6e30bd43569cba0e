/* run/outsider.c: see outsider.h. Reads the environment that the process started with: its interpreter read that too.
 */
#include "run/outsider.h"

#include "base/buffer.h"
#include "base/file.h"
#include "base/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGV_MOST      64 /* options come first: later ones do not matter */
#define COMMAND_BYTES  (1u << 20)
#define VALUE_CAPACITY 32768

bool neap_is_python(const char *word)
{
	const char *slash = strrchr(word, '/'), *name = slash ? slash + 1 : word;
	return !strncmp(name, "python", 6) && strspn(name + 6, "0123456789.tdmu") == strlen(name + 6);
}

const char *neap_python_isolated(const char *const *argv)
{
	if (!argv[0] || !neap_is_python(argv[0]))
		return NULL;
	for (size_t i = 1; argv[i] && argv[i][0] == '-' && argv[i][1] && argv[i][1] != '-'; i++) {
		for (const char *letter = argv[i] + 1; *letter; letter++) {
			if (*letter == 'I')
				return "-I";
			if (*letter == 'E')
				return "-E";
			if (*letter == 'S')
				return "-S";
			if (strchr("cm", *letter)) /* `-c` and `-m` name the program; the rest are its options */
				return NULL;
			if (strchr("WX", *letter)) { /* an option with a value, in this word or the next */
				i += !letter[1] && argv[i + 1];
				break;
			}
		}
	}
	return NULL;
}

static const char switched_off[] = "NEAP_ATTACH=0 is set";
static const char another[] = "it is another user's (sudo?): start neap inside, as in sudo -E neap run -- ...";
static const char not_yet[] = "a Python program is attached when it uses PyTorch, or calls neap.attach()";

/* Whether PYTHONPATH has the folder that `neap run` puts there. The folder's name ends in python/launch, or in
 * neap/launch if neap was installed from a wheel. */
static bool has_launcher(const char *python_path)
{
	for (const char *at = python_path; (at = strstr(at, "/launch")); at++) {
		bool ours = (at - python_path >= 7 && !memcmp(at - 7, "/python", 7)) ||
			    (at - python_path >= 5 && !memcmp(at - 5, "/neap", 5));
		if (ours && (at[7] == ':' || !at[7]))
			return true;
	}
	return false;
}

const char *neap_outsider_why(const struct neap_outsider *process)
{
	if (!process->attach)
		return "its environment was emptied on the way: NEAP_ATTACH is not in it (env -i, sudo, a "
		       "container): start neap inside, as in sudo neap run -- ...";
	if (!strcmp(process->attach, "0"))
		return switched_off;
	if (process->no_runtime)
		return process->no_runtime;
	if (!process->argv[0] || !neap_is_python(process->argv[0]))
		return "it does not use libneap, and is seen from outside only";
	const char *isolated = neap_python_isolated(process->argv);
	if (isolated)
		return !strcmp(isolated, "-S")   ? "python -S skips sitecustomize, which loads neap"
		       : !strcmp(isolated, "-E") ? "python -E ignores PYTHONPATH, which loads neap"
						 : "python -I ignores PYTHONPATH, which loads neap";
	if (!process->python_path)
		return "PYTHONPATH, which loads neap, was removed on the way (sudo does so, also with -E): "
		       "start neap inside, as in sudo -E neap run -- ...";
	if (!has_launcher(process->python_path))
		return "PYTHONPATH, which loads neap, is not as neap run sets it (where it is set, add what it was: "
		       "PYTHONPATH=.:$PYTHONPATH)";
	return not_yet;
}

/* Reads the process's command line; `argv` point into `buffer`. */
static bool read_argv(pid_t pid, struct neap_buffer *buffer, const char *argv[ARGV_MOST + 1])
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
	if (neap_file_read(path, COMMAND_BYTES, buffer, NULL))
		return false;
	const char *at = neap_buffer_string(buffer), *end = at + buffer->length;
	size_t count = 0;
	for (; at < end && count < ARGV_MOST; at += strlen(at) + 1)
		argv[count++] = at;
	argv[count] = NULL;
	return true;
}

/* *ret_astray: the process is a Python that neap would have reached with its environment. */
static bool describe(pid_t pid, const char *no_runtime, bool *ret_astray, char *text, size_t capacity)
{
	struct neap_buffer command = {0};
	struct neap_process process = {0};
	const char *argv[ARGV_MOST + 1];
	char *attach = calloc(2, VALUE_CAPACITY), *python_path = attach ? attach + VALUE_CAPACITY : NULL;
	bool found = attach && !neap_process_read(pid, &process, NULL) && read_argv(pid, &command, argv);
	if (found) {
		enum neap_status attach_status = neap_process_environment(pid, "NEAP_ATTACH", attach, VALUE_CAPACITY);
		bool path = !neap_process_environment(pid, "PYTHONPATH", python_path, VALUE_CAPACITY);
		struct neap_outsider outsider = {argv, attach_status ? NULL : attach, path ? python_path : NULL,
						 no_runtime};
		const char *why = attach_status == NEAP_EPERM ? another : neap_outsider_why(&outsider);
		*ret_astray = why != not_yet && why != switched_off && argv[0] && neap_is_python(argv[0]);
		snprintf(text, capacity, "process %d (%s): %s", (int)pid, process.command, why);
	}
	free(attach);
	neap_buffer_fini(&command);
	return found;
}

bool neap_outsider_describe(pid_t pid, const char *no_runtime, char *text, size_t capacity)
{
	return describe(pid, no_runtime, &(bool){false}, text, capacity);
}

bool neap_outsider_is_astray(pid_t pid, char *text, size_t capacity)
{
	bool astray = false;
	return describe(pid, NULL, &astray, text, capacity) && astray;
}
