/* torch/watch.cpp: records what PyTorch's own allocator does, as events of this process's recording. One object,
 * compiled against the installed PyTorch by python/neap/_watch.py; it replaces nothing of PyTorch's.
 *
 *   PyTorch's allocator --trace tracker, inside its lock--> track --> the agent's observer --> RUN/record.PID
 *                                                             \--> stacks_number (watch_stacks.h) --> RUN/stacks.PID
 *
 * The tracker takes no lock of Python's, allocates nothing and never throws. PyTorch cannot detach it: where nothing
 * is recorded (before neap_watch_start, after neap_watch_stop, in the child of a fork) it returns at once.
 */
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
constexpr size_t kLine = 64;               /* bytes of a line of the processor's cache */
constexpr uint64_t kRounding = 512;        /* of PyTorch's blocks */
constexpr uint64_t kStackBytes = 1u << 20; /* requests of so many bytes have a stack each */
constexpr uint32_t kStackEvery = 64;       /* of smaller requests, one in so many has one */

constexpr uint32_t kVerifyEvery = 64;  /* stacks, one of so many */
constexpr uint64_t kClockNs = 20000;   /* a time is computed from a reading of the clock that is so old */
constexpr uint64_t kRatioNs = 1000000; /* from this age on the rate of PyTorch's counter is exact enough */

struct Block {
	uint64_t address, bytes, stream; /* as requested; the stream's number */
};

/* Times by the counter that PyTorch reads for each entry anyway, which spares most readings of the clock. */
struct Times {
	uint64_t count, ns;             /* the newest reading */
	uint64_t most;                  /* counts after it that are computed; 0: the rate is not known yet */
	uint64_t rate;                  /* nanoseconds a count, times 2^32 */
	uint64_t last_ns;               /* given out: no time is before it */
	uint64_t first_count, first_ns; /* the first reading; 0: none yet */
};

/* The most allocated since the last step. The tracker writes it, a step's end reads it without the device's lock: so
 * the end only says which step begins, and the step's first allocation begins with its own level. */
struct Highest {
	std::atomic<uint64_t> step{0}, bytes{0}; /* `bytes`: in the step with this number */
};

/* Guarded by the device's lock, inside which each tracker runs. The members that each entry needs lie in the first
 * two cache lines: between two entries the program's own data evict such lines. */
struct alignas(kLine) Device {
	bool on; /* its events are recorded; until then they are part of the state that is recorded first */
	bool freeing;
	uint32_t small, stacks; /* requests, and stacks that were taken */
	uint32_t streams;
	Block freed; /* freeing: it was requested at freed_ns, which is not recorded yet */
	uint64_t freed_ns;
	uint64_t allocated, reserved;

	Times times;
	uint32_t failed; /* the stack of the newest request that failed */
	Path path;
	uintptr_t stream[kStreams]; /* by number, less 1; the default stream is none */
};

struct alignas(kLine) Watch {
	std::atomic<bool> on{false};
	bool attached = false;         /* the tracker */
	int count = 0;                 /* of devices */
	std::atomic<uint64_t> step{1}; /* under way */
	void (*event)(void *context, const struct neap_event *event);
	void *context; /* the observer's */
	Highest highest[kDevices];
	Device devices[kDevices];
} watch;

/* Of each device when its last step ended, by PyTorch's own count. Of the thread that marks steps. */
struct Ended {
	uint64_t allocated, most; /* `most`: the highest peak that PyTorch had shown */
	uint64_t unsplit;         /* of `most`: bytes of blocks that are larger than the rounded request */
} ended[kDevices];

uint64_t now_ns()
{
	struct timespec now = {};
	clock_gettime(CLOCK_MONOTONIC, &now);
	return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

__attribute__((noinline)) uint64_t read_clock(Times &times, uint64_t count)
{
	uint64_t ns = now_ns();
	if (!times.first_ns) {
		times.first_count = count;
		times.first_ns = ns;
	} else if (ns - times.first_ns >= kRatioNs && count > times.first_count) {
		double rate =
			static_cast<double>(ns - times.first_ns) / static_cast<double>(count - times.first_count);
		times.rate = static_cast<uint64_t>(rate * 4294967296.0);
		times.most = static_cast<uint64_t>(kClockNs / rate);
	}
	times.count = count;
	times.ns = ns;
	return ns;
}

uint64_t time_of(Times &times, uint64_t count)
{
	uint64_t after = count - times.count;
	uint64_t ns = after < times.most ? times.ns + (after * times.rate >> 32) : read_clock(times, count);
	times.last_ns = std::max(times.last_ns, ns);
	return times.last_ns;
}

uint64_t rounded(uint64_t bytes) { return (bytes + kRounding - 1) / kRounding * kRounding; }

/* All streams beyond kStreams share the last number. */
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

/* Writes word by word, in the order of struct neap_event_allocation: the processor would wait if it copied a struct
 * whose stores are still on the way to memory. */
void record(const Device &device, neap_event_kind kind, const Block &block, uint32_t tag, uint64_t time_ns)
{
	struct neap_event event;
	event.time_ns = time_ns;
	event.sequence = 0;
	event.kind = static_cast<uint16_t>(kind);
	event.device = static_cast<uint16_t>(&device - watch.devices);
	event.payload[0] = device.allocated;
	event.payload[1] = device.reserved;
	event.payload[2] = tag | block.stream << 32;
	event.payload[3] = block.address;
	event.payload[4] = block.bytes;
	event.payload[5] = rounded(block.bytes);
	watch.event(watch.context, &event);
}

/* A private pool's number: PyTorch gives it two, one of which is 0. */
uint64_t pool_number(const c10::cuda::MempoolId_t &pool) { return pool.first << 32 | (pool.second & UINT32_MAX); }

/* Older versions do not tell an entry's pool. */
template <typename E> uint64_t pool_of(const E &entry)
{
	if constexpr (requires { entry.mempool_; })
		return pool_number(entry.mempool_);
	else
		return 0;
}

void record_segment(Device &device, neap_event_kind kind, const Block &segment, uint64_t pool, uint64_t time_ns)
{
	bool more = kind == NEAP_EVENT_SEGMENT_ALLOC || kind == NEAP_EVENT_SEGMENT_MAP;
	device.reserved += more ? segment.bytes : 0 - segment.bytes;
	struct neap_event_segment what = {};
	what.held = {device.allocated, device.reserved};
	what.stream = segment.stream;
	what.address = segment.address;
	what.bytes = segment.bytes;
	what.pool = pool;
	struct neap_event event = neap_event_of_segment(kind, static_cast<uint16_t>(&device - watch.devices), what);
	event.time_ns = time_ns;
	watch.event(watch.context, &event);
}

void raise_highest(const Device &device)
{
	Highest &highest = watch.highest[&device - watch.devices];
	uint64_t step = watch.step.load(std::memory_order_relaxed);
	bool begins = highest.step.load(std::memory_order_relaxed) != step;
	if (begins || highest.bytes.load(std::memory_order_relaxed) < device.allocated)
		highest.bytes.store(device.allocated, std::memory_order_relaxed);
	if (begins)
		highest.step.store(step, std::memory_order_release);
}

void record_alloc(Device &device, const Block &block, uint32_t stack, uint64_t time_ns)
{
	device.allocated += rounded(block.bytes);
	raise_highest(device);
	record(device, NEAP_EVENT_ALLOC, block, stack ? NEAP_EVENT_FIRST_STACK + stack - 1 : 0, time_ns);
}

uint32_t stack_of(Device &device) { return stacks_number(device.path, ++device.stacks % kVerifyEvery == 0); }

bool wants_stack(Device &device, uint64_t bytes) { return bytes >= kStackBytes || ++device.small % kStackEvery == 0; }

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

/* The two events of a free mostly come one after the other: then they are joined into one event, which takes half the
 * time and space. So the first one waits for the next entry. */
bool end_free(Device &device, const Entry &entry)
{
	bool completed = entry.action_ == Entry::FREE_COMPLETED && entry.addr_ == device.freed.address;
	device.freeing = false;
	record(device, completed ? NEAP_EVENT_FREE : NEAP_EVENT_FREE_REQUESTED, device.freed, 0, device.freed_ns);
	return completed;
}

void track_on(Device &device, const Entry &entry)
{
	if (device.freeing && end_free(device, entry))
		return;
	uint64_t time_ns = time_of(device.times, static_cast<uint64_t>(entry.time_.approx_t_));
	/* The type of its address differs between versions. */
	Block block = {entry.addr_, entry.size_, number_of(device, (uintptr_t)entry.stream_)};
	switch (entry.action_) {
	case Entry::ALLOC:
		record_alloc(device, block, wants_stack(device, block.bytes) ? stack_of(device) : 0, time_ns);
		break;
	case Entry::FREE_REQUESTED:
		device.allocated -= rounded(block.bytes);
		device.freed = block;
		device.freed_ns = time_ns;
		device.freeing = true;
		break;
	case Entry::FREE_COMPLETED:
		record(device, NEAP_EVENT_FREE_COMPLETED, block, 0, time_ns);
		break;
	case Entry::SEGMENT_ALLOC:
	case Entry::SEGMENT_FREE:
	case Entry::SEGMENT_MAP:
	case Entry::SEGMENT_UNMAP:
		record_segment(device, kind_of(entry.action_), block, pool_of(entry), time_ns);
		break;
	case Entry::OOM:
		device.failed = stack_of(device);
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
		track_on(device, entry);
	else if (entry.action_ == Entry::SNAPSHOT)
		device.on = true;
}

/* Records the state before the start, as events with the time before the snapshot. */
void record_state(uint64_t time_ns)
{
#ifdef NEAP_SNAPSHOT_TRACES
	cca::SnapshotInfo snapshot = cca::snapshot({0, 0}, false);
#else
	cca::SnapshotInfo snapshot = cca::snapshot();
#endif
	for (const auto &segment : snapshot.segments) {
		if (segment.device < 0 || segment.device >= (int)kDevices)
			continue;
		Device &device = watch.devices[segment.device];
		uint64_t stream = number_of(device, (uintptr_t)segment.stream);
		record_segment(device, segment.is_expandable ? NEAP_EVENT_SEGMENT_MAP : NEAP_EVENT_SEGMENT_ALLOC,
			       {segment.address, segment.total_size, stream},
			       pool_number(segment.owner_private_pool_id), time_ns);
		uint64_t address = segment.address;
		for (const auto &held : segment.blocks) {
			Block block = {address, held.requested_size, stream};
			if (held.allocated || held.active)
				record_alloc(device, block, 0, time_ns);
			if (held.active && !held.allocated) {
				device.allocated -= rounded(block.bytes);
				record(device, NEAP_EVENT_FREE_REQUESTED, block, 0, time_ns);
			}
			address += held.size;
		}
	}
}

Ended read_ended(int i)
{
	auto allocated = cca::getDeviceStats(static_cast<c10::DeviceIndex>(i)).allocated_bytes[0];
	return {static_cast<uint64_t>(allocated.current), static_cast<uint64_t>(allocated.peak), 0};
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
	watch.step++; /* what an earlier recording saw belongs to no step of this one */
	for (int i = 0; i < watch.count; i++)
		ended[i] = read_ended(i);
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

/* The device's part of a step that ends: the most that was allocated in it. If PyTorch's own peak rose, that peak
 * counts. Else the tracker's figure counts, which lacks the bytes beyond the rounded requests: as many as at
 * PyTorch's peak are added. */
neap_event_step end_step(int i, uint64_t step)
{
	auto stats = cca::getDeviceStats(static_cast<c10::DeviceIndex>(i));
	auto allocated = static_cast<uint64_t>(stats.allocated_bytes[0].current);
	auto peak = static_cast<uint64_t>(stats.allocated_bytes[0].peak);
	bool inside = watch.highest[i].step.load(std::memory_order_acquire) == step;
	uint64_t highest = inside ? watch.highest[i].bytes.load(std::memory_order_relaxed) : 0;
	Ended &before = ended[i];

	if (peak > before.most) {
		before.most = peak;
		before.unsplit = inside ? peak - std::min(peak, highest) : 0;
		highest = peak;
	} else if (inside) {
		highest = std::min(before.most, highest + before.unsplit);
	}
	neap_event_step what = {};
	what.held = {allocated, static_cast<uint64_t>(stats.reserved_bytes[0].current)};
	what.peak_bytes = std::max({allocated, highest, before.allocated});
	what.lowest_bytes = allocated;
	before.allocated = allocated;
	return what;
}

} // namespace

} // namespace neap_torch

#define EXPORT extern "C" __attribute__((visibility("default")))

/* What python/neap/_watch.py passes. The texts are borrowed for the call; the observer has to stay. */
struct neap_watch_options {
	const struct neap_observer *observer;
	const char *path;   /* of the stacks; NULL: none */
	const char *header; /* its first line */
	uint64_t devices;
};

/* From now on each event of PyTorch's allocator goes to the observer; the earlier state first. 0, or 1 with the
 * reason in `message`. One thread at a time calls this and neap_watch_stop. */
EXPORT int neap_watch_start(const struct neap_watch_options *options, char *message, size_t capacity)
{
	using namespace neap_torch;
	try {
		std::string name = cca::name();
		if (!options->observer) {
			snprintf(message, capacity, "the process is not attached");
			return 1;
		}
		if (name != "native") {
			snprintf(message, capacity, "the allocator is '%s', not PyTorch's own", name.c_str());
			return 1;
		}
		watch.on = false;
		watch.event = options->observer->event;
		watch.context = options->observer->context;
		if (options->path && !stacks_open(options->path, options->header)) {
			snprintf(message, capacity, "%s: %s", options->path, strerror(errno));
			return 1;
		}
		watch.count = static_cast<int>(std::min<uint64_t>(options->devices, kDevices));
		start();
		return 0;
	} catch (const std::exception &error) {
		snprintf(message, capacity, "%s", error.what());
	}
	return 1;
}

/* No events come after it returns, so the recording may be freed; the tracker stays. */
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

EXPORT size_t neap_watch_text(char *text, size_t capacity) { return neap_torch::stacks_text(text, capacity); }

EXPORT int neap_watch_full() { return neap_torch::stacks_full(); }

/* The tag of the device's newest request that failed, which names the stack that asked; 0: unknown. Call it in the
 * thread that asked, while PyTorch's observers of failures run. */
EXPORT uint32_t neap_watch_failed(int device)
{
	using namespace neap_torch;
	uint32_t stack = watch.on && device >= 0 && device < (int)kDevices ? watch.devices[device].failed : 0;
	return stack ? NEAP_EVENT_FIRST_STACK + stack - 1 : 0;
}

/* Steps are done: the event STEP for each device that PyTorch has, or had, memory on. `number`: the last step's;
 * `since`: how many steps the events stand for; `name`: the recording's, 0: none. One thread at a time. */
EXPORT void neap_watch_step(uint64_t number, uint64_t since, uint32_t name)
{
	using namespace neap_torch;
	if (!watch.on)
		return;
	uint64_t step = watch.step.fetch_add(1), time_ns = now_ns();
	for (int i = 0; i < watch.count; i++) {
		if (!watch.devices[i].reserved && !ended[i].most)
			continue;
		neap_event_step what = end_step(i, step);
		what.name = name;
		what.micro_batches = static_cast<uint32_t>(since);
		what.number = number;
		struct neap_event event = neap_event_of_step(static_cast<uint16_t>(i), what);
		event.time_ns = time_ns;
		watch.event(watch.context, &event);
	}
}
