/* cli/info_report.h: what `neap info` prints for people: the whole account, or a line for each GPU. */
#ifndef NEAP_CLI_INFO_REPORT_H
#define NEAP_CLI_INFO_REPORT_H

#include "machine/sample.h"

#include <stdio.h>

struct info_style {
	bool color;
	size_t columns; /* of the terminal: names are cut to fit; 0: they are not cut */
};

/* Devices that are left out are not shown, nor processes on them. */
void info_print_account(FILE *out, const struct neap_sample *sample, const struct info_style *style);
void info_print_oneline(FILE *out, const struct neap_sample *sample, const struct info_style *style);

#endif
