#include "races.h"

#include "races_bytes.cpp"
#include "watch_stacks.cpp"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <set>
#include <unordered_map>

namespace neap_torch
{

namespace
{

bool is_over_device(const at::Tensor &tensor); /* values.cpp */

namespace cca = c10::cuda::CUDACachingAllocator;

/* Pinned memory that was used. */
struct Pinned {
	c10::weak_intrusive_ptr<c10::StorageImpl> storage;
	uint64_t bytes;
};

struct Races {
	std::atomic<const neap_sim_races *> calls{nullptr}; /* null: nothing is reported */
	std::atomic<bool> pinned{false};
	std::atomic<bool> late{false};                    /* values come late */
	std::atomic<uint32_t> backward{0};                /* the place that called the running backward pass */
	bool own_allocator = false;                       /* neap's: it waits before it takes pages away */
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the members below */
	int fd = -1;
	std::set<std::string> not_seen, names;
	std::unordered_map<const void *, Pinned> pinned_at; /* by its begin */
} races;

const neap_sim_races *calls() { return races.calls.load(std::memory_order_acquire); }

uint32_t place()
{
	static thread_local Path path;
	uint32_t number = stacks_python() ? stacks_number(path, true) : 0; /* cells and notebooks come and go */

	return number ? number : races.backward.load(std::memory_order_relaxed);
}

/* -- pinned memory ------------------------------------------------------------------------------------------------ */

/* PyTorch gives pinned memory out again only after its events have said that the work on it is done. So once another
 * storage of its allocator holds these bytes, their earlier uses are forgotten. A storage without an allocator (NumPy's
 * view, DLPack) is over memory that something else holds. */
enum class Seen {
	New,      /* the allocator has just given it out */
	ByDevice, /* a device uses it */
	ByHost,   /* the host uses it: it matters only if a device has used this place before */
};

void renew_pinned(const neap_sim_races *to, const at::Tensor &tensor, Seen seen)
{
	const c10::Storage &storage = tensor.storage();
	const void *begin = storage.data();
	uint64_t bytes = storage.nbytes(), old = 0;
	c10::intrusive_ptr<c10::StorageImpl> held; /* may be the last one, and is then freed without the lock */

	if (!storage.allocator())
		return;
	pthread_mutex_lock(&races.lock);
	auto found = races.pinned_at.find(begin);
	bool is_new = found == races.pinned_at.end() && seen != Seen::ByHost;
	if (found != races.pinned_at.end()) {
		held = found->second.storage.lock();
		is_new = !held || held->data() != begin ||
			 (seen == Seen::New && held.get() != storage.unsafeGetStorageImpl());
		old = is_new ? found->second.bytes : 0;
	}
	if (is_new)
		races.pinned_at.insert_or_assign(begin, Pinned{storage.getWeakStorageImpl(), bytes});
	pthread_mutex_unlock(&races.lock);
	if (old || (is_new && seen == Seen::New))
		to->forget((uint64_t)(uintptr_t)begin, std::max(old, bytes));
}

/* -- what was found ------------------------------------------------------------------------------------------------ */

const char *const kKinds[] = {"data", "lifetime", "freed", "host", "unmapped"};

std::string quoted(const char *text)
{
	std::string to = "\"";

	for (const char *c = text ? text : ""; *c; c++)
		if (*c == '"' || *c == '\\' || (unsigned char)*c < 0x20)
			to += '?';
		else
			to += *c;
	return to + "\"";
}

std::string side_text(const neap_sim_race_side &side)
{
	std::string use = side.use & NEAP_SIM_UNKNOWN ? "uses" : side.use & NEAP_SIM_WRITES ? "writes" : "reads";
	std::string stream = side.stream == UINT32_MAX ? "null" : std::to_string(side.stream);

	return "{\"name\":" + quoted(side.name) + ",\"place\":" + std::to_string(side.stack) + ",\"use\":\"" + use +
	       "\",\"stream\":" + stream + ",\"device\":" + std::to_string(side.device) + "}";
}

/* The first line: the test that the process works for, if any (_races.py), and whether a line was lost. */
std::string head()
{
	const char *of = getenv("NEAP_STREAMS_OF");

	return "{\"lost\":0,\"of\":" + quoted(of) + "}\n";
}

constexpr off_t kLost = 8; /* the place of that 0 */

/* Tells the reader that lines are missing: says so in the first line, or leaves half of that line. The file stays,
 * since other processes may have complete ones. */
void lose()
{
	if (pwrite(races.fd, "1", 1, kLost) != 1)
		(void)!ftruncate(races.fd, kLost);
}

/* A whole line, or none. The lock is held. */
void write_line(const std::string &line)
{
	off_t end = races.fd >= 0 ? lseek(races.fd, 0, SEEK_END) : -1;

	if (races.fd < 0 || write(races.fd, line.data(), line.size()) == (ssize_t)line.size())
		return;
	if (end >= 0)
		(void)!ftruncate(races.fd, end); /* if that fails, half a line stays, and the reader sees that too */
	lose();
}

void limited(const char *what)
{
	pthread_mutex_lock(&races.lock);
	write_line("{\"limit\":" + quoted(what) + "}\n");
	pthread_mutex_unlock(&races.lock);
}

void found(const neap_sim_race *race)
{
	const neap_sim_race_block &block = race->block;
	std::string line = std::string("{\"kind\":\"") + kKinds[race->kind] +
			   "\",\"first\":" + side_text(race->first) + ",\"second\":" + side_text(race->second) +
			   ",\"bytes\":" + std::to_string(race->bytes) +
			   ",\"address\":" + std::to_string(race->address);

	if (block.bytes)
		line += ",\"block\":{\"address\":" + std::to_string(block.address) +
			",\"bytes\":" + std::to_string(block.bytes) +
			",\"allocated\":" + std::to_string(block.allocated) +
			",\"freed\":" + std::to_string(block.freed) + ",\"stream\":" + std::to_string(block.stream) +
			",\"device\":" + std::to_string(block.device) + "}";
	pthread_mutex_lock(&races.lock);
	write_line(line + "}\n");
	pthread_mutex_unlock(&races.lock);
}

/* -- the allocator ----------------------------------------------------------------------------------------------------- */

/* Whether the block is from a pool of its own, as graphs have them. PyTorch 2.4 does not say. */
template <typename Entry> auto is_of_graph(const Entry &entry, int) -> decltype((void)entry.mempool_, true)
{
	return entry.mempool_.first || entry.mempool_.second;
}

template <typename Entry> bool is_of_graph(const Entry &, long) { return false; }

/* Runs inside the allocator's lock: it throws nothing, and does not take Python's lock. */
void track(const cca::TraceEntry &entry)
{
	const neap_sim_races *to = calls();
	uint64_t address = (uint64_t)entry.addr_, bytes = (uint64_t)entry.size_;

	if (!to)
		return;
	switch (entry.action_) {
	case cca::TraceEntry::ALLOC:
		to->allocated(address, bytes, (void *)entry.stream_, (uint32_t)entry.device_, place(),
			      is_of_graph(entry, 0));
		break;
	case cca::TraceEntry::FREE_REQUESTED:
		to->freed(address, place());
		break;
	case cca::TraceEntry::FREE_COMPLETED:
		to->reusable(address);
		break;
	case cca::TraceEntry::SEGMENT_FREE: /* cudaFree waits for all work on the device */
		to->unmapped(address, bytes, place(), 1);
		break;
	case cca::TraceEntry::SEGMENT_UNMAP:
		to->unmapped(address, bytes, place(), races.own_allocator);
		break;
	default:
		break;
	}
}

/* Runs in the child of a fork: the files are the parent's, and the devices do not work in the child. */
void forked()
{
	races.calls = nullptr;
	races.late = false;
	pthread_mutex_init(&races.lock, nullptr); /* its owner may exist only in the parent */
	if (races.fd >= 0)
		close(races.fd);
	races.fd = -1;
	stacks_abandon();
}

/* Throws if the allocator is neither PyTorch's own nor neap's. The tracker cannot be detached: without `calls` it
 * returns at once. */
void attach()
{
	static bool attached = false;

	if (attached)
		return;
	cca::attachAllocatorTraceTracker(track);
	pthread_atfork(nullptr, nullptr, forked);
	attached = true;
}

/* On failure it leaves no empty file of races behind: a reader would believe that the process was watched. A process
 * that restarted in place continues its file. */
bool open_files(const neap_sim_races *calls, const char *places, const char *header, const char *found_path)
{
	if (!stacks_open(places, header))
		return false;
	races.fd = open(found_path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	std::string first = head();
	bool begun = races.fd >= 0 && lseek(races.fd, 0, SEEK_END) > 0;
	if (races.fd >= 0 && (begun || write(races.fd, first.data(), first.size()) == (ssize_t)first.size()) &&
	    calls->start(found, limited))
		return true;
	if (begun)
		lose();
	else if (races.fd >= 0)
		unlink(found_path);
	if (races.fd >= 0)
		close(races.fd);
	races.fd = -1;
	stacks_close();
	return false;
}

} // namespace

void RacesTouches::clear()
{
	touches.clear();
	devices.clear();
}

const char *races_name(const std::string &name)
{
	pthread_mutex_lock(&races.lock);
	const char *kept = races.names.insert(name).first->c_str();
	pthread_mutex_unlock(&races.lock);
	return kept;
}

bool races_on() { return calls() != nullptr; }

bool races_pinned() { return races.pinned.load(std::memory_order_relaxed); }

void races_add(RacesTouches *touches, const at::Tensor &tensor, uint32_t use)
{
	const neap_sim_races *to = calls();
	bool over_device;

	if (!to || !tensor.defined() || !tensor.has_storage() || tensor.layout() != c10::kStrided || !tensor.numel())
		return;
	over_device = tensor.is_cpu() && is_over_device(tensor) && !host_is_lent((uintptr_t)tensor.const_data_ptr());
	if (tensor.is_cpu() && !over_device) {
		if (!to->is_pinned((uint64_t)(uintptr_t)tensor.const_data_ptr()))
			return;
		races.pinned.store(true, std::memory_order_relaxed);
		renew_pinned(to, tensor, Seen::ByDevice);
	} else if (!tensor.is_cuda() && !over_device) {
		return;
	}
	add_bytes(touches, tensor, use, tensor.is_cuda() ? tensor.get_device() : kRacesHost);
}

/* The device for a touch that has none of its own: the first device of another touch, else the current one. */
static int device_for(const RacesTouches &touches)
{
	for (int device : touches.devices)
		if (device != kRacesHost)
			return device;
	return c10::cuda::current_device();
}

void races_work(const char *name, const RacesTouches &all)
{
	const neap_sim_races *to = calls();
	std::vector<int> done;

	if (!to || all.touches.empty())
		return;
	int own = device_for(all);
	uint32_t where = place();

	for (int first : all.devices) {
		int device = first == kRacesHost ? own : first;
		std::vector<neap_sim_touch> touches;

		if (std::find(done.begin(), done.end(), device) != done.end())
			continue;
		done.push_back(device);
		for (size_t i = 0; i < all.touches.size(); i++)
			if ((all.devices[i] == kRacesHost ? own : all.devices[i]) == device)
				touches.push_back(all.touches[i]);
		neap_sim_uses uses = {name, where, touches.data(), touches.size()};
		c10::cuda::CUDAGuard guard((c10::DeviceIndex)device);
		to->work(c10::cuda::getCurrentCUDAStream((c10::DeviceIndex)device).stream(), &uses);
	}
}

void races_host(const char *name, const at::Tensor &tensor, uint32_t use)
{
	const neap_sim_races *to = calls();
	RacesTouches touches;

	if (!to || !tensor.defined() || !tensor.is_cpu() || !tensor.has_storage() ||
	    tensor.layout() != c10::kStrided || !tensor.numel() || is_over_device(tensor))
		return;
	renew_pinned(to, tensor, Seen::ByHost);
	add_bytes(&touches, tensor, use, kRacesHost);
	neap_sim_uses uses = {name, place(), touches.touches.data(), touches.touches.size()};
	to->host(&uses);
}

bool races_are_late() { return races.late.load(std::memory_order_relaxed); }

bool races_is_pinned(const at::Tensor &tensor)
{
	const neap_sim_races *to = calls();

	return to && to->is_pinned((uint64_t)(uintptr_t)tensor.const_data_ptr());
}

void races_new_pinned(const at::Tensor &tensor)
{
	const neap_sim_races *to = calls();

	if (!to || !tensor.is_cpu() || !tensor.has_storage() || tensor.key_set().has(c10::DispatchKey::Python))
		return;
	if (to->is_pinned((uint64_t)(uintptr_t)tensor.storage().data()))
		renew_pinned(to, tensor, Seen::New);
}

void races_later(int device, void (*function)(void *), void *argument)
{
	c10::cuda::CUDAGuard guard((c10::DeviceIndex)device);

	calls()->later(c10::cuda::getCurrentCUDAStream((c10::DeviceIndex)device).stream(), function, argument);
}

void races_settle(const std::vector<int> &devices)
{
	const neap_sim_races *to = calls();

	for (int device : devices) {
		c10::cuda::CUDAGuard guard((c10::DeviceIndex)device);

		if (to)
			to->settle(c10::cuda::getCurrentCUDAStream((c10::DeviceIndex)device).stream());
	}
}

void races_fail()
{
	if (const neap_sim_races *to = calls())
		to->fail();
}

void races_not_seen(const char *name)
{
	pthread_mutex_lock(&races.lock);
	if (races.not_seen.insert(name).second)
		write_line("{\"not_seen\":" + quoted(name) + "}\n");
	pthread_mutex_unlock(&races.lock);
}

} // namespace neap_torch

#define NEAP_EXPORT extern "C" __attribute__((visibility("default")))

/* For the stand-ins: the place in the program that asks for this thread's work. */
NEAP_EXPORT uint32_t neap_races_place(void) { return neap_torch::place(); }

/* A backward pass begins at this place: its threads count as working there. */
NEAP_EXPORT void neap_races_backward(void)
{
	using namespace neap_torch;
	if (races_on())
		races.backward = place();
}

/* As _watch.py's neap_watch_layout and neap_watch_text. */
NEAP_EXPORT void neap_races_layout(const neap_torch::FrameLayout *layout, const char *own, const char *torch)
{
	neap_torch::stacks_layout(layout, own, torch);
}

NEAP_EXPORT size_t neap_races_text(char *text, size_t capacity) { return neap_torch::stacks_text(text, capacity); }

/* After neap_values_start. False: the allocator does not report its blocks, a file cannot be written, or the
 * simulator is out of memory. */
NEAP_EXPORT bool neap_races_start(const neap_sim_races *calls, const char *places, const char *header,
				  const char *found_path, bool own_allocator)
{
	using namespace neap_torch;
	try {
		if (calls->version != 3)
			return false;
		attach();
		if (!open_files(calls, places, header, found_path))
			return false;
		races.own_allocator = own_allocator;
		races.calls.store(calls, std::memory_order_release);
		host_watch();
		return true;
	} catch (...) { /* the caller is Python, by ctypes */
		return false;
	}
}

/* The program begins (`own`), or has ended, a question whether an event has finished. */
NEAP_EXPORT void neap_races_asks(bool own)
{
	if (const neap_sim_races *to = neap_torch::calls())
		to->asks(own);
}

/* The program asked whether this stream had finished, and the answer was yes. `device`: the stream's, since default
 * streams of all devices have one name. */
NEAP_EXPORT void neap_races_saw_stream(uint64_t stream, int device)
{
	const neap_sim_races *to = neap_torch::calls();

	try {
		c10::cuda::CUDAGuard guard((c10::DeviceIndex)device);
		if (to)
			to->saw_stream((void *)(uintptr_t)stream);
	} catch (...) { /* the caller is Python, by ctypes */
	}
}

/* Another test begins: races that were reported before may be reported again. */
NEAP_EXPORT void neap_races_again(void)
{
	if (const neap_sim_races *to = neap_torch::calls())
		to->again();
}

/* After neap_races_start: values come late (values_late.cpp). */
NEAP_EXPORT bool neap_races_delay(uint64_t seed)
{
	const neap_sim_races *to = neap_torch::calls();

	neap_torch::races.late = to && to->delay(seed);
	return neap_torch::races.late;
}
