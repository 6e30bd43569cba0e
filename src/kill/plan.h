/* kill/plan.h: decides which processes `neap kill` ends, in which order, and which it refuses. A pure function over a
 * snapshot of all processes: nothing is signalled here.
 *
 * It ends the chosen processes and all their descendants. A parent stands before its children, so that a launcher
 * gets the signal before it can restart a child that ended. It never ends, not even for root: PID 1, kernel threads,
 * the command itself, its ancestors, and other users' processes.
 */
#ifndef NEAP_KILL_PLAN_H
#define NEAP_KILL_PLAN_H

#include "base/process.h"

#include <stddef.h>

enum neap_kill_refusal {
	NEAP_KILL_GONE,       /* no such process, or a zombie: it has ended */
	NEAP_KILL_INIT,       /* PID 1 */
	NEAP_KILL_KERNEL,     /* a thread of the kernel */
	NEAP_KILL_SELF,       /* the command */
	NEAP_KILL_ANCESTOR,   /* the command descends from it */
	NEAP_KILL_OTHER_USER, /* not of this user */
	NEAP_KILL_UNSEEN,     /* the driver names this PID, but the process that has it here does not use the GPU */
};

struct neap_kill_choice {
	pid_t pid;
	bool unseen; /* see NEAP_KILL_UNSEEN */
};

struct neap_kill_target {
	struct neap_process process;
	unsigned depth; /* 0: chosen; else its parent is the last target before it with depth - 1 */
	bool late;      /* it appeared after the plan was made */
};

struct neap_kill_refused {
	struct neap_process process; /* NEAP_KILL_GONE: only the PID */
	enum neap_kill_refusal why;
	bool chosen; /* false: it descends from a target */
};

struct neap_kill_plan {
	struct neap_kill_target *targets;
	struct neap_kill_refused *refused;
	size_t target_count, refused_count;
};

/* Makes a plan. `all`: all processes. `self`, `uid`: the calling process and its user. The caller calls
 * neap_kill_plan_fini. Errors: NEAP_ENOMEM. */
enum neap_status neap_kill_plan_make(const struct neap_process *all, size_t all_count,
				     const struct neap_kill_choice *choices, size_t choice_count, pid_t self,
				     uid_t uid, struct neap_kill_plan *ret_plan, struct neap_error *err);
void neap_kill_plan_fini(struct neap_kill_plan *plan);

/* Adds new processes: children of a target, processes in its process group, and processes started since `since_ticks`
 * in a session that a target leads. `plan` keeps its order; *ret_added is how many were added. Errors: NEAP_ENOMEM,
 * the plan unchanged. */
enum neap_status neap_kill_plan_extend(const struct neap_process *all, size_t all_count, pid_t self, uid_t uid,
				       uint64_t since_ticks, struct neap_kill_plan *plan, size_t *ret_added,
				       struct neap_error *err);

/* Returns how many were refused for a reason other than NEAP_KILL_GONE. */
size_t neap_kill_plan_forbidden(const struct neap_kill_plan *plan);
/* "of another user", ... Static storage. */
const char *neap_kill_refusal_text(enum neap_kill_refusal why);
/* "other_user", ...: for JSON. Static storage. */
const char *neap_kill_refusal_name(enum neap_kill_refusal why);

#endif
