/* series/spec_settings.h: the settings of an experiment that are a single text. One table has their keys, allowed
 * values, and options of `neap run`.
 */
#ifndef NEAP_SERIES_SPEC_SETTINGS_H
#define NEAP_SERIES_SPEC_SETTINGS_H

#include "series/spec.h"

struct neap_setting {
	const char *key;
	size_t offset; /* where struct neap_experiment has its text */
	bool (*is_good)(const char *text);
	const char *expected; /* describes the allowed values */
	/* The option of `neap run` that gets the text as its value; NULL: only the series uses it. */
	const char *option;
	bool only_experiment; /* not in defaults */
};

/* Ends with a NULL key. */
extern const struct neap_setting neap_settings[];

/* The experiment's text of this setting. */
char **neap_setting_text(const struct neap_setting *setting, struct neap_experiment *experiment);
const char *neap_setting_value(const struct neap_setting *setting, const struct neap_experiment *experiment);

#endif
