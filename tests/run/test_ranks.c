/* Sorting the attached processes of a run. */
#include "run/ranks.h"

#include "support/test.h"

#include <stdio.h>
#include <string.h>

static void add(struct neap_ranks *ranks, uint64_t pid, uint64_t parent, enum neap_process_role role, uint64_t rank)
{
	struct neap_run_facts facts = {.steps = pid * 10,
				       .ooms = 1,
				       .peak_allocated_bytes = pid,
				       .peak_reserved_bytes = UINT64_MAX, /* a damaged recording */
				       .process = {role, rank, rank, 2, parent, "GPU-a GPU-b"}};
	neap_ranks_add(ranks, pid, &facts);
}

static void test_told_apart_and_sorted(void **state)
{
	struct neap_ranks ranks = {0};
	struct neap_result result;
	(void)state;
	add(&ranks, 50, 21, NEAP_PROCESS_RANK, 1);   /* started by rank 1, with its environment */
	add(&ranks, 60, 50, NEAP_PROCESS_RANK, 1);   /* and by that one */
	add(&ranks, 70, 20, NEAP_PROCESS_WORKER, 0); /* loads data for rank 0 */
	add(&ranks, 80, UINT64_MAX, NEAP_PROCESS_PLAIN, UINT64_MAX);
	add(&ranks, 21, 10, NEAP_PROCESS_RANK, 1);
	add(&ranks, 20, 10, NEAP_PROCESS_RANK, 0);
	add(&ranks, 22, 20, NEAP_PROCESS_RANK, 2); /* started by rank 0 as another rank: spawned ranks */
	assert_int_equal(neap_result_init(&result, NULL), NEAP_OK);
	assert_int_equal(neap_ranks_put(&ranks, &result, NULL), NEAP_OK);
	static const struct {
		enum neap_role role;
		uint64_t rank, pid;
	} wanted[] = {{NEAP_ROLE_RANK, 0, 20},
		      {NEAP_ROLE_RANK, 1, 21},
		      {NEAP_ROLE_RANK, 2, 22},
		      {NEAP_ROLE_WORKER, 0, 70},
		      {NEAP_ROLE_PROCESS, 1, 50},
		      {NEAP_ROLE_PROCESS, 1, 60},
		      {NEAP_ROLE_PROCESS, UINT64_MAX, 80}};
	assert_int_equal(result.rank_count, 7);
	for (size_t i = 0; i < 7; i++) {
		assert_int_equal(result.ranks[i].role, wanted[i].role);
		assert_int_equal(result.ranks[i].rank, wanted[i].rank);
		assert_int_equal(result.ranks[i].pid, wanted[i].pid);
		assert_int_equal(result.ranks[i].steps, wanted[i].pid * 10);
		assert_int_equal(result.ranks[i].peak_allocated_bytes, wanted[i].pid);
		assert_string_equal(result.ranks[i].device, "GPU-a GPU-b");
	}
	struct neap_buffer text = {0}; /* values from a damaged recording can be written too */
	assert_int_equal(neap_result_format("it", &result, &text, NULL), NEAP_OK);
	neap_buffer_fini(&text);
	neap_result_fini(&result);
}

static void test_only_so_many(void **state)
{
	struct neap_ranks ranks = {0};
	(void)state;
	for (uint64_t pid = 1; pid <= 2 * NEAP_RESULT_RANKS; pid++)
		add(&ranks, pid, 0, NEAP_PROCESS_RANK, pid);
	assert_int_equal(ranks.count, NEAP_RESULT_RANKS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_told_apart_and_sorted),
		cmocka_unit_test(test_only_so_many),
	};
	return cmocka_run_group_tests_name("ranks", tests, NULL, NULL);
}
