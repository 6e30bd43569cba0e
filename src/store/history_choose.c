/* store/history_choose.c: finds what a user names: one run, or a time. */
#include "base/clock.h"
#include "base/error.h"
#include "base/units.h"
#include "store/history.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct choice {
	const char *wanted;
	struct neap_history_chosen chosen;
	size_t count;
	bool exact, failed;
};

static bool choose(void *context, struct neap_history_run *run)
{
	struct choice *choice = context;
	bool exact = !strcmp(run->result->run_id, choice->wanted);
	if (!exact && choice->count++ > 0)
		return true;
	neap_result_fini(&choice->chosen.result);
	choice->chosen.result = *run->result;
	*run->result = (struct neap_result){0};
	free(choice->chosen.series);
	choice->chosen.series = strdup(run->series);
	choice->exact = exact;
	choice->failed = !choice->chosen.series;
	return !exact && !choice->failed;
}

void neap_history_chosen_fini(struct neap_history_chosen *chosen)
{
	neap_result_fini(&chosen->result);
	free(chosen->series);
	*chosen = (struct neap_history_chosen){0};
}

enum neap_status neap_history_choose(struct neap_history *history, const char *wanted,
				     struct neap_history_chosen *ret_chosen, struct neap_error *err)
{
	struct choice choice = {.wanted = wanted};
	struct neap_history_filter filter = {.run = wanted};
	enum neap_status status = *wanted ? neap_history_find(history, &filter, choose, &choice, err) : NEAP_OK;
	if (!status && choice.count == 0 && !choice.exact && !choice.failed) {
		filter = (struct neap_history_filter){.name = wanted, .limit = 1};
		status = neap_history_find(history, &filter, choose, &choice, err);
	}
	if (!status && choice.failed)
		status = neap_fail(err, NEAP_ENOMEM, "out of memory");
	else if (!status && !choice.chosen.series)
		status =
			neap_fail(err, NEAP_ENOENT, "no run '%.80s' in the history: neap history lists them", wanted);
	else if (!status && !choice.exact && choice.count > 1)
		status = neap_fail(err, NEAP_EINVAL, "%zu runs begin with '%.80s': give more of its ID", choice.count,
				   wanted);
	if (status)
		neap_history_chosen_fini(&choice.chosen);
	else
		*ret_chosen = choice.chosen;
	return status;
}

bool neap_history_time_parse(const char *text, uint64_t now_ns, uint64_t *ret_wall_ns)
{
	static const char *const forms[] = {"%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S",
					    "%Y-%m-%dT%H:%M:%S"};
	uint64_t ago_ns = 0;
	if (neap_duration_parse(text, &ago_ns, NULL) == NEAP_OK) {
		*ret_wall_ns = ago_ns < now_ns ? now_ns - ago_ns : 1;
		return true;
	}
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		struct tm local = {.tm_isdst = -1};
		const char *end = strptime(text, forms[i], &local);
		time_t seconds = end && !*end ? mktime(&local) : -1;
		if (seconds <= 0)
			continue;
		*ret_wall_ns = (uint64_t)seconds * NEAP_NS_PER_S;
		return true;
	}
	return false;
}
