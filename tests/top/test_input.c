/* Keys of `neap top`: what they change, what they ask, and that nothing is done without a yes. */
#include "samples.h"

#include "support/test.h"

#include <string.h>

static struct neap_top_history history;
static struct neap_top_view view;

static void take(struct neap_top_sample sample)
{
	sum_up(&sample);
	neap_top_history_take(&history, &sample);
	neap_top_settle(&view, &history);
}

/* Processes 20 to 24, the first with the most memory; 24 is not attached. */
static struct neap_top_sample five(uint64_t seconds)
{
	struct neap_top_sample sample = make_sample(2, seconds);
	for (pid_t i = 0; i < 4; i++)
		add_attached(&sample, 20 + i, 1, (uint64_t)(8 - i) * GIB);
	add_other(&sample, 24, 2, GIB);
	return sample;
}

static int begin(void **state)
{
	(void)state;
	memset(&view, 0, sizeof view);
	view.width = 80;
	view.height = 24;
	take(five(100));
	return 0;
}

static int end(void **state)
{
	(void)state;
	neap_top_history_fini(&history);
	return 0;
}

static enum neap_top_effect press(uint32_t key) { return neap_top_press(&view, &history, key); }

static void type(const char *text)
{
	for (; *text; text++)
		assert_int_equal(press((uint32_t)*text), NEAP_TOP_DRAW);
}

static void test_moving(void **state)
{
	(void)state;
	assert_int_equal(view.selected.pid, 20); /* the first is selected at once */
	press(NEAP_TOP_KEY_UP);
	assert_int_equal(view.selected.pid, 20);
	press(NEAP_TOP_KEY_DOWN);
	assert_int_equal(view.selected.pid, 21);
	press(NEAP_TOP_KEY_END);
	assert_int_equal(view.selected.pid, 24);
	press(NEAP_TOP_KEY_DOWN);
	assert_int_equal(view.selected.pid, 24);
	press(NEAP_TOP_KEY_PAGE_UP);
	assert_int_equal(view.selected.pid, 20);
	press(NEAP_TOP_KEY_BACK_TAB);
	assert_int_equal(view.device, 1);
	press(NEAP_TOP_KEY_TAB);
	assert_int_equal(view.device, 0);
	assert_int_equal(press('q'), NEAP_TOP_QUIT);
}

static pid_t nth(size_t n)
{
	struct neap_top_rows rows;
	assert_int_equal(neap_top_rows_make(&history, &view, &rows, NULL), NEAP_OK);
	pid_t pid = n < rows.count ? rows.rows[n].process->pid : 0;
	free(rows.rows);
	return pid;
}

static void test_order(void **state)
{
	(void)state;
	assert_int_equal(nth(0), 20); /* by memory */
	press('s');                   /* growth: not known yet, so by PID */
	assert_int_equal(nth(0), 20);
	struct neap_top_sample later = five(130);
	later.processes[2].bytes += GIB;
	take(later);
	assert_int_equal(nth(0), 22);
	press('s'); /* busy, cpu, host: not known */
	press('.');
	press('s');
	assert_int_equal(nth(0), 20);
	press('s'); /* time: made_up samples run for as many seconds as their PID */
	assert_int_equal(nth(0), 24);
	press(',');
	assert_int_equal(nth(0), 20);
	press('.');
	assert_int_equal(nth(0), 24);
	press('r');
	assert_int_equal(nth(0), 20);
	assert_int_equal(view.selected.pid, 20); /* whatever row it is in now */
	enum neap_top_sort sort;
	assert_true(neap_top_sort_parse("user", &sort));
	assert_int_equal(sort, NEAP_TOP_BY_USER);
	assert_false(neap_top_sort_parse("colour", &sort));
	assert_null(neap_top_sort_name(NEAP_TOP_SORTS));
}

/* A tree counts everything below a process; a list leaves out processes that hold nothing. Processes that are parents
 * of each other end nothing.
 */
static void test_tree(void **state)
{
	(void)state;
	struct neap_top_sample sample = five(101);
	add_launcher(&sample, 9);
	sample.processes[3].parent = sample.processes[4].parent = 9;
	sample.processes[4].bytes = 60 * GIB;
	take(sample);
	struct neap_top_rows rows;
	assert_int_equal(neap_top_rows_make(&history, &view, &rows, NULL), NEAP_OK);
	assert_int_equal(rows.count, 6);
	assert_int_equal(rows.rows[0].process->pid, 9);
	assert_int_equal(rows.rows[1].process->pid, 24);
	assert_int_equal(rows.rows[1].depth, 1);
	assert_false(rows.rows[1].last);
	assert_true(rows.rows[2].last);
	free(rows.rows);
	press('t');
	assert_int_equal(nth(0), 24);
	assert_int_equal(nth(5), 0);
	press('t');
	sample = five(102);
	sample.processes[0].parent = 21;
	sample.processes[1].parent = 20;
	take(sample);
	assert_int_not_equal(nth(4), 0); /* all five are there */
}

static void test_filter_and_search(void **state)
{
	(void)state;
	press('/');
	type("SEED 22");
	press(NEAP_TOP_KEY_ENTER);
	assert_int_equal(view.selected.pid, 22);
	press('n'); /* the only match: found again */
	assert_int_equal(view.selected.pid, 22);
	press('&');
	type("seed 2x");
	press(NEAP_TOP_KEY_BACKSPACE);
	type("3");
	press(NEAP_TOP_KEY_ENTER);
	assert_string_equal(view.filter, "seed 23");
	assert_int_equal(nth(0), 23);
	assert_int_equal(nth(1), 0);
	assert_int_equal(view.selected.pid, 23); /* a hidden process cannot be chosen */
	press('&');
	type("x");
	press(NEAP_TOP_KEY_ESCAPE); /* leaves what was */
	assert_string_equal(view.filter, "seed 23");
	press(NEAP_TOP_KEY_ESCAPE);
	assert_string_equal(view.filter, "");
	press('/');
	type("nobody");
	press(NEAP_TOP_KEY_ENTER);
	assert_string_equal(view.notice, "no process has \"nobody\"");
	press('/');
	for (int i = 0; i < 200; i++)
		press('x');
	assert_int_equal(strlen(view.entry), NEAP_TOP_ENTRY - 1);
}

static void test_clear_asks_first(void **state)
{
	(void)state;
	assert_int_equal(press('c'), NEAP_TOP_DRAW);
	assert_int_equal(view.mode, NEAP_TOP_CONFIRM);
	assert_int_equal(press(NEAP_TOP_KEY_ENTER), NEAP_TOP_DRAW); /* no yes */
	assert_int_equal(view.mode, NEAP_TOP_LIST);
	assert_string_equal(view.notice, "nothing was done");
	press('c');
	assert_int_equal(press('y'), NEAP_TOP_RUN);
	assert_int_equal(view.verb, NEAP_TOP_CLEAR);
	assert_int_equal(view.target.pid, 20);
	assert_int_equal(view.target.start_ticks, 20);
	assert_int_equal(press('y'), NEAP_TOP_DRAW); /* it runs already */
	assert_int_equal(press('q'), NEAP_TOP_QUIT);
	neap_top_report(&view, "one\ntwo\033\nthree");
	assert_int_equal(view.mode, NEAP_TOP_SHOW);
	assert_string_equal(view.text, "one\ntwo?\nthree");
	press(NEAP_TOP_KEY_DOWN);
	assert_int_equal(view.text_row, 1);
	press(NEAP_TOP_KEY_DOWN);
	press(NEAP_TOP_KEY_DOWN);
	assert_int_equal(view.text_row, 2); /* the last line stays */
	press('x');
	assert_int_equal(view.mode, NEAP_TOP_LIST);
}

static void test_fraction(void **state)
{
	(void)state;
	press('f');
	type("1.5");
	press(NEAP_TOP_KEY_ENTER);
	assert_int_equal(view.mode, NEAP_TOP_LIST);
	assert_non_null(strstr(view.notice, "1.5"));
	press('f');
	type("0.5");
	press(NEAP_TOP_KEY_ENTER);
	assert_int_equal(view.mode, NEAP_TOP_CONFIRM);
	assert_int_equal(press('y'), NEAP_TOP_RUN);
	assert_int_equal(view.verb, NEAP_TOP_FRACTION);
	assert_string_equal(view.fraction, "0.5");
}

static void test_kill_shows_what_would_end(void **state)
{
	(void)state;
	press(NEAP_TOP_KEY_END);
	assert_int_equal(press('k'), NEAP_TOP_PREVIEW);
	assert_int_equal(view.target.pid, 24);
	neap_top_ask(&view, "24 jupyter");
	assert_int_equal(view.mode, NEAP_TOP_CONFIRM);
	assert_int_equal(press('n'), NEAP_TOP_DRAW);
	press('k');
	neap_top_ask(&view, "24 jupyter");
	assert_int_equal(press('Y'), NEAP_TOP_RUN);
	assert_int_equal(view.verb, NEAP_TOP_KILL);
}

static void test_not_attached(void **state)
{
	(void)state;
	press(NEAP_TOP_KEY_END);
	press('c');
	assert_int_equal(view.mode, NEAP_TOP_LIST);
	assert_non_null(strstr(view.notice, "not attached"));
}

/* The process that is selected or asked about ends; its PID goes to another. */
static void test_ended(void **state)
{
	(void)state;
	press(NEAP_TOP_KEY_DOWN);
	press('k');
	neap_top_ask(&view, "21");
	struct neap_top_sample sample = five(101);
	sample.processes[1].start_ticks = 999; /* PID 21 is another process now */
	take(sample);
	assert_int_equal(view.mode, NEAP_TOP_LIST);
	assert_string_equal(view.notice, "process 21 (python train.py --seed 21) is gone: nothing was done");
	assert_int_equal(view.selected_row, 1); /* the row stays */
	sample = five(102);
	sample.process_count = 0;
	take(sample);
	assert_int_equal(view.selected.pid, 0);
	assert_int_equal(press('k'), NEAP_TOP_DRAW);
	assert_string_equal(view.notice, "select a process first (arrow keys)");
}

/* No keys in any order do more than ask: RUN only ever names a process that was in sight. */
static void test_random_keys(void **state)
{
	(void)state;
	static const uint32_t keys[] = {'c',
					'f',
					'k',
					'y',
					'n',
					's',
					'r',
					't',
					'&',
					'/',
					'p',
					'?',
					'1',
					'.',
					NEAP_TOP_KEY_ENTER,
					NEAP_TOP_KEY_ESCAPE,
					NEAP_TOP_KEY_UP,
					NEAP_TOP_KEY_DOWN,
					NEAP_TOP_KEY_END,
					NEAP_TOP_KEY_TAB,
					NEAP_TOP_KEY_BACKSPACE,
					0,
					0xffffffff};
	uint64_t random = test_seed();
	bool asked = false;
	for (uint64_t i = 0; i < 20000; i++) {
		uint32_t key = keys[next_random(&random) % COUNT(keys)];
		asked = view.mode == NEAP_TOP_CONFIRM;
		switch (press(key)) {
		case NEAP_TOP_PREVIEW:
			neap_top_ask(&view, "what would end");
			break;
		case NEAP_TOP_RUN:
			assert_true(asked && key == 'y');
			assert_in_range(view.target.pid, 20, 24);
			neap_top_report(&view, "done");
			break;
		case NEAP_TOP_QUIT:
			fail();
			break;
		case NEAP_TOP_DRAW:
			break;
		}
		if (i % 50 == 0)
			take(five(101 + i));
	}
}

/* The ring forgets the oldest, and growth covers a minute at most. */
static void test_history(void **state)
{
	(void)state;
	int64_t growth = 0;
	for (uint64_t t = 1; t <= 400; t++) {
		struct neap_top_sample sample = five(100 + t);
		sample.processes[0].bytes += t < 340 ? 0 : (t - 340) * MIB;
		take(sample);
	}
	assert_int_equal(history.count, NEAP_TOP_HISTORY);
	assert_int_equal(neap_top_history_at(&history, NEAP_TOP_HISTORY - 1)->time_ns, 201 * S);
	assert_null(neap_top_history_at(&history, NEAP_TOP_HISTORY));
	assert_true(neap_top_growth(&history, &neap_top_history_at(&history, 0)->processes[0], &growth));
	assert_int_equal(growth, 60 * MIB);
	assert_true(neap_top_growth(&history, &neap_top_history_at(&history, 0)->processes[1], &growth));
	assert_int_equal(growth, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_moving, begin, end),
		cmocka_unit_test_setup_teardown(test_order, begin, end),
		cmocka_unit_test_setup_teardown(test_tree, begin, end),
		cmocka_unit_test_setup_teardown(test_filter_and_search, begin, end),
		cmocka_unit_test_setup_teardown(test_clear_asks_first, begin, end),
		cmocka_unit_test_setup_teardown(test_fraction, begin, end),
		cmocka_unit_test_setup_teardown(test_kill_shows_what_would_end, begin, end),
		cmocka_unit_test_setup_teardown(test_not_attached, begin, end),
		cmocka_unit_test_setup_teardown(test_ended, begin, end),
		cmocka_unit_test_setup_teardown(test_random_keys, begin, end),
		cmocka_unit_test_setup_teardown(test_history, begin, end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
