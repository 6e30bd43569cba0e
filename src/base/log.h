/* base/log.h: lines for people. The library never prints: it passes finished lines to the sink that the program gave
 * it. The sink adds time, name and level. */
#ifndef NEAP_BASE_LOG_H
#define NEAP_BASE_LOG_H

#include "neap/log.h"

#include <stdbool.h>

/* Formats a line (cut at 1023 bytes) and passes it to the sink; drops it if the sink or its function is NULL. */
void neap_log(const struct neap_log_sink *sink, enum neap_log_level level, const char *format, ...) NEAP_PRINTF(3, 4);

/* "debug", "info", "warning" or "error", in any case. False: none of them. */
bool neap_log_level_parse(const char *text, enum neap_log_level *ret_level);

#endif
