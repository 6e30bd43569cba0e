/* series/step.c: the table in step.h. */
#include "series/step.h"

size_t neap_step_open(const struct neap_step_experiment *experiments, size_t count, size_t from)
{
	size_t at = from;
	while (at < count && !experiments[at].open)
		at++;
	return at;
}

enum neap_step_kind neap_step_of_open(enum neap_step_found found)
{
	switch (found) {
	case NEAP_STEP_FOUND_LOCK:
		return NEAP_STEP_WAIT;
	case NEAP_STEP_FOUND_RESULT:
	case NEAP_STEP_FOUND_ENDED:
		return NEAP_STEP_TAKE;
	case NEAP_STEP_FOUND_UNBEGUN:
		return NEAP_STEP_SKIP;
	case NEAP_STEP_FOUND_NOTHING:
		break;
	}
	return NEAP_STEP_LOSE;
}

struct neap_step neap_step_beside(const struct neap_step_experiment *experiments, size_t count, size_t parallel,
				  uint32_t limit)
{
	size_t open = 0, at = count;
	for (size_t i = count; i-- > 0;) {
		open += experiments[i].open;
		if (!experiments[i].open && !experiments[i].ended)
			at = i;
	}
	if (open && (at == count || open >= parallel))
		return (struct neap_step){NEAP_STEP_WAIT, count, 0};
	if (at == count)
		return (struct neap_step){NEAP_STEP_FINISH, count, 0};
	if (experiments[at].lost >= limit)
		return (struct neap_step){NEAP_STEP_GIVE_UP, at, experiments[at].attempts};
	return (struct neap_step){NEAP_STEP_START, at, experiments[at].attempts + 1};
}

struct neap_step neap_step_next(const struct neap_step_experiment *experiments, size_t count,
				enum neap_step_found found, uint32_t limit)
{
	size_t at = neap_step_open(experiments, count, 0);
	if (at < count)
		return (struct neap_step){neap_step_of_open(found), at, experiments[at].attempts};
	return neap_step_beside(experiments, count, 1, limit);
}
