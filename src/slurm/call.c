/* slurm/call.c: see call.h. */
#include "slurm/call.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/paths.h"
#include "base/printable.h"
#include "base/spawn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_NS    (120 * NEAP_NS_PER_S)
#define LIMIT_BYTES (64u * 1024 * 1024)

extern char **environ;

static bool is_habit(const char *entry)
{
	static const char *const prefixes[] = {
		"SQUEUE_",           "SACCT_",       "SLURM_CLUSTERS=", "SBATCH_CLUSTERS=", "SBATCH_WAIT=",
		"SBATCH_ARRAY_INX=", "SBATCH_DEBUG="};
	for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
		if (!strncmp(entry, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

/* EACCES may come from an unreadable folder of PATH: the command is missing all the same. */
static enum neap_status explain_exec(const char *name, int cause, struct neap_error *err)
{
	if (cause == ENOENT || (cause == EACCES && !neap_path_search(name, NULL)))
		return neap_fail(err, NEAP_ENOTSUP,
				 "%s is not on PATH: --slurm works on a machine with Slurm's commands "
				 "(Debian: slurm-client)",
				 name);
	return neap_fail_errno(err, cause, "starting %s", name);
}

static char **make_environment(void)
{
	size_t count = 0, kept = 0;
	while (environ[count])
		count++;
	char **environment = calloc(count + 1, sizeof *environment);
	for (size_t i = 0; environment && i < count; i++)
		if (!is_habit(environ[i]))
			environment[kept++] = environ[i];
	return environment;
}

/* Runs it; *ret_exit_status is its own (128 + N: ended by signal N). */
static enum neap_status run(char *const *argv, struct neap_buffer *output, struct neap_buffer *errors,
			    char **environment, int *ret_exit_status, struct neap_error *err)
{
	const struct neap_spawn spawn = {.doing = "starting a command of Slurm",
					 .argv = argv,
					 .environment = environment,
					 .fds = {NEAP_SPAWN_NULL},
					 .place = NEAP_SPAWN_OWN_GROUP,
					 .output = output,
					 .errors = errors,
					 .limit_bytes = LIMIT_BYTES,
					 .limit_ns = LIMIT_NS};
	const char *name = argv[0];
	struct neap_error why = {0};
	enum neap_status status = neap_spawn_run(&spawn, ret_exit_status, &why);
	if (status == NEAP_ETIMEDOUT)
		return neap_fail(err, status, "%s did not answer within two minutes", name);
	if (status == NEAP_EPROTO)
		return neap_fail(err, status, "%s printed more than 64 MiB", name);
	if (why.cause)
		return explain_exec(name, why.cause, err);
	if (status && err)
		*err = why;
	return status;
}

enum neap_status neap_slurm_call(char *const *argv, struct neap_buffer *output, char complaint[200],
				 struct neap_error *err)
{
	struct neap_buffer errors = {0};
	char **environment = make_environment();
	int code = 0;
	enum neap_status status = environment ? run(argv, output, &errors, environment, &code, err)
					      : neap_fail(err, NEAP_ENOMEM, "starting %s: out of memory", argv[0]);
	complaint[0] = '\0';
	if (!status && code)
		neap_slurm_last_line(&errors, complaint, 200);
	if (!status && code && !*complaint)
		snprintf(complaint, 200, "exit status %d", code);
	neap_buffer_fini(&errors);
	free(environment);
	return status;
}

void neap_slurm_last_line(const struct neap_buffer *text, char *line, size_t capacity)
{
	const char *last = neap_buffer_string(text), *end = last + text->length;
	while (end > last && (end[-1] == '\n' || end[-1] == ' '))
		end--;
	for (const char *c = last; c < end; c++)
		if (*c == '\n')
			last = c + 1;
	const char *error = end > last ? memmem(last, (size_t)(end - last), "error: ", 7) : NULL;
	if (error)
		last = error + 7;
	neap_printable_bytes(line, capacity, last, (size_t)(end - last));
}
