/* charlm/checkpoint.c: see the header. */
#include "checkpoint.h"

#include "fail.h"

#include "neap/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char MAGIC[8] = "charlm1";

static bool is_folder(const struct checkpoints *all) { return all->keep_last || all->keep_best; }

struct header {
	char magic[8];
	uint64_t step;
	struct checkpoint_key key;
};

enum { PIECE = 1 << 16 }; /* bytes of a tensor on the host at a time */

static size_t piece_bytes(struct tensor tensor, size_t from)
{
	return tensor.bytes - from < PIECE ? tensor.bytes - from : PIECE;
}

/* The tensors that make up the state, one after another: value and both moments of each parameter. */
static struct tensor state_of(const struct model *model, size_t index)
{
	const struct parameter *parameter = &model->parameters[index / 3];

	return index % 3 ? parameter->moments[index % 3 - 1] : parameter->value;
}

static size_t state_count(const struct model *model) { return 3 * model->parameter_count; }

static uint64_t sum_of(uint64_t sum, const void *bytes, size_t length)
{
	const unsigned char *at = bytes;

	for (size_t i = 0; i < length; i++)
		sum = (sum ^ at[i]) * UINT64_C(0x100000001B3);
	return sum;
}

/* It is written and compared as bytes, so there must be no padding in it. */
_Static_assert(sizeof(struct header) == 13 * 8, "the header has padding");

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

/* Writes header, tensors and sum. */
static enum neap_status write_state(struct neap_checkpoint *checkpoint, const struct header *header,
				    struct model *model, struct neap_error *err)
{
	uint64_t sum = sum_of(0, header, sizeof *header);
	enum neap_status status = neap_checkpoint_write(checkpoint, header, sizeof *header, err);
	unsigned char piece[PIECE];

	for (size_t i = 0; i < state_count(model); i++) {
		struct tensor tensor = state_of(model, i);

		for (size_t from = 0; !status && from < tensor.bytes; from += PIECE) {
			size_t bytes = piece_bytes(tensor, from);

			gpu_read(model->gpu, piece, (char *)tensor.at + from, bytes);
			sum = sum_of(sum, piece, bytes);
			status = gpu_take_error(model->gpu, err);
			if (!status)
				status = neap_checkpoint_write(checkpoint, piece, bytes, err);
		}
	}
	return status ? status : neap_checkpoint_write(checkpoint, &sum, sizeof sum, err);
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

	enum neap_status status = neap_checkpoint_begin(path, &checkpoint, err);
	if (!status)
		status = write_state(checkpoint, &header, model, err);
	if (!status)
		return commit(all, checkpoint, err);
	neap_checkpoint_abort(checkpoint);
	return status;
}

/* The path of the newest whole checkpoint. NEAP_ENOENT: there is none, or no folder. */
static enum neap_status find_newest(const char *folder, char *path, size_t capacity, struct neap_error *err)
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
	else if ((size_t)snprintf(path, capacity, "%s/%s", folder, newest->name) >= capacity)
		status = fail(err, NEAP_EINVAL, "looking for a checkpoint %s: the path is too long", folder);
	neap_retention_plan_fini(&plan);
	return status;
}

/* Reads what write_state wrote. Returns what is wrong with it, or NULL. */
static const char *read_state(FILE *file, const struct checkpoints *all, struct model *model, uint64_t *ret_step)
{
	struct header header, expected;
	uint64_t sum, stored;
	unsigned char piece[PIECE];

	if (fread(&header, sizeof header, 1, file) != 1 || memcmp(header.magic, MAGIC, sizeof MAGIC) != 0)
		return "this is not a checkpoint of charlm";
	expected = header_of(all, header.step);
	if (memcmp(&header, &expected, sizeof header) != 0)
		return "it belongs to a run with another text, model, seed, batch, rate or number of steps";
	sum = sum_of(0, &header, sizeof header);
	for (size_t i = 0; i < state_count(model); i++) {
		struct tensor tensor = state_of(model, i);

		for (size_t from = 0; from < tensor.bytes; from += PIECE) {
			size_t bytes = piece_bytes(tensor, from);

			if (fread(piece, 1, bytes, file) != bytes)
				return "it ends too early";
			sum = sum_of(sum, piece, bytes);
			gpu_write(model->gpu, (char *)tensor.at + from, piece, bytes);
		}
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
	char newest[4096];
	const char *path = is_folder(all) ? newest : all->path;
	enum neap_status status = is_folder(all) ? find_newest(all->path, newest, sizeof newest, err) : NEAP_OK;

	if (status)
		return status;

	FILE *file = fopen(path, "rb");

	if (!file)
		return fail(err, errno == ENOENT ? NEAP_ENOENT : NEAP_EIO, "opening checkpoint %s: %s", path,
			    strerror(errno));

	const char *wrong = read_state(file, all, model, ret_step);

	fclose(file);
	return wrong ? fail(err, NEAP_EPARSE, "reading checkpoint %s: %s", path, wrong)
		     : gpu_take_error(model->gpu, err);
}
