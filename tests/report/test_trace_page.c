/* The page of a trace: its packed data is read back and compared with the analysis behind it; text from outside;
 * pieces of segments; files. tests/browser tests what a browser makes of it. */

#include "../trace/made_trace.h"
#include "base/file.h"
#include "report/markup.h"
#include "report/page_file.h"
#include "report/pieces.h"
#include "report/trace_page.h"
#include "support/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* ---- a trace ---- */

static void put(struct maker *maker, enum neap_trace_kind kind, uint64_t address, uint64_t size, uint64_t time_us)
{
	put_event(maker, (struct neap_trace_event){.address = address,
						   .size = size,
						   .time_us = time_us,
						   .stack = maker->stack,
						   .kind = (uint8_t)kind});
}

static void set_stack(struct maker *maker, const char *name)
{
	uint32_t frames[] = {frame(maker, "/home/train.py", name, 7), frame(maker, "/home/train.py", name, 9)};
	maker->stack = neap_build_stack(&maker->build, frames, 2);
}

/* Blocks at 40 addresses in segments, freed in no order; some from before, some kept; times that once run backwards.
 */
static struct neap_trace *random_trace(size_t events)
{
	static const char *const names[] = {"forward", "</script><b>", "a\xe2\x80\xaegnp", "\"'&"};
	uint64_t live[40] = {0}, state = 20261121, time = 1795223039510504;
	struct maker maker;

	begin(&maker);
	for (size_t i = 0; i < 4; i++)
		put(&maker, NEAP_TRACE_SEGMENT_ALLOC, (1 + i) << 32, 64 * MIB, time);
	for (uint64_t i = 0; i < 3; i++) { /* there before */
		put(&maker, NEAP_TRACE_FREE_REQUESTED, (1ull << 32) + (50 + i) * MIB, 4096, ++time);
		put(&maker, NEAP_TRACE_FREE_COMPLETED, (1ull << 32) + (50 + i) * MIB, 4096, ++time);
	}
	for (size_t i = 0; i < events; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		uint64_t slot = (state >> 33) % 40, address = ((1 + slot % 4) << 32) + slot * MIB;
		time += i == events / 2 ? (uint64_t)-500 : (state >> 50) % 90;
		set_stack(&maker, names[(state >> 40) % 4]);
		if (!live[slot]) {
			live[slot] = 1 + (state >> 20) % MIB;
			put(&maker, NEAP_TRACE_ALLOC, address, live[slot], time);
		} else {
			put(&maker, NEAP_TRACE_FREE_REQUESTED, address, live[slot], time);
			put(&maker, NEAP_TRACE_FREE_COMPLETED, address, live[slot], time);
			live[slot] = 0;
		}
	}
	put(&maker, NEAP_TRACE_OOM, 123, 456 * MIB, time);
	return finish(&maker);
}

/* ---- reading a page ---- */

static char *read_all(int fd, size_t *ret_length)
{
	struct stat info;
	assert_int_equal(fstat(fd, &info), 0);
	char *text = calloc(1, (size_t)info.st_size + 1);
	assert_non_null(text);
	assert_int_equal(pread(fd, text, (size_t)info.st_size, 0), info.st_size);
	*ret_length = (size_t)info.st_size;
	return text;
}

/* The page as text; free() it. */
static char *write_page(const struct neap_analysis *analysis, const struct neap_analysis_options *how,
			const char *path)
{
	struct neap_trace_page_options options = {.path = path, .top = 10, .analysis = how};
	char name[] = "/tmp/neap-page-XXXXXX";
	struct neap_error err;
	uint64_t bytes = 0;
	size_t length = 0;
	int fd = mkstemp(name);

	assert_true(fd >= 0);
	unlink(name);
	if (neap_trace_page_write(fd, analysis, &options, &bytes, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	char *text = read_all(fd, &length);
	assert_int_equal(bytes, length);
	assert_int_equal(strlen(text), length);
	close(fd);
	return text;
}

static int digit(char c)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = c ? strchr(digits, c) : NULL;
	return at ? (int)(at - digits) : -1;
}

struct data {
	unsigned char *bytes;
	size_t length, at;
};

/* The contents of the script element `id` of the page. */
static struct data unpack(const char *page, const char *id)
{
	char opening[100];
	struct data data = {.bytes = malloc(1 << 24)};
	snprintf(opening, sizeof opening, "<script type=\"application/octet-stream\" id=\"%s\">", id);
	const char *from = strstr(page, opening);
	assert_non_null(from);
	from += strlen(opening);
	size_t length = strcspn(from, "<"), packed = 0;
	assert_int_equal(length % 4, 0);
	unsigned char *bytes = malloc(length);
	assert_non_null(bytes);
	for (size_t i = 0; i < length; i += 4) {
		int a = digit(from[i]), b = digit(from[i + 1]), c = digit(from[i + 2]), d = digit(from[i + 3]);
		assert_true(a >= 0 && b >= 0);
		bytes[packed++] = (unsigned char)(a << 2 | b >> 4);
		if (c >= 0)
			bytes[packed++] = (unsigned char)(b << 4 | c >> 2);
		if (d >= 0)
			bytes[packed++] = (unsigned char)(c << 6 | d);
	}
	uLongf capacity = 1 << 24;
	assert_int_equal(uncompress(data.bytes, &capacity, bytes, packed), Z_OK);
	data.length = capacity;
	free(bytes);
	return data;
}

static uint64_t number(struct data *data)
{
	uint64_t value = 0;
	for (unsigned shift = 0;; shift += 7) {
		assert_true(data->at < data->length);
		unsigned char byte = data->bytes[data->at++];
		value |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80)
			return value;
	}
}

static int64_t signed_number(struct data *data)
{
	uint64_t value = number(data);
	return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

static uint64_t u64(struct data *data)
{
	uint64_t value = 0;
	assert_true(data->at + 8 <= data->length);
	for (unsigned i = 0; i < 8; i++)
		value |= (uint64_t)data->bytes[data->at++] << (8 * i);
	return value;
}

/* ---- the data is the analysis ---- */

static uint64_t span(const struct neap_life *life)
{
	return life->end == NEAP_LIFE_AFTER ? 0 : life->end - (life->begin == NEAP_LIFE_BEFORE ? 0 : life->begin) + 1;
}

static struct neap_life *all_lives(const struct neap_lives *lives)
{
	struct neap_life_cursor cursor = neap_lives_begin(lives, 0);
	struct neap_life *items = calloc(lives->count + 1, sizeof *items);
	assert_non_null(items);
	while (neap_lives_next(&cursor, &items[cursor.next]))
		;
	assert_int_equal(cursor.next, lives->count);
	return items;
}

static void check_lives(struct data *data, const struct neap_analysis *analysis)
{
	const struct neap_lives *lives = &analysis->lives;
	struct neap_life *items = all_lives(lives);
	static uint64_t sizes[1 << 16], rounded[1 << 16], addresses[1 << 16];
	uint64_t size_count = number(data), begin = 0;
	int64_t address = 0;

	for (uint64_t i = 0; i < size_count; i++)
		sizes[i] = u64(data);
	for (uint64_t i = 0; i < size_count; i++)
		rounded[i] = u64(data);
	uint64_t address_count = number(data);
	for (uint64_t i = 0; i < address_count; i++)
		addresses[i] = u64(data);
	assert_int_equal(number(data), lives->count);
	assert_int_equal(number(data), lives->before);
	for (size_t i = lives->before; i < lives->count; i++)
		assert_int_equal(begin += number(data), items[i].begin);
	for (size_t i = 0; i < lives->count; i++)
		assert_int_equal(number(data), span(&items[i]));
	for (size_t i = 0; i < lives->count; i++) {
		const struct neap_life *life = &items[i];
		uint64_t end = life->end == NEAP_LIFE_AFTER ? analysis->timeline.count : life->end;
		assert_int_equal(number(data), life->freed == NEAP_LIFE_AFTER ? 0 : end - life->freed + 1);
	}
	for (size_t i = 0; i < lives->count; i++) {
		uint64_t at = number(data);
		assert_true(at < size_count);
		assert_int_equal(sizes[at], items[i].size);
		assert_int_equal(rounded[at], (items[i].size + 511) / 512 * 512);
	}
	for (size_t i = 0; i < lives->count; i++) {
		address += signed_number(data);
		assert_true(address >= 0 && (uint64_t)address < address_count);
		assert_int_equal(addresses[address], items[i].address);
	}
	for (size_t i = 0; i < lives->count; i++)
		assert_int_equal(number(data), items[i].stack);
	for (size_t i = 0; i < lives->count; i++)
		assert_int_equal(number(data), items[i].freed_stack);
	for (size_t i = 0; i < lives->count; i++)
		assert_int_equal(number(data), items[i].stream);
	for (size_t i = 0; i < lives->count; i++) {
		enum neap_category_how how;
		unsigned category = neap_category_of(&analysis->sites, &analysis->steps, analysis->timeline.count,
						     &items[i], &how);
		assert_int_equal(number(data), category * 4 + how);
	}
	free(items);
}

static void check_rest(struct data *data, const struct neap_analysis *analysis)
{
	struct neap_timeline_cursor cursor = neap_timeline_begin(&analysis->timeline);
	uint64_t pieces = number(data), time, reserved, changes, events[64], last = 0;

	assert_int_equal(pieces, 4);
	for (uint64_t i = 0; i < pieces; i++)
		assert_int_equal(number(data), i + 1); /* begun at event i */
	for (uint64_t i = 0; i < pieces; i++)
		assert_int_equal(number(data), 0);
	for (uint64_t i = 0; i < pieces; i++)
		assert_int_equal(u64(data), (1 + i) << 32);
	for (uint64_t i = 0; i < pieces; i++)
		assert_int_equal(u64(data), 64 * MIB);
	for (uint64_t i = 0; i < 3 * pieces; i++) /* stacks, streams, expandable */
		assert_int_equal(number(data), 0);
	assert_int_equal(number(data), 1);
	reserved = number(data);
	changes = number(data);
	assert_int_equal(changes, 4);
	for (uint64_t i = 0; i < changes; i++)
		events[i] = last += number(data);
	for (uint64_t i = 0; i < changes; i++)
		reserved += (uint64_t)signed_number(data);
	assert_int_equal(events[3], 3);
	assert_int_equal(reserved, analysis->profile.end.reserved);
	assert_int_equal(number(data), 1); /* one failure: event, asked, free, stack */
	assert_int_equal(number(data), analysis->timeline.count - 1);
	assert_int_equal(number(data), 456 * MIB);
	assert_int_equal(number(data), 123);
	assert_int_not_equal(number(data), 0);
	for (int i = 0; i < 3; i++) /* emptied, steps, marks */
		assert_int_equal(number(data), 0);
	assert_int_equal(number(data), analysis->timeline.count);
	time = u64(data);
	for (last = 0; neap_timeline_next(&cursor);) {
		last = cursor.now.time_us > last ? cursor.now.time_us : last;
		assert_int_equal(time += number(data), last);
	}
	assert_int_equal(data->at, data->length);
}

static void data_equals_the_analysis(void **state)
{
	(void)state;
	struct neap_trace *trace = random_trace(20000);
	struct neap_analysis_options how = {.device = SIZE_MAX};
	struct neap_analysis analysis = {0};
	struct neap_error err;

	if (neap_analyze(trace, &how, &analysis, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	assert_true(analysis.lives.count > 5000 && analysis.lives.before == 3);
	char *page = write_page(&analysis, &how, "trace");
	struct data data = unpack(page, "data-0");
	assert_int_equal(number(&data), 0);
	assert_int_equal(number(&data), analysis.timeline.count);
	check_lives(&data, &analysis);
	check_rest(&data, &analysis);
	free(data.bytes);
	free(page);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

/* The page of a part has the blocks that live in that part, and no others. */
static void a_stretch_has_what_lives_in_it(void **state)
{
	(void)state;
	struct neap_trace *trace = random_trace(2000);
	struct neap_analysis_options how = {
		.device = 0, .from = {NEAP_INSTANT_EVENT, 1000}, .to = {NEAP_INSTANT_EVENT, 1100}};
	struct neap_analysis analysis = {0};
	uint64_t expected = 0;

	assert_int_equal(neap_analyze(trace, &how, &analysis, NULL), NEAP_OK);
	struct neap_life_cursor cursor = neap_lives_begin(&analysis.lives, 0);
	struct neap_life life;
	while (neap_lives_next(&cursor, &life))
		expected += (life.begin == NEAP_LIFE_BEFORE || life.begin < 1100) &&
			    (life.end == NEAP_LIFE_AFTER || life.end > 1000);
	char *page = write_page(&analysis, &how, "trace");
	struct data data = unpack(page, "data-0");
	assert_int_equal(number(&data), 1000);
	assert_int_equal(number(&data), 1100);
	uint64_t sizes = number(&data);
	data.at += 16 * sizes;
	uint64_t addresses = number(&data);
	data.at += 8 * addresses;
	assert_int_equal(number(&data), expected);
	assert_true(expected < analysis.lives.count / 4);
	free(data.bytes);
	free(page);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

/* ---- text from outside ---- */

static void markup(void **state)
{
	(void)state;
	static const char *const cases[][2] = {
		{"plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\n\t",
		 "plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\n\t"},
		{"</script><b a='\"'>&amp;", "&lt;/script&gt;&lt;b a=&#39;&quot;&#39;&gt;&amp;amp;"},
		{"a\xe2\x80\xae"
		 "b\xe2\x81\xa6"
		 "c\xd8\x9c",
		 "a\xef\xbf\xbd"
		 "b\xef\xbf\xbd"
		 "c\xef\xbf\xbd"},
		{"\x01\x7f\xc2\x9b", "???"},
		{"\xff\xc0\xaf\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
		{"\xed\xa0\x80\xf4\x90\x80\x80",
		 "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct neap_buffer out = {0};
		neap_markup_text(&out, cases[i][0]);
		assert_string_equal(neap_buffer_string(&out), cases[i][1]);
		neap_buffer_fini(&out);
	}
}

static size_t occurrences(const char *text, const char *what)
{
	size_t count = 0;
	for (; (text = strstr(text, what)); text += strlen(what))
		count++;
	return count;
}

/* Hostile names make no element and no attribute; nothing in the page names another host. */
static void names_stay_text(void **state)
{
	(void)state;
	struct neap_trace *trace = random_trace(200);
	struct neap_analysis_options how = {.device = SIZE_MAX};
	struct neap_analysis analysis = {0};

	assert_int_equal(neap_analyze(trace, &how, &analysis, NULL), NEAP_OK);
	char *page = write_page(&analysis, &how, "<b>\" onload='x'</title>\xe2\x80\xae.pickle");
	assert_null(strstr(page, "<b>\""));
	assert_null(strstr(page, "</script><b>"));
	assert_null(strstr(page, "\xe2\x80\xae"));
	assert_int_equal(occurrences(page, "</title>"), 1);
	assert_int_equal(occurrences(page, "<script"), occurrences(page, "</script>"));
	assert_int_equal(occurrences(page, "<script"), 7 + 2 + 2); /* scripts, facts and words, names and data */
	assert_int_equal(occurrences(page, "http://") + occurrences(page, "https://") + occurrences(page, "src="), 0);
	assert_non_null(strstr(page, "default-src 'none'"));
	assert_non_null(strstr(page, "&lt;/script&gt;&lt;b&gt;")); /* in the report: a holder */
	free(page);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

/* ---- pieces ---- */

static int by_address(const void *left, const void *right)
{
	const struct neap_piece *a = left, *b = right;
	if (a->address != b->address)
		return a->address < b->address ? -1 : 1;
	return a->begin + 1 < b->begin + 1 ? -1 : 1;
}

static void pieces_of_a_segment(void **state)
{
	(void)state;
	static const struct {
		uint64_t address, size, begin, end;
	} expected[] = {
		{100, 50, 3, NEAP_LIFE_AFTER},                /* mapped again, after its second part went */
		{150, 50, 0, 1},                              /* unmapped in the middle of what was mapped at 0 */
		{200, 100, NEAP_LIFE_BEFORE, 1},              /* never mapped, but unmapped */
		{400, 10, 2, NEAP_LIFE_AFTER},                /* a segment */
		{500, 10, NEAP_LIFE_BEFORE, NEAP_LIFE_AFTER}, /* only in the final state */
	};
	struct neap_trace_segment final[] = {{.address = 400, .size = 10}, {.address = 500, .size = 10}};
	struct neap_pieces pieces = {0};
	struct maker maker;

	begin(&maker);
	put(&maker, NEAP_TRACE_SEGMENT_MAP, 100, 100, 0);
	put(&maker, NEAP_TRACE_SEGMENT_UNMAP, 150, 150, 0);
	put(&maker, NEAP_TRACE_SEGMENT_ALLOC, 400, 10, 0);
	put(&maker, NEAP_TRACE_SEGMENT_MAP, 100, 50, 0); /* odd: where something is mapped */
	neap_build_segment(&maker.build, &final[0]);
	neap_build_segment(&maker.build, &final[1]);
	struct neap_trace *trace = finish(&maker);
	assert_int_equal(neap_pieces_find(trace, 0, &pieces, NULL), NEAP_OK);
	qsort(pieces.items, pieces.count, sizeof *pieces.items, by_address);
	assert_int_equal(pieces.count, 6);
	assert_int_equal(pieces.items[0].begin, 0); /* the part below, until it was mapped again */
	assert_int_equal(pieces.items[0].end, 3);
	for (size_t i = 0; i < 5; i++) {
		assert_int_equal(pieces.items[i + 1].address, expected[i].address);
		assert_int_equal(pieces.items[i + 1].size, expected[i].size);
		assert_int_equal(pieces.items[i + 1].begin, expected[i].begin);
		assert_int_equal(pieces.items[i + 1].end, expected[i].end);
	}
	neap_pieces_fini(&pieces);
	neap_trace_free(trace);
}

/* Ranges at the very end of the address space, and more ranges than are kept. */
static void pieces_of_a_hostile_trace(void **state)
{
	(void)state;
	struct neap_pieces pieces = {0};
	struct maker maker;

	begin(&maker);
	put(&maker, NEAP_TRACE_SEGMENT_MAP, UINT64_MAX - 10, UINT64_MAX, 0);
	put(&maker, NEAP_TRACE_SEGMENT_UNMAP, UINT64_MAX - 20, UINT64_MAX, 0);
	put(&maker, NEAP_TRACE_SEGMENT_ALLOC, UINT64_MAX, 1, 0);
	for (uint64_t i = 0; i < NEAP_PIECES_AT_ONCE + 5; i++)
		put(&maker, NEAP_TRACE_SEGMENT_ALLOC, 1000 * (i + 1), 500, 0);
	struct neap_trace *trace = finish(&maker);
	assert_int_equal(neap_pieces_find(trace, 0, &pieces, NULL), NEAP_OK);
	assert_int_equal(pieces.left_out, 5);
	for (size_t i = 0; i < pieces.count; i++)
		assert_true(pieces.items[i].address + pieces.items[i].size > pieces.items[i].address);
	neap_pieces_fini(&pieces);
	neap_trace_free(trace);
}

/* ---- writing ---- */

static bool stop(void *context, uint64_t done, uint64_t total)
{
	(void)done;
	(void)total;
	return --*(int *)context > 0;
}

static void failures(void **state)
{
	(void)state;
	struct neap_trace *trace = random_trace(60000);
	struct neap_analysis_options how = {.device = 0};
	struct neap_trace_page_options options = {.path = "trace", .top = 10, .analysis = &how};
	struct neap_analysis analysis = {0};
	struct neap_error err;
	uint64_t bytes = 7;
	int asks = 1, full = open("/dev/full", O_WRONLY), null = open("/dev/null", O_WRONLY);

	assert_true(full >= 0 && null >= 0);
	assert_int_equal(neap_analyze(trace, &how, &analysis, NULL), NEAP_OK);
	assert_int_equal(neap_trace_page_write(full, &analysis, &options, &bytes, &err), NEAP_ENOSPC);
	assert_int_equal(neap_trace_page_write(-1, &analysis, &options, &bytes, &err), NEAP_EIO);
	how.progress = stop;
	how.context = &asks;
	assert_int_equal(neap_trace_page_write(null, &analysis, &options, &bytes, &err), NEAP_ECANCELED);
	assert_int_equal(bytes, 7);
	close(full);
	close(null);
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}

static void check_file(const char *path, const char *content)
{
	struct neap_buffer text = {0};
	assert_int_equal(neap_file_read(path, 100, &text, NULL), NEAP_OK);
	assert_string_equal(neap_buffer_string(&text), content);
	neap_buffer_fini(&text);
}

static void places_of_a_page(void **state)
{
	(void)state;
	char folder[] = "/tmp/neap-pages-XXXXXX", out[64], link_path[64], input[64];
	const char *const inputs[] = {"/no/such/file", input, NULL};
	struct neap_page_file file;
	struct stat info;

	assert_non_null(mkdtemp(folder));
	snprintf(out, sizeof out, "%s/out", folder);
	snprintf(link_path, sizeof link_path, "%s/link", folder);
	snprintf(input, sizeof input, "%s/input", folder);
	assert_int_equal(neap_file_write(out, "old", 3, NULL), NEAP_OK);
	assert_int_equal(neap_file_write(input, "trace", 5, NULL), NEAP_OK);
	assert_int_equal(symlink("out", link_path), 0);

	assert_int_equal(neap_page_file_begin(&file, folder, inputs, NULL), NEAP_EINVAL);
	assert_int_equal(neap_page_file_begin(&file, "", inputs, NULL), NEAP_EINVAL);
	assert_int_equal(neap_page_file_begin(&file, input, inputs, NULL), NEAP_EINVAL);
	assert_int_equal(neap_page_file_begin(&file, "/no/such/folder/out", inputs, NULL), NEAP_ENOENT);

	assert_int_equal(neap_page_file_begin(&file, link_path, inputs, NULL), NEAP_OK);
	assert_int_equal(neap_fd_write(file.fd, "part", 4, NULL), NEAP_OK);
	check_file(out, "old");
	neap_page_file_abort(&file);
	check_file(out, "old");
	assert_int_equal(neap_page_file_begin(&file, link_path, inputs, NULL), NEAP_OK);
	assert_int_equal(neap_fd_write(file.fd, "new", 3, NULL), NEAP_OK);
	assert_int_equal(neap_page_file_commit(&file, NULL), NEAP_OK);
	neap_page_file_abort(&file);
	check_file(out, "new");
	assert_int_equal(lstat(link_path, &info), 0);
	assert_true(S_ISLNK(info.st_mode));

	assert_int_equal(neap_page_file_begin(&file, "/dev/null", inputs, NULL), NEAP_OK); /* and it stays a device */
	assert_int_equal(neap_page_file_commit(&file, NULL), NEAP_OK);
	assert_int_equal(stat("/dev/null", &info), 0);
	assert_true(S_ISCHR(info.st_mode));
	unlink(out);
	unlink(link_path);
	unlink(input);
	assert_int_equal(rmdir(folder), 0); /* no temporary was left */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(data_equals_the_analysis),
		cmocka_unit_test(a_stretch_has_what_lives_in_it),
		cmocka_unit_test(markup),
		cmocka_unit_test(names_stay_text),
		cmocka_unit_test(pieces_of_a_segment),
		cmocka_unit_test(pieces_of_a_hostile_trace),
		cmocka_unit_test(failures),
		cmocka_unit_test(places_of_a_page),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
