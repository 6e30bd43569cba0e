/* kill/plan.c: walks down the tree of processes from each chosen one. A snapshot is read one process after another,
 * so it may have a reused PID. Therefore a process counts as a child only if it is not older than its parent, and
 * each process is visited only once.
 */
#include "kill/plan.h"

#include "base/error.h"

#include <stdint.h>
#include <stdlib.h>

struct walk {
	const struct neap_process *all;
	size_t all_count;
	bool *visited;  /* one per process of `all` */
	bool *forebear; /* whether the caller descends from it */
	pid_t self;
	uid_t uid;
	struct neap_kill_plan *plan; /* with space for every process and every choice */
};

static const struct neap_process *find(const struct walk *walk, pid_t pid)
{
	for (size_t i = 0; i < walk->all_count; i++)
		if (walk->all[i].pid == pid)
			return &walk->all[i];
	return NULL;
}

static void mark_forebears(struct walk *walk)
{
	const struct neap_process *process = find(walk, walk->self);
	for (size_t steps = 0; process && steps < walk->all_count; steps++) {
		process = find(walk, process->parent);
		if (process)
			walk->forebear[process - walk->all] = true;
	}
}

static bool ended(const struct neap_process *process) { return process->state == 'Z' || process->state == 'X'; }

static bool is_refused(const struct walk *walk, const struct neap_process *process, enum neap_kill_refusal *ret_why)
{
	if (process->pid == walk->self)
		*ret_why = NEAP_KILL_SELF;
	else if (process->pid == 1)
		*ret_why = NEAP_KILL_INIT;
	else if (process->kernel)
		*ret_why = NEAP_KILL_KERNEL;
	else if (ended(process))
		*ret_why = NEAP_KILL_GONE;
	else if (process->uid != walk->uid)
		*ret_why = NEAP_KILL_OTHER_USER;
	else if (walk->forebear[process - walk->all])
		*ret_why = NEAP_KILL_ANCESTOR;
	else
		return false;
	return true;
}

static void refuse(struct walk *walk, const struct neap_process *process, enum neap_kill_refusal why, bool chosen)
{
	walk->plan->refused[walk->plan->refused_count++] = (struct neap_kill_refused){*process, why, chosen};
}

static void visit_children(struct walk *walk, const struct neap_process *parent, unsigned depth);

static void visit(struct walk *walk, const struct neap_process *process, unsigned depth)
{
	enum neap_kill_refusal why;
	size_t index = (size_t)(process - walk->all);
	if (walk->visited[index])
		return;
	walk->visited[index] = true;
	bool refused = is_refused(walk, process, &why);
	if (!refused)
		walk->plan->targets[walk->plan->target_count++] = (struct neap_kill_target){*process, depth};
	else if (depth == 0 || why != NEAP_KILL_GONE)
		refuse(walk, process, why, depth == 0);
	if (refused && depth == 0)
		/* The user chose only this tree; but below a refused descendant the target's tree continues. */
		return;
	visit_children(walk, process, depth);
}

static void visit_children(struct walk *walk, const struct neap_process *parent, unsigned depth)
{
	for (size_t i = 0; i < walk->all_count; i++)
		if (walk->all[i].parent == parent->pid && walk->all[i].start_ticks >= parent->start_ticks)
			visit(walk, &walk->all[i], depth + 1);
}

/* Visits orphaned descendants of a target: they are still in the process group that the target leads. */
static void visit_groups(struct walk *walk)
{
	for (size_t t = 0; t < walk->plan->target_count; t++) {
		pid_t leader = walk->plan->targets[t].process.pid;
		unsigned depth = walk->plan->targets[t].depth + 1;
		for (size_t i = 0; i < walk->all_count; i++)
			if (walk->all[i].group == leader)
				visit(walk, &walk->all[i], depth);
	}
}

/* Whether the process descends from another choice: the walk from that choice then visits it. */
static bool below_another(const struct walk *walk, const struct neap_process *process,
			  const struct neap_kill_choice *choices, size_t choice_count)
{
	const struct neap_process *parent = process;
	for (size_t steps = 0; steps < walk->all_count; steps++) {
		enum neap_kill_refusal why;
		uint64_t start_ticks = parent->start_ticks;
		parent = find(walk, parent->parent);
		if (!parent || parent->start_ticks > start_ticks)
			return false;
		for (size_t i = 0; i < choice_count; i++)
			if (choices[i].pid == parent->pid && !choices[i].unseen && parent != process &&
			    !is_refused(walk, parent, &why))
				return true;
	}
	return false;
}

enum neap_status neap_kill_plan_make(const struct neap_process *all, size_t all_count,
				     const struct neap_kill_choice *choices, size_t choice_count, pid_t self,
				     uid_t uid, struct neap_kill_plan *ret_plan, struct neap_error *err)
{
	struct neap_kill_plan plan = {0};
	struct walk walk = {.all = all, .all_count = all_count, .self = self, .uid = uid, .plan = &plan};
	enum neap_status status = NEAP_OK;
	size_t capacity = all_count + choice_count + 1;
	walk.visited = calloc(capacity, sizeof *walk.visited);
	walk.forebear = calloc(capacity, sizeof *walk.forebear);
	plan.targets = calloc(capacity, sizeof *plan.targets);
	plan.refused = calloc(capacity, sizeof *plan.refused);
	if (!walk.visited || !walk.forebear || !plan.targets || !plan.refused) {
		status = neap_fail(err, NEAP_ENOMEM, "out of memory");
		goto out;
	}
	mark_forebears(&walk);
	for (size_t i = 0; i < choice_count; i++) {
		const struct neap_process *process = find(&walk, choices[i].pid);
		struct neap_process gone = {.pid = choices[i].pid};
		size_t earlier = 0;
		while (choices[earlier].pid != choices[i].pid)
			earlier++;
		if (earlier < i) /* chosen twice */
			continue;
		if (choices[i].unseen)
			refuse(&walk, process ? process : &gone, NEAP_KILL_UNSEEN, true);
		else if (!process)
			refuse(&walk, &gone, NEAP_KILL_GONE, true);
		else if (!below_another(&walk, process, choices, choice_count))
			visit(&walk, process, 0);
	}
	visit_groups(&walk);
	*ret_plan = plan;
	plan = (struct neap_kill_plan){0};
out:
	neap_kill_plan_fini(&plan);
	free(walk.visited);
	free(walk.forebear);
	return status;
}

static bool is_planned(const struct neap_kill_plan *plan, const struct neap_process *process)
{
	for (size_t i = 0; i < plan->target_count; i++)
		if (plan->targets[i].process.pid == process->pid &&
		    plan->targets[i].process.start_ticks == process->start_ticks)
			return true;
	return false;
}

/* Returns the target from which the process descends, or whose group or (since `since_ticks`) session it joined. */
static const struct neap_kill_target *origin(const struct neap_kill_plan *plan, const struct neap_process *process,
					     uint64_t since_ticks)
{
	for (size_t i = 0; i < plan->target_count; i++) {
		const struct neap_process *target = &plan->targets[i].process;
		if (process->start_ticks < target->start_ticks)
			continue;
		if (process->parent == target->pid || process->group == target->pid ||
		    (process->start_ticks >= since_ticks && process->session == target->pid))
			return &plan->targets[i];
	}
	return NULL;
}

enum neap_status neap_kill_plan_extend(const struct neap_process *all, size_t all_count, pid_t self, uid_t uid,
				       uint64_t since_ticks, struct neap_kill_plan *plan, size_t *ret_added,
				       struct neap_error *err)
{
	struct walk walk = {.all = all, .all_count = all_count, .self = self, .uid = uid};
	size_t before = plan->target_count;
	enum neap_kill_refusal why;
	walk.forebear = calloc(all_count + 1, sizeof *walk.forebear);
	struct neap_kill_target *grown = realloc(plan->targets, (before + all_count + 1) * sizeof *grown);
	if (grown)
		plan->targets = grown;
	if (!walk.forebear || !grown) {
		free(walk.forebear);
		return neap_fail(err, NEAP_ENOMEM, "out of memory");
	}
	mark_forebears(&walk);
	for (size_t seen = SIZE_MAX; seen != plan->target_count;) { /* repeat for children of the added ones */
		seen = plan->target_count;
		for (size_t i = 0; i < all_count; i++) {
			const struct neap_kill_target *from = origin(plan, &all[i], since_ticks);
			if (from && !is_refused(&walk, &all[i], &why) && !is_planned(plan, &all[i]))
				plan->targets[plan->target_count++] =
					(struct neap_kill_target){all[i], from->depth + 1, true};
		}
	}
	free(walk.forebear);
	*ret_added = plan->target_count - before;
	return NEAP_OK;
}

void neap_kill_plan_fini(struct neap_kill_plan *plan)
{
	if (!plan)
		return;
	free(plan->targets);
	free(plan->refused);
	*plan = (struct neap_kill_plan){0};
}

size_t neap_kill_plan_forbidden(const struct neap_kill_plan *plan)
{
	size_t count = 0;
	for (size_t i = 0; i < plan->refused_count; i++)
		count += plan->refused[i].why != NEAP_KILL_GONE;
	return count;
}

static const struct {
	const char *name, *text;
} refusals[] = {
	[NEAP_KILL_GONE] = {"gone", "it has ended or never existed"},
	[NEAP_KILL_INIT] = {"init", "PID 1 is never ended"},
	[NEAP_KILL_KERNEL] = {"kernel", "it is a thread of the kernel"},
	[NEAP_KILL_SELF] = {"self", "it is this command"},
	[NEAP_KILL_ANCESTOR] = {"ancestor", "this command was started from it"},
	[NEAP_KILL_OTHER_USER] = {"other_user", "it is another user's"},
	[NEAP_KILL_UNSEEN] =
		{"unseen", "the driver counts PIDs of another namespace: the process of that PID here uses no GPU"},
};

const char *neap_kill_refusal_text(enum neap_kill_refusal why) { return refusals[why].text; }
const char *neap_kill_refusal_name(enum neap_kill_refusal why) { return refusals[why].name; }
