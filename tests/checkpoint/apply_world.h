/* tests/checkpoint/apply_world.h: a folder of eight checkpoints, five of them to be deleted, and the conditions that
 * hold after each attempt to apply the rules. */
#ifndef NEAP_TESTS_APPLY_WORLD_H
#define NEAP_TESTS_APPLY_WORLD_H

#include "neap/checkpoint.h"

#include "failing_calls.h"
#include "support/test.h"

#define DAY_NS (UINT64_C(86400) * 1000000000)
#define TRASH  ".neap-trash"

/* A checkpoint is whole when all its parts hold their own names. */
struct checkpoint {
	const char *name;
	int age_days;
	const char *parts[3]; /* of a folder */
	const char *sidecar;
	bool goes;
	const char *others[2]; /* files that belong to it */
};

enum { CHECKPOINTS = 8 };
extern const struct checkpoint checkpoints[CHECKPOINTS];
extern const struct neap_retention_options rules;
extern char base[64], folder[128], proc[128];

void put_in(const char *parent, const char *name, const char *content, int age_days);
void start_empty(void);
bool holds(const char *path, const char *content);
bool exists_in(const char *parent, const char *name);
bool is_whole(const char *parent, const struct checkpoint *checkpoint);
/* How many restorable batches hold it whole; -1: one holds a part of it. */
int in_trash(const struct checkpoint *checkpoint, bool *ret_with_sidecar);
/* Holds after anything that happened. `finished`: apply has since run to its end. */
void check(const char *what, unsigned long call, bool with_trash, bool finished);
struct neap_retention_plan plan(void);
int begin(void **state);
int end(void **state);

#endif
