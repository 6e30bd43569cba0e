/* series_test.h: shared by the tests of whole series: a folder of their own, and `neap series` started in it. */
#ifndef NEAP_TESTS_SERIES_TEST_H
#define NEAP_TESTS_SERIES_TEST_H

#include "support/test.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* argv: the neap command, and killer.so. Not 0: they are not there. */
int series_arguments(int argc, char **argv);

const char *series_killer(void); /* the path of killer.so */

int series_setup(void **state);    /* makes a folder, goes there, points HOME and XDG_* into it */
int series_teardown(void **state); /* removes it */

void series_write(const char *name, const char *text);
char *series_read(const char *name); /* "" if the file does not exist; free it */
unsigned series_lines(const char *name);

/* Starts `neap series ARGS...` with stdout and stderr in the files out and err; `order`: NEAP_KILLER's, or NULL. */
pid_t series_spawn(const char *order, const char *const *args);
int series_wait(pid_t pid); /* exit status, or 128 + signal */
int series_run(const char *order, const char *const *args);
#define SERIES(order, ...) series_run(order, (const char *const[]){__VA_ARGS__, NULL})

/* Waits, checking every millisecond for at most 20 s, until the file exists and is not empty. */
void series_await(const char *name);

/* The journal's records in FOLDER. */
json_t *series_records(const char *folder);
/* How many records of `type` the experiment has. */
unsigned series_count(const json_t *records, const char *type, const char *experiment);

#endif
