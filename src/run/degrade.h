/* run/degrade.h: parameters of a command, and the ladder of `--on-oom`: how they change after an OOM. Pure functions
 * over plain data.
 *
 *   ladder  = rung (";" rung)*            tried in order; a rung is used again as long as it applies
 *   rung    = change ("," change)*        all of it or nothing
 *   change  = "halve" NAME | "double" NAME | "set" NAME "=" VALUE | "enable" NAME
 *
 * "halve micro_batch, double accumulate; enable checkpointing" keeps micro_batch x accumulate the same: halving is
 * exact or not at all. A rung applies when each halve finds an even number above 0, each double stays below 2^63, and
 * at least one change changes something. Values contain no comma, semicolon or blank.
 *
 * Limits: see the constants. Names: letters, digits, '_', '-' and '.', a letter or '_' first.
 */
#ifndef NEAP_RUN_DEGRADE_H
#define NEAP_RUN_DEGRADE_H

#include "base/buffer.h"

#define NEAP_PARAMETERS               32
#define NEAP_LADDER_RUNGS             16
#define NEAP_RUNG_CHANGES             8
#define NEAP_PARAMETER_NAME_CAPACITY  48
#define NEAP_PARAMETER_VALUE_CAPACITY 256

struct neap_parameter {
	char name[NEAP_PARAMETER_NAME_CAPACITY];
	char value[NEAP_PARAMETER_VALUE_CAPACITY];
};

/* A zeroed struct is empty. */
struct neap_parameters {
	struct neap_parameter items[NEAP_PARAMETERS];
	size_t count;
};

enum neap_verb { NEAP_VERB_HALVE, NEAP_VERB_DOUBLE, NEAP_VERB_SET, NEAP_VERB_ENABLE };

struct neap_change {
	enum neap_verb verb;
	char name[NEAP_PARAMETER_NAME_CAPACITY];
	char value[NEAP_PARAMETER_VALUE_CAPACITY]; /* the value of `set` */
};

struct neap_ladder {
	struct {
		struct neap_change changes[NEAP_RUNG_CHANGES];
		size_t count;
	} rungs[NEAP_LADDER_RUNGS];
	size_t count;
};

/* "NAME=VALUE". Errors: NEAP_EPARSE with the column; NEAP_EEXIST when the name is there already; NEAP_EINVAL when
 * there are too many. */
enum neap_status neap_parameters_add(struct neap_parameters *parameters, const char *text, struct neap_error *err);
/* NULL: no parameter has this name. */
const char *neap_parameters_get(const struct neap_parameters *parameters, const char *name);

/* Appends `word` with each {NAME} replaced by its value. "{{NAME}}" gives "{NAME}". "${NAME}" is for the shell and
 * stays. Braces around anything but a name stay. Errors: NEAP_EINVAL for a name that is not a parameter. */
enum neap_status neap_parameters_expand(const struct neap_parameters *parameters, const char *word,
					struct neap_buffer *out, struct neap_error *err);

/* "micro_batch=32 accumulate=1" */
void neap_parameters_text(const struct neap_parameters *parameters, struct neap_buffer *out);
/* The differences: "micro_batch 64 -> 16, accumulate 1 -> 4"; empty when there are none. Both must have the same
 * names in the same order. */
void neap_parameters_difference(const struct neap_parameters *before, const struct neap_parameters *after,
				struct neap_buffer *out);

/* Parses the rules. Every name must be a parameter, with a value that its verb accepts: halve and double a whole
 * number from 1, enable one of 0, false, off, no (or already 1, true, on, yes). Errors: NEAP_EPARSE with the column
 * and what was expected. */
enum neap_status neap_ladder_parse(const char *rules, const struct neap_parameters *parameters,
				   struct neap_ladder *ret_ladder, struct neap_error *err);

/* Starts at *rung and finds the first rung that applies. Changes `parameters` by it and sets *rung to it. False: no
 * rung applies, and nothing has changed. */
bool neap_ladder_descend(const struct neap_ladder *ladder, struct neap_parameters *parameters, size_t *rung);

#endif
