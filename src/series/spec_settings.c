/* series/spec_settings.c: see spec_settings.h. */
#include "series/spec_settings.h"

#include "base/units.h"

#include <string.h>

static bool is_needs(const char *text)
{
	uint64_t bytes;
	return !strcmp(text, "device") || !strcmp(text, "none") ||
	       (strlen(text) < NEAP_UNITS_CAPACITY && !neap_size_parse(text, &bytes, NULL));
}

static bool is_size(const char *text)
{
	uint64_t bytes;
	return !neap_size_parse(text, &bytes, NULL) && bytes > 0;
}

static bool is_duration(const char *text)
{
	uint64_t ns;
	return !neap_duration_parse(text, &ns, NULL);
}

static bool is_count(const char *text)
{
	uint64_t count;
	return !neap_u64_parse(text, &count, NULL) && count <= 100;
}

static bool is_bound(const char *text)
{
	uint64_t count;
	return !strcmp(text, "steady") || (!neap_u64_parse(text, &count, NULL) && count > 0);
}

static bool is_switch(const char *text) { return !strcmp(text, "true") || !strcmp(text, "false"); }
static bool is_text(const char *text) { return *text != '\0'; }
/* neap expands neither of them. */
static bool is_folder(const char *text) { return *text && *text != '~' && *text != '$'; }
static bool is_any(const char *text) { return text != NULL; } /* checked later, by the code that uses it */

#define SIZE     is_size, "a size above 0 such as 20GiB"
#define DURATION is_duration, "a duration such as 90s, 15m or 2h"
#define COUNT    is_count, "a whole number from 0 to 100"
#define AT(name) offsetof(struct neap_experiment, name)

const struct neap_setting neap_settings[] = {
	{"needs", AT(needs), is_needs, "a size such as 20GiB, device or none", NULL, false},
	{"device", AT(device), is_text, "a device's number or UUID", "--only-device", false},
	{"directory", AT(directory), is_folder, "a folder, ~ and variables written out", "--directory", false},
	{"time_limit", AT(time_limit), DURATION, "--time-limit", false},
	{"max_steps", AT(max_steps), is_bound, "a whole number above 0, or steady", "--max-steps", false},
	{"max_device", AT(max_device), SIZE, "--max-device", false},
	{"max_host", AT(max_host), SIZE, "--max-host", false},
	{"min_disk", AT(min_disk), SIZE, "--min-disk", false},
	{"grace", AT(grace), DURATION, "--grace", false},
	{"wait_limit", AT(wait_limit), DURATION, "--wait-limit", false},
	{"drain_limit", AT(drain_limit), DURATION, "--drain-limit", false},
	{"on_oom", AT(on_oom), is_any, "rules", "--on-oom", false},
	{"retries", AT(retries), COUNT, NULL, false}, /* without rules there is nothing to retry with */
	{"retry_failed", AT(retry_failed), COUNT, NULL, false},
	{"clear_memory_on_start", AT(clear_memory_on_start), is_switch, "true or false", NULL, false},
	{"compare_to", AT(compare_to), is_any, "the name of another experiment", NULL, true},
	{0},
};

char **neap_setting_text(const struct neap_setting *setting, struct neap_experiment *experiment)
{
	return (char **)((char *)experiment + setting->offset);
}

const char *neap_setting_value(const struct neap_setting *setting, const struct neap_experiment *experiment)
{
	return *(char *const *)((const char *)experiment + setting->offset);
}
