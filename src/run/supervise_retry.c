/* run/supervise_retry.c: decides whether a command that ran out of memory is started again, and with which
 * parameters. The ladder is the user's, or the command's own, or, with --on-oom auto, made from the batch that the
 * program reported (auto_ladder.h).
 */
#include "run/supervise_internal.h"

#include "base/error.h"
#include "run/auto_ladder.h"
#include "run/run_stage.h"

bool neap_supervise_has_rung(const struct neap_supervise *run)
{
	struct neap_parameters parameters = run->parameters;
	size_t rung = run->rung;
	return run->retries < run->options.retries && !run->cancel_count &&
	       neap_ladder_descend(&run->ladder, &parameters, &rung);
}

/* Takes the batch that the program reported, if it divided the batch into the parts that neap asked for. */
static void take_batch(struct neap_supervise *run, const char *path, pid_t pid, void *context)
{
	struct neap_parameters asked, now;
	struct neap_ladder ladder;
	struct neap_error err = {0};
	(void)pid, (void)context;
	if (neap_ladder_read_batch(path, &asked, &now, &ladder, &err)) {
		neap_log(run->options.log, NEAP_LOG_WARNING, "The program's batch is not known: %s", err.message);
		return;
	}
	run->options.parameters = asked;
	run->parameters = now;
	if (neap_ladder_parts(&asked, &now) == run->batch_parts)
		run->ladder = ladder;
}

void neap_supervise_read_batch(struct neap_supervise *run)
{
	if (run->asks)
		neap_facts_each_file(run, "batch.", take_batch, NULL);
}

void neap_supervise_forget_batch(struct neap_supervise *run)
{
	run->model_alone = false;
	if (run->asks)
		run->ladder.count = 0;
}

static void report_no_rung(const struct neap_supervise *run)
{
	if (run->model_alone)
		neap_log(
			run->options.log, NEAP_LOG_WARNING,
			"Out of device memory, and no smaller batch helps: parameters, gradients and optimizer state "
			"alone are more than there is. Not started again");
	else if (run->asks && !run->parameters.count)
		neap_log(
			run->options.log, NEAP_LOG_WARNING,
			"Out of device memory, and neap knows no batch to halve: the command names none, nor did the "
			"program make TrainingArguments of transformers or begin the fit of a Lightning Trainer. "
			"Give "
			"--param and rules");
	else if (run->ladder.count || run->asks)
		neap_log(run->options.log, NEAP_LOG_WARNING, "Out of device memory, and no rung is left");
}

bool neap_supervise_again(struct neap_supervise *run, const struct neap_verdict *verdict)
{
	struct neap_parameters before = run->parameters;
	if (verdict->outcome != NEAP_OUTCOME_OOM || run->retries >= run->options.retries || run->cancel_count)
		return false;
	if ((run->options.automatic && run->model_alone) ||
	    !neap_ladder_descend(&run->ladder, &run->parameters, &run->rung)) {
		report_no_rung(run);
		return false;
	}
	run->batch_parts *= 2;
	struct neap_buffer text = {0};
	neap_parameters_difference(&before, &run->parameters, &text);
	run->retries++;
	neap_log(run->options.log, NEAP_LOG_WARNING, "Out of device memory; starting again (%u of %u) with %s",
		 run->retries, run->options.retries, neap_buffer_string(&text));
	neap_buffer_fini(&text);
	neap_guard_release(&run->guard); /* its start is over, even if its end was not noted */
	neap_run_stage_begin_again(run);
	neap_facts_set_aside(run);
	return true;
}
