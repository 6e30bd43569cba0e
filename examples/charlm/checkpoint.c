/* charlm/checkpoint.c: see the header. */
#include "checkpoint.h"

#include "neap/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char MAGIC[8] = "charlm1";

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

static struct header header_of(const struct checkpoint_key *key, uint64_t step)
{
	struct header header = {.step = step, .key = *key};

	memcpy(header.magic, MAGIC, sizeof(header.magic));
	return header;
}

static enum neap_status fail(struct neap_error *err, enum neap_status status, const char *what, const char *path,
			     const char *why)
{
	*err = (struct neap_error){.status = status};
	snprintf(err->message, sizeof(err->message), "%s checkpoint %s: %s", what, path, why);
	return status;
}

/* The checkpoint is durable when this has succeeded; only then does an older one go. */
static enum neap_status commit(struct neap_checkpoint *checkpoint, const struct neap_retention_options *keep,
			       struct neap_error *err)
{
	struct neap_error retention = {0};

	if (!keep)
		return neap_checkpoint_commit(checkpoint, err);
	enum neap_status status = neap_checkpoint_commit_and_retain(checkpoint, keep, NULL, &retention, err);

	if (retention.status != NEAP_OK)
		fprintf(stderr, "charlm: old checkpoints stay: %s\n", retention.message);
	return status;
}

static enum neap_status save(const char *path, const struct neap_retention_options *keep,
			     const struct checkpoint_key *key, struct model *model, uint64_t step,
			     struct neap_error *err)
{
	struct header header = header_of(key, step);
	uint64_t sum = sum_of(0, &header, sizeof(header));
	struct gpu *gpu = model->gpu;
	struct neap_checkpoint *checkpoint = NULL;
	unsigned char *bytes = malloc(largest_bytes(model));
	enum neap_status status;

	if (!bytes)
		return fail(err, NEAP_ENOMEM, "saving", path, "the host is out of memory");
	status = neap_checkpoint_begin(path, &checkpoint, err);
	if (status == NEAP_OK)
		status = neap_checkpoint_write(checkpoint, &header, sizeof(header), err);
	for (size_t i = 0; status == NEAP_OK && i < state_count(model); i++) {
		struct tensor tensor = state_of(model, i);

		gpu_read(gpu, bytes, tensor.at, tensor.bytes);
		struct neap_error error;

		status = gpu_take_error(gpu, &error);
		if (status != NEAP_OK) {
			fail(err, status, "saving", path, error.message);
			break;
		}
		sum = sum_of(sum, bytes, tensor.bytes);
		status = neap_checkpoint_write(checkpoint, bytes, tensor.bytes, err);
	}
	if (status == NEAP_OK)
		status = neap_checkpoint_write(checkpoint, &sum, sizeof(sum), err);
	if (status == NEAP_OK)
		status = commit(checkpoint, keep, err);
	else
		neap_checkpoint_abort(checkpoint);
	free(bytes);
	return status;
}

enum neap_status checkpoint_save(const char *path, const struct checkpoint_key *key, struct model *model,
				 uint64_t step, struct neap_error *err)
{
	return save(path, NULL, key, model, step, err);
}

enum neap_status checkpoint_save_in(const char *folder, uint64_t keep_last, uint64_t keep_best,
				    const struct checkpoint_key *key, struct model *model, uint64_t step, double loss,
				    struct neap_error *err)
{
	const struct neap_retention_options keep = {.keep_last = keep_last,
						    .keep_best = keep_best,
						    .metric = keep_best ? "loss" : NULL,
						    .mode = NEAP_METRIC_MIN,
						    .delete_rest = true};
	char path[4096];

	if (mkdir(folder, 0777) < 0 && errno != EEXIST)
		return fail(err, NEAP_EIO, "making a folder for", folder, strerror(errno));
	int length = snprintf(path, sizeof(path), "%s/step=%06" PRIu64 "-loss=%.6f.ckpt", folder, step, loss);
	if (length < 0 || (size_t)length >= sizeof(path))
		return fail(err, NEAP_EINVAL, "saving", folder, "the path is too long");
	return save(path, &keep, key, model, step, err);
}

enum neap_status checkpoint_newest(const char *folder, char *path, size_t room, struct neap_error *err)
{
	const struct neap_retention_options nothing_goes = {0};
	const struct neap_retention_entry *newest = NULL;
	struct neap_retention_plan plan;
	enum neap_status status = neap_retention_plan_make(folder, &nothing_goes, 0, &plan, err);

	if (status != NEAP_OK)
		return status;
	for (size_t i = 0; i < plan.count; i++) {
		const struct neap_retention_entry *entry = &plan.entries[i];

		if (entry->step != NEAP_STEP_UNKNOWN && !(entry->facts & NEAP_CHECKPOINT_UNFINISHED) &&
		    (!newest || entry->step > newest->step))
			newest = entry;
	}
	if (!newest)
		status = fail(err, NEAP_ENOENT, "looking for a", folder, "there is none in it");
	else if ((size_t)snprintf(path, room, "%s/%s", folder, newest->name) >= room)
		status = fail(err, NEAP_EINVAL, "looking for a", folder, "the path is too long");
	neap_retention_plan_fini(&plan);
	return status;
}

static enum neap_status load(FILE *file, const char *path, const struct checkpoint_key *key, struct model *model,
			     unsigned char *bytes, uint64_t *ret_step, struct neap_error *err)
{
	struct header header, expected;
	uint64_t sum, stored;

	if (fread(&header, sizeof(header), 1, file) != 1 || memcmp(header.magic, MAGIC, sizeof(MAGIC)) != 0)
		return fail(err, NEAP_EPARSE, "reading", path, "this is not a checkpoint of charlm");
	expected = header_of(key, header.step);
	if (memcmp(&header, &expected, sizeof(header)) != 0)
		return fail(err, NEAP_EINVAL, "reading", path,
			    "it belongs to a run with another text, model, seed, batch, rate or number of steps");
	sum = sum_of(0, &header, sizeof(header));
	for (size_t i = 0; i < state_count(model); i++) {
		struct tensor tensor = state_of(model, i);

		if (fread(bytes, 1, tensor.bytes, file) != tensor.bytes)
			return fail(err, NEAP_EPARSE, "reading", path, "it ends too early");
		sum = sum_of(sum, bytes, tensor.bytes);
		gpu_write(model->gpu, tensor.at, bytes, tensor.bytes);
	}
	if (fread(&stored, sizeof(stored), 1, file) != 1 || stored != sum || fgetc(file) != EOF)
		return fail(err, NEAP_EPARSE, "reading", path, "its check sum is wrong: the file is damaged");
	if (header.step > key->total_steps)
		return fail(err, NEAP_EPARSE, "reading", path, "its step lies beyond the last one");
	*ret_step = header.step;
	return gpu_take_error(model->gpu, err);
}

enum neap_status checkpoint_load(const char *path, const struct checkpoint_key *key, struct model *model,
				 uint64_t *ret_step, struct neap_error *err)
{
	unsigned char *bytes = NULL;
	enum neap_status status;
	FILE *file = fopen(path, "rb");

	if (!file)
		return fail(err, errno == ENOENT ? NEAP_ENOENT : NEAP_EIO, "opening", path, strerror(errno));
	bytes = malloc(largest_bytes(model));
	if (bytes)
		status = load(file, path, key, model, bytes, ret_step, err);
	else
		status = fail(err, NEAP_ENOMEM, "reading", path, "the host is out of memory");
	free(bytes);
	fclose(file);
	return status;
}
