/* cli/command.c: from argv to a command of the table.
 *
 *   neap [COMMON] NAME [OPTIONS] [OPERANDS]
 *   neap [COMMON] NAME [OPTIONS] [--] COMMAND [ARG...]      takes_rest
 *   neap [COMMON] NAME [OPTIONS] [OPERANDS] [-- COMMAND [ARG...]]      takes_rest, with operands
 *
 * Options are --name value or --name=value, flags --name; some have a letter: -n value. They may be repeated and
 * mixed with operands; "--" ends them. Nothing is ignored: an unknown option or command is an error that names the
 * nearest known one.
 */
#include "cli/command.h"

#include "base/log.h"
#include "base/nearest.h"
#include "cli/print.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define X(name) extern const struct neap_command neap_command_##name;
#include "cli/commands.h"
#undef X

const struct neap_command *const neap_commands[] = {
#define X(name) &neap_command_##name,
#include "cli/commands.h"
#undef X
	NULL,
};

const struct neap_option neap_common_options[] = {
	{"color", "WHEN", "auto (on a terminal, unless NO_COLOR is set), always or never"},
	{"log-level", "LEVEL", "log lines on stderr: debug, info, warning (default) or error; as NEAP_LOG_LEVEL"},
	{"help", NULL, "this help"},
	{NULL, NULL, NULL},
};

static const struct neap_option no_options[] = {{NULL, NULL, NULL}};

struct given {
	const char *name;  /* as the table spells it */
	const char *value; /* "" for a flag */
};

struct neap_arguments {
	const struct neap_command *command; /* NULL while only common options have been seen */
	struct given *given;                /* room for argc */
	size_t given_count;
	char **operands; /* room for argc + 1 */
	size_t operand_count;
	char **rest; /* part of argv, and NULL-terminated like it */
};

static const char *command_name(const struct neap_arguments *arguments)
{
	return arguments->command ? arguments->command->name : NULL;
}

static int complain_usage(const char *command, const char *format, va_list list)
{
	char text[4096];

	fprintf(stderr, "neap%s%s: ", command ? " " : "", command ? command : "");
	vsnprintf(text, sizeof text, format, list);
	print_safe_text(stderr, text);
	fprintf(stderr, " (see 'neap help%s%s')\n", command ? " " : "", command ? command : "");
	return NEAP_EXIT_USAGE;
}

int neap_misuse(const struct neap_arguments *arguments, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	int code = complain_usage(command_name(arguments), format, list);
	va_end(list);
	return code;
}

int neap_complain(const char *command, const struct neap_error *err)
{
	char place[64] = "";

	if (err->line != 0)
		snprintf(place, sizeof place, "line %u, column %u", err->line, err->column);
	else if (err->position != 0)
		snprintf(place, sizeof place, "at byte %llu", (unsigned long long)err->position);
	bool named = !*place || strstr(err->message, place);
	fprintf(stderr, "neap%s%s: %s%s%s%s\n", command ? " " : "", command ? command : "",
		NEAP_PRINTABLE(err->message), named ? "" : " (", named ? "" : place, named ? "" : ")");
	return neap_exit_of(err->status);
}

int neap_exit_of(enum neap_status status)
{
	switch (status) {
	case NEAP_OK:
		return NEAP_EXIT_OK;
	case NEAP_EINVAL:
		return NEAP_EXIT_USAGE;
	case NEAP_EPARSE:
		return NEAP_EXIT_DATA;
	case NEAP_ENOENT:
		return NEAP_EXIT_NO_INPUT;
	case NEAP_EOOM:
	case NEAP_ENODEVICE:
	case NEAP_EDRIVER:
	case NEAP_ENOTSUP:
	case NEAP_ESTATE:
		return NEAP_EXIT_UNAVAILABLE;
	case NEAP_ENOMEM:
		return NEAP_EXIT_OS;
	case NEAP_EEXIST:
		return NEAP_EXIT_CANNOT_CREATE;
	case NEAP_EIO:
	case NEAP_ENOSPC:
		return NEAP_EXIT_IO;
	case NEAP_EBUSY:
	case NEAP_ETIMEDOUT:
		return NEAP_EXIT_TRY_AGAIN;
	case NEAP_EPROTO:
		return NEAP_EXIT_PROTOCOL;
	case NEAP_EPERM:
		return NEAP_EXIT_PERMISSION;
	case NEAP_ECANCELED:
		return NEAP_EXIT_FAILED;
	case NEAP_EINTERNAL:
		break;
	}
	return NEAP_EXIT_INTERNAL;
}

const struct neap_command *neap_command_find(const char *name)
{
	for (size_t i = 0; neap_commands[i]; i++)
		if (strcmp(neap_commands[i]->name, name) == 0 ||
		    (neap_commands[i]->alias && strcmp(neap_commands[i]->alias, name) == 0))
			return neap_commands[i];
	return NULL;
}

const char *neap_command_suggest(const char *name)
{
	struct neap_nearest nearest = {NULL, 0};
	for (size_t i = 0; neap_commands[i]; i++) {
		neap_nearest_consider(&nearest, name, strlen(name), neap_commands[i]->name);
		if (neap_commands[i]->alias)
			neap_nearest_consider(&nearest, name, strlen(name), neap_commands[i]->alias);
	}
	return nearest.name;
}

static const struct neap_option *command_options(const struct neap_command *command)
{
	return command && command->options ? command->options : no_options;
}

static const struct neap_option *find_option(const struct neap_option *options, const char *name, size_t length)
{
	for (; options->name; options++)
		if (strlen(options->name) == length && memcmp(options->name, name, length) == 0)
			return options;
	return NULL;
}

static const struct neap_option *find_letter(const struct neap_option *options, const char *text)
{
	for (; options->name; options++)
		if (options->letter && text[1] == options->letter && text[2] == '\0')
			return options;
	return NULL;
}

static int unknown_option(const struct neap_arguments *arguments, const char *text)
{
	size_t length = strcspn(text, "=");
	struct neap_nearest nearest = {NULL, 0};
	if (strncmp(text, "--", 2) == 0) {
		for (const struct neap_option *o = command_options(arguments->command); o->name; o++)
			neap_nearest_consider(&nearest, text + 2, length - 2, o->name);
		for (const struct neap_option *o = neap_common_options; o->name; o++)
			neap_nearest_consider(&nearest, text + 2, length - 2, o->name);
	}
	if (nearest.name)
		return neap_misuse(arguments, "unknown option '%.*s'; did you mean '--%s'?", (int)length, text,
				   nearest.name);
	return neap_misuse(arguments, "unknown option '%.*s'", (int)length, text);
}

/* Takes the option at argv[*index], and its value if that is the next word. */
static int parse_option(struct neap_arguments *arguments, int argc, char **argv, int *index)
{
	const char *text = argv[*index];
	if (strcmp(text, "-h") == 0)
		text = "--help";
	const struct neap_option *own = command_options(arguments->command), *option;
	const char *value = NULL;
	if (strncmp(text, "--", 2) == 0) {
		size_t length = strcspn(text + 2, "=");
		option = find_option(own, text + 2, length);
		if (!option)
			option = find_option(neap_common_options, text + 2, length);
		value = text[2 + length] == '=' ? text + 2 + length + 1 : NULL;
	} else {
		option = find_letter(own, text);
	}
	if (!option)
		return unknown_option(arguments, text);
	if (!option->value) {
		if (value)
			return neap_misuse(arguments, "option '--%s' takes no value", option->name);
		value = "";
	} else if (!value && option->value[0] == '[') {
		value = "";
	} else if (!value) {
		if (*index + 1 >= argc || strcmp(argv[*index + 1], "--") == 0)
			return neap_misuse(arguments, "option '--%s' needs a value: %s", option->name, option->value);
		value = argv[++*index];
	}
	arguments->given[arguments->given_count++] = (struct given){option->name, value};
	return NEAP_EXIT_OK;
}

static int check_operands(const struct neap_arguments *arguments)
{
	const struct neap_command *command = arguments->command;
	if (command->takes_rest && !command->operands_max)
		return NEAP_EXIT_OK;
	if (arguments->operand_count > command->operands_max)
		return neap_misuse(arguments, "unexpected argument '%s'", arguments->operands[command->operands_max]);
	if (arguments->operand_count < command->operands_min)
		return neap_misuse(arguments, "missing argument; usage: neap %s %s", command->name, command->usage);
	return NEAP_EXIT_OK;
}

static int check_color(const struct neap_arguments *arguments)
{
	const char *when = neap_argument(arguments, "color");
	if (when && strcmp(when, "auto") != 0 && strcmp(when, "always") != 0 && strcmp(when, "never") != 0)
		return neap_misuse(arguments, "--color is auto, always or never, not '%s'", when);
	return NEAP_EXIT_OK;
}

/* Puts the level into the environment, for processes that the command starts. */
static int apply_log_level(const struct neap_arguments *arguments)
{
	const char *text = neap_argument(arguments, "log-level");
	enum neap_log_level level;
	if (!text)
		return NEAP_EXIT_OK;
	if (!neap_log_level_parse(text, &level))
		return neap_misuse(arguments, "--log-level is debug, info, warning or error, not '%s'", text);
	return setenv("NEAP_LOG_LEVEL", text, 1) == 0 ? NEAP_EXIT_OK : NEAP_EXIT_OS;
}

/* Parses the options before the command's name, then the command's own options, operands and rest. */
static int parse(struct neap_arguments *arguments, int argc, char **argv)
{
	bool options_ended = false;
	for (int i = 1; i < argc; i++) {
		if (!options_ended && arguments->command && strcmp(argv[i], "--") == 0) {
			options_ended = true;
			if (!arguments->command->takes_rest)
				continue;
			arguments->rest = argv + i + 1;
			break;
		}
		if (!options_ended && argv[i][0] == '-' && argv[i][1] != '\0') {
			int code = parse_option(arguments, argc, argv, &i);
			if (code != NEAP_EXIT_OK)
				return code;
		} else if (!arguments->command) {
			arguments->command = neap_command_find(argv[i]);
			if (arguments->command)
				continue;
			const char *near = neap_command_suggest(argv[i]);
			if (near)
				return neap_misuse(arguments, "unknown command '%s'; did you mean '%s'?", argv[i],
						   near);
			return neap_misuse(arguments, "unknown command '%s'", argv[i]);
		} else if (arguments->command->takes_rest && !arguments->command->operands_max) {
			arguments->rest = argv + i;
			break;
		} else {
			arguments->operands[arguments->operand_count++] = argv[i];
		}
	}
	int code = check_color(arguments);
	return code == NEAP_EXIT_OK ? apply_log_level(arguments) : code;
}

static int dispatch(struct neap_arguments *arguments, int argc, char **argv)
{
	int code = parse(arguments, argc, argv);
	if (code != NEAP_EXIT_OK)
		return code;
	if (neap_argument(arguments, "help")) {
		neap_help_print(stdout, arguments->command);
		return NEAP_EXIT_OK;
	}
	if (!arguments->command) {
		neap_help_print(stderr, NULL);
		return NEAP_EXIT_USAGE;
	}
	code = check_operands(arguments);
	return code == NEAP_EXIT_OK ? arguments->command->run(arguments) : code;
}

int neap_command_main(int argc, char **argv)
{
	if (argc >= 2 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)) {
		bool json = argc == 3 && strcmp(argv[2], "--json") == 0;
		if (argc == 2 || json)
			return neap_version_print(json);
	}
	size_t capacity = (size_t)(argc > 0 ? argc : 0) + 1;
	struct neap_arguments arguments = {
		.given = calloc(capacity, sizeof *arguments.given),
		.operands = calloc(capacity, sizeof *arguments.operands),
		.rest = argv + (argc > 0 ? argc : 0), /* argv's NULL */
	};
	int code = NEAP_EXIT_OS;
	if (arguments.given && arguments.operands)
		code = dispatch(&arguments, argc, argv);
	else
		fprintf(stderr, "neap: out of memory\n");
	free(arguments.given);
	free(arguments.operands);
	return code;
}

const char *neap_argument(const struct neap_arguments *arguments, const char *option)
{
	for (size_t i = arguments->given_count; i-- > 0;)
		if (strcmp(arguments->given[i].name, option) == 0)
			return arguments->given[i].value;
	return NULL;
}

const char *neap_argument_nth(const struct neap_arguments *arguments, const char *option, size_t n)
{
	for (size_t i = 0; i < arguments->given_count; i++)
		if (strcmp(arguments->given[i].name, option) == 0 && n-- == 0)
			return arguments->given[i].value;
	return NULL;
}

char **neap_argument_list(const struct neap_arguments *arguments, const char *option)
{
	char **list = calloc(arguments->given_count + 1, sizeof *list);

	for (size_t i = 0; list && i < arguments->given_count && neap_argument_nth(arguments, option, i); i++)
		list[i] = (char *)(uintptr_t)neap_argument_nth(arguments, option, i);
	return list;
}

size_t neap_operand_count(const struct neap_arguments *arguments) { return arguments->operand_count; }

const char *neap_operand(const struct neap_arguments *arguments, size_t index)
{
	return index < arguments->operand_count ? arguments->operands[index] : NULL;
}

char *const *neap_rest(const struct neap_arguments *arguments) { return arguments->rest; }

bool neap_color(const struct neap_arguments *arguments, FILE *stream)
{
	const char *when = neap_argument(arguments, "color");
	if (when && strcmp(when, "auto") != 0)
		return strcmp(when, "always") == 0;
	const char *no_color = getenv("NO_COLOR");
	const char *term = getenv("TERM");
	return !(no_color && no_color[0]) && !(term && strcmp(term, "dumb") == 0) && isatty(fileno(stream));
}
