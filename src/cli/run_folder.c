/* cli/run_folder.c: see run_folder.h. */
#include "cli/run_folder.h"

#include "cli/print.h"
#include "run/folder_text.h"

#include <string.h>

enum neap_status run_folder_trace(const char *verb, const char *path, char ret_path[NEAP_RUN_FOLDER_PATH],
				  struct neap_error *err)
{
	struct neap_run_trace trace;
	enum neap_status status = neap_run_folder_trace(path, &trace, err);
	if (status)
		return status;
	strcpy(ret_path, trace.path);
	if (trace.others)
		fprintf(stderr,
			"neap %s: %s, the process with the highest peak; %zu other recording%s in the folder\n", verb,
			NEAP_PRINTABLE(ret_path), trace.others, trace.others == 1 ? " is" : "s are");
	return NEAP_OK;
}

void run_folder_print_lost(const char *command, FILE *out)
{
	fprintf(out,
		"neap %s: the program's supervisor ('neap run') was killed while the program ran, and the program "
		"ended "
		"with it: nothing is known of its memory. Does the program end its parent processes, or all "
		"processes "
		"of its user? Leave these alone. Else the host may have run out of memory: 'dmesg' tells\n",
		command);
}

void run_folder_print_notes(const char *folder, FILE *out)
{
	struct neap_buffer text = {0};
	neap_run_folder_notes(&text, folder);
	print_safe_lines(out, neap_buffer_string(&text));
	neap_buffer_fini(&text);
}
