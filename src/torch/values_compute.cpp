/* torch/values_compute.cpp: one operation on the host, and its results on the device. A part of values.cpp. */

/* Of the OpenMP that PyTorch's libraries were linked to, if they were. */
extern "C" {
__attribute__((weak)) void omp_set_num_threads(int count);
__attribute__((weak)) int omp_get_max_threads(void);
}

namespace neap_torch
{

namespace
{

/* Replaces a mask among indices by the indices of its set elements: CUDA's function would look for them itself. */
void expand_masks(std::vector<IValue> &arguments, Stack *stack, size_t begin)
{
	for (size_t i = 0; i < arguments.size(); i++) {
		if (!arguments[i].isOptionalTensorList() && !arguments[i].isTensorList())
			continue;
		c10::List<c10::optional<at::Tensor>> whole;
		bool masks = false;

		for (const IValue &one : arguments[i].toListRef()) {
			if (!one.isTensor() || !is_device(one.toTensor()) ||
			    (one.toTensor().scalar_type() != at::kBool &&
			     one.toTensor().scalar_type() != at::kByte)) {
				whole.push_back(one.isTensor() ? c10::optional<at::Tensor>(one.toTensor())
							       : c10::nullopt);
				continue;
			}
			at::Tensor found = at::nonzero(one.toTensor());

			masks = true;
			for (int64_t d = 0; d < found.size(1); d++)
				whole.push_back(found.select(1, d));
		}
		if (masks)
			(*stack)[begin + i] = arguments[i] = whole;
	}
}

c10::Device device_of(const std::vector<IValue> &arguments)
{
	c10::Device found(at::kCUDA, 0);

	for (const IValue &value : arguments)
		each(value, [&](const at::Tensor &one) {
			if (is_device(one))
				found = one.device();
			return one;
		});
	return found;
}

/* CUDA's function, which ran blind, has found no elements for a result whose size depends on values, so the CPU's
 * function makes its own result. */
IValue host_out(const IValue &value)
{
	if (!value.isTensor() || !is_device(value.toTensor()) || is_odd(value.toTensor()) || value.toTensor().numel())
		return host_value(value);
	return at::empty({0}, value.toTensor().options().device(at::kCPU));
}

/* Gets the results of the CPU's function, from the arguments in `ret_results` or, if that is empty, from the
 * arguments' host sides. False: it has none. */
bool host_results(const OperatorHandle &op, Plan &plan, c10::Device device, const std::vector<IValue> &arguments,
		  Stack *ret_results)
{
	std::unique_ptr<Seeded> seeded;

	if (plan.unknown)
		return false;
	if (ret_results->empty())
		for (size_t i = 0; i < arguments.size(); i++)
			ret_results->push_back(op.schema().arguments()[i].is_out() ? host_out(arguments[i])
										   : host_value(arguments[i]));
	if (plan.seeded) {
		const IValue *asked = plan.generator >= 0 ? &arguments[(size_t)plan.generator] : nullptr;

		seeded = std::make_unique<Seeded>(seed_for(asked, device));
		if (asked)
			(*ret_results)[(size_t)plan.generator] = IValue();
	}
	return call_host(op, plan, ret_results);
}

/* Marks a result that got its size and its block after the marking: the earlier state of those bytes means nothing
 * for it. */
void mark_resized(const IValue &result, int64_t elements, const std::vector<IValue> &arguments)
{
	Both both;

	if (elements < 0 || result.toTensor().numel() == elements || !known_matters() || is_odd(result.toTensor()))
		return;
	for (const IValue &value : arguments)
		gather(value, &both.read);
	known_mark(result.toTensor(), worst_of(both.read) == State::Known ? State::Known : State::Likely);
}

/* Stores into an `out=` whose size depends on values: the CPU's function has put its result elsewhere. */
void store_resized(const IValue &argument, const IValue &computed)
{
	if (!argument.isTensor() || !computed.isTensor() || !is_device(argument.toTensor()) ||
	    is_odd(argument.toTensor()) || argument.toTensor().sizes() == computed.toTensor().sizes())
		return;
	(void)store(argument.toTensor(), computed.toTensor());
	known_mark(argument.toTensor(), reads_known ? State::Known : State::Likely);
}

/* Of so few elements one thread is as fast as several, and faster where others use the cores, too. */
constexpr int64_t kBriefElements = 1 << 17;

/* Sizes alone decide, no clock: the same operation gives the same sums each time. */
bool is_brief(const std::vector<IValue> &arguments)
{
	int64_t elements = 0;
	for (const IValue &value : arguments)
		(void)any_tensor(value, [&](const at::Tensor &one) {
			elements += one.numel();
			return false;
		});
	return !known_is_whole() && elements <= kBriefElements;
}

/* While it lives, a brief operation's CPU function starts no other threads: it would wait for them longer than it works. */
class OneThread
{
      public:
	explicit OneThread(bool is_wanted)
	{
		if (!is_wanted || !omp_set_num_threads)
			return;
		(void)at::get_num_threads(); /* gives a new thread the program's count */
		before_ = omp_get_max_threads();
		if (before_ > 1)
			omp_set_num_threads(1);
	}
	~OneThread()
	{
		if (before_ > 1)
			omp_set_num_threads(before_);
	}

      private:
	int before_ = 1;
};

void compute_host(const OperatorHandle &op, Plan &plan, c10::Device device, const std::vector<IValue> &arguments,
		  Stack *results)
{
	Below guard;
	OneThread brief(is_brief(arguments));
	Stack computed;
	size_t first = results->size() - plan.fresh.size();

	if (call_out(plan, arguments, results))
		return;
	bool known = host_results(op, plan, device, arguments, &computed);

	for (size_t i = 0; i < arguments.size() && !known; i++)
		if (plan.written[i])
			mark(arguments[i], State::Likely);

	for (size_t i = 0; i < plan.fresh.size(); i++) {
		IValue &result = (*results)[first + i];
		int64_t elements = -1;

		if (!plan.fresh[i]) {
			if (known)
				store_resized(arguments[(size_t)plan.same[i]],
					      computed[computed.size() - plan.fresh.size() + i]);
			continue;
		}
		if (result.isTensor() && result.toTensor().defined())
			elements = result.toTensor().numel();
		if (known) {
			result = store_value(result, computed[computed.size() - plan.fresh.size() + i]);
			mark_resized(result, elements, arguments);
		} else {
			mark(result, State::Missing);
		}
	}
}

/* Pushes the results in place of those of CUDA's function. */
void push_results(const Plan &plan, const std::vector<IValue> &arguments, const Stack &computed, Stack *stack)
{
	c10::impl::ExcludeDispatchKeyGuard guard(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
	c10::Device device = device_of(arguments);

	for (size_t i = 0; i < plan.fresh.size(); i++) {
		const IValue &result = computed[computed.size() - plan.fresh.size() + i];

		stack->push_back(plan.fresh[i] ? each(result, [&](const at::Tensor &one) { return one.to(device); })
					       : arguments[(size_t)plan.same[i]]);
	}
}

/* CUDA's function, which ran blind, has failed. If it failed because it did not read the values, the CPU's function
 * succeeds, and its results go to the device. Else the program gets the error of CUDA's function. */
void compute_alone(const OperatorHandle &op, Plan &plan, const std::vector<IValue> &arguments, Stack *stack,
		   const std::exception_ptr &failure)
{
	Stack computed;
	c10::Device device = device_of(arguments);

	{
		Below guard;

		if (!host_results(op, plan, device, arguments, &computed))
			std::rethrow_exception(failure);
	}
	push_results(plan, arguments, computed, stack);
}

/* Calls CUDA's function. False: it failed after it had read zeros in place of values, and the reason was neither
 * memory nor an error of the device itself. */
bool call_device(const OperatorHandle &op, DispatchKeySet keys, Stack *stack, std::exception_ptr *ret_failure)
{
	c10::impl::ExcludeDispatchKeyGuard guard(kKey);
	Blind blind;

	try {
		op.redispatchBoxed(keys, stack);
		return true;
	} catch (const c10::OutOfMemoryError &) {
		throw;
	} catch (const c10::Error &error) {
		if (!blind.end() ||
		    std::string(error.what_without_backtrace()).find("CUDA error") != std::string::npos)
			throw;
		*ret_failure = std::current_exception();
		return false;
	}
}

/* Notes that nobody computes the operation: its results are missing. Tensors that it writes in place keep their
 * values. */
void leave_unknown(const OperatorHandle &op, Plan &plan, const std::vector<IValue> &arguments, const Stack &results,
		   const char *why)
{
	Below guard;
	size_t first = results.size() - plan.fresh.size();

	note_unknown(op, plan, why);
	for (size_t i = 0; i < arguments.size(); i++)
		if (plan.written[i])
			mark(arguments[i], State::Likely);
	for (size_t i = 0; i < plan.fresh.size(); i++)
		if (plan.fresh[i])
			mark(results[first + i], State::Missing);
}

thread_local uint64_t computations; /* so far */

} // namespace

} // namespace neap_torch
