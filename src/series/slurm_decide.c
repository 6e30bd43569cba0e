/* series/slurm_decide.c: see slurm_decide.h, whose table this is. */
#include "series/slurm_decide.h"

static struct neap_slurm_verdict verdict(enum neap_slurm_action action, const char *why)
{
	return (struct neap_slurm_verdict){.action = action, .outcome = NEAP_OUTCOME_LOST, .why = why};
}

static struct neap_slurm_verdict take(enum neap_outcome outcome, const char *why)
{
	return (struct neap_slurm_verdict){.action = NEAP_SLURM_TAKE, .outcome = outcome, .why = why};
}

static bool is_over(const struct neap_slurm_facts *facts)
{
	return facts->asked && facts->state != NEAP_SLURM_PENDING && facts->state != NEAP_SLURM_RUNNING;
}

/* Why Slurm ended one that had begun. LOSE: it does not say. */
static struct neap_slurm_verdict decide_by_state(enum neap_slurm_state state)
{
	switch (state) {
	case NEAP_SLURM_TIMEOUT:
		return take(NEAP_OUTCOME_TIMEOUT, "Slurm ended it at the job's time limit");
	case NEAP_SLURM_OUT_OF_MEMORY:
		return take(NEAP_OUTCOME_HOST_OOM, "Slurm: the job ran out of its host memory");
	case NEAP_SLURM_CANCELLED:
		return verdict(NEAP_SLURM_CANCEL, "its task was cancelled (scancel)");
	case NEAP_SLURM_PREEMPTED:
		return verdict(NEAP_SLURM_CANCEL, "its task was preempted");
	case NEAP_SLURM_NODE_FAIL:
		return verdict(NEAP_SLURM_LOSE, "its node failed");
	default:
		return verdict(NEAP_SLURM_LOSE, "its task is over and left no result");
	}
}

bool neap_slurm_may_have_ended(enum neap_outcome outcome)
{
	return outcome == NEAP_OUTCOME_CANCELED || outcome == NEAP_OUTCOME_SIGNALED || outcome == NEAP_OUTCOME_FAILED;
}

static struct neap_slurm_verdict decide_killed(const struct neap_slurm_facts *facts)
{
	if (facts->begun_again)
		return verdict(NEAP_SLURM_CANCEL, "Slurm requeued its task");
	if (!is_over(facts))
		return verdict(NEAP_SLURM_WAIT, "");
	struct neap_slurm_verdict by_state = decide_by_state(facts->state);
	if (facts->state == NEAP_SLURM_NODE_FAIL && facts->outcome == NEAP_OUTCOME_CANCELED)
		by_state.action = NEAP_SLURM_CANCEL; /* it had the time to say so itself */
	return by_state.action == NEAP_SLURM_LOSE ? take(facts->outcome, "") : by_state;
}

static struct neap_slurm_verdict decide_unbegun(const struct neap_slurm_facts *facts)
{
	if (!facts->has_job)
		return verdict(NEAP_SLURM_WITHDRAW, "it was never submitted");
	if (facts->state == NEAP_SLURM_CANCELLED || facts->state == NEAP_SLURM_PREEMPTED)
		return verdict(NEAP_SLURM_WITHDRAW, "its task was cancelled before it had begun");
	struct neap_slurm_verdict lost =
		verdict(NEAP_SLURM_WITHDRAW, facts->state == NEAP_SLURM_GONE
						     ? "Slurm does not know its task, which never began"
						     : "its task ended before it had begun");
	lost.counts = true;
	return lost;
}

struct neap_slurm_verdict neap_slurm_decide(const struct neap_slurm_facts *facts)
{
	if (facts->has_result)
		return neap_slurm_may_have_ended(facts->outcome) ? decide_killed(facts) : take(facts->outcome, "");
	if (facts->claimed == NEAP_SLURM_WITHDRAWN)
		return verdict(NEAP_SLURM_CANCEL, "it was withdrawn before it had begun");
	if (facts->lock_held)
		return verdict(NEAP_SLURM_WAIT, "");
	if (facts->claimed == NEAP_SLURM_BEGUN && facts->begun_again)
		return verdict(NEAP_SLURM_CANCEL, "Slurm requeued its task");
	if (!is_over(facts) || (facts->claimed == NEAP_SLURM_BEGUN && !facts->has_job)) /* its job is not known yet */
		return verdict(NEAP_SLURM_WAIT, "");
	if (facts->claimed == NEAP_SLURM_UNCLAIMED)
		return decide_unbegun(facts);
	return decide_by_state(facts->state);
}
