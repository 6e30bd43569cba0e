/* What becomes of an attempt: the table of slurm_decide.h, row by row. */
#include "series/slurm_decide.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define RESULT(o) .has_result = true, .outcome = NEAP_OUTCOME_##o
#define ASKED(s)  .asked = true, .has_job = true, .state = NEAP_SLURM_##s
#define BEGUN     .claimed = NEAP_SLURM_BEGUN

static void test_table(void **state)
{
	(void)state;
	static const struct {
		struct neap_slurm_facts facts;
		enum neap_slurm_action action;
		enum neap_outcome outcome; /* of TAKE */
		bool amended, counts;
	} rows[] = {
		/* a result that says it all, whatever Slurm says */
		{{BEGUN, ASKED(COMPLETED), RESULT(OK)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_OK},
		{{BEGUN, ASKED(RUNNING), RESULT(OOM)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_OOM},
		{{BEGUN, ASKED(TIMEOUT), RESULT(STOPPED)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_STOPPED},
		{{BEGUN, RESULT(OK)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_OK},
		{{BEGUN, ASKED(PENDING), RESULT(OK), .begun_again = true}, NEAP_SLURM_TAKE, NEAP_OUTCOME_OK},
		/* SIGTERM to the command before neap saw its own */
		{{BEGUN, ASKED(CANCELLED), RESULT(SIGNALED)}, NEAP_SLURM_CANCEL},
		{{BEGUN, ASKED(CANCELLED), RESULT(FAILED)}, NEAP_SLURM_CANCEL},
		{{BEGUN, ASKED(TIMEOUT), RESULT(FAILED)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_TIMEOUT, .amended = true},
		{{BEGUN, ASKED(RUNNING), RESULT(SIGNALED)}, NEAP_SLURM_WAIT},
		{{BEGUN, ASKED(COMPLETED), RESULT(SIGNALED)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_SIGNALED},
		{{BEGUN, ASKED(FAILED), RESULT(FAILED)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_FAILED},
		{{BEGUN, ASKED(GONE), RESULT(FAILED)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_FAILED},
		{{BEGUN, ASKED(NODE_FAIL), RESULT(FAILED)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_FAILED},
		{{BEGUN, ASKED(RUNNING), RESULT(FAILED), .begun_again = true}, NEAP_SLURM_CANCEL},
		/* neap got SIGTERM: from whom? */
		{{BEGUN, ASKED(TIMEOUT), RESULT(CANCELED)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_TIMEOUT, .amended = true},
		{{BEGUN, ASKED(OUT_OF_MEMORY), RESULT(CANCELED)},
		 NEAP_SLURM_TAKE,
		 NEAP_OUTCOME_HOST_OOM,
		 .amended = true},
		{{BEGUN, ASKED(CANCELLED), RESULT(CANCELED)}, NEAP_SLURM_CANCEL},
		{{BEGUN, ASKED(PREEMPTED), RESULT(CANCELED)}, NEAP_SLURM_CANCEL},
		{{BEGUN, ASKED(NODE_FAIL), RESULT(CANCELED)}, NEAP_SLURM_CANCEL},
		{{BEGUN, ASKED(FAILED), RESULT(CANCELED)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_CANCELED},
		{{BEGUN, ASKED(GONE), RESULT(CANCELED)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_CANCELED},
		{{BEGUN, ASKED(PENDING), RESULT(CANCELED)}, NEAP_SLURM_WAIT},
		{{BEGUN, ASKED(RUNNING), RESULT(CANCELED)}, NEAP_SLURM_WAIT},
		{{BEGUN, .has_job = true, RESULT(CANCELED)}, NEAP_SLURM_WAIT},
		{{BEGUN, ASKED(RUNNING), RESULT(CANCELED), .begun_again = true}, NEAP_SLURM_CANCEL},
		/* no result */
		{{BEGUN, ASKED(RUNNING)}, NEAP_SLURM_WAIT},
		{{BEGUN, ASKED(PENDING)}, NEAP_SLURM_WAIT},
		{{BEGUN, ASKED(RUNNING), .begun_again = true}, NEAP_SLURM_CANCEL},
		{{BEGUN, ASKED(GONE), .lock_held = true}, NEAP_SLURM_WAIT},
		{{BEGUN, .has_job = true}, NEAP_SLURM_WAIT},
		{{BEGUN, ASKED(TIMEOUT)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_TIMEOUT, .amended = true},
		{{BEGUN, ASKED(OUT_OF_MEMORY)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_HOST_OOM, .amended = true},
		{{BEGUN, ASKED(CANCELLED)}, NEAP_SLURM_CANCEL},
		{{BEGUN, ASKED(PREEMPTED)}, NEAP_SLURM_CANCEL},
		{{BEGUN, ASKED(NODE_FAIL)}, NEAP_SLURM_LOSE},
		{{BEGUN, ASKED(FAILED)}, NEAP_SLURM_LOSE},
		{{BEGUN, ASKED(COMPLETED)}, NEAP_SLURM_LOSE},
		{{BEGUN, ASKED(GONE)}, NEAP_SLURM_LOSE},
		/* begun, but the job is not known yet: nobody has asked about it */
		{{BEGUN, .asked = true, .state = NEAP_SLURM_GONE}, NEAP_SLURM_WAIT},
		/* never begun */
		{{ASKED(PENDING)}, NEAP_SLURM_WAIT},
		{{ASKED(RUNNING)}, NEAP_SLURM_WAIT},
		{{.has_job = true}, NEAP_SLURM_WAIT},
		{{.asked = false}, NEAP_SLURM_WAIT},
		{{ASKED(CANCELLED)}, NEAP_SLURM_WITHDRAW},
		{{ASKED(PREEMPTED)}, NEAP_SLURM_WITHDRAW},
		{{ASKED(FAILED)}, NEAP_SLURM_WITHDRAW, .counts = true},
		{{ASKED(COMPLETED)}, NEAP_SLURM_WITHDRAW, .counts = true},
		{{ASKED(TIMEOUT)}, NEAP_SLURM_WITHDRAW, .counts = true},
		{{ASKED(GONE)}, NEAP_SLURM_WITHDRAW, .counts = true},
		{{.asked = true}, NEAP_SLURM_WITHDRAW}, /* its submission is not known to have been one */
		{{.claimed = NEAP_SLURM_WITHDRAWN, ASKED(PENDING)}, NEAP_SLURM_CANCEL},
		{{.claimed = NEAP_SLURM_WITHDRAWN}, NEAP_SLURM_CANCEL},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct neap_slurm_verdict verdict = neap_slurm_decide(&rows[i].facts);
		if (verdict.action != rows[i].action || verdict.counts != rows[i].counts ||
		    (verdict.action == NEAP_SLURM_TAKE &&
		     (verdict.outcome != rows[i].outcome || (*verdict.why != '\0') != rows[i].amended)))
			fail_msg("row %zu: action %d, outcome %s, counts %d, '%s'", i, verdict.action,
				 neap_outcome_name(verdict.outcome), verdict.counts, verdict.why);
	}
}

/* What must hold whatever the facts are. */
static void test_all_facts(void **state)
{
	(void)state;
	for (unsigned bits = 0; bits < 1u << 6; bits++)
		for (int slurm = 0; slurm <= NEAP_SLURM_NODE_FAIL; slurm++)
			for (int claimed = 0; claimed <= NEAP_SLURM_BEGUN; claimed++) {
				struct neap_slurm_facts facts = {
					.asked = bits & 1,
					.has_job = bits & 2,
					.begun_again = bits & 4,
					.lock_held = bits & 8,
					.has_result = bits & 16,
					.outcome = bits & 32 ? NEAP_OUTCOME_CANCELED : NEAP_OUTCOME_OK,
					.state = (enum neap_slurm_state)slurm,
					.claimed = (enum neap_slurm_claimed)claimed,
				};
				struct neap_slurm_verdict verdict = neap_slurm_decide(&facts);
				bool again = verdict.action == NEAP_SLURM_LOSE ||
					     verdict.action == NEAP_SLURM_CANCEL ||
					     verdict.action == NEAP_SLURM_WITHDRAW;
				assert_non_null(verdict.why);
				/* Never a second attempt beside a result that counts, or while someone runs it. */
				assert_false(again && facts.has_result && facts.outcome == NEAP_OUTCOME_OK);
				assert_false(again && facts.lock_held && !facts.has_result &&
					     claimed != NEAP_SLURM_WITHDRAWN);
				/* What Slurm was not asked about is not over, unless the folder says so itself. */
				assert_false(again && !facts.asked && claimed != NEAP_SLURM_WITHDRAWN &&
					     !facts.begun_again);
				/* Nothing is called lost that a task may still begin. */
				assert_false(verdict.action == NEAP_SLURM_LOSE && claimed != NEAP_SLURM_BEGUN);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_all_facts)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
