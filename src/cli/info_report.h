/* cli/info_report.h: what `neap info` prints for people: the whole account, or a line for each GPU. */
#ifndef NEAP_CLI_INFO_REPORT_H
#define NEAP_CLI_INFO_REPORT_H

#include "cli/look.h"

#include <stdio.h>

struct info_style {
	bool color;
	size_t columns; /* of the terminal, to which names are cut; 0: they are not */
};

/* Devices that are left out are not shown, nor processes on them. */
void info_print_account(FILE *out, const struct look *look, const struct info_style *style);
void info_print_oneline(FILE *out, const struct look *look, const struct info_style *style);

/* The next device that an attached process uses and NVML does not list: a MIG instance, or another machine's view.
 * NULL: no more. `cursor` begins at 0. */
const struct neap_published *info_next_unlisted(const struct look *look, const struct neap_attached *attached,
						size_t *cursor);
uint64_t info_reserved(const struct neap_published *published);

/* "memory", "pid", "time", "user" or "name"; false: no such key, nothing was sorted. The largest, longest first; else
 * ascending. */
bool info_sort(struct look *look, const char *key);

#endif
