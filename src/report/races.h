/* report/races.h: the races that `neap run --streams` found on the simulator: memory that streams use too late or at
 * the same time.
 *
 *   RUN/races.PID    {"lost": 0, "of": PID}: 1 once a line could not be written (src/torch/races.cpp); then a line of
 *                    JSON for each race, {"not_seen": NAME}, or {"limit": TEXT}
 *   RUN/places.PID   Python's stacks, by number less 1, as trace/stacks.h describes them
 *
 * Files of an earlier start of the run begin with "start-N.". Ranks mostly have the same races: races at the same
 * places count as one. The files are hostile: an object that is no race is skipped, and half a line counts as
 * lost. */
#ifndef NEAP_REPORT_RACES_H
#define NEAP_REPORT_RACES_H

#include "neap/status.h"

#include "base/buffer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum neap_race_kind {
	NEAP_RACE_DATA,
	NEAP_RACE_LIFETIME,
	NEAP_RACE_FREED,
	NEAP_RACE_HOST,
	NEAP_RACE_UNMAPPED,
	NEAP_RACE_KINDS,
};

/* A line of the program, and the library's line below it that did the work. */
struct neap_race_place {
	char *file, *function; /* NULL: not known */
	uint64_t line;
	char *inner; /* "FILE:LINE" of the innermost frame, if that is a library's; else NULL */
};

struct neap_race_side {
	struct neap_race_place place;
	char *name;   /* of the operation; "": the allocator, the program's host code */
	char use[16]; /* reads, writes, uses */
	bool on_host;
	uint64_t stream, device; /* stream 0: the default one */
};

struct neap_race {
	enum neap_race_kind kind;
	struct neap_race_side first, second;
	uint64_t bytes;       /* the bytes that both use */
	uint64_t block_bytes; /* 0: the block is not known */
	uint64_t block_stream, block_device;
	struct neap_race_place allocated, freed;
	/* KIND FILE:FUNCTION:OPERATION FILE:FUNCTION:OPERATION: the same race after other lines have moved */
	char *key;
	size_t processes, last_process; /* that have it; the number of the last one */
	bool accepted;
};

struct neap_race_names {
	char **list;
	size_t count;
};

struct neap_races {
	struct neap_race *list;
	size_t count;
	struct neap_race_names not_seen; /* kernels whose uses are not known */
	struct neap_race_names limits;   /* what was not seen from some moment on: there was too much of it */
	size_t processes;                /* that were read */
	size_t lost;                     /* processes, some of whose lines are not there */
	bool watched;                    /* at least one process was watched */
};

/* Adds those of all processes of a run. Free with neap_races_fini, also after a failure. */
enum neap_status neap_races_read(const char *folder, struct neap_races *races, struct neap_error *err);
void neap_races_fini(struct neap_races *races);
/* Marks the races whose keys stand in this file, a line each; empty lines and those that begin with # are skipped.
 * NEAP_EPARSE: a line is no key. */
enum neap_status neap_races_accept(struct neap_races *races, const char *path, struct neap_error *err);
size_t neap_races_open(const struct neap_races *races); /* that are not accepted */
/* Whether there may be races that are not in the list, apart from those of kernels that are not seen. */
bool neap_races_are_partial(const struct neap_races *races);

/* Writes each race that is not accepted, with its lines and the change that would order it; then the kernels and uses
 * that were not seen. */
void neap_races_text(struct neap_buffer *out, const struct neap_races *races);
/* "2 races between streams" and how many more are accepted. */
void neap_races_summary(struct neap_buffer *out, const struct neap_races *races);
/* The value of a member "races", and of "not_seen" and "limits". */
json_t *neap_races_json(const struct neap_races *races);
json_t *neap_race_names_json(const struct neap_race_names *names);

#endif
