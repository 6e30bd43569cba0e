/* torch/values_odd.cpp: sparse, nested and quantized tensors. A part of values.cpp. */

namespace neap_torch
{

namespace
{

/* The dispatcher calls a sparse or nested tensor's own function before `compute`. BackendSelect, which is for
 * operations without tensors, comes before that function. */
constexpr DispatchKey kOddKey = DispatchKey::BackendSelect;
constexpr DispatchKey kOddKeys[] = {DispatchKey::SparseCUDA, DispatchKey::SparseCsrCUDA,
				    DispatchKey::NestedTensorCUDA, DispatchKey::QuantizedCUDA};
/* These operations change a sparse tensor's members through other operations. */
const char *const kOddThrough[] = {
	"aten::copy_",          "aten::copy_sparse_to_sparse_",   "aten::resize_as_sparse_",
	"aten::sparse_resize_", "aten::sparse_resize_and_clear_", "aten::_coalesced_",
	"aten::_to_copy"};

bool has_odd(const OperatorHandle &op)
{
	for (DispatchKey key : kOddKeys)
		if (has(op, key))
			return true;
	return false;
}

/* Whether the operation has a function of its own for such tensors, and gives or writes values. */
bool computes_odd(const OperatorHandle &op, const Plan &plan)
{
	bool gives = false;

	for (bool one : plan.written)
		gives = gives || one;
	for (const auto &result : op.schema().returns()) {
		bool tensors = result.type()->str().find("Tensor") != std::string::npos;

		if (tensors && result.alias_info() && !result.alias_info()->isWrite())
			return false; /* a view, or a member */
		gives = gives || tensors;
	}
	return has_odd(op) && gives && !is_among(kOddThrough, op.schema().name());
}

/* Copies the result back: the CPU's function may have given a sparse tensor other members. */
void put_back(const at::Tensor &to, const at::Tensor &from)
{
	if (to.is_sparse()) {
		auto *into = at::sparse::get_sparse_impl(to);
		const auto *source = at::sparse::get_sparse_impl(from);

		into->set_indices_and_values_unsafe(source->indices().to(to.device()),
						    source->values().to(to.device()));
		into->set_coalesced(source->coalesced());
	} else if (at::sparse_csr::is_sparse_compressed(to)) {
		const auto *source = at::sparse_csr::get_sparse_csr_impl(from);

		at::sparse_csr::get_sparse_csr_impl(to)->set_member_tensors(
			source->compressed_indices().to(to.device()), source->plain_indices().to(to.device()),
			source->values().to(to.device()), to.sizes());
	}
}

void check_within(const at::Tensor &indices, int64_t limit)
{
	if (!indices.numel())
		return;
	auto [least, most] = indices.aminmax();

	TORCH_CHECK(least.item<int64_t>() >= 0 && most.item<int64_t>() < limit, "an index leaves the tensor");
}

/* Throws for a sparse tensor whose indices point outside of it; `strict`: also where PyTorch would not check them. */
void check_indices(const at::Tensor &tensor, bool strict)
{
	std::vector<at::Tensor> parts = members(tensor);

	if (!strict && at::sparse_csr::is_sparse_compressed(tensor)) {
		int64_t most = 0; /* rows or columns, blocks or not */

		for (int64_t d = 0; d < tensor.dim(); d++)
			most = std::max(most, tensor.size(d));
		check_within(parts[0], parts[1].size(-1) + 1);
		check_within(parts[0].diff(), parts[1].size(-1) + 1);
		check_within(parts[1], most);
	} else if (!strict && tensor.is_sparse()) {
		for (int64_t d = 0; d < parts[0].size(0); d++)
			check_within(parts[0].select(0, d), tensor.size(d));
	} else if (tensor.is_sparse())
		at::_validate_sparse_coo_tensor_args(parts[0], parts[1], tensor.sizes());
	else if (at::sparse_csr::is_sparse_compressed(tensor))
		at::_validate_sparse_compressed_tensor_args(parts[0], parts[1], parts[2], tensor.sizes(),
							    tensor.layout());
}

/* Computes on the host's sides that the arguments had before CUDA's function replaced their members. Always computes,
 * since sizes depend on the values. */
void compute_odd(const OperatorHandle &op, Plan &plan, DispatchKeySet keys, Stack *stack, size_t begin)
{
	std::vector<IValue> arguments(stack->begin() + (ptrdiff_t)begin, stack->end());
	std::exception_ptr failure;
	std::vector<at::Tensor> read;
	Stack computed;

	if (!computes_odd(op, plan)) {
		op.redispatchBoxed(keys, stack);
		return;
	}
	bool whole = !is_capturing();

	late_settle(arguments);
	computations++;
	for (const IValue &value : arguments) {
		try {
			Below guard;

			computed.push_back(host_value(value));
		} catch (const c10::Error &) {
			whole = false;
			break;
		}
		gather(value, &read);
	}
	std::vector<IValue> hosts(computed.begin(), computed.end());
	bool ran = call_device(op, keys, stack, &failure);

	if (whole) {
		Below guard;

		reads_known = worst_of(read) == State::Known;
		for (const at::Tensor &one : read)
			known_fill(one);
		try {
			for (const IValue &value : hosts)
				each(value, [](const at::Tensor &one) {
					if (one.defined())
						check_indices(one, !reads_known);
					return one;
				});
		} catch (const c10::Error &) {
			whole = false;
		}
		whole = whole && host_results(op, plan, device_of(arguments), arguments, &computed);
	}
	if (!whole) {
		if (!ran)
			std::rethrow_exception(failure);
		leave_unknown(op, plan, arguments, *stack, "of this kind of tensor");
		return;
	}
	if (!ran) {
		stack->resize(begin);
		push_results(plan, arguments, computed, stack);
	}
	Below guard;
	State state = reads_known ? State::Known : State::Likely;

	for (size_t i = 0; i < plan.fresh.size(); i++) {
		IValue &result = (*stack)[begin + i];

		if (ran && plan.fresh[i])
			result = store_value(result, computed[computed.size() - plan.fresh.size() + i]);
		mark(result, state);
	}
	for (size_t i = 0; i < arguments.size(); i++) {
		if (!plan.written[i])
			continue;
		if (arguments[i].isTensor() && hosts[i].isTensor())
			put_back(arguments[i].toTensor(), hosts[i].toTensor());
		mark(arguments[i], state);
	}
}

} // namespace

} // namespace neap_torch
