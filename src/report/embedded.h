/* report/embedded.h: files that the build turns into arrays (tools/embed.py), for a page that needs nothing else.
 * Terminated; the length does not count the terminator. NAME_sha256 is the hash, in base64, by which
 * a content policy allows a script or style of these bytes. */
#ifndef NEAP_REPORT_EMBEDDED_H
#define NEAP_REPORT_EMBEDDED_H

#include <stddef.h>

#define NEAP_EMBEDDED(name)                                                                                          \
	extern const char name[], name##_sha256[];                                                                   \
	extern const size_t name##_length

NEAP_EMBEDDED(neap_dygraphs_js);
NEAP_EMBEDDED(neap_dygraphs_css);
NEAP_EMBEDDED(neap_page_js);
NEAP_EMBEDDED(neap_page_css);
NEAP_EMBEDDED(neap_trace_page_html);
NEAP_EMBEDDED(neap_trace_page_css);
NEAP_EMBEDDED(neap_trace_data_js);
NEAP_EMBEDDED(neap_trace_draw_js);
NEAP_EMBEDDED(neap_trace_words_js);
NEAP_EMBEDDED(neap_trace_lines_js);
NEAP_EMBEDDED(neap_trace_flame_js);
NEAP_EMBEDDED(neap_trace_panels_js);
NEAP_EMBEDDED(neap_trace_view_js);
NEAP_EMBEDDED(neap_live_html);
NEAP_EMBEDDED(neap_live_css);
NEAP_EMBEDDED(neap_live_js);
#undef NEAP_EMBEDDED

#endif
