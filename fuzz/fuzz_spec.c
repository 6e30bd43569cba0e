/* Fuzz target for series files: any bytes must give a series or an error with its place, never a fault.
 *
 *     clang -fsanitize=fuzzer,address -Iinclude -Isrc fuzz/fuzz_spec.c src/series/spec*.c ... -lfyaml
 *
 * The test run drives the same function over a generated corpus. */
#include "series/spec.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads everything that the reader returned, and checks what the rest of neap relies on. */
static void use(const struct neap_spec *spec)
{
	if (!spec->count || spec->count > NEAP_SPEC_EXPERIMENTS || !*spec->name)
		abort();
	for (size_t i = 0; i < spec->count; i++) {
		const struct neap_experiment *experiment = &spec->experiments[i];
		const struct neap_argv *lists[] = {&experiment->command, &experiment->env, &experiment->params};
		if (!*experiment->name || strlen(experiment->name) >= NEAP_SPEC_NAME_CAPACITY ||
		    strchr(experiment->name, '/') || *experiment->name == '.' || !experiment->command.count)
			abort();
		for (size_t list = 0; list < 3; list++)
			for (size_t w = 0; w < lists[list]->count; w++)
				if (list && !strchr(lists[list]->items[w], '='))
					abort();
		/* Joined words split into the same words. */
		struct neap_argv again = {0};
		char *line = neap_argv_join(&experiment->command);
		if (!line || neap_argv_split(line, &again, NULL) || again.count != experiment->command.count)
			abort();
		for (size_t w = 0; w < again.count; w++)
			if (strcmp(again.items[w], experiment->command.items[w]))
				abort();
		neap_argv_fini(&again);
		free(line);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct neap_spec spec = {0};
	struct neap_error err = {0};
	if (size > NEAP_SPEC_LIMIT_BYTES)
		return 0;
	enum neap_status status = neap_spec_parse((const char *)data, size, &spec, &err);
	if (!status) {
		use(&spec);
		if (neap_series_check(&spec, "fuzz", &err) && !err.message[0])
			abort();
	} else if (!err.message[0] || (status == NEAP_EPARSE && (!err.line || !err.column))) {
		abort();
	}
	neap_spec_fini(&spec);
	return 0;
}
