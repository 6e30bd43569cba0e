/* base/log.c: sends finished lines to the sink, and has a sink that writes to stderr. */
#include "base/log.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void neap_log(const struct neap_log_sink *sink, enum neap_log_level level, const char *format, ...)
{
	char line[1024];
	va_list args;

	if (!sink || !sink->line)
		return;
	va_start(args, format);
	int length = vsnprintf(line, sizeof line, format, args);
	va_end(args);
	if (length >= 0)
		sink->line(sink->context, level, line);
}

static const char *const level_names[] = {"debug", "info", "warning", "error"};

bool neap_log_level_parse(const char *text, enum neap_log_level *ret_level)
{
	for (int i = 0; i < 4; i++)
		if (strcasecmp(text, level_names[i]) == 0) {
			*ret_level = (enum neap_log_level)i;
			return true;
		}
	return false;
}

/* The level in NEAP_LOG_LEVEL. Read for each line: lines are rare, and the environment may change. */
static enum neap_log_level least_level(void)
{
	const char *text = getenv("NEAP_LOG_LEVEL");
	enum neap_log_level level = NEAP_LOG_WARNING;

	if (text)
		neap_log_level_parse(text, &level);
	return level;
}

static void stderr_line(void *context, enum neap_log_level level, const char *text)
{
	static const char *const names[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
	const char *name = (unsigned int)level < 4 ? names[level] : "INFO";
	struct tm local = {0};
	char stamp[32];

	(void)context;
	if (level < least_level())
		return;
	uint64_t now_ns = neap_wall_ns();
	time_t now_s = (time_t)(now_ns / NEAP_NS_PER_S);
	localtime_r(&now_s, &local);
	if (strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &local) == 0)
		stamp[0] = '\0';
	/* One call, so that lines of several threads and processes do not mix. */
	fprintf(stderr, "%s,%03d neap %s %s\n", stamp, (int)(now_ns / NEAP_NS_PER_MS % 1000), name, text);
}

const struct neap_log_sink *neap_log_stderr(void)
{
	static const struct neap_log_sink sink = {.line = stderr_line};

	return &sink;
}
