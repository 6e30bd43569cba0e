/* estimate/view_places.c: see view_internal.h. */
#include "estimate/view_internal.h"

#include "base/error.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PLACES_MOST 256

extern char **environ;

/* Adds the nearest folder above `path` that exists, if it can be written to. */
static void add(struct neap_view_places *places, const char *path, size_t length)
{
	char text[PATH_MAX], whole[PATH_MAX];
	struct stat about;
	if (length == 0 || length >= sizeof text || places->count == PLACES_MOST)
		return;
	memcpy(text, path, length);
	text[length] = '\0';
	while (!realpath(text, whole) || stat(whole, &about) || !S_ISDIR(about.st_mode)) {
		char *slash = strrchr(text, '/');
		if (!slash || slash == text)
			return;
		*slash = '\0';
	}
	if (access(whole, W_OK | X_OK))
		return;
	for (size_t i = 0; i < places->count; i++)
		if (strcmp(places->items[i], whole) == 0)
			return;
	char *copy = strdup(whole);
	if (copy)
		places->items[places->count++] = copy;
}

/* "--out=/data/x", "PYTHONPATH=/a:/b" */
static void add_all_of(struct neap_view_places *places, const char *text)
{
	while (*text) {
		size_t length = strcspn(text, "=:,; \n");
		if (text[0] == '/')
			add(places, text, length);
		text += length + (text[length] != '\0');
	}
}

enum neap_status neap_view_places_find(char *const *argv, struct neap_view_places *ret_places, struct neap_error *err)
{
	static const char *const usual[] = {"/tmp", "/var/tmp", "/dev/shm"};
	struct neap_view_places places = {.items = calloc(PLACES_MOST, sizeof *places.items)};
	char here[PATH_MAX];
	if (!places.items)
		return neap_fail(err, NEAP_ENOMEM, "out of memory");
	if (getcwd(here, sizeof here))
		add(&places, here, strlen(here));
	for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
		add(&places, usual[i], strlen(usual[i]));
	for (size_t i = 0; argv && argv[i]; i++) {
		add_all_of(&places, argv[i]);
		if (argv[i][0] != '-' && argv[i][0] != '/' && strchr(argv[i], '/'))
			add(&places, argv[i], strlen(argv[i]));
	}
	for (char **variable = environ; *variable; variable++)
		add_all_of(&places, *variable);
	*ret_places = places;
	return NEAP_OK;
}

void neap_view_places_fini(struct neap_view_places *places)
{
	for (size_t i = 0; i < places->count; i++)
		free(places->items[i]);
	free(places->items);
	*places = (struct neap_view_places){0};
}

mode_t neap_view_mode(const char *path, const struct stat *about)
{
	mode_t owner = 0;
	if (about->st_uid == geteuid())
		return about->st_mode & 07777;
	owner |= access(path, R_OK) == 0 ? S_IRUSR : 0;
	owner |= access(path, W_OK) == 0 ? S_IWUSR : 0;
	owner |= access(path, X_OK) == 0 ? S_IXUSR : 0;
	return (about->st_mode & 07077) | owner;
}

enum neap_status neap_view_place_make(int upper_fd, const char *lower, const char *path, struct neap_error *err)
{
	size_t skip = strcmp(lower, "/") ? strlen(lower) : 0;
	char text[PATH_MAX];
	if (strlen(path) >= sizeof text)
		return NEAP_OK;
	for (size_t end = skip + 1; strlen(path) > skip; end++) {
		struct stat about;
		if (path[end] != '/' && path[end] != '\0')
			continue;
		memcpy(text, path, end);
		text[end] = '\0';
		if (stat(text, &about) || !S_ISDIR(about.st_mode))
			return NEAP_OK; /* it was deleted meanwhile */
		mode_t mode = neap_view_mode(text, &about);
		if ((mkdirat(upper_fd, text + skip + 1, 0700) && errno != EEXIST) ||
		    fchmodat(upper_fd, text + skip + 1, mode, 0))
			return neap_fail_errno(err, errno, "%s: making it in the view", text);
		if (path[end] == '\0')
			break;
	}
	return NEAP_OK;
}

enum neap_status neap_view_move_folders(const char *folder, struct neap_error *err)
{
	static const char *const names[] = {"TMPDIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "TRITON_CACHE_DIR"};
	char path[PATH_MAX];
	enum neap_status status = neap_path_join(path, sizeof path, folder, "tmp");
	if (!status)
		status = neap_make_folder(path, 0700, err);
	for (size_t i = 0; !status && i < sizeof names / sizeof *names; i++)
		if (setenv(names[i], path, 1))
			status = neap_fail(err, NEAP_ENOMEM, "out of memory");
	return status;
}

enum neap_status neap_view_find_temporary(const char *folder, struct neap_error *err)
{
	const char *temporary = getenv("TMPDIR");
	if (!temporary || !*temporary)
		temporary = "/tmp";
	return access(temporary, W_OK) && errno == EROFS ? neap_view_move_folders(folder, err) : NEAP_OK;
}
