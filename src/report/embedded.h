/* report/embedded.h: files that the build turns into arrays (tools/embed.py), for a page that needs nothing else.
 * Terminated; the length does not count the terminator. */
#ifndef NEAP_REPORT_EMBEDDED_H
#define NEAP_REPORT_EMBEDDED_H

#include <stddef.h>

extern const char neap_dygraphs_js[], neap_dygraphs_css[], neap_page_js[], neap_page_css[];
extern const size_t neap_dygraphs_js_length, neap_dygraphs_css_length, neap_page_js_length, neap_page_css_length;

#endif
