/* Frames of `neap top` from made-up samples: where everything is drawn, and that nothing is drawn outside. */
#include "samples.h"
#include "top/frame.h"
#include "top/parts.h"

#include "support/test.h"

#include <limits.h>
#include <string.h>

static struct neap_top_history history;
static struct neap_top_view view;

static int begin(void **state)
{
	(void)state;
	memset(&view, 0, sizeof view);
	view.width = 80;
	view.height = 24;
	view.ascii = true;
	strcpy(view.clock, "12:00:00");
	strcpy(view.every, "1s");
	return 0;
}

static int end(void **state)
{
	(void)state;
	neap_top_history_fini(&history);
	return 0;
}

static void take(struct neap_top_sample sample)
{
	sum_up(&sample);
	neap_top_history_take(&history, &sample);
	neap_top_settle(&view, &history);
}

/* A launcher with two attached processes on two GPUs, and another that is not attached, over ten seconds. */
static void take_two_gpus(void)
{
	for (uint64_t t = 0; t <= 10; t++) {
		struct neap_top_sample sample = make_sample(2, 100 + t);
		add_launcher(&sample, 10);
		add_attached(&sample, 20, 1, (8 + t) * GIB)->parent = 10;
		add_attached(&sample, 21, 2, 8 * GIB)->parent = 10;
		strcpy(add_other(&sample, 30, 1, 7 * GIB)->command, "jupyter-lab --no-browser");
		take(sample);
	}
}

static char *frame_text(bool color)
{
	struct neap_top_grid grid;
	struct neap_error err;
	struct neap_buffer text = {0};
	assert_int_equal(neap_top_frame_make(&history, &view, &grid, &err), NEAP_OK);
	neap_top_grid_print(&grid, color, &text);
	neap_top_grid_fini(&grid);
	return neap_buffer_detach(&text);
}

static void expect(const char *expected)
{
	char *text = frame_text(false);
	assert_string_equal(text, expected);
	free(text);
}

static bool shows(const char *part)
{
	char *text = frame_text(false);
	bool found = strstr(text, part) != NULL;
	free(text);
	return found;
}

static void test_one_frame(void **state)
{
	(void)state;
	take_two_gpus();
	view.once = true;
	view.every[0] = '\0';
	expect("neap top  12:00:00   2 GPUs, 3 processes\n"
	       " 0 NVIDIA H100 80GB HBM3                               43.5 GiB of 80.0 GiB used\n"
	       "   #################=================cnnnnnnn.................................rr\n"
	       " # allocated 18.0G  = cached 18.0G  c context 512M  n not attached 7.00G\n"
	       " ? unexplained 0  . free 34.5G  r driver 2.00G\n"
	       " 1 NVIDIA H100 80GB HBM3                               16.5 GiB of 80.0 GiB used\n"
	       "   ########=======c...........................................................rr\n"
	       " # allocated 8.00G  = cached 8.00G  c context 512M  n not attached 0\n"
	       " ? unexplained 0  . free 61.5G  r driver 2.00G\n"
	       "    PID USER      GPU     TIME IN ALL  ALLOC CACHED  +/MIN COMMAND  by memory\n"
	       "     10 alice            12:34                             torchrun train.py\n"
	       "     20 alice       0    12:34  36.5G  18.0G  18.0G  +120G |-python train.py --s\n"
	       "     21 alice       1    12:34  16.5G  8.00G  8.00G      0 `-python train.py --s\n"
	       "     30 alice       0    12:34  7.00G      -      -      0 jupyter-lab --no-brow\n");
}

static void test_screen(void **state)
{
	(void)state;
	take_two_gpus();
	expect("neap top  12:00:00, every 1s   2 GPUs, 3 processes\n"
	       ">0 NVIDIA H100 80GB HBM3                               43.5 GiB of 80.0 GiB used\n"
	       "   #################=================cnnnnnnn.................................rr\n"
	       " 1 NVIDIA H100 80GB HBM3                               16.5 GiB of 80.0 GiB used\n"
	       "   ########=======c...........................................................rr\n"
	       " # allocated 18.0G  = cached 18.0G  c context 512M  n not attached 7.00G\n"
	       " ? unexplained 0  . free 34.5G  r driver 2.00G\n"
	       " GPU 0, the last 10.0 s: 43.5 GiB used at most\n"
	       " 80.0G\n"
	       "\n"
	       "                                                                              nn\n"
	       "                                                                             ===\n"
	       "     0                                                                       ###\n"
	       "    PID USER      GPU     TIME IN ALL  ALLOC CACHED  +/MIN COMMAND  by memory\n"
	       "     10 alice            12:34                             torchrun train.py\n"
	       "     20 alice       0    12:34  36.5G  18.0G  18.0G  +120G |-python train.py --s\n"
	       "     21 alice       1    12:34  16.5G  8.00G  8.00G      0 `-python train.py --s\n"
	       "     30 alice       0    12:34  7.00G      -      -      0 jupyter-lab --no-brow\n"
	       "\n"
	       "\n"
	       "\n"
	       "\n"
	       " 10: torchrun train.py\n"
	       " q quit  ? keys  c clear  f fraction  k kill  s sort  & filter  / search\n");
}

/* In every size, every character is within the grid; the parts give way in their order. */
static void test_sizes(void **state)
{
	(void)state;
	take_two_gpus();
	for (view.width = 1; view.width <= 200; view.width += 7)
		for (view.height = 1; view.height <= 60; view.height += 3)
			free(frame_text(true));
	view.width = 80;
	view.height = 24;
	assert_true(shows("used at most"));
	view.height = 20;
	assert_false(shows("used at most"));
	assert_true(shows("allocated"));
	view.height = 12;
	assert_false(shows("allocated"));
	assert_true(shows("torchrun"));
	view.height = 0;
	struct neap_top_grid grid;
	assert_int_equal(neap_top_frame_make(&history, &view, &grid, NULL), NEAP_EINVAL);
}

static void test_many_devices(void **state)
{
	(void)state;
	struct neap_top_sample sample = make_sample(16, 100);
	for (pid_t i = 0; i < 16; i++)
		add_attached(&sample, 20 + i, 1ull << i, (uint64_t)(i + 1) * GIB);
	add_attached(&sample, 50, 0xf0f1, GIB);
	take(sample);
	assert_true(shows("and 3 more GPUs (Tab)"));
	assert_true(shows(">0 "));
	assert_false(shows(" 15 #"));
	for (int i = 0; i < 15; i++)
		neap_top_press(&view, &history, NEAP_TOP_KEY_TAB);
	assert_true(shows(">15 "));
	char set[32];
	assert_string_equal(neap_top_device_set(0xf0f1, set), "0,4-7,12-15");
	assert_string_equal(neap_top_device_set(UINT64_MAX, set), "0-63");
}

static void test_nothing_there(void **state)
{
	(void)state;
	assert_true(shows("neap top  12:00:00")); /* before the first sample */
	take(make_sample(0, 100));
	assert_true(shows("0 GPUs, 0 processes"));
	assert_true(shows("no process uses a GPU"));
	strcpy(view.problem, "the GPU is lost");
	assert_true(shows("no new figures: the GPU is lost"));
}

static void test_unified_memory_and_host(void **state)
{
	(void)state;
	struct neap_top_sample sample = make_sample(1, 100);
	sample.devices[0].kind = NEAP_TOP_UNIFIED;
	sample.devices[0].utilization_percent = 37;
	strcpy(sample.devices[0].name, "NVIDIA GB10");
	sample.host_known = sample.host_by_group = true;
	sample.host_available_bytes = 3 * GIB;
	sample.unlisted = 2;
	sample.unlisted_bytes = GIB;
	take(sample);
	view.width = 120;
	assert_true(shows("NVIDIA GB10 (unified memory, shared with the host)"));
	assert_true(shows(" 37 % busy"));
	assert_true(shows("host: 3.00 GiB left (cgroup limit)"));
	assert_true(shows("2 attached processes have 1.00 GiB reserved on devices that NVML does not list"));
	view.width = 80; /* a limit is shown in fewer words before it is left out */
	assert_false(shows("(cgroup limit)"));
	assert_true(shows("cgroup: 3.00 GiB left"));
}

/* Sensors, and what a process uses of processors and host memory, if the screen is wide enough. */
static void test_condition(void **state)
{
	(void)state;
	for (uint64_t t = 0; t < 2; t++) {
		struct neap_top_sample sample = make_sample(1, 100 + 2 * t);
		struct neap_top_process *process = add_attached(&sample, 20, 1, GIB);
		sample.devices[0].utilization_percent = 37;
		sample.devices[0].temperature_celsius = 64;
		sample.devices[0].power_watts = 310;
		sample.devices[0].power_limit_watts = 700;
		sample.devices[0].clock_mhz = 1980;
		process->busy_percent = 31;
		process->cpu_ns = (10 + 3 * t) * S; /* 3 s in 2 s */
		process->host_bytes = 12 * GIB;
		take(sample);
	}
	view.width = 140;
	assert_true(shows("used   37 % busy  64 C  310/700 W  1980 MHz"));
	assert_true(shows("SM%  CPU%   HOST COMMAND"));
	assert_true(shows(" 31   150  12.0G python"));
	view.width = 89;
	assert_false(shows("64 C"));
	assert_true(shows("used   37 % busy"));
	view.width = 60;
	assert_false(shows("HOST"));
}

/* Names from outside: bytes that a terminal would obey, wide characters, bytes that are not UTF-8. */
static void test_hostile_names(void **state)
{
	(void)state;
	struct neap_top_sample sample = make_sample(1, 100);
	strcpy(add_attached(&sample, 20, 1, GIB)->command, "a\033[2Jb\xc2\x9b"
							   "c\xff\xe4\xbd\xa0\xcc\x81z");
	strcpy(sample.processes[0].user, "\033]0;");
	take(sample);
	view.width = 160;
	view.ascii = false;
	char *text = frame_text(false);
	assert_null(strchr(text, '\033'));
	assert_non_null(strstr(text, "a?[2Jb?c???z"));
	assert_non_null(strstr(text, "?]0;"));
	free(text);
	strcpy(neap_top_history_at(&history, 0)->processes[0].command, "\xc3\xa9t\xc3\xa9");
	assert_true(shows("\xc3\xa9t\xc3\xa9"));
	view.ascii = true;
	assert_true(shows(" ?t?"));
}

/* UTF-8 and ASCII forms take the same columns; colour changes no character. */
static void test_forms(void **state)
{
	(void)state;
	take_two_gpus();
	char *ascii = frame_text(false);
	view.ascii = false;
	char *utf8 = frame_text(false), *color = frame_text(true);
	for (const char *c = ascii; *c; c++)
		assert_true((unsigned char)*c < 0x80);
	assert_non_null(strstr(utf8, "\xe2\x96\x88"));
	char *to = color;
	for (const char *c = color; *c;) {
		if (*c == '\033')
			c += strcspn(c, "m") + 1;
		else
			*to++ = *c++;
	}
	*to = '\0';
	assert_int_equal(neap_top_columns(utf8) - neap_top_columns(ascii), 0);
	assert_true(strlen(color) >= strlen(utf8)); /* the selected row keeps its spaces */
	free(ascii);
	free(utf8);
	free(color);
}

static void test_split(void **state)
{
	(void)state;
	uint64_t random = test_seed();
	size_t cells[NEAP_TOP_PARTS];
	for (int round = 0; round < 2000; round++) {
		struct neap_ledger ledger = {
			next_random(&random) % GIB,     next_random(&random) % 3,
			next_random(&random) % GIB,     next_random(&random) % (1 << 20),
			next_random(&random) % 2 * GIB, (int64_t)(next_random(&random) % GIB) - GIB / 2,
			next_random(&random) % GIB,     0};
		size_t width = next_random(&random) % 300, sum = 0;
		neap_top_split(&ledger, width, cells);
		for (size_t i = 0; i < NEAP_TOP_PARTS; i++)
			sum += cells[i];
		assert_int_equal(sum, width);
		if (width >= NEAP_TOP_PARTS && ledger.contexts > 0)
			assert_true(cells[NEAP_TOP_PART_CONTEXT - NEAP_TOP_PART_RESERVED] > 0);
		if (ledger.not_attached == 0)
			assert_int_equal(cells[NEAP_TOP_PART_NOT_ATTACHED - NEAP_TOP_PART_RESERVED], 0);
	}
	neap_top_split(&(struct neap_ledger){0}, 10, cells); /* a device without memory has an empty bar */
	assert_int_equal(cells[0], 0);
}

static void test_sizes_in_words(void **state)
{
	(void)state;
	static const struct {
		uint64_t bytes;
		const char *text;
	} sizes[] = {{0, "0"},
		     {999, "999"},
		     {1000, "0.98K"},
		     {1536, "1.50K"},
		     {10 * MIB, "10.0M"},
		     {1023 * MIB, "1.00G"},
		     {100 * GIB, "100G"},
		     {UINT64_MAX, "16.0E"},
		     {9 * GIB + 1022 * MIB, "10.0G"}};
	char text[NEAP_TOP_SIZE_CAPACITY];
	for (size_t i = 0; i < COUNT(sizes); i++)
		assert_string_equal(neap_top_size(sizes[i].bytes, text), sizes[i].text);
	assert_string_equal(neap_top_change(-3 * (int64_t)MIB, text), "-3.00M");
	assert_string_equal(neap_top_change(INT64_MIN, text), "-8.00E");
}

/* The curve: each point is the most that was in use in its instants; the newest is at the right end. */
static void test_curve(void **state)
{
	(void)state;
	view.height = 30;
	for (uint64_t t = 0; t < 40; t++) {
		struct neap_top_sample sample = make_sample(1, 100 + t);
		sample.devices[0].utilization_percent = 55;
		if (t == 20)
			add_attached(&sample, 20, 1, 38 * GIB);
		take(sample);
	}
	assert_true(shows("GPU 0, the last 39.0 s: 76.5 GiB used at most"));
	char *text = frame_text(false), *line = strstr(text, " 80.0G");
	assert_non_null(line);
	size_t length = strcspn(line, "\n"), marks = 0;
	for (size_t i = 7; i < length; i++)
		marks += line[i] != ' ';
	assert_int_equal(marks, 1); /* one column of the top row: the peak */
	assert_non_null(strstr(text, "busy"));
	assert_non_null(strstr(text, "55555555"));
	free(text);
}

/* The driver reports more than 100 % at times: it is drawn as 100 %. */
static void test_busier_than_possible(void **state)
{
	static const int percents[] = {100, 112, 113, 200, INT_MAX};
	(void)state;
	view.height = 30;
	for (size_t i = 0; i < sizeof percents / sizeof percents[0]; i++) {
		struct neap_top_sample sample = make_sample(1, 100);
		neap_top_history_fini(&history);
		sample.devices[0].utilization_percent = percents[i];
		take(sample);
		for (int ascii = 0; ascii < 2; ascii++) {
			view.ascii = ascii;
			char *text = frame_text(false), *line = strstr(text, "\n  busy");
			const char *full = ascii ? "9" : "\xe2\x96\x88";
			size_t count = 0;
			assert_non_null(line);
			line[1 + strcspn(line + 1, "\n")] = '\0';
			for (const char *at = line; (at = strstr(at, full)); at++)
				count++;
			assert_int_equal(count, 1);
			free(text);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_one_frame, begin, end),
		cmocka_unit_test_setup_teardown(test_screen, begin, end),
		cmocka_unit_test_setup_teardown(test_sizes, begin, end),
		cmocka_unit_test_setup_teardown(test_many_devices, begin, end),
		cmocka_unit_test_setup_teardown(test_nothing_there, begin, end),
		cmocka_unit_test_setup_teardown(test_unified_memory_and_host, begin, end),
		cmocka_unit_test_setup_teardown(test_condition, begin, end),
		cmocka_unit_test_setup_teardown(test_hostile_names, begin, end),
		cmocka_unit_test_setup_teardown(test_forms, begin, end),
		cmocka_unit_test(test_split),
		cmocka_unit_test(test_sizes_in_words),
		cmocka_unit_test_setup_teardown(test_curve, begin, end),
		cmocka_unit_test_setup_teardown(test_busier_than_possible, begin, end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
