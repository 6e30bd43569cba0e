/* run/memory_settings.c: see the header. */
#include "run/memory_settings.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OURS "expandable_segments:True"

/* The length of the first setting in `text`: up to a comma that is in no bracket. */
static size_t setting_length(const char *text)
{
	int depth = 0;
	size_t length = 0;
	for (; text[length] && (text[length] != ',' || depth > 0); length++)
		depth += text[length] == '[' ? 1 : text[length] == ']' && depth > 0 ? -1 : 0;
	return length;
}

/* Whether this setting is of that name: spaces do not count, as for PyTorch. */
static bool is_named(const char *setting, size_t length, const char *name)
{
	size_t i = 0;
	for (; i < length && setting[i] != ':'; i++) {
		if (setting[i] == ' ')
			continue;
		if (setting[i] != *name)
			return false;
		name++;
	}
	return !*name;
}

static bool has_value(const char *setting, size_t length, const char *value)
{
	const char *colon = memchr(setting, ':', length);
	if (!colon)
		return false;
	for (const char *at = colon + 1; at < setting + length; at++) {
		if (*at == ' ')
			continue;
		if (*at != *value)
			return false;
		value++;
	}
	return !*value;
}

static bool is_blank(const char *setting, size_t length) { return strspn(setting, " ") >= length; }

char *neap_memory_settings_merge(const char *existing, struct neap_memory_settings *ret_settings)
{
	const char *next = existing ? existing : "";
	char *merged = malloc(sizeof OURS + 1 + strlen(next));
	if (!merged)
		return NULL;
	/* Ours come first: behind an unclosed bracket they would belong to that bracket's value. */
	size_t used = (size_t)sprintf(merged, "%s", OURS);
	while (*next) {
		size_t length = setting_length(next);
		if (is_named(next, length, "expandable_segments")) {
			ret_settings->replaced |= !has_value(next, length, "True");
		} else if (!is_blank(next, length)) {
			ret_settings->max_split |= is_named(next, length, "max_split_size_mb");
			ret_settings->other_backend |=
				is_named(next, length, "backend") && !has_value(next, length, "native");
			used += (size_t)sprintf(merged + used, ",%.*s", (int)length, next);
		}
		next += length;
		next += *next == ',';
	}
	return merged;
}

static enum neap_status add(struct neap_memory_settings *settings, const char *name, const char *existing,
			    struct neap_error *err)
{
	char *merged = neap_memory_settings_merge(existing, settings), *entry = NULL;
	if (merged)
		entry = malloc(strlen(name) + strlen(merged) + 2);
	if (entry) {
		sprintf(entry, "%s=%s", name, merged);
		settings->entries[settings->count++] = entry;
	}
	free(merged);
	return entry ? NEAP_OK : neap_fail(err, NEAP_ENOMEM, "out of memory");
}

enum neap_status neap_memory_settings_make(struct neap_memory_settings *ret_settings, struct neap_error *err)
{
	const char *cuda = getenv("PYTORCH_CUDA_ALLOC_CONF"), *any = getenv("PYTORCH_ALLOC_CONF");
	*ret_settings = (struct neap_memory_settings){0};
	enum neap_status status = add(ret_settings, "PYTORCH_CUDA_ALLOC_CONF", cuda ? cuda : any, err);
	if (!status && any)
		status = add(ret_settings, "PYTORCH_ALLOC_CONF", any, err);
	if (!status && !(ret_settings->entries[ret_settings->count] = strdup("NEAP_ATTENTION=efficient")))
		return neap_fail(err, NEAP_ENOMEM, "out of memory");
	ret_settings->count += !status;
	return status;
}

void neap_memory_settings_fini(struct neap_memory_settings *settings)
{
	for (size_t i = 0; i < settings->count; i++)
		free(settings->entries[i]);
	*settings = (struct neap_memory_settings){0};
}
