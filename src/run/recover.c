/* run/recover.c: see the header. */
#include "run/recover.h"

#include "base/file.h"
#include "run/run_stage.h"

#include <dirent.h>

static enum neap_status put_result(const char *folder, const char *path, struct neap_history **history,
				   struct neap_error *err)
{
	char result_path[4200];
	struct neap_result result = {0};
	enum neap_status status = neap_path_join(result_path, sizeof result_path, folder, "result.json");
	if (!status)
		status = neap_result_read(result_path, &result, err);
	if (!status && !*history)
		status = neap_history_open(path, history, NULL, err);
	if (!status)
		status = neap_history_put(*history, "", "", &result, err);
	neap_result_fini(&result);
	return status;
}

void neap_run_recover_all(const char *state, const char *path, struct neap_history **history,
			  void (*report)(const char *folder, const struct neap_error *err),
			  struct neap_run_unfinished *ret_unfinished)
{
	struct neap_run_unfinished unfinished = {0};
	char runs[4096], folder[4096];
	DIR *entries = neap_path_join(runs, sizeof runs, state, "runs") ? NULL : opendir(runs);
	for (struct dirent *entry; entries && (entry = readdir(entries));) {
		struct neap_error err = {0};
		if (entry->d_name[0] == '.' || neap_path_join(folder, sizeof folder, runs, entry->d_name))
			continue;
		/* The run still runs, or is lost: this cuts its recordings */
		if (neap_run_stage_read(folder) == NEAP_STAGE_BEGAN &&
		    neap_run_stage_recover_locked(folder, NULL) == NEAP_EBUSY)
			unfinished.running++;
		if (neap_run_stage_is_kept(folder))
			continue;
		enum neap_status status = neap_run_stage_recover_locked(folder, &err);
		unfinished.draining += status == NEAP_EBUSY;
		if (status == NEAP_EBUSY || status == NEAP_ESTATE) /* the run is not over, or is lost */
			continue;
		if (!status)
			status = put_result(folder, path, history, &err);
		if (!status)
			neap_run_stage_forget(folder);
		else
			report(folder, &err);
	}
	if (entries)
		closedir(entries);
	*ret_unfinished = unfinished;
}
