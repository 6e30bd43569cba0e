/* report/races_text.c: races in words, and as JSON: see races.h. */
#include "report/races.h"

#include "base/printable.h"
#include "base/units.h"
#include "store/json_rows.h"

#include <inttypes.h>
#include <string.h>

static const char *const titles[NEAP_RACE_KINDS] = {
	[NEAP_RACE_DATA] = "data race: two streams use the same bytes, and nothing orders them",
	[NEAP_RACE_LIFETIME] = "lifetime race: a block was given out again while another stream may still use it",
	[NEAP_RACE_FREED] = "use after free: a block is used that was freed",
	[NEAP_RACE_HOST] = "host race: the host uses memory that a stream may not be done with",
	[NEAP_RACE_UNMAPPED] = "lifetime race: memory went back to the driver while a stream may still use it",
};

static const char *const kinds[NEAP_RACE_KINDS] = {"data", "lifetime", "freed", "host", "unmapped"};

static void put_stream(struct neap_buffer *out, uint64_t stream, uint64_t device)
{
	if (stream)
		neap_buffer_format(out, "stream %" PRIu64, stream);
	else
		neap_buffer_text(out, "the default stream");
	if (device)
		neap_buffer_format(out, " of device %" PRIu64, device);
}

static void put_place(struct neap_buffer *out, const struct neap_race_place *place)
{
	const char *slash = place->file ? strrchr(place->file, '/') : NULL;
	if (!place->file) {
		neap_buffer_text(out, "no line of Python's");
		return;
	}
	neap_buffer_format(out, "%s:%" PRIu64 " in %s", NEAP_PRINTABLE(slash ? slash + 1 : place->file), place->line,
			   NEAP_PRINTABLE(place->function));
	if (place->inner)
		neap_buffer_format(out, " (%s)", NEAP_PRINTABLE(place->inner));
}

static void put_side(struct neap_buffer *out, const char *label, const struct neap_race_side *side)
{
	neap_buffer_format(out, "   %-6s  ", label);
	put_place(out, &side->place);
	if (side->on_host) {
		neap_buffer_format(out, ": the host %s it", side->use);
	} else {
		neap_buffer_format(out, ": %s %s it on ", NEAP_PRINTABLE(side->name), side->use);
		put_stream(out, side->stream, side->device);
	}
	neap_buffer_text(out, "\n");
}

static void put_freed(struct neap_buffer *out, const struct neap_race *race)
{
	if (race->kind == NEAP_RACE_DATA || race->kind == NEAP_RACE_HOST || !race->freed.file)
		return;
	neap_buffer_text(out, "   freed   ");
	put_place(out, &race->freed);
	neap_buffer_text(out, "\n");
}

static void put_block(struct neap_buffer *out, const struct neap_race *race)
{
	if (!race->block_bytes)
		return;
	neap_buffer_format(out, "   block   %s, ", NEAP_SIZE(race->block_bytes));
	if (race->bytes < race->block_bytes)
		neap_buffer_format(out, "%s of it used by both, ", NEAP_SIZE(race->bytes));
	neap_buffer_text(out, "allocated at ");
	put_place(out, &race->allocated);
	neap_buffer_text(out, " on ");
	put_stream(out, race->block_stream, race->block_device);
	neap_buffer_text(out, "\n");
}

/* "let B wait for A after the first, by B.wait_stream(A) or ..." */
static void put_wait(struct neap_buffer *out, const struct neap_race *race, const char *before)
{
	neap_buffer_text(out, "let ");
	put_stream(out, race->second.stream, race->second.device);
	neap_buffer_text(out, " wait for ");
	put_stream(out, race->first.stream, race->first.device);
	neap_buffer_format(out, " %s (wait_stream, or wait_event of an event recorded after the first)", before);
}

static void put_missing(struct neap_buffer *out, const struct neap_race *race)
{
	switch (race->kind) {
	case NEAP_RACE_DATA:
		put_wait(out, race, "before the second");
		break;
	case NEAP_RACE_LIFETIME:
		neap_buffer_text(out, "call record_stream(");
		put_stream(out, race->first.stream, race->first.device);
		neap_buffer_text(out, ") on the tensor before it is freed, keep it longer, or ");
		put_wait(out, race, "before the second");
		break;
	case NEAP_RACE_FREED:
		neap_buffer_text(out, "keep the tensor until its last use was asked for");
		break;
	case NEAP_RACE_HOST:
		neap_buffer_text(
			out, "synchronize an event recorded after the first, or its stream, before the host's use");
		break;
	default:
		neap_buffer_text(
			out,
			"synchronize the stream before the cache is emptied, or call record_stream on the tensor");
	}
}

static void put_race(struct neap_buffer *out, const struct neap_race *race, size_t number)
{
	neap_buffer_format(out, "%zu. %s", number, titles[race->kind]);
	if (race->processes > 1)
		neap_buffer_format(out, ", in %zu processes", race->processes);
	neap_buffer_text(out, "\n");
	if (race->kind != NEAP_RACE_FREED)
		put_side(out, "first", &race->first);
	put_freed(out, race);
	if (race->kind != NEAP_RACE_UNMAPPED) {
		put_side(out, "second", &race->second);
	} else {
		neap_buffer_text(out, "   second  ");
		put_place(out, &race->second.place);
		neap_buffer_text(out, ": the allocator returns it\n");
	}
	put_block(out, race);
	neap_buffer_text(out, "   order   ");
	put_missing(out, race);
	neap_buffer_text(out, "\n");
	neap_buffer_format(out, "   key     %s\n", NEAP_PRINTABLE(race->key));
}

static void put_names(struct neap_buffer *out, const char *what, const struct neap_race_names *names)
{
	if (!names->count)
		return;
	neap_buffer_text(out, what);
	for (size_t i = 0; i < names->count; i++)
		neap_buffer_format(out, "%s %s", i ? "," : "", NEAP_PRINTABLE(names->list[i]));
	neap_buffer_text(out, "\n");
}

void neap_races_text(struct neap_buffer *out, const struct neap_races *races)
{
	size_t number = 0;
	for (size_t i = 0; i < races->count; i++)
		if (!races->list[i].accepted)
			put_race(out, &races->list[i], ++number);
	put_names(out, "not seen: what these kernels read and write (counted between lives of a block only):",
		  &races->not_seen);
	put_names(out, "not seen from some moment on:", &races->limits);
	if (races->lost)
		neap_buffer_format(
			out,
			"lost: what %zu process%s found is not all in the run's folder: it could not be written "
			"(is the disk full?)\n",
			races->lost, races->lost == 1 ? "" : "es");
}

void neap_races_summary(struct neap_buffer *out, const struct neap_races *races)
{
	size_t open = neap_races_open(races);
	if (open)
		neap_buffer_format(out, "%zu race%s between streams", open, open == 1 ? "" : "s");
	else
		neap_buffer_text(out, "no race between streams");
	if (races->count > open)
		neap_buffer_format(out, ", and %zu accepted", races->count - open);
}

/* --- JSON --- */

static json_t *place_json(const struct neap_race_place *place)
{
	return place->file ? JSON(TEXT("file", place->file), NUMBER("line", place->line),
				  TEXT("function", place->function), GIVEN("inner", place->inner))
			   : json_null();
}

static json_t *side_json(const struct neap_race_side *side)
{
	return JSON(VALUE("place", place_json(&side->place)), GIVEN("operation", side->name), TEXT("use", side->use),
		    ONLY(!side->on_host, NUMBER("stream", side->stream)),
		    ONLY(!side->on_host, NUMBER("device", side->device)));
}

static json_t *block_json(const struct neap_race *race)
{
	return race->block_bytes
		       ? JSON(NUMBER("bytes", race->block_bytes), NUMBER("stream", race->block_stream),
			      NUMBER("device", race->block_device), VALUE("allocated", place_json(&race->allocated)),
			      VALUE("freed", place_json(&race->freed)))
		       : json_null();
}

static json_t *missing_json(const struct neap_race *race)
{
	struct neap_buffer text = {0};
	put_missing(&text, race);
	json_t *value = neap_json_text(neap_buffer_string(&text));
	neap_buffer_fini(&text);
	return value;
}

json_t *neap_races_json(const struct neap_races *races)
{
	json_t *list = json_array();
	for (size_t i = 0; i < races->count; i++) {
		const struct neap_race *race = &races->list[i];
		neap_json_add(list, JSON(TEXT("kind", kinds[race->kind]), TEXT("key", race->key),
					 BOOL("accepted", race->accepted), NUMBER("processes", race->processes),
					 NUMBER("bytes", race->bytes), VALUE("first", side_json(&race->first)),
					 VALUE("second", side_json(&race->second)), VALUE("block", block_json(race)),
					 VALUE("order", missing_json(race))));
	}
	return list;
}

json_t *neap_race_names_json(const struct neap_race_names *names)
{
	json_t *list = json_array();
	for (size_t i = 0; i < names->count; i++)
		neap_json_add(list, neap_json_text(names->list[i]));
	return list;
}
