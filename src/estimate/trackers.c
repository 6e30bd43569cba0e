/* estimate/trackers.c: see trackers.h. */
#include "estimate/trackers.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* If the user has set a value that is offline already, it stays. */
static const struct tracker {
	const char *variable, *offline, *also[2];
} trackers[] = {
	{"WANDB_MODE", "offline", {"disabled", "dryrun"}},
	{"COMET_START_ONLINE", "0", {"false", "False"}},
	{"NEPTUNE_MODE", "offline", {"disabled", "debug"}},
	{"CLEARML_OFFLINE_MODE", "1", {"true", "True"}},
};

static bool is_local(const char *uri)
{
	return strncmp(uri, "file:", 5) == 0 || strncmp(uri, "sqlite:", 7) == 0 ||
	       (!strstr(uri, "://") && strncmp(uri, "databricks", 10) != 0 && strcmp(uri, "uc") != 0);
}

void neap_trackers_set_offline(const char *folder)
{
	static const char *const stores[] = {"MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"};
	for (size_t i = 0; i < sizeof trackers / sizeof *trackers; i++) {
		const char *value = getenv(trackers[i].variable);
		bool offline = value && (!strcmp(value, trackers[i].also[0]) || !strcmp(value, trackers[i].also[1]));
		if (!offline)
			setenv(trackers[i].variable, trackers[i].offline, 1);
	}
	for (size_t i = 0; i < 2; i++) {
		const char *value = getenv(stores[i]);
		char uri[4200];
		snprintf(uri, sizeof uri, "file:%s/mlruns", folder);
		if (value && *value && !is_local(value))
			setenv(stores[i], uri, 1);
	}
}
