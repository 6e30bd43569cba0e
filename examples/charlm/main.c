/* charlm: a character-level transformer, trained in C, with libneap for all its device memory. Read in this order:
 *
 *   trainer.c     the training loop, as any program would write it: marks, steps, recovery, checkpoints
 *   model.c       the transformer: each part forward and backward, and when its memory is taken and given back
 *   kernels.c     the mathematics, and the one way to launch it; matmul.c is its matrix product
 *   device.c      memory from libneap, and work queued on the device
 *   checkpoint.c  a run's state in a file
 *   leak.c        a leak on purpose
 *   options.c     the command line, as one table
 *   data.c        the text and its samples
 */
#include "data.h"
#include "device.h"
#include "options.h"
#include "trainer.h"

#include "neap/trial.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { EXIT_USAGE = 64, EXIT_NO_INPUT = 66, EXIT_UNAVAILABLE = 69, EXIT_SIGNAL = 128 };

static volatile sig_atomic_t stop; /* the signal that asked for it */

static void ask_to_stop(int signal) { stop = signal; }

static void catch_signals(void)
{
	/* Handled once: a second signal ends the program at once. */
	struct sigaction action = {.sa_handler = ask_to_stop, .sa_flags = (int)(SA_RESTART | SA_RESETHAND)};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static int refuse(int exit_status, const struct neap_error *err)
{
	fprintf(stderr, "charlm: %s\n", err->message);
	return exit_status;
}

/* One training for each rate. Memory that a training leaves on the device is named, and the next one has less. A
 * training that runs out of memory does not stop the next one. */
static enum neap_status train_trials(struct options options, struct gpu *gpu, const struct data *data,
				     struct trainer_end *ret_end, struct neap_error *err)
{
	enum neap_status worst = NEAP_OK;

	for (size_t i = 0; i < options.rates.count && (worst == NEAP_OK || worst == NEAP_EOOM); i++) {
		struct neap_trial trial;
		struct neap_error failure = {0};
		char name[32];

		options.rate = options.rates.list[i];
		snprintf(name, sizeof name, "rate=%g", options.rate);
		neap_trial_begin(&trial, gpu_alloc(gpu), neap_log_stderr(), name);
		enum neap_status status = trainer_run(&options, gpu, data, &stop, ret_end, &failure);
		neap_trial_end(&trial, NULL);
		if (status) {
			worst = status;
			*err = failure;
		}
	}
	return worst;
}

int main(int argc, char **argv)
{
	struct options options;
	struct neap_error err = {0};
	struct data data = {0};
	struct gpu *gpu = NULL;
	struct trainer_end end = {0};
	int exit_status = EXIT_SUCCESS;

	if (options_parse(&options, argc, argv, &err) != NEAP_OK) {
		fprintf(stderr, "charlm: %s (charlm --help lists the options)\n", err.message);
		return EXIT_USAGE;
	}
	if (options.help) {
		options_help();
		return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
	}
	if (data_load(&data, options.text, options.shape.context, &err) != NEAP_OK)
		return refuse(EXIT_NO_INPUT, &err);
	printf("%s: %zu characters, %u different, unigram entropy %.3f nats (a model that knows nothing: %.3f)\n",
	       options.text, data.length, data.vocabulary, data.entropy_nats, log(data.vocabulary));
	fflush(stdout);
	if (gpu_open(&gpu, &err) != NEAP_OK) {
		exit_status = refuse(EXIT_UNAVAILABLE, &err);
		goto out;
	}
	catch_signals();
	switch (options.rates.count ? train_trials(options, gpu, &data, &end, &err)
				    : trainer_run(&options, gpu, &data, &stop, &end, &err)) {
	case NEAP_OK:
		break;
	case NEAP_ECANCELED:
		exit_status = refuse(end.request == NEAP_TRAIN_STOP ? NEAP_EXIT_STOPPED : EXIT_SIGNAL + stop, &err);
		break;
	default:
		exit_status = refuse(EXIT_FAILURE, &err);
	}
out:
	gpu_close(gpu);
	data_fini(&data);
	if (end.request == NEAP_TRAIN_RESTART) {
		neap_restart(argv, "--resume", &end.settings, &err);
		exit_status = refuse(EXIT_FAILURE, &err); /* an exec returns only if it failed */
	}
	return exit_status;
}
