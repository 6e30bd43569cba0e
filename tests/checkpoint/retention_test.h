/* tests/checkpoint/retention_test.h: a folder of checkpoints in which a test works. */
#ifndef NEAP_TESTS_RETENTION_TEST_H
#define NEAP_TESTS_RETENTION_TEST_H

#include "neap/checkpoint.h"

#include "support/test.h"

#define DAY_NS (UINT64_C(86400) * 1000000000)

extern char folder[TEST_FOLDER_CAPACITY];
extern const struct neap_retention_options all_old; /* what is older than a day goes into the trash */

int set_up(void **state);
/* On a tmpfs, on most machines: it takes any time. */
int set_up_in_memory(void **state);
int tear_down(void **state);

void put(const char *name, const char *content, int age_days);
/* The caller frees it. */
struct neap_retention_plan plan(const struct neap_retention_options *options);
const struct neap_retention_entry *entry(const struct neap_retention_plan *made, const char *name);

#endif
