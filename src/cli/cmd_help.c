/* cli/cmd_help.c: `neap help`, written from the table. */
#include "cli/command.h"
#include "proto/commands.h"

#include <string.h>

#define WIDTH 100

/* cli/help/all.txt: the end of `neap help`. */
extern const char neap_help_all[];

static int run(const struct neap_arguments *arguments);

const struct neap_command neap_command_help = {
	.name = "help",
	.usage = "[COMMAND|agent]",
	.summary = "explain the commands",
	.details = neap_help_help,
	.operands_max = 1,
	.run = run,
};

/* Prints one line's text, broken between words so that it ends before WIDTH; further lines are indented. */
static void print_wrapped(FILE *stream, const char *text, size_t length, int column, int indent)
{
	int at = column;
	while (length > 0) {
		size_t word = 0, spaces = 0;
		while (spaces < length && text[spaces] == ' ')
			spaces++;
		while (spaces + word < length && text[spaces + word] != ' ')
			word++;
		if (at > indent && at + (int)(spaces + word) > WIDTH) {
			fprintf(stream, "\n%*s", indent, "");
			at = indent;
			text += spaces;
			length -= spaces;
			spaces = 0;
		}
		fwrite(text, 1, spaces + word, stream);
		at += (int)(spaces + word);
		text += spaces + word;
		length -= spaces + word;
	}
	fputc('\n', stream);
}

/* Prints paragraphs. A line that begins with a space is an example, and stays as it is. */
static void print_details(FILE *stream, const char *text)
{
	while (*text) {
		size_t length = strcspn(text, "\n");
		if (text[0] == ' ')
			fprintf(stream, "%.*s\n", (int)length, text);
		else
			print_wrapped(stream, text, length, 0, 0);
		text += length + (text[length] == '\n');
	}
}

static void print_options(FILE *stream, const struct neap_option *options)
{
	for (; options && options->name; options++) {
		char left[64], letter[8] = "";
		if (options->letter)
			snprintf(letter, sizeof letter, "-%c, ", options->letter);
		snprintf(left, sizeof left, "%s--%s%s%s", letter, options->name,
			 options->value && options->value[0] != '[' ? " " : "", options->value ? options->value : "");
		fprintf(stream, "  %-24s  ", left);
		print_wrapped(stream, options->help, strlen(options->help), 28, 28);
	}
}

static void print_all(FILE *stream)
{
	fputs("neap keeps GPU training inside memory.\n\nUsage: neap COMMAND [OPTIONS]\n\nCommands:\n", stream);
	for (size_t i = 0; neap_commands[i]; i++)
		fprintf(stream, "  %-12s  %s\n", neap_commands[i]->name, neap_commands[i]->summary);
	fputs("\nOptions of every command:\n", stream);
	print_options(stream, neap_common_options);
	fputc('\n', stream);
	print_details(stream, neap_help_all);
}

/* "Usage: neap NAME [...] [...]", broken between options, not within one. */
static void print_usage(FILE *stream, const struct neap_command *command)
{
	int indent = fprintf(stream, "Usage: neap %s", command->name), at = indent;
	for (const char *text = command->usage; *text;) {
		int length = 0;
		for (int depth = 0; text[length] && (depth > 0 || text[length] != ' '); length++)
			depth += (text[length] == '[' || text[length] == '(') -
				 (text[length] == ']' || text[length] == ')');
		if (at > indent && at + 1 + length > WIDTH)
			at = fprintf(stream, "\n%*s", indent, "") - 1;
		at += fprintf(stream, " %.*s", length, text);
		text += length + (text[length] == ' ');
	}
	fputc('\n', stream);
}

void neap_help_print(FILE *stream, const struct neap_command *command)
{
	if (!command) {
		print_all(stream);
		return;
	}
	fprintf(stream, "neap %s: %s\n\n", command->name, command->summary);
	print_usage(stream, command);
	if (command->details && command->details[0]) {
		fputc('\n', stream);
		print_details(stream, command->details);
	}
	fputs("\nOptions:\n", stream);
	print_options(stream, command->options);
	print_options(stream, neap_common_options);
}

static void print_agent(void)
{
	puts("What an attached process answers on its socket, RUNTIME/PID.sock (RUNTIME is $XDG_RUNTIME_DIR/neap, "
	     "else\n"
	     "/tmp/neap-UID), to processes of the same user:\n");
#define X(number, NAME, name, help) printf("  %2d  %-12s  %s\n", number, #name, help);
	NEAP_REQUESTS(X)
#undef X
}

static int run(const struct neap_arguments *arguments)
{
	const char *name = neap_operand(arguments, 0);
	if (name && strcmp(name, "agent") == 0) {
		print_agent();
		return NEAP_EXIT_OK;
	}
	const struct neap_command *command = name ? neap_command_find(name) : NULL;
	if (name && !command) {
		const char *near = neap_command_suggest(name);
		if (near)
			return neap_misuse(arguments, "no command '%s'; did you mean '%s'?", name, near);
		return neap_misuse(arguments, "no command '%s'", name);
	}
	neap_help_print(stdout, command);
	return NEAP_EXIT_OK;
}
