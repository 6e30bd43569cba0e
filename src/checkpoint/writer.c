/* checkpoint/writer.c: see the header. */
#include "checkpoint/writer.h"

#include "checkpoint/scan_internal.h"

#include "base/array.h"
#include "base/error.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRIES_MOST   8 /* how many files are tried until one has a record */
#define COUNT(array) (sizeof array / sizeof(*(array)))

/* A program that writes checkpoints. A writer has nothing that its row leaves out. */
struct writer {
	const char *name; /* as messages name it */

	/* How its files are recognised. */
	const char *mark;              /* a file that the folder of each checkpoint has */
	const char *part;              /* how names of files in such a folder end */
	const char *unfinished;        /* within the name of a checkpoint that is not finished */
	const char *unfinished_folder; /* the same, at the beginning of a folder's name */
	const char *metrics[3];        /* files of metrics in a checkpoint's folder */

	/* How it records the best. Of the checkpoints with a record the newest counts: by step, or by age if they are
	 * files. */
	const char *extension; /* how the names of checkpoint files with a record end; NULL: they are folders */
	const char *record;    /* the file in such a folder */
	bool (*read)(int folder_fd, const char *path, struct checkpoint_records *records);
	bool records_above; /* when training ends, it writes the record into the folder of the checkpoints as well */
	bool names_best;    /* a record that names no best is worth nothing */
};

static const struct writer writers[] = {
	{.name = "any program", .metrics = {"metrics.json", "metrics.yaml", "metrics.yml"}},
	{
		/* transformers 4 and 5: TrainerState, TrainingArguments; older ones wrote into a temporary folder */
		.name = "Hugging Face's Trainer",
		.unfinished_folder = "tmp-checkpoint-",
		.metrics = {"eval_results.json", "all_results.json", "trainer_state.json"},
		.record = "trainer_state.json",
		.read = checkpoint_read_trainer_state,
		.records_above = true,
		.names_best = true,
	},
	{
		/* lightning 2.6: the state of its ModelCheckpoint callbacks */
		.name = "Lightning",
		.extension = ".ckpt",
		.read = checkpoint_read_lightning,
		.names_best = true,
	},
	{
		/* Orbax 0.12. A step's folder is named by its number alone. Its manager saves the metrics that it may
		 * choose by, but not which one it uses, nor whether low or high is better. */
		.name = "Orbax",
		.mark = "_CHECKPOINT_METADATA",
		.unfinished = ".orbax-checkpoint-tmp",
		.metrics = {"metrics/metrics"},
		.record = "metrics/metrics",
		.read = checkpoint_read_orbax,
	},
	{.name = "torch.distributed.checkpoint", .mark = ".metadata", .part = ".distcp"}, /* PyTorch 2.15 */
	{.name = "DeepSpeed", .part = "_model_states.pt"},
};

static bool ends_with(const char *name, const char *end)
{
	size_t length = strlen(name), wanted = strlen(end);

	return length >= wanted && !strcmp(name + length - wanted, end);
}

/* --- recognition --- */

bool checkpoint_is_unfinished(const char *name, bool folder)
{
	for (size_t i = 0; i < COUNT(writers); i++) {
		const char *within = writers[i].unfinished, *begin = writers[i].unfinished_folder;
		if ((within && strstr(name, within)) || (folder && begin && !strncmp(name, begin, strlen(begin))))
			return true;
	}
	return false;
}

bool checkpoint_is_marked(int folder_fd, const char *name)
{
	char path[512];

	for (size_t i = 0; i < COUNT(writers); i++) {
		if (!writers[i].mark)
			continue;
		int needed = snprintf(path, sizeof path, "%s/%s", name, writers[i].mark);
		if (needed > 0 && (size_t)needed < sizeof path &&
		    faccessat(folder_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			return true;
	}
	return false;
}

static bool is_in(const struct checkpoint_listing *names, const char *name)
{
	return checkpoint_listing_find(names, name) < names->count;
}

bool checkpoint_is_one(const struct checkpoint_listing *names)
{
	for (size_t i = 0; i < COUNT(writers); i++) {
		const struct writer *writer = &writers[i];
		bool one = !writer->part && writer->mark;

		for (size_t n = 0; writer->part && !one && n < names->count; n++)
			one = ends_with(names->names[n], writer->part);
		if (one && (!writer->mark || is_in(names, writer->mark)))
			return true;
	}
	return false;
}

const char *checkpoint_metrics_file(size_t n)
{
	for (size_t i = 0; i < COUNT(writers); i++)
		for (size_t k = 0; k < COUNT(writers[i].metrics) && writers[i].metrics[k]; k++)
			if (n-- == 0)
				return writers[i].metrics[k];
	return NULL;
}

/* --- which files have a record --- */

struct place {
	struct neap_retention_entry *entry;
	const char *name;           /* of the part */
	uint64_t step, modified_ns; /* step: 0 for files */
};

static int newest_first(const void *left, const void *right)
{
	const struct place *a = left, *b = right;

	if (a->step != b->step)
		return a->step < b->step ? 1 : -1;
	return (a->modified_ns < b->modified_ns) - (a->modified_ns > b->modified_ns);
}

static bool may_have_record(const struct writer *writer, const struct neap_retention_part *part)
{
	return writer->extension ? !part->folder && ends_with(part->name, writer->extension) : part->folder;
}

/* Lists the writer's checkpoints, the newest first. */
static size_t list_places(const struct scan *scan, const struct writer *writer, struct place *places)
{
	size_t count = 0;

	for (size_t i = 0; i < scan->plan->count; i++) {
		struct neap_retention_entry *entry = &scan->plan->entries[i];
		uint64_t step = writer->extension || entry->step == NEAP_STEP_UNKNOWN ? 0 : entry->step;
		size_t k = 0;

		while (k < entry->part_count && !may_have_record(writer, &entry->parts[k]))
			k++;
		if (k < entry->part_count && !(entry->facts & NEAP_CHECKPOINT_UNFINISHED))
			places[count++] = (struct place){entry, entry->parts[k].name, step, entry->modified_ns};
	}
	qsort(places, count, sizeof *places, newest_first);
	return count;
}

/* --- records --- */

static void drop(struct checkpoint_records *records, size_t index)
{
	free(records->at[index].scores);
	memmove(&records->at[index], &records->at[index + 1], (--records->count - index) * sizeof *records->at);
}

/* Reads the record of one checkpoint, or of the folder itself ("" as name). False: no memory. */
static bool read_place(const struct scan *scan, const struct writer *writer, const char *name,
		       struct checkpoint_records *records)
{
	const char *file = writer->record ? writer->record : "";
	size_t from = records->count;
	char path[320];

	snprintf(path, sizeof path, "%.255s%s%s", name, name[0] && file[0] ? "/" : "", file);
	bool fine = writer->read(scan->fd, path, records);
	for (size_t i = from; i < records->count; i++) {
		struct checkpoint_record *record = &records->at[i];

		record->trainer = writer->name;
		strcpy(record->source, path);
		record->here = record->best[0] && is_in(&scan->listing, record->best);
	}
	return fine;
}

/* A trainer may keep the best by one metric in this folder and the best by another metric in another folder, under
 * the same names. So if one record is of this folder, drops the records of other folders. */
static void keep_own(const struct scan *scan, struct checkpoint_records *records, size_t from)
{
	const char *slash = scan->real ? strrchr(scan->real, '/') : NULL;
	bool any = false;

	for (size_t i = from; slash && i < records->count; i++)
		any |= !strcmp(records->at[i].folder, slash + 1);
	for (size_t i = records->count; any && i-- > from;)
		if (strcmp(records->at[i].folder, slash + 1) != 0)
			drop(records, i);
}

/* Adds the newest record of a writer; it may have several parts. False: no memory. */
static bool read_newest(const struct scan *scan, const struct writer *writer, struct place *places,
			struct checkpoint_records *records)
{
	size_t from = records->count, count = list_places(scan, writer, places), tries = 0;
	bool fine = true;

	for (size_t i = 0; fine && i < count && tries < TRIES_MOST && records->count == from; i++) {
		if (checkpoint_entry_torn(scan->fd, places[i].entry))
			continue;
		fine = read_place(scan, writer, places[i].name, records);
		tries++;
	}
	size_t before = records->count;
	if (fine && writer->records_above)
		fine = read_place(scan, writer, "", records);
	if (before > from && before < records->count)
		drop(records, records->at[before].until_step >= records->at[from].until_step ? from : before);
	for (size_t i = records->count; writer->names_best && i-- > from;)
		if (!records->at[i].best[0])
			drop(records, i);
	keep_own(scan, records, from);
	return fine;
}

enum neap_status checkpoint_records_read(const struct scan *scan, struct checkpoint_records *ret_records,
					 struct neap_error *err)
{
	struct place *places = calloc(scan->plan->count + 1, sizeof *places);
	bool fine = places;

	for (size_t i = 0; fine && i < COUNT(writers); i++)
		fine = !writers[i].read || read_newest(scan, &writers[i], places, ret_records);
	free(places);
	return fine ? NEAP_OK : neap_fail(err, NEAP_ENOMEM, "out of host memory");
}

void checkpoint_records_fini(struct checkpoint_records *records)
{
	for (size_t i = 0; i < records->count; i++)
		free(records->at[i].scores);
	free(records->at);
	*records = (struct checkpoint_records){0};
}

bool checkpoint_record_score(const struct checkpoint_record *record, const char *name, double *ret_value)
{
	for (size_t i = 0; i < record->score_count; i++)
		if (!strcmp(record->scores[i].name, name)) {
			*ret_value = record->scores[i].value;
			return true;
		}
	return false;
}

bool checkpoint_record_add(struct checkpoint_records *records, const struct checkpoint_record *record)
{
	if (!neap_array_grow(&records->at, records->count, sizeof *records->at))
		return false;
	records->at[records->count++] = *record;
	return true;
}

bool checkpoint_base_copy(char to[256], const char *path, size_t length)
{
	const char *name = path + length;

	while (name > path && name[-1] != '/' && name[-1] != '\\')
		name--;
	length -= (size_t)(name - path);
	if (length == 0 || length >= 256 || memchr(name, '\0', length))
		return false;
	memcpy(to, name, length);
	to[length] = '\0';
	return true;
}
