/* trace/write_text.c: writes a history in the text form. */
#include "base/error.h"
#include "base/map.h"
#include "trace/formats.h"
#include "trace/output.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <stdlib.h>

struct text_writer {
	const struct neap_trace *trace;
	struct neap_output output;
	struct neap_map ids; /* address of a block that is live in the text -> id */
	uint64_t next_id;
	uint64_t too_large; /* the bytes of an allocation that the form cannot express */
	bool no_memory;
};

static void write_alloc(struct text_writer *writer, uint64_t address, uint64_t size, unsigned stream)
{
	uint64_t id = writer->trace->source == NEAP_TRACE_TEXT ? address : ++writer->next_id, old;

	if (size > NEAP_TEXT_BYTES_MAX)
		writer->too_large = size;
	/* The free between two allocations at the same address was lost. */
	if (neap_map_get(&writer->ids, address, &old))
		neap_output_format(&writer->output, "f %" PRIu64 "\n", old);
	if (!neap_map_put(&writer->ids, address, id))
		writer->no_memory = true;
	neap_output_format(&writer->output, "a %" PRIu64 " %" PRIu64 " %u\n", id, size, stream);
}

static void write_free(struct text_writer *writer, uint64_t address)
{
	uint64_t id;

	/* A completion after a request, or of an unknown block, is not another free. */
	if (neap_map_remove(&writer->ids, address, &id))
		neap_output_format(&writer->output, "f %" PRIu64 "\n", id);
}

/* Returns the number of a stream. A text trace has its own handles. In other traces a handle may be an address, and
 * streams of one handle may have different pools. */
static unsigned stream_number(const struct text_writer *writer, uint16_t stream)
{
	return writer->trace->source == NEAP_TRACE_TEXT ? (unsigned)writer->trace->streams[stream].handle : stream;
}

static void write_event(struct text_writer *writer, const struct neap_trace_event *event)
{
	uint64_t id;

	switch ((enum neap_trace_kind)event->kind) {
	case NEAP_TRACE_ALLOC:
		if (event->size) /* the text form has no allocations of 0 bytes */
			write_alloc(writer, event->address, event->size, stream_number(writer, event->stream));
		return;
	case NEAP_TRACE_FREE_REQUESTED:
	case NEAP_TRACE_FREE_COMPLETED:
		write_free(writer, event->address);
		return;
	case NEAP_TRACE_RECORD_STREAM:
		if (neap_map_get(&writer->ids, event->address, &id))
			neap_output_format(&writer->output, "r %" PRIu64 " %u\n", id,
					   stream_number(writer, event->stream));
		return;
	case NEAP_TRACE_EMPTY_CACHE:
		neap_output_format(&writer->output, "e\n");
		return;
	case NEAP_TRACE_OOM:
		neap_output_format(&writer->output, "# out of memory: %" PRIu64 " bytes\n", event->size);
		return;
	default:
		return; /* an action of the allocator, not of the program */
	}
}

static void write_mark(struct text_writer *writer, const struct neap_trace_mark *mark)
{
	static const char *const words[] = {[NEAP_TRACE_BEGIN] = "begin ", [NEAP_TRACE_END] = "end "};
	const char *name = neap_trace_text(writer->trace, mark->name);

	if (mark->kind == NEAP_TRACE_STEP)
		neap_output_format(&writer->output, "s\n");
	else
		neap_output_format(&writer->output, "m %s%s\n",
				   mark->kind == NEAP_TRACE_MARK ? "" : words[mark->kind], *name ? name : "mark");
}

static enum neap_status write_before(struct text_writer *writer, size_t device, struct neap_error *err)
{
	struct neap_trace_block *blocks = NULL;
	size_t count = 0;
	enum neap_status status = neap_trace_live_before(writer->trace, device, &blocks, &count, err);

	if (status)
		return status;
	for (size_t i = 0; i < count; i++)
		if (blocks[i].requested)
			write_alloc(writer, blocks[i].address, blocks[i].requested, 0);
	if (count)
		neap_output_format(&writer->output, "m the recording began\n");
	free(blocks);
	return NEAP_OK;
}

enum neap_status neap_trace_write_text(const struct neap_trace *trace, size_t device, const char *path,
				       struct neap_error *err)
{
	struct text_writer writer = {.trace = trace};
	enum neap_status status;

	if (device >= trace->device_count)
		return neap_fail(err, NEAP_EINVAL, "the trace has %zu devices, so none is number %zu",
				 trace->device_count, device);
	status = neap_output_begin(&writer.output, path, err);
	if (status)
		return status;
	if (trace->source != NEAP_TRACE_TEXT)
		status = write_before(&writer, device, err);
	const struct neap_trace_device *about = &trace->devices[device];
	const struct neap_trace_mark *mark = trace->marks + about->first_mark, *end = mark + about->mark_count;
	struct neap_trace_cursor cursor = neap_trace_events(trace, device, 0);
	struct neap_trace_event event;
	for (uint64_t index = 0; !status && neap_trace_next(&cursor, &event); index++) {
		for (; mark < end && mark->event <= index; mark++)
			write_mark(&writer, mark);
		write_event(&writer, &event);
	}
	for (; !status && mark < end; mark++)
		write_mark(&writer, mark);
	if (!status && writer.no_memory)
		status = neap_fail(err, NEAP_ENOMEM, "out of host memory");
	if (!status && writer.too_large)
		status =
			neap_fail(err, NEAP_EINVAL,
				  "an allocation of %" PRIu64 " bytes has no place in a text trace: the most is %llu",
				  writer.too_large, NEAP_TEXT_BYTES_MAX);
	neap_map_fini(&writer.ids);
	return neap_output_end(&writer.output, status);
}
