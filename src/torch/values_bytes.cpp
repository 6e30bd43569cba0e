/* torch/values_bytes.cpp: the host's side of a device's tensor: CPU tensors over the same bytes. A part of values.cpp. */

namespace neap_torch
{

namespace
{

/* Whether a tensor has bytes on a device. A tensor that Python defines (a fake one of torch.compile) claims a device,
 * but has no bytes there. */
bool is_device(const at::Tensor &tensor)
{
	return tensor.defined() && tensor.is_cuda() && !tensor.key_set().has(DispatchKey::Python);
}

/* Whether the tensor's bytes are not those of one plain tensor: sparse, nested, quantized. */
bool is_odd(const at::Tensor &tensor)
{
	return tensor.layout() != c10::kStrided || tensor.is_quantized() || tensor.is_nested() ||
	       !tensor.has_storage();
}

} // namespace

/* How many bytes lie from the tensor's first to its last. */
uint64_t values_extent(const at::Tensor &tensor)
{
	uint64_t elements = 1;

	if (!tensor.numel())
		return 0;
	for (int64_t d = 0; d < tensor.dim(); d++)
		elements += (uint64_t)((tensor.size(d) - 1) * tensor.stride(d));
	return elements * tensor.element_size();
}

namespace
{

/* The plain tensors that hold an odd tensor's bytes. None: its kind is unknown here. */
std::vector<at::Tensor> members(const at::Tensor &tensor)
{
	if (tensor.is_sparse()) {
		const auto *sparse = at::sparse::get_sparse_impl(tensor);

		return {sparse->indices(), sparse->values()};
	}
	if (at::sparse_csr::is_sparse_compressed(tensor)) {
		const auto *sparse = at::sparse_csr::get_sparse_csr_impl(tensor);

		return {sparse->compressed_indices(), sparse->plain_indices(), sparse->values()};
	}
	if (tensor.is_nested())
		return {at::native::get_nested_tensor_impl(tensor)->get_unsafe_storage_as_tensor()};
	if (tensor.is_quantized() && tensor.has_storage())
		return {at::for_blob(const_cast<void *>(tensor.const_data_ptr()), tensor.sizes())
				.strides(tensor.strides())
				.options(at::TensorOptions(at::toUnderlying(tensor.scalar_type())))
				.target_device(at::kCPU)
				.make_tensor()};
	return {};
}

at::Tensor host_of_odd(const at::Tensor &tensor)
{
	std::vector<at::Tensor> parts = members(tensor);
	at::TensorOptions options = tensor.options().device(at::kCPU);

	for (at::Tensor &part : parts)
		part = host(part);
	if (tensor.is_sparse())
		return at::_sparse_coo_tensor_unsafe(parts[0], parts[1], tensor.sizes(), options,
						     at::sparse::get_sparse_impl(tensor)->coalesced());
	if (at::sparse_csr::is_sparse_compressed(tensor))
		return at::_sparse_compressed_tensor_unsafe(parts[0], parts[1], parts[2], tensor.sizes(), options);
	if (tensor.is_nested()) {
		const auto *nested = at::native::get_nested_tensor_impl(tensor);

		return at::_nested_view_from_buffer(parts[0], nested->get_nested_sizes(),
						    nested->get_nested_strides(), nested->get_storage_offsets());
	}
	TORCH_CHECK(tensor.is_quantized() && tensor.has_storage(), "a kind of tensor that nobody here knows");
	void *bytes = const_cast<void *>(tensor.const_data_ptr());

	if (tensor.qscheme() == c10::kPerTensorAffine)
		return at::from_blob_quantized_per_tensor_affine(
			bytes, tensor.sizes(), tensor.strides(), [](void *) {}, (float)tensor.q_scale(),
			tensor.q_zero_point(), options);
	TORCH_CHECK(tensor.is_contiguous(), "a quantized tensor of this layout");
	return at::from_blob_quantized_per_channel_affine(
		bytes, tensor.sizes(), [](void *) {}, host(tensor.q_per_channel_scales()),
		host(tensor.q_per_channel_zero_points()), tensor.q_per_channel_axis(), options);
}

} // namespace

/* A CPU tensor over the same bytes. */
at::Tensor host(const at::Tensor &tensor)
{
	if (!is_device(tensor))
		return tensor;
	if (is_odd(tensor))
		return host_of_odd(tensor);
	uint64_t end = (uint64_t)tensor.storage_offset() * tensor.element_size() + values_extent(tensor);

	TORCH_CHECK(tensor.numel() == 0 || end <= tensor.storage().nbytes(), "a tensor of the device ends at byte ",
		    end, " of a storage of ", tensor.storage().nbytes());
	simulator.load(std::memory_order_relaxed)
		->open((uint64_t)(uintptr_t)tensor.storage().data(), tensor.storage().nbytes());
	at::Tensor same =
		at::for_blob(tensor.numel() ? const_cast<void *>(tensor.const_data_ptr()) : nullptr, tensor.sizes())
			.strides(tensor.strides())
			.options(tensor.options().device(at::kCPU))
			.target_device(at::kCPU)
			.make_tensor();

	same._set_conj(tensor.is_conj());
	same._set_neg(tensor.is_neg());
	return same;
}

uint64_t values_bytes()
{
	const neap_sim_values *calls = simulator.load(std::memory_order_relaxed);

	return calls ? calls->bytes() : 0;
}

namespace
{

template <typename Change> IValue each(const IValue &value, const Change &change)
{
	if (value.isTensor())
		return change(value.toTensor());
	if (value.isTensorList()) {
		c10::List<at::Tensor> changed;

		for (const at::Tensor &one : value.toTensorVector())
			changed.push_back(change(one));
		return changed;
	}
	if (value.isOptionalTensorList()) {
		c10::List<c10::optional<at::Tensor>> changed;

		for (const c10::optional<at::Tensor> &one : value.toOptionalTensorVector())
			changed.push_back(one ? c10::optional<at::Tensor>(change(*one)) : c10::nullopt);
		return changed;
	}
	return value;
}

/* Whether `test` holds for a tensor in the value. It copies nothing, since each operation calls it. */
template <typename Test> bool any_tensor(const IValue &value, const Test &test)
{
	if (value.isTensor())
		return test(value.toTensor());
	if (value.isTensorList() || value.isOptionalTensorList())
		for (const IValue &one : value.toListRef())
			if (one.isTensor() && test(one.toTensor()))
				return true;
	return false;
}

bool is_on_device(const IValue &value)
{
	return value.isDevice() ? value.toDevice().is_cuda() : any_tensor(value, is_device);
}

bool is_odd_value(const IValue &value)
{
	return any_tensor(value, [](const at::Tensor &one) { return is_device(one) && is_odd(one); });
}

IValue host_value(const IValue &value)
{
	if (value.isDevice() && value.toDevice().is_cuda())
		return c10::Device(at::kCPU);
	return each(value, [](const at::Tensor &one) { return host(one); });
}

} // namespace

} // namespace neap_torch
