/* cli/estimate_options.c: see estimate_options.h. */
#include "cli/estimate_options.h"

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int estimate_parse_bounds(const struct neap_arguments *arguments, struct neap_estimate_command *command)
{
	struct neap_error err = {0};
	uint64_t value = 0;
	command->steps = neap_argument(arguments, "steps");
	command->time_limit = neap_argument(arguments, "time-limit") ? neap_argument(arguments, "time-limit") : "10m";
	command->forwards = neap_argument(arguments, "forwards");
	if (command->forwards && (neap_u64_parse(command->forwards, &value, &err) || !value || value > INT64_MAX))
		return neap_misuse(arguments, "--forwards: expected a whole number above 0, not '%s'",
				   command->forwards);
	command->ranks = neap_argument(arguments, "ranks");
	if (command->ranks && (neap_u64_parse(command->ranks, &value, &err) || !value || value > 1u << 20))
		return neap_misuse(arguments, "--ranks: expected a whole number from 1 to 1048576, not '%s'",
				   command->ranks);
	if (command->steps && (neap_u64_parse(command->steps, &value, &err) || !value || value > INT64_MAX))
		return neap_misuse(arguments, "--steps: expected a whole number above 0, not '%s'", command->steps);
	if (neap_duration_parse(command->time_limit, &value, &err) || !value)
		return neap_misuse(arguments, "--time-limit: expected a time such as 10m, not '%s'",
				   command->time_limit);
	return 0;
}

int estimate_parse_isolation(const struct neap_arguments *arguments, struct neap_estimate_isolation *isolation,
			     char keep_path[NEAP_ESTIMATE_CAPACITY])
{
	const char *keep = neap_argument(arguments, "keep-writes");
	struct neap_error err = {0};
	isolation->in_place = neap_argument(arguments, "in-place") != NULL;
	isolation->no_network = neap_argument(arguments, "no-network") != NULL;
	if (isolation->in_place && (keep || isolation->no_network))
		return neap_misuse(arguments, "--in-place isolates nothing: it does not go with --%s",
				   keep ? "keep-writes" : "no-network");
	if (!keep)
		return 0;
	if (neap_make_folder(keep, 0777, &err))
		return neap_complain("estimate", &err);
	if (!realpath(keep, keep_path) || rmdir(keep_path) || mkdir(keep_path, 0777))
		return neap_misuse(arguments, "--keep-writes %s: not a folder that is new or empty", keep);
	isolation->keep = keep_path;
	return 0;
}
