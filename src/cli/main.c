/* cli/main.c: the neap command. Everything is in the table: see command.h. */
#include "base/descriptor.h"
#include "cli/command.h"
#include "store/json.h"

#include <errno.h>
#include <string.h>

int main(int argc, char **argv)
{
	neap_fd_open_standard();
	neap_json_failures(); /* starts to count failures */
	int code = neap_command_main(argc, argv);
	/* Output that could not be written is a failure: a full disk under a redirection. */
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "neap: cannot write the output: %s\n", strerror(errno));
		if (code == NEAP_EXIT_OK)
			code = NEAP_EXIT_IO;
	}
	return code;
}
