/* estimate/ask.c: see ask.h. */
#include "estimate/ask.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "run/words.h"
#include "store/json.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_NS      (50 * NEAP_NS_PER_MS)
#define ANSWER_BYTES (16u << 20)
#define PREFIX       "neap estimate: "

static enum neap_status make_words(const struct neap_estimate_question *question, struct neap_words *words,
				   struct neap_error *err)
{
	bool failed = neap_words_add(words, "neap") || neap_words_add(words, "estimate") ||
		      neap_words_add(words, "--json") || neap_words_add(words, "--gpu") ||
		      neap_words_add(words, question->gpus);
	if (!failed && question->in_place)
		failed = neap_words_add(words, "--in-place");
	for (size_t i = 0; !failed && question->parameters && question->parameters[i]; i++)
		failed = neap_words_add(words, "--param") || neap_words_add(words, question->parameters[i]);
	failed = failed || neap_words_add(words, "--");
	for (size_t i = 0; !failed && question->command[i]; i++)
		failed = neap_words_add(words, question->command[i]);
	return failed ? neap_fail(err, NEAP_ENOMEM, "estimating: out of memory") : NEAP_OK;
}

/* In the child: never returns. */
static void become_estimate(const struct neap_estimate_question *question, char **words, const int outputs[2],
			    pid_t parent)
{
	static const int usual_again[] = {SIGINT, SIGTERM, SIGPIPE, SIGXFSZ};
	struct sigaction usual = {.sa_handler = SIG_DFL};
	for (size_t i = 0; i < sizeof usual_again / sizeof *usual_again; i++)
		sigaction(usual_again[i], &usual, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(71);
	dup2(outputs[0], STDOUT_FILENO);
	dup2(outputs[1], STDERR_FILENO);
	for (size_t i = 0; question->environment && question->environment[i]; i++)
		putenv(question->environment[i]);
	if (question->device)
		setenv("CUDA_VISIBLE_DEVICES", question->device, 1);
	if (question->directory && chdir(question->directory)) {
		dprintf(STDERR_FILENO, PREFIX "%s: cannot start there\n", question->directory);
		_exit(71);
	}
	execv(question->program, words);
	_exit(71);
}

/* Waits for its end. *ret_status: of wait(2). False: `go_on` ended it. */
static bool wait_for(const struct neap_estimate_question *question, pid_t child, int *ret_status)
{
	bool asked = false;
	while (waitpid(child, ret_status, WNOHANG) == 0) {
		if (!asked && question->go_on && !question->go_on(question->context)) {
			kill(child, SIGTERM);
			asked = true;
		}
		neap_clock_sleep(neap_clock_system(), LOOK_NS);
	}
	return !asked;
}

static enum neap_status read_output(int fd, struct neap_buffer *text, struct neap_error *err)
{
	struct stat about;
	char path[64];
	if (fstat(fd, &about))
		return neap_fail_errno(err, errno, "reading an estimate");
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return neap_file_read(path, ANSWER_BYTES, text, err);
}

/* The first line that it wrote to stderr beside its progress, without its own name; where that announces the
 * program's last lines, with the last of them. */
static enum neap_status fail_with_its_words(int fd, struct neap_error *err)
{
	struct neap_buffer text = {0};
	enum neap_status status = read_output(fd, &text, err);
	while (text.length && text.data[text.length - 1] == '\n')
		text.data[--text.length] = '\0';
	const char *line = neap_buffer_string(&text);
	while (strncmp(line, NEAP_ESTIMATE_STILL, strlen(NEAP_ESTIMATE_STILL)) == 0) {
		line += strcspn(line, "\n");
		line += *line == '\n';
	}
	if (strncmp(line, PREFIX, strlen(PREFIX)) == 0)
		line += strlen(PREFIX);
	int length = (int)strcspn(line, "\n");
	bool announces = length > 0 && line[length - 1] == ':' && line[length];
	if (!status && !*line)
		status = neap_fail(err, NEAP_ESTATE, "neap estimate ended without a word");
	else if (!status)
		status = neap_fail(err, NEAP_ESTATE, "%.*s%s%.150s", length, line, announces ? " " : "",
				   announces ? strrchr(line, '\n') + 1 : "");
	neap_buffer_fini(&text);
	return status;
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

static enum neap_status run(const struct neap_estimate_question *question, char **words, const int outputs[2],
			    struct neap_estimate_answer *ret_answer, struct neap_error *err)
{
	struct neap_buffer text = {0};
	pid_t parent = getpid(), child = fork();
	int how = 0;
	if (child == 0)
		become_estimate(question, words, outputs, parent);
	if (child < 0)
		return neap_fail_errno(err, errno, "starting an estimate");
	if (!wait_for(question, child, &how))
		return neap_fail(err, NEAP_ECANCELED, "interrupted");
	enum neap_status status = read_output(outputs[0], &text, err);
	if (!status && text.length)
		status = take_answer(neap_buffer_string(&text), text.length, ret_answer, err);
	else if (!status)
		status = fail_with_its_words(outputs[1], err);
	neap_buffer_fini(&text);
	return status;
}

enum neap_status neap_estimate_ask(const struct neap_estimate_question *question,
				   struct neap_estimate_answer *ret_answer, struct neap_error *err)
{
	struct neap_words words = {0};
	const int outputs[2] = {memfd_create("answer", MFD_CLOEXEC), memfd_create("trouble", MFD_CLOEXEC)};
	enum neap_status status = outputs[0] < 0 || outputs[1] < 0
					  ? neap_fail_errno(err, errno, "an estimate's output")
					  : make_words(question, &words, err);
	if (!status)
		status = run(question, words.items, outputs, ret_answer, err);
	neap_words_fini(&words);
	for (size_t i = 0; i < 2; i++)
		if (outputs[i] >= 0)
			close(outputs[i]);
	return status;
}
