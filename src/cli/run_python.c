/* cli/run_python.c: see run_python.h. */
#include "cli/run_python.h"

#include "base/buffer.h"
#include "base/file.h"
#include "base/units.h"
#include "series/outsider.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOTES 16 /* more would be the same */

/* The launcher's folder, as seen from this program: in the build tree, where it is installed, in a wheel. */
static bool find_launch(char path[PATH_MAX])
{
	static const char *const places[] = {"../python/launch", "../share/neap/python/launch", "launch"};
	char self[PATH_MAX], wanted[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (length <= 0)
		return false;
	self[length] = '\0';
	char *slash = strrchr(self, '/');
	if (!slash)
		return false;
	*slash = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		if (snprintf(wanted, sizeof(wanted), "%s/%s/sitecustomize.py", self, places[i]) >=
			    (int)sizeof(wanted) ||
		    !realpath(wanted, path))
			continue;
		*strrchr(path, '/') = '\0';
		return true;
	}
	return false;
}

char *run_python_path(char *const *command, char ret_trouble[RUN_PYTHON_ROOM])
{
	char launch[PATH_MAX], *entry = NULL;
	const char *attach = getenv("NEAP_ATTACH"), *before = getenv("PYTHONPATH");
	const char *const *words = (const char *const *)command;
	const char *isolated = neap_python_isolated(words);
	ret_trouble[0] = '\0';
	if (attach && !strcmp(attach, "0"))
		return NULL;
	if (isolated)
		snprintf(ret_trouble, RUN_PYTHON_ROOM,
			 "%s %s ignores %s: the program runs, but is not attached (without %s it would be)", words[0],
			 isolated, strcmp(isolated, "-S") ? "PYTHONPATH" : "sitecustomize", isolated);
	if (!find_launch(launch)) {
		if (neap_is_python(words[0]))
			snprintf(ret_trouble, RUN_PYTHON_ROOM,
				 "Python programs are not attached: share/neap/python/launch is missing beside this "
				 "command (install neap whole, by 'meson install')");
		return NULL;
	}
	if (strchr(launch, ':')) {
		snprintf(ret_trouble, RUN_PYTHON_ROOM,
			 "Python programs are not attached: PYTHONPATH cannot hold the path %s, for its ':' (install "
			 "neap, or move its folder, to a path without one)",
			 launch);
		return NULL;
	}
	if (!before)
		before = "";
	size_t length = strlen(launch);
	if (!strncmp(before, launch, length) && (before[length] == ':' || !before[length]))
		return NULL;
	/* An empty part of the path would be the working folder. */
	if (asprintf(&entry, "PYTHONPATH=%s%s%s", launch, before[0] ? ":" : "", before) < 0)
		return NULL;
	return entry;
}

void run_python_print_notes(const char *folder, FILE *out)
{
	DIR *entries = opendir(folder);
	struct dirent *entry;
	size_t printed = 0;
	while (entries && printed < NOTES && (entry = readdir(entries))) {
		struct neap_buffer text = {0};
		char path[PATH_MAX];
		uint64_t pid;
		if (strncmp(entry->d_name, "note.", 5) != 0 ||
		    neap_u64_parse(entry->d_name + 5, &pid, NULL) != NEAP_OK ||
		    neap_path_join(path, sizeof(path), folder, entry->d_name) != NEAP_OK)
			continue;
		if (neap_file_read(path, 65536, &text, NULL) == NEAP_OK) {
			const char *note = neap_buffer_string(&text);
			fprintf(out, "  note      process %s: ", entry->d_name + 5);
			for (size_t i = 0; note[i] && note[i] != '\n'; i++)
				fputc((unsigned char)note[i] < 0x20 || note[i] == 0x7f ? '?' : note[i], out);
			fputc('\n', out);
			printed++;
		}
		neap_buffer_fini(&text);
	}
	if (entries)
		closedir(entries);
}
