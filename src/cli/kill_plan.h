/* cli/kill_plan.h: which processes `neap kill` ends, in which order, and which it refuses. A pure function over a
 * snapshot of all processes: nothing is signalled here.
 *
 * Ended are the processes asked for and everything that descends from them; a parent stands before its children, so
 * that a launcher gets the signal before it can restart a child that ended. Never ended, also for root: PID 1, kernel
 * threads, the command itself, its ancestors, and another user's processes.
 */
#ifndef NEAP_CLI_KILL_PLAN_H
#define NEAP_CLI_KILL_PLAN_H

#include "base/process.h"

#include <stddef.h>

enum kill_refusal {
	KILL_GONE,       /* no such process, or a zombie: it has ended */
	KILL_INIT,       /* PID 1 */
	KILL_KERNEL,     /* a thread of the kernel */
	KILL_SELF,       /* the command */
	KILL_ANCESTOR,   /* the command descends from it */
	KILL_OTHER_USER, /* not of this user */
	KILL_UNSEEN,     /* the driver names this PID, but the process of that PID here is not a user of the GPU */
};

struct kill_choice {
	pid_t pid;
	bool unseen; /* see KILL_UNSEEN */
};

struct kill_target {
	struct neap_process process;
	unsigned depth; /* 0: asked for; else below the one before it that has one less */
	bool late;      /* it was not there when the plan was made */
};

struct kill_refused {
	struct neap_process process; /* KILL_GONE: only the PID */
	enum kill_refusal why;
	bool chosen; /* false: it descends from a target */
};

struct kill_plan {
	struct kill_target *targets;
	struct kill_refused *refused;
	size_t target_count, refused_count;
};

/* `all`: every process there is. `self`, `uid`: who asks. The caller calls kill_plan_fini. Errors: NEAP_ENOMEM. */
enum neap_status kill_plan_make(const struct neap_process *all, size_t all_count, const struct kill_choice *choices,
				size_t choice_count, pid_t self, uid_t uid, struct kill_plan *ret_plan,
				struct neap_error *err);
void kill_plan_fini(struct kill_plan *plan);

/* Adds what has come since: what descends from a target or is in its process group, and what was started since
 * `since_ticks` in a session that a target leads. `plan` keeps its order; *ret_added says how many. Errors:
 * NEAP_ENOMEM, the plan unchanged. */
enum neap_status kill_plan_extend(const struct neap_process *all, size_t all_count, pid_t self, uid_t uid,
				  uint64_t since_ticks, struct kill_plan *plan, size_t *ret_added,
				  struct neap_error *err);

/* How many were refused for anything but being gone. */
size_t kill_plan_forbidden(const struct kill_plan *plan);
/* "of another user", ... Static storage. */
const char *kill_refusal_text(enum kill_refusal why);
/* "other_user", ...: for JSON. Static storage. */
const char *kill_refusal_name(enum kill_refusal why);

#endif
