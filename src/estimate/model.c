/* estimate/model.c: see the header. */
#include "estimate/model.h"

#include "base/error.h"
#include "base/file.h"
#include "base/paths.h"
#include "base/units.h"
#include "neap/train.h"
#include "run/python.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST (1u << 24) /* of a batch, a sequence, an image's side */

enum { TASK, BATCH, SEQUENCE, IMAGE, PRECISION, OPTIMIZER, CHECKPOINTING, ACCUMULATION, SHARD };

/* A choice: an option of `neap estimate`, an argument and a parameter of the program. */
const char *const neap_estimate_model_choices[NEAP_ESTIMATE_MODEL_CHOICES] = {
	[TASK] = "task",
	[BATCH] = "batch",
	[SEQUENCE] = "sequence",
	[IMAGE] = "image",
	[PRECISION] = "precision",
	[OPTIMIZER] = "optimizer",
	[CHECKPOINTING] = "checkpointing",
	[ACCUMULATION] = "accumulation",
	[SHARD] = "shard",
};

struct choice {
	const char *among;    /* the words that it may be, with blanks around each; NULL: a whole number above 0 */
	const char *standard; /* the value if the user gives none; NULL: the program decides */
	bool trains;          /* it has no meaning for inference */
};

static const struct choice choices[NEAP_ESTIMATE_MODEL_CHOICES] = {
	[TASK] = {.among = " train lora qlora infer ", .standard = "train"},
	[BATCH] = {.standard = "1"},
	[PRECISION] = {.among = " fp32 bf16 fp16 bf16-true ", .standard = "bf16"},
	[OPTIMIZER] = {.among = " adamw adamw8bit sgd adafactor ", .standard = "adamw", .trains = true},
	[CHECKPOINTING] = {.among = "", .standard = "0", .trains = true}, /* a flag: 0 or 1 */
	[ACCUMULATION] = {.standard = "1", .trains = true},
	[SHARD] = {.among = " fsdp ddp ", .standard = "none", .trains = true},
};

/* Whether `word` is one of `among`. */
static bool is_among(const char *among, const char *word)
{
	char spaced[64];
	return strlen(word) < sizeof spaced - 2 && !strchr(word, ' ') && *word &&
	       snprintf(spaced, sizeof spaced, " %s ", word) > 0 && strstr(among, spaced);
}

/* Gives the value of a choice. *ret_value NULL: the program decides. */
static enum neap_status parse_choice(const struct neap_estimate_model_given *all, size_t i, bool infers,
				     const char **ret_value, struct neap_error *err)
{
	const struct choice *choice = &choices[i];
	const char *given = all->values[i], *name = neap_estimate_model_choices[i];
	uint64_t number = 0;
	if (given && infers && choice->trains)
		return neap_fail(err, NEAP_EINVAL, "--%s is of training: it does not go with --task infer", name);
	if (given && *given && choice->among && !is_among(choice->among, given))
		return neap_fail(err, NEAP_EINVAL, "--%s: expected one of%sand not '%s'", name, choice->among, given);
	if (given && !choice->among && (neap_u64_parse(given, &number, NULL) || !number || number > MOST))
		return neap_fail(err, NEAP_EINVAL, "--%s: expected a whole number from 1 to %u, not '%s'", name, MOST,
				 given);
	*ret_value = !given ? choice->standard : *given || !choice->among ? given : "1" /* a flag */;
	return NEAP_OK;
}

static enum neap_status parse_choices(const struct neap_estimate_model_given *given,
				      const char *ret_values[NEAP_ESTIMATE_MODEL_CHOICES], struct neap_error *err)
{
	const char *task = given->values[TASK], *shard = given->values[SHARD];
	bool infers = task && !strcmp(task, "infer");
	if (shard && !given->ranks)
		return neap_fail(err, NEAP_EINVAL, "--shard goes with --ranks");
	if (given->ranks && infers)
		return neap_fail(err, NEAP_EINVAL, "--ranks is of training: it does not go with --task infer");
	for (size_t i = 0; i < NEAP_ESTIMATE_MODEL_CHOICES; i++) {
		enum neap_status status = parse_choice(given, i, infers, &ret_values[i], err);
		if (status)
			return status;
	}
	if (given->plans && !given->values[ACCUMULATION])
		ret_values[ACCUMULATION] = "2"; /* gradients stay from one micro-batch to the next */
	if (given->ranks && !shard)
		ret_values[SHARD] = shard = "fsdp";
	if (shard && !strcmp(shard, "fsdp") && task && !strcmp(task, "qlora"))
		return neap_fail(err, NEAP_EINVAL, "--task qlora is not sharded by fsdp here: --shard ddp");
	return NEAP_OK;
}

static enum neap_status make_arguments(struct neap_estimate_model *model, struct neap_error *err)
{
	const char *values[NEAP_ESTIMATE_MODEL_CHOICES] = {0};
	size_t count = 0;
	enum neap_status status = parse_choices(&model->given, values, err);
	if (!status && asprintf(&model->arguments[0], "--model=%s", model->given.name) < 0)
		status = neap_fail(err, NEAP_ENOMEM, "out of memory");
	for (size_t i = 0; !status && i < NEAP_ESTIMATE_MODEL_CHOICES; i++) {
		const char *name = neap_estimate_model_choices[i];
		if (!values[i])
			continue;
		if (asprintf(&model->parameters[count], "%s=%s", name, values[i]) < 0 ||
		    asprintf(&model->arguments[count + 1], "--%s={%s}", name, name) < 0)
			status = neap_fail(err, NEAP_ENOMEM, "out of memory");
		count++;
	}
	if (!status && model->given.steps &&
	    asprintf(&model->arguments[count + 1], "--steps=%s", model->given.steps) < 0)
		status = neap_fail(err, NEAP_ENOMEM, "out of memory");
	return status;
}

static enum neap_status refuse(const char *name, const char *why, struct neap_error *err)
{
	return neap_fail(err, NEAP_ENOENT, "--model %.200s: %s", name, why);
}

static bool has_file(const char *folder, const char *name)
{
	struct stat status;
	char path[PATH_MAX];
	return neap_path_join(path, sizeof path, folder, name) == NEAP_OK && stat(path, &status) == 0 &&
	       S_ISREG(status.st_mode);
}

/* Checks that a model's name that is a path has a config. Other names are left to the model's library. */
static enum neap_status check_path(const char *name, struct neap_error *err)
{
	bool pipeline = !strncmp(name, "diffusers:", 10);
	const char *path = pipeline ? name + 10 : name;
	struct stat status;
	if (!strncmp(name, "timm:", 5) || !strncmp(name, "torchvision:", 12))
		return 0;
	if (stat(path, &status) != 0) {
		size_t length = strlen(path);
		bool is_path = *path == '/' || *path == '.' || (length > 5 && !strcmp(path + length - 5, ".json"));
		return is_path ? refuse(name, "no such file or folder", err) : 0;
	}
	if (S_ISDIR(status.st_mode) && !has_file(path, "config.json") &&
	    !(pipeline && has_file(path, "model_index.json")))
		return refuse(name, "this folder has no config.json", err);
	if (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode))
		return refuse(name, "neither a file nor a folder", err);
	return 0;
}

static enum neap_status find_script(struct neap_estimate_model *model, struct neap_error *err)
{
	char launch[NEAP_RUN_PYTHON_CAPACITY];
	if (neap_run_python_find_launcher(launch) &&
	    neap_path_join(model->script, sizeof model->script, launch, "neap_model_program.py") == NEAP_OK &&
	    access(model->script, R_OK) == 0)
		return NEAP_OK;
	return neap_fail(
		err, NEAP_ENOTSUP,
		"--model: neap's program is not beside this command: install neap whole, by 'meson install'");
}

/* The Python that the user named, or the usual one, then the program and its arguments. */
static enum neap_status make_argv(struct neap_estimate_model *model, struct neap_error *err)
{
	static char *const usual[] = {"python", NULL}, *const other[] = {"python3", NULL};
	char *const *python = model->given.python;
	char found[PATH_MAX];
	size_t count = 0;
	if (!python[0])
		python = neap_path_search("python", found) ? usual : other;
	while (python[count])
		count++;
	model->argv = calloc(count + 1 + sizeof model->arguments / sizeof *model->arguments, sizeof *model->argv);
	if (!model->argv)
		return neap_fail(err, NEAP_ENOMEM, "out of memory");
	memcpy(model->argv, python, count * sizeof *python);
	model->argv[count++] = model->script;
	for (size_t i = 0; model->arguments[i]; i++)
		model->argv[count++] = model->arguments[i];
	return NEAP_OK;
}

enum neap_status neap_estimate_model_make(const struct neap_estimate_model_given *given,
					  struct neap_estimate_model *model, struct neap_error *err)
{
	*model = (struct neap_estimate_model){.given = *given};
	if (!*given->name || strpbrk(given->name, "{}"))
		return neap_fail(err, NEAP_EINVAL,
				 "--model: expected a model's name, or a path without braces, not '%s'", given->name);
	enum neap_status status = check_path(given->name, err);
	if (!status)
		status = make_arguments(model, err);
	if (!status)
		status = find_script(model, err);
	return status ? status : make_argv(model, err);
}

void neap_estimate_model_changes(const struct neap_estimate_model *model,
				 const char *ret_changes[NEAP_ESTIMATE_MODEL_CHANGES + 1])
{
	static const struct {
		size_t choice;
		const char *change;
	} changes[NEAP_ESTIMATE_MODEL_CHANGES] = {{CHECKPOINTING, "checkpointing=1"},
						  {PRECISION, "precision=bf16-true"},
						  {OPTIMIZER, "optimizer=adamw8bit"},
						  {SHARD, "shard=ddp"}};
	size_t count = 0;
	for (size_t i = 0; i < NEAP_ESTIMATE_MODEL_CHANGES; i++)
		if (!model->given.values[changes[i].choice] && (changes[i].choice != SHARD || model->given.ranks))
			ret_changes[count++] = changes[i].change;
	ret_changes[count] = NULL;
}

void neap_estimate_model_fini(struct neap_estimate_model *model)
{
	for (size_t i = 0; i < NEAP_ESTIMATE_MODEL_CHOICES; i++)
		free(model->parameters[i]);
	for (size_t i = 0; i < sizeof model->arguments / sizeof *model->arguments; i++)
		free(model->arguments[i]);
	free(model->argv);
	*model = (struct neap_estimate_model){0};
}

uint32_t neap_estimate_model_rungs(const struct neap_estimate_model *model)
{
	uint32_t rungs = 1u << NEAP_RUNG_MIXED_PRECISION;
	for (size_t i = 0; model->parameters[i]; i++) {
		if (!strcmp(model->parameters[i], "precision=fp32"))
			rungs &= ~(1u << NEAP_RUNG_MIXED_PRECISION);
		if (!strcmp(model->parameters[i], "checkpointing=1") || !strcmp(model->parameters[i], "task=infer"))
			rungs |= 1u << NEAP_RUNG_CHECKPOINTING;
	}
	return rungs;
}

char *neap_estimate_model_text(const struct neap_estimate_model *model, const struct neap_result *result)
{
	char *text;
	return asprintf(&text, "%s, by neap's own program: %s", model->given.name, result->parameters) < 0 ? NULL
													   : text;
}
