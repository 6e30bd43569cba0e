/* cli/run_python.h: what `neap run` does for commands that are, or start, Python programs:
 * python/launch/sitecustomize.py is put first on their PYTHONPATH. It costs any other command a variable. */
#ifndef NEAP_CLI_RUN_PYTHON_H
#define NEAP_CLI_RUN_PYTHON_H

#include <stdio.h>

/* "PYTHONPATH=LAUNCH[:what it was]"; the caller frees it. NULL: nothing to set: there is no package beside this
 * command, NEAP_ATTACH=0, it is on the path already, or memory is out. */
char *run_python_path(void);

/* Why this command is not attached, being a Python that was told to ignore PYTHONPATH: the option ("-I"); NULL
 * otherwise. */
const char *run_python_isolated(char *const *command);

/* What Python processes of the run left there to say: "note.PID" files; a line each. */
void run_python_print_notes(const char *folder, FILE *out);

#endif
