/* The report's texts, compared exactly; and the page: whole, escaped, and fetching nothing. With a path as its
 * argument it writes the page there. */
#include "base/file.h"
#include "base/units.h"
#include "report/report.h"
#include "report/verdict.h"
#include "runs.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* One line of text is one line here. */
/* clang-format off */
static const char table_text[] =
	"NAME          OUTCOME        PEAK  HEADROOM  FITS    DRAIN  RETRIES  RUNG                         LEAK              TIME\n"
	"too large     ok         1.73 GiB   278 MiB     -  3.10 ms        0  micro_batch 64 -> 32,        clean           4.80 s\n"
	"                                                                     accumulate 1 -> 2\n"
	"leaky         ok          930 MiB  1.09 GiB     -  3.10 ms        0  -                            +8.00 MiB/step  4.80 s\n"
	"plain         ok          698 MiB  1.32 GiB   107  3.10 ms        0  -                            clean           4.80 s\n"
	"accumulation  ok          516 MiB  1.50 GiB     -  3.10 ms        0  -                            clean           4.80 s\n"
	"missing       not found         -         -     -        -        0  -                            not watched          -\n";
static const char capacity_text[] =
	"Out of device memory: 512 MiB for \"attention scores\" in the 7th step on CUDA device 0\n"
	"\n"
	"  The arithmetic (measured when it failed)\n"
	"    allocated: live here           1.66 GiB\n"
	"    cached: reserved, not live     20.0 MiB  largest free piece 12.0 MiB\n"
	"    reserved from the driver       1.68 GiB\n"
	"    others: the rest of its use     228 MiB  other processes, contexts, the driver\n"
	"    free on the device              100 MiB\n"
	"    the device in all              2.00 GiB\n"
	"    asked for                       512 MiB\n"
	"    missing                         392 MiB  for this one request\n"
	"\n"
	"  Cause: capacity. 1.66 GiB live and 512 MiB asked for are 392 MiB more than the 1.78 GiB that this\n"
	"         process could have here: something has to become smaller.\n"
	"\n"
	"  Who holds it (measured)                    live        peak      blocks\n"
	"    activations                        1.17 GiB    1.18 GiB          96\n"
	"    optimizer                           320 MiB     320 MiB          24\n"
	"    (untagged)                          180 MiB     190 MiB           3\n"
	"\n"
	"  In force: micro-batch 64 x accumulation 1 x ranks 1 = effective batch 64\n"
	"  Taken: the process continued with micro-batch 32 x accumulation 2 x ranks 1 = 64\n"
	"\n"
	"  What would help (predicted, but where it says replayed)\n"
	"    1. micro-batch 64 -> 32, accumulation 1 -> 2 (effective batch stays 64)\n"
	"       predicted to save 600 MiB ± 30.0 MiB, enough for this request; half of what was allocated per\n"
	"       step, measured over 7 steps\n"
	"    2. gradient checkpointing\n"
	"       predicted to save 300 MiB, not enough alone; activations of the layers kept\n"
	"    -  mixed precision (on already: nothing more to gain)\n"
	"    No whole step came before with these settings: what the rest of the step takes is not known, and\n"
	"    may be more than this request.\n";
static const char fragmentation_text[] =
	"Out of device memory: 512 MiB for an untagged request in the 7th step on CUDA device 0\n"
	"\n"
	"  The arithmetic (measured when it failed)\n"
	"    allocated: live here            900 MiB\n"
	"    freed, still in use            16.0 MiB  queued work has to end first\n"
	"    cached: reserved, not live      820 MiB  largest free piece 240 MiB\n"
	"    reserved from the driver       1.68 GiB\n"
	"    others: the rest of its use     228 MiB  other processes, contexts, the driver\n"
	"    given back before it failed    96.0 MiB  by 2 processes, asked for what they only cached\n"
	"    free on the device              100 MiB\n"
	"    the device in all              2.00 GiB\n"
	"    limit set on this process      1.76 GiB\n"
	"    asked for                       512 MiB\n"
	"    missing                         392 MiB  for this one request\n"
	"\n"
	"  Cause: fragmentation. 820 MiB are cached, but the largest free piece has 240 MiB, and 512 MiB were\n"
	"         asked for.\n";
/* clang-format on */

static void check_width(const char *text, size_t limit)
{
	for (size_t width = 0; *text; text++) {
		assert_true(*text == '\n' || *text == '\033' || (unsigned char)*text >= 0x20);
		width = *text == '\n' ? 0 : width + (((unsigned char)*text & 0xc0) != 0x80);
		assert_true(width <= limit);
	}
}

static const struct neap_report_columns *usual(void)
{
	static struct neap_report_columns columns;

	assert_int_equal(neap_report_columns_parse(NULL, NULL, 0, NULL, 0, &columns, NULL), NEAP_OK);
	return &columns;
}

static void table_is_ranked(void **unused)
{
	struct neap_result results[RUN_COUNT];
	struct neap_buffer out = {0};

	(void)unused;
	runs_init(results);
	neap_report_table(&out, results, RUN_COUNT, usual(), false);
	assert_string_equal(neap_buffer_string(&out), table_text);
	check_width(out.data, 120);
	runs_fini(results);
	neap_buffer_fini(&out);
}

static char *const params[] = {"lr", "data", "batch"};

static const char *table_of(struct neap_buffer *out, const char *list, const char *order)
{
	struct neap_result results[4] = {0};
	struct neap_report_columns columns;
	const char *const parameters[] = {"lr=0.1 data=a b batch=8", "lr=0.01 data=a b batch=8",
					  "lr=0.1 data=c lr d=1 batch=8", "batch=8"};
	const double losses[] = {2.5, (double)NAN, 1.25, 3};

	for (int i = 0; i < 4; i++) {
		char name[2] = {(char)('a' + i), 0};
		assert_int_equal(neap_result_init(&results[i], NULL), NEAP_OK);
		neap_result_set(&results[i].name, name, NULL);
		neap_result_set(&results[i].parameters, parameters[i], NULL);
		results[i].last_loss = losses[i];
		results[i].steps = (uint64_t)i * 10;
		results[i].duration_ns = (uint64_t)(i == 1 ? 9 : i) * 1000000000;
	}
	neap_buffer_clear(out);
	assert_int_equal(neap_report_columns_parse(list, params, 3, results, 4, &columns, NULL), NEAP_OK);
	assert_int_equal(neap_report_order_parse(order, &columns.order, NULL), NEAP_OK);
	neap_report_table(out, results, 4, &columns, false);
	for (int i = 0; i < 4; i++)
		neap_result_fini(&results[i]);
	return neap_buffer_string(out);
}

static void columns_are_chosen(void **unused)
{
	struct neap_buffer out = {0};
	struct neap_report_columns columns;
	struct neap_error err = {0};

	(void)unused;
	assert_string_equal(table_of(&out, "name,params,loss,steps", "file"), "NAME  LR    DATA      LOSS  STEPS\n"
									      "a     0.1   a b        2.5      -\n"
									      "b     0.01  a b          -     10\n"
									      "c     0.1   c lr d=1  1.25     20\n"
									      "d     -     -            3     30\n");
	assert_string_equal(table_of(&out, "name,batch", "loss"),
			    "NAME  BATCH\nc     8\na     8\nd     8\nb     8\n");
	assert_string_equal(table_of(&out, "name", "time"), "NAME\nb\nd\nc\na\n");
	assert_string_equal(table_of(&out, "rung,name", NULL), "RUNG  NAME\n-     a\n-     b\n-     c\n-     d\n");
	assert_int_equal(neap_report_columns_parse("name,los", params, 3, NULL, 0, &columns, &err), NEAP_EINVAL);
	assert_string_equal(err.message,
			    "no column 'los': name, outcome, peak, headroom, fits, drain, retries, rung, "
			    "leak, time, loss, steps, params or a parameter's name");
	assert_int_equal(neap_report_columns_parse("", params, 3, NULL, 0, &columns, &err), NEAP_EINVAL);
	assert_int_equal(neap_report_order_parse("size", &columns.order, &err), NEAP_EINVAL);
	neap_buffer_fini(&out);
}

/* Below the table: why a run failed, and where to look. */
static void failures_say_why(void **unused)
{
	struct neap_result results[RUN_COUNT];
	struct neap_buffer out = {0};

	(void)unused;
	runs_init(results);
	neap_report_failures(&out, results, RUN_COUNT - 1);
	assert_string_equal(neap_buffer_string(&out), "");
	neap_report_failures(&out, results, RUN_COUNT);
	assert_string_equal(
		neap_buffer_string(&out),
		"\nmissing: not found: exit status 127: sh: no-such-program: not found\n"
		"  in /night/runs/missing-1\n\n"
		"'neap explain FOLDER' shows the last lines that such a run wrote, and what is known of its "
		"memory\n");
	runs_fini(results);
	neap_buffer_fini(&out);
}

static void table_stays_narrow(void **unused)
{
	struct neap_result results[RUN_COUNT];
	struct neap_buffer out = {0};

	(void)unused;
	runs_init(results);
	neap_result_set(&results[0].name, "name \033[31m escaped", NULL);
	neap_result_set(&results[0].rung,
			"micro_batch 4096 -> 1, accumulate 1 -> 4096, mixed_precision on, averyveryveryv"
			"eryveryveryveryveryverylongwordwithoutaspace",
			NULL);
	neap_result_set(&results[1].name, "\xc3\xa9tude n\xc2\xb0 1", NULL);
	results[1].drained = false; /* nobody watched its memory come back */
	results[2].drained = false;
	neap_result_set(&results[2].drain_note, "2.00 GiB still held after 60 s", NULL);
	results[2].outcome = NEAP_OUTCOME_HOST_OOM;
	neap_report_table(&out, results, RUN_COUNT, usual(), false);
	check_width(out.data, 120);
	assert_non_null(strstr(out.data, "name ?[31m escaped  "));
	assert_null(strchr(out.data, '\033'));
	assert_non_null(strstr(out.data, "not free"));
	assert_null(strstr(strstr(out.data, "not free") + 1, "not free"));
	assert_non_null(strstr(out.data, " mixed_precision on,\n")); /* broken after a comma */
	/* A word longer than the column continues below: without the blanks it is whole. */
	char packed[4096];
	size_t length = 0;
	for (const char *at = out.data; *at && length + 1 < sizeof packed; at++)
		if (*at != ' ' && *at != '\n')
			packed[length++] = *at;
	packed[length] = '\0';
	assert_non_null(strstr(packed, "averyveryveryveryveryveryveryveryverylongwordwithoutaspace"));
	neap_buffer_clear(&out);
	neap_report_table(&out, results, RUN_COUNT, usual(), true);
	assert_non_null(strstr(out.data, "\033[31mhost oom\033[0m"));
	runs_fini(results);
	neap_buffer_fini(&out);
}

static void card_says_it_all(void **unused)
{
	struct neap_oom_card card;
	struct neap_buffer out = {0}, other = {0};

	(void)unused;
	card_of_capacity(&card);
	neap_report_oom_card(&out, &card);
	assert_string_equal(neap_buffer_string(&out), capacity_text);
	check_width(out.data, 100);
	card_of_fragmentation(&card);
	neap_report_oom_card(&other, &card);
	assert_string_equal(neap_buffer_string(&other), fragmentation_text);
	check_width(other.data, 100);
	neap_buffer_fini(&out);
	neap_buffer_fini(&other);
}

static void card_causes_differ(void **unused)
{
	static const char *const causes[] = {
		[NEAP_OOM_CAPACITY] = "Cause: capacity. 900 MiB live and 512 MiB asked for are 392 MiB more than the",
		[NEAP_OOM_LIMIT] =
			"Cause: the limit. Of the 1.76 GiB that this process may reserve no free piece holds",
		[NEAP_OOM_NEIGHBOURS] =
			"Cause: neighbours. Others hold 228 MiB of this device; without them the 512 MiB",
		[NEAP_OOM_FRAGMENTATION] =
			"Cause: fragmentation. 820 MiB are cached, but the largest free piece has 240 MiB",
		[NEAP_OOM_PENDING] = "Cause: queued work. 16.0 MiB are freed but still in use by work on streams;",
	};
	struct neap_buffer texts[5] = {{0}};
	struct neap_oom_card card;

	(void)unused;
	card_of_fragmentation(&card);
	for (int i = 0; i < 5; i++) {
		card.cause = (enum neap_oom_cause)i;
		neap_report_oom_card(&texts[i], &card);
		check_width(texts[i].data, 100);
		assert_non_null(strstr(texts[i].data, causes[i]));
		for (int j = 0; j < i; j++)
			assert_string_not_equal(texts[i].data, texts[j].data);
	}
	card.cause = NEAP_OOM_LIMIT;
	card.limit_bytes = 1ull << 30;
	neap_buffer_clear(&texts[0]);
	neap_report_oom_card(&texts[0], &card);
	assert_non_null(strstr(texts[0].data,
			       "Cause: the limit. 900 MiB live and 512 MiB asked for are 392 MiB over the 1.00 GiB"));
	card_of_fragmentation(&card);
	card.cause = NEAP_OOM_LIMIT;
	card.block_bytes = 2 * NEAP_MIB;
	card.largest_free_bytes = NEAP_MIB / 2;
	card.elsewhere_free_bytes = 16 * NEAP_MIB;
	card.asked_pool = NEAP_OOM_POOL_SMALL;
	card.elsewhere_pool = NEAP_OOM_POOL_LARGE;
	neap_buffer_clear(&texts[0]);
	neap_report_oom_card(&texts[0], &card);
	check_width(texts[0].data, 100);
	assert_non_null(strstr(texts[0].data, "820 MiB  largest free for it 512 KiB, in the large pool 16.0 MiB\n"));
	assert_non_null(strstr(
		texts[0].data,
		"Cause: the limit. Of the 1.76 GiB that this process may reserve no free piece of the small pool\n"
		"         holds the 2.00 MiB asked for, and the largest, 16.0 MiB, belongs to the large pool; the\n"
		"         device itself had room.\n"));
	card.largest_free_bytes = NEAP_OOM_UNKNOWN;
	card.cause = NEAP_OOM_FRAGMENTATION;
	neap_buffer_clear(&texts[0]);
	neap_report_oom_card(&texts[0], &card);
	assert_non_null(strstr(texts[0].data, "cached: reserved, not live      820 MiB\n"));
	assert_non_null(strstr(texts[0].data, "fragmentation. 820 MiB are cached, but not in one piece"));
	for (int i = 0; i < 5; i++)
		neap_buffer_fini(&texts[i]);
}

static void card_stays_narrow(void **unused)
{
	struct neap_oom_card card;
	struct neap_buffer out = {0};

	(void)unused;
	card_of_capacity(&card);
	memset(card.fixes[0].how, 'x', sizeof card.fixes[0].how - 1);
	memset(card.fixes[0].text, 'y', sizeof card.fixes[0].text - 1);
	memset(card.tag, 'z', sizeof card.tag - 1);
	memset(card.tags[1].tag, '\001', sizeof card.tags[1].tag - 1);
	card.tag_count = 9999; /* never trusted */
	card.fix_count = 9999;
	card.requested_bytes = card.block_bytes = UINT64_MAX;
	neap_report_oom_card(&out, &card);
	check_width(out.data, 100);
	neap_buffer_fini(&out);
}

static size_t count_of(const char *text, const char *what)
{
	size_t count = 0;

	for (; (text = strstr(text, what)); text++)
		count++;
	return count;
}

static void page_escapes_and_fetches_nothing(void **unused)
{
	static const char hostile[] =
		"</script><script>alert(1)</script><img src=http://example.org/x onerror='x'>\"&";
	struct neap_result results[RUN_COUNT];
	struct neap_buffer out = {0}, plain = {0};

	(void)unused;
	runs_init(results);
	neap_report_page(&plain, "Night", results, RUN_COUNT, NULL, 0);
	char **fields[] = {&results[0].name,         &results[0].command,     &results[0].parameters,
			   &results[0].run_id,       &results[0].device_name, &results[0].rung,
			   &results[0].leak_verdict, &results[0].fluctuation, &results[0].cleanup,
			   &results[0].oom_card,     &results[0].evidence,    &results[0].advice,
			   &results[0].last_lines,   &results[0].folder,      &results[0].last_lines_of};
	for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
		assert_int_equal(neap_result_set(fields[i], hostile, NULL), NEAP_OK);
	neap_report_page(&out, hostile, results, RUN_COUNT, NULL, 0);
	assert_int_equal(neap_buffer_status(&out, NULL), NEAP_OK);

	/* Hostile text opens and closes nothing: the page has each tag as often as the plain page. */
	assert_null(strstr(out.data, "<script>alert"));
	assert_int_equal(count_of(out.data, "<script"), count_of(plain.data, "<script"));
	assert_int_equal(count_of(out.data, "</script"), count_of(out.data, "<script"));
	assert_int_equal(count_of(out.data, "<img"), 0);
	assert_true(count_of(out.data, "&lt;/script&gt;&lt;script&gt;alert(1)") >= 10);

	/* (The escaped text has " src=" in it, so the test looks for that in the plain page.) */
	static const char *const fetches[] = {"<script src", "url(",    "@import",          "<link",
					      "<iframe",     "srcset=", "sourceMappingURL", "fetch(\""};
	for (size_t i = 0; i < sizeof fetches / sizeof fetches[0]; i++)
		assert_null(strstr(out.data, fetches[i]));
	assert_null(strstr(plain.data, " src="));
	assert_null(strstr(plain.data, "src=\"http"));
	assert_int_equal(count_of(out.data, "href=\""), RUN_COUNT);
	assert_int_equal(count_of(out.data, "href=\"#run-"), RUN_COUNT);
	assert_non_null(strstr(out.data, "default-src 'none'"));
	runs_fini(results);
	neap_buffer_fini(&out);
	neap_buffer_fini(&plain);
}

static void page_shows_each_run(void **unused)
{
	struct neap_result results[RUN_COUNT];
	struct neap_buffer out = {0};

	(void)unused;
	runs_init(results);
	neap_report_page(&out, "Night", results, RUN_COUNT, NULL, 0);
	assert_int_equal(count_of(out.data, "<section id=\"run-"), RUN_COUNT);
	assert_int_equal(count_of(out.data, "class=\"curve\""), RUN_COUNT - 1); /* one never ran */
	assert_int_equal(count_of(out.data, "{\"total\":2147483648,\"time_us\":[0,8000,"), RUN_COUNT - 1);
	assert_non_null(strstr(out.data, "memory grows by +8.00 MiB with each step (confidence above 99.9 %)"));
	assert_non_null(strstr(out.data, "memory ends at step 200, between 190 and 220 (99 %)"));
	assert_non_null(strstr(out.data, "2 in place, before a leak had used up the memory"));
	assert_int_equal(count_of(out.data, "<p>Out of device memory: 512 MiB"), 1);
	assert_non_null(strstr(out.data, "simulated device"));
	assert_non_null(strstr(out.data, "<dt>folder</dt><dd class=\"\">/night/runs/missing-1</dd>"));
	assert_int_equal(
		count_of(out.data,
			 "The last lines of its stderr</p>\n<pre tabindex=\"0\">starting\nsh: no-such-program"),
		1);
	assert_int_equal(count_of(out.data, "The last lines of its"), 1); /* a run that ended well has none */
	assert_int_equal(count_of(out.data, "micro-batch 107 is the largest predicted to fit (now 16)"), 1);
	assert_true(strstr(out.data, ">too large</a>") < strstr(out.data, ">plain</a>")); /* ranked */

	/* Unknown figures are null, not 0: no process of this run was attached. */
	results[0].attached = false;
	neap_buffer_clear(&out);
	neap_report_page(&out, "Night", &results[0], 1, NULL, 0);
	assert_non_null(strstr(out.data, "\"allocated\":[null,null,"));
	runs_fini(results);
	neap_buffer_fini(&out);
}

static void long_curves_keep_their_extremes(void **unused)
{
	enum { COUNT = 100000 };
	static struct neap_result_sample samples[COUNT];
	struct neap_result results[RUN_COUNT];
	struct neap_buffer out = {0};

	(void)unused;
	runs_init(results);
	for (size_t i = 0; i < COUNT; i++)
		samples[i] = (struct neap_result_sample){i * 1000, 1000, 5000, UINT64_MAX};
	samples[77777].allocated_bytes = 4321;
	samples[33333].allocated_bytes = 7;
	struct neap_result result = results[0];
	result.samples = samples;
	result.sample_count = COUNT;
	neap_report_page(&out, "Long", &result, 1, NULL, 0);
	assert_int_equal(count_of(out.data, ",4321,"), 1);
	assert_int_equal(count_of(out.data, ",7,"), 1);
	assert_true(out.length < 600000);
	runs_fini(results);
	neap_buffer_fini(&out);
}

static void comparisons_say_what_changed(void **state)
{
	const struct neap_comparison comparisons[] = {
		{.run = {"mixed", {{32, 1, 1}, 1u << NEAP_RUNG_MIXED_PRECISION}, 6 * NEAP_MIB, 30000000, 33000000},
		 .base = {"plain", {{32, 1, 1}, 0}, 12 * NEAP_MIB, 20000000, 22000000},
		 .prediction = {7 * NEAP_MIB, NEAP_MIB},
		 .predicted = true},
		{.run = {"<i>\033[31m", {{16, 2, 1}, 0}, 9 * NEAP_MIB, 32000000, 36000000},
		 .base = {"mixed", {{32, 1, 1}, 1u << NEAP_RUNG_MIXED_PRECISION}, 6 * NEAP_MIB, 30000000, 33000000}},
		{.run = {.name = "none"}, .base = {.name = "plain", .peak_bytes = 1}},
		{.run = {.name = "some", .peak_bytes = 1}, .base = {.name = "none"}},
	};
	struct neap_result result;
	struct neap_buffer out = {0};

	(void)state;
	neap_report_comparisons(&out, comparisons, 4);
	assert_string_equal(
		neap_buffer_string(&out),
		"\n"
		"mixed against plain: mixed precision\n"
		"  peak allocated 12.0 MiB -> 6.00 MiB (-50 %), predicted 7.00 MiB \u00b1 1.00 MiB; a step "
		"20.0 ms -> 30.0 ms (x 1.50, 1.36 to 1.65)\n"
		"<i>?[31m against mixed: without mixed precision, micro-batch 32 -> 16, accumulation 1 -> 2\n"
		"  peak allocated 6.00 MiB -> 9.00 MiB (+50 %), not predicted; a step 30.0 ms -> 32.0 ms (no "
		"difference beyond their "
		"spread)\n"
		"none against plain\n"
		"  no comparison: it has no recorded peak\n"
		"some against none\n"
		"  no comparison: the other has no recorded peak\n");
	neap_buffer_clear(&out);
	neap_report_comparisons(&out, NULL, 0);
	assert_int_equal(out.length, 0);
	assert_int_equal(neap_result_init(&result, NULL), NEAP_OK);
	neap_report_page(&out, "c", &result, 1, comparisons, 4);
	assert_non_null(strstr(neap_buffer_string(&out), "<dt>mixed against plain: mixed precision</dt>"));
	assert_non_null(strstr(neap_buffer_string(&out), "predicted 7.00 MiB \u00b1 1.00 MiB"));
	assert_non_null(strstr(neap_buffer_string(&out), "<dt>&lt;i&gt;?[31m against mixed"));
	neap_result_fini(&result);
	neap_buffer_fini(&out);
}

static int write_page(const char *path)
{
	struct neap_result results[RUN_COUNT];
	struct neap_buffer out = {0};

	runs_init(results);
	neap_report_page(&out, "charlm: four runs on one device", results, RUN_COUNT, NULL, 0);
	enum neap_status status = neap_file_write(path, out.data, out.length, NULL);
	runs_fini(results);
	neap_buffer_fini(&out);
	return status == NEAP_OK ? 0 : 1;
}

static void test_enough(void **state)
{
	static const struct {
		uint64_t saving, uncertainty;
		const char *says;
	} cases[] = {
		{500, 100, "save 500 MiB ± 100 MiB, enough for this request"},
		{400, 100, "save 400 MiB ± 100 MiB, probably enough for this request"},
		{300, 100, "save 300 MiB ± 100 MiB, perhaps enough for this request"},
		{290, 100, "save 290 MiB ± 100 MiB, not enough alone"},
		{100, 0, "save 100 MiB, not enough alone"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct neap_buffer out = {0};
		struct neap_oom_card card = {.shortfall_bytes = 392 * NEAP_MIB, .fix_count = 1};
		card.fixes[0] = (struct neap_fix){.saving_bytes = cases[i].saving * NEAP_MIB,
						  .uncertainty_bytes = cases[i].uncertainty * NEAP_MIB,
						  .text = "x",
						  .how = "y"};
		neap_report_oom_card(&out, &card);
		assert_non_null(strstr(neap_buffer_string(&out), cases[i].says));
		neap_buffer_fini(&out);
	}
}

static void check_verdict(const struct neap_verdict_side *a, const struct neap_verdict_side *b, const char *expected)
{
	struct neap_buffer text = {0};

	neap_verdict_cleanups(&text, a, b);
	assert_string_equal(neap_buffer_string(&text), expected);
	neap_buffer_fini(&text);
}

/* The case for which a schedule is tried: constant 1360 MiB become 800 to 1406 in each step. */
static void cleanups_are_judged(void **state)
{
	const struct neap_verdict_side without = {.peak_bytes = 1360 * NEAP_MIB,
						  .mean_bytes = 1360 * NEAP_MIB,
						  .step_ns = 40000000,
						  .driver_calls = UINT64_MAX};
	struct neap_verdict_side with = {.emptied = 30,
					 .peak_bytes = 1406 * NEAP_MIB,
					 .mean_bytes = 1100 * NEAP_MIB,
					 .swing_bytes = 606 * NEAP_MIB,
					 .step_ns = 60000000,
					 .driver_calls = UINT64_MAX};
	static const char rest[] =
		"\nWhat it gives back is taken again: reserved swings by 606 MiB within a step (A: 0 B)."
		"\nIn the mean 260 MiB less is reserved, which other processes could use."
		"\nA step takes 60.0 ms instead of 40.0 ms.";
	char expected[512];

	(void)state;
	snprintf(expected, sizeof expected,
		 "Cleanups: B emptied the cache 30 times (A: 0), and it did not help: the reserved peak is 46.0 MiB "
		 "higher.%s",
		 rest);
	check_verdict(&without, &with, expected);
	with.peak_bytes = 1000 * NEAP_MIB;
	with.thinned = true;
	snprintf(expected, sizeof expected,
		 "Cleanups: B emptied the cache at least 30 times (A: 0), and it helped: the reserved peak is 360 "
		 "MiB lower.%s",
		 rest);
	check_verdict(&without, &with, expected);
	/* The other way round, at the same cost, with requests that found the device full. */
	with = (struct neap_verdict_side){
		.emptied = 9, .peak_bytes = 1350 * NEAP_MIB, .retries = 4, .driver_calls = 700};
	struct neap_verdict_side last = with;
	last.emptied = last.driver_calls = last.retries = 0;
	check_verdict(&with, &last,
		      "Cleanups: A emptied the cache 9 times (B: 0), and it did not help: the reserved peak is about "
		      "the same."
		      "\nIt makes 700 driver calls in 100 steps instead of 0."
		      "\nRequests that found the device full: 4 instead of 0.");
	/* Sessions clean up at their end, and without reserved bytes the report says nothing about it. */
	with.emptied = 2;
	check_verdict(&with, &last, "");
	with.emptied = 9;
	last.peak_bytes = UINT64_MAX;
	check_verdict(&with, &last, "");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_enough),
		cmocka_unit_test(table_is_ranked),
		cmocka_unit_test(failures_say_why),
		cmocka_unit_test(columns_are_chosen),
		cmocka_unit_test(cleanups_are_judged),
		cmocka_unit_test(table_stays_narrow),
		cmocka_unit_test(comparisons_say_what_changed),
		cmocka_unit_test(card_says_it_all),
		cmocka_unit_test(card_causes_differ),
		cmocka_unit_test(card_stays_narrow),
		cmocka_unit_test(page_escapes_and_fetches_nothing),
		cmocka_unit_test(page_shows_each_run),
		cmocka_unit_test(long_curves_keep_their_extremes),
	};

	if (argc > 1)
		return write_page(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
