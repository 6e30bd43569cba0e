/* series/spec.h: reads and checks a series file.
 *
 *   name: nightly
 *   parallel: 2                         # at most so many at the same time; default 1
 *   slurm: {partition: gpu}             # options of --slurm: series/spec_slurm.h
 *   defaults: {needs: 20GiB, time_limit: 2h, env: {OMP_NUM_THREADS: 4}}
 *   experiments:
 *     - name: plain                       # runs/plain-1
 *       command: train --batch {batch} --lr {lr}
 *       params: {batch: 32, lr: 0.1}
 *     - name: sweep                       # sweep-lr=0.1-batch=8, sweep-lr=0.1-batch=16, ...
 *       command: [train, --batch, "{batch}", --lr, "{lr}"]
 *       grid: {lr: [0.1, 0.01], batch: [8, 16]}
 *       compare_to: plain               # the report compares each to this one
 *
 * The settings of an experiment are the defaults, changed by its own keys; params and env are merged key by key. A
 * grid is expanded here (the last parameter varies fastest), so the rest of neap knows plain experiments only.
 * `{param}` in a command stays as it is: `neap run` replaces it at every attempt. Values are texts, as the file has
 * them.
 *
 * The file is untrusted: at most 1 MiB, 10 000 experiments, 16 grid parameters; every value has its type
 * checked.
 */
#ifndef NEAP_SERIES_SPEC_H
#define NEAP_SERIES_SPEC_H

#include "base/map.h"
#include "run/argv.h"
#include "series/spec_slurm.h"

#include <stdbool.h>
#include <stdint.h>

#define NEAP_SPEC_LIMIT_BYTES   (1024 * 1024)
#define NEAP_SPEC_EXPERIMENTS   10000
#define NEAP_SPEC_PARALLEL      16
#define NEAP_SPEC_NAME_CAPACITY 129 /* of an experiment, expanded, terminator included */

struct neap_experiment {
	char *name;               /* [A-Za-z0-9][A-Za-z0-9._+=-]*, unique in the series */
	struct neap_argv command; /* at least one word */
	struct neap_argv env;     /* "NAME=VALUE" */
	struct neap_argv params;  /* "NAME=VALUE" */
	/* As written, checked; NULL: not given. */
	char *needs;     /* a size, "device" or "none" */
	char *device;    /* number or UUID: the only one it sees */
	char *directory; /* where the command starts; relative to the series' own */
	char *time_limit, *max_steps, *max_device, *max_host, *min_disk, *grace, *wait_limit, *drain_limit, *on_oom;
	char *compare_to;            /* another experiment's name: the report compares to it */
	char *clear_memory_on_start; /* "true" or "false" */
	char *retries;               /* restarts by on_oom; ignored without it */
	char *retry_failed;          /* further attempts after a failure other than an OOM */
	uint32_t line;               /* where it begins in the file */
};

struct neap_spec {
	char *name;
	uint32_t parallel;            /* experiments that may run at the same time; at least 1 */
	bool has_parallel;            /* the file sets `parallel` */
	struct neap_spec_slurm slurm; /* used only with --slurm */
	uint64_t hash;                /* of the file's bytes: a changed file is another series */
	struct neap_experiment *experiments;
	size_t count;          /* at least 1 */
	struct neap_map names; /* a name's hash -> the index of the first experiment whose name has it */
};

/* Errors: NEAP_EPARSE with line and column, and what was expected; NEAP_ENOMEM. */
enum neap_status neap_spec_parse(const char *text, size_t length, struct neap_spec *ret_spec, struct neap_error *err);

/* Reads PATH. Errors as neap_spec_parse, the message beginning with "PATH:LINE:COLUMN: "; NEAP_ENOENT and the like.
 */
enum neap_status neap_spec_read(const char *path, struct neap_spec *ret_spec, struct neap_error *err);

void neap_spec_fini(struct neap_spec *spec);

/* Returns the index of the experiment, or `count` if there is none. */
size_t neap_spec_find(const struct neap_spec *spec, const char *name);

/* The names of all parameters, in the order of the file. The caller calls neap_argv_fini. Errors: NEAP_ENOMEM. */
enum neap_status neap_spec_parameter_names(const struct neap_spec *spec, struct neap_argv *ret_names);

/* series_check.c. Checks a file by the supervisor's own rules, before anything starts: every {NAME} of a command is a
 * parameter, and on_oom is a ladder over the parameters. Pure. Errors: NEAP_EPARSE with the line of the experiment;
 * the message begins with "FILE:LINE: ". */
enum neap_status neap_series_check(const struct neap_spec *spec, const char *file, struct neap_error *err);

/* series_check.c. Whether the experiment's command can be executed; it is searched for as execvp does. True if the
 * experiment's environment sets a PATH of its own. */
bool neap_experiment_has_command(const struct neap_experiment *experiment);

#define NEAP_EXPERIMENT_KEY_CAPACITY 17

/* Writes a hash of an experiment's command, parameters and environment, as 16 hexadecimal digits. A measurement is
 * used only for an experiment with the same key. */
void neap_experiment_key(const struct neap_experiment *experiment, char ret_key[NEAP_EXPERIMENT_KEY_CAPACITY]);

/* FNV-1a, 64 bits. Source: Fowler, Noll, Vo, "The FNV Non-Cryptographic Hash Algorithm", IETF draft. It detects
 * edits, not forgeries. */
uint64_t neap_spec_hash(const void *bytes, size_t length);

#endif
