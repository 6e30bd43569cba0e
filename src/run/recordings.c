/* run/recordings.c: see recordings.h. */
#include "run/recordings.h"

#include "base/file.h"
#include "trace/record.h"

#include <dirent.h>
#include <string.h>

/* Skips `prefix` and the number after it. NULL: the name does not begin so. */
static const char *skip_number(const char *name, const char *prefix)
{
	size_t length = strlen(prefix);
	if (strncmp(name, prefix, length) != 0)
		return NULL;
	size_t digits = strspn(name + length, "0123456789");
	return digits ? name + length + digits : NULL;
}

static bool is_named(const char *name, const char *prefix)
{
	const char *rest = skip_number(name, "start-");
	if (rest && *rest++ != '.')
		return false;
	rest = skip_number(rest ? rest : name, prefix);
	return rest && !*rest;
}

bool neap_recording_is_named(const char *name) { return is_named(name, "record."); }

bool neap_recording_is_part(const char *name)
{
	return is_named(name, "record.") || is_named(name, "stacks.") || is_named(name, "history.") ||
	       is_named(name, "kept.");
}

void neap_recordings_cut(const char *folder)
{
	char path[4200];
	DIR *entries = opendir(folder);
	/* Cutting replaces the file under the same name. If readdir returns it again, there is nothing more to cut.
	 */
	for (struct dirent *entry; entries && (entry = readdir(entries));)
		if (neap_recording_is_named(entry->d_name) &&
		    !neap_path_join(path, sizeof path, folder, entry->d_name))
			neap_record_cut(path, NULL);
	if (entries)
		closedir(entries);
}
