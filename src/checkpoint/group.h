/* checkpoint/group.h: which files of a folder form one checkpoint. Pure; any thread. */
#ifndef NEAP_CHECKPOINT_GROUP_H
#define NEAP_CHECKPOINT_GROUP_H

#include "checkpoint/listing.h"
#include "checkpoint/name.h"
#include "checkpoint/role.h"

#include <stddef.h>

/* The role of a name of the listing in its group. */
struct checkpoint_member {
	struct checkpoint_role role;
	enum checkpoint_class class;
	enum checkpoint_count kind; /* of its count; CHECKPOINT_COUNTS: it has none */
	uint64_t count;
	size_t group; /* from 1; 0: none */
};

/* Fills `group` of the listing's members, whose other fields are given. A CHECKPOINT_ONE, _PART or _TEMPORARY always
 * gets one, a CHECKPOINT_EXTRA that of its checkpoint, if that is here. Groups are numbered without gaps, in the
 * order of their first member in the listing. Errors: NEAP_ENOMEM. */
enum neap_status checkpoint_group(struct checkpoint_member *members, size_t count, size_t *ret_groups,
				  struct neap_error *err);

#endif
