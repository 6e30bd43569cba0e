/* cli/check_measure.h: what `neap check` compares with its bounds: of a command that it runs, of a run's folder, of a
 * trace, of a stored baseline. */
#ifndef NEAP_CLI_CHECK_MEASURE_H
#define NEAP_CLI_CHECK_MEASURE_H

#include "cli/command.h"

#include <stdint.h>

enum check_growth {
	CHECK_GROWTH_UNKNOWN, /* no steps were seen, or too few */
	CHECK_GROWTH_NONE,    /* the leak test finds no leak */
	CHECK_GROWTH_FOUND,
};

struct check_figures {
	uint64_t allocated_peak, reserved_peak; /* reserved 0: not known */
	enum check_growth growth;
	uint64_t bytes_per_step; /* of growth that was found */
	uint64_t steps;
	char where[96]; /* the device; the trace */
	bool simulated;
	int exit_status; /* of a command; not 0: it failed, and nothing else is known */
};

/* Runs the command under `neap run`, on this machine's GPU, else on the simulator. `steps`, `time_limit`: as its
 * options; NULL: none. `gpu`: on the simulator, on this GPU (NEAP_SIM). Errors: NEAP_ESTATE: no process of it was
 * attached, so its memory is not known; NEAP_ECANCELED after SIGINT or SIGTERM. */
struct check_command {
	char *const *words;
	const char *steps, *time_limit, *gpu;
};
enum neap_status check_measure_command(const struct check_command *command, struct check_figures *ret_figures,
				       struct neap_error *err);

/* A file that `neap analyze` reads, or a run's folder. */
enum neap_status check_measure_trace(const char *path, struct check_figures *ret_figures, struct neap_error *err);

/* A stored baseline is a JSON file. Errors of load: NEAP_ENOENT, NEAP_EPARSE. */
enum neap_status check_baseline_load(const char *path, struct check_figures *ret_figures, struct neap_error *err);
enum neap_status check_baseline_save(const char *path, const struct check_figures *figures, struct neap_error *err);

#endif
