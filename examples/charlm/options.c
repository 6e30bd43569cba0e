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

/* The kind of a value, which sets the type of its field. USE is a rung of the ladder: when to take it. POINTS are
 * bits of words, separated by commas. */
enum kind { TEXT, COUNT, SIZE, RATE, RATES, USE, LEAK, POINTS, FLAG };

enum { USE_OFF, USE_ALLOW, USE_ON, WORDS_MAX = 6 };

static const struct {
	const char *expected;         /* the refusal of a wrong value says this */
	const char *words[WORDS_MAX]; /* in the order of their enum: USE_, neap_on_leak, neap_cleanup_reason */
} kinds[] = {
	[TEXT] = {"the name of a file"},
	[SIZE] = {"a size such as 128KiB, at most 1TiB"},
	[RATE] = {"a number above 0 and up to 1"},
	[RATES] = {"up to 16 numbers above 0 and up to 1, and commas"},
	[USE] = {"on, allow or off", {"off", "allow", "on"}},
	[LEAK] = {"warn, clear or restart", {"warn", "clear", "restart"}},
	[POINTS] = {"start, end, failure, saved, epoch, step, with commas, or none",
		    {"start", "end", "failure", "saved", "epoch", "step"}},
};

struct option {
	const char *name;
	const char *value;   /* its name in the help; NULL: takes none */
	const char *initial; /* as on the command line; NULL: none, the field is zero */
	const char *help;
	enum kind kind;
	size_t offset;        /* in struct options; of a USE: the rung */
	uint64_t least, most; /* of a COUNT */
};

#define AT(field) offsetof(struct options, field)

enum { MANY = 1000000000 };

static const struct option table[] = {
	{"text", "FILE", "/usr/share/common-licenses/GPL-3", "text to learn", TEXT, AT(text)},
	{"steps", "N", "100", "optimizer updates", COUNT, AT(session.total_steps), 1, MANY},
	{"batch", "N", "64", "samples of an update (the effective batch)", COUNT, AT(session.split.batch), 1, 65536},
	{"micro-batch", "N", NULL, "samples at a time, at most; the whole batch if not given", COUNT,
	 AT(session.split.micro_batch), 1, 65536},
	{"layers", "N", "2", "transformer blocks", COUNT, AT(shape.layers), 1, 64},
	{"width", "N", "64", "numbers for a character; a multiple of the heads", COUNT, AT(shape.width), 1, ROW_MAX},
	{"heads", "N", "4", "attention heads", COUNT, AT(shape.heads), 1, 64},
	{"context", "N", "32", "characters of a sample", COUNT, AT(shape.context), 1, 4096},
	{"rate", "X", "0.008", "highest learning rate", RATE, AT(rate)},
	{"rates", "X,X,...", NULL, "train once for each of these rates, one trial after another in this process",
	 RATES, AT(rates)},
	{"seed", "N", "1", "of the parameters and the samples", COUNT, AT(seed), 0, UINT64_MAX},
	{"efficient-attention", "USE", "allow",
	 "keep no attention weights: on, allow (when memory was not enough), off", USE,
	 NEAP_RUNG_EFFICIENT_ATTENTION},
	{"mixed-precision", "USE", "off", "activations in bfloat16, which changes results a little: likewise", USE,
	 NEAP_RUNG_MIXED_PRECISION},
	{"checkpointing", "USE", "allow", "compute layers again instead of keeping them: likewise", USE,
	 NEAP_RUNG_CHECKPOINTING},
	{"checkpoint", "FILE", NULL, "where to save the run's state", TEXT, AT(checkpoint)},
	{"checkpoint-every", "N", "0", "steps between checkpoints; 0: at the end only", COUNT, AT(checkpoint_every),
	 0, MANY},
	{"keep-last", "N", NULL, "make the checkpoint's FILE a folder, and keep the newest N of them there", COUNT,
	 AT(keep_last), 1, MANY},
	{"keep-best", "N", NULL, "likewise; keep also the N with the lowest loss", COUNT, AT(keep_best), 1, MANY},
	{"resume", NULL, NULL, "continue from the checkpoint, if it is there", FLAG, AT(resume)},
	{"losses", "FILE", NULL, "write this process's losses, one step a line", TEXT, AT(losses)},
	{"log-every", "N", "10", "steps between lines of progress; 0: none", COUNT, AT(log_every), 0, MANY},
	{"leak-per-step", "SIZE", NULL, "leak so much device memory each step, on purpose: 128KiB, 1MiB, ...", SIZE,
	 AT(leak_bytes_per_step)},
	{"on-leak", "WHAT", "warn", "before memory ends because of a leak: warn, clear (by force), restart", LEAK,
	 AT(session.on_leak)},
	{"device-warn", "SIZE", NULL, "warn when a step leaves less device memory than this", SIZE,
	 AT(session.device.warn_bytes)},
	{"device-degrade", "SIZE", NULL, "then clean up and need less, rung by rung", SIZE,
	 AT(session.device.degrade_bytes)},
	{"device-stop", "SIZE", NULL, "then save a checkpoint and stop", SIZE, AT(session.device.stop_bytes)},
	{"host-warn", "SIZE", NULL, "likewise of the host's memory", SIZE, AT(session.host.warn_bytes)},
	{"host-degrade", "SIZE", NULL, "likewise", SIZE, AT(session.host.degrade_bytes)},
	{"host-stop", "SIZE", NULL, "likewise", SIZE, AT(session.host.stop_bytes)},
	{"host-limit", "SIZE", NULL, "of this process's own memory on the host, for these three", SIZE,
	 AT(session.host_limit_bytes)},
	{"cleanup", "POINTS", "end", "when to clean up: start,end,failure,saved,epoch,step, or none", POINTS,
	 AT(session.cleanup_points)},
	{"cleanup-every-steps", "N", "0", "and every N steps; 0: never", COUNT, AT(session.cleanup_every_steps), 0,
	 MANY},
	{"cleanup-every-epochs", "N", "0", "likewise epochs", COUNT, AT(session.cleanup_every_epochs), 0, MANY},
	{"cleanup-every-ticks", "N", "0", "likewise micro-batches", COUNT, AT(session.cleanup_every_ticks), 0, MANY},
	{"clear-memory-on-start", NULL, NULL, "end what earlier runs left on the device, then clean up", FLAG,
	 AT(session.clear_memory_on_start)},
	{"help", NULL, NULL, "show this", FLAG, AT(help)},
};

enum { OPTIONS = sizeof table / sizeof *table };

static bool parse_count(const char *text, uint64_t least, uint64_t most, uint64_t *ret_count)
{
	char *end;

	errno = 0;
	uint64_t count = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)text[0]) || errno || *end || count < least || count > most)
		return false;
	*ret_count = count;
	return true;
}

/* A number, and "", "B", "K", "KB" or "KiB" (all powers of 1024), and so on up to T. */
static bool parse_size(const char *text, uint64_t *ret_bytes)
{
	static const char letters[] = "KMGT";
	char *end;
	uint64_t count = strtoull(text, &end, 10), most = UINT64_C(1) << 40;
	const char *letter = *end ? strchr(letters, toupper((unsigned char)*end)) : NULL;
	const char *rest = letter ? end + 1 : end;
	unsigned shift = letter ? 10 * (unsigned)(letter - letters + 1) : 0;

	if (!isdigit((unsigned char)text[0]) ||
	    (strcmp(rest, "") && strcmp(rest, "B") && (!letter || strcmp(rest, "iB"))))
		return false;
	if (count > most >> shift)
		return false;
	*ret_bytes = count << shift;
	return true;
}

/* Up to `most` rates, with commas. */
static bool parse_rates(const char *text, double *rates, size_t most, size_t *ret_count)
{
	size_t count = 0;

	for (;; text++) {
		char *end;
		double rate = strtod(text, &end);

		if (end == text || count == most || !(rate > 0 && rate <= 1))
			return false;
		rates[count++] = rate;
		text = end;
		if (*text != ',')
			break;
	}
	*ret_count = count;
	return !*text;
}

static bool parse_word(const char *text, size_t length, enum kind kind, unsigned *ret_number)
{
	for (unsigned i = 0; i < WORDS_MAX; i++)
		if (kinds[kind].words[i] && strlen(kinds[kind].words[i]) == length &&
		    !memcmp(text, kinds[kind].words[i], length)) {
			*ret_number = i;
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

		if (!parse_word(text, length, POINTS, &point))
			return false;
		bits |= 1u << point;
		more = text[length] == ',';
		text += length + more;
	}
	*ret_points = bits;
	return true;
}

static bool parse_use(const char *text, uint32_t rung, struct neap_train_options *session)
{
	unsigned use;

	if (!parse_word(text, strlen(text), USE, &use))
		return false;
	session->rungs_offered = (session->rungs_offered & ~rung) | (use == USE_ALLOW ? rung : 0);
	session->rungs_active = (session->rungs_active & ~rung) | (use == USE_ON ? rung : 0);
	return true;
}

static bool parse_value(struct options *options, const struct option *option, const char *value)
{
	void *field = (char *)options + option->offset;
	size_t count;

	switch (option->kind) {
	case TEXT:
		*(const char **)field = value;
		return *value;
	case COUNT:
		return parse_count(value, option->least, option->most, field);
	case SIZE:
		return parse_size(value, field);
	case RATE:
		return parse_rates(value, field, 1, &count);
	case RATES:
		return parse_rates(value, options->rates.list, RATES_MAX, &options->rates.count);
	case USE:
		return parse_use(value, 1u << option->offset, &options->session);
	case LEAK:
		return parse_word(value, strlen(value), LEAK, field);
	case POINTS:
		return parse_points(value, field);
	case FLAG:
		*(bool *)field = true;
	}
	return true;
}

static enum neap_status set(struct options *options, const struct option *option, const char *value,
			    struct neap_error *err)
{
	if (parse_value(options, option, value))
		return NEAP_OK;
	if (option->kind == COUNT)
		return fail(err, NEAP_EINVAL, "--%s %s: expected a whole number from %" PRIu64 " to %" PRIu64,
			    option->name, value, option->least, option->most);
	return fail(err, NEAP_EINVAL, "--%s %s: expected %s", option->name, value, kinds[option->kind].expected);
}

/* The option of an argument "--name" or "--name=value", or NULL. */
static const struct option *find(const char *argument)
{
	for (size_t i = 0; i < OPTIONS && !strncmp(argument, "--", 2); i++)
		if (strcspn(argument + 2, "=") == strlen(table[i].name) &&
		    !memcmp(argument + 2, table[i].name, strlen(table[i].name)))
			return &table[i];
	return NULL;
}

/* An option that lacks the checkpoint that it needs, or NULL. */
static const char *lacks_checkpoint(const struct options *options)
{
	return options->checkpoint                                ? NULL
	       : options->resume                                  ? "resume"
	       : options->checkpoint_every                        ? "checkpoint-every"
	       : options->keep_last                               ? "keep-last"
	       : options->keep_best                               ? "keep-best"
	       : options->session.on_leak == NEAP_ON_LEAK_RESTART ? "on-leak restart"
								  : NULL;
}

static enum neap_status check(struct options *options, struct neap_error *err)
{
	struct neap_train_options *session = &options->session;
	const struct model_shape *shape = &options->shape;

	if (!session->split.micro_batch)
		session->split.micro_batch = session->split.batch;
	if (session->split.micro_batch > session->split.batch)
		return fail(err, NEAP_EINVAL, "--micro-batch %" PRIu64 " is more than --batch %" PRIu64,
			    session->split.micro_batch, session->split.batch);
	if (shape->width % shape->heads)
		return fail(err, NEAP_EINVAL, "--heads %" PRIu64 " does not divide --width %" PRIu64, shape->heads,
			    shape->width);
	if (lacks_checkpoint(options))
		return fail(err, NEAP_EINVAL, "--%s needs --checkpoint FILE", lacks_checkpoint(options));
	if (session->host_limit_bytes && !session->host.warn_bytes && !session->host.degrade_bytes &&
	    !session->host.stop_bytes)
		return fail(err, NEAP_EINVAL,
			    "--host-limit needs --host-warn, --host-degrade or --host-stop: it is for these");
	if (options->rates.count && (options->checkpoint || options->losses))
		return fail(err, NEAP_EINVAL, "--rates: the trials would overwrite each other's --%s",
			    options->checkpoint ? "checkpoint" : "losses");
	session->layers = (uint32_t)shape->layers;
	return NEAP_OK;
}

enum neap_status options_parse(struct options *options, int argc, char **argv, struct neap_error *err)
{
	*options = (struct options){
		.session = {.name = "charlm", .rungs_offered = 1u << NEAP_RUNG_SPLIT, .log = neap_log_stderr()}};
	for (size_t i = 0; i < OPTIONS; i++)
		if (table[i].initial && set(options, &table[i], table[i].initial, err))
			return NEAP_EINVAL;
	for (int i = 1; i < argc; i++) {
		const struct option *option = find(argv[i]);
		const char *value = strchr(argv[i], '=');

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
		if (set(options, option, value, err))
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
