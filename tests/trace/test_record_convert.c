/* Events of neap 0.1: each figure is in its place of today's event. */
#include "support/test.h"

#include "trace/record.h"

#include <string.h>

enum { NAME = 3, DEVICE, FLAGS, ADDRESS = 7, SIZE, BLOCK, A, B, STREAM = 6 << 8 | 1 };

static struct neap_record_header header = {.names = {[NAME] = "leak"}};

static struct neap_event convert(enum neap_event_kind kind, const char *name)
{
	struct {
		uint64_t time_ns;
		uint32_t sequence;
		uint16_t kind, name, device, flags;
		uint32_t stream;
		uint64_t address, size, block, a, b;
	} earlier = {1, 2, (uint16_t)kind, NAME, DEVICE, FLAGS, STREAM, ADDRESS, SIZE, BLOCK, A, B};
	struct neap_event event;
	_Static_assert(sizeof earlier == sizeof event, "the slots have one size");
	memcpy(&event, &earlier, sizeof event);
	strcpy(header.names[NAME], name);
	event = neap_record_convert(&event, &header);
	assert_int_equal(event.time_ns, 1);
	assert_int_equal(event.sequence, 2);
	return event;
}

/* `what` is the whole event that `kind` has to become. */
static void expect(enum neap_event_kind kind, const char *name, struct neap_event what)
{
	struct neap_event found = convert(kind, name);
	what.time_ns = 1;
	what.sequence = 2;
	if (memcmp(&found, &what, sizeof what) != 0)
		fail_msg("an event of kind %d (%s) has other figures", (int)kind, name);
}

static const struct neap_event_held held = {A, B};

static void test_memory(void **state)
{
	(void)state;
	for (unsigned kind = NEAP_EVENT_ALLOC; kind <= NEAP_EVENT_RECORD_STREAM; kind++)
		expect(kind, "",
		       neap_event_of_allocation(kind, DEVICE,
						(struct neap_event_allocation){.held = held,
									       .tag = NAME,
									       .stream = STREAM,
									       .address = ADDRESS,
									       .requested_bytes = SIZE,
									       .bytes = BLOCK}));
	for (unsigned kind = NEAP_EVENT_RECORD_STREAM + 1; kind <= NEAP_EVENT_SEGMENT_UNMAP; kind++)
		expect(kind, "",
		       neap_event_of_segment(
			       kind, DEVICE,
			       (struct neap_event_segment){
				       .held = held, .stream = STREAM, .address = ADDRESS, .bytes = SIZE}));
	expect(NEAP_EVENT_EMPTY_CACHE, "",
	       neap_event_of_empty_cache(
		       DEVICE, (struct neap_event_empty_cache){.held = held, .ns = ADDRESS, .freed_bytes = SIZE}));
	expect(NEAP_EVENT_CLEANUP, "",
	       neap_event_of_cleanup(DEVICE,
				     (struct neap_event_cleanup){
					     .held = held, .ns = ADDRESS, .freed_bytes = SIZE, .reason = BLOCK}));
	expect(NEAP_EVENT_PAGE, "",
	       neap_event_of_page(DEVICE, (struct neap_event_page){.device_uuid = NAME,
								   .context_bytes = ADDRESS,
								   .peak_allocated_bytes = SIZE,
								   .peak_reserved_bytes = BLOCK}));
}

static void test_out_of_memory(void **state)
{
	(void)state;
	expect(NEAP_EVENT_OOM, "",
	       neap_event_of_oom(DEVICE, (struct neap_event_oom){.held = held,
								 .tag = NAME,
								 .flags = FLAGS,
								 .device_free_bytes = ADDRESS,
								 .requested_bytes = SIZE,
								 .bytes = BLOCK}));
	expect(NEAP_EVENT_OOM_LIMITS, "",
	       neap_event_of_oom_limits(DEVICE,
					(struct neap_event_oom_limits){.context_bytes = (uint64_t)STREAM << 20,
								       .device_total_bytes = ADDRESS,
								       .limit_bytes = SIZE,
								       .largest_free_bytes = BLOCK,
								       .others_bytes = A,
								       .pending_bytes = B}));
	expect(NEAP_EVENT_OOM_POOLS, "",
	       neap_event_of_oom_pools(DEVICE, (struct neap_event_oom_pools){.small_failed = ADDRESS,
									     .small_largest_free_bytes = SIZE,
									     .large_largest_free_bytes = BLOCK}));
	expect(NEAP_EVENT_TAG_BYTES, "",
	       neap_event_of_tag_bytes(DEVICE,
				       (struct neap_event_tag_bytes){
					       .tag = NAME, .live_blocks = SIZE, .live_bytes = A, .peak_bytes = B}));
}

static void test_steps(void **state)
{
	const struct neap_event_settings settings = {
		.rungs = 1, .smaller_parts = 6, .micro_batch = ADDRESS, .accumulate = SIZE};
	const uint64_t bits = ADDRESS;
	struct neap_event_metric metric = {.held = held, .name = NAME, .step = SIZE};
	(void)state;
	memcpy(&metric.value, &bits, sizeof bits);
	expect(NEAP_EVENT_METRIC, "", neap_event_of_metric(DEVICE, metric));
	expect(NEAP_EVENT_MARK, "",
	       neap_event_of_mark(
		       DEVICE, (struct neap_event_mark){.held = held, .name = NAME, .mark = ADDRESS, .value = SIZE}));
	expect(NEAP_EVENT_STEP, "",
	       neap_event_of_step(DEVICE, (struct neap_event_step){.held = held,
								   .name = NAME,
								   .micro_batches = STREAM,
								   .number = ADDRESS,
								   .peak_bytes = SIZE,
								   .lowest_bytes = BLOCK}));
	expect(NEAP_EVENT_SPLIT, "",
	       neap_event_of_split(DEVICE,
				   (struct neap_event_split){
					   .held = held, .settings = settings, .ranks = BLOCK, .layers = FLAGS}));
	expect(NEAP_EVENT_RUNG, "",
	       neap_event_of_rung(DEVICE, (struct neap_event_rung){.settings = settings,
								   .rung = BLOCK,
								   .micro_batch_before = A,
								   .accumulate_before = B}));
}

static void test_shortage(void **state)
{
	struct neap_event_request request = {.name = NAME, .request = BLOCK};
	(void)state;
	request.low_step = SIZE;
	request.high_step = ADDRESS;
	expect(NEAP_EVENT_REQUEST, "leak", neap_event_of_request(DEVICE, request));
	request = (struct neap_event_request){.name = NAME, .request = BLOCK, .max_steps = SIZE};
	expect(NEAP_EVENT_REQUEST, "--max-steps", neap_event_of_request(DEVICE, request));
	request = (struct neap_event_request){
		.name = NAME, .request = BLOCK, .left_bytes = SIZE, .threshold_bytes = ADDRESS};
	expect(NEAP_EVENT_REQUEST, "stop", neap_event_of_request(DEVICE, request));
	expect(NEAP_EVENT_LEAK, "",
	       neap_event_of_leak(
		       DEVICE,
		       (struct neap_event_leak){.held = held, .bytes_per_step = SIZE, .confidence_permille = BLOCK}));
	expect(NEAP_EVENT_LEVEL, "",
	       neap_event_of_level(
		       DEVICE, (struct neap_event_level){
				       .name = NAME, .act = BLOCK, .threshold_bytes = ADDRESS, .left_bytes = SIZE}));
	expect(NEAP_EVENT_FORECAST, "",
	       neap_event_of_forecast(
		       DEVICE, (struct neap_event_forecast){.step = ADDRESS, .low_step = SIZE, .high_step = BLOCK}));
}

static void test_unknown(void **state)
{
	(void)state;
	assert_int_equal(convert((enum neap_event_kind)9999, "").kind, UINT16_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory), cmocka_unit_test(test_out_of_memory),
					   cmocka_unit_test(test_steps), cmocka_unit_test(test_shortage),
					   cmocka_unit_test(test_unknown)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
