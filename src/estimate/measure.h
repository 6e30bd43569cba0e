/* estimate/measure.h: the figures that `neap check` compares with its bounds: of a command that it runs, of a run's
 * folder, of a trace or of a stored baseline. */
#ifndef NEAP_ESTIMATE_MEASURE_H
#define NEAP_ESTIMATE_MEASURE_H

#include "estimate/runs.h"

#include <stdint.h>

enum neap_check_growth {
	NEAP_CHECK_GROWTH_UNKNOWN, /* no steps were seen, or too few */
	NEAP_CHECK_GROWTH_NONE,    /* the leak test finds no leak */
	NEAP_CHECK_GROWTH_FOUND,
};

struct neap_check_figures {
	uint64_t allocated_peak, reserved_peak; /* reserved 0: not known */
	enum neap_check_growth growth;
	uint64_t bytes_per_step; /* if growth was found */
	uint64_t steps;
	char where[96]; /* the device; the trace */
	bool simulated;
	int exit_status; /* of a command; not 0: it failed, and nothing else is known */
	bool lost;       /* the command's supervisor was killed, and so was the command */
	/* The run of a folder failed or has no result, so the figures are those so far. exit_status is then the
	 * run's, or 0. */
	bool partial;
	int failed_status;
};

/* Runs the command under `neap run`, on this machine's GPU, or on the simulator if there is none. `steps`,
 * `time_limit`: as `neap run`'s options; NULL: none. `gpu`: selects the simulator, with these GPUs in the form of
 * NEAP_SIM; NULL: the GPUs that NEAP_SIM names. Errors: NEAP_ESTATE: none of its processes was attached, so its
 * memory is not known; NEAP_ECANCELED: `watch`, which is called often and gets nothing to show, ended it. */
struct neap_check_command {
	char *const *argv;
	const char *steps, *time_limit, *gpu;
	const char *streams; /* the value of --streams, always on the simulator; NULL: without */
	bool apart;          /* the command's output goes to stderr, so that the caller's report is alone on stdout */
	/* Called with the run's folder before the folder is removed; NULL: not called. */
	void (*visit)(void *context, const char *folder);
	void *visit_context;
	struct neap_estimate_watch watch;
};
enum neap_status neap_check_measure_command(const struct neap_check_command *command,
					    struct neap_check_figures *ret_figures, struct neap_error *err);

/* Measures a file that `neap analyze` reads, or a run's folder: by its result, or by its recording of allocations if
 * the run failed or has no result yet. */
enum neap_status neap_check_measure_trace(const char *path, struct neap_check_figures *ret_figures,
					  struct neap_error *err);

/* A stored baseline is a JSON file. Errors of load: NEAP_ENOENT, NEAP_EPARSE. */
enum neap_status neap_check_baseline_load(const char *path, struct neap_check_figures *ret_figures,
					  struct neap_error *err);
enum neap_status neap_check_baseline_save(const char *path, const struct neap_check_figures *figures,
					  struct neap_error *err);

#endif
