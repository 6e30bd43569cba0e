/* torch/watch.cpp: what PyTorch's own allocator does, as events of this process's recording. One object, compiled
 * against the installed PyTorch by python/neap/_watch.py; it replaces nothing of PyTorch's.
 *
 *   PyTorch's allocator --trace tracker, inside its lock--> track --> the agent's observer --> RUN/record.PID
 *                                                             \--> stacks_number (watch_stacks.h) --> RUN/stacks.PID
 *
 * The tracker takes no lock of Python's, allocates nothing and never throws. PyTorch cannot detach it: where nothing
 * is recorded (before neap_watch_start, after neap_watch_stop, in the child of a fork) it returns at once.
 *
 * A device's state is guarded by that device's lock in PyTorch's allocator, inside which every tracker runs. */
#include "watch_stacks.cpp"

#include "neap/trace.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <time.h>

namespace neap_torch
{

namespace cca = c10::cuda::CUDACachingAllocator;

namespace
{

using Entry = cca::TraceEntry;

constexpr size_t kDevices = 64, kStreams = 1024;
constexpr uint64_t kRounding = 512;        /* of PyTorch's blocks */
constexpr uint64_t kStackBytes = 1u << 20; /* requests of so many bytes have a stack each */
constexpr uint32_t kStackEvery = 64;       /* of smaller ones, one of so many */

struct Device {
	bool on; /* its events are recorded; until then they are part of the state that is recorded first */
	uint64_t allocated, reserved;
	uint64_t highest; /* allocated, since the last step */
	uint32_t small;   /* requests */
	uint32_t streams;
	uintptr_t stream[kStreams]; /* by number, less 1; the default stream is none */
	struct neap_event freed;    /* FREE_REQUESTED that is not recorded yet; kind 0: none */
};

struct Watch {
	const struct neap_observer *observer;
	std::atomic<bool> on{false};
	bool attached = false; /* the tracker */
	int count = 0;         /* of devices */
	Device devices[kDevices];
} watch;

uint64_t now_ns()
{
	struct timespec now = {};
	clock_gettime(CLOCK_MONOTONIC, &now);
	return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t rounded(uint64_t bytes) { return (bytes + kRounding - 1) / kRounding * kRounding; }

void record(struct neap_event &event, uint64_t time_ns)
{
	event.time_ns = time_ns;
	watch.observer->event(watch.observer->context, &event);
}

/* Beyond kStreams streams all have the last number. */
uint32_t number_of(Device &device, uintptr_t stream)
{
	if (!stream)
		return 0;
	for (uint32_t i = 0; i < device.streams; i++)
		if (device.stream[i] == stream)
			return i + 1;
	if (device.streams < kStreams)
		device.stream[device.streams++] = stream;
	return device.streams;
}

struct neap_event event_of(Device &device, uint16_t index, neap_event_kind kind, uint64_t address, uint64_t bytes,
			   uintptr_t stream)
{
	struct neap_event_allocation what = {};
	what.held = {device.allocated, device.reserved};
	what.stream = number_of(device, stream);
	what.address = address;
	what.requested_bytes = bytes;
	what.bytes = rounded(bytes);
	return neap_event_of_allocation(kind, index, what);
}

void add_segment(Device &device, uint16_t index, neap_event_kind kind, uint64_t address, uint64_t bytes,
		 uintptr_t stream, uint64_t time_ns)
{
	bool more = kind == NEAP_EVENT_SEGMENT_ALLOC || kind == NEAP_EVENT_SEGMENT_MAP;
	device.reserved += more ? bytes : 0 - bytes;
	struct neap_event_segment what = {};
	what.held = {device.allocated, device.reserved};
	what.stream = number_of(device, stream);
	what.address = address;
	what.bytes = bytes;
	struct neap_event event = neap_event_of_segment(kind, index, what);
	record(event, time_ns);
}

void add_block(Device &device, uint16_t index, uint64_t address, uint64_t bytes, uintptr_t stream, uint32_t stack,
	       uint64_t time_ns)
{
	device.allocated += rounded(bytes);
	if (device.allocated > device.highest)
		device.highest = device.allocated;
	struct neap_event event = event_of(device, index, NEAP_EVENT_ALLOC, address, bytes, stream);
	event.allocation.tag = stack ? NEAP_EVENT_FIRST_STACK + stack - 1 : 0;
	record(event, time_ns);
}

/* The two events of a free mostly come together: they are one event then, which takes half the time and space. */
void free_block(Device &device, const struct neap_event &requested, bool completed)
{
	struct neap_event event = requested;
	device.freed.kind = 0;
	if (completed)
		event.kind = NEAP_EVENT_FREE;
	record(event, event.time_ns);
}

bool wants_stack(Device &device, uint64_t bytes) { return bytes >= kStackBytes || ++device.small % kStackEvery == 0; }

void track_free(Device &device, uint16_t index, const Entry &entry)
{
	uintptr_t stream = (uintptr_t)entry.stream_; /* a pointer of one type or another */
	if (entry.action_ == Entry::FREE_REQUESTED) {
		device.allocated -= rounded(entry.size_);
		device.freed = event_of(device, index, NEAP_EVENT_FREE_REQUESTED, entry.addr_, entry.size_, stream);
		device.freed.time_ns = now_ns();
		return;
	}
	struct neap_event event =
		event_of(device, index, NEAP_EVENT_FREE_COMPLETED, entry.addr_, entry.size_, stream);
	record(event, now_ns());
}

neap_event_kind kind_of(Entry::Action action)
{
	switch (action) {
	case Entry::SEGMENT_ALLOC:
		return NEAP_EVENT_SEGMENT_ALLOC;
	case Entry::SEGMENT_FREE:
		return NEAP_EVENT_SEGMENT_FREE;
	case Entry::SEGMENT_MAP:
		return NEAP_EVENT_SEGMENT_MAP;
	default:
		return NEAP_EVENT_SEGMENT_UNMAP;
	}
}

void track_on(Device &device, uint16_t index, const Entry &entry)
{
	if (device.freed.kind) {
		bool completed =
			entry.action_ == Entry::FREE_COMPLETED && entry.addr_ == device.freed.allocation.address;
		free_block(device, device.freed, completed);
		if (completed)
			return;
	}
	switch (entry.action_) {
	case Entry::ALLOC: {
		uint32_t stack = wants_stack(device, entry.size_) ? stacks_number() : 0;
		add_block(device, index, entry.addr_, entry.size_, (uintptr_t)entry.stream_, stack, now_ns());
		break;
	}
	case Entry::FREE_REQUESTED:
	case Entry::FREE_COMPLETED:
		track_free(device, index, entry);
		break;
	case Entry::SEGMENT_ALLOC:
	case Entry::SEGMENT_FREE:
	case Entry::SEGMENT_MAP:
	case Entry::SEGMENT_UNMAP:
		add_segment(device, index, kind_of(entry.action_), entry.addr_, entry.size_, (uintptr_t)entry.stream_,
			    now_ns());
		break;
	default:
		break;
	}
}

/* A snapshot is taken for the state at the start: the events after it are not in it. */
void track(const Entry &entry)
{
	if (!watch.on.load(std::memory_order_acquire) || entry.device_ < 0 || entry.device_ >= (int)kDevices)
		return;
	Device &device = watch.devices[entry.device_];
	if (device.on)
		track_on(device, static_cast<uint16_t>(entry.device_), entry);
	else if (entry.action_ == Entry::SNAPSHOT)
		device.on = true;
}

/* What was there before: as events with the time before the snapshot. */
void record_state(uint64_t time_ns)
{
#ifdef NEAP_SNAPSHOT_TRACES
	cca::SnapshotInfo snapshot = cca::snapshot({0, 0}, false);
#else
	cca::SnapshotInfo snapshot = cca::snapshot();
#endif
	for (const auto &segment : snapshot.segments) {
		auto index = static_cast<uint16_t>(segment.device);
		if (index >= kDevices)
			continue;
		Device &device = watch.devices[index];
		auto stream = (uintptr_t)segment.stream;
		add_segment(device, index, segment.is_expandable ? NEAP_EVENT_SEGMENT_MAP : NEAP_EVENT_SEGMENT_ALLOC,
			    segment.address, segment.total_size, stream, time_ns);
		uint64_t address = segment.address;
		for (const auto &block : segment.blocks) {
			if (block.allocated || block.active)
				add_block(device, index, address, block.requested_size, stream, 0, time_ns);
			if (block.active && !block.allocated) {
				device.allocated -= rounded(block.requested_size);
				struct neap_event event = event_of(device, index, NEAP_EVENT_FREE_REQUESTED, address,
								   block.requested_size, stream);
				record(event, time_ns);
			}
			address += block.size;
		}
	}
}

bool is_empty()
{
	for (int i = 0; i < watch.count; i++)
		if (cca::getDeviceStats(static_cast<c10::DeviceIndex>(i)).reserved_bytes[0].current)
			return false;
	return true;
}

void forked()
{
	watch.on = false;
	stacks_abandon();
}

void start()
{
	if (!watch.attached) {
		pthread_atfork(nullptr, nullptr, forked);
		cca::attachAllocatorTraceTracker(track);
		watch.attached = true;
	}
	for (Device &device : watch.devices)
		device = {};
	bool empty = is_empty();
	for (Device &device : watch.devices)
		device.on = empty;
	uint64_t time_ns = now_ns();
	watch.on.store(true, std::memory_order_release);
	if (!empty)
		record_state(time_ns);
	for (Device &device : watch.devices)
		device.on = true;
}

} // namespace

} // namespace neap_torch

#define EXPORT extern "C" __attribute__((visibility("default")))

/* What python/neap/_watch.py passes; all borrowed for the duration of the call but `own` and `torch`, which stay. */
struct neap_watch_options {
	const struct neap_observer *observer;
	const char *path;   /* of the stacks; NULL: none */
	const char *header; /* its first line */
	uint64_t devices;
};

/* From now on each event of PyTorch's allocator goes to the observer; the state before it first. 0, or 1 with the
 * reason in `message`. One thread at a time calls this and neap_watch_stop. */
EXPORT int neap_watch_start(const struct neap_watch_options *options, char *message, size_t room)
{
	using namespace neap_torch;
	try {
		std::string name = cca::name();
		if (name != "native") {
			snprintf(message, room, "the allocator is '%s', not PyTorch's own", name.c_str());
			return 1;
		}
		watch.on = false;
		watch.observer = options->observer;
		if (options->path && !stacks_open(options->path, options->header)) {
			snprintf(message, room, "%s: %s", options->path, strerror(errno));
			return 1;
		}
		watch.count = static_cast<int>(std::min<uint64_t>(options->devices, kDevices));
		start();
		return 0;
	} catch (const std::exception &error) {
		snprintf(message, room, "%s", error.what());
	}
	return 1;
}

/* No events any more when it returns, so that the recording may go; the tracker stays. */
EXPORT void neap_watch_stop()
{
	using namespace neap_torch;
	watch.on = false;
	for (int i = 0; i < watch.count; i++) /* a tracker that runs now does so inside its device's lock */
		(void)cca::getDeviceStats(static_cast<c10::DeviceIndex>(i));
	stacks_close();
}

/* See stacks_layout: NULL before the interpreter ends. */
EXPORT void neap_watch_layout(const neap_torch::FrameLayout *layout, const char *own, const char *torch)
{
	neap_torch::stacks_layout(layout, own, torch);
}

EXPORT size_t neap_watch_text(char *text, size_t room) { return neap_torch::stacks_text(text, room); }

EXPORT int neap_watch_full() { return neap_torch::stacks_full(); }

/* An optimizer's update is done: the event STEP, with what PyTorch's allocator holds on all devices. */
EXPORT void neap_watch_step(uint64_t number, uint64_t since)
{
	using namespace neap_torch;
	if (!watch.on)
		return;
	struct neap_event_step what = {};
	what.micro_batches = static_cast<uint32_t>(since);
	what.number = number;
	for (int i = 0; i < watch.count; i++) {
		Device &device = watch.devices[i];
		if (!device.reserved)
			continue;
		auto stats = cca::getDeviceStats(static_cast<c10::DeviceIndex>(i));
		auto allocated = static_cast<uint64_t>(stats.allocated_bytes[0].current);
		what.held.allocated_bytes += allocated;
		what.held.reserved_bytes += static_cast<uint64_t>(stats.reserved_bytes[0].current);
		what.peak_bytes += std::max(allocated, device.highest);
		device.highest = device.allocated;
	}
	what.lowest_bytes = what.held.allocated_bytes;
	struct neap_event event = neap_event_of_step(0, what);
	record(event, now_ns());
}
