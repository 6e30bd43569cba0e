/* analyze/write.c: see the header. */
#include "analyze/write.h"

#include "analyze/sites.h"
#include "base/error.h"

#include <string.h>

enum form { FORM_UNKNOWN, FORM_SNAPSHOT, FORM_TEXT, FORM_RECORDING };

static enum form form_of(const char *path)
{
	static const struct {
		const char *end;
		enum form form;
	} ends[] = {{".pickle", FORM_SNAPSHOT},
		    {".pkl", FORM_SNAPSHOT},
		    {".txt", FORM_TEXT},
		    {".txt.zst", FORM_TEXT},
		    {".record", FORM_RECORDING}};
	size_t length = strlen(path);

	for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
		size_t tail = strlen(ends[i].end);
		if (length > tail && strcmp(path + length - tail, ends[i].end) == 0)
			return ends[i].form;
	}
	return FORM_UNKNOWN;
}

bool neap_trace_form_known(const char *path) { return form_of(path) != FORM_UNKNOWN; }

static void name_stack(const void *context, uint32_t stack, char *ret_text, size_t capacity)
{
	const struct neap_sites *sites = context;
	neap_site_text(sites->trace, sites->frames[stack], ret_text, capacity);
}

enum neap_status neap_trace_write(const struct neap_trace *trace, size_t device, const char *path,
				  struct neap_error *err)
{
	struct neap_sites sites = {0};
	enum neap_status status;

	switch (form_of(path)) {
	case FORM_SNAPSHOT:
		status = neap_trace_write_snapshot(trace, path, err);
		break;
	case FORM_TEXT:
		status = neap_trace_write_text(trace, device, path, err);
		break;
	default:
		status = neap_sites_make(trace, &sites, err);
		if (!status)
			status = neap_trace_write_recording(trace, name_stack, &sites, path, err);
		neap_sites_fini(&sites);
	}
	if (status && !strstr(err->message, path))
		neap_error_prefix(err, "writing %s", path);
	if (status == NEAP_ENOENT)
		err->status = NEAP_EEXIST; /* exits 73: the input exists */
	return status;
}
