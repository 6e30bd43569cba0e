/* cli/run_options.c: see run_options.h. */
#include "cli/run_options.h"

#include "base/error.h"
#include "base/printable.h"
#include "base/units.h"
#include "estimate/estimate.h"
#include "report/races.h"
#include "run/auto_ladder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define RETRIES 8u

static int parse_duration(const struct neap_arguments *arguments, const char *option, uint64_t *ns)
{
	struct neap_error err = {0};
	const char *text = neap_argument(arguments, option);
	if (text && neap_duration_parse(text, ns, &err))
		return neap_misuse(arguments, "--%s: %s", option, err.message);
	return 0;
}

static int parse_size(const struct neap_arguments *arguments, const char *option, uint64_t *bytes)
{
	struct neap_error err = {0};
	const char *text = neap_argument(arguments, option);
	if (text && neap_size_parse(text, bytes, &err))
		return neap_misuse(arguments, "--%s: %s", option, err.message);
	if (text && !*bytes)
		return neap_misuse(arguments, "--%s: expected a size above 0", option);
	return 0;
}

int run_options_number(const struct neap_arguments *arguments, const char *option, uint64_t highest, uint64_t *number)
{
	struct neap_error err = {0};
	const char *text = neap_argument(arguments, option);
	if (!text)
		return 0;
	if (neap_u64_parse(text, number, &err) || *number > highest)
		return neap_misuse(arguments, "--%s: expected a whole number up to %llu, not '%s'", option,
				   (unsigned long long)highest, text);
	return 0;
}

static int parse_ladder(const struct neap_arguments *arguments, struct neap_argv *command,
			struct neap_supervise_options *run)
{
	struct neap_error err = {0};
	uint64_t retries = RETRIES;
	const char *text = NULL;
	for (size_t i = 0; (text = neap_argument_nth(arguments, "param", i)); i++)
		if (neap_parameters_add(&run->parameters, text, &err))
			return neap_misuse(arguments, "--param: %s", err.message);
	text = neap_argument(arguments, "on-oom");
	run->automatic = text && strcmp(text, "auto") == 0;
	enum neap_status status =
		run->automatic ? neap_ladder_auto(run->command, &run->parameters, &run->ladder, command, &err)
			       : NEAP_OK;
	bool asks = status == NEAP_ENOENT && !run->parameters.count; /* the program, once it runs */
	if (status && !asks)
		return neap_misuse(arguments, "--on-oom: %s", err.message);
	if (run->automatic && !asks)
		run->command = command->items;
	if (text && !run->automatic && neap_ladder_parse(text, &run->parameters, &run->ladder, &err))
		return neap_misuse(arguments, "--on-oom: column %u: %s", err.column, err.message);
	if (neap_argument(arguments, "retries") && !text)
		return neap_misuse(arguments, "--retries needs --on-oom: without rules there is nothing to change");
	int code = run_options_number(arguments, "retries", 1000, &retries);
	run->retries = text ? (uint32_t)retries : 0;
	return code;
}

/* Whether the text can be a name, which is printed on terminals and in tables. */
static bool is_name(const char *text)
{
	for (const char *c = text; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return false;
	return *text != '\0';
}

int run_options_parse(const struct neap_arguments *arguments, struct neap_argv *command,
		      struct neap_supervise_options *run)
{
	struct neap_error err = {0};
	uint64_t lock_fd = 0;
	int code = 0;
	if (!neap_rest(arguments)[0])
		return neap_misuse(arguments, "no command to run");
	run->command = neap_rest(arguments);
	run->name = neap_argument(arguments, "name");
	if (run->name && !is_name(run->name))
		return neap_misuse(arguments, "--name: expected a text of one line, without control characters");
	run->run_id = neap_argument(arguments, "run-id");
	run->device = neap_argument(arguments, "device");
	run->only_device = neap_argument(arguments, "only-device") != NULL;
	if (run->only_device && run->device)
		return neap_misuse(arguments, "--device and --only-device say the same: give one of them");
	if (run->only_device)
		run->device = neap_argument(arguments, "only-device");
	run->directory = neap_argument(arguments, "directory");
	run->clear_memory_on_start = neap_argument(arguments, "clear-memory-on-start") != NULL;
	run->log_files = neap_argument(arguments, "log") != NULL;
	run->has_lock = neap_argument(arguments, "lock-fd") != NULL;
	if (run->has_lock && !neap_argument(arguments, "folder"))
		return neap_misuse(arguments, "--lock-fd needs --folder");
	const char *needs = neap_argument(arguments, "needs");
	if (needs && strcmp(needs, "estimate") != 0 && neap_needs_parse(needs, &run->needs, &err))
		return neap_misuse(arguments, "--needs: %s", err.message);
	if ((code = parse_duration(arguments, "wait-limit", &run->wait_limit_ns)) ||
	    (code = parse_duration(arguments, "drain-limit", &run->drain_limit_ns)) ||
	    (code = parse_duration(arguments, "time-limit", &run->limits.at[NEAP_LIMIT_TIME])) ||
	    (code = parse_duration(arguments, "grace", &run->limits.grace_ns)) ||
	    (code = parse_size(arguments, "max-device", &run->limits.at[NEAP_LIMIT_DEVICE])) ||
	    (code = parse_size(arguments, "max-host", &run->limits.at[NEAP_LIMIT_HOST])) ||
	    (code = parse_size(arguments, "min-disk", &run->limits.at[NEAP_LIMIT_DISK])) ||
	    (code = run_options_number(arguments, "lock-fd", 1u << 20, &lock_fd)))
		return code;
	run->lock_fd = (int)lock_fd;
	return parse_ladder(arguments, command, run);
}

/* --- of the simulator --- */

/* Adds a word to NEAP_SIM: the last word counts. `otherwise`: the word if --values is not given; NULL: none. */
static int parse_values(const struct neap_arguments *arguments, const char *otherwise, char *setting, size_t capacity)
{
	const char *values = neap_argument(arguments, "values"), *before = getenv("NEAP_SIM");
	setting[0] = '\0';
	if (!values && !(values = otherwise))
		return 0;
	if (!neap_estimate_values_known(values))
		return neap_misuse(arguments, "--values: expected auto, full or none, not '%s'", values);
	if ((size_t)snprintf(setting, capacity, "NEAP_SIM=%s%svalues=%s", before ? before : "",
			     before && *before ? "," : "", values) >= capacity)
		return neap_misuse(arguments, "--values: NEAP_SIM is too long");
	return 0;
}

/* Reads --streams: sets NEAP_STREAMS to 1, or to delay:SEED. */
static int parse_streams(const struct neap_arguments *arguments, bool *ret_delay, char *setting, size_t capacity)
{
	const char *streams = neap_argument(arguments, "streams");
	uint64_t seed = 0;
	setting[0] = '\0';
	*ret_delay = streams && !strncmp(streams, "delay", 5);
	if (!streams)
		return 0;
	const char *rest = *ret_delay ? streams + 5 : streams;
	if (*rest && (!*ret_delay || *rest != ':' || neap_u64_parse(rest + 1, &seed, NULL)))
		return neap_misuse(arguments, "--streams: expected delay or delay:SEED, not '%s'", streams);
	if (*ret_delay)
		snprintf(setting, capacity, "NEAP_STREAMS=delay:%" PRIu64, seed);
	else
		snprintf(setting, capacity, "NEAP_STREAMS=1");
	return 0;
}

/* The default of --values with --streams: races are found only if values are computed. */
static const char *values_of_streams(bool delay)
{
	return delay ? "full" : strstr(getenv("NEAP_SIM") ?: "", "values=none") ? "auto" : NULL;
}

int run_simulated_make(const struct neap_arguments *arguments, struct run_simulated *ret_simulated)
{
	const char *device = getenv("NEAP_DEVICE"), *values = neap_argument(arguments, "values");
	bool delay;
	int code = parse_streams(arguments, &delay, ret_simulated->streams, sizeof ret_simulated->streams);
	if (!code)
		code = parse_values(arguments, *ret_simulated->streams ? values_of_streams(delay) : NULL,
				    ret_simulated->values, sizeof ret_simulated->values);
	if (code)
		return code;
	if (delay && values && strcmp(values, "full"))
		return neap_misuse(arguments, "--streams=delay shows wrong numbers: it needs --values full");
	if (*ret_simulated->streams && (!device || strcmp(device, "sim") || (values && !strcmp(values, "none"))))
		return neap_misuse(arguments, "--streams needs the simulator, with values: set NEAP_DEVICE=sim");
	ret_simulated->count = 0;
	if (ret_simulated->values[0])
		ret_simulated->entries[ret_simulated->count++] = ret_simulated->values;
	if (*ret_simulated->streams)
		ret_simulated->entries[ret_simulated->count++] = ret_simulated->streams;
	return 0;
}

void run_simulated_print(const char *folder, FILE *out)
{
	struct neap_races races = {0};
	struct neap_error err = {0};
	struct neap_buffer text = {0};
	if (neap_races_read(folder, &races, &err)) {
		fprintf(out, "  streams   %s\n", NEAP_PRINTABLE(err.message));
	} else {
		neap_buffer_text(&text, "  streams   ");
		if (races.watched)
			neap_races_summary(&text, &races);
		else
			neap_buffer_text(&text, "nothing was seen: no process used a GPU through PyTorch");
		neap_buffer_text(&text, "\n");
		neap_races_text(&text, &races);
		fputs(neap_buffer_string(&text), out);
	}
	neap_buffer_fini(&text);
	neap_races_fini(&races);
}
