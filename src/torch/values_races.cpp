/* torch/values_races.cpp: reports which memory an operation uses, for races between streams (races.h). A part of
 * values.cpp. */

namespace neap_torch
{

namespace
{

void races_gather(const IValue &value, uint32_t use, RacesTouches *touches)
{
	(void)any_tensor(value, [&](const at::Tensor &one) {
		if (!one.defined() || one.key_set().has(DispatchKey::Python))
			return false;
		if (is_device(one) && is_odd(one))
			for (const at::Tensor &part : members(one))
				races_add(touches, part, use);
		else
			races_add(touches, one, use);
		return false;
	});
}

/* A copy between devices runs on the source's stream, between two waits: its write counts as the destination's work after it. */
bool copies_between_devices(const OperatorHandle &op, const Stack &stack, size_t begin)
{
	if (op.schema().name() != "aten::copy_" || !stack[begin].isTensor() || !stack[begin + 1].isTensor())
		return false;
	const at::Tensor &to = stack[begin].toTensor(), &from = stack[begin + 1].toTensor();

	return to.is_cuda() && from.is_cuda() && to.get_device() != from.get_device();
}

/* What one operation on a device uses: its arguments before it runs, as some may be freed by then; its results after it. */
class RacesOperation
{
      public:
	RacesOperation(const OperatorHandle &op, const Plan &plan, const Stack &stack, size_t begin)
	    : name_(races_name(op.schema().name())), plan_(plan), later_(copies_between_devices(op, stack, begin)),
	      unknown_(plan.kind == Kind::Custom)
	{
		RacesTouches touches;

		for (size_t i = 0; i < plan.written.size(); i++)
			if (!plan.written[i])
				races_gather(stack[begin + i], use(NEAP_SIM_READS), &touches);
		for (size_t i = 0; i < plan.written.size(); i++)
			if (plan.written[i])
				races_gather(stack[begin + i], use(NEAP_SIM_WRITES), later_ ? &written_ : &touches);
		races_work(name_, touches);
		if (unknown_)
			races_not_seen(name_);
	}
	void end(const Stack &stack)
	{
		size_t first = stack.size() - plan_.fresh.size();

		for (size_t i = 0; i < plan_.fresh.size(); i++)
			if (plan_.fresh[i])
				races_gather(stack[first + i], use(NEAP_SIM_WRITES), &written_);
		races_work(name_, written_);
	}

      private:
	uint32_t use(uint32_t known) const { return unknown_ ? (uint32_t)NEAP_SIM_UNKNOWN : known; }

	const char *name_;
	const Plan &plan_;
	bool later_, unknown_;
	RacesTouches written_;
};

/* Reports an operation on the host alone. */
void races_on_host(const OperatorHandle &op, const Plan &plan, const Stack &stack, size_t begin)
{
	for (size_t i = 0; plan.kind == Kind::Compute && i < plan.written.size(); i++)
		(void)any_tensor(stack[begin + i], [&](const at::Tensor &one) {
			races_host(races_name(op.schema().name()), one,
				   plan.written[i] ? NEAP_SIM_WRITES : NEAP_SIM_READS);
			return false;
		});
}

template <typename Call>
void with_races(const OperatorHandle &op, Stack *stack, size_t begin, bool device, const Call &call)
{
	Plan &plan = plan_of(op);

	if (!device) {
		if (races_pinned())
			races_on_host(op, plan, *stack, begin);
		call();
		if (plan.pins)
			races_new_pinned(stack->back().toTensor());
	} else if (device && (plan.kind == Kind::Compute || plan.kind == Kind::Custom)) {
		RacesOperation operation(op, plan, *stack, begin);

		call();
		operation.end(*stack);
	} else {
		call();
	}
}

/* A twin's operation has run, or its graph is replayed: then these are tensors of the host, over the device's bytes. */
void races_of_twin(const std::string &name, at::TensorList read, at::TensorList written)
{
	RacesTouches touches;

	for (const at::Tensor &one : read)
		races_add(&touches, one, NEAP_SIM_READS);
	for (const at::Tensor &one : written)
		races_add(&touches, one, NEAP_SIM_WRITES);
	races_work(races_name(name), touches);
}

/* A kernel of the program's own, launched on this stream, got these tensors. */
void races_of_kernel(const std::string &name, at::TensorList given)
{
	RacesTouches touches;

	if (!races_on())
		return;
	for (const at::Tensor &one : given)
		races_add(&touches, one, NEAP_SIM_UNKNOWN);
	races_work("a kernel of the program's own", touches);
	races_not_seen(name.c_str());
}

/* The host reads a tensor of its own, without an operation. */
void races_host_read(const at::Tensor &tensor)
{
	if (races_on() && races_pinned())
		races_host("the host", tensor, NEAP_SIM_READS);
}

} // namespace

} // namespace neap_torch
