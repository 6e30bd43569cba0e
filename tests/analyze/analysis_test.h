/* tests/analyze/analysis_test.h: an analysis that must succeed, and the parts of a hand-made snapshot. */
#ifndef NEAP_TESTS_ANALYSIS_TEST_H
#define NEAP_TESTS_ANALYSIS_TEST_H

#include "../trace/made_trace.h"
#include "analyze/analysis.h"
#include "support/test.h"

/* Analyses the busiest device. */
void analyze(const struct neap_trace *trace, struct neap_instant from, struct neap_instant to,
	     struct neap_analysis *analysis);

uint32_t stack(struct maker *maker, const char *file, const char *name, uint32_t line);
void event(struct maker *maker, enum neap_trace_kind kind, uint64_t address, uint64_t size, uint32_t where);
void release(struct maker *maker, uint64_t address, uint64_t size, uint32_t where);
void range(struct maker *maker, enum neap_trace_mark_kind kind, const char *name);

#endif
