/* series/spec.c: turns YAML into plain experiments.
 *
 * Tables drive the walk over the document: a table has the keys that a mapping may have and how to read each value.
 * Aliases are followed in place (never copied, so that they cannot make a file large), and only as deep as the schema
 * goes.
 */
#include "series/spec.h"

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/nearest.h"
#include "base/units.h"
#include "series/spec_settings.h"
#include "series/spec_yaml.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_SHOWN      160 /* bytes: more do not fit into a message */
#define GRID_PARAMETERS 16

/* Everything that a key's reader may need. Readers of settings use `experiment`. */
struct reader {
	struct neap_spec *spec;
	struct neap_experiment *experiment; /* the experiment that is being filled */
	struct neap_experiment *defaults;
	struct neap_argv *grid;      /* one list of values per parameter */
	struct neap_argv grid_names; /* the parameters */
	struct neap_yaml list;       /* the experiments */
	struct neap_error *err;
};

struct key {
	const char *name;
	enum neap_status (*read)(struct reader *reader, const char *key, struct neap_yaml value);
};

static enum neap_status no_memory(struct neap_error *err)
{
	return neap_fail(err, NEAP_ENOMEM, "reading a series file: out of memory");
}

/* --- values ------------------------------------------------------------------------------------------------------
 */

static enum neap_status set_text(char **field, const char *text, struct neap_error *err)
{
	char *copy = strdup(text);
	if (!copy)
		return no_memory(err);
	free(*field);
	*field = copy;
	return NEAP_OK;
}

static bool name_ok(const char *text, const char *more, size_t capacity)
{
	if (!isalnum((unsigned char)*text) || strlen(text) >= capacity)
		return false;
	for (const char *c = text; *c; c++)
		if (!isalnum((unsigned char)*c) && !strchr(more, *c))
			return false;
	return true;
}

/* A text that is a name: of a series, an experiment, a parameter or a variable. */
static enum neap_status read_name(struct reader *reader, const char *key, struct neap_yaml value, const char *more,
				  char **ret_text)
{
	enum neap_status status = neap_yaml_text(value, key, ret_text, reader->err);
	if (status || name_ok(*ret_text, more, 65))
		return status;
	status = neap_fail_at(
		reader->err, value.line, value.column,
		"%s: expected at most 64 letters, digits and any of %s, beginning with a letter or digit", key, more);
	free(*ret_text);
	*ret_text = NULL;
	return status;
}

struct word_context {
	const char *key;
	struct neap_argv *argv;
};

static enum neap_status add_word(void *context, struct neap_yaml item, struct neap_error *err)
{
	struct word_context *word = context;
	char *text = NULL;
	enum neap_status status = neap_yaml_text(item, word->key, &text, err);
	if (!status && neap_argv_add(word->argv, text))
		status = no_memory(err);
	free(text);
	return status;
}

static enum neap_status read_command(struct reader *reader, const char *key, struct neap_yaml value)
{
	struct neap_argv argv = {0};
	enum neap_status status = NEAP_OK;
	if (neap_yaml_is_list(value)) {
		struct word_context context = {key, &argv};
		status = neap_yaml_each_item(value, add_word, &context, reader->err);
	} else if (neap_yaml_is_text(value)) {
		char *text = NULL;
		status = neap_yaml_text(value, key, &text, reader->err);
		if (!status)
			status = neap_argv_split(text, &argv, reader->err);
		if (status == NEAP_EPARSE && reader->err && !reader->err->line) {
			reader->err->line = value.line;
			reader->err->column = value.column;
		}
		free(text);
	} else {
		status = neap_fail_at(reader->err, value.line, value.column,
				      "%s: expected a command line or a list of words, not %s", key,
				      value.node ? "a mapping" : "nothing");
	}
	if (!status && (!argv.count || !*argv.items[0]))
		status = neap_fail_at(reader->err, value.line, value.column, "%s: expected at least a program's name",
				      key);
	if (status) {
		neap_argv_fini(&argv);
		return status;
	}
	neap_argv_fini(&reader->experiment->command);
	reader->experiment->command = argv;
	return NEAP_OK;
}

struct pair_context {
	struct reader *reader;
	const char *key;
	struct neap_argv *argv;
};

static enum neap_status set_pair(void *context, struct neap_yaml key, struct neap_yaml value, struct neap_error *err)
{
	struct pair_context *pair = context;
	char *name = NULL, *text = NULL;
	enum neap_status status = read_name(pair->reader, pair->key, key, "_-.", &name);
	if (!status)
		status = neap_yaml_text(value, name, &text, err);
	if (!status && neap_argv_set(pair->argv, name, text))
		status = no_memory(err);
	free(name);
	free(text);
	return status;
}

static enum neap_status read_env(struct reader *reader, const char *key, struct neap_yaml value)
{
	struct pair_context pair = {reader, "env", &reader->experiment->env};
	return neap_yaml_each_pair(value, key, set_pair, &pair, reader->err);
}

static enum neap_status read_params(struct reader *reader, const char *key, struct neap_yaml value)
{
	struct pair_context pair = {reader, "params", &reader->experiment->params};
	return neap_yaml_each_pair(value, key, set_pair, &pair, reader->err);
}

static enum neap_status add_grid(void *context, struct neap_yaml key, struct neap_yaml value, struct neap_error *err)
{
	struct reader *reader = context;
	char *name = NULL;
	enum neap_status status = read_name(reader, "grid", key, "_-.", &name);
	struct neap_argv values = {0};
	struct word_context word = {name, &values};
	if (!status && !neap_yaml_is_list(value))
		status =
			neap_fail_at(err, value.line, value.column, "grid: expected a list of values for '%s'", name);
	if (!status)
		status = neap_yaml_each_item(value, add_word, &word, err);
	if (!status && !values.count)
		status = neap_fail_at(err, value.line, value.column, "grid: expected at least one value for '%s'",
				      name);
	if (!status && reader->grid_names.count == GRID_PARAMETERS)
		status = neap_fail_at(err, key.line, key.column, "grid: expected at most 16 parameters");
	if (!status && !neap_array_grow(&reader->grid, reader->grid_names.count, sizeof values))
		status = no_memory(err);
	if (!status && neap_argv_add(&reader->grid_names, name))
		status = no_memory(err);
	if (!status)
		reader->grid[reader->grid_names.count - 1] = values;
	else
		neap_argv_fini(&values);
	free(name);
	return status;
}

static enum neap_status read_grid(struct reader *reader, const char *key, struct neap_yaml value)
{
	return neap_yaml_each_pair(value, key, add_grid, reader, reader->err);
}

static enum neap_status read_experiment_name(struct reader *reader, const char *key, struct neap_yaml value)
{
	char *text = NULL;
	enum neap_status status = read_name(reader, key, value, "._+=-", &text);
	if (!status) {
		free(reader->experiment->name);
		reader->experiment->name = text;
	}
	return status;
}

static enum neap_status read_series_name(struct reader *reader, const char *key, struct neap_yaml value)
{
	char *text = NULL;
	enum neap_status status = read_name(reader, key, value, "._+=-", &text);
	if (!status) {
		free(reader->spec->name);
		reader->spec->name = text;
	}
	return status;
}

/* --- mappings ----------------------------------------------------------------------------------------------------
 */

/* Keys besides the settings of spec_settings.h. */
static const struct key defaults_keys[] = {
	{"command", read_command}, {"env", read_env}, {"params", read_params}, {NULL}};
static const struct key experiment_keys[] = {
	{"name", read_experiment_name}, {"command", read_command}, {"env", read_env},
	{"params", read_params},        {"grid", read_grid},       {NULL}};

static enum neap_status read_setting(struct reader *reader, const struct neap_setting *setting,
				     struct neap_yaml value)
{
	char *text = NULL;
	enum neap_status status = neap_yaml_text(value, setting->key, &text, reader->err);
	if (!status && !setting->is_good(text))
		status = neap_fail_at(reader->err, value.line, value.column, "%s: expected %s, not '%.60s'",
				      setting->key, setting->expected, text);
	if (!status)
		status = set_text(neap_setting_text(setting, reader->experiment), text, reader->err);
	free(text);
	return status;
}

struct table_context {
	struct reader *reader;
	const struct key *keys;
	const struct neap_setting *settings; /* NULL: none */
	const char *where;
};

static enum neap_status refuse_key(const struct table_context *table, struct neap_yaml key, const char *name)
{
	bool defaults = table->keys == defaults_keys;
	struct neap_nearest nearest = {0};
	struct neap_buffer known = {0};
	enum neap_status status;

	for (const struct key *k = table->keys; k->name; k++) {
		neap_buffer_format(&known, "%s%s", k == table->keys ? "" : ", ", k->name);
		neap_nearest_consider(&nearest, name, strlen(name), k->name);
	}
	for (const struct neap_setting *setting = table->settings; setting && setting->key; setting++) {
		if (defaults && setting->only_experiment)
			continue;
		neap_buffer_format(&known, ", %s", setting->key);
		neap_nearest_consider(&nearest, name, strlen(name), setting->key);
	}
	if (known.length <= KEYS_SHOWN)
		status = neap_fail_at(table->reader->err, key.line, key.column,
				      "%s: unknown key '%.40s', expected one of: %s", table->where, name,
				      neap_buffer_string(&known));
	else if (nearest.name)
		status =
			neap_fail_at(table->reader->err, key.line, key.column,
				     "%s: unknown key '%.40s'; did you mean '%s'?", table->where, name, nearest.name);
	else
		status = neap_fail_at(
			table->reader->err, key.line, key.column,
			"%s: unknown key '%.40s', expected one of those that 'neap help series' explains",
			table->where, name);
	neap_buffer_fini(&known);
	return status;
}

static enum neap_status read_key(void *context, struct neap_yaml key, struct neap_yaml value, struct neap_error *err)
{
	struct table_context *table = context;
	char *name = NULL;
	enum neap_status status = neap_yaml_text(key, table->where, &name, err);
	if (status)
		return status;
	const struct key *found = table->keys;
	while (found->name && strcmp(found->name, name))
		found++;
	bool defaults = table->keys == defaults_keys;
	const struct neap_setting *setting = table->settings;
	while (setting && setting->key && (strcmp(setting->key, name) || (defaults && setting->only_experiment)))
		setting++;
	if (found->name) {
		status = found->read(table->reader, found->name, value);
	} else if (setting && setting->key) {
		status = read_setting(table->reader, setting, value);
	} else {
		status = refuse_key(table, key, name);
	}
	free(name);
	return status;
}

static enum neap_status read_defaults(struct reader *reader, const char *key, struct neap_yaml value)
{
	struct table_context table = {reader, defaults_keys, neap_settings, key};
	reader->experiment = reader->defaults;
	return neap_yaml_each_pair(value, key, read_key, &table, reader->err);
}

static void experiment_fini(struct neap_experiment *experiment)
{
	for (const struct neap_setting *setting = neap_settings; setting->key; setting++)
		free(*neap_setting_text(setting, experiment));
	free(experiment->name);
	neap_argv_fini(&experiment->command);
	neap_argv_fini(&experiment->env);
	neap_argv_fini(&experiment->params);
	*experiment = (struct neap_experiment){0};
}

static enum neap_status copy_text(char **to, const char *from)
{
	return from && !(*to = strdup(from)) ? NEAP_ENOMEM : NEAP_OK;
}

static enum neap_status experiment_copy(const struct neap_experiment *from, struct neap_experiment *ret_copy)
{
	struct neap_experiment copy = {.line = from->line};
	bool failed = copy_text(&copy.name, from->name) != NEAP_OK;
	for (const struct neap_setting *setting = neap_settings; setting->key && !failed; setting++)
		failed = copy_text(neap_setting_text(setting, &copy), neap_setting_value(setting, from));
	if (failed || neap_argv_copy(&from->command, &copy.command) || neap_argv_copy(&from->env, &copy.env) ||
	    neap_argv_copy(&from->params, &copy.params)) {
		experiment_fini(&copy);
		return NEAP_ENOMEM;
	}
	*ret_copy = copy;
	return NEAP_OK;
}

/* --- the grid ----------------------------------------------------------------------------------------------------
 */

/* Adds a copy of `experiment` under `name` to the series. */
static enum neap_status add_experiment(struct neap_spec *spec, const struct neap_experiment *experiment,
				       const char *name, struct neap_error *err)
{
	if (spec->count == NEAP_SPEC_EXPERIMENTS)
		return neap_fail_at(err, experiment->line, 1, "experiments: expected at most %d, grids expanded",
				    NEAP_SPEC_EXPERIMENTS);
	if (strlen(name) >= NEAP_SPEC_NAME_CAPACITY)
		return neap_fail_at(
			err, experiment->line, 1,
			"experiments: the name '%.60s...' is too long with its grid, expected at most %d bytes", name,
			NEAP_SPEC_NAME_CAPACITY - 1);
	size_t same = neap_spec_find(spec, name);
	if (same < spec->count)
		return neap_fail_at(err, experiment->line, 1,
				    "experiments: the name '%.80s' is taken by the one in line %u, expected another",
				    name, spec->experiments[same].line);
	uint64_t hash = neap_spec_hash(name, strlen(name));
	if (!neap_map_get(&spec->names, hash, NULL) && !neap_map_put(&spec->names, hash, spec->count))
		return no_memory(err);
	if (!neap_array_grow(&spec->experiments, spec->count, sizeof *spec->experiments))
		return no_memory(err);
	struct neap_experiment *added = &spec->experiments[spec->count];
	*added = (struct neap_experiment){0};
	if (experiment_copy(experiment, added) || set_text(&added->name, name, err)) {
		experiment_fini(added);
		return no_memory(err);
	}
	spec->count++;
	return NEAP_OK;
}

/* Appends "-key=value", with characters unfit for a file name replaced by '_'. */
static void append_suffix(struct neap_buffer *name, const char *key, const char *value)
{
	neap_buffer_format(name, "-%s=", key);
	for (const char *c = value; *c; c++)
		neap_buffer_append(name, isalnum((unsigned char)*c) || strchr("._+-", *c) ? c : "_", 1);
}

static enum neap_status expand(struct reader *reader, struct neap_experiment *experiment)
{
	size_t parameters = reader->grid_names.count;
	size_t odometer[GRID_PARAMETERS] = {0};
	struct neap_buffer name = {0};
	enum neap_status status = NEAP_OK;
	for (size_t digit = 0; !status && digit <= parameters;) {
		neap_buffer_clear(&name);
		neap_buffer_text(&name, experiment->name);
		for (size_t i = 0; !status && i < parameters; i++) {
			const char *value = reader->grid[i].items[odometer[i]];
			append_suffix(&name, reader->grid_names.items[i], value);
			if (neap_argv_set(&experiment->params, reader->grid_names.items[i], value))
				status = no_memory(reader->err);
		}
		if (!status)
			status = neap_buffer_status(&name, reader->err);
		if (!status)
			status = add_experiment(reader->spec, experiment, neap_buffer_string(&name), reader->err);
		/* The last parameter varies fastest. */
		for (digit = 0; digit < parameters; digit++) {
			size_t at = parameters - 1 - digit;
			if (++odometer[at] < reader->grid[at].count)
				break;
			odometer[at] = 0;
		}
		if (digit == parameters)
			break;
	}
	neap_buffer_fini(&name);
	return status;
}

static enum neap_status read_experiment(void *context, struct neap_yaml item, struct neap_error *err)
{
	struct reader *reader = context;
	struct neap_experiment experiment = {0};
	struct table_context table = {reader, experiment_keys, neap_settings, "experiments"};
	if (experiment_copy(reader->defaults, &experiment))
		return no_memory(err);
	experiment.line = item.line;
	reader->experiment = &experiment;
	enum neap_status status = neap_yaml_each_pair(item, "experiments", read_key, &table, err);
	if (!status && !experiment.name)
		status = neap_fail_at(err, item.line, item.column, "experiments: expected the key 'name'");
	if (!status && !experiment.command.count)
		status = neap_fail_at(err, item.line, item.column, "experiments: expected a command for '%s'",
				      experiment.name);
	if (!status)
		status = expand(reader, &experiment);
	experiment_fini(&experiment);
	for (size_t i = 0; i < reader->grid_names.count; i++)
		neap_argv_fini(&reader->grid[i]);
	free(reader->grid);
	reader->grid = NULL;
	neap_argv_fini(&reader->grid_names);
	reader->experiment = NULL;
	return status;
}

static enum neap_status read_parallel(struct reader *reader, const char *key, struct neap_yaml value)
{
	char *text = NULL;
	uint64_t count = 0;
	enum neap_status status = neap_yaml_text(value, key, &text, reader->err);
	if (!status && (neap_u64_parse(text, &count, NULL) || !count || count > NEAP_SPEC_PARALLEL))
		status = neap_fail_at(reader->err, value.line, value.column,
				      "%s: expected a whole number from 1 to %d, not '%.60s'", key,
				      NEAP_SPEC_PARALLEL, text);
	if (!status)
		reader->spec->parallel = (uint32_t)count;
	reader->spec->has_parallel = true;
	free(text);
	return status;
}

static enum neap_status read_slurm(struct reader *reader, const char *key, struct neap_yaml value)
{
	(void)key;
	return neap_spec_slurm_read(value, &reader->spec->slurm, reader->err);
}

/* Keeps the list to read it last: the defaults apply even if they come after it. */
static enum neap_status keep_experiments(struct reader *reader, const char *key, struct neap_yaml value)
{
	if (!neap_yaml_is_list(value))
		return neap_fail_at(reader->err, value.line, value.column, "%s: expected a list of experiments", key);
	reader->list = value;
	return NEAP_OK;
}

/* --- the file ----------------------------------------------------------------------------------------------------
 */

static const struct key top_keys[] = {
	{"name", read_series_name},  {"parallel", read_parallel},       {"slurm", read_slurm},
	{"defaults", read_defaults}, {"experiments", keep_experiments}, {NULL}};

/* Checks that each compare_to names another experiment. Call after grids are expanded. */
static enum neap_status check_compared(const struct neap_spec *spec, struct neap_error *err)
{
	for (size_t i = 0; i < spec->count; i++) {
		const struct neap_experiment *experiment = &spec->experiments[i];
		size_t other = experiment->compare_to ? neap_spec_find(spec, experiment->compare_to) : i;
		if (experiment->compare_to && (other == i || other == spec->count))
			return neap_fail_at(err, experiment->line, 1,
					    "compare_to: expected the name of another experiment, not '%.80s'",
					    experiment->compare_to);
	}
	return NEAP_OK;
}

static enum neap_status read_top(struct reader *reader, struct neap_yaml root)
{
	struct table_context table = {reader, top_keys, NULL, "series"};
	enum neap_status status = neap_yaml_each_pair(root, "series", read_key, &table, reader->err);
	if (status)
		return status;
	if (!reader->spec->name)
		return neap_fail_at(reader->err, root.line, root.column, "series: expected the key 'name'");
	if (!reader->list.node)
		return neap_fail_at(reader->err, root.line, root.column,
				    "series: expected the key 'experiments', a list");
	status = neap_yaml_each_item(reader->list, read_experiment, reader, reader->err);
	if (!status && !reader->spec->count)
		status = neap_fail_at(reader->err, reader->list.line, reader->list.column,
				      "experiments: expected at least one experiment");
	return status ? status : check_compared(reader->spec, reader->err);
}

static enum neap_status parse(const char *text, size_t length, bool apart, struct neap_spec *ret_spec,
			      struct neap_error *err)
{
	struct neap_error local;
	struct neap_spec spec = {.parallel = 1, .hash = neap_spec_hash(text, length)};
	struct neap_experiment defaults = {0};
	struct reader reader = {.spec = &spec, .defaults = &defaults, .err = err ? err : &local};
	struct neap_yaml_document *document = NULL;
	struct neap_yaml root;
	enum neap_status status = neap_yaml_open(text, length, apart, &document, &root, reader.err);
	if (!status)
		status = read_top(&reader, root);
	neap_yaml_close(document);
	experiment_fini(&defaults);
	if (status) {
		neap_spec_fini(&spec);
		return status;
	}
	*ret_spec = spec;
	return NEAP_OK;
}

enum neap_status neap_spec_parse(const char *text, size_t length, struct neap_spec *ret_spec, struct neap_error *err)
{
	return parse(text, length, false, ret_spec, err);
}

enum neap_status neap_spec_read(const char *path, struct neap_spec *ret_spec, struct neap_error *err)
{
	struct neap_error local;
	struct neap_buffer text = {0};
	if (!err)
		err = &local;
	enum neap_status status = neap_file_read(path, NEAP_SPEC_LIMIT_BYTES, &text, err);
	if (status == NEAP_EINVAL) { /* too long */
		status = NEAP_EPARSE;
		err->status = status;
	} else if (!status) {
		status = parse(neap_buffer_string(&text), text.length, true, ret_spec, err);
		if (status == NEAP_EPARSE)
			neap_error_prefix(err, "%s:%u:%u", path, err->line, err->column);
	}
	neap_buffer_fini(&text);
	return status;
}

size_t neap_spec_find(const struct neap_spec *spec, const char *name)
{
	uint64_t at = 0;
	if (!neap_map_get(&spec->names, neap_spec_hash(name, strlen(name)), &at))
		return spec->count;
	/* Further names with its hash come later. */
	while (at < spec->count && strcmp(spec->experiments[at].name, name))
		at++;
	return (size_t)at;
}

void neap_spec_fini(struct neap_spec *spec)
{
	if (!spec)
		return;
	for (size_t i = 0; i < spec->count; i++)
		experiment_fini(&spec->experiments[i]);
	free(spec->experiments);
	free(spec->name);
	neap_map_fini(&spec->names);
	neap_spec_slurm_fini(&spec->slurm);
	*spec = (struct neap_spec){0};
}
