/* series/series_check.h: checks a series file by the supervisor's own rules, before anything starts: every {NAME} of
 * a command is a parameter, and on_oom is a ladder over the parameters. Pure. */
#ifndef NEAP_SERIES_SERIES_CHECK_H
#define NEAP_SERIES_SERIES_CHECK_H

#include "series/spec.h"

/* Errors: NEAP_EPARSE with the line of the experiment; the message begins with "FILE:LINE: ". */
enum neap_status neap_series_check(const struct neap_spec *spec, const char *file, struct neap_error *err);

#endif
