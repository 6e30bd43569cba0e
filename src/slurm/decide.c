/* slurm/decide.c: the table in decide.h. */
#include "slurm/decide.h"

static struct neap_slurm_verdict verdict(enum neap_slurm_action action, enum neap_outcome outcome, const char *why)
{
	return (struct neap_slurm_verdict){action, outcome, why};
}

bool neap_slurm_may_have_ended(enum neap_outcome outcome)
{
	return outcome == NEAP_OUTCOME_CANCELED || outcome == NEAP_OUTCOME_SIGNALED || outcome == NEAP_OUTCOME_FAILED;
}

static struct neap_slurm_verdict decide_by_cause(const struct neap_slurm_facts *facts)
{
	switch (facts->cause) {
	case NEAP_SLURM_TIMEOUT:
		return verdict(NEAP_SLURM_TAKE, NEAP_OUTCOME_TIMEOUT, "Slurm ended it at the job's time limit");
	case NEAP_SLURM_OUT_OF_MEMORY:
		return verdict(NEAP_SLURM_TAKE, NEAP_OUTCOME_HOST_OOM, "Slurm: the job ran out of its host memory");
	case NEAP_SLURM_CANCELLED:
		return verdict(NEAP_SLURM_CANCEL, NEAP_OUTCOME_LOST, "its task was cancelled (scancel)");
	case NEAP_SLURM_TAKEN_BACK:
		return verdict(NEAP_SLURM_CANCEL, NEAP_OUTCOME_LOST, "its task was preempted, or its node failed");
	case NEAP_SLURM_UNTOLD:
		break;
	}
	if (facts->has_result)
		return verdict(NEAP_SLURM_TAKE, facts->outcome, "");
	return verdict(NEAP_SLURM_LOSE, NEAP_OUTCOME_LOST, "its task is gone and left no result");
}

struct neap_slurm_verdict neap_slurm_decide(const struct neap_slurm_facts *facts)
{
	if (facts->has_result && !neap_slurm_may_have_ended(facts->outcome))
		return verdict(NEAP_SLURM_TAKE, facts->outcome, "");
	if (!facts->has_result && facts->lock_held)
		return verdict(NEAP_SLURM_WAIT, NEAP_OUTCOME_LOST, "");
	if (facts->begun_again)
		return verdict(NEAP_SLURM_CANCEL, NEAP_OUTCOME_LOST, "Slurm requeued its task");
	if (!facts->gone)
		return verdict(NEAP_SLURM_WAIT, NEAP_OUTCOME_LOST, "");
	return decide_by_cause(facts);
}
