/* base/log.h: where lines for people go. The library never prints: it hands finished lines to a sink that its host
 * gave. The sink adds time, name and level. */
#ifndef NEAP_BASE_LOG_H
#define NEAP_BASE_LOG_H

#include "neap/log.h"

#include <stdbool.h>

/* Formats into a fixed line (cut at 1023 bytes) and hands it on; a NULL sink or function swallows it. */
void neap_log(const struct neap_log_sink *sink, enum neap_log_level level, const char *format, ...) NEAP_PRINTF(3, 4);

/* "debug", "info", "warning" or "error", in any case. False: none of them. */
bool neap_log_level_parse(const char *text, enum neap_log_level *ret_level);

#endif
