/* cli/check_streams.h: `neap check --streams`. */
#ifndef NEAP_CLI_CHECK_STREAMS_H
#define NEAP_CLI_CHECK_STREAMS_H

#include "cli/command.h"

/* Runs the command on the simulator, or reads a run's folder, and prints its races. Returns the exit code: 1 if there
 * is a race that is not accepted. */
int check_streams(const struct neap_arguments *arguments);

#endif
