/* cli/cmd_sim.c: `neap sim`: where the simulator is, what it can be, what is in it now. */
#include "cli/command.h"
#include "device/driver.h"

#include <string.h>

static int run_path(void)
{
	char folder[4096];
	struct neap_error err = {0};
	if (neap_sim_folder(folder, sizeof(folder), &err) != NEAP_OK)
		return neap_complain("sim", &err);
	puts(folder);
	return NEAP_EXIT_OK;
}

static int run(const struct neap_arguments *arguments)
{
	const char *what = neap_operand(arguments, 0);
	if (strcmp(what, "path") == 0)
		return run_path();
	return neap_misuse(arguments, "'%s' is not path", what);
}

const struct neap_command neap_command_sim = {
	.name = "sim",
	.usage = "path",
	.summary = "the simulator: where it is",
	.details = "path: the folder with the simulator's libcuda.so.1 and libnvidia-ml.so.1.",
	.operands_min = 1,
	.operands_max = 1,
	.run = run,
};
