/* series/series_folder.c: see series_folder.h.
 *
 *   the newest folder of this file    without --resume            with --resume
 *   ------------------------------    ------------------------    --------------------
 *   none, or an empty journal         begin in it                 begin in it
 *   unfinished                        refused, naming --resume    continue
 *   finished                          begin in the next number    show its report again
 */
#include "series/series_folder.h"

#include "base/error.h"
#include "base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NUMBERS 100000

enum neap_status neap_series_folder_name(const struct neap_spec *spec, const struct neap_series_options *options,
					 char folder[4096], struct neap_error *err)
{
	int length;
	if (options->folder) {
		length = snprintf(folder, 4096, "%s", options->folder);
	} else {
		char *real = realpath(options->file, NULL);
		const char *path = real ? real : options->file;
		uint32_t hash = (uint32_t)neap_spec_hash(path, strlen(path));
		length = snprintf(folder, 4096, "%s/series/%s-%08" PRIx32, options->state_folder, spec->name, hash);
		free(real);
	}
	if (length <= 0 || length > 3800)
		return neap_fail(err, NEAP_EINVAL, "the series' folder has too long a name");
	return NEAP_OK;
}

static void numbered(const char *base, unsigned number, char folder[4096])
{
	if (number < 2)
		snprintf(folder, 4096, "%s", base);
	else
		snprintf(folder, 4096, "%s-%u", base, number);
}

static bool has_journal(const char *folder)
{
	char path[4096];
	return !neap_path_join(path, sizeof path, folder, "journal") && !access(path, F_OK);
}

static enum neap_status replay(const struct neap_spec *spec, const char *folder, struct neap_journal *journal,
			       struct neap_series_state *state, struct neap_error *err)
{
	enum neap_status status = neap_series_state_replay(state, spec, neap_journal_records(journal), err);
	if (status == NEAP_EPARSE)
		neap_error_prefix(err, "the journal in %.100s", folder);
	return status;
}

enum neap_status neap_series_folder_open(const struct neap_spec *spec, const struct neap_series_options *options,
					 char ret_folder[4096], struct neap_journal **ret_journal,
					 struct neap_series_state *state, struct neap_error *err)
{
	char base[4096], folder[4096], next[4096];
	struct neap_journal *journal = NULL;
	enum neap_status status = neap_series_folder_name(spec, options, base, err);
	for (unsigned number = 1; !status && number < NUMBERS; number++) {
		numbered(base, number, folder);
		numbered(base, number + 1, next);
		if (!options->folder && has_journal(next))
			continue;
		status = neap_journal_open(folder, &journal, err);
		if (status)
			break;
		size_t count = json_array_size(neap_journal_records(journal));
		bool finished = neap_journal_is_finished(journal);
		if (finished && !options->resume && !options->folder) {
			neap_journal_close(journal);
			journal = NULL;
			continue;
		}
		if (finished && !options->resume)
			status = neap_fail(err, NEAP_EEXIST,
					   "%.120s holds a finished series: name another folder, or see its report "
					   "again with --resume",
					   folder);
		else if (count && !options->resume)
			status = neap_fail(err, NEAP_EBUSY,
					   "%.120s holds an unfinished series: continue with --resume, or start "
					   "another with --folder DIR",
					   folder);
		else
			status = replay(spec, folder, journal, state, err);
		break;
	}
	if (!status && !journal)
		status = neap_fail(err, NEAP_EEXIST, "%.120s: too many finished series, remove some", base);
	if (status) {
		neap_journal_close(journal);
		return status;
	}
	strcpy(ret_folder, folder);
	*ret_journal = journal;
	return NEAP_OK;
}
