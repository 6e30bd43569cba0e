/* charlm/trainer.c: the training loop.
 *
 * If device memory runs out anywhere in a step, the step is repeated with less memory and the same samples: nothing
 * is updated before all its micro-batches are through, and the gradients begin at zero.
 */
#include "trainer.h"

#include "checkpoint.h"
#include "fail.h"
#include "leak.h"
#include "model.h"

#include "neap/train.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct trainer {
	const struct options *options;
	struct gpu *gpu;
	const struct data *data;
	const volatile sig_atomic_t *stop;
	struct model *model;
	struct neap_train *session;
	int32_t *ids, *targets; /* of one micro-batch, on the host */
	FILE *losses;
	uint64_t step; /* done so far */
};

static struct model_shape shape_of(const struct trainer *trainer)
{
	struct model_shape shape = trainer->options->shape;

	shape.vocabulary = trainer->data->vocabulary;
	return shape;
}

static struct checkpoints checkpoints_of(const struct trainer *trainer)
{
	const struct options *options = trainer->options;

	return (struct checkpoints){.path = options->checkpoint,
				    .keep_last = options->keep_last,
				    .keep_best = options->keep_best,
				    .key = {.text = trainer->data->fingerprint,
					    .seed = options->seed,
					    .batch = options->session.split.batch,
					    .total_steps = options->session.total_steps,
					    .rate = options->rate,
					    .shape = shape_of(trainer),
					    .number_bytes = sizeof(real)}};
}

static struct model_modes modes_of(const struct neap_train_settings *now)
{
	return (struct model_modes){.efficient_attention = now->rungs & 1u << NEAP_RUNG_EFFICIENT_ATTENTION,
				    .half = now->rungs & 1u << NEAP_RUNG_MIXED_PRECISION,
				    .checkpointing = now->rungs & 1u << NEAP_RUNG_CHECKPOINTING};
}

/* Asked to stop in the middle of a step, which may be long: nothing is updated yet, so the step counts as not
 * begun. */
static enum neap_status abandon(struct trainer *trainer, struct neap_error *err)
{
	model_loss(trainer->model); /* waits for what is queued */
	enum neap_status status = gpu_take_error(trainer->gpu, err);

	return status == NEAP_OK ? NEAP_ECANCELED : status;
}

/* The part of a step after which it is known to fit. NEAP_ECANCELED: asked to stop. */
static enum neap_status attempt(struct trainer *trainer, double *ret_loss, struct neap_error *err)
{
	const struct options *options = trainer->options;
	double scale = 1 / ((double)options->session.split.batch * (double)options->shape.context);
	struct neap_train_settings now;

	neap_train_settings(trainer->session, &now);
	model_begin(trainer->model, modes_of(&now));
	for (uint64_t i = 0; i < now.split.accumulate && !gpu_failed(trainer->gpu); i++) {
		struct neap_part part = neap_split_part(&now.split, options->session.split.batch, i);

		if (i > 0 && *trainer->stop)
			return abandon(trainer, err);
		data_samples(trainer->data, options->seed, trainer->step, part.first, part.samples,
			     options->shape.context, trainer->ids, trainer->targets);
		model_micro_batch(trainer->model, trainer->ids, trainer->targets, part.samples, scale);
		if (!gpu_failed(trainer->gpu))
			neap_train_tick(trainer->session);
	}
	if (options->leak_bytes_per_step)
		leak_some(trainer->gpu, options->leak_bytes_per_step);

	double loss = model_loss(trainer->model);
	enum neap_status status = gpu_take_error(trainer->gpu, err);

	if (!status)
		*ret_loss = loss;
	return status;
}

/* A warm-up, then a cosine from the highest rate to a tenth of it. */
static double rate_at(const struct options *options, uint64_t step)
{
	uint64_t warmup_steps = options->session.total_steps / 20 + 1;
	double done = (double)step / (double)options->session.total_steps, pi = acos(-1.0);

	if (step < warmup_steps)
		return options->rate * (double)step / (double)warmup_steps;
	return options->rate * (0.1 + (1 - 0.1) * (1 + cos(pi * fmin(done, 1))) / 2);
}

static enum neap_status do_step(struct trainer *trainer, double *ret_loss, struct neap_error *err)
{
	enum neap_status status;

	while ((status = attempt(trainer, ret_loss, err)) == NEAP_EOOM) {
		status = neap_train_recover(trainer->session, err);
		if (status)
			return status;
	}
	if (status)
		return status;
	trainer->step++;
	model_update(trainer->model, trainer->step, rate_at(trainer->options, trainer->step));
	neap_train_step(trainer->session, *ret_loss);
	return gpu_take_error(trainer->gpu, err);
}

static enum neap_status save(struct trainer *trainer, double loss, struct neap_error *err)
{
	struct checkpoints all = checkpoints_of(trainer);
	enum neap_status status = checkpoint_save(&all, trainer->model, trainer->step, loss, err);

	if (!status)
		neap_train_mark(trainer->session, NEAP_MARK_SAVED, trainer->step);
	return status;
}

static enum neap_status resume(struct trainer *trainer, struct neap_error *err)
{
	struct checkpoints all = checkpoints_of(trainer);
	enum neap_status status = checkpoint_load(&all, trainer->model, &trainer->step, err);

	if (status == NEAP_ENOENT) {
		printf("no checkpoint yet: starting at the beginning\n");
		return NEAP_OK;
	}
	if (!status) {
		printf("resumed after step %" PRIu64 "\n", trainer->step);
		neap_train_resumed(trainer->session, trainer->step);
	}
	return status;
}

/* The end of a step: its loss in the file, progress, the end of an epoch, a checkpoint. */
static enum neap_status after_step(struct trainer *trainer, double loss, struct neap_error *err)
{
	const struct options *options = trainer->options;
	uint64_t characters = options->session.split.batch * options->shape.context, length = trainer->data->length;
	uint64_t epoch = trainer->step * characters / length;

	if (trainer->losses && (fprintf(trainer->losses, "%.9g\n", loss) < 0 || fflush(trainer->losses)))
		return fail(err, NEAP_EIO, "writing losses to %s: %s", options->losses, strerror(errno));
	if (options->log_every &&
	    (trainer->step % options->log_every == 0 || trainer->step == options->session.total_steps)) {
		printf("step %" PRIu64 " of %" PRIu64 ": loss %.4f\n", trainer->step, options->session.total_steps,
		       loss);
		fflush(stdout);
	}
	if (epoch > (trainer->step - 1) * characters / length)
		neap_train_mark(trainer->session, NEAP_MARK_EPOCH_END, epoch);
	if (options->checkpoint_every && trainer->step % options->checkpoint_every == 0 &&
	    trainer->step < options->session.total_steps)
		return save(trainer, loss, err);
	return NEAP_OK;
}

static enum neap_status stopped(const struct trainer *trainer, enum neap_train_request request, const char *reason,
				struct neap_error *err)
{
	unsigned long long step = trainer->step;

	if (request == NEAP_TRAIN_GO_ON)
		return fail(err, NEAP_ECANCELED, "stopped after step %llu", step);
	return fail(err, NEAP_ECANCELED, "%s after step %llu: %s%s",
		    request == NEAP_TRAIN_STOP ? "stopped early" : "restarting", step, reason,
		    trainer->options->checkpoint ? "" : "; nothing is saved (no --checkpoint)");
}

static enum neap_status loop(struct trainer *trainer, enum neap_train_request *ret_request, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	uint64_t before = trainer->step;
	enum neap_train_request request = NEAP_TRAIN_GO_ON;
	const char *reason = "";
	double loss = NAN;

	while (!status && trainer->step < trainer->options->session.total_steps && !*trainer->stop &&
	       request == NEAP_TRAIN_GO_ON) {
		status = do_step(trainer, &loss, err);
		if (status == NEAP_ECANCELED) {
			status = NEAP_OK;
			break;
		}
		if (!status)
			status = after_step(trainer, loss, err);
		request = neap_train_request(trainer->session, &reason);
	}
	if (!status && trainer->options->checkpoint && trainer->step > before)
		status = save(trainer, loss, err);
	if (!status && trainer->step < trainer->options->session.total_steps) {
		*ret_request = *trainer->stop ? NEAP_TRAIN_GO_ON : request;
		status = stopped(trainer, *ret_request, reason, err);
	}
	return status;
}

/* Everything before the first step, in the order in which it takes device memory. */
static enum neap_status begin(struct trainer *trainer, struct neap_error *err)
{
	const struct options *options = trainer->options;
	struct model_shape shape = shape_of(trainer);
	size_t tokens = options->session.split.micro_batch * options->shape.context;
	enum neap_status status =
		neap_train_begin(gpu_alloc(trainer->gpu), &options->session, &trainer->session, err);

	if (status)
		return status;
	trainer->ids = malloc(tokens * sizeof *trainer->ids);
	trainer->targets = malloc(tokens * sizeof *trainer->targets);
	if (!trainer->ids || !trainer->targets)
		return fail(err, NEAP_ENOMEM, "the host is out of memory");
	if (options->losses && !(trainer->losses = fopen(options->losses, neap_restarts() ? "a" : "w")))
		return fail(err, NEAP_EIO, "opening %s: %s", options->losses, strerror(errno));
	status = model_create(trainer->gpu, &shape, options->seed, &trainer->model, err);
	if (status)
		return status;
	neap_train_mark(trainer->session, NEAP_MARK_MODEL_READY, 0);
	status = model_prepare_updates(trainer->model, err);
	if (status)
		return status;
	neap_train_mark(trainer->session, NEAP_MARK_OPTIMIZER_READY, 0);
	return options->resume ? resume(trainer, err) : NEAP_OK;
}

/* Even after another failure: an allocator that does not know what it holds is worse than any. */
static enum neap_status check_books(struct gpu *gpu, enum neap_status status, struct neap_error *err)
{
	struct neap_error broken;

	if (neap_alloc_check(gpu_alloc(gpu), &broken) == NEAP_OK)
		return status;
	return fail(err, NEAP_EINTERNAL, "the allocator's books are wrong: %.200s", broken.message);
}

enum neap_status trainer_run(const struct options *options, struct gpu *gpu, const struct data *data,
			     const volatile sig_atomic_t *stop, struct trainer_end *ret_end, struct neap_error *err)
{
	struct trainer trainer = {.options = options, .gpu = gpu, .data = data, .stop = stop};
	struct trainer_end end = {0};
	enum neap_status status = begin(&trainer, err);

	if (!status)
		status = loop(&trainer, &end.request, err);
	if (trainer.session)
		neap_train_settings(trainer.session, &end.settings);
	status = check_books(gpu, status, err);
	if (status && status != NEAP_ECANCELED && trainer.session)
		neap_train_mark(trainer.session, NEAP_MARK_FAILED, trainer.step);
	leak_forget();
	model_destroy(trainer.model);
	neap_train_end(trainer.session, NULL);
	if (trainer.losses && fclose(trainer.losses) && !status)
		status = fail(err, NEAP_EIO, "writing losses to %s: %s", options->losses, strerror(errno));
	free(trainer.ids);
	free(trainer.targets);
	*ret_end = end;
	return status;
}
