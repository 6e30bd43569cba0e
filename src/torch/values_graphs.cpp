/* torch/values_graphs.cpp: each replay of a graph computes the operations that the graph captured. A part of
 * values.cpp. */

namespace neap_torch
{

namespace
{

struct Captured {
	c10::optional<OperatorHandle> op; /* none: a twin's operation, which Python computes */
	Plan *plan;
	c10::Device device;
	std::vector<IValue> arguments; /* the host's side: it keeps no block of the device */
	Stack results;                 /* likewise */
	Both both;                     /* likewise */
	std::function<void()> compute; /* called in place of `op`, on tensors that it holds itself */
};

struct {
	std::mutex lock;
	std::atomic<int64_t> open{-1};
	int64_t next = 0; /* the number of the recording that takes captured operations; -1: none */
	std::unordered_map<int64_t, std::shared_ptr<std::vector<Captured>>> all;
} recordings;

bool is_capturing()
{
	return recordings.open >= 0 &&
	       c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

void add_captured(Captured one)
{
	std::lock_guard<std::mutex> guard(recordings.lock);
	auto &list = recordings.all[recordings.open];

	if (!list)
		list = std::make_shared<std::vector<Captured>>();
	list->push_back(std::move(one));
}

/* Adds a function that each replay calls, however little time there is. */
void add_captured_effect(std::function<void()> effect)
{
	add_captured(Captured{c10::nullopt, nullptr, c10::Device(at::kCUDA, 0), {}, {}, {}, std::move(effect)});
}

std::shared_ptr<std::vector<Captured>> captured_of(int64_t number)
{
	std::lock_guard<std::mutex> guard(recordings.lock);
	auto found = recordings.all.find(number);

	return found == recordings.all.end() ? nullptr : found->second;
}

void capture(const OperatorHandle &op, Plan &plan, const std::vector<IValue> &arguments, const Stack &results)
{
	Captured one{op, &plan, device_of(arguments), {}, {}, both_of(op, plan, arguments, results), {}};

	for (const IValue &value : arguments)
		one.arguments.push_back(host_value(value));
	for (const IValue &value : results)
		one.results.push_back(host_value(value));
	for (auto *list : {&one.both.read, &one.both.written})
		for (at::Tensor &tensor : *list)
			tensor = host(tensor);
	add_captured(std::move(one));
}

int64_t capture_begin()
{
	std::lock_guard<std::mutex> guard(recordings.lock);

	return recordings.open = recordings.next++;
}

void capture_end()
{
	std::lock_guard<std::mutex> guard(recordings.lock);

	recordings.open = -1;
}

void capture_drop(int64_t number)
{
	std::lock_guard<std::mutex> guard(recordings.lock);

	recordings.all.erase(number);
}

/* Captures a twin's operation, so that `replay` stops at it. Returns whether a graph is captured. */
bool capture_twin()
{
	if (!is_capturing())
		return false;
	add_captured(Captured{c10::nullopt, nullptr, c10::Device(at::kCUDA, 0), {}, {}, {}, {}});
	return true;
}

/* Computes the operations of a recording from `from` on, to its end or to a twin's. Returns the place after the
 * twin's operation; 0: the end. */
int64_t replay(int64_t number, int64_t from)
{
	auto found = captured_of(number);

	replayed = 0;
	if (!found)
		return 0;
	for (size_t i = (size_t)from; i < found->size(); i++) {
		Captured &one = (*found)[i];
		Stack results = one.results;

		replayed = i + 1;
		if (!one.op && !one.compute)
			return (int64_t)i + 1;
		if (one.compute) {
			if (worth("", [&] { return one.both; }))
				one.compute();
		} else if (worth(one.op->schema().name(), [&] { return one.both; }))
			compute_host(*one.op, *one.plan, one.device, one.arguments, &results);
		replayed = 0;
	}
	return 0;
}

} // namespace

} // namespace neap_torch
