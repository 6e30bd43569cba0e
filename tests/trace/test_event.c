/* neap/event.h: the structs of events, and the functions made from their table. */
#include "neap/event.h"
#include "support/test.h"

#include <stdbool.h>
#include <string.h>

/* Every kind has one struct, of whole words without padding, so that each byte of a recording is set. */
static void test_structs(void **state)
{
	static const uint64_t ones[NEAP_EVENT_PAYLOAD_WORDS] = {UINT64_MAX, UINT64_MAX, UINT64_MAX,
								UINT64_MAX, UINT64_MAX, UINT64_MAX};
	struct neap_event event = {0};

	(void)state;
#define CHECK(member, ...)                                                                                           \
	assert_true(sizeof event.member % 8 == 0 && sizeof event.member <= sizeof ones);                             \
	memset(event.payload, 0xff, sizeof event.payload);                                                           \
	__builtin_clear_padding(&event.member);                                                                      \
	assert_memory_equal(event.payload, ones, sizeof ones);
	NEAP_EVENT_STRUCTS(CHECK, CHECK)
#undef CHECK
	for (event.kind = 0; event.kind < 100; event.kind++) {
		int readers = 0;
#define ADD_READER(member, ...) readers += neap_event_as_##member(&event) != NULL;
		NEAP_EVENT_STRUCTS(ADD_READER, ADD_READER)
#undef ADD_READER
		bool known = (event.kind >= NEAP_EVENT_ALLOC && event.kind <= NEAP_EVENT_SEGMENT_UNMAP) ||
			     (event.kind >= NEAP_EVENT_EMPTY_CACHE && event.kind <= NEAP_EVENT_SMALLER_PARTS) ||
			     (event.kind >= NEAP_EVENT_LEVEL && event.kind <= NEAP_EVENT_BATCH);
		assert_int_equal(readers, known);
	}
	event = neap_event_of_scope(NEAP_EVENT_SCOPE_END, 3, (struct neap_event_scope){.name = 7, .ns = 9});
	assert_true(event.kind == NEAP_EVENT_SCOPE_END && event.device == 3);
	assert_int_equal(neap_event_as_scope(&event)->ns, 9);
	assert_null(neap_event_as_step(&event));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_structs)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
