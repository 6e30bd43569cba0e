/* series/spec_slurm.c: see spec_slurm.h. */
#include "series/spec_slurm.h"

#include "base/error.h"
#include "base/units.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Whether the text has only characters of Slurm's names, lists of names and gres. */
static bool is_name(const char *text)
{
	for (const char *c = text; *c; c++)
		if (!isalnum((unsigned char)*c) && !strchr("_.,:@+*/=()-", *c))
			return false;
	return *text != '\0' && *text != '-' && strlen(text) <= 256;
}

static bool is_duration(const char *text)
{
	uint64_t ns;
	return !neap_duration_parse(text, &ns, NULL) && ns > 0;
}

static bool is_size(const char *text)
{
	uint64_t bytes;
	return !neap_size_parse(text, &bytes, NULL) && bytes > 0;
}

static bool is_cpus(const char *text)
{
	uint64_t count;
	return !neap_u64_parse(text, &count, NULL) && count > 0 && count <= 65536;
}

#define AT(name) offsetof(struct neap_spec_slurm, name)
#define NAME     is_name, "a name as Slurm knows it"

static const struct setting {
	const char *key;
	size_t offset;
	bool (*is_good)(const char *text);
	const char *expected;
} settings_table[] = {
	{"partition", AT(partition), NAME},
	{"account", AT(account), NAME},
	{"qos", AT(qos), NAME},
	{"gres", AT(gres), is_name, "a generic resource such as gpu:1, or none"},
	{"time", AT(time), is_duration, "a duration such as 90m or 4h"},
	{"mem", AT(mem), is_size, "a size such as 32GiB"},
	{"cpus", AT(cpus), is_cpus, "a whole number from 1 to 65536"},
	{0},
};

/* Options of sbatch that neap itself gives, or that would change the output that neap reads. */
static const char *const own_options[] = {"array",   "clusters", "error", "help",      "input",
					  "output",  "parsable", "quiet", "test-only", "usage",
					  "verbose", "version",  "wait",  "wrap",      NULL};

/* Whether the text is "--NAME" or "--NAME=VALUE" in printable characters. *ret_own: neap's own option that it names
 * or abbreviates, as sbatch allows. */
static bool is_option(const char *text, const char **ret_own)
{
	size_t length = strcspn(text, "=");
	*ret_own = NULL;
	if (strncmp(text, "--", 2) != 0 || length < 4)
		return false;
	for (const char *c = text + 2; c < text + length; c++)
		if (!islower((unsigned char)*c) && !isdigit((unsigned char)*c) && *c != '-')
			return false;
	for (const char *c = text + length; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return false;
	for (size_t i = 0; own_options[i] && !*ret_own; i++)
		if (!strncmp(own_options[i], text + 2, length - 2))
			*ret_own = own_options[i];
	return !*ret_own;
}

static enum neap_status add_option(void *context, struct neap_yaml item, struct neap_error *err)
{
	struct neap_spec_slurm *settings = context;
	const char *own = NULL;
	char *text = NULL;
	enum neap_status status = neap_yaml_text(item, "sbatch", &text, err);
	if (!status && !is_option(text, &own))
		status =
			own ? neap_fail_at(err, item.line, item.column, "sbatch: '%.60s': --%s is neap's own to give",
					   text, own)
			    : neap_fail_at(err, item.line, item.column,
					   "sbatch: expected options of the form --NAME or --NAME=VALUE, not '%.60s'",
					   text);
	if (!status && neap_argv_add(&settings->sbatch, text))
		status = neap_fail(err, NEAP_ENOMEM, "reading a series file: out of memory");
	free(text);
	return status;
}

static enum neap_status read_text(struct neap_spec_slurm *settings, const struct setting *setting,
				  struct neap_yaml value, struct neap_error *err)
{
	char *text = NULL, **field = (char **)((char *)settings + setting->offset);
	enum neap_status status = neap_yaml_text(value, setting->key, &text, err);
	if (!status && !setting->is_good(text))
		status = neap_fail_at(err, value.line, value.column, "%s: expected %s, not '%.60s'", setting->key,
				      setting->expected, text);
	if (status) {
		free(text);
		return status;
	}
	free(*field);
	*field = text;
	return NEAP_OK;
}

static enum neap_status read_pair(void *context, struct neap_yaml key, struct neap_yaml value, struct neap_error *err)
{
	char *name = NULL;
	enum neap_status status = neap_yaml_text(key, "slurm", &name, err);
	if (status)
		return status;
	const struct setting *setting = settings_table;
	while (setting->key && strcmp(setting->key, name) != 0)
		setting++;
	if (setting->key)
		status = read_text(context, setting, value, err);
	else if (strcmp(name, "sbatch") != 0)
		status = neap_fail_at(err, key.line, key.column,
				      "slurm: unknown key '%.40s', expected one of: partition, account, qos, gres, "
				      "time, mem, cpus, sbatch",
				      name);
	else if (!neap_yaml_is_list(value))
		status = neap_fail_at(err, value.line, value.column, "sbatch: expected a list of options");
	else
		status = neap_yaml_each_item(value, add_option, context, err);
	free(name);
	return status;
}

enum neap_status neap_spec_slurm_read(struct neap_yaml mapping, struct neap_spec_slurm *settings,
				      struct neap_error *err)
{
	return neap_yaml_each_pair(mapping, "slurm", read_pair, settings, err);
}

void neap_spec_slurm_fini(struct neap_spec_slurm *settings)
{
	for (const struct setting *setting = settings_table; setting->key; setting++)
		free(*(char **)((char *)settings + setting->offset));
	neap_argv_fini(&settings->sbatch);
	*settings = (struct neap_spec_slurm){0};
}
