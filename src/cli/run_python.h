/* cli/run_python.h: what `neap run` does for commands that are, or start, Python programs:
 * python/launch/sitecustomize.py is put first on their PYTHONPATH. It costs any other command a variable. */
#ifndef NEAP_CLI_RUN_PYTHON_H
#define NEAP_CLI_RUN_PYTHON_H

#include <stdio.h>

#define RUN_PYTHON_ROOM 4400

/* "PYTHONPATH=LAUNCH[:what it was]" for the command's environment; the caller frees it. NULL: nothing to set
 * (NEAP_ATTACH=0, it is on the path already, memory is out), or nothing that can be. `ret_trouble`: why Python
 * programs will not be attached, and what to do; "" where they will be, or are not to be. */
char *run_python_path(char *const *command, char ret_trouble[RUN_PYTHON_ROOM]);

/* What Python processes of the run left there to say: "note.PID" files; a line each. */
void run_python_print_notes(const char *folder, FILE *out);

#endif
