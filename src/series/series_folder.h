/* series/series_folder.h: chooses the folder in which a series starts or resumes. */
#ifndef NEAP_SERIES_SERIES_FOLDER_H
#define NEAP_SERIES_SERIES_FOLDER_H

#include "series/journal.h"
#include "series/series.h"
#include "series/series_state.h"

/* The path of the first folder of a file's series. Does not access the disk. Errors: NEAP_EINVAL. */
enum neap_status neap_series_folder_name(const struct neap_spec *spec, const struct neap_series_options *options,
					 char folder[4096], struct neap_error *err);

/* Chooses the folder, opens its journal and replays it into `state` (initialised). Errors: see neap_series_run. */
enum neap_status neap_series_folder_open(const struct neap_spec *spec, const struct neap_series_options *options,
					 char ret_folder[4096], struct neap_journal **ret_journal,
					 struct neap_series_state *state, struct neap_error *err);

#endif
