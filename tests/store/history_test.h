/* tests/store/history_test.h: a history in a folder of its own, and the runs that a test stores in it. */
#ifndef NEAP_TESTS_HISTORY_TEST_H
#define NEAP_TESTS_HISTORY_TEST_H

#include "store/history.h"

#include "support/test.h"

extern char folder[TEST_FOLDER_CAPACITY];
extern char path[128]; /* of the history's file, in the folder */

int set_up(void **state);
int tear_down(void **state);

/* Opens a history that must be in order. */
struct neap_history *open_history(void);
/* Stores a run of the series "nightly" with the key "k1". */
void put(struct neap_history *history, const char *id, const char *name, enum neap_outcome outcome,
	 uint64_t peak_bytes, uint64_t ended);
/* The number in the first column of the first row that SQLite answers. */
int ask_number(const char *sql);

#endif
