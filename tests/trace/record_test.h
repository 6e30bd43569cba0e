/* tests/trace/record_test.h: a recording in a folder of its own, and events that show when they are torn. */
#ifndef NEAP_TESTS_RECORD_TEST_H
#define NEAP_TESTS_RECORD_TEST_H

#include "support/test.h"
#include "trace/record.h"

extern char folder[TEST_FOLDER_CAPACITY];
extern char path[128];

int set_up(void **state);
int tear_down(void **state);

/* An event all of whose words follow from `n`. */
struct neap_event numbered(uint16_t kind, uint64_t n);
void assert_whole(const struct neap_event *event);

struct neap_recorder *open_recorder(uint64_t journal, uint64_t allocations);
struct neap_record read_record(void);
void emit(struct neap_recorder *recorder, struct neap_event event);
/* As one source of events, into its next slot. */
void emit_to_run(const struct neap_observer *observer, struct neap_event_run *run, struct neap_event event);

/* Replaces the file. */
void put_file(const void *bytes, size_t length);

#endif
