/* series/series_folder.h: which folder a series goes on in, or begins in. */
#ifndef NEAP_SERIES_SERIES_FOLDER_H
#define NEAP_SERIES_SERIES_FOLDER_H

#include "series/journal.h"
#include "series/series.h"
#include "series/series_state.h"

/* The folder that a file's series is kept in, the first of them. Touches nothing. Errors: NEAP_EINVAL. */
enum neap_status neap_series_folder_name(const struct neap_spec *spec, const struct neap_series_options *options,
					 char folder[4096], struct neap_error *err);

/* Opens the journal there and replays it into `state` (initialised). Errors: see neap_series_run. */
enum neap_status neap_series_folder_open(const struct neap_spec *spec, const struct neap_series_options *options,
					 char ret_folder[4096], struct neap_journal **ret_journal,
					 struct neap_series_state *state, struct neap_error *err);

#endif
