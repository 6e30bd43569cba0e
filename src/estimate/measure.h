/* estimate/measure.h: what `neap check` compares with its bounds: of a command that it runs, of a run's folder, of a
 * trace, of a stored baseline. */
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
	bool lost;       /* the command's supervisor was killed, and the command with it */
	/* Of a run's folder, if the run failed or has no result: the figures until then, and its exit status or 0. */
	bool partial;
	int failed_status;
};

/* Runs the command under `neap run`, on this machine's GPU, else on the simulator. `steps`, `time_limit`: as its
 * options; NULL: none. `gpu`: on the simulator, on this GPU (NEAP_SIM). Errors: NEAP_ESTATE: no process of it was
 * attached, so its memory is not known; NEAP_ECANCELED: `watch` ended it, which is asked often and shown nothing. */
struct neap_check_command {
	char *const *argv;
	const char *steps, *time_limit, *gpu;
	const char *streams; /* the value of --streams, always on the simulator; NULL: without */
	/* Is shown the run's folder before it is removed; NULL: nobody is. */
	void (*look)(void *context, const char *folder);
	void *look_context;
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
