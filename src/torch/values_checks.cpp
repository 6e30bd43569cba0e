/* torch/values_checks.cpp: checks for arguments with which the CPU's function would read outside of its tensors, or
 * end the process, while CUDA's function fails an assertion on the device. A part of values.cpp. */

namespace neap_torch
{

namespace
{

int64_t limit_of(const IValue &value, int dimensions)
{
	int64_t limit = 1;

	if (value.isInt())
		return value.toInt();
	const at::Tensor &tensor = value.toTensor();

	if (dimensions == 0)
		return tensor.dim() ? tensor.size(0) : 0;
	if (dimensions < 0)
		return tensor.size(dimensions);
	for (int64_t d = std::max<int64_t>(tensor.dim() - dimensions, 0); d < tensor.dim(); d++)
		limit *= tensor.size(d);
	return limit;
}

void check_bounds(const at::Tensor &numbers, int64_t least, int64_t limit, const char *name)
{
	if (!numbers.numel())
		return;
	auto [smallest, largest] = numbers.aminmax();

	TORCH_CHECK_INDEX(smallest.item<int64_t>() >= least && largest.item<int64_t>() < limit, name,
			  " out of bounds: on a GPU, an assertion of the device");
}

/* The numbers of a list or a tensor. Undefined: there are none. */
at::Tensor numbers_of(const IValue &value)
{
	if (value.isIntList())
		return at::tensor(value.toIntVector(), at::kLong);
	return value.isTensor() ? value.toTensor() : at::Tensor();
}

/* Checks CTC's lengths against the targets, the time steps, and the forward pass's results. */
void check_lengths(const Named &argument)
{
	const at::Tensor &targets = argument("targets").toTensor();
	at::Tensor lengths = numbers_of(argument("target_lengths"));

	check_bounds(numbers_of(argument("input_lengths")), 0, limit_of(argument("log_probs"), 0) + 1,
		     "input_lengths");
	check_bounds(lengths, 0, limit_of(argument("targets"), 1) + 1, "target_lengths");
	if (targets.dim() == 1)
		check_bounds(lengths.sum(), 0, targets.numel() + 1, "target_lengths");
}

void check_lengths_back(const Named &argument)
{
	check_lengths(argument);
	check_bounds(numbers_of(argument("target_lengths")), 0,
		     (argument("log_alpha").toTensor().size(-1) - 1) / 2 + 1, "target_lengths");
}

/* Checks the segments of one axis: their lengths, or where each begins and ends. */
void check_segments(const Named &argument)
{
	const at::Tensor &data = argument("data").toTensor();
	int64_t axis = argument("axis").toInt();

	if (axis < -data.dim() || axis >= data.dim())
		return; /* the CPU's function complains */
	for (const char *name : {"lengths", "offsets"}) {
		at::Tensor numbers = numbers_of(argument(name));

		if (!numbers.defined() || numbers.dim() == 0)
			continue;
		check_bounds(numbers, 0, data.size(axis) + 1, name);
		if (*name == 'l')
			check_bounds(numbers.sum(-1), 0, data.size(axis) + 1, name);
	}
}

/* Checks pivots as LAPACK's sytrf gives them: the number of a row, from 1; or, for a block of two rows, its negative,
 * twice. */
void check_pivots(const Named &argument)
{
	at::Tensor pivots = argument("pivots").toTensor().to(at::kLong).contiguous();
	int64_t rows = pivots.dim() ? pivots.size(-1) : 0;
	const int64_t *pivot = pivots.const_data_ptr<int64_t>(), *end = pivot + pivots.numel();

	check_bounds(pivots, -rows, rows + 1, "pivots");
	for (int64_t row = 0; pivot < end; row %= rows) {
		int64_t step = *pivot > 0 ? 1 : 2;

		TORCH_CHECK_INDEX(*pivot != 0 && row + step <= rows && (step == 1 || pivot[1] < 0),
				  "pivots out of bounds: none of a factorization");
		pivot += step;
		row += step;
	}
}

at::Tensor tensor_of(const IValue &value)
{
	if (value.isTensor())
		return value.toTensor();
	return at::scalar_tensor(value.toScalar(), at::TensorOptions(value.toScalar().type()));
}

/* The CPU's function takes a step for each term and each element, and cannot be interrupted. */
void check_terms(const Named &argument)
{
	constexpr int64_t kMost = 1 << 30; /* some seconds of one core */
	at::Tensor points = tensor_of(argument("x")), terms = tensor_of(argument("n"));
	int64_t elements = c10::multiply_integers(at::infer_size(points.sizes(), terms.sizes()));

	if (!elements)
		return;
	/* a NaN counts as no term */
	double each = at::nan_to_num(terms.to(at::kDouble)).clamp_min(0).mean().item<double>();
	TORCH_CHECK(each * (double)elements <= (double)kMost, "more than ", kMost, " terms in all");
}

/* Throws IndexError for indices with which the CPU's function would read outside of its tensors. */
void check_trusted(const OperatorHandle &op, const Plan &plan, const Stack &stack)
{
	size_t begin = stack.size() - plan.written.size();
	auto argument = [&](const char *name) -> const IValue & {
		return stack[begin + (size_t)*op.schema().argumentIndexWithName(name)];
	};

	for (const Trusted *one : plan.trusts) {
		if (!argument(one->indices).isTensor() || !argument(one->indices).toTensor().defined())
			continue;
		at::Tensor indices = argument(one->indices).toTensor();

		if (one->ignored)
			indices = indices.masked_select(indices.ne(argument(one->ignored).toInt()));
		if (!indices.numel())
			continue;
		check_bounds(indices, one->least, limit_of(argument(one->limit), one->dimensions) + one->beyond,
			     one->indices);
	}
	if (plan.examine)
		plan.examine(argument);
}

/* Divides by 1 the numbers that would overflow when they are divided by -1: the quotient is the same number, or the
 * remainder is 0. Throws if that cannot be done. */
void mend_division(const Plan &plan, const std::string &name, Stack *stack, size_t begin)
{
	if (!plan.divides)
		return;
	IValue &divisor = (*stack)[begin + 1];
	at::Tensor by = tensor_of(divisor), whole = tensor_of((*stack)[begin]);
	c10::ScalarType type = at::result_type(whole, by);
	bool both = name.rfind("aten::lcm", 0) == 0; /* divides either by what they have in common */

	if (type != at::kInt && type != at::kLong)
		return;
	at::Tensor ones = by.eq(-1);

	if (!both && !ones.any().item<bool>())
		return;
	int64_t least = type == at::kInt ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int64_t>::min();
	at::Tensor overflows = whole.to(type).eq(least);

	overflows = both ? overflows.logical_or(by.to(type).eq(least)) : overflows.logical_and(ones);
	if (!overflows.any().item<bool>())
		return;
	TORCH_CHECK(divisor.isTensor() && !both, "the result has no place in its type");
	divisor = at::where(overflows, at::ones({}, by.options().dtype(type)), by.to(type));
}

bool is_complaint(const c10::Error &error)
{
	std::string text = error.what_without_backtrace();

	for (const char *part : kComplaints)
		if (text.find(part) != std::string::npos)
			return true;
	return false;
}

} // namespace

} // namespace neap_torch
