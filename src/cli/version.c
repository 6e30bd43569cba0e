/* cli/version.c: the output of `neap --version`. */
#include "cli/command.h"
#include "cli/print.h"
#include "neap/trace.h"
#include "proto/frame.h"
#include "proto/page.h"
#include "series/series_state.h"
#include "store/history.h"
#include "store/json_rows.h"
#include "store/result.h"

#include <stdio.h>
#include <string.h>

#define SCHEMA 1

/* "jansson 2.14, zlib 1.2.13" as an object of versions by name. */
static json_t *libraries_json(void)
{
	char list[] = NEAP_BUILT_LIBRARIES, *rest = list, *library;
	json_t *root = json_object();
	while ((library = strsep(&rest, ","))) {
		char *name = library + strspn(library, " "), *version = strchr(name, ' ');
		if (version)
			*version++ = '\0';
		neap_json_set(root, name, neap_json_text(version ? version : ""));
	}
	return root;
}

static int print_json(void)
{
	json_t *formats = JSON(NUMBER("recording", NEAP_RECORD_VERSION), NUMBER("page", NEAP_PAGE_VERSION),
			       NUMBER("protocol", NEAP_FRAME_VERSION), NUMBER("result", NEAP_RESULT_SCHEMA),
			       NUMBER("history", NEAP_HISTORY_SCHEMA), NUMBER("series", NEAP_SERIES_SCHEMA));
	return json_print("--version",
			  JSON(INTEGER("schema", SCHEMA), TEXT("version", NEAP_VERSION),
			       TEXT("built_with", NEAP_BUILT_WITH), TEXT("built_for", NEAP_BUILT_FOR),
			       VALUE("libraries", libraries_json()), VALUE("formats", formats)),
			  JSON_INDENT(2));
}

int neap_version_print(bool json)
{
	if (json)
		return print_json();
	puts("neap " NEAP_VERSION);
	puts("Built with " NEAP_BUILT_WITH ", for " NEAP_BUILT_FOR);
	puts("Libraries: " NEAP_BUILT_LIBRARIES);
	printf("Formats: recording %u, statistics page %u, agent's protocol %u\n", NEAP_RECORD_VERSION,
	       NEAP_PAGE_VERSION, NEAP_FRAME_VERSION);
	return NEAP_EXIT_OK;
}
