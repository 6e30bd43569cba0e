/* tests/report/test_markup_report.c: a report's text as tables. */
#include "report/markup_report.h"
#include "report/wrap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void expect(const char *text, const char *markup)
{
	struct neap_buffer out = {0};

	neap_markup_report(&out, text);
	assert_false(out.failed);
	assert_string_equal(neap_buffer_string(&out), markup);
	neap_buffer_fini(&out);
}

static void test_rows(void **unused)
{
	(void)unused;
	expect("Peaks\n"
	       "  requested      6.53 GiB  at <event> 7\n"
	       "  utilization: 92 %\n",
	       "<h3>Peaks</h3>\n<div class=\"scroll\" tabindex=\"0\"><table><tbody>\n"
	       "<tr><td class=\"\">requested</td><td class=\"right\">6.53\xC2\xA0GiB</td>"
	       "<td class=\"\">at &lt;event&gt; 7</td></tr>\n"
	       "<tr><td class=\"\" colspan=\"3\">utilization: 92 %</td></tr>\n"
	       "</tbody></table></div>\n");
}

static void test_head(void **unused)
{
	(void)unused;
	expect("\nGPU            memory  fits\n"
	       "h100         79.6 GiB  yes\n"
	       "t4           15.0 GiB  no\n"
	       "      lacks 2 GiB\n",
	       "<div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th scope=\"col\">GPU</th>"
	       "<th scope=\"col\" class=\"right\">memory</th><th scope=\"col\"><button type=\"button\" "
	       "class=\"word\" popovertarget=\"word-fits\">fits</button></th></tr></thead><tbody>\n"
	       "<tr><td class=\"\">h100</td><td class=\"right\">79.6\xC2\xA0GiB</td><td "
	       "class=\"good\">yes</td></tr>\n"
	       "<tr><td class=\"\">t4</td><td class=\"right\">15.0\xC2\xA0GiB</td><td class=\"bad\">no</td></tr>\n"
	       "<tr class=\"in3\"><td class=\"\" colspan=\"3\">lacks 2 GiB</td></tr>\n"
	       "</tbody></table></div>\n");
}

/* A row's name also holds for the following rows of numbers that have none. */
static void test_blank(void **unused)
{
	(void)unused;
	expect("Over the steps\n"
	       "  peak       8.10 GiB  a.py:1\n"
	       "             4.05 GiB  b.py:2\n",
	       "<h3>Over the steps</h3>\n<div class=\"scroll\" tabindex=\"0\"><table><tbody>\n"
	       "<tr><td class=\"\">peak</td><td class=\"right\">8.10\xC2\xA0GiB</td><td class=\"\">a.py:1</td></tr>\n"
	       "<tr><td></td><td class=\"right\">4.05\xC2\xA0GiB</td><td class=\"\">b.py:2</td></tr>\n"
	       "</tbody></table></div>\n");
}

/* The first column may lack a heading, a number stays in its column, and a heading stands above its numbers even
 * if the first row has none. */
static void test_unnamed(void **unused)
{
	(void)unused;
	expect("                  A         B  change\n"
	       "  retries         0         0\n"
	       "  peak     13.6 GiB  12.1 GiB  -11 %\n",
	       "<div class=\"scroll\" tabindex=\"0\"><table><thead><tr><td></td>"
	       "<th scope=\"col\" class=\"right\">A</th><th scope=\"col\" "
	       "class=\"right\">B</th><th scope=\"col\" class=\"right\">change</th></tr></thead><tbody>\n"
	       "<tr><td class=\"\">retries</td><td class=\"right\">0</td><td class=\"right\">0</td><td></td></tr>\n"
	       "<tr><td class=\"\">peak</td><td class=\"right\">13.6\xC2\xA0GiB</td><td "
	       "class=\"right\">12.1\xC2\xA0GiB</td>"
	       "<td class=\"right\">-11\xC2\xA0%</td></tr>\n"
	       "</tbody></table></div>\n");
}

/* Text that was broken into lines is whole again. */
static void test_wrapped(void **unused)
{
	static const char words[] =
		"one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
		"seventeen eighteen nineteen twenty one two three four five six seven eight nine ten eleven twelve";
	struct neap_buffer text = {0}, out = {0};
	(void)unused;
	neap_buffer_text(&text, "Parts\n");
	neap_report_wrap(&text, "  64.0 MiB  ", words);
	neap_report_wrap(&text, "  ", words);
	neap_report_wrap(&text, "  Cause: ", words);
	neap_markup_report(&out, neap_buffer_string(&text));
	size_t found = 0;
	for (const char *at = out.data; (at = strstr(at, words)); at++)
		found++;
	assert_int_equal(found, 3);
	neap_buffer_fini(&text);
	neap_buffer_fini(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),    cmocka_unit_test(test_head),    cmocka_unit_test(test_blank),
		cmocka_unit_test(test_unnamed), cmocka_unit_test(test_wrapped),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
