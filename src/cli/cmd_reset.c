/* cli/cmd_reset.c: `neap reset`: clear, and reset the peak statistics. */
#include "cli/cleanup.h"

static int run(const struct neap_arguments *arguments);

const struct neap_command neap_command_reset = {
	.name = "reset",
	.usage = "[--pid P|--all] [--json]",
	.summary = "clear, and reset the peak statistics",
	.details = neap_help_reset,
	.options =
		(const struct neap_option[]){
			{"pid", "P", "this process; may be given several times"},
			{"all", NULL, "every attached process"},
			{"json", NULL, "the result as JSON, without log lines"},
			{NULL, NULL, NULL},
		},
	.run = run,
};

static int run(const struct neap_arguments *arguments)
{
	return cleanup_run(arguments, &(struct cleanup_options){.reset_peaks = true});
}
