/* charlm/options.c: one table of options. Parsing, checking and --help follow from it. */
#include "options.h"

#include "fail.h"
#include "kernels.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const uses[] = {[USE_OFF] = "off", [USE_ALLOW] = "allow", [USE_ON] = "on", NULL};
static const char *const leak_acts[] = {
	[NEAP_ON_LEAK_WARN] = "warn", [NEAP_ON_LEAK_CLEAR] = "clear", [NEAP_ON_LEAK_RESTART] = "restart", NULL};
static const char *const points[] = {[NEAP_CLEANUP_START] = "start",
				     [NEAP_CLEANUP_END] = "end",
				     [NEAP_CLEANUP_FAILURE] = "failure",
				     [NEAP_CLEANUP_SAVED] = "saved",
				     [NEAP_CLEANUP_EPOCH] = "epoch",
				     [NEAP_CLEANUP_EVERY_STEP] = "step",
				     NULL};

/* What a value is, and so the type of its field. POINTS are bits of WORDs, separated by commas. */
enum kind { KIND_TEXT, KIND_COUNT, KIND_SIZE, KIND_RATE, KIND_WORD, KIND_POINTS, KIND_FLAG };

struct option {
	const char *name;
	const char *value;   /* its name in the help; NULL: takes none */
	const char *initial; /* as on the command line; NULL: none, the field is zero */
	const char *help;
	enum kind kind;
	size_t offset;            /* in struct options */
	uint64_t least, most;     /* of a count or size */
	const char *const *words; /* NULL-terminated */
	const char *expected;     /* what the refusal of a wrong value says */
};

#define TIB                       (UINT64_C(1) << 40)
#define AT(field)                 offsetof(struct options, field)
#define TEXT(field)               KIND_TEXT, AT(field)
#define COUNT(field, least, most) KIND_COUNT, AT(field), least, most
#define SIZE(field)               KIND_SIZE, AT(field), 0, TIB, NULL, "a size such as 128KiB, at most 1TiB"
#define RATE(field)               KIND_RATE, AT(field), .expected = "a number above 0 and up to 1"
#define USE(field)                KIND_WORD, AT(field), .words = uses, .expected = "on, allow or off"
#define LEAK(field)               KIND_WORD, AT(field), .words = leak_acts, .expected = "warn, clear or restart"
#define POINTS(field)                                                                                                \
	KIND_POINTS, AT(field), .words = points,                                                                     \
				.expected = "start, end, failure, saved, epoch, step, with commas, or none"
#define FLAG(field) KIND_FLAG, AT(field)

static const struct option table[] = {
	{"text", "FILE", "/usr/share/common-licenses/GPL-3", "text to learn", TEXT(text)},
	{"steps", "N", "100", "optimizer updates", COUNT(steps, 1, 1000000000)},
	{"batch", "N", "64", "samples of an update (the effective batch)", COUNT(batch, 1, 65536)},
	{"micro-batch", "N", NULL, "samples at a time, at most; the whole batch if not given",
	 COUNT(micro_batch, 1, 65536)},
	{"layers", "N", "2", "transformer blocks", COUNT(layers, 1, 64)},
	{"width", "N", "64", "numbers for a character; a multiple of the heads", COUNT(width, 1, ROW_MAX)},
	{"heads", "N", "4", "attention heads", COUNT(heads, 1, 64)},
	{"context", "N", "32", "characters of a sample", COUNT(context, 1, 4096)},
	{"rate", "X", "0.008", "highest learning rate", RATE(rate)},
	{"rates", "X,X,...", NULL, "train once for each of these rates, one trial after another in this process",
	 TEXT(rates)},
	{"seed", "N", "1", "of the parameters and the samples", COUNT(seed, 0, UINT64_MAX)},
	{"efficient-attention", "USE", "allow",
	 "keep no attention weights: on, allow (when memory was not enough), off", USE(efficient_attention)},
	{"mixed-precision", "USE", "off", "activations in bfloat16, which changes results a little: likewise",
	 USE(mixed_precision)},
	{"checkpointing", "USE", "allow", "compute layers again instead of keeping them: likewise",
	 USE(checkpointing)},
	{"checkpoint", "FILE", NULL, "where to save the run's state", TEXT(checkpoint)},
	{"checkpoint-every", "N", "0", "steps between checkpoints; 0: at the end only",
	 COUNT(checkpoint_every, 0, 1000000000)},
	{"keep-last", "N", NULL, "make the checkpoint's FILE a folder, and keep the newest N of them there",
	 COUNT(keep_last, 1, 1000000)},
	{"keep-best", "N", NULL, "likewise; keep also the N with the lowest loss", COUNT(keep_best, 1, 1000000)},
	{"resume", NULL, NULL, "continue from the checkpoint, if it is there", FLAG(resume)},
	{"losses", "FILE", NULL, "write this process's losses, one step a line", TEXT(losses)},
	{"log-every", "N", "10", "steps between lines of progress; 0: none", COUNT(log_every, 0, 1000000000)},
	{"leak-per-step", "SIZE", NULL, "leak so much device memory each step, on purpose: 128KiB, 1MiB, ...",
	 SIZE(leak_bytes_per_step)},
	{"on-leak", "WHAT", "warn", "before memory ends because of a leak: warn, clear (by force), restart",
	 LEAK(on_leak)},
	{"leak-margin", "N", "0", "so many steps before; 0: 10", COUNT(leak_margin_steps, 0, 1000000)},
	{"device-warn", "SIZE", NULL, "warn when a step leaves less device memory than this",
	 SIZE(device.warn_bytes)},
	{"device-degrade", "SIZE", NULL, "then clean up and need less, rung by rung", SIZE(device.degrade_bytes)},
	{"device-stop", "SIZE", NULL, "then save a checkpoint and stop", SIZE(device.stop_bytes)},
	{"host-warn", "SIZE", NULL, "likewise of the host's memory", SIZE(host.warn_bytes)},
	{"host-degrade", "SIZE", NULL, "likewise", SIZE(host.degrade_bytes)},
	{"host-stop", "SIZE", NULL, "likewise", SIZE(host.stop_bytes)},
	{"host-limit", "SIZE", NULL, "of this process's own memory on the host, for these three",
	 SIZE(host_limit_bytes)},
	{"cleanup", "POINTS", "end", "when to clean up: start,end,failure,saved,epoch,step, or none",
	 POINTS(cleanup_points)},
	{"cleanup-every-steps", "N", "0", "and every N steps; 0: never", COUNT(cleanup_every_steps, 0, 1000000000)},
	{"cleanup-every-epochs", "N", "0", "likewise epochs", COUNT(cleanup_every_epochs, 0, 1000000000)},
	{"cleanup-every-ticks", "N", "0", "likewise micro-batches", COUNT(cleanup_every_ticks, 0, 1000000000)},
	{"clear-memory-on-start", NULL, NULL, "end what earlier runs left on the device, then clean up",
	 FLAG(clear_memory_on_start)},
	{"help", NULL, NULL, "show this", FLAG(help)},
};

enum { OPTIONS = sizeof table / sizeof *table };

/* The shift of "", "B", "K", "KB" and "KiB" (all powers of 1024), and so on. False: none of these. */
static bool unit_shift(const char *text, unsigned *ret_shift)
{
	static const char letters[] = "KMGT";
	const char *letter = text[0] ? strchr(letters, toupper((unsigned char)text[0])) : NULL;
	const char *rest = letter ? text + 1 : text;

	if (strcmp(rest, "") && strcmp(rest, "B") && (!letter || strcmp(rest, "iB")))
		return false;
	*ret_shift = letter ? 10 * (unsigned)(letter - letters + 1) : 0;
	return true;
}

static bool parse_count(const char *text, const struct option *option, uint64_t *ret_count)
{
	unsigned shift = 0;
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	uint64_t count = strtoull(text, &end, 10);
	if (errno || (option->kind == KIND_SIZE ? !unit_shift(end, &shift) : *end != '\0'))
		return false;
	if (count > UINT64_MAX >> shift || count << shift < option->least || count << shift > option->most)
		return false;
	*ret_count = count << shift;
	return true;
}

/* A rate and its end, which is a comma or the text's end. */
static bool parse_rate(const char *text, double *ret_rate, const char **ret_end)
{
	char *end;
	double rate = strtod(text, &end);

	if (end == text || (*end && *end != ',') || !(rate > 0 && rate <= 1))
		return false;
	*ret_rate = rate;
	*ret_end = end;
	return true;
}

static bool parse_word(const char *text, size_t length, const char *const *words, unsigned *ret_number)
{
	for (unsigned i = 0; words[i]; i++)
		if (strlen(words[i]) == length && !memcmp(text, words[i], length)) {
			*ret_number = i;
			return true;
		}
	return false;
}

/* "start,saved", "none". */
static bool parse_points(const char *text, const char *const *words, uint32_t *ret_points)
{
	uint32_t bits = 0;
	unsigned point;

	for (bool more = strcmp(text, "none") != 0; more;) {
		size_t length = strcspn(text, ",");

		if (!parse_word(text, length, words, &point))
			return false;
		bits |= 1u << point;
		more = text[length] == ',';
		text += length + more;
	}
	*ret_points = bits;
	return true;
}

static bool parse_value(const struct option *option, const char *value, void *field)
{
	const char *end;

	switch (option->kind) {
	case KIND_TEXT:
		*(const char **)field = value;
		return *value;
	case KIND_COUNT:
	case KIND_SIZE:
		return parse_count(value, option, field);
	case KIND_RATE:
		return parse_rate(value, field, &end) && !*end;
	case KIND_WORD:
		return parse_word(value, strlen(value), option->words, field);
	case KIND_POINTS:
		return parse_points(value, option->words, field);
	case KIND_FLAG:
		*(bool *)field = true;
	}
	return true;
}

static enum neap_status set(struct options *options, const struct option *option, const char *value,
			    struct neap_error *err)
{
	if (parse_value(option, value, (char *)options + option->offset))
		return NEAP_OK;
	if (option->kind == KIND_TEXT)
		return fail(err, NEAP_EINVAL, "--%s: the file's name is empty", option->name);
	if (option->kind == KIND_COUNT)
		return fail(err, NEAP_EINVAL, "--%s %s: expected a whole number from %" PRIu64 " to %" PRIu64,
			    option->name, value, option->least, option->most);
	return fail(err, NEAP_EINVAL, "--%s %s: expected %s", option->name, value, option->expected);
}

static const struct option *find(const char *name, size_t length)
{
	for (size_t i = 0; i < OPTIONS; i++)
		if (strlen(table[i].name) == length && !memcmp(table[i].name, name, length))
			return &table[i];
	return NULL;
}

static enum neap_status take_rates(struct options *options, struct neap_error *err)
{
	const char *at = options->rates;

	if (options->checkpoint || options->losses)
		return fail(err, NEAP_EINVAL, "--rates: the trials would overwrite each other's --%s",
			    options->checkpoint ? "checkpoint" : "losses");
	for (bool more = true; more; at++) {
		if (options->trials == TRIALS_MAX || !parse_rate(at, &options->trial_rates[options->trials], &at))
			return fail(err, NEAP_EINVAL,
				    "--rates %s: expected up to %d numbers above 0 and up to 1, and commas",
				    options->rates, TRIALS_MAX);
		options->trials++;
		more = *at;
	}
	return NEAP_OK;
}

static enum neap_status check(struct options *options, struct neap_error *err)
{
	if (!options->micro_batch)
		options->micro_batch = options->batch;
	if (options->micro_batch > options->batch)
		return fail(err, NEAP_EINVAL, "--micro-batch %" PRIu64 " is more than --batch %" PRIu64,
			    options->micro_batch, options->batch);
	if (options->width % options->heads)
		return fail(err, NEAP_EINVAL, "--heads %" PRIu64 " does not divide --width %" PRIu64, options->heads,
			    options->width);
	if (!options->checkpoint && (options->resume || options->checkpoint_every))
		return fail(err, NEAP_EINVAL, "--%s needs --checkpoint FILE",
			    options->resume ? "resume" : "checkpoint-every");
	if (!options->checkpoint && (options->keep_last || options->keep_best))
		return fail(err, NEAP_EINVAL, "--keep-%s needs --checkpoint FILE",
			    options->keep_last ? "last" : "best");
	if (!options->checkpoint && options->on_leak == NEAP_ON_LEAK_RESTART)
		return fail(err, NEAP_EINVAL, "--on-leak restart needs --checkpoint FILE");
	if (options->host_limit_bytes && !options->host.warn_bytes && !options->host.degrade_bytes &&
	    !options->host.stop_bytes)
		return fail(err, NEAP_EINVAL,
			    "--host-limit needs --host-warn, --host-degrade or --host-stop: it is for these");
	return options->rates ? take_rates(options, err) : NEAP_OK;
}

enum neap_status options_parse(struct options *options, int argc, char **argv, struct neap_error *err)
{
	*options = (struct options){0};
	for (size_t i = 0; i < OPTIONS; i++)
		if (table[i].initial && set(options, &table[i], table[i].initial, err) != NEAP_OK)
			return NEAP_EINVAL;
	for (int i = 1; i < argc; i++) {
		const char *name = argv[i] + 2, *value = strchr(argv[i], '=');
		const struct option *option = NULL;

		if (!strncmp(argv[i], "--", 2))
			option = find(name, value ? (size_t)(value - name) : strlen(name));
		if (!option)
			return fail(err, NEAP_EINVAL, "unknown option %s", argv[i]);
		if (value && !option->value)
			return fail(err, NEAP_EINVAL, "--%s takes no value", option->name);
		if (value)
			value++;
		else if (option->value)
			value = i + 1 < argc ? argv[++i] : NULL;
		if (!value && option->value)
			return fail(err, NEAP_EINVAL, "--%s needs a value: --%s %s", option->name, option->name,
				    option->value);
		if (set(options, option, value, err) != NEAP_OK)
			return NEAP_EINVAL;
	}
	return options->help ? NEAP_OK : check(options, err);
}

void options_help(void)
{
	printf("Usage: charlm [OPTION]...\n"
	       "Trains a character-level transformer on a text, inside simulated GPU memory.\n\n");
	for (size_t i = 0; i < OPTIONS; i++) {
		const char *value = table[i].value, *initial = table[i].initial;
		char option[64];

		snprintf(option, sizeof option, "--%s%s%s", table[i].name, value ? " " : "", value ? value : "");
		printf("  %-26s %s%s%s%s\n", option, table[i].help, initial ? " (default: " : "",
		       initial ? initial : "", initial ? ")" : "");
	}
	printf("\nExit status: 0 done, 1 failed (out of device memory, say), 64 wrong usage, 66 no text,\n"
	       "69 no simulator, 75 stopped early because memory was short, 130 and 143 stopped by a "
	       "signal, after the micro-batch under way.\n");
}
