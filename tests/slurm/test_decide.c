/* Decisions about an attempt: the table of slurm/decide.h, row by row. */
#include "slurm/decide.h"

#include "support/test.h"

#include <stdio.h>
#include <string.h>

#define RESULT(o) .has_result = true, .outcome = NEAP_OUTCOME_##o
#define GONE(c)   .gone = true, .cause = NEAP_SLURM_##c

static void test_table(void **state)
{
	(void)state;
	static const struct {
		struct neap_slurm_facts facts;
		enum neap_slurm_action action;
		enum neap_outcome outcome; /* of TAKE */
		bool amended;
	} rows[] = {
		/* a result is enough in any state of the task */
		{{GONE(UNTOLD), RESULT(OK)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_OK},
		{{RESULT(OOM)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_OOM},
		{{GONE(TIMEOUT), RESULT(STOPPED)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_STOPPED},
		{{GONE(CANCELLED), RESULT(OK)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_OK},
		{{RESULT(OK), .begun_again = true}, NEAP_SLURM_TAKE, NEAP_OUTCOME_OK},
		/* SIGTERM to the command before neap saw its own */
		{{GONE(CANCELLED), RESULT(SIGNALED)}, NEAP_SLURM_CANCEL},
		{{GONE(CANCELLED), RESULT(FAILED)}, NEAP_SLURM_CANCEL},
		{{GONE(TIMEOUT), RESULT(FAILED)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_TIMEOUT, .amended = true},
		{{RESULT(SIGNALED)}, NEAP_SLURM_WAIT},
		{{GONE(UNTOLD), RESULT(SIGNALED)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_SIGNALED},
		{{GONE(UNTOLD), RESULT(FAILED)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_FAILED},
		{{RESULT(FAILED), .begun_again = true}, NEAP_SLURM_CANCEL},
		/* neap got SIGTERM, but whose? */
		{{GONE(TIMEOUT), RESULT(CANCELED)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_TIMEOUT, .amended = true},
		{{GONE(OUT_OF_MEMORY), RESULT(CANCELED)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_HOST_OOM, .amended = true},
		{{GONE(CANCELLED), RESULT(CANCELED)}, NEAP_SLURM_CANCEL},
		{{GONE(TAKEN_BACK), RESULT(CANCELED)}, NEAP_SLURM_CANCEL},
		{{GONE(UNTOLD), RESULT(CANCELED)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_CANCELED},
		{{RESULT(CANCELED)}, NEAP_SLURM_WAIT},
		{{RESULT(CANCELED), .begun_again = true}, NEAP_SLURM_CANCEL},
		/* no result */
		{{.gone = false}, NEAP_SLURM_WAIT},
		{{.begun_again = true}, NEAP_SLURM_CANCEL},
		{{GONE(UNTOLD), .lock_held = true}, NEAP_SLURM_WAIT},
		{{GONE(CANCELLED), .lock_held = true}, NEAP_SLURM_WAIT},
		{{GONE(TIMEOUT)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_TIMEOUT, .amended = true},
		{{GONE(OUT_OF_MEMORY)}, NEAP_SLURM_TAKE, NEAP_OUTCOME_HOST_OOM, .amended = true},
		{{GONE(CANCELLED)}, NEAP_SLURM_CANCEL},
		{{GONE(TAKEN_BACK)}, NEAP_SLURM_CANCEL},
		{{GONE(UNTOLD)}, NEAP_SLURM_LOSE},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct neap_slurm_verdict verdict = neap_slurm_decide(&rows[i].facts);
		if (verdict.action != rows[i].action ||
		    (verdict.action == NEAP_SLURM_TAKE &&
		     (verdict.outcome != rows[i].outcome || (*verdict.why != '\0') != rows[i].amended)))
			fail_msg("row %zu: action %d, outcome %s, '%s'", i, verdict.action,
				 neap_outcome_name(verdict.outcome), verdict.why);
	}
}

/* Invariants for all facts. */
static void test_all_facts(void **state)
{
	(void)state;
	for (unsigned bits = 0; bits < 1u << 5; bits++)
		for (int cause = 0; cause <= NEAP_SLURM_TAKEN_BACK; cause++) {
			struct neap_slurm_facts facts = {
				.gone = bits & 1,
				.begun_again = bits & 2,
				.lock_held = bits & 4,
				.has_result = bits & 8,
				.outcome = bits & 16 ? NEAP_OUTCOME_CANCELED : NEAP_OUTCOME_OK,
				.cause = (enum neap_slurm_cause)cause,
			};
			struct neap_slurm_verdict verdict = neap_slurm_decide(&facts);
			bool again = verdict.action == NEAP_SLURM_LOSE || verdict.action == NEAP_SLURM_CANCEL;
			assert_non_null(verdict.why);
			/* No second attempt ever starts when a result counts or a supervisor lives. */
			assert_false(again && facts.has_result && facts.outcome == NEAP_OUTCOME_OK);
			assert_false(again && facts.lock_held && !facts.has_result);
			/* A task that may still exist is not over without a result of its own. */
			assert_false(again && !facts.gone && !facts.begun_again);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_all_facts)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
