/* train/scope.c: a scope logs, in two lines at its end, how a stretch of the program changed host and device
 * memory. */
#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "base/units.h"
#include "train/cleanup.h"

#include <unistd.h>

uint64_t neap_host_resident(void)
{
	struct neap_process self;

	return neap_process_read(getpid(), &self, NULL) == NEAP_OK ? self.rss_bytes : 0;
}

double neap_gb(int64_t bytes)
{
	double value = (double)bytes / (double)NEAP_GIB;

	return value > -0.05 && value < 0 ? 0 : value; /* never "-0.0" */
}

static int64_t cached(const struct neap_memory *memory)
{
	return (int64_t)memory->reserved_bytes - (int64_t)memory->allocated_bytes;
}

void neap_scope_begin(struct neap_scope *scope, struct neap_alloc *alloc, const struct neap_log_sink *log,
		      const char *name)
{
	struct neap_memory memory;

	neap_memory_read(alloc, &memory);
	*scope = (struct neap_scope){
		.alloc = alloc,
		.log = log,
		.name = name,
		.began_ns = neap_clock_now(neap_clock_system()),
		.host_bytes = neap_host_resident(),
		.allocated_bytes = (int64_t)memory.allocated_bytes,
		.reserved_bytes = (int64_t)memory.reserved_bytes,
		.peak_bytes = memory.peak_allocated_bytes,
	};
	neap_emit_scope(alloc, NEAP_EVENT_SCOPE_BEGIN,
			(struct neap_event_scope){.name = neap_emit_name(alloc, name)});
}

/* The highest allocated bytes inside, as far as known: exact if the scope set a new peak, otherwise the higher of its
 * beginning and end. */
static uint64_t peak_inside(const struct neap_scope *scope, const struct neap_memory *now)
{
	uint64_t began = (uint64_t)scope->allocated_bytes;

	if (now->peak_allocated_bytes > scope->peak_bytes)
		return now->peak_allocated_bytes;
	return began > now->allocated_bytes ? began : now->allocated_bytes;
}

void neap_scope_end(struct neap_scope *scope)
{
	struct neap_memory now;
	uint64_t host = neap_host_resident();

	if (!scope->alloc)
		return;
	neap_memory_read(scope->alloc, &now);
	neap_log(scope->log, NEAP_LOG_INFO, "%s: Memory usage: %.1f GB (\u0394%+.1f GB)", scope->name,
		 neap_gb((int64_t)host), neap_gb((int64_t)host - (int64_t)scope->host_bytes));
	neap_log(scope->log, NEAP_LOG_INFO,
		 "GPU memory: %.1f GB allocated, %.1f GB cached (\u0394%+.1f GB, \u0394%+.1f GB)",
		 neap_gb((int64_t)now.allocated_bytes), neap_gb(cached(&now)),
		 neap_gb((int64_t)now.allocated_bytes - scope->allocated_bytes),
		 neap_gb(cached(&now) - (scope->reserved_bytes - scope->allocated_bytes)));
	neap_emit_scope(scope->alloc, NEAP_EVENT_SCOPE_END,
			(struct neap_event_scope){.name = neap_emit_name(scope->alloc, scope->name),
						  .ns = neap_clock_now(neap_clock_system()) - scope->began_ns,
						  .peak_bytes = peak_inside(scope, &now)});
	scope->alloc = NULL; /* marks the scope as ended */
}
