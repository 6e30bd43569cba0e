/* trace/trace.h: the one model of a trace, whatever file it came from. Read-only once loaded.
 *
 *   a PyTorch snapshot (pickle) ─┐                   ┌─ devices[]: events (by cursor), marks, what is odd
 *   neap's own recording        ─┼─ neap_trace_read ─┼─ segments[], blocks[]: the state at its end, if it has one
 *   text, plain or zstd         ─┘                   └─ stacks of frames, streams, settings, warnings
 *
 * Which kinds of event a trace holds depends on its source:
 *
 *   text       the program's requests: ALLOC, FREE_REQUESTED, RECORD_STREAM, EMPTY_CACHE. `address` is the line's id.
 *   snapshot   the program's requests and the allocator's actions; never RECORD_STREAM nor EMPTY_CACHE
 *   recording  both
 *
 * Events are kept packed (8 to 12 bytes each instead of 32), so they are visited by a cursor, in order, not indexed
 * as an array; a cursor can start anywhere at the price of decoding up to 63 events. Indices of events count from 0
 * on each device. Sizes are bytes; in ALLOC and FREE_* they are the *requested* ones, before rounding.
 *
 * The model is hostile input made safe: indices are within their tables and texts are terminated UTF-8 without
 * control characters. Nothing else is promised: addresses may overlap, frees may have no alloc, times may run
 * backwards.
 *
 * Threads: a loaded trace may be read from any thread. Ownership: everything belongs to the trace.
 */
#ifndef NEAP_TRACE_TRACE_H
#define NEAP_TRACE_TRACE_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum neap_trace_source {
	NEAP_TRACE_TEXT = 1,
	NEAP_TRACE_SNAPSHOT, /* PyTorch's */
	NEAP_TRACE_RECORDING,
};

enum neap_trace_kind {
	NEAP_TRACE_ALLOC = 1,
	NEAP_TRACE_FREE_REQUESTED, /* the program freed it */
	NEAP_TRACE_FREE_COMPLETED, /* its bytes are reusable */
	NEAP_TRACE_RECORD_STREAM,  /* the block at `address` is used on `stream` as well */
	NEAP_TRACE_SEGMENT_ALLOC,
	NEAP_TRACE_SEGMENT_FREE,
	NEAP_TRACE_SEGMENT_MAP,
	NEAP_TRACE_SEGMENT_UNMAP,
	NEAP_TRACE_OOM,            /* size: the rounded one that was tried; address: the device's free bytes */
	NEAP_TRACE_SNAPSHOT_TAKEN, /* size: from the file, usually bytes in use */
	NEAP_TRACE_EMPTY_CACHE,
};

struct neap_record;

struct neap_trace_event {
	uint64_t address; /* text: the line's id */
	uint64_t size;    /* FREE_* of a text trace: the size of its alloc */
	uint64_t time_us; /* since 1970 if the file has such times; 0: the file has no times */
	uint32_t stack;   /* index in calls: the innermost one; 0: none */
	uint16_t stream;  /* index in streams; text FREE_REQUESTED: the stream of its alloc */
	uint8_t kind;     /* enum neap_trace_kind */
	uint8_t device;   /* index in devices */
};

/* A stream, together with the private pool (of a captured graph) its memory came from. */
struct neap_trace_stream {
	uint64_t handle;  /* 0: the default stream. text and recordings: a small number */
	uint64_t pool[2]; /* 0, 0: none, or the file does not say */
};

enum neap_trace_mark_kind {
	NEAP_TRACE_MARK = 1, /* an instant */
	NEAP_TRACE_BEGIN,    /* a range opens; */
	NEAP_TRACE_END,      /* the innermost open one of this name closes */
	NEAP_TRACE_STEP,     /* a training step (one optimizer update) ends; `number` counts from 1 */
};

struct neap_trace_mark {
	/* The mark comes before this event of its device; devices[].event_count: after the last one. */
	uint64_t event;
	uint64_t time_us; /* as in events */
	uint64_t number;  /* the number of a step or epoch; 0: none */
	uint32_t name;    /* neap_trace_text; 0: "" */
	uint8_t kind;     /* enum neap_trace_mark_kind */
	uint8_t device;
};

enum neap_trace_state {
	NEAP_TRACE_BLOCK_LIVE = 1, /* active_allocated */
	NEAP_TRACE_BLOCK_PENDING,  /* freed, but a stream may still use it */
	NEAP_TRACE_BLOCK_FREE,
};

struct neap_trace_block {
	uint64_t address;
	uint64_t size;      /* rounded; 0: unknown, only in the result of neap_trace_live_before */
	uint64_t requested; /* of live and pending blocks; a free block has the file's value */
	uint32_t stack;
	uint8_t state; /* enum neap_trace_state */
};

struct neap_trace_segment {
	uint64_t address;
	uint64_t size;      /* bytes reserved; of an expandable segment: bytes mapped */
	uint64_t allocated; /* as in the file; it may differ from the sum over the blocks */
	uint64_t active;
	uint64_t requested;
	size_t first_block, block_count; /* in blocks; by address if the file is sound */
	uint32_t stack;
	uint16_t stream; /* index in streams, with the pool */
	uint8_t device;  /* index in devices */
	bool large;      /* of the pool for allocations above 1 MiB */
	bool expandable;
};

/* The address of the one block that stands for all earlier blocks that no event names; no real block has it. */
#define NEAP_TRACE_REST 1u

struct neap_trace_device {
	uint64_t event_count;
	size_t first_mark, mark_count;       /* in marks, sorted by event */
	size_t first_segment, segment_count; /* in segments, in the file's order */
	uint64_t lost; /* how many events the recorder overwrote before the first one here, on all devices */
	/* If a recording has lost events: the rounded bytes that were allocated before its first event.
	 * neap_trace_live_before returns the bytes of those blocks that no event names as one block, at
	 * NEAP_TRACE_REST. */
	uint64_t before_bytes;
	uint32_t before_stack; /* the name of the block at NEAP_TRACE_REST, as a stack; 0: it has none */
	uint64_t first_event;  /* of the store; for the cursor alone */
};

/* The allocator's settings as PyTorch wrote them; `known` says whether the file had any. */
struct neap_trace_settings {
	bool known;
	bool expandable_segments;
	int64_t max_split_size;                /* bytes; -1: unlimited, and when unknown */
	double garbage_collection_threshold;   /* 0: off */
	uint32_t roundup_power2_divisions[16]; /* for sizes from 1, 2, 4, ... 32768 MiB; 0: off */
	uint32_t conf;                         /* neap_trace_text of PYTORCH_CUDA_ALLOC_CONF; 0: "" */
};

/* Any other setting, as text: "release_lock_on_cudamalloc" = "False"; nested ones as "outer.inner". */
struct neap_trace_setting {
	uint32_t key, value; /* neap_trace_text */
};

/* An oddity that did not stop the reader. Equal ones are counted, not repeated. */
struct neap_trace_warning {
	char text[160];
	uint64_t position; /* the place of the first one: a byte offset; in text traces the line */
	uint64_t count;
};

struct neap_trace_frame {
	uint32_t file, name; /* neap_trace_text */
	uint32_t line;       /* 0: unknown */
};

/* What PyTorch wrote about a device's events. It holds from this event to that of the next note. Most traces have no
 * notes. */
struct neap_trace_note {
	uint64_t event;
	uint32_t user;     /* neap_trace_text of user_metadata; 0: "" */
	uint32_t internal; /* likewise of internal_metadata: the allocator's own remarks about the event */
	uint32_t compile;  /* likewise of compile_context; 0: "N/A" as well */
	uint8_t device;
};

/* A text that the program attached to a live block. */
struct neap_trace_annotation {
	uint64_t address; /* of the block */
	uint64_t event;   /* the text was attached before this event of its device */
	uint64_t time_us; /* as in events */
	uint64_t size;    /* the size in bytes that the program requested */
	uint32_t text;    /* neap_trace_text */
	uint32_t stack;
	uint16_t stream; /* index in streams */
	uint8_t device;
};

/* Pinned memory of the host, if PyTorch recorded it. It is not among the devices: its segments and blocks are in
 * tables like theirs, and neap_trace_host_events visits its events. */
struct neap_trace_host {
	struct neap_trace_segment *segments; /* in the file's order; their blocks are in the trace's */
	size_t segment_count;
	uint64_t event_count;
	uint64_t first_event; /* of the store; for the cursor alone */
};

/* Stacks are paths in one tree of calls: a stack is the number of its innermost call, and
 *
 *     for (uint32_t call = event.stack; call; call = trace->calls[call].parent)
 *             ... trace->frames[trace->calls[call].frame]
 *
 * walks it outwards. Equal stacks have equal numbers; a parent's number is lower than its children's. */
struct neap_trace_call {
	uint32_t frame;  /* index in frames */
	uint32_t parent; /* index in calls; 0: outermost */
};

/* The GPU of the run that wrote a trace. The file does not name it: neap_run_folder_origin (run/folder.h) reads
 * it from the run's folder. Zeroed: unknown. */
struct neap_trace_origin {
	char gpu[128];
	bool simulated; /* times of the trace are the simulator's, not a GPU's */
};

/* The tables of marks, segments and blocks are never NULL, even when empty. */
struct neap_trace {
	enum neap_trace_source source;
	struct neap_trace_origin origin;
	bool torch; /* PyTorch's own allocator made the events, as in every snapshot and some recordings */
	struct neap_trace_device *devices; /* at least one */
	size_t device_count;               /* at most 256 */
	struct neap_trace_stream *streams; /* [0] is {0, {0, 0}} */
	size_t stream_count;               /* at most 65536 */
	struct neap_trace_mark *marks;     /* by device, then event */
	size_t mark_count;
	struct neap_trace_segment *segments; /* by device */
	size_t segment_count;
	struct neap_trace_block *blocks;
	size_t block_count;
	/* A recording that lacks events between those that it has, so a replay may place blocks elsewhere. */
	bool partial;
	/* The file was written by PyTorch 2.`torch_from` to 2.`torch_to`: the keys that a snapshot has or lacks show
	 * this, and a recording of PyTorch's own allocator names its release. 0: unknown. */
	unsigned torch_from, torch_to;
	struct neap_trace_settings settings;
	struct neap_trace_setting *other_settings;
	size_t other_setting_count;
	struct neap_trace_note *notes; /* by device, then event */
	size_t note_count;
	struct neap_trace_annotation *annotations; /* likewise */
	size_t annotation_count;
	struct neap_trace_host host;
	struct neap_trace_frame *frames; /* [0] is empty */
	size_t frame_count;
	struct neap_trace_call *calls; /* [0] is not a call */
	size_t call_count;
	struct neap_trace_warning *warnings;
	size_t warning_count; /* at most 32 different ones */
	uint64_t bytes_read;  /* of the file */
	struct neap_record
		/* The record from which a RECORDING was made, with the figures of its journal (record.h); else
		 * NULL. */
		*record;
	struct neap_trace_store *store; /* the rest, which the functions below give */
};

/* Whether neap's allocator made the events, as in all recordings but those of PyTorch's own allocator. */
static inline bool neap_trace_of_neap(const struct neap_trace *trace)
{
	return trace->source == NEAP_TRACE_RECORDING && !trace->torch;
}

static inline bool neap_trace_origin_known(const struct neap_trace *trace)
{
	return trace->origin.gpu[0] || trace->origin.simulated;
}

/* Reads the file or pipe at PATH ("-": standard input) to its end; the first bytes decide the format. Errors:
 * NEAP_EPARSE with line and column (text) or position (bytes of the decompressed data); NEAP_ENOENT, NEAP_EIO,
 * NEAP_ENOMEM; the path is in every message. Free with neap_trace_free. */
enum neap_status neap_trace_read(const char *path, struct neap_trace **ret_trace, struct neap_error *err);
void neap_trace_free(struct neap_trace *trace);

/* Returns the text with this number; "" for 0 or a number that does not exist, never NULL. */
const char *neap_trace_text(const struct neap_trace *trace, uint32_t text);

/* Visits events of one device in order:
 *
 *     struct neap_trace_cursor cursor = neap_trace_events(trace, device, 0);
 *     struct neap_trace_event event;
 *     while (neap_trace_next(&cursor, &event)) ...
 *
 * A cursor is a value: copy it to come back to a place. It does not outlive the trace. */
struct neap_trace_cursor {
	const struct neap_trace_store *store;
	uint64_t next, end;               /* in the store */
	const unsigned char *at;          /* the place of event `next` */
	struct neap_trace_event previous; /* the event against which it is packed */
};

/* Returns a cursor before event `first` of the device; at the end if there is no such event. */
struct neap_trace_cursor neap_trace_events(const struct neap_trace *trace, size_t device, uint64_t first);
/* A cursor for the events of the host's pinned memory. */
struct neap_trace_cursor neap_trace_host_events(const struct neap_trace *trace);
/* Returns the next event. False: there is none, and *ret_event is untouched. */
bool neap_trace_next(struct neap_trace_cursor *cursor, struct neap_trace_event *ret_event);
/* Returns the next event of one of these kinds: a bit (1u << kind) for each. Parts of the trace without such events
 * cost nearly nothing. */
bool neap_trace_find(struct neap_trace_cursor *cursor, unsigned kinds, struct neap_trace_event *ret_event);
#define NEAP_TRACE_GROWTHS  (1u << NEAP_TRACE_SEGMENT_ALLOC | 1u << NEAP_TRACE_SEGMENT_MAP)
#define NEAP_TRACE_RELEASES (1u << NEAP_TRACE_SEGMENT_FREE | 1u << NEAP_TRACE_SEGMENT_UNMAP)

/* The note in force at an event; all zero if there is none. */
struct neap_trace_note neap_trace_note_at(const struct neap_trace *trace, size_t device, uint64_t event);

/* The blocks that were live (or pending) before the first event of the device: first those that the history frees but
 * never allocates (their `size` is unknown), then those that exist at the end but were never allocated. If the
 * history is empty, these are all blocks at the end. If a recording has lost its beginning, one last block stands for
 * the rest of the bytes that were allocated then. *ret_blocks is the caller's to free(); NULL when there are none.
 * Errors: NEAP_ENOMEM.
 */
enum neap_status neap_trace_live_before(const struct neap_trace *trace, size_t device,
					struct neap_trace_block **ret_blocks, size_t *ret_count,
					struct neap_error *err);

/* Writes one device's history in the text form (formats.h), whole or not at all. Blocks that were live before it come
 * first, as allocations. A text trace keeps its ids; others get new numbers. Streams are indices of trace->streams.
 * The form has no stacks, segments or times. A free that completed without a request counts as a free. */
enum neap_status neap_trace_write_text(const struct neap_trace *trace, size_t device, const char *path,
				       struct neap_error *err);

/* Writes a snapshot as torch.cuda.memory._dump_snapshot does, whole or not at all, in pickle protocol 4 with the
 * instructions that PyTorch's own viewer knows. A snapshot has no RECORD_STREAM and no EMPTY_CACHE events. Frees of a
 * text trace complete at once. If the trace has no times, each event takes a microsecond. A step becomes a range that
 * begins at the end of the step before; a mark becomes a range of no length. */
enum neap_status neap_trace_write_snapshot(const struct neap_trace *trace, const char *path, struct neap_error *err);

/* Names a stack, in at most room - 1 bytes. */
typedef void neap_trace_namer(const void *context, uint32_t stack, char *ret_text, size_t capacity);

/* Writes a recording (neap/trace.h), whole or not at all. A stack becomes the tag that `namer` gives it (NULL: the
 * name of its innermost frame), cut at NEAP_RECORD_NAME_ROOM - 1 bytes. If there are more than 254 different names,
 * the rest become "other". Streams are numbered. Pools and the final state are not written. Frees of a text trace
 * complete at once. If the trace has no times, events are a microsecond apart. Errors: NEAP_EINVAL for more than 16
 * 777 216 events. */
enum neap_status neap_trace_write_recording(const struct neap_trace *trace, neap_trace_namer *namer,
					    const void *context, const char *path, struct neap_error *err);

/* Returns the name of a kind as PyTorch spells it: "alloc", "free_requested", ...; "unknown" for another number. */
const char *neap_trace_kind_name(enum neap_trace_kind kind);

#endif
