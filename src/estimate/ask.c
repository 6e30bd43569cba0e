/* estimate/ask.c: see ask.h. */
#include "estimate/ask.h"

#include "base/buffer.h"
#include "base/error.h"
#include "base/spawn.h"
#include "base/units.h"
#include "run/argv.h"
#include "store/json.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_BYTES (16u << 20)
#define PREFIX       "neap estimate: "

static enum neap_status make_argv(const struct neap_estimate_question *question, struct neap_argv *argv,
				  struct neap_error *err)
{
	bool failed = neap_argv_add(argv, "neap") || neap_argv_add(argv, "estimate") ||
		      neap_argv_add(argv, "--json") || neap_argv_add(argv, "--gpu") ||
		      neap_argv_add(argv, question->gpus);
	if (!failed && question->in_place)
		failed = neap_argv_add(argv, "--in-place");
	for (size_t i = 0; !failed && question->parameters && question->parameters[i]; i++)
		failed = neap_argv_add(argv, "--param") || neap_argv_add(argv, question->parameters[i]);
	failed = failed || neap_argv_add(argv, "--");
	for (size_t i = 0; !failed && question->command[i]; i++)
		failed = neap_argv_add(argv, question->command[i]);
	return failed ? neap_fail(err, NEAP_ENOMEM, "estimating: out of memory") : NEAP_OK;
}

/* In the child: sets its environment and folder. */
static int prepare(void *context)
{
	const struct neap_estimate_question *question = context;
	for (size_t i = 0; question->environment && question->environment[i]; i++)
		putenv(question->environment[i]);
	if (question->device)
		setenv("CUDA_VISIBLE_DEVICES", question->device, 1);
	if (question->directory && chdir(question->directory)) {
		dprintf(STDERR_FILENO, PREFIX "%s: cannot start there\n", question->directory);
		_exit(NEAP_SPAWN_FAILED);
	}
	return 0;
}

static bool go_on(void *context)
{
	const struct neap_estimate_question *question = context;
	return !question->go_on || question->go_on(question->context);
}

/* Fails with the first line of stderr that is not progress, without neap's name. If that line announces the program's
 * last lines, adds the last of them. */
static enum neap_status fail_with_its_words(struct neap_buffer *text, struct neap_error *err)
{
	while (text->length && text->data[text->length - 1] == '\n')
		text->data[--text->length] = '\0';
	const char *line = neap_buffer_string(text);
	while (strncmp(line, NEAP_ESTIMATE_STILL, strlen(NEAP_ESTIMATE_STILL)) == 0) {
		line += strcspn(line, "\n");
		line += *line == '\n';
	}
	if (strncmp(line, PREFIX, strlen(PREFIX)) == 0)
		line += strlen(PREFIX);
	int length = (int)strcspn(line, "\n");
	bool announces = length > 0 && line[length - 1] == ':' && line[length];
	if (!*line)
		return neap_fail(err, NEAP_ESTATE, "neap estimate ended without a word");
	return neap_fail(err, NEAP_ESTATE, "%.*s%s%.150s", length, line, announces ? " " : "",
			 announces ? strrchr(line, '\n') + 1 : "");
}

/* --- its answer --- */

static uint64_t get_bytes(const json_t *object, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(object, key));
	return value > 0 ? (uint64_t)value : 0;
}

static enum neap_estimate_fits get_fits(const json_t *gpu)
{
	const json_t *fits = json_object_get(gpu, "fits");
	return json_is_true(fits) ? NEAP_ESTIMATE_YES : json_is_false(fits) ? NEAP_ESTIMATE_NO : NEAP_ESTIMATE_UNSURE;
}

static enum neap_estimate_doubt get_doubt(const json_t *gpu)
{
	const char *name = neap_json_get_text(gpu, "doubt");
	for (int doubt = NEAP_ESTIMATE_SURE + 1; doubt < NEAP_ESTIMATE_DOUBTS; doubt++)
		if (!strcmp(name, neap_estimate_doubt_name((enum neap_estimate_doubt)doubt)))
			return (enum neap_estimate_doubt)doubt;
	return NEAP_ESTIMATE_SURE;
}

static void take_predictions(const json_t *predicted, struct neap_estimate_answer *answer)
{
	size_t index;
	json_t *item;
	json_array_foreach(json_object_get(predicted, "savings"), index, item)
	{
		const char *name = neap_json_get_text(item, "change");
		if (!*name || answer->change_count == NEAP_ESTIMATE_CHANGES)
			continue;
		snprintf(answer->changes[answer->change_count].name, sizeof answer->changes->name, "%s", name);
		answer->changes[answer->change_count].low_bytes = get_bytes(item, "low");
		answer->changes[answer->change_count++].high_bytes = get_bytes(item, "high");
	}
	answer->samples_share = json_number_value(json_object_get(predicted, "samples_share"));
}

static enum neap_status take_answer(const char *text, size_t length, struct neap_estimate_answer *ret_answer,
				    struct neap_error *err)
{
	struct neap_estimate_answer answer = {0};
	json_t *root = NULL, *gpu, *best = NULL;
	size_t index;
	enum neap_status status = neap_json_parse("the answer of neap estimate", text, length, &root, err);
	if (status)
		return status;
	json_array_foreach(json_object_get(root, "gpus"), index, gpu)
	{
		if (!best || get_fits(gpu) > get_fits(best))
			best = gpu;
	}
	const json_t *device = json_object_get(best, "device");
	if (!json_is_object(device)) {
		json_decref(root);
		return neap_fail(err, NEAP_EPARSE, "neap estimate gave an answer that cannot be read");
	}
	const char *setting = json_string_value(json_array_get(json_object_get(best, "fits_with"), 0));
	snprintf(answer.gpu, sizeof answer.gpu, "%s", neap_json_get_text(best, "name"));
	snprintf(answer.setting, sizeof answer.setting, "%s", setting ? setting : "");
	answer.fits = get_fits(best);
	answer.doubt = get_doubt(best);
	answer.total_bytes = get_bytes(best, "total");
	answer.low_bytes = get_bytes(device, "low");
	answer.high_bytes = get_bytes(device, "high");
	answer.headroom_bytes = json_integer_value(json_object_get(best, "headroom"));
	take_predictions(json_object_get(best, "predicted"), &answer);
	json_decref(root);
	*ret_answer = answer;
	return NEAP_OK;
}

enum neap_status neap_estimate_ask(const struct neap_estimate_question *question,
				   struct neap_estimate_answer *ret_answer, struct neap_error *err)
{
	struct neap_estimate_question asked = *question;
	struct neap_argv argv = {0};
	struct neap_buffer output = {0}, errors = {0};
	int code;
	enum neap_status status = make_argv(question, &argv, err);
	const struct neap_spawn spawn = {.doing = "starting an estimate",
					 .program = question->program,
					 .argv = argv.items,
					 .run = prepare,
					 .context = &asked,
					 .death_signal = SIGTERM,
					 .output = &output,
					 .errors = &errors,
					 .limit_bytes = ANSWER_BYTES,
					 .go_on = go_on};
	if (!status)
		status = neap_spawn_run(&spawn, &code, err);
	if (status == NEAP_ECANCELED)
		neap_fail(err, status, "interrupted");
	if (!status && output.length)
		status = take_answer(neap_buffer_string(&output), output.length, ret_answer, err);
	else if (!status)
		status = fail_with_its_words(&errors, err);
	neap_argv_fini(&argv);
	neap_buffer_fini(&output);
	neap_buffer_fini(&errors);
	return status;
}
