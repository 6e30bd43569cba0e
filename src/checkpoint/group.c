/* checkpoint/group.c: see the header.
 *
 *   1. names with the same key are one group, if one of them has a role or the number of a part
 *   2. a group that has only helpers (optimizer_epoch_5.pt) joins the groups of the same count (resnet_epoch_5.pt)
 *
 * A group that is too large does no harm: a reason to keep one member keeps all of them, so more is kept.
 */
#include "checkpoint/group.h"

#include "base/error.h"
#include "base/map.h"

#include <stdlib.h>

struct grouping {
	struct checkpoint_member *members;
	size_t count;
	struct neap_map part_keys; /* keys of names that are parts */
	struct neap_map by_key;    /* group of a key */
	struct neap_map by_count;  /* the last member of a solid group with a count, from 1 */
	size_t *before;            /* per member: the previous one with the same count, from 1 */
	size_t *joined;            /* per group: the group it has joined, or itself */
	bool *solid;               /* per group: one of its members is more than a helper */
	size_t groups;
};

static size_t root(struct grouping *all, size_t group)
{
	while (all->joined[group] != group)
		group = all->joined[group] = all->joined[all->joined[group]];
	return group;
}

static void join(struct grouping *all, size_t a, size_t b)
{
	a = root(all, a);
	b = root(all, b);
	all->joined[a > b ? a : b] = a > b ? b : a;
}

static size_t begin_group(struct grouping *all)
{
	size_t group = ++all->groups;

	all->joined[group] = group;
	return group;
}

static bool is_first_class(const struct checkpoint_member *member)
{
	return member->class == CHECKPOINT_ONE || member->class == CHECKPOINT_PART;
}

static bool group_by_key(struct grouping *all)
{
	bool fine = true;

	for (size_t i = 0; fine && i < all->count; i++) {
		const struct checkpoint_member *member = &all->members[i];
		if (member->role.part && (is_first_class(member) || member->class == CHECKPOINT_EXTRA))
			fine = neap_map_put(&all->part_keys, member->role.key, 1);
	}
	for (size_t i = 0; fine && i < all->count; i++) {
		struct checkpoint_member *member = &all->members[i];
		uint64_t group = 0;

		if (member->class == CHECKPOINT_TEMPORARY)
			member->group = begin_group(all);
		if (!is_first_class(member))
			continue;
		bool part = neap_map_get(&all->part_keys, member->role.key, &group);
		if (!part || !neap_map_get(&all->by_key, member->role.key, &group)) {
			group = begin_group(all);
			fine = !part || neap_map_put(&all->by_key, member->role.key, group);
		}
		member->group = (size_t)group;
		all->solid[group] |= !member->role.aux;
	}
	for (size_t i = 0; fine && i < all->count; i++) {
		struct checkpoint_member *member = &all->members[i];
		uint64_t group;

		if (member->class == CHECKPOINT_EXTRA && neap_map_get(&all->by_key, member->role.key, &group))
			member->group = (size_t)group;
	}
	return fine;
}

/* A number without a word may count anything: steps or epochs. */
static bool counts_the_same(const struct checkpoint_member *a, const struct checkpoint_member *b)
{
	return a->count == b->count &&
	       (a->kind == b->kind || a->kind == CHECKPOINT_BARE || b->kind == CHECKPOINT_BARE);
}

static bool join_helpers(struct grouping *all)
{
	bool fine = true;
	uint64_t at;

	for (size_t i = 0; fine && i < all->count; i++) {
		const struct checkpoint_member *member = &all->members[i];
		if (!is_first_class(member) || member->kind == CHECKPOINT_COUNTS || !all->solid[member->group])
			continue;
		all->before[i] = neap_map_get(&all->by_count, member->count, &at) ? (size_t)at : 0;
		fine = neap_map_put(&all->by_count, member->count, i + 1);
	}
	for (size_t i = 0; fine && i < all->count; i++) {
		struct checkpoint_member *member = &all->members[i];
		bool alone = member->group == 0 ? member->class == CHECKPOINT_EXTRA : !all->solid[member->group];

		if (!member->role.aux || !alone || member->kind == CHECKPOINT_COUNTS ||
		    !neap_map_get(&all->by_count, member->count, &at))
			continue;
		for (; at; at = all->before[at - 1]) {
			if (!counts_the_same(member, &all->members[at - 1]))
				continue;
			if (member->group)
				join(all, member->group, all->members[at - 1].group);
			else
				member->group = all->members[at - 1].group;
		}
	}
	return fine;
}

/* Numbers the remaining groups. */
static void number(struct grouping *all, size_t *ret_groups)
{
	size_t groups = 0;

	for (size_t group = 1; group <= all->groups; group++)
		root(all, group); /* shortens the paths: a root is the smallest number of the joined groups */
	for (size_t group = 1; group <= all->groups; group++)
		all->before[group - 1] = all->joined[group] == group ? ++groups : 0;
	for (size_t i = 0; i < all->count; i++)
		if (all->members[i].group)
			all->members[i].group = all->before[root(all, all->members[i].group) - 1];
	*ret_groups = groups;
}

enum neap_status checkpoint_group(struct checkpoint_member *members, size_t count, size_t *ret_groups,
				  struct neap_error *err)
{
	struct grouping all = {.members = members, .count = count};

	all.before = calloc(count + 1, sizeof *all.before);
	all.joined = calloc(count + 1, sizeof *all.joined);
	all.solid = calloc(count + 1, sizeof *all.solid);
	bool fine = all.before && all.joined && all.solid && group_by_key(&all) && join_helpers(&all);
	if (fine)
		number(&all, ret_groups);
	free(all.before);
	free(all.joined);
	free(all.solid);
	neap_map_fini(&all.part_keys);
	neap_map_fini(&all.by_key);
	neap_map_fini(&all.by_count);
	return fine ? NEAP_OK : neap_fail(err, NEAP_ENOMEM, "out of host memory");
}
