/* charlm/options.c: one table makes the parser and the help. */
#include "options.h"

#include "kernels.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { KIND_TEXT, KIND_COUNT, KIND_SIZE, KIND_RATE, KIND_USE, KIND_LEAK, KIND_POINTS, KIND_FLAG };

struct option {
	const char *name, *value, *help;
	enum kind kind;
	size_t offset;        /* in struct options */
	uint64_t least, most; /* of a count or size */
};

#define AT(field) offsetof(struct options, field)

static const struct option table[] = {
	{"text", "FILE", "text to learn", KIND_TEXT, AT(text), 0, 0},
	{"steps", "N", "optimizer updates", KIND_COUNT, AT(steps), 1, 1000000000},
	{"batch", "N", "samples of an update (the effective batch)", KIND_COUNT, AT(batch), 1, 65536},
	{"micro-batch", "N", "samples at a time, at most; the whole batch if not given", KIND_COUNT, AT(micro_batch),
	 1, 65536},
	{"layers", "N", "transformer blocks", KIND_COUNT, AT(layers), 1, 64},
	{"width", "N", "numbers for a character; a multiple of the heads", KIND_COUNT, AT(width), 1, ROW_MAX},
	{"heads", "N", "attention heads", KIND_COUNT, AT(heads), 1, 64},
	{"context", "N", "characters of a sample", KIND_COUNT, AT(context), 1, 4096},
	{"rate", "X", "highest learning rate", KIND_RATE, AT(rate), 0, 0},
	{"rates", "X,X,...", "train once for each of these rates, one trial after another in this process", KIND_TEXT,
	 AT(rates), 0, 0},
	{"seed", "N", "of the parameters and the samples", KIND_COUNT, AT(seed), 0, UINT64_MAX},
	{"efficient-attention", "USE", "keep no attention weights: on, allow (when memory was not enough), off",
	 KIND_USE, AT(efficient_attention), 0, 0},
	{"mixed-precision", "USE", "activations in bfloat16, which changes results a little: likewise", KIND_USE,
	 AT(mixed_precision), 0, 0},
	{"checkpointing", "USE", "compute layers again instead of keeping them: likewise", KIND_USE,
	 AT(checkpointing), 0, 0},
	{"checkpoint", "FILE", "where to save the run's state", KIND_TEXT, AT(checkpoint), 0, 0},
	{"checkpoint-every", "N", "steps between checkpoints; 0: at the end only", KIND_COUNT, AT(checkpoint_every),
	 0, 1000000000},
	{"keep-last", "N", "make the checkpoint's FILE a folder, and keep the newest N of them there", KIND_COUNT,
	 AT(keep_last), 1, 1000000},
	{"keep-best", "N", "likewise; keep also the N with the lowest loss", KIND_COUNT, AT(keep_best), 1, 1000000},
	{"resume", NULL, "go on from the checkpoint, if it is there", KIND_FLAG, AT(resume), 0, 0},
	{"losses", "FILE", "write this process's losses, one step a line", KIND_TEXT, AT(losses), 0, 0},
	{"log-every", "N", "steps between lines of progress; 0: none", KIND_COUNT, AT(log_every), 0, 1000000000},
	{"leak-per-step", "SIZE", "leak so much device memory each step, on purpose: 128KiB, 1MiB, ...", KIND_SIZE,
	 AT(leak_bytes_per_step), 0, UINT64_C(1) << 40},
	{"on-leak", "WHAT", "before memory ends because of a leak: warn, clear (by force), restart", KIND_LEAK,
	 AT(on_leak), 0, 0},
	{"leak-margin", "N", "so many steps before; 0: 10", KIND_COUNT, AT(leak_margin_steps), 0, 1000000},
	{"device-warn", "SIZE", "warn when a step leaves less device memory than this", KIND_SIZE,
	 AT(device.warn_bytes), 0, UINT64_C(1) << 40},
	{"device-degrade", "SIZE", "then clean up and need less, rung by rung", KIND_SIZE, AT(device.degrade_bytes),
	 0, UINT64_C(1) << 40},
	{"device-stop", "SIZE", "then save a checkpoint and stop", KIND_SIZE, AT(device.stop_bytes), 0,
	 UINT64_C(1) << 40},
	{"host-warn", "SIZE", "likewise of the host's memory", KIND_SIZE, AT(host.warn_bytes), 0, UINT64_C(1) << 40},
	{"host-degrade", "SIZE", "likewise", KIND_SIZE, AT(host.degrade_bytes), 0, UINT64_C(1) << 40},
	{"host-stop", "SIZE", "likewise", KIND_SIZE, AT(host.stop_bytes), 0, UINT64_C(1) << 40},
	{"host-limit", "SIZE", "of this process's own memory on the host, for these three", KIND_SIZE,
	 AT(host_limit_bytes), 0, UINT64_C(1) << 40},
	{"cleanup", "POINTS", "when to clean up: start,end,failure,saved,epoch,step, or none", KIND_POINTS,
	 AT(cleanup_points), 0, 0},
	{"cleanup-every-steps", "N", "and every N steps; 0: never", KIND_COUNT, AT(cleanup_every_steps), 0,
	 1000000000},
	{"cleanup-every-epochs", "N", "likewise epochs", KIND_COUNT, AT(cleanup_every_epochs), 0, 1000000000},
	{"cleanup-every-ticks", "N", "likewise micro-batches", KIND_COUNT, AT(cleanup_every_ticks), 0, 1000000000},
	{"clear-memory-on-start", NULL, "end what earlier runs left on the device, then clean up", KIND_FLAG,
	 AT(clear_memory_on_start), 0, 0},
	{"help", NULL, "show this", KIND_FLAG, AT(help), 0, 0},
};

enum { OPTIONS = sizeof(table) / sizeof(*table) };

static const struct options defaults = {
	.text = "/usr/share/common-licenses/GPL-3",
	.steps = 100,
	.batch = 64,
	.seed = 1,
	.layers = 2,
	.width = 64,
	.heads = 4,
	.context = 32,
	.rate = 8e-3,
	.efficient_attention = USE_ALLOW,
	.checkpointing = USE_ALLOW,
	.cleanup_points = 1u << NEAP_CLEANUP_END,
	.log_every = 10,
};

NEAP_PRINTF(2, 3)
static enum neap_status refuse(struct neap_error *err, const char *format, ...)
{
	va_list arguments;

	*err = (struct neap_error){.status = NEAP_EINVAL};
	va_start(arguments, format);
	vsnprintf(err->message, sizeof(err->message), format, arguments);
	va_end(arguments);
	return NEAP_EINVAL;
}

/* "", "B", "K", "KB" and "KiB" (all powers of 1024), and so on. False: none of these. */
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

static const char *const uses[] = {[USE_OFF] = "off", [USE_ALLOW] = "allow", [USE_ON] = "on"};

static const char *const leak_acts[] = {
	[NEAP_ON_LEAK_WARN] = "warn", [NEAP_ON_LEAK_CLEAR] = "clear", [NEAP_ON_LEAK_RESTART] = "restart"};
static const char *const points[] = {
	[NEAP_CLEANUP_START] = "start", [NEAP_CLEANUP_END] = "end",     [NEAP_CLEANUP_FAILURE] = "failure",
	[NEAP_CLEANUP_SAVED] = "saved", [NEAP_CLEANUP_EPOCH] = "epoch", [NEAP_CLEANUP_EVERY_STEP] = "step"};

#define COUNT_OF(array) (sizeof(array) / sizeof(*(array)))

static bool parse_word(const char *text, size_t length, const char *const *words, size_t count, unsigned *ret_number)
{
	for (size_t i = 0; i < count; i++)
		if (strlen(words[i]) == length && !memcmp(text, words[i], length)) {
			*ret_number = (unsigned)i;
			return true;
		}
	return false;
}

/* "start,saved", "none". */
static bool parse_points(const char *text, uint32_t *ret_points)
{
	uint32_t bits = 0;
	unsigned point;

	for (bool more = strcmp(text, "none") != 0; more;) {
		size_t length = strcspn(text, ",");

		if (!parse_word(text, length, points, COUNT_OF(points), &point))
			return false;
		bits |= 1u << point;
		more = text[length] == ',';
		text += length + more;
	}
	*ret_points = bits;
	return true;
}

static enum neap_status set(struct options *options, const struct option *option, const char *value,
			    struct neap_error *err)
{
	void *field = (char *)options + option->offset;
	char *end;

	switch (option->kind) {
	case KIND_FLAG:
		*(bool *)field = true;
		break;
	case KIND_TEXT:
		if (!*value)
			return refuse(err, "--%s: the file's name is empty", option->name);
		*(const char **)field = value;
		break;
	case KIND_RATE:
		*(double *)field = strtod(value, &end);
		if (end == value || *end || !(*(double *)field > 0 && *(double *)field <= 1))
			return refuse(err, "--%s %s: expected a number above 0 and up to 1", option->name, value);
		break;
	case KIND_USE:
		if (!parse_word(value, strlen(value), uses, COUNT_OF(uses), field))
			return refuse(err, "--%s %s: expected on, allow or off", option->name, value);
		break;
	case KIND_LEAK:
		if (!parse_word(value, strlen(value), leak_acts, COUNT_OF(leak_acts), field))
			return refuse(err, "--%s %s: expected warn, clear or restart", option->name, value);
		break;
	case KIND_POINTS:
		if (!parse_points(value, field))
			return refuse(err,
				      "--%s %s: expected start, end, failure, saved, epoch, step, with commas, or "
				      "none",
				      option->name, value);
		break;
	case KIND_COUNT:
		if (!parse_count(value, option, field))
			return refuse(err, "--%s %s: expected a whole number from %" PRIu64 " to %" PRIu64,
				      option->name, value, option->least, option->most);
		break;
	case KIND_SIZE:
		if (!parse_count(value, option, field))
			return refuse(err, "--%s %s: expected a size such as 128KiB, at most 1TiB", option->name,
				      value);
		break;
	}
	return NEAP_OK;
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
		return refuse(err, "--rates: the trials would overwrite each other's --%s",
			      options->checkpoint ? "checkpoint" : "losses");
	for (;;) {
		char *end;
		double rate = strtod(at, &end);

		if (end == at || (*end && *end != ',') || !(rate > 0 && rate <= 1) || options->trials == TRIALS_MAX)
			return refuse(err, "--rates %s: expected up to %d numbers above 0 and up to 1, and commas",
				      options->rates, TRIALS_MAX);
		options->trial_rates[options->trials++] = rate;
		if (!*end)
			return NEAP_OK;
		at = end + 1;
	}
}

static enum neap_status check(struct options *options, struct neap_error *err)
{
	if (!options->micro_batch)
		options->micro_batch = options->batch;
	if (options->micro_batch > options->batch)
		return refuse(err, "--micro-batch %" PRIu64 " is more than --batch %" PRIu64, options->micro_batch,
			      options->batch);
	if (options->width % options->heads)
		return refuse(err, "--heads %" PRIu64 " does not divide --width %" PRIu64, options->heads,
			      options->width);
	if (!options->checkpoint && (options->resume || options->checkpoint_every))
		return refuse(err, "--%s needs --checkpoint FILE", options->resume ? "resume" : "checkpoint-every");
	if (!options->checkpoint && (options->keep_last || options->keep_best))
		return refuse(err, "--keep-%s needs --checkpoint FILE", options->keep_last ? "last" : "best");
	if (!options->checkpoint && options->on_leak == NEAP_ON_LEAK_RESTART)
		return refuse(err, "--on-leak restart needs --checkpoint FILE");
	if (options->host_limit_bytes && !options->host.warn_bytes && !options->host.degrade_bytes &&
	    !options->host.stop_bytes)
		return refuse(err, "--host-limit needs --host-warn, --host-degrade or --host-stop: it is for these");
	return options->rates ? take_rates(options, err) : NEAP_OK;
}

enum neap_status options_parse(struct options *options, int argc, char **argv, struct neap_error *err)
{
	*options = defaults;
	for (int i = 1; i < argc; i++) {
		const char *name = argv[i] + 2, *value = strchr(argv[i], '=');
		const struct option *option = NULL;
		enum neap_status status;

		if (!strncmp(argv[i], "--", 2))
			option = find(name, value ? (size_t)(value - name) : strlen(name));
		if (!option)
			return refuse(err, "unknown option %s", argv[i]);
		if (value && option->kind == KIND_FLAG)
			return refuse(err, "--%s takes no value", option->name);
		if (value)
			value++;
		else if (option->kind != KIND_FLAG)
			value = i + 1 < argc ? argv[++i] : NULL;
		if (!value && option->kind != KIND_FLAG)
			return refuse(err, "--%s needs a value: --%s %s", option->name, option->name, option->value);
		status = set(options, option, value, err);
		if (status != NEAP_OK)
			return status;
	}
	return options->help ? NEAP_OK : check(options, err);
}

/* " (default: X)", or nothing. */
static void describe_default(const struct option *option, char *text, size_t room)
{
	const void *field = (const char *)&defaults + option->offset;

	text[0] = '\0';
	if (option->kind == KIND_TEXT && *(const char *const *)field)
		snprintf(text, room, " (default: %s)", *(const char *const *)field);
	else if (option->kind == KIND_COUNT && (*(const uint64_t *)field || !option->least))
		snprintf(text, room, " (default: %" PRIu64 ")", *(const uint64_t *)field);
	else if (option->kind == KIND_LEAK)
		snprintf(text, room, " (default: %s)", leak_acts[*(const enum neap_on_leak *)field]);
	else if (option->kind == KIND_POINTS)
		snprintf(text, room, " (default: end)");
	else if (option->kind == KIND_USE)
		snprintf(text, room, " (default: %s)", uses[*(const enum use *)field]);
	else if (option->kind == KIND_RATE)
		snprintf(text, room, " (default: %g)", *(const double *)field);
}

void options_help(char *text, size_t room)
{
	int used = snprintf(text, room,
			    "Usage: charlm [OPTION]...\n"
			    "Trains a character-level transformer on a text, inside simulated GPU memory.\n\n");

	for (size_t i = 0; i < OPTIONS && used >= 0 && (size_t)used < room; i++) {
		char option[64], given[128];

		snprintf(option, sizeof(option), "--%s%s%s", table[i].name, table[i].value ? " " : "",
			 table[i].value ? table[i].value : "");
		describe_default(&table[i], given, sizeof(given));
		used += snprintf(text + used, room - (size_t)used, "  %-26s %s%s\n", option, table[i].help, given);
	}
	if (used >= 0 && (size_t)used < room)
		snprintf(text + used, room - (size_t)used,
			 "\nExit status: 0 done, 1 failed (out of device memory, say), 64 wrong usage, 66 no text,\n"
			 "69 no simulator, 75 stopped early because memory was short, 130 and 143 stopped by a "
			 "signal, after the micro-batch under way.\n");
}
