/* cli/command.h: one table of commands; help, checks and the manual page come from it. One file per command.
 *
 * Only src/cli prints and exits.
 */
#ifndef NEAP_CLI_COMMAND_H
#define NEAP_CLI_COMMAND_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Exit codes, after sysexits.h. A wrapped command's own status is kept by `neap run`. */
enum neap_exit {
	NEAP_EXIT_OK = 0,
	NEAP_EXIT_FAILED = 1,       /* neap worked, but what it ran or looked for failed (a failed experiment) */
	NEAP_EXIT_USAGE = 64,       /* unknown verb or option, a value that does not parse */
	NEAP_EXIT_DATA = 65,        /* malformed input file */
	NEAP_EXIT_NO_INPUT = 66,    /* no such file or process */
	NEAP_EXIT_UNAVAILABLE = 69, /* no driver; process not attached */
	NEAP_EXIT_INTERNAL = 70,
	NEAP_EXIT_OS = 71, /* fork, memory, ... */
	NEAP_EXIT_CANNOT_CREATE = 73,
	NEAP_EXIT_IO = 74,        /* disk full, read error */
	NEAP_EXIT_TRY_AGAIN = 75, /* busy, or a time limit has passed */
	NEAP_EXIT_PROTOCOL = 76,
	NEAP_EXIT_PERMISSION = 77,
};
/* 126, 127: a wrapped command that cannot be run, or is not found; 128+N: ended by signal N. */

int neap_exit_of(enum neap_status status);

struct neap_option {
	const char *name;  /* "json": given as --json */
	const char *value; /* NULL: a flag; else what the help calls its value: "SECONDS"; "[=WORD]": only after '=',
			    * and may be left out */
	const char *help;
	char letter; /* 'i': also given as -i; 0: no short form */
};

struct neap_arguments; /* parsed by the table's options */

/* neap_help_NAME: the text of cli/help/NAME.txt, embedded by the build (tools/embed_help.py). */
#define X(name) extern const char neap_help_##name[];
#include "cli/commands.h"
#undef X

struct neap_command {
	const char *name;
	const char *alias;   /* another name for it; NULL: none */
	const char *usage;   /* "[--json] [--every S]" */
	const char *summary; /* one line */
	const char *details; /* neap_help_NAME: paragraphs for `neap help NAME` and the manual, one a line */
	const struct neap_option
		*options; /* ends with a NULL name; NULL: none but the common ones (--help, --color) */
	bool takes_rest;  /* everything after "--" is a wrapped command; without operands it begins at the first
			   * non-option, too */
	size_t operands_min, operands_max;                  /* how many operands it needs and accepts */
	int (*run)(const struct neap_arguments *arguments); /* returns the exit code */
};

/* NULL when the option was not given; "" for a given flag, and for an omitted value. The last one wins. */
const char *neap_argument(const struct neap_arguments *arguments, const char *option);
/* The nth value of an option given several times; NULL past the end. */
const char *neap_argument_nth(const struct neap_arguments *arguments, const char *option, size_t n);
/* All values of an option, NULL-terminated; the caller frees the list, not the values. NULL: out of memory. */
char **neap_argument_list(const struct neap_arguments *arguments, const char *option);
size_t neap_operand_count(const struct neap_arguments *arguments);
const char *neap_operand(const struct neap_arguments *arguments, size_t index);
/* A NULL-terminated argv of the wrapped command; only its terminator when none was given. */
char *const *neap_rest(const struct neap_arguments *arguments);

/* Whether to colour what goes to `stream`: --color=always|never decides, else NO_COLOR and whether it is a terminal.
 */
bool neap_color(const struct neap_arguments *arguments, FILE *stream);

/* Prints "neap NAME: message" to stderr, with the place in the input where the error has one, and returns the exit
 * code for err->status. `command` may be NULL. */
int neap_complain(const char *command, const struct neap_error *err);

/* A value that makes no sense: prints "neap NAME: message (see 'neap help NAME')" to stderr, returns NEAP_EXIT_USAGE.
 */
int neap_misuse(const struct neap_arguments *arguments, const char *format, ...) NEAP_PRINTF(2, 3);

/* The table, in order of `neap help`; ends with NULL. It is made from cli/commands.h, one row per command; each
 * command's file defines its entry, neap_command_NAME. */
extern const struct neap_command *const neap_commands[];

const struct neap_command *neap_command_find(const char *name); /* NULL: no such command */
/* The command whose name is nearest to a mistyped one; NULL when none is near. */
const char *neap_command_suggest(const char *name);

/* The options that every command accepts besides its own; ends with a NULL name. */
extern const struct neap_option neap_common_options[];

/* Prints the help of one command; all of them when NULL. */
void neap_help_print(FILE *stream, const struct neap_command *command);

/* Prints version, build, libraries and formats: one JSON object, or text whose first line is for scripts. Returns the
 * exit code. */
int neap_version_print(bool json);

/* All of main: finds the command, parses its arguments, runs it. Returns the exit code. */
int neap_command_main(int argc, char **argv);

#endif
