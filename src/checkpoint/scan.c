/* checkpoint/scan.c: see the header.
 *
 *   names  ->  candidates, measured  ->  what links and `latest` files name  ->  which number counts  ->  the metric
 *
 * The metric: that of the options, or the well-known one that most checkpoints carry, in their names or beside them;
 * of two carried equally often one of the validation, and a loss, goes first. Values beside a checkpoint are exact
 * and win over its name's.
 */
#include "checkpoint/scan.h"

#include "checkpoint/listing.h"
#include "checkpoint/open_files.h"
#include "checkpoint/sidecar.h"

#include "base/buffer.h"
#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIDECAR_MOST_BYTES (16 * 1024 * 1024)
#define POINTER_MOST_BYTES 4096
#define METRICS_MOST       64

struct scan {
	int fd;
	uint64_t device;
	const struct neap_retention_options *options;
	struct neap_retention_plan *plan;
	struct checkpoint_listing listing;
	struct neap_map open_files;
	struct neap_map links; /* keys of the files that symbolic links name */
	size_t *of_name;       /* index in the listing -> number of the entry, from 1; 0: none */
	unsigned char *counts; /* of each entry: which number its name has (enum checkpoint_count) */
	size_t room;
	size_t kinds[CHECKPOINT_COUNTS];
	enum checkpoint_count kind; /* that most names count */
};

/* --- candidates --- */

static struct neap_retention_entry *new_entry(struct scan *scan)
{
	struct neap_retention_plan *plan = scan->plan;

	if (plan->count == scan->room) {
		size_t room = scan->room ? 2 * scan->room : 64;
		void *larger = realloc(plan->entries, room * sizeof(*plan->entries));
		if (!larger)
			return NULL;
		plan->entries = larger;
		larger = realloc(scan->counts, room);
		if (!larger)
			return NULL;
		scan->counts = larger;
		scan->room = room;
	}
	plan->entries[plan->count] = (struct neap_retention_entry){.step = NEAP_STEP_UNKNOWN, .metric = (double)NAN};
	return &plan->entries[plan->count];
}

static bool is_pinned(const struct scan *scan, const char *name)
{
	char pin[512];

	for (size_t i = 0; i < scan->options->pin_count; i++)
		if (!strcmp(scan->options->pins[i], name) || fnmatch(scan->options->pins[i], name, 0) == 0)
			return true;
	int needed = scan->listing.beside_count ? snprintf(pin, sizeof(pin), "%s.pin", name) : 0;
	return needed > 0 && (size_t)needed < sizeof(pin) &&
	       checkpoint_listing_find(&scan->listing, pin) < scan->listing.count;
}

static bool add_candidate(struct scan *scan, size_t index, enum checkpoint_class class)
{
	const char *name = scan->listing.names[index];
	struct checkpoint_extent extent;
	enum checkpoint_count kind;

	if (checkpoint_measure(scan->fd, name, scan->device, &scan->open_files, &extent) != 0)
		return true; /* gone, or nothing that can be a checkpoint */
	struct neap_retention_entry *entry = new_entry(scan);
	if (!entry || !(entry->name = strdup(name)))
		return false;
	scan->of_name[index] = ++scan->plan->count;
	entry->bytes = extent.bytes;
	entry->freed_bytes = extent.freed_bytes;
	entry->modified_ns = extent.modified_ns;
	entry->device = extent.device;
	entry->inode = extent.inode;
	entry->facts = extent.facts;
	scan->counts[scan->plan->count - 1] = CHECKPOINT_COUNTS;
	if (class == CHECKPOINT_TEMPORARY) {
		entry->facts |= NEAP_CHECKPOINT_UNFINISHED;
		return true;
	}
	if (is_pinned(scan, name))
		entry->facts |= NEAP_CHECKPOINT_PINNED;
	if (scan->options->resume && !strcmp(scan->options->resume, name))
		entry->facts |= NEAP_CHECKPOINT_RESUME;
	bool counted = checkpoint_count_read(name, &kind, &entry->step);
	if (counted) {
		scan->counts[scan->plan->count - 1] = (unsigned char)kind;
		scan->kinds[kind]++;
	}
	if (checkpoint_is_named(name))
		entry->facts |= NEAP_CHECKPOINT_NAMED;
	else if (!scan->options->pattern && !counted && !checkpoint_has_metric(name))
		entry->facts |= NEAP_CHECKPOINT_UNNUMBERED;
	return true;
}

/* What a symbolic link names stays, inside this folder or under it: somebody goes through the link. */
static bool add_link(struct scan *scan, const char *name)
{
	struct stat info;

	scan->plan->link_count++;
	if (fstatat(scan->fd, name, &info, 0) < 0)
		return true; /* leads nowhere */
	return neap_map_put(&scan->links, checkpoint_file_key(info.st_dev, info.st_ino), 1);
}

/* DT_REG and so on; DT_UNKNOWN: it is gone. */
static unsigned char type_of(const struct scan *scan, size_t index)
{
	struct stat info;

	if (scan->listing.types[index] != DT_UNKNOWN)
		return scan->listing.types[index];
	return fstatat(scan->fd, scan->listing.names[index], &info, AT_SYMLINK_NOFOLLOW) < 0 ? DT_UNKNOWN
											     : IFTODT(info.st_mode);
}

static enum neap_status find_candidates(struct scan *scan, struct neap_error *err)
{
	scan->of_name = calloc(scan->listing.count + 1, sizeof(*scan->of_name));
	bool fine = scan->of_name != NULL;

	for (size_t i = 0; fine && i < scan->listing.count; i++) {
		const char *name = scan->listing.names[i];
		unsigned char type = name[0] == '.' ? DT_UNKNOWN : type_of(scan, i);

		if (type == DT_LNK)
			fine = add_link(scan, name);
		if (type != DT_REG && type != DT_DIR)
			continue;
		enum checkpoint_class class = checkpoint_classify(name, type == DT_DIR, scan->options->pattern);
		if (class != CHECKPOINT_OTHER)
			fine = add_candidate(scan, i, class);
	}
	return fine ? NEAP_OK : neap_fail(err, NEAP_ENOMEM, "out of host memory");
}

/* --- which number counts --- */

static void set_steps(struct scan *scan)
{
	for (size_t kind = 1; kind < CHECKPOINT_COUNTS; kind++)
		if (scan->kinds[kind] > scan->kinds[scan->kind])
			scan->kind = (enum checkpoint_count)kind;
	for (size_t i = 0; i < scan->plan->count; i++)
		if (scan->counts[i] != scan->kind)
			scan->plan->entries[i].step = NEAP_STEP_UNKNOWN;
}

/* --- what a restart resumes from --- */

/* A file `latest` holds a name ("global_step500") or a number ("500"); TensorFlow's `checkpoint` has it in quotes. */
static void read_pointer(struct scan *scan, const char *name)
{
	char text[POINTER_MOST_BYTES + 1], *rest = NULL;
	uint64_t step;
	int fd = openat(scan->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return;
	ssize_t length = read(fd, text, POINTER_MOST_BYTES);
	close(fd);
	if (length <= 0)
		return;
	text[length] = '\0';
	for (char *word = strtok_r(text, " \t\r\n\"'", &rest); word; word = strtok_r(NULL, " \t\r\n\"'", &rest)) {
		const char *slash = strrchr(word, '/');
		size_t index = checkpoint_listing_find(&scan->listing, slash && slash[1] ? slash + 1 : word);

		if (scan->of_name[index]) /* it has one more than the listing */
			scan->plan->entries[scan->of_name[index] - 1].facts |= NEAP_CHECKPOINT_RESUME;
		size_t digits = strspn(word, "0123456789");
		if (word[digits] || digits == 0 || digits > 18)
			continue;
		step = strtoull(word, NULL, 10);
		for (size_t i = 0; i < scan->plan->count; i++)
			if (scan->plan->entries[i].step == step)
				scan->plan->entries[i].facts |= NEAP_CHECKPOINT_RESUME;
	}
}

static void find_resumed(struct scan *scan)
{
	static const char *const pointers[] = {"latest", "latest_checkpointed_iteration.txt", "checkpoint",
					       "last_checkpoint", "latest.txt"};

	for (size_t i = 0; i < scan->plan->count; i++) {
		struct neap_retention_entry *entry = &scan->plan->entries[i];

		if (neap_map_get(&scan->links, checkpoint_file_key(entry->device, entry->inode), &(uint64_t){0}))
			entry->facts |= NEAP_CHECKPOINT_RESUME;
	}
	for (size_t i = 0; i < sizeof(pointers) / sizeof(*pointers); i++)
		if (checkpoint_listing_find(&scan->listing, pointers[i]) < scan->listing.count)
			read_pointer(scan, pointers[i]);
}

/* --- the metric --- */

struct tally {
	struct {
		char name[CHECKPOINT_WORD_ROOM];
		size_t count, last; /* last: the entry that was counted last, from 1 */
	} metrics[METRICS_MOST];
	size_t count, entry;
};

static void tally_word(struct tally *tally, const char *word)
{
	char metric[CHECKPOINT_WORD_ROOM];
	size_t i = 0;

	if (!checkpoint_metric_known(word, metric))
		return;
	while (i < tally->count && strcmp(tally->metrics[i].name, metric))
		i++;
	if (i == METRICS_MOST)
		return;
	if (i == tally->count)
		strcpy(tally->metrics[tally->count++].name, metric);
	if (tally->metrics[i].last != tally->entry)
		tally->metrics[i].count++;
	tally->metrics[i].last = tally->entry;
}

/* What stands beside an entry of one metric. */
struct beside {
	double top, deep; /* in the file itself; the last one deeper in it */
	bool has_top, has_deep;
	bool unreadable; /* some of it cannot be understood */
};

/* One look at what stands beside an entry. */
struct look {
	struct tally *tally; /* NULL: nothing is counted */
	const char *metric;  /* whose value is taken; "" none */
	struct beside *beside;
};

static void take_number(void *context, const char *word, unsigned depth, double value)
{
	struct look *look = context;

	if (look->tally)
		tally_word(look->tally, word);
	if (strcmp(word, look->metric))
		return;
	if (depth == 1) {
		look->beside->top = value;
		look->beside->has_top = true;
	} else {
		look->beside->deep = value;
		look->beside->has_deep = true;
	}
}

/* Visits one file of metrics. False: it is there and cannot be read or understood. */
static bool visit_file(int folder_fd, const char *name, const struct checkpoint_sidecar_visitor *visitor)
{
	struct neap_buffer text = {0};
	const char *dot = strrchr(name, '.');
	bool fine = false;
	char chunk[16384];
	ssize_t n;
	int fd = openat(folder_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT;
	while ((n = read(fd, chunk, sizeof(chunk))) > 0 || (n < 0 && errno == EINTR)) {
		if (n > 0)
			neap_buffer_append(&text, chunk, (size_t)n);
		if (text.length > SIDECAR_MOST_BYTES)
			break;
	}
	close(fd);
	if (n == 0 && !text.failed) {
		const char *string = neap_buffer_string(&text);
		enum neap_status status = dot && !strcmp(dot, ".json")
						  ? checkpoint_json_scan(string, text.length, visitor, NULL)
						  : checkpoint_yaml_scan(string, text.length, visitor, NULL);
		fine = status == NEAP_OK;
	}
	neap_buffer_fini(&text);
	return fine;
}

/* Visits all that stands beside an entry, and in it. False: some of it cannot be understood. */
static bool visit_sidecars(const struct scan *scan, const struct neap_retention_entry *entry,
			   const struct checkpoint_sidecar_visitor *visitor)
{
	static const char *const inside[] = {"metrics.json",      "metrics.yaml",     "metrics.yml",
					     "eval_results.json", "all_results.json", "trainer_state.json"};
	char name[512];
	bool fine = true;

	for (size_t n = 0; scan->listing.beside_count && checkpoint_sidecar_name(entry->name, n, name, sizeof(name));
	     n++)
		if (checkpoint_listing_find(&scan->listing, name) < scan->listing.count)
			fine = visit_file(scan->fd, name, visitor) && fine;
	if (!(entry->facts & NEAP_CHECKPOINT_FOLDER))
		return fine;
	int fd = openat(scan->fd, entry->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	for (size_t i = 0; fd >= 0 && i < sizeof(inside) / sizeof(*inside); i++)
		fine = visit_file(fd, inside[i], visitor) && fine;
	if (fd >= 0)
		close(fd);
	return fine;
}

/* Of two that are carried equally often the smaller one is taken; what is left is the alphabet. */
static unsigned preference(const char *metric)
{
	static const char *const first[] = {"val", "eval", "dev", "test"};
	size_t length = strlen(metric);
	unsigned rank = 2;

	for (size_t i = 0; i < sizeof(first) / sizeof(*first); i++)
		if (!strncmp(metric, first[i], strlen(first[i])))
			rank = 0;
	return rank + (length < 4 || strcmp(metric + length - 4, "loss") != 0);
}

static bool is_preferred(const struct tally *tally, size_t a, size_t b)
{
	size_t more = tally->metrics[a].count, most = tally->metrics[b].count;
	unsigned rank = preference(tally->metrics[a].name), other = preference(tally->metrics[b].name);

	if (more != most)
		return more > most;
	return rank != other ? rank < other : strcmp(tally->metrics[a].name, tally->metrics[b].name) < 0;
}

/* The one that most carry so far; "" none. */
static const char *preferred(const struct tally *tally)
{
	size_t best = 0;

	for (size_t i = 1; i < tally->count; i++)
		if (is_preferred(tally, i, best))
			best = i;
	return tally->count > 0 ? tally->metrics[best].name : "";
}

static void look_beside(const struct scan *scan, size_t index, const char *metric, struct tally *tally,
			struct beside *beside)
{
	struct look look = {.tally = tally, .metric = metric, .beside = beside};
	struct checkpoint_sidecar_visitor visitor = {.number = take_number, .context = &look};

	beside->has_top = beside->has_deep = false;
	beside->unreadable = !visit_sidecars(scan, &scan->plan->entries[index], &visitor);
}

/* The values of plan->metric beside the entries. */
static void look_beside_all(const struct scan *scan, struct beside *beside)
{
	for (size_t i = 0; i < scan->plan->count; i++)
		look_beside(scan, i, scan->plan->metric, NULL, &beside[i]);
}

/* Which metric most carry. Its values are taken on the way, as far as the first entry lets it be guessed: each file
 * is read once, unless others carry another one. */
static void infer_metric(struct scan *scan, struct beside *beside)
{
	struct neap_retention_plan *plan = scan->plan;
	char guess[CHECKPOINT_WORD_ROOM] = "";
	struct tally tally = {0};
	struct checkpoint_number number;

	for (size_t i = 0; i < plan->count; i++) {
		const char *rest = plan->entries[i].name;

		tally.entry = i + 1;
		while (checkpoint_number_next(&rest, &number))
			tally_word(&tally, number.word);
		look_beside(scan, i, guess, &tally, &beside[i]);
		if (!guess[0] && tally.count > 0) {
			strcpy(guess, preferred(&tally));
			look_beside(scan, i, guess, NULL, &beside[i]);
		}
	}
	strcpy(plan->metric, preferred(&tally));
	plan->metric_inferred = plan->metric[0];
	if (strcmp(plan->metric, guess))
		look_beside_all(scan, beside);
}

static void measure_metric(const struct scan *scan, struct neap_retention_entry *entry, const struct beside *found)
{
	double value = (double)NAN;

	if (entry->facts & NEAP_CHECKPOINT_UNFINISHED)
		return;
	int in_name = checkpoint_metric_read(entry->name, scan->plan->metric, &value);
	bool beside = found->has_top || found->has_deep;
	if (found->unreadable || (in_name == 2 && !beside)) {
		entry->facts |= NEAP_CHECKPOINT_UNREADABLE; /* it may be the best */
	} else if (beside || in_name == 1) {
		entry->metric = found->has_top ? found->top : found->has_deep ? found->deep : value;
		entry->facts |= NEAP_CHECKPOINT_MEASURED;
		entry->facts &= ~(uint32_t)NEAP_CHECKPOINT_UNNUMBERED; /* a file beside it tells what it is */
	}
}

static enum neap_status find_metric(struct scan *scan, struct neap_error *err)
{
	const struct neap_retention_options *options = scan->options;
	struct neap_retention_plan *plan = scan->plan;
	struct beside *beside = calloc(plan->count + 1, sizeof(*beside));

	if (!beside)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory");
	if (options->metric) {
		checkpoint_word_normalize(options->metric, strlen(options->metric), plan->metric);
		look_beside_all(scan, beside);
	} else {
		infer_metric(scan, beside);
	}
	plan->mode = plan->metric[0] ? options->mode : NEAP_METRIC_MODE_UNKNOWN;
	if (plan->metric[0] && !plan->mode) {
		plan->mode = checkpoint_metric_known(plan->metric, NULL);
		plan->mode_inferred = plan->mode != NEAP_METRIC_MODE_UNKNOWN;
	}
	for (size_t i = 0; plan->metric[0] && i < plan->count; i++)
		measure_metric(scan, &plan->entries[i], &beside[i]);
	free(beside);
	if (!plan->metric[0] && options->metric)
		return neap_fail(err, NEAP_EINVAL, "\"%.60s\" is no metric's name", options->metric);
	return NEAP_OK;
}

enum neap_status checkpoint_scan(int fd, const struct neap_retention_options *options,
				 struct neap_retention_plan *plan, struct neap_error *err)
{
	struct scan scan = {.fd = fd, .options = options, .plan = plan};
	char *real = NULL;
	struct stat info;
	enum neap_status status = NEAP_OK;

	if (fstat(fd, &info) < 0)
		return neap_fail_errno(err, errno, "looking at %.150s", plan->folder);
	scan.device = info.st_dev;
	real = realpath(plan->folder, NULL);
	/* first: what is opened after this, nobody had when it was found to be an old file */
	status = checkpoint_open_files(real ? real : plan->folder, &scan.open_files, err);
	if (status == NEAP_OK)
		status = checkpoint_listing_read(fd, &scan.listing, err);
	if (status == NEAP_OK)
		status = find_candidates(&scan, err);
	if (status != NEAP_OK)
		goto out;
	set_steps(&scan);
	find_resumed(&scan);
	if (options->keep_best)
		status = find_metric(&scan, err);
out:
	if (status != NEAP_OK)
		neap_error_prefix(err, "%.150s", plan->folder);
	free(real);
	checkpoint_listing_fini(&scan.listing);
	neap_map_fini(&scan.open_files);
	neap_map_fini(&scan.links);
	free(scan.of_name);
	free(scan.counts);
	return status;
}
