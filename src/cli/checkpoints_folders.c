/* cli/checkpoints_folders.c: see the header. */
#include "cli/checkpoints_folders.h"

#include "base/array.h"

#include "cli/print.h"

#include <stdlib.h>
#include <string.h>

#define HINT_LOOKS 2000 /* folders that are looked into for the hint alone */

static bool add(struct checkpoints_folders *folders, const char *name)
{
	char *copy = strdup(name);

	if (!copy || !neap_array_grow(&folders->at, folders->count, sizeof *folders->at)) {
		free(copy);
		return false;
	}
	folders->at[folders->count++] = (struct checkpoints_folder){.name = copy};
	return true;
}

static bool is_listed(const struct checkpoints_folders *folders, const char *name)
{
	for (size_t i = 0; i < folders->count; i++)
		if (!strcmp(folders->at[i].name, name))
			return true;
	return false;
}

/* Looks at the folders below, for the hint. A folder that cannot be read gives none. */
static void look_below(struct checkpoints_folder *folder, const struct neap_retention_options *rules)
{
	struct neap_retention_folders below = {0};

	if (neap_retention_find_folders(folder->name, rules, HINT_LOOKS, &below, NULL) != NEAP_OK)
		return;
	for (size_t i = 0; i < below.count; i++) {
		folder->below_folders += below.at[i].count > 0;
		folder->below_checkpoints += below.at[i].count;
	}
	folder->below_incomplete = below.incomplete;
	neap_retention_folders_fini(&below);
}

/* Lists the folder itself in any case: its plan tells what it is. */
static int list_below(const char *name, const struct neap_retention_options *rules,
		      struct checkpoints_folders *folders, bool *fine)
{
	struct neap_retention_folders below = {0};
	struct neap_error err = {0};

	if (neap_retention_find_folders(name, rules, 0, &below, &err) != NEAP_OK)
		return neap_complain("checkpoints", &err);
	for (size_t i = 0; *fine && i < below.count; i++)
		*fine = is_listed(folders, below.at[i].path) || add(folders, below.at[i].path);
	if (below.incomplete)
		fprintf(stderr,
			"neap checkpoints: below %s not every folder was looked into: some lie too deep or cannot be "
			"read\n",
			NEAP_PRINTABLE(name));
	neap_retention_folders_fini(&below);
	return NEAP_EXIT_OK;
}

int checkpoints_folders_list(const struct neap_arguments *arguments, const struct neap_retention_options *rules,
			     bool recursive, struct checkpoints_folders *ret_folders)
{
	int code = NEAP_EXIT_OK;
	bool fine = true;

	for (size_t i = 0; fine && i < neap_operand_count(arguments); i++) {
		const char *name = neap_operand(arguments, i);

		if (is_listed(ret_folders, name))
			continue;
		fine = add(ret_folders, name);
		if (fine && recursive) {
			int one = list_below(name, rules, ret_folders, &fine);
			code = code ? code : one;
		} else if (fine) {
			look_below(&ret_folders->at[ret_folders->count - 1], rules);
		}
	}
	if (fine)
		return code;
	fputs("neap checkpoints: out of memory\n", stderr);
	return NEAP_EXIT_OS;
}

void checkpoints_folders_fini(struct checkpoints_folders *folders)
{
	for (size_t i = 0; i < folders->count; i++) {
		neap_retention_plan_fini(&folders->at[i].plan);
		free(folders->at[i].name);
	}
	free(folders->at);
	*folders = (struct checkpoints_folders){0};
}
