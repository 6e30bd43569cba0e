/* charlm/checkpoint.c: see the header. */
#include "checkpoint.h"

#include "fail.h"

#include "neap/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char MAGIC[8] = "charlm1";

static bool is_folder(const struct checkpoints *all) { return all->keep_last || all->keep_best; }

struct header {
	char magic[8];
	uint64_t step;
	struct checkpoint_key key;
};

/* The tensors that make up the state, one after another: value and both moments of each parameter. */
static struct tensor state_of(const struct model *model, size_t index)
{
	const struct parameter *parameter = &model->parameters[index / 3];

	return index % 3 ? parameter->moments[index % 3 - 1] : parameter->value;
}

static size_t state_count(const struct model *model) { return 3 * model->parameter_count; }

static size_t largest_bytes(const struct model *model)
{
	size_t largest = 0;

	for (size_t i = 0; i < model->parameter_count; i++)
		if (model->parameters[i].value.bytes > largest)
			largest = model->parameters[i].value.bytes;
	return largest;
}

static uint64_t sum_of(uint64_t sum, const void *bytes, size_t length)
{
	const unsigned char *at = bytes;

	for (size_t i = 0; i < length; i++)
		sum = (sum ^ at[i]) * UINT64_C(0x100000001B3);
	return sum;
}

/* It is written and compared as bytes: there must be no padding in it. */
_Static_assert(sizeof(struct header) == 8 + 8 + 5 * 8 + 6 * 4, "the header has padding");

static struct header header_of(const struct checkpoints *all, uint64_t step)
{
	struct header header = {.step = step, .key = all->key};

	memcpy(header.magic, MAGIC, sizeof header.magic);
	return header;
}

/* Makes the checkpoint durable, and only then removes older ones. */
static enum neap_status commit(const struct checkpoints *all, struct neap_checkpoint *checkpoint,
			       struct neap_error *err)
{
	const struct neap_retention_options keep = {.keep_last = all->keep_last,
						    .keep_best = all->keep_best,
						    .metric = all->keep_best ? "loss" : NULL,
						    .mode = NEAP_METRIC_MIN,
						    .delete_rest = true};
	struct neap_error retention = {0};

	if (!is_folder(all))
		return neap_checkpoint_commit(checkpoint, err);
	enum neap_status status = neap_checkpoint_commit_and_retain(checkpoint, &keep, NULL, &retention, err);

	if (retention.status != NEAP_OK)
		fprintf(stderr, "charlm: old checkpoints stay: %s\n", retention.message);
	return status;
}

/* Writes header, tensors and sum; `room` holds the largest tensor. */
static enum neap_status write_state(struct neap_checkpoint *checkpoint, const char *path, const struct header *header,
				    struct model *model, void *room, struct neap_error *err)
{
	uint64_t sum = sum_of(0, header, sizeof *header);
	enum neap_status status = neap_checkpoint_write(checkpoint, header, sizeof *header, err);
	struct neap_error error;

	for (size_t i = 0; !status && i < state_count(model); i++) {
		struct tensor tensor = state_of(model, i);

		gpu_read(model->gpu, room, tensor.at, tensor.bytes);
		status = gpu_take_error(model->gpu, &error);
		if (status)
			return fail(err, status, "saving checkpoint %s: %s", path, error.message);
		sum = sum_of(sum, room, tensor.bytes);
		status = neap_checkpoint_write(checkpoint, room, tensor.bytes, err);
	}
	return status == NEAP_OK ? neap_checkpoint_write(checkpoint, &sum, sizeof sum, err) : status;
}

enum neap_status checkpoint_save(const struct checkpoints *all, struct model *model, uint64_t step, double loss,
				 struct neap_error *err)
{
	struct header header = header_of(all, step);
	struct neap_checkpoint *checkpoint = NULL;
	char path[4096];
	int length;

	if (is_folder(all) && mkdir(all->path, 0777) < 0 && errno != EEXIST)
		return fail(err, NEAP_EIO, "making a folder for checkpoint %s: %s", all->path, strerror(errno));
	if (is_folder(all))
		length = snprintf(path, sizeof path, "%s/step=%06" PRIu64 "-loss=%.6f.ckpt", all->path, step, loss);
	else
		length = snprintf(path, sizeof path, "%s", all->path);
	if (length < 0 || (size_t)length >= sizeof path)
		return fail(err, NEAP_EINVAL, "saving checkpoint %s: the path is too long", all->path);

	void *room = malloc(largest_bytes(model));

	if (!room)
		return fail(err, NEAP_ENOMEM, "saving checkpoint %s: the host is out of memory", path);
	enum neap_status status = neap_checkpoint_begin(path, &checkpoint, err);
	if (!status)
		status = write_state(checkpoint, path, &header, model, room, err);
	if (!status)
		status = commit(all, checkpoint, err);
	else
		neap_checkpoint_abort(checkpoint);
	free(room);
	return status;
}

/* The path of the newest that is whole. NEAP_ENOENT: there is none, or no folder. */
static enum neap_status find_newest(const char *folder, char *path, size_t room, struct neap_error *err)
{
	const struct neap_retention_options remove_nothing = {0};
	const struct neap_retention_entry *newest = NULL;
	struct neap_retention_plan plan;
	enum neap_status status = neap_retention_plan_make(folder, &remove_nothing, 0, &plan, err);

	if (status)
		return status;
	for (size_t i = 0; i < plan.count; i++) {
		const struct neap_retention_entry *entry = &plan.entries[i];

		if (entry->step != NEAP_STEP_UNKNOWN && !(entry->facts & NEAP_CHECKPOINT_UNFINISHED) &&
		    (!newest || entry->step > newest->step))
			newest = entry;
	}
	if (!newest)
		status = fail(err, NEAP_ENOENT, "looking for a checkpoint %s: there is none in it", folder);
	else if ((size_t)snprintf(path, room, "%s/%s", folder, newest->name) >= room)
		status = fail(err, NEAP_EINVAL, "looking for a checkpoint %s: the path is too long", folder);
	neap_retention_plan_fini(&plan);
	return status;
}

/* Reads what write_state wrote. Returns what is wrong with it, or NULL. */
static const char *read_state(FILE *file, const struct checkpoints *all, struct model *model, void *room,
			      uint64_t *ret_step)
{
	struct header header, expected;
	uint64_t sum, stored;

	if (fread(&header, sizeof header, 1, file) != 1 || memcmp(header.magic, MAGIC, sizeof MAGIC) != 0)
		return "this is not a checkpoint of charlm";
	expected = header_of(all, header.step);
	if (memcmp(&header, &expected, sizeof header) != 0)
		return "it belongs to a run with another text, model, seed, batch, rate or number of steps";
	sum = sum_of(0, &header, sizeof header);
	for (size_t i = 0; i < state_count(model); i++) {
		struct tensor tensor = state_of(model, i);

		if (fread(room, 1, tensor.bytes, file) != tensor.bytes)
			return "it ends too early";
		sum = sum_of(sum, room, tensor.bytes);
		gpu_write(model->gpu, tensor.at, room, tensor.bytes);
	}
	if (fread(&stored, sizeof stored, 1, file) != 1 || stored != sum || fgetc(file) != EOF)
		return "its check sum is wrong: the file is damaged";
	if (header.step > all->key.total_steps)
		return "its step lies beyond the last one";
	*ret_step = header.step;
	return NULL;
}

enum neap_status checkpoint_load(const struct checkpoints *all, struct model *model, uint64_t *ret_step,
				 struct neap_error *err)
{
	const char *path = all->path;
	enum neap_status status = NEAP_OK;
	char newest[4096];

	if (is_folder(all)) {
		status = find_newest(all->path, newest, sizeof newest, err);
		path = newest;
	}
	if (status)
		return status;

	void *room = malloc(largest_bytes(model));
	FILE *file = fopen(path, "rb");

	if (!file) {
		status = errno == ENOENT ? NEAP_ENOENT : NEAP_EIO;
		fail(err, status, "opening checkpoint %s: %s", path, strerror(errno));
	} else if (!room) {
		status = fail(err, NEAP_ENOMEM, "reading checkpoint %s: the host is out of memory", path);
	} else {
		const char *wrong = read_state(file, all, model, room, ret_step);

		status = wrong ? fail(err, NEAP_EPARSE, "reading checkpoint %s: %s", path, wrong)
			       : gpu_take_error(model->gpu, err);
	}
	if (file)
		fclose(file);
	free(room);
	return status;
}
