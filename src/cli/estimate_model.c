/* cli/estimate_model.c: see estimate_model.h. */
#include "cli/estimate_model.h"

#include "base/error.h"
#include "base/file.h"
#include "base/paths.h"
#include "base/units.h"
#include "cli/print.h"
#include "cli/run_python.h"
#include "neap/train.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST         (1u << 24) /* of a batch, a sequence, an image's side */
#define SCRIPT_BYTES (1u << 20)

/* A choice: an option of `neap estimate`, an argument and a parameter of the program. */
struct choice {
	const char *name;
	const char *words;    /* that it may be, each between blanks; NULL: a whole number above 0 */
	const char *standard; /* where it is not given; NULL: the program decides */
	bool trains;          /* it says nothing of inference */
};

static const struct choice choices[ESTIMATE_MODEL_CHOICES] = {
	{"task", " train lora qlora infer ", "train", false},
	{"batch", NULL, "1", false},
	{"sequence", NULL, NULL, false},
	{"image", NULL, NULL, false},
	{"precision", " fp32 bf16 fp16 bf16-true ", "bf16", false},
	{"optimizer", " adamw adamw8bit sgd adafactor ", "adamw", true},
	{"checkpointing", "", "0", true}, /* a flag: 0 or 1 */
	{"accumulation", NULL, "1", true},
	{"shard", " fsdp ddp ", "none", true},
};

/* Whether `word` is one of `words`. */
static bool is_among(const char *words, const char *word)
{
	char spaced[64];
	return strlen(word) < sizeof spaced - 2 && !strchr(word, ' ') && *word &&
	       snprintf(spaced, sizeof spaced, " %s ", word) > 0 && strstr(words, spaced);
}

/* The value of a choice. NULL in *ret_value: it is left to the program. */
static int parse_choice(const struct neap_arguments *arguments, const struct choice *choice, bool infers,
			const char **ret_value)
{
	const char *given = neap_argument(arguments, choice->name);
	uint64_t number = 0;
	*ret_value = given ? given : choice->standard;
	if (given && infers && choice->trains)
		return neap_misuse(arguments, "--%s is of training: it does not go with --task infer", choice->name);
	if (given && !*given && choice->words) /* a flag */
		*ret_value = "1";
	else if (given && choice->words && !is_among(choice->words, given))
		return neap_misuse(arguments, "--%s: expected one of%sand not '%s'", choice->name, choice->words,
				   given);
	else if (given && !choice->words && (neap_u64_parse(given, &number, NULL) || !number || number > MOST))
		return neap_misuse(arguments, "--%s: expected a whole number from 1 to %u, not '%s'", choice->name,
				   MOST, given);
	return 0;
}

static int parse_choices(const struct neap_arguments *arguments, struct estimate_model *model)
{
	const char *task = neap_argument(arguments, "task"), *shard = neap_argument(arguments, "shard");
	const char *ranks = neap_argument(arguments, "ranks"), *values[ESTIMATE_MODEL_CHOICES] = {0};
	bool infers = task && !strcmp(task, "infer");
	size_t count = 0;
	if (shard && !ranks)
		return neap_misuse(arguments, "--shard goes with --ranks");
	if (ranks && infers)
		return neap_misuse(arguments, "--ranks is of training: it does not go with --task infer");
	for (size_t i = 0; i < ESTIMATE_MODEL_CHOICES; i++) {
		int code = parse_choice(arguments, &choices[i], infers, &values[i]);
		if (code)
			return code;
	}
	if (neap_argument(arguments, "plan") && !neap_argument(arguments, "accumulation"))
		values[ESTIMATE_MODEL_CHOICES - 2] =
			"2"; /* gradients stay from one to the next: mostly so in a plan */
	if (ranks && !shard)
		values[ESTIMATE_MODEL_CHOICES - 1] = shard = "fsdp";
	if (shard && !strcmp(shard, "fsdp") && task && !strcmp(task, "qlora"))
		return neap_misuse(arguments, "--task qlora is not sharded by fsdp here: --shard ddp");
	for (size_t i = 0; i < ESTIMATE_MODEL_CHOICES; i++) {
		if (!values[i])
			continue;
		if (asprintf(&model->parameters[count], "%s=%s", choices[i].name, values[i]) < 0 ||
		    asprintf(&model->arguments[count + 1], "--%s={%s}", choices[i].name, choices[i].name) < 0)
			return NEAP_EXIT_OS;
		count++;
	}
	if (neap_argument(arguments, "steps") &&
	    asprintf(&model->arguments[count + 1], "--steps=%s", neap_argument(arguments, "steps")) < 0)
		return NEAP_EXIT_OS;
	return 0;
}

static int refuse(const char *name, const char *why)
{
	fprintf(stderr, "neap estimate: --model %s: %s\n", NEAP_PRINTABLE(name), why);
	return NEAP_EXIT_NO_INPUT;
}

static bool has_file(const char *folder, const char *name)
{
	struct stat status;
	char path[PATH_MAX];
	return neap_path_join(path, sizeof path, folder, name) == NEAP_OK && stat(path, &status) == 0 &&
	       S_ISREG(status.st_mode);
}

/* A model that is a path has a config there. One that is not a path is left to its library. */
static int check_path(const char *name)
{
	bool pipeline = !strncmp(name, "diffusers:", 10);
	const char *path = pipeline ? name + 10 : name;
	struct stat status;
	if (!strncmp(name, "timm:", 5) || !strncmp(name, "torchvision:", 12))
		return 0;
	if (stat(path, &status) != 0) {
		size_t length = strlen(path);
		bool is_path = *path == '/' || *path == '.' || (length > 5 && !strcmp(path + length - 5, ".json"));
		return is_path ? refuse(name, "no such file or folder") : 0;
	}
	if (S_ISDIR(status.st_mode) && !has_file(path, "config.json") &&
	    !(pipeline && has_file(path, "model_index.json")))
		return refuse(name, "this folder has no config.json");
	if (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode))
		return refuse(name, "neither a file nor a folder");
	return 0;
}

/* The folder's file that is the program. */
static int find_script(struct estimate_model *model)
{
	char launch[RUN_PYTHON_CAPACITY];
	if (run_python_launch(launch) &&
	    neap_path_join(model->script, sizeof model->script, launch, "neap_model_program.py") == NEAP_OK &&
	    access(model->script, R_OK) == 0)
		return 0;
	fputs("neap estimate: --model: neap's program is not beside this command: install neap whole, by 'meson "
	      "install'\n",
	      stderr);
	return NEAP_EXIT_UNAVAILABLE;
}

/* Python, which the user may name, then the program and its arguments. */
static int make_argv(const struct neap_arguments *arguments, struct estimate_model *model)
{
	static char *const usual[] = {"python", NULL}, *const other[] = {"python3", NULL};
	char *const *python = neap_rest(arguments);
	char found[PATH_MAX];
	size_t count = 0;
	if (!python[0])
		python = neap_path_search("python", found) ? usual : other;
	while (python[count])
		count++;
	model->argv = calloc(count + 1 + sizeof model->arguments / sizeof *model->arguments, sizeof *model->argv);
	if (!model->argv)
		return NEAP_EXIT_OS;
	memcpy(model->argv, python, count * sizeof *python);
	model->argv[count++] = model->script;
	for (size_t i = 0; model->arguments[i]; i++)
		model->argv[count++] = model->arguments[i];
	return 0;
}

/* Without --model. */
static int refuse_choices(const struct neap_arguments *arguments)
{
	if (neap_argument(arguments, "print-script"))
		return neap_misuse(arguments, "--print-script goes with --model");
	for (size_t i = 0; i < ESTIMATE_MODEL_CHOICES; i++)
		if (neap_argument(arguments, choices[i].name))
			return neap_misuse(arguments, "--%s goes with --model", choices[i].name);
	return 0;
}

int estimate_model_parse(const struct neap_arguments *arguments, struct estimate_model *model)
{
	const char *name = neap_argument(arguments, "model");
	if (!name)
		return refuse_choices(arguments);
	if (neap_argument(arguments, "param"))
		return neap_misuse(arguments, "--param does not go with --model, whose options are its parameters");
	if (!*name || strpbrk(name, "{}"))
		return neap_misuse(arguments, "--model: expected a model's name, or a path without braces, not '%s'",
				   name);
	model->name = name;
	int code = check_path(name);
	if (!code)
		code = parse_choices(arguments, model);
	if (!code)
		code = find_script(model);
	if (!code && asprintf(&model->arguments[0], "--model=%s", name) < 0)
		code = NEAP_EXIT_OS;
	return code ? code : make_argv(arguments, model);
}

void estimate_model_changes(const struct neap_arguments *arguments,
			    const char *ret_changes[ESTIMATE_MODEL_CHANGES + 1])
{
	static const struct {
		const char *option, *change;
	} changes[ESTIMATE_MODEL_CHANGES] = {{"checkpointing", "checkpointing=1"},
					     {"precision", "precision=bf16-true"},
					     {"optimizer", "optimizer=adamw8bit"},
					     {"shard", "shard=ddp"}};
	size_t count = 0;
	for (size_t i = 0; i < ESTIMATE_MODEL_CHANGES; i++) {
		bool shards = strcmp(changes[i].option, "shard") == 0;
		if (!neap_argument(arguments, changes[i].option) && (!shards || neap_argument(arguments, "ranks")))
			ret_changes[count++] = changes[i].change;
	}
	ret_changes[count] = NULL;
}

void estimate_model_fini(struct estimate_model *model)
{
	for (size_t i = 0; i < ESTIMATE_MODEL_CHOICES; i++)
		free(model->parameters[i]);
	for (size_t i = 0; i < sizeof model->arguments / sizeof *model->arguments; i++)
		free(model->arguments[i]);
	free(model->argv);
	*model = (struct estimate_model){0};
}

int estimate_model_print(const struct estimate_model *model)
{
	struct neap_buffer text = {0};
	struct neap_error err = {0};
	if (neap_file_read(model->script, SCRIPT_BYTES, &text, &err) != NEAP_OK)
		return neap_complain("estimate", &err);
	printf("# neap estimate runs this program with: --model=");
	print_safe_text(stdout, model->name);
	for (size_t i = 0; model->parameters[i]; i++)
		printf(" --%s", model->parameters[i]);
	printf("\n%s", neap_buffer_string(&text));
	neap_buffer_fini(&text);
	return 0;
}

uint32_t estimate_model_rungs(const struct estimate_model *model)
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

int estimate_model_refused(const struct estimate_model *model, const struct neap_result *result)
{
	int status = result->exit_status;
	if (!model->name || result->outcome != NEAP_OUTCOME_FAILED ||
	    (status != NEAP_EXIT_USAGE && status != NEAP_EXIT_NO_INPUT && status != NEAP_EXIT_UNAVAILABLE))
		return 0;
	fprintf(stderr, "neap estimate: %s\n", NEAP_PRINTABLE(result->error_line));
	return status;
}

char *estimate_model_text(const struct estimate_model *model, const struct neap_result *result)
{
	char *text;
	return asprintf(&text, "%s, by neap's own program: %s", model->name, result->parameters) < 0 ? NULL : text;
}
