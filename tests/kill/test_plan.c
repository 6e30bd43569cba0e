/* What `neap kill` would end, from made-up process tables. */
#include "kill/plan.h"

#include "support/test.h"

#include <string.h>

#define ME              7
#define SELF            50
#define COUNT_OF(array) (sizeof array / sizeof(*(array)))

/* PID 1 -> 10 (a shell) -> 50 (the command); 1 -> 20 (launcher) -> 21, 22 -> 23; 30 of another user -> 31 of mine. */
static const struct neap_process table[] = {
	{.pid = 1, .uid = 0, .start_ticks = 1, .state = 'S'},
	{.pid = 10, .parent = 1, .uid = ME, .start_ticks = 10, .state = 'S'},
	{.pid = 23, .parent = 22, .uid = ME, .start_ticks = 23, .state = 'S'},
	{.pid = 22, .parent = 20, .uid = ME, .start_ticks = 22, .state = 'S'},
	{.pid = 21, .parent = 20, .uid = ME, .start_ticks = 21, .state = 'T'},
	{.pid = 20, .parent = 1, .uid = ME, .start_ticks = 20, .state = 'S'},
	{.pid = 30, .parent = 1, .uid = 8, .start_ticks = 30, .state = 'S'},
	{.pid = 31, .parent = 30, .uid = ME, .start_ticks = 31, .state = 'S'},
	{.pid = 40, .parent = 20, .uid = ME, .start_ticks = 40, .state = 'Z'},
	{.pid = 41, .parent = 22, .uid = 8, .start_ticks = 41, .state = 'S'},
	{.pid = 25, .parent = 1, .group = 20, .uid = ME, .start_ticks = 25, .state = 'S'}, /* left to itself by 20 */
	{.pid = 26, .parent = 1, .session = 20, .uid = ME, .start_ticks = 26, .state = 'S'},
	{.pid = 60, .parent = 2, .uid = ME, .start_ticks = 60, .state = 'I', .kernel = true},
	{.pid = 42, .parent = 20, .uid = ME, .start_ticks = 2, .state = 'S'}, /* older than 20: a reused parent PID */
	{.pid = SELF, .parent = 10, .uid = ME, .start_ticks = 50, .state = 'R'},
};

static struct neap_kill_plan plan_of(const struct neap_kill_choice *choices, size_t count)
{
	struct neap_kill_plan plan;
	assert_int_equal(neap_kill_plan_make(table, COUNT_OF(table), choices, count, SELF, ME, &plan, NULL), NEAP_OK);
	return plan;
}

static void expect_target(const struct neap_kill_plan *plan, size_t index, pid_t pid, unsigned depth)
{
	assert_true(index < plan->target_count);
	assert_int_equal(plan->targets[index].process.pid, pid);
	assert_int_equal(plan->targets[index].depth, depth);
	assert_int_equal(plan->targets[index].process.start_ticks, pid); /* its identity goes along */
}

static void a_tree_parents_first(void **unused)
{
	(void)unused;
	const struct neap_kill_choice choices[] = {{.pid = 23}, {.pid = 20}, {.pid = 20}};
	struct neap_kill_plan plan = plan_of(choices, 3);
	assert_int_equal(plan.target_count, 5);
	expect_target(&plan, 0, 20, 0);
	expect_target(&plan, 1, 22, 1);
	expect_target(&plan, 2, 23, 2);
	expect_target(&plan, 3, 21, 1);
	expect_target(&plan, 4, 25, 1);
	assert_int_equal(plan.refused_count, 1); /* a child of another user; the zombie does not matter */
	assert_int_equal(plan.refused[0].process.pid, 41);
	assert_int_equal(plan.refused[0].why, NEAP_KILL_OTHER_USER);
	assert_false(plan.refused[0].chosen);
	neap_kill_plan_fini(&plan);
}

static void newcomers(void **unused)
{
	(void)unused;
	const struct neap_process now[] = {
		table[0],
		table[1],
		table[5],
		table[COUNT_OF(table) - 1],
		{.pid = 70, .parent = 20, .uid = ME, .start_ticks = 70, .state = 'S'},
		{.pid = 71, .parent = 70, .uid = ME, .start_ticks = 71, .state = 'S'},
		{.pid = 72, .parent = 1, .session = 20, .uid = ME, .start_ticks = 72, .state = 'S'},
		{.pid = 65, .parent = 1, .session = 20, .uid = ME, .start_ticks = 65, .state = 'S'}, /* before */
		{.pid = 73, .parent = 20, .uid = 8, .start_ticks = 73, .state = 'S'},
		{.pid = 74, .parent = 20, .uid = ME, .start_ticks = 74, .state = 'Z'},
		{.pid = 75, .parent = 1, .group = 71, .uid = ME, .start_ticks = 75, .state = 'S'},
	};
	const struct neap_kill_choice choice = {.pid = 20};
	struct neap_kill_plan plan = plan_of(&choice, 1);
	size_t before = plan.target_count, added = 0;
	assert_int_equal(neap_kill_plan_extend(now, COUNT_OF(now), SELF, ME, 70, &plan, &added, NULL), NEAP_OK);
	assert_int_equal(added, 4);
	expect_target(&plan, before, 70, 1);
	expect_target(&plan, before + 1, 71, 2);
	expect_target(&plan, before + 2, 72, 1);
	expect_target(&plan, before + 3, 75, 3);
	for (size_t i = 0; i < plan.target_count; i++)
		assert_int_equal(plan.targets[i].late, i >= before);
	assert_int_equal(neap_kill_plan_extend(now, COUNT_OF(now), SELF, ME, 70, &plan, &added, NULL), NEAP_OK);
	assert_int_equal(added, 0);
	neap_kill_plan_fini(&plan);
}

static void refusals(void **unused)
{
	(void)unused;
	static const struct {
		struct neap_kill_choice choice;
		enum neap_kill_refusal why;
	} cases[] = {
		{{.pid = 1}, NEAP_KILL_INIT},          {{.pid = SELF}, NEAP_KILL_SELF},
		{{.pid = 10}, NEAP_KILL_ANCESTOR},     {{.pid = 30}, NEAP_KILL_OTHER_USER},
		{{.pid = 99}, NEAP_KILL_GONE},         {{.pid = 40}, NEAP_KILL_GONE},
		{{.pid = 20, true}, NEAP_KILL_UNSEEN}, {{.pid = 60}, NEAP_KILL_KERNEL},
	};
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct neap_kill_plan plan = plan_of(&cases[i].choice, 1);
		assert_int_equal(plan.target_count, 0); /* nor anything below it */
		assert_int_equal(plan.refused_count, 1);
		assert_int_equal(plan.refused[0].why, cases[i].why);
		assert_int_equal(plan.refused[0].process.pid, cases[i].choice.pid);
		assert_true(plan.refused[0].chosen);
		assert_int_equal(neap_kill_plan_forbidden(&plan), cases[i].why != NEAP_KILL_GONE);
		assert_true(strlen(neap_kill_refusal_text(cases[i].why)) > 0 &&
			    strlen(neap_kill_refusal_name(cases[i].why)) > 0);
		neap_kill_plan_fini(&plan);
	}
}

/* A process below a refused one is ended if it is named itself: it then is its own tree. */
static void below_a_refused_choice(void **unused)
{
	(void)unused;
	const struct neap_kill_choice choices[] = {{.pid = 30}, {.pid = 31}};
	struct neap_kill_plan plan = plan_of(choices, 2);
	assert_int_equal(plan.target_count, 1);
	expect_target(&plan, 0, 31, 0);
	assert_int_equal(plan.refused_count, 1);
	neap_kill_plan_fini(&plan);
}

/* Root may signal any process, but the plan does not. */
static void root_ends_its_own_only(void **unused)
{
	(void)unused;
	const struct neap_kill_choice choice = {.pid = 20};
	struct neap_kill_plan plan;
	assert_int_equal(neap_kill_plan_make(table, COUNT_OF(table), &choice, 1, SELF, 0, &plan, NULL), NEAP_OK);
	assert_int_equal(plan.target_count, 0);
	assert_int_equal(plan.refused[0].why, NEAP_KILL_OTHER_USER);
	neap_kill_plan_fini(&plan);
}

/* Parents that lead in a circle (a torn snapshot) end the walk, not the command. */
static void a_circle(void **unused)
{
	(void)unused;
	const struct neap_process circle[] = {
		{.pid = 2, .parent = 3, .uid = ME, .start_ticks = 5, .state = 'S'},
		{.pid = 3, .parent = 2, .uid = ME, .start_ticks = 5, .state = 'S'},
		{.pid = 4, .parent = 4, .uid = ME, .start_ticks = 5, .state = 'S'},
	};
	const struct neap_kill_choice choices[] = {{.pid = 2}, {.pid = 4}};
	struct neap_kill_plan plan;
	assert_int_equal(neap_kill_plan_make(circle, 3, choices, 2, 3, ME, &plan, NULL), NEAP_OK);
	assert_int_equal(plan.target_count, 1);
	assert_int_equal(plan.targets[0].process.pid, 4);
	assert_int_equal(plan.refused_count, 1);
	assert_int_equal(plan.refused[0].why, NEAP_KILL_ANCESTOR);
	neap_kill_plan_fini(&plan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_tree_parents_first),
		cmocka_unit_test(newcomers),
		cmocka_unit_test(refusals),
		cmocka_unit_test(below_a_refused_choice),
		cmocka_unit_test(root_ends_its_own_only),
		cmocka_unit_test(a_circle),
	};
	return cmocka_run_group_tests_name("kill_plan", tests, NULL, NULL);
}
