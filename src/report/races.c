/* report/races.c: reads what the processes of a run left: see races.h. */
#include "report/races.h"

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "store/json.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_BYTES    (32u << 20)
#define ACCEPT_BYTES  (1u << 20)
#define RACES_MOST    10000u
#define PLACES_MOST   65536u
#define LINE_BYTES    8192u
#define KEY_BYTES     2048u
#define NAME_CAPACITY 64u
#define NAMES_MOST    256u /* of kernels that are not seen */

static const char *const kinds[NEAP_RACE_KINDS] = {
	[NEAP_RACE_DATA] = "data", [NEAP_RACE_LIFETIME] = "lifetime", [NEAP_RACE_FREED] = "freed",
	[NEAP_RACE_HOST] = "host", [NEAP_RACE_UNMAPPED] = "unmapped",
};

/* One process's RUN/places.PID while its races are read. */
struct places {
	struct neap_buffer text;
	char **lines; /* by number; NULL: none */
};

static void place_fini(struct neap_race_place *place)
{
	free(place->file);
	free(place->function);
	free(place->inner);
}

static void race_fini(struct neap_race *race)
{
	place_fini(&race->first.place);
	place_fini(&race->second.place);
	place_fini(&race->allocated);
	place_fini(&race->freed);
	free(race->first.name);
	free(race->second.name);
	free(race->key);
}

static void names_fini(struct neap_race_names *names)
{
	for (size_t i = 0; i < names->count; i++)
		free(names->list[i]);
	free(names->list);
}

void neap_races_fini(struct neap_races *races)
{
	for (size_t i = 0; i < races->count; i++)
		race_fini(&races->list[i]);
	names_fini(&races->not_seen);
	names_fini(&races->limits);
	free(races->list);
	*races = (struct neap_races){0};
}

/* Whether the path is a regular file: opening anything else may block for ever. */
static bool is_file(const char *path)
{
	struct stat about;
	return !lstat(path, &about) && S_ISREG(about.st_mode);
}

/* --- places --- */

static enum neap_status places_read(const char *folder, const char *name, struct places *places,
				    struct neap_error *err)
{
	char path[4096];
	uint64_t number;
	places->lines = calloc(PLACES_MOST, sizeof *places->lines);
	if (!places->lines)
		return neap_fail(err, NEAP_ENOMEM, "reading races: out of memory");
	if (neap_path_join(path, sizeof path, folder, name) || !is_file(path) ||
	    neap_file_read(path, FILE_BYTES, &places->text, NULL) || !places->text.length)
		return NEAP_OK; /* the process's races have no lines then */
	for (char *next = places->text.data, *line; (line = strsep(&next, "\n")) && next;) {
		char *tab = strchr(line, '\t');
		if (!tab)
			continue;
		*tab = '\0';
		if (!neap_u64_parse(line, &number, NULL) && number < PLACES_MOST)
			places->lines[number] = tab + 1;
	}
	return NEAP_OK;
}

static void places_fini(struct places *places)
{
	free(places->lines);
	neap_buffer_fini(&places->text);
}

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static bool is_library(const char *file)
{
	return strstr(file, "/site-packages/") || strstr(file, "/dist-packages/") || strstr(file, "/lib/python") ||
	       file[0] == '<';
}

/* The innermost frame of the program's own, else the innermost one. A number is the line's number plus 1; 0: none. */
static bool place_read(const struct places *places, uint64_t number, struct neap_race_place *place)
{
	char *text, *chosen[3] = {NULL, NULL, NULL}, *inner = NULL;
	bool inner_is_library = false;
	if (!number || number > PLACES_MOST || !places->lines[number - 1])
		return true;
	char *copy = text = strdup(places->lines[number - 1]);
	if (!copy)
		return false;
	for (bool own = false; !own && text;) {
		char *words[3] = {strsep(&text, "\t"), text ? strsep(&text, "\t") : NULL,
				  text ? strsep(&text, "\t") : NULL};
		if (!words[2])
			break;
		own = !is_library(words[0]);
		if (!chosen[0])
			inner_is_library = !own;
		if (own || !chosen[0])
			memcpy(chosen, words, sizeof chosen);
		if (!inner && asprintf(&inner, "%s:%s", base_of(words[0]), words[1]) < 0)
			inner = NULL;
	}
	if (chosen[0]) {
		place->file = strdup(chosen[0]);
		place->function = strdup(chosen[2]);
		(void)neap_u64_parse(chosen[1], &place->line, NULL);
		place->inner = inner_is_library ? inner : NULL;
		inner = inner_is_library ? NULL : inner;
	}
	free(inner);
	free(copy);
	return !chosen[0] || (place->file && place->function);
}

/* --- one race --- */

static uint64_t number_of(const json_t *object, const char *key)
{
	uint64_t number = 0;
	(void)neap_json_get_number(object, key, &number);
	return number;
}

static bool is_use(const char *use)
{
	return !strcmp(use, "reads") || !strcmp(use, "writes") || !strcmp(use, "uses");
}

static bool side_read(const json_t *from, const struct places *places, struct neap_race_side *side)
{
	const char *use = neap_json_get_text(from, "use");
	if (!is_use(use))
		return false;
	side->on_host = json_is_null(json_object_get(from, "stream"));
	side->stream = number_of(from, "stream");
	side->device = number_of(from, "device");
	snprintf(side->use, sizeof side->use, "%s", use);
	side->name = strdup(neap_json_get_text(from, "name"));
	return side->name && place_read(places, number_of(from, "place"), &side->place);
}

static void put_key(struct neap_buffer *key, const struct neap_race_side *side)
{
	const char *file = side->place.file ? base_of(side->place.file) : "?";
	neap_buffer_format(key, " %s:%s:%s", file, side->place.function ? side->place.function : "?",
			   *side->name ? side->name : "-");
}

static char *key_of(const struct neap_race *race)
{
	struct neap_buffer key = {0};
	neap_buffer_text(&key, kinds[race->kind]);
	put_key(&key, &race->first);
	put_key(&key, &race->second);
	if (neap_buffer_status(&key, NULL)) {
		neap_buffer_fini(&key);
		return NULL;
	}
	return neap_buffer_detach(&key);
}

/* False: out of memory, or the line is no race; the caller frees the parts that were read. */
static bool race_read(const json_t *from, const struct places *places, struct neap_race *race)
{
	const json_t *block = json_object_get(from, "block");
	const char *kind = neap_json_get_text(from, "kind");
	while (race->kind < NEAP_RACE_KINDS && strcmp(kind, kinds[race->kind]))
		race->kind++;
	if (race->kind == NEAP_RACE_KINDS || !side_read(json_object_get(from, "first"), places, &race->first) ||
	    !side_read(json_object_get(from, "second"), places, &race->second))
		return false;
	race->bytes = number_of(from, "bytes");
	race->block_bytes = number_of(block, "bytes");
	race->block_stream = number_of(block, "stream");
	race->block_device = number_of(block, "device");
	race->processes = 1;
	race->key = key_of(race);
	return race->key && place_read(places, number_of(block, "allocated"), &race->allocated) &&
	       place_read(places, number_of(block, "freed"), &race->freed);
}

static bool is_same_place(const struct neap_race_place *a, const struct neap_race_place *b)
{
	return a->line == b->line && !strcmp(a->file ? a->file : "", b->file ? b->file : "");
}

static struct neap_race *find_same(const struct neap_races *races, const struct neap_race *race)
{
	for (size_t i = 0; i < races->count; i++)
		if (!strcmp(races->list[i].key, race->key) &&
		    is_same_place(&races->list[i].first.place, &race->first.place) &&
		    is_same_place(&races->list[i].second.place, &race->second.place))
			return &races->list[i];
	return NULL;
}

static bool add_name(struct neap_race_names *names, const char *name)
{
	for (size_t i = 0; i < names->count; i++)
		if (!strcmp(names->list[i], name))
			return true;
	if (names->count >= NAMES_MOST)
		return true;
	char *copy = strdup(name);
	if (!copy || !neap_array_grow(&names->list, names->count, sizeof *names->list)) {
		free(copy);
		return false;
	}
	names->list[names->count++] = copy;
	return true;
}

static bool add_race(struct neap_races *races, const json_t *from, const struct places *places)
{
	struct neap_race race = {0}, *same;
	if (!race_read(from, places, &race)) {
		race_fini(&race);
		return true; /* skipped */
	}
	same = find_same(races, &race);
	if (same) {
		same->processes += same->last_process != races->processes;
		same->last_process = races->processes;
		race_fini(&race);
		return true;
	}
	if (races->count >= RACES_MOST) {
		race_fini(&race);
		return add_name(&races->limits, "races after the first 10000");
	}
	if (!neap_array_grow(&races->list, races->count, sizeof *races->list)) {
		race_fini(&race);
		return false;
	}
	race.last_process = races->processes;
	races->list[races->count++] = race;
	return true;
}

/* Sets *ret_lost for half a line, and if the process says that lines were lost. */
static bool add_line(struct neap_races *races, const char *line, const struct places *places, bool *ret_lost)
{
	json_t *from = NULL;
	bool good;
	if (strlen(line) >= LINE_BYTES || neap_json_parse("races", line, strlen(line), &from, NULL)) {
		*ret_lost = true;
		return true;
	}
	const char *name = neap_json_get_text(from, "not_seen"), *limit = neap_json_get_text(from, "limit");
	*ret_lost = *ret_lost || number_of(from, "lost");
	if (*name || *limit)
		good = add_name(*name ? &races->not_seen : &races->limits, *name ? name : limit);
	else
		good = add_race(races, from, places);
	json_decref(from);
	return good;
}

/* `start`: the length of the part of the file's name before "races.". */
static enum neap_status process_read(const char *folder, const char *name, int start, struct neap_races *races,
				     struct neap_error *err)
{
	struct neap_buffer text = {0};
	struct places places = {0};
	char path[4096], beside[NAME_CAPACITY];
	bool lost = false;
	enum neap_status status = neap_path_join(path, sizeof path, folder, name);
	if (!status && !is_file(path))
		return NEAP_OK;
	races->processes++;
	snprintf(beside, sizeof beside, "%.*splaces.%s", start, name, name + start + strlen("races."));
	if (!status)
		status = neap_file_read(path, FILE_BYTES, &text, err);
	if (!status)
		status = places_read(folder, beside, &places, err);
	char *next = text.length ? text.data : NULL;
	for (char *line; !status && next && (line = strsep(&next, "\n"));)
		if (*line && !add_line(races, line, &places, &lost))
			status = neap_fail(err, NEAP_ENOMEM, "reading races: out of memory");
	races->lost += lost;
	places_fini(&places);
	neap_buffer_fini(&text);
	races->watched = true;
	return status;
}

/* The offset of "races." in a file's name, which may begin with "start-N."; -1: it is another file. */
static int start_of(const char *name)
{
	int start = 0;
	if (strlen(name) >= NAME_CAPACITY - 8)
		return -1;
	if (!strncmp(name, "start-", 6)) {
		start = 6 + (int)strspn(name + 6, "0123456789");
		if (start == 6 || name[start++] != '.')
			return -1;
	}
	return strncmp(name + start, "races.", 6) ? -1 : start;
}

enum neap_status neap_races_read(const char *folder, struct neap_races *races, struct neap_error *err)
{
	DIR *listing = opendir(folder);
	enum neap_status status = NEAP_OK;
	const struct dirent *entry;
	if (!listing)
		return neap_fail_errno(err, errno, "reading %.200s", folder);
	while (!status && (entry = readdir(listing)))
		if (start_of(entry->d_name) >= 0)
			status = process_read(folder, entry->d_name, start_of(entry->d_name), races, err);
	closedir(listing);
	return status;
}

/* --- those that are known --- */

static bool is_key(const char *line)
{
	size_t length = strcspn(line, " ");
	for (size_t i = 0; i < NEAP_RACE_KINDS; i++)
		if (line[length] && strlen(kinds[i]) == length && !strncmp(line, kinds[i], length))
			return true;
	return false;
}

enum neap_status neap_races_accept(struct neap_races *races, const char *path, struct neap_error *err)
{
	struct neap_buffer text = {0};
	enum neap_status status = neap_file_read(path, ACCEPT_BYTES, &text, err);
	char *next = !status && text.length ? text.data : NULL;
	size_t number = 0;
	for (char *line; !status && next && (line = strsep(&next, "\n"));) {
		line[strcspn(line, "\r")] = '\0';
		number++;
		if (!*line || *line == '#')
			continue;
		if (!is_key(line))
			status = neap_fail(err, NEAP_EPARSE, "%.200s, line %zu: not the key of a race", path, number);
		for (size_t i = 0; i < races->count; i++)
			if (!strcmp(line, races->list[i].key))
				races->list[i].accepted = true;
	}
	neap_buffer_fini(&text);
	return status;
}

size_t neap_races_open(const struct neap_races *races)
{
	size_t open = 0;
	for (size_t i = 0; i < races->count; i++)
		open += !races->list[i].accepted;
	return open;
}

bool neap_races_are_partial(const struct neap_races *races) { return races->lost || races->limits.count; }
