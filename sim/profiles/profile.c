/* Reads NEAP_SIM. First it reads the words in order into the spec. Then it derives the missing values from the given
 * ones: reserved and context scale with a custom device, and a world's name follows from its capacity. So two shells
 * with the same settings share a device, and two with different settings never do. */
#include "sim/profiles/profile.h"

#include "base/error.h"
#include "base/units.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* One word of the spec, and where it began (columns count from 1). */
struct word {
	char text[160];
	uint32_t column;
};

static uint64_t round_up(uint64_t bytes) { return (bytes + SIM_PAGE_BYTES - 1) / SIM_PAGE_BYTES * SIM_PAGE_BYTES; }
static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static enum neap_status take_count(const char *text, const struct word *word, struct sim_spec *spec,
				   struct neap_error *err)
{
	uint64_t count;

	if (neap_u64_parse(text, &count, NULL) != NEAP_OK || count < 1 || count > SIM_DEVICE_LIMIT)
		return neap_fail_at(err, 1, word->column, "NEAP_SIM: '%s': expected 1 to %d devices", word->text,
				    SIM_DEVICE_LIMIT);
	spec->device_count = (uint32_t)count;
	spec->count_given = true;
	return NEAP_OK;
}

static enum neap_status take_profile(const struct word *word, struct sim_spec *spec, struct neap_error *err)
{
	const char *name = word->text;
	size_t digits = strspn(name, "0123456789"), i, count;
	const struct sim_profile *profiles = sim_profiles(&count);
	enum neap_status status;

	if (digits > 0 && digits < 8 && name[digits] == 'x') {
		char number[8];

		memcpy(number, name, digits);
		number[digits] = '\0';
		status = take_count(number, word, spec, err);
		if (status)
			return status;
		name += digits + 1;
	} else {
		spec->device_count = 1;
		spec->count_given = true;
	}
	for (i = 0; i < count; i++) {
		const struct sim_profile *profile = &profiles[i];

		if (strcasecmp(profile->name, name) != 0)
			continue;
		snprintf(spec->gpu_name, sizeof spec->gpu_name, "%s", profile->gpu_name);
		spec->total_bytes = profile->total_mib * NEAP_MIB;
		spec->reserved_bytes = profile->reserved_mib * NEAP_MIB;
		spec->context_bytes = profile->context_mib * NEAP_MIB;
		spec->multiprocessors = profile->multiprocessors;
		spec->compute_major = profile->compute_major;
		spec->compute_minor = profile->compute_minor;
		spec->capacity_given = true;
		snprintf(spec->world, sizeof spec->world, "%s", profile->name);
		return NEAP_OK;
	}
	return neap_fail_at(err, 1, word->column,
			    "NEAP_SIM: '%s' is neither a profile (see `neap sim profiles`) nor key=value",
			    word->text);
}

static enum neap_status take_size(const char *value, const struct word *word, uint64_t *ret_bytes, bool *ret_given,
				  struct neap_error *err)
{
	uint64_t bytes;

	if (neap_size_parse(value, &bytes, NULL) != NEAP_OK || bytes > SIM_MEMORY_LIMIT)
		return neap_fail_at(err, 1, word->column,
				    "NEAP_SIM: '%s': expected a size such as 6GiB, at most 16 TiB", word->text);
	*ret_bytes = bytes;
	*ret_given = true;
	return NEAP_OK;
}

static enum neap_status take_world(const char *value, const struct word *word, char name[SIM_WORLD_CAPACITY],
				   struct neap_error *err)
{
	size_t length = strlen(value), i;
	bool good = length > 0 && length < SIM_WORLD_CAPACITY && value[0] != '.';

	for (i = 0; good && i < length; i++)
		good = isalnum((unsigned char)value[i]) || strchr("._-", value[i]);
	if (!good)
		return neap_fail_at(err, 1, word->column,
				    "NEAP_SIM: '%s': a world's name is 1 to %d of A-Z a-z 0-9 . _ -, no '.' first",
				    word->text, SIM_WORLD_CAPACITY - 1);
	memcpy(name, value, length + 1);
	return NEAP_OK;
}

/* Reads a value that is one of two words. *ret_second: it is the second. */
static enum neap_status take_choice(const char *value, const struct word *word, const char *first, const char *second,
				    bool *ret_second, struct neap_error *err)
{
	if (strcmp(value, first) != 0 && strcmp(value, second) != 0)
		return neap_fail_at(err, 1, word->column, "NEAP_SIM: '%s': expected %s or %s", word->text, first,
				    second);
	*ret_second = strcmp(value, second) == 0;
	return NEAP_OK;
}

static enum neap_status take_values(const char *value, const struct word *word, bool *ret_none,
				    struct neap_error *err)
{
	if (strcmp(value, "none") != 0 && strcmp(value, "auto") != 0 && strcmp(value, "full") != 0)
		return neap_fail_at(err, 1, word->column, "NEAP_SIM: '%s': expected none, auto or full", word->text);
	*ret_none = strcmp(value, "none") == 0;
	return NEAP_OK;
}

struct extra { /* values given beside the profile, wherever their words stand */
	uint64_t total, reserved, context;
	bool total_given;
	char world[SIM_WORLD_CAPACITY];
};

static enum neap_status take_word(const struct word *word, struct sim_spec *spec, struct extra *extra,
				  struct neap_error *err)
{
	const char *value = strchr(word->text, '=');
	size_t key;

	if (!value)
		return take_profile(word, spec, err);
	key = (size_t)(value++ - word->text);
#define KEY(name) (key == sizeof name - 1 && memcmp(word->text, name, key) == 0)
	if (KEY("mem"))
		return take_size(value, word, &extra->total, &extra->total_given, err);
	if (KEY("reserved"))
		return take_size(value, word, &extra->reserved, &spec->reserved_given, err);
	if (KEY("context"))
		return take_size(value, word, &extra->context, &spec->context_given, err);
	if (KEY("gpus"))
		return take_count(value, word, spec, err);
	if (KEY("world"))
		return take_world(value, word, extra->world, err);
	if (KEY("backing"))
		return take_choice(value, word, "memory", "none", &spec->no_backing, err);
	if (KEY("values"))
		return take_values(value, word, &spec->no_values, err);
	if (KEY("values_memory")) /* used by python/neap/_values.py */
		return take_size(value, word, &spec->values_memory_bytes, &spec->values_memory_given, err);
	if (KEY("vmm"))
		return take_choice(value, word, "on", "off", &spec->no_vmm, err);
	if (KEY("order"))
		return take_choice(value, word, "pci", "reversed", &spec->reversed, err);
	if (KEY("release_delay")) {
		if (neap_duration_parse(value, &spec->release_delay_ns, NULL) != NEAP_OK)
			return neap_fail_at(err, 1, word->column, "NEAP_SIM: '%s': expected a time such as 300ms",
					    word->text);
		spec->delay_given = true;
		return NEAP_OK;
	}
#undef KEY
	return neap_fail_at(err, 1, word->column,
			    "NEAP_SIM: '%s': unknown key; known: mem, gpus, world, reserved, context, release_delay, "
			    "backing, values, values_memory, vmm, order ('neap help sim' explains them)",
			    word->text);
}

/* Derives the missing values from the given ones. */
static enum neap_status derive(struct sim_spec *spec, const struct extra *extra, struct neap_error *err)
{
	if (extra->total_given) {
		spec->total_bytes = extra->total / SIM_PAGE_BYTES * SIM_PAGE_BYTES;
		spec->reserved_bytes = least(512 * NEAP_MIB, round_up(spec->total_bytes / 128));
		spec->context_bytes = least(450 * NEAP_MIB, round_up(spec->total_bytes / 64));
		if (!spec->capacity_given || !spec->gpu_name[0])
			snprintf(spec->gpu_name, sizeof spec->gpu_name, "Simulated GPU %llu MiB",
				 (unsigned long long)(spec->total_bytes / NEAP_MIB));
		spec->capacity_given = true;
		snprintf(spec->world, sizeof spec->world, "mem-%llu", (unsigned long long)spec->total_bytes);
	}
	if (spec->reserved_given)
		spec->reserved_bytes = round_up(extra->reserved);
	if (spec->context_given)
		spec->context_bytes = round_up(extra->context);
	if (spec->reserved_bytes + spec->context_bytes >= spec->total_bytes)
		return neap_fail(
			err, NEAP_EPARSE,
			"NEAP_SIM: a device of %llu bytes has no room after %llu reserved and %llu for a context",
			(unsigned long long)spec->total_bytes, (unsigned long long)spec->reserved_bytes,
			(unsigned long long)spec->context_bytes);
	if (extra->world[0]) {
		memcpy(spec->world, extra->world, sizeof spec->world);
	} else if (spec->device_count > 1) {
		char name[SIM_WORLD_CAPACITY - 8];

		snprintf(name, sizeof name, "%.40s", spec->world);
		snprintf(spec->world, sizeof spec->world, "%ux%s", spec->device_count, name);
	}
	return NEAP_OK;
}

/* Takes the next word from *rest; false at the end. A word that is too long is truncated, and then matches
 * nothing. */
static bool next_word(const char *whole, const char **rest, struct word *ret_word)
{
	const char *start = *rest;
	size_t length;

	if (!start)
		return false;
	length = strcspn(start, ",");
	*rest = start[length] ? start + length + 1 : NULL;
	ret_word->column = (uint32_t)(start - whole) + 1;
	snprintf(ret_word->text, sizeof ret_word->text, "%.*s", (int)least(length, sizeof ret_word->text - 1), start);
	return true;
}

enum neap_status sim_spec_parse(const char *text, struct sim_spec *ret_spec, struct neap_error *err)
{
	struct sim_spec spec = {0};
	struct extra extra = {0};
	struct word word = {.text = SIM_DEFAULT_SPEC, .column = 1};
	const char *rest = text;
	enum neap_status status = take_profile(&word, &spec, err);

	spec.capacity_given = spec.count_given = false;
	if (status)
		return status;
	if (text && *text) {
		while (next_word(text, &rest, &word)) {
			if (!word.text[0])
				return neap_fail_at(err, 1, word.column,
						    "NEAP_SIM: an empty word; expected a profile or key=value");
			status = take_word(&word, &spec, &extra, err);
			if (status)
				return status;
		}
	} else {
		spec.capacity_given = spec.count_given = true;
	}
	if (extra.total_given && !spec.capacity_given)
		spec.gpu_name[0] = '\0'; /* no profile was named */
	status = derive(&spec, &extra, err);
	if (!status)
		*ret_spec = spec;
	return status;
}
