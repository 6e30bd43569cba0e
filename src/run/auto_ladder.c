/* See the header. */
#include "run/auto_ladder.h"

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"

#include <stdio.h>
#include <string.h>

/* The two options of a kind of program: for its batch on each device, and for its accumulation. */
static const struct kind {
	const char *batch, *accumulate;
} kinds[] = {
	{"per_device_train_batch_size", "gradient_accumulation_steps"}, /* transformers' HfArgumentParser */
	{"data.batch_size", "trainer.accumulate_grad_batches"},         /* Lightning's LightningCLI */
};

#define TOLD_BYTES 2048

/* An option's value in a command, as "--name value" or "--name=value". */
struct place {
	size_t word;       /* of the argument that has the value; SIZE_MAX: the command has no such option */
	const char *value; /* points into that argument */
};

/* The options that a command names. */
struct named {
	const struct kind *kind;
	struct place batch, accumulate;
};

/* Whether the word is this option; transformers accepts '-' for '_'. *ret_value: what follows '=', or NULL. */
static bool is_option(const char *word, const char *name, const char **ret_value)
{
	if (word[0] != '-' || word[1] != '-')
		return false;
	for (word += 2; *name; word++, name++)
		if (*word != *name && !(*word == '-' && *name == '_'))
			return false;
	*ret_value = *word == '=' ? word + 1 : NULL;
	return *word == '=' || !*word;
}

/* If an option is given twice, the last one counts, as it does for the programs. */
static struct place find_option(char *const *command, const char *name)
{
	struct place found = {SIZE_MAX, NULL};
	const char *value = NULL;

	for (size_t i = 0; command[i]; i++) {
		if (!is_option(command[i], name, &value))
			continue;
		if (value)
			found = (struct place){i, value};
		else if (command[i + 1])
			found = (struct place){i + 1, command[i + 1]};
	}
	return found;
}

static enum neap_status add_parameter(struct neap_parameters *parameters, const char *name, const char *value,
				      struct neap_error *err)
{
	char text[NEAP_PARAMETER_NAME_CAPACITY + NEAP_PARAMETER_VALUE_CAPACITY];

	if (strlen(value) >= NEAP_PARAMETER_VALUE_CAPACITY)
		return neap_fail(err, NEAP_EPARSE, "--%s has a value of more than %d bytes", name,
				 NEAP_PARAMETER_VALUE_CAPACITY - 1);
	snprintf(text, sizeof text, "%s=%s", name, value);
	return neap_parameters_add(parameters, text, err);
}

/* Writes {name} as {{name}}, which neap_parameters_expand turns back. */
static void put_plain(struct neap_buffer *out, const char *word, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		size_t end = i + 1 +
			     strspn(word + i + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
						  "0123456789_-.");
		bool named = word[i] == '{' && end > i + 1 && end < length && word[end] == '}' &&
			     (i == 0 || word[i - 1] != '$');
		neap_buffer_text(out, named ? "{" : "");
		neap_buffer_append(out, word + i, named ? end + 1 - i : 1);
		neap_buffer_text(out, named ? "}" : "");
		i += named ? end - i : 0;
	}
}

static enum neap_status write_command(char *const *command, const struct named *named, bool plain,
				      struct neap_argv *argv)
{
	const struct place *batch = &named->batch, *accumulate = &named->accumulate;
	const struct kind *kind = named->kind;
	enum neap_status status = NEAP_OK;
	struct neap_buffer word = {0};

	for (size_t i = 0; !status && command[i]; i++) {
		bool of_batch = i == batch->word, replaced = of_batch || i == accumulate->word;
		const char *value = of_batch ? batch->value : accumulate->value;
		size_t kept = replaced ? (size_t)(value - command[i]) : strlen(command[i]);
		neap_buffer_clear(&word);
		if (plain)
			put_plain(&word, command[i], kept);
		else
			neap_buffer_append(&word, command[i], kept);
		if (replaced)
			neap_buffer_format(&word, "{%s}", of_batch ? kind->batch : kind->accumulate);
		status = neap_buffer_status(&word, NULL);
		if (!status)
			status = neap_argv_add(argv, neap_buffer_string(&word));
	}
	if (!status && accumulate->word == SIZE_MAX)
		status = neap_argv_format(argv, "--%s={%s}", kind->accumulate, kind->accumulate);
	neap_buffer_fini(&word);
	return status;
}

static enum neap_status make_ladder(const char *batch, const char *accumulate,
				    const struct neap_parameters *parameters, struct neap_ladder *ret_ladder,
				    struct neap_error *err)
{
	char rules[2 * NEAP_PARAMETER_NAME_CAPACITY + 20];

	snprintf(rules, sizeof rules, "halve %s, double %s", batch, accumulate);
	return neap_ladder_parse(rules, parameters, ret_ladder, err);
}

enum neap_status neap_ladder_auto(char *const *command, struct neap_parameters *parameters,
				  struct neap_ladder *ret_ladder, struct neap_argv *ret_command,
				  struct neap_error *err)
{
	struct neap_parameters all = *parameters;
	struct named named = {.batch.word = SIZE_MAX};
	struct neap_argv argv = {0};
	struct neap_ladder ladder;

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds && named.batch.word == SIZE_MAX; i++) {
		named.kind = &kinds[i];
		named.batch = find_option(command, kinds[i].batch);
	}
	if (named.batch.word == SIZE_MAX)
		return neap_fail(err, NEAP_ENOENT,
				 "auto: the command names no batch that neap knows (--%s, --%s): give --param and "
				 "rules",
				 kinds[0].batch, kinds[1].batch);
	const struct kind *kind = named.kind;
	named.accumulate = find_option(command, kind->accumulate);
	enum neap_status status = add_parameter(&all, kind->batch, named.batch.value, err);
	if (!status)
		status = add_parameter(&all, kind->accumulate, named.accumulate.value ? named.accumulate.value : "1",
				       err);
	if (!status)
		status = make_ladder(kind->batch, kind->accumulate, &all, &ladder, err);
	if (!status && write_command(command, &named, parameters->count == 0, &argv))
		status = neap_fail(err, NEAP_ENOMEM, "out of host memory for a command");
	if (status) {
		neap_argv_fini(&argv);
		return status;
	}
	*parameters = all;
	*ret_ladder = ladder;
	*ret_command = argv;
	return NEAP_OK;
}

enum neap_status neap_ladder_read_batch(const char *path, struct neap_parameters *ret_asked,
					struct neap_parameters *ret_now, struct neap_ladder *ret_ladder,
					struct neap_error *err)
{
	struct neap_parameters asked = {0}, now = {0};
	struct neap_buffer text = {0};
	char *rest = NULL;
	enum neap_status status = neap_file_read(path, TOLD_BYTES, &text, err);

	if (!status)
		status = neap_buffer_status(&text, err);
	char *line = status || !text.length ? NULL : strtok_r(text.data, "\n", &rest);
	for (; !status && line; line = strtok_r(NULL, "\n", &rest))
		status = neap_parameters_add(asked.count < 2 ? &asked : &now, line, err);
	neap_buffer_fini(&text);
	if (!status && now.count != 2)
		status = neap_fail(err, NEAP_EPARSE, "%.180s: expected four lines", path);
	if (!status)
		status = make_ladder(now.items[0].name, now.items[1].name, &now, ret_ladder, err);
	if (status)
		return status;
	*ret_asked = asked;
	*ret_now = now;
	return NEAP_OK;
}

uint64_t neap_ladder_parts(const struct neap_parameters *asked, const struct neap_parameters *now)
{
	uint64_t before = 0, after = 0;

	if (neap_u64_parse(asked->items[0].value, &before, NULL) ||
	    neap_u64_parse(now->items[0].value, &after, NULL) || !after || before % after)
		return 0;
	return before / after;
}
