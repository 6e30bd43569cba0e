/* cli/json_print.c: see json_print.h. */
#include "cli/json_print.h"

#include "cli/command.h"
#include "cli/print.h"

#include <stdlib.h>

int json_print(const char *command, json_t *root, size_t flags)
{
	static uint64_t reported; /* failures of earlier documents */
	char *text = neap_json_dump(root, flags);
	json_decref(root);
	uint64_t failures = neap_json_failures();
	if (!text || failures != reported) {
		reported = failures;
		free(text);
		fprintf(stderr, "neap %s: out of memory\n", command);
		return NEAP_EXIT_OS;
	}
	print_safe_json(stdout, text); /* main finds what could not be written */
	putchar('\n');
	free(text);
	return NEAP_EXIT_OK;
}

char *json_line(json_t *value)
{
	char *text = neap_json_dump(value, JSON_ENCODE_ANY | JSON_COMPACT);
	json_decref(value);
	return text;
}
