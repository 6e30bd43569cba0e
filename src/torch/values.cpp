/* torch/values.cpp: on the simulator, PyTorch's CPU kernels compute the values that its CUDA kernels would have
 * computed. One object, compiled against the installed PyTorch by python/neap/_values.py.
 *
 *   autograd, autocast, modes
 *        |
 *     compute      the fallback of a dispatch key that PyTorch gives to nobody, below all of those and above the devices
 *        |   1. the CUDA function, blind (neap/sim.h): it allocates what it would on a GPU, and launches what does nothing
 *        |   2. the CPU function, on tensors over the same bytes: a device's address is a host's
 *        v   3. its results, copied into those of 1; where a size depends on values, those of 1 are resized first
 *   CUDA, CPU
 *
 * So tensors that share storage share values, and the caching allocator behaves as it does without values. An
 * operation that PyTorch composes of others passes through: those others come here one by one. Operations that exist
 * for CUDA alone have kernels in Python, at the same key (python/neap/_twins.py); other keys do not see this key at
 * all.
 *
 * The key is included thread by thread; autograd hands it on to its own.
 */
#include "values_known.cpp"

#include "values_host.cpp"

#include "races.cpp"

#include "neap/sim.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/NestedTensorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_nested_view_from_buffer.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_validate_sparse_compressed_tensor_args.h>
#include <ATen/ops/_validate_sparse_coo_tensor_args.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "values_plan.cpp"

#include "values_bytes.cpp"

#include "values_worth.cpp"

#include "values_calls.cpp"

#include "values_compute.cpp"

#include "values_graphs.cpp"

#include "values_late.cpp"

#include "values_odd.cpp"

#include "values_races.cpp"

namespace neap_torch
{

namespace
{

/* After a collective that is not NCCL's: the received values are as good as those that this process gave; values that
 * other processes sent are likely at least. */
void mark_brought(const std::vector<IValue> &arguments)
{
	std::vector<at::Tensor> into, from;

	for (size_t i = 0; i < arguments.size(); i++)
		gather_deep(arguments[i], i ? &from : &into);
	State state = worst_of(from);

	for (const at::Tensor &one : into)
		if (!from.empty() || known_state(one) == State::Missing)
			known_mark(one, from.empty() ? State::Likely : state);
}

void call_bare(const OperatorHandle &op, DispatchKeySet keys, Stack *stack, size_t begin)
{
	c10::impl::ExcludeDispatchKeyGuard guard(kKey);
	const std::string &name = op.schema().name();
	bool marks = known_matters() && name.rfind("aten::", 0) != 0 && name != "c10d::send";
	uint64_t before = brought;
	std::vector<IValue> arguments;

	if (marks)
		arguments.assign(stack->begin() + (ptrdiff_t)begin, stack->end());
	op.redispatchBoxed(below(keys), stack);
	if (marks && brought == before)
		mark_brought(arguments);
}

void compute_sparse(const OperatorHandle &op, DispatchKeySet keys, Stack *stack)
{
	size_t begin = stack->size() - op.schema().arguments().size();
	DispatchKeySet rest = keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, kOddKey);
	bool odd = false;

	for (size_t i = begin; i < stack->size(); i++)
		odd = odd || is_odd_value((*stack)[i]);
	if (odd && simulator.load() && c10::impl::tls_is_dispatch_key_included(kKey) &&
	    !c10::impl::tls_is_dispatch_key_excluded(kKey) && races_on())
		with_races(op, stack, begin, true, [&] { compute_odd(op, plan_of(op), rest, stack, begin); });
	else if (odd && simulator.load() && c10::impl::tls_is_dispatch_key_included(kKey) &&
		 !c10::impl::tls_is_dispatch_key_excluded(kKey))
		compute_odd(op, plan_of(op), rest, stack, begin);
	else
		op.redispatchBoxed(rest, stack);
}

void compute_plain(const OperatorHandle &op, DispatchKeySet keys, Stack *stack, size_t begin, bool device, bool odd)
{
	if (!device && host_lends() && plan_of(op).writer && host_leaves_out(op, stack, begin))
		return;
	if (!device || !simulator.load()) {
		op.redispatchBoxed(below(keys), stack);
		return;
	}
	Plan &plan = plan_of(op);

	if (odd && plan.kind != Kind::Bare) {
		compute_odd(op, plan, below(keys), stack, begin);
		return;
	}
	if (plan.kind == Kind::Through) {
		op.redispatchBoxed(below(keys), stack);
		return;
	}
	if (plan.kind == Kind::Bare) {
		call_bare(op, keys, stack, begin);
		return;
	}
	std::vector<IValue> arguments(stack->begin() + (ptrdiff_t)begin, stack->end());
	std::exception_ptr failure;
	uint64_t before = computations;

	if (plan.kind == Kind::Custom) {
		op.redispatchBoxed(below(keys), stack);
		if (computations == before)
			leave_unknown(op, plan, arguments, *stack, "a kernel of its own");
		return;
	}
	computations++;
	if (plan.masks)
		expand_masks(arguments, stack, begin);
	if (call_device(op, below(keys), stack, &failure)) {
		if (is_capturing())
			capture(op, plan, arguments, *stack);
		else if (worth(op.schema().name(), [&] { return both_of(op, plan, arguments, *stack); }) &&
			 !late_put(op, plan, arguments, *stack))
			compute_host(op, plan, device_of(arguments), arguments, stack);
		return;
	}
	late_settle(arguments);
	stack->resize(begin);
	compute_alone(op, plan, arguments, stack, failure);
}

void compute(const OperatorHandle &op, DispatchKeySet keys, Stack *stack)
{
	size_t begin = stack->size() - op.schema().arguments().size();
	bool device = false, odd = false;

	for (size_t i = begin; i < stack->size(); i++) {
		device = device || is_on_device((*stack)[i]);
		odd = odd || is_odd_value((*stack)[i]);
	}
	if (races_on())
		with_races(op, stack, begin, device, [&] { compute_plain(op, keys, stack, begin, device, odd); });
	else
		compute_plain(op, keys, stack, begin, device, odd);
}

Both both_from(at::TensorList read, at::TensorList written)
{
	Both both;

	for (const at::Tensor &one : read)
		gather(one, &both.read);
	for (const at::Tensor &one : written)
		gather(one, &both.written);
	return both;
}

/* For a twin: whether it computes the values of `written` from `read`. */
bool decide_twin(const std::string &name, at::TensorList read, at::TensorList written)
{
	if (races_on())
		races_of_twin(name, read, written);
	late_settle({IValue(read), IValue(written)});
	return worth(name, [&] { return both_from(read, written); });
}

/* Called before compiled code runs: computes the late values that the code reads. */
void settle_late(at::TensorList given) { late_settle({IValue(given)}); }

/* For compiled code, after it ran: as decide_twin, with a cost that Python knows. */
bool decide_cost(double cost_ns, at::TensorList read, at::TensorList written)
{
	bool is_short = known_is_short();

	late_settle({IValue(written)});
	if (!is_short && !known_matters() && !brings)
		return true;
	Both both = both_from(read, written);

	await_brought(both.read);
	return (!is_short && !known_matters()) || decide("", both, cost_ns);
}

/* The tensor could not be computed; `stays`: it keeps its earlier values. If a graph captures it, this holds at each
 * replay. */
void mark_unknown(const at::Tensor &tensor, bool stays)
{
	State state = stays ? State::Likely : State::Missing;

	if (is_capturing())
		add_captured_effect([same = host_value(tensor), state] { mark(same, state); });
	else
		mark(tensor, state);
}

bool is_on() { return simulator.load() != nullptr; }

at::Tensor host_tensor(const at::Tensor &tensor) { return host(tensor); }

void set_blind(bool on) { simulator.load(std::memory_order_relaxed)->blind(on); }

at::Tensor store_tensor(const at::Tensor &to, const at::Tensor &from)
{
	Below guard;

	return store(to, from);
}

/* The seed for a function's random numbers: CUDA's own function has just drawn as many on this device. */
int64_t take_seed(int64_t device)
{
	return (int64_t)(seed_for(nullptr, c10::Device(at::kCUDA, (c10::DeviceIndex)device)) >> 1);
}

int64_t take_refused() { return (int64_t)known_refused(); }

std::string take_unknown()
{
	std::lock_guard<std::mutex> guard(unknown_lock);
	std::string text;

	for (const std::string &name : unknown_names)
		text += name + "\n";
	return text;
}

} // namespace

} // namespace neap_torch

#include "values_launch.cpp"

#include "values_script.cpp"

TORCH_LIBRARY_IMPL(_, CustomRNGKeyId, library)
{
	library.fallback(torch::CppFunction::makeFromBoxedFunction<&neap_torch::compute>());
}

TORCH_LIBRARY(neap_values, library)
{
	library.def("host(Tensor self) -> Tensor", neap_torch::host_tensor);
	library.def("blind(bool on) -> ()", neap_torch::set_blind);
	library.def("store(Tensor to, Tensor source) -> Tensor", neap_torch::store_tensor);
	library.def("seed(int device) -> int", neap_torch::take_seed);
	library.def("decide(str name, Tensor[] read, Tensor[] written) -> bool", neap_torch::decide_twin);
	library.def("capture_begin() -> int", neap_torch::capture_begin);
	library.def("capture_end() -> ()", neap_torch::capture_end);
	library.def("capture_drop(int number) -> ()", neap_torch::capture_drop);
	library.def("capture_twin() -> bool", neap_torch::capture_twin);
	library.def("replay(int number, int start) -> int", neap_torch::replay);
	library.def("is_on() -> bool", neap_torch::is_on);
	library.def("decide_cost(float cost_ns, Tensor[] read, Tensor[] written) -> bool", neap_torch::decide_cost);
	library.def("settle(Tensor[] given) -> ()", neap_torch::settle_late);
	library.def("mark_unknown(Tensor self, bool stays) -> ()", neap_torch::mark_unknown);
	library.def("unknown() -> str", neap_torch::take_unknown);
	library.def("refused() -> int", neap_torch::take_refused);
	library.def("races_kernel(str name, Tensor[] given) -> ()", neap_torch::races_of_kernel);
	library.def("races_read(Tensor self) -> ()", neap_torch::races_host_read);
}

/* Registers `compute` for each operation that it computes. Call it once, before the key is included anywhere.
 * `twins`: the operations that have a kernel in Python, one a line. */
extern "C" __attribute__((visibility("default"))) void neap_values_register(const char *twins)
{
	static std::vector<c10::RegistrationHandleRAII> kept;

	neap_torch::script_watch();
	std::string lines = std::string("\n") + twins + "\n";

	/* Registers for all operations: an operation's default composition would otherwise take this key instead of
	 * the fallback, and run before another device's own function. */
	for (const auto &name : c10::Dispatcher::singleton().getAllOpNames()) {
		auto op = c10::Dispatcher::singleton().findSchema(name);

		if (op && lines.find("\n" + toString(name) + "\n") == std::string::npos)
			kept.push_back(c10::Dispatcher::singleton().registerImpl(
				name, neap_torch::kKey,
				c10::KernelFunction::makeFromBoxedFunction<&neap_torch::compute>(), std::nullopt,
				nullptr, "neap"));
		if (op && neap_torch::has_odd(*op) && !neap_torch::has(*op, neap_torch::kOddKey))
			kept.push_back(c10::Dispatcher::singleton().registerImpl(
				name, neap_torch::kOddKey,
				c10::KernelFunction::makeFromBoxedFunction<&neap_torch::compute_sparse>(),
				std::nullopt, nullptr, "neap"));
	}
}

/* Called when CUDA is initialised: values are computed from now on. `whole`: all of them, else those that are worth
 * it. Both use at most so many bytes of host memory. False: the process's libcudart is not neap's, or NEAP_SIM
 * forbids it. */
extern "C" __attribute__((visibility("default"))) bool neap_values_start(bool whole, uint64_t most_bytes)
{
	void *symbol = dlsym(RTLD_DEFAULT, "neap_sim_get_values");
	const neap_sim_values *(*get)(void) = nullptr;

	__builtin_memcpy(&get, &symbol, sizeof get);
	const neap_sim_values *found = get ? get() : nullptr;

	if (!found || found->version != 1 || !found->start())
		return false;
	neap_torch::known_start(!whole, most_bytes);
	neap_torch::simulator.store(found);
	return true;
}

/* From now on, when the process's own tensors and the values take more than so many bytes of host memory, large
 * tensors get lent memory (values_host.h). Call it once. */
extern "C" __attribute__((visibility("default"))) void neap_values_lend(uint64_t most_bytes)
{
	neap_torch::host_start(most_bytes);
}

/* The most bytes that were lent at one time. */
extern "C" __attribute__((visibility("default"))) uint64_t neap_values_lent(void) { return neap_torch::host_lent(); }

/* The state of a tensor's bytes. Does without the dispatcher, where the program's own modes would see a call. 0:
 * known, 1: likely, 2: missing. */
extern "C" __attribute__((visibility("default"))) int neap_values_state(uint64_t address, uint64_t bytes)
{
	if (neap_torch::brings)
		neap_torch::simulator.load()->open(address, bytes);
	return (int)neap_torch::known_state_of(address, bytes);
}

/* For neap_races_start. Call it after values have started. */
extern "C" __attribute__((visibility("default"))) const neap_sim_races *neap_values_races(void)
{
	const neap_sim_values *found = neap_torch::simulator.load();

	return found && found->races ? found->races() : nullptr;
}

extern "C" __attribute__((visibility("default"))) void neap_values_step(void) { neap_torch::known_step(); }

/* For NCCL, through libcudart: the state of the bytes that a call sends; missing: they are not worth moving. */
extern "C" __attribute__((visibility("default"))) int neap_values_take(uint64_t address, uint64_t bytes, int large,
								       int exact)
{
	neap_torch::brought++;
	neap_torch::brings = true;
	return (int)(large ? neap_torch::known_to_move(address, bytes, exact)
			   : neap_torch::known_state_of(address, bytes));
}

extern "C" __attribute__((visibility("default"))) void neap_values_brought(uint64_t address, uint64_t bytes,
									   int state)
{
	neap_torch::known_mark_range(address, bytes, (neap_torch::State)state);
}
