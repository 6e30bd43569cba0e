/* neap/log.h: the host's log sink. neap prints nothing itself; it hands complete lines (no newline at the end) to the
 * sink its host gave it.
 *
 * Threads: `line` may be called from the thread that called into neap, and, if an agent runs, from the agent's
 * thread; never while an allocator's lock is held. It must not call back into neap.
 */
#ifndef NEAP_LOG_H
#define NEAP_LOG_H

#include "neap/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum neap_log_level { NEAP_LOG_DEBUG = 0, NEAP_LOG_INFO = 1, NEAP_LOG_WARNING = 2, NEAP_LOG_ERROR = 3 };

struct neap_log_sink {
	void (*line)(void *context, enum neap_log_level level, const char *text);
	void *context; /* the host's; outlives every use of the sink */
};

/* A ready sink: writes "2026-11-21 09:30:00,123 neap WARNING text" lines to stderr. NEAP_LOG_LEVEL (debug, info,
 * warning or error) sets the lowest level that it writes; without it, warnings and errors. Static storage. */
NEAP_API const struct neap_log_sink *neap_log_stderr(void);

#ifdef __cplusplus
}
#endif
#endif
