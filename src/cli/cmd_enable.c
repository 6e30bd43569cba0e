/* cli/cmd_enable.c: `neap enable`: memory-efficient settings as lines for a shell.
 *
 * sh and fish read them line by line. csh's eval joins its words: so for csh a line ends with ';', and a comment is a
 * null command with plain words.
 */
#include "cli/command.h"
#include "run/memory_settings.h"

#include <string.h>

static int run(const struct neap_arguments *arguments);

const struct neap_command neap_command_enable = {
	.name = "enable",
	.usage = "[--shell sh|fish|csh]",
	.summary = "print memory-efficient settings for the shell to take over",
	.details = neap_help_enable,
	.options =
		(const struct neap_option[]){
			{"shell", "SHELL", "sh (also bash and zsh; the default), fish or csh (also tcsh)"},
			{NULL, NULL, NULL},
		},
	.run = run,
};

enum shell { SHELL_SH, SHELL_FISH, SHELL_CSH };

/* Prints a comment. Its words have no character that means something to a shell. */
static void print_comment(enum shell shell, const char *text)
{
	if (shell == SHELL_CSH)
		printf(": '%s';\n", text);
	else
		printf("# %s\n", text);
}

/* Prints a text between single quotes, whatever its bytes are. */
static void print_quoted(enum shell shell, const char *text)
{
	putchar('\'');
	for (; *text; text++) {
		if (shell == SHELL_FISH && (*text == '\'' || *text == '\\'))
			putchar('\\');
		else if (shell == SHELL_CSH && (*text == '!' || *text == '\n'))
			putchar('\\');
		if (*text == '\'' && shell != SHELL_FISH)
			fputs("'\\''", stdout);
		else
			putchar(*text);
	}
	putchar('\'');
}

static void print_setting(enum shell shell, const char *entry)
{
	int length = (int)strcspn(entry, "=");
	const char *value = entry + length + 1;
	switch (shell) {
	case SHELL_SH:
		printf("export %.*s=", length, entry);
		break;
	case SHELL_FISH:
		printf("set -gx %.*s ", length, entry);
		break;
	case SHELL_CSH:
		printf("setenv %.*s ", length, entry);
		break;
	}
	print_quoted(shell, value);
	puts(shell == SHELL_CSH ? ";" : "");
}

static void print_all(enum shell shell, const struct neap_memory_settings *settings)
{
	print_comment(shell,
		      "expandable_segments:True: PyTorch maps pages where its cache grows; far less is lost to "
		      "fragmentation.");
	print_comment(shell,
		      "Not for memory that is shared with other processes (CUDA IPC), registered for RDMA, or in "
		      "a MemPool.");
	if (settings->replaced)
		print_comment(shell, "It replaces another value of expandable_segments that was set.");
	if (settings->max_split)
		print_comment(shell, "max_split_size_mb is set as well: the two together are known to leak reserved "
				     "memory; drop one.");
	if (settings->other_backend)
		print_comment(shell,
			      "backend is set as well: expandable segments work with the backend native only.");
	print_comment(shell, "NEAP_ATTENTION=efficient: under neap run PyTorch may choose flash and memory-efficient "
			     "attention,");
	print_comment(shell,
		      "and models of transformers with eager attention change to it after their first update.");
	for (size_t i = 0; i < settings->count; i++)
		print_setting(shell, settings->entries[i]);
}

static int run(const struct neap_arguments *arguments)
{
	static const char *const names[] = {"sh", "fish", "csh"};
	const char *name = neap_argument(arguments, "shell");
	struct neap_memory_settings settings = {0};
	struct neap_error err = {0};
	size_t shell = 0;
	while (name && shell < sizeof names / sizeof *names && strcmp(name, names[shell]) != 0)
		shell++;
	if (shell == sizeof names / sizeof *names)
		return neap_misuse(arguments, "--shell: expected sh, fish or csh, not '%s'", name);
	int code = NEAP_EXIT_OK;
	if (neap_memory_settings_make(&settings, &err) == NEAP_OK)
		print_all((enum shell)shell, &settings);
	else
		code = neap_complain("enable", &err);
	neap_memory_settings_fini(&settings);
	return code;
}
