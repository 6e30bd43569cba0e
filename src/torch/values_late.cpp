/* torch/values_late.cpp: values that come late (`--streams=delay`). A part of values.cpp.
 *
 *   an operation   1. CUDA's function, blind, at once: blocks, streams and events are as always
 *                  2. its values, from the bytes that its arguments have by then: when something waits for its stream
 *                     (`later` of neap/sim.h), on the thread that waits
 *
 * So a program that orders its streams correctly gets the same numbers as always, and a program with a race gets the
 * numbers that the race leaves. A queued operation keeps only addresses, as a kernel does, and no block or tensor of
 * the program's.
 *
 * The values of some operations cannot come late: their sizes depend on values, or they read or write the host's own
 * memory, draw random numbers (from the program's own generator), use several devices, or are not PyTorch's. Before
 * such an operation neap computes all earlier values on its stream, and then the operation.
 */
namespace neap_torch
{

namespace
{

struct Late {
	OperatorHandle op;
	Plan *plan;
	c10::Device device;
	std::vector<IValue> arguments; /* the host's sides */
	Stack results;                 /* likewise */
	bool reads_known;
};

/* A tensor over the same bytes that neither keeps them nor belongs to Python. */
at::Tensor alias_of(const at::Tensor &tensor)
{
	return at::for_blob(const_cast<void *>(tensor.const_data_ptr()), tensor.sizes())
		.strides(tensor.strides())
		.options(tensor.options())
		.make_tensor();
}

bool is_plain_on(const at::Tensor &tensor, c10::Device device)
{
	return !tensor.defined() || (is_device(tensor) && !is_odd(tensor) && tensor.device() == device);
}

/* Whether the operation may read the host's tensor at once, when it is called. */
bool may_copy(const at::Tensor &tensor)
{
	return tensor.is_cpu() && !is_odd(tensor) && !tensor.key_set().has(DispatchKey::Python) &&
	       !is_over_device(tensor);
}

/* A copy between a device and pinned memory that the host does not wait for. */
bool is_free_copy(const OperatorHandle &op, const std::vector<IValue> &arguments)
{
	return op.schema().name() == "aten::copy_" && arguments.size() > 2 && arguments[2].isBool() &&
	       arguments[2].toBool() && arguments[0].isTensor() && arguments[1].isTensor();
}

bool may_be_late(const at::Tensor &one, c10::Device device, bool written, bool copies)
{
	if (!one.defined() || is_plain_on(one, device))
		return true;
	return may_copy(one) && (copies ? races_is_pinned(one) && !one.is_conj() && !one.is_neg() : !written);
}

bool has_tag(const OperatorHandle &op, at::Tag wanted)
{
	for (const auto &tag : op.getTags())
		if (tag == wanted)
			return true;
	return false;
}

bool can_be_late(const OperatorHandle &op, const Plan &plan, c10::Device device, const std::vector<IValue> &arguments,
		 const Stack &results)
{
	bool copies = is_free_copy(op, arguments), can = !plan.seeded && op.schema().name().rfind("aten::", 0) == 0;
	size_t first = results.size() - plan.fresh.size();

	can = can && !has_tag(op, at::Tag::dynamic_output_shape) && !has_tag(op, at::Tag::data_dependent_output);
	for (size_t i = 0; i < arguments.size() && can; i++)
		can = !any_tensor(arguments[i], [&](const at::Tensor &one) {
			return !may_be_late(one, device, plan.written[i], copies);
		});
	for (size_t i = 0; i < plan.fresh.size() && can; i++) {
		const IValue &result = results[first + i];

		can = !plan.fresh[i] ||
		      ((result.isTensor() || result.isTensorList()) &&
		       !any_tensor(result, [&](const at::Tensor &one) { return !is_plain_on(one, device); }));
	}
	return can;
}

/* Marks the operation's results as unknown. A failure that is an assertion on a GPU ends the wait here too. */
void fail_late(const Late &late, const std::exception &error)
{
	auto of_torch = dynamic_cast<const c10::Error *>(&error);
	size_t first = late.results.size() - late.plan->fresh.size();

	note_unknown(late.op, *late.plan, error.what());
	for (size_t i = 0; i < late.arguments.size(); i++)
		if (late.plan->written[i])
			mark(late.arguments[i], State::Likely);
	for (size_t i = 0; i < late.plan->fresh.size(); i++)
		if (late.plan->fresh[i])
			mark(late.results[first + i], State::Missing);
	if (of_torch && (dynamic_cast<const c10::IndexError *>(of_torch) || is_complaint(*of_torch)))
		races_fail();
}

/* Runs on any thread that waits, and depends on none of that thread's state. */
void compute_late(void *argument)
{
	std::unique_ptr<Late> late(static_cast<Late *>(argument));
	c10::impl::ForceDispatchKeyGuard plain(c10::default_included_set,
					       c10::default_excluded_set |
						       c10::autograd_dispatch_keyset_with_ADInplaceOrView |
						       DispatchKeySet(kKey));
	bool before = reads_known;

	reads_known = late->reads_known;
	try {
		compute_host(late->op, *late->plan, late->device, late->arguments, &late->results);
	} catch (const std::exception &error) {
		fail_late(*late, error);
	}
	reads_known = before;
}

IValue late_value(const IValue &value, bool copies)
{
	IValue own = each(value, [&](const at::Tensor &one) {
		if (!one.defined() || is_device(one))
			return one;
		return copies ? alias_of(one) : one.clone();
	});

	return host_value(own);
}

/* Computes now all values that come before the next work of these tensors' devices. */
void late_settle(const std::vector<IValue> &values)
{
	std::vector<int> devices;

	if (!races_are_late())
		return;
	for (const IValue &value : values)
		(void)any_tensor(value, [&](const at::Tensor &one) {
			if (is_device(one) &&
			    std::find(devices.begin(), devices.end(), one.get_device()) == devices.end())
				devices.push_back(one.get_device());
			return false;
		});
	races_settle(devices);
}

/* Queues the values of an operation whose CUDA function has run. False: the caller has to compute them now. */
bool late_put(const OperatorHandle &op, Plan &plan, const std::vector<IValue> &arguments, const Stack &results)
{
	if (!races_are_late())
		return false;
	std::vector<IValue> all(arguments);

	all.insert(all.end(), results.end() - (ptrdiff_t)plan.fresh.size(), results.end());
	c10::Device device = device_of(all);

	if (!can_be_late(op, plan, device, arguments, results)) {
		late_settle(all);
		return false;
	}
	Below guard;
	bool copies = is_free_copy(op, arguments);
	auto late = std::make_unique<Late>(Late{op, &plan, device, {}, {}, reads_known});

	for (const IValue &value : arguments)
		late->arguments.push_back(late_value(value, copies));
	for (const IValue &value : results)
		late->results.push_back(late_value(value, true));
	races_later(device.index(), compute_late, late.release());
	return true;
}

} // namespace

} // namespace neap_torch
