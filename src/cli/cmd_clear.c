/* cli/cmd_clear.c: `neap clear`: empties the caches of running attached processes. */
#include "cli/cleanup.h"

static int run(const struct neap_arguments *arguments);

const struct neap_command neap_command_clear = {
	.name = "clear",
	.usage = "[--pid P|--all] [--force] [--stats-only] [--json]",
	.summary = "return the cached memory of running processes to the driver",
	.details = neap_help_clear,
	.options =
		(const struct neap_option[]){
			{"pid", "P", "this process; may be given several times"},
			{"all", NULL, "every attached process"},
			{"force", NULL,
			 "also call the functions that the program registered to release its workspaces"},
			{"stats-only", NULL, "show the memory that is held; empty nothing"},
			{"json", NULL, "the result as JSON, without log lines"},
			{NULL, NULL, NULL},
		},
	.run = run,
};

static int run(const struct neap_arguments *arguments)
{
	struct cleanup_options options = {.force = neap_argument(arguments, "force"),
					  .stats_only = neap_argument(arguments, "stats-only")};
	if (options.force && options.stats_only)
		return neap_misuse(arguments, "--force or --stats-only, not both");
	return cleanup_run(arguments, &options);
}
