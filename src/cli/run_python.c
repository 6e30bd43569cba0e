/* cli/run_python.c: see run_python.h. */
#include "cli/run_python.h"

#include "base/buffer.h"
#include "base/file.h"
#include "base/units.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOTES 16 /* more would be the same */

/* The launcher's folder: in the build tree, or where it is installed, as seen from this program. */
static bool find_launch(char path[PATH_MAX])
{
	static const char *const places[] = {"../python/launch", "../share/neap/python/launch"};
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
		return !strchr(path, ':'); /* such a path cannot be in PYTHONPATH */
	}
	return false;
}

char *run_python_path(void)
{
	char launch[PATH_MAX], *entry = NULL;
	const char *attach = getenv("NEAP_ATTACH"), *before = getenv("PYTHONPATH");
	if ((attach && !strcmp(attach, "0")) || !find_launch(launch))
		return NULL;
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

static bool is_python(const char *word)
{
	const char *slash = strrchr(word, '/'), *name = slash ? slash + 1 : word;
	return !strncmp(name, "python", 6) && strspn(name + 6, "0123456789.tdmu") == strlen(name + 6);
}

const char *run_python_isolated(char *const *command)
{
	if (!command[0] || !is_python(command[0]))
		return NULL;
	for (size_t i = 1; command[i] && command[i][0] == '-' && command[i][1] && command[i][1] != '-'; i++) {
		for (const char *letter = command[i] + 1; *letter; letter++) {
			if (*letter == 'I')
				return "-I";
			if (*letter == 'E')
				return "-E";
			if (*letter == 'S')
				return "-S";
			if (strchr("cm", *letter)) /* the program; all else is its own */
				return NULL;
			if (strchr("WX", *letter)) { /* with a value, in this word or the next */
				i += !letter[1] && command[i + 1];
				break;
			}
		}
	}
	return NULL;
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
