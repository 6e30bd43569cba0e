/* torch/values_calls.cpp: calls the CPU's function of an operation, or says why it cannot. A part of values.cpp. */

namespace neap_torch
{

namespace
{

/* -- random numbers ------------------------------------------------------------------------------------------------- */

thread_local uint64_t replayed; /* the operation's place in the graph that is being replayed; 0: no replay */

/* The seed for one operation, from the generator that CUDA's function drew from just now: the same seed and the same
 * number of earlier draws give the same values. A GPU would give other values. */
uint64_t seed_for(const IValue *asked, c10::Device device)
{
	at::Generator generator =
		asked && asked->isGenerator() ? asked->toGenerator() : at::globalContext().defaultGenerator(device);
	std::lock_guard<std::mutex> guard(generator.mutex());

	return hashed(generator.current_seed() * 0x9e3779b97f4a7c15ull + generator.get_offset() + (replayed << 40));
}

/* While an object of it lives, CPU functions draw from `seed`, and the program's own sequence does not advance. */
class Seeded
{
      public:
	explicit Seeded(uint64_t seed) : generator_(at::detail::getDefaultCPUGenerator())
	{
		std::lock_guard<std::mutex> guard(generator_.mutex());

		kept_ = generator_.get_state();
		generator_.set_current_seed(seed);
	}
	~Seeded()
	{
		std::lock_guard<std::mutex> guard(generator_.mutex());

		generator_.set_state(kept_);
	}

      private:
	at::Generator generator_;
	at::Tensor kept_;
};

/* While an object of it lives, calls go below this key and all keys above it. */
class Below
{
      public:
	Below() : guard_(c10::autograd_dispatch_keyset_with_ADInplaceOrView | DispatchKeySet(kKey)) {}

      private:
	c10::impl::ExcludeDispatchKeyGuard guard_;
};

class Blind
{
      public:
	Blind() { calls_->blind(1); }
	~Blind()
	{
		if (on_)
			calls_->blind(0);
	}
	/* Whether a copy gave zeros in place of values. */
	bool end()
	{
		on_ = false;
		return calls_->blind(0) > 0;
	}

      private:
	const neap_sim_values *calls_ = simulator.load();
	bool on_ = true;
};

DispatchKeySet below(DispatchKeySet keys) { return keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, kKey); }

std::mutex unknown_lock;
std::vector<std::string> unknown_names;

void note_unknown(const std::string &name, Plan &plan, const char *why)
{
	if (plan.noted.exchange(true))
		return;
	std::lock_guard<std::mutex> guard(unknown_lock);

	unknown_names.push_back(name + "\t" + std::string(why).substr(0, std::string(why).find('\n')));
}

void note_unknown(const OperatorHandle &op, Plan &plan, const char *why)
{
	note_unknown(toString(op.operator_name()), plan, why);
}

void mark(const IValue &value, State state)
{
	std::vector<at::Tensor> tensors;

	gather(value, &tensors);
	for (const at::Tensor &one : tensors)
		known_mark(one, state);
}

/* Stores the host's result in the tensor that CUDA's function returned. Returns the tensor that takes its place. */
at::Tensor store(const at::Tensor &to, const at::Tensor &from)
{
	if (!to.defined() || !from.defined() || to.is_same(from))
		return to;
	if (is_odd(to) || is_odd(from)) {
		at::Tensor moved = from.to(to.device());

		mark(moved, reads_known ? State::Known : State::Likely);
		return moved;
	}
	if (to.sizes() != from.sizes())
		to.resize_(from.sizes());
	host(to).copy_(from);
	return to;
}

IValue store_value(const IValue &to, const IValue &from)
{
	c10::List<at::Tensor> stored;

	if (to.isTensor() && from.isTensor())
		return store(to.toTensor(), from.toTensor());
	if (!to.isTensorList() || !from.isTensorList())
		return to.isTensor() || to.isTensorList() ? to : from;
	auto into = to.toTensorVector(), computed = from.toTensorVector();

	for (size_t i = 0; i < into.size(); i++)
		stored.push_back(i < computed.size() ? store(into[i], computed[i]) : into[i]);
	return stored;
}

bool is_half(const at::Tensor &tensor)
{
	return tensor.defined() && c10::isReducedFloatingType(tensor.scalar_type());
}

/* Calls again in float32, if the CPU has no function for a narrower type. */
void call_widened(const OperatorHandle &op, const Plan &plan, Stack *stack)
{
	std::vector<IValue> narrow(stack->begin(), stack->end());
	Stack wide;

	for (const IValue &value : narrow)
		wide.push_back(
			each(value, [](const at::Tensor &one) { return is_half(one) ? one.to(at::kFloat) : one; }));
	std::vector<IValue> arguments(wide.begin(), wide.end());

	op.callBoxed(&wide);
	for (size_t i = 0; i < narrow.size(); i++)
		if (plan.written[i])
			(void)store_value(narrow[i], arguments[i]);
	*stack = std::move(wide);
}

bool has_half(const Stack &stack)
{
	for (const IValue &value : stack)
		if (any_tensor(value, is_half))
			return true;
	return false;
}

} // namespace

} // namespace neap_torch

#include "values_checks.cpp"

namespace neap_torch
{

namespace
{

/* Calls the CPU's function on `stack`. False: there is none, or it cannot do this; the reason is noted. */
bool call_host(const OperatorHandle &op, Plan &plan, Stack *stack)
{
	Stack again(*stack);

	try {
		check_trusted(op, plan, *stack);
		mend_division(plan, op.schema().name(), stack, stack->size() - plan.written.size());
		try {
			op.callBoxed(stack);
		} catch (const c10::IndexError &) {
			throw;
		} catch (const c10::Error &error) {
			if (!has_half(again) || is_complaint(error))
				throw;
			call_widened(op, plan, &again);
			*stack = std::move(again);
		}
	} catch (const c10::IndexError &error) {
		if (reads_known)
			throw; /* on a GPU, an assertion of the device */
		note_unknown(op, plan, error.what_without_backtrace());
		return false;
	} catch (const c10::NotImplementedError &error) {
		/* Is the function missing for one type, or for all? */
		plan.unknown = !op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
		note_unknown(op, plan, error.what_without_backtrace());
		return false;
	} catch (const c10::Error &error) {
		if (reads_known && is_complaint(error))
			throw;
		note_unknown(op, plan, error.what_without_backtrace());
		return false;
	} catch (const std::exception &error) {
		note_unknown(op, plan, error.what());
		return false;
	}
	return true;
}

/* Computes directly into CUDA's results. False: that is not possible, and nothing was done. */
bool call_out(Plan &plan, const std::vector<IValue> &arguments, Stack *results)
{
	Stack stack;

	if (!plan.out || plan.no_out || plan.unknown || !plan.trusts.empty() || plan.examine)
		return false;
	for (size_t i = 0; i < plan.fresh.size(); i++) {
		const IValue &result = (*results)[results->size() - plan.fresh.size() + i];

		if (!result.isTensor() || !is_device(result.toTensor()) || is_odd(result.toTensor()))
			return false;
	}
	for (int from : plan.out_from)
		stack.push_back(host_value(
			from >= 0 ? arguments[from]
				  : (*results)[results->size() - plan.fresh.size() + (size_t)(-1 - from)]));
	std::vector<at::Tensor> given;
	std::vector<std::vector<int64_t>> sizes, strides;

	for (size_t i = 0; i < plan.out_from.size(); i++)
		if (plan.out_from[i] < 0) {
			given.push_back(stack[i].toTensor());
			sizes.push_back(given.back().sizes().vec());
			strides.push_back(given.back().strides().vec());
		}
	Silent silent; /* if the results have another shape, PyTorch warns, and the other way is taken */
	c10::WarningUtils::WarningHandlerGuard quiet(&silent);

	try {
		mend_division(plan, plan.out->schema().name(), &stack, 0);
		plan.out->callBoxed(&stack);
	} catch (const c10::IndexError &) {
		if (reads_known)
			throw;
		return false;
	} catch (const c10::Error &) {
		plan.no_out = true;
		return false;
	} catch (const std::exception &) {
		plan.no_out = true;
		return false;
	}
	for (size_t i = 0; i < given.size(); i++)
		if (given[i].sizes() != c10::IntArrayRef(sizes[i]) ||
		    given[i].strides() != c10::IntArrayRef(strides[i]))
			return false; /* some functions change a result's layout to the one they write */
	return true;
}

} // namespace

} // namespace neap_torch
