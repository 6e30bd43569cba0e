/* checkpoint/group.h: finds which files of a folder form one checkpoint. Pure; any thread. */
#ifndef NEAP_CHECKPOINT_GROUP_H
#define NEAP_CHECKPOINT_GROUP_H

#include "checkpoint/listing.h"
#include "checkpoint/name.h"
#include "checkpoint/role.h"

#include <stddef.h>

/* A name of the listing, and the group that it belongs to. `count` is valid unless `kind` is CHECKPOINT_COUNTS. */
struct checkpoint_member {
	struct checkpoint_role role;
	enum checkpoint_class class;
	enum checkpoint_count kind; /* what `count` counts; CHECKPOINT_COUNTS: the name has no count */
	uint64_t count;
	size_t group; /* from 1; 0: none */
};

/* Fills `group` of each member; the caller has filled the other fields. A CHECKPOINT_ONE, _PART or _TEMPORARY always
 * gets a group. A CHECKPOINT_EXTRA gets the group of its checkpoint, if the listing has that. Groups are numbered
 * without gaps, in the order of their first member in the listing. Errors: NEAP_ENOMEM. */
enum neap_status checkpoint_group(struct checkpoint_member *members, size_t count, size_t *ret_groups,
				  struct neap_error *err);

#endif
