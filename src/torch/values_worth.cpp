/* torch/values_worth.cpp: decides whether an operation is worth computing (values=auto), and marks how well its
 * results are known. A part of values.cpp. */

namespace neap_torch
{

namespace
{

constexpr double kFlopsPerNs = 10, kBytesPerNs = 4; /* of one core of a host, roughly */
constexpr size_t kGuessedBytes = 1u << 28;

struct Both {
	std::vector<at::Tensor> read, written; /* on devices */
};

/* A CPU tensor over a device's bytes, by the simulator's addresses, or over lent ones. */
bool is_over_device(const at::Tensor &tensor)
{
	uint64_t address =
		(uint64_t)(uintptr_t)(tensor.is_cpu() && tensor.has_storage() ? tensor.const_data_ptr() : nullptr);

	return address >= kDevicesBegin && address < kLentEnd;
}

void gather(const IValue &value, std::vector<at::Tensor> *into)
{
	each(value, [&](const at::Tensor &one) {
		if (is_device(one) && is_odd(one))
			for (const at::Tensor &part : members(one))
				into->push_back(part);
		else if (one.defined() && one.layout() == c10::kStrided && (is_device(one) || is_over_device(one)))
			into->push_back(one);
		return one;
	});
}

void gather_deep(const IValue &value, std::vector<at::Tensor> *into)
{
	if (value.isTensor() || value.isTensorList())
		gather(value, into);
	else if (value.isList())
		for (const IValue &one : value.toListRef())
			gather_deep(one, into);
}

/* Both lists, of an operation whose device function has run: `results` ends with its results. */
Both both_of(const OperatorHandle &op, const Plan &plan, const std::vector<IValue> &arguments, const Stack &results)
{
	Both both;
	const auto &schema = op.schema().arguments();
	size_t first = results.size() - plan.fresh.size();

	for (size_t i = 0; i < arguments.size(); i++) {
		if (plan.written[i])
			gather(arguments[i], &both.written);
		if (!schema[i].is_out() && !(plan.overwrites && i == 0))
			gather(arguments[i], &both.read);
	}
	for (size_t i = 0; i < plan.fresh.size(); i++)
		if (plan.fresh[i])
			gather(results[first + i], &both.written);
	return both;
}

const char *const kDecompositions[] = {"linalg", "svd",     "eig",   "qr",  "cholesky",
				       "lu_",    "inverse", "lstsq", "ldl", "triangular"};

template <size_t N> bool is_among_parts(const char *const (&parts)[N], const std::string &name)
{
	for (const char *part : parts)
		if (name.find(part) != std::string::npos)
			return true;
	return false;
}

const char *const kProducts[] = {"mm", "conv", "linear", "mv", "attention", "rnn", "lstm"};

/* Roughly how long the CPU's function takes, in nanoseconds of one core. A product of matrices of m x k and k x n
 * elements takes mkn steps: the root of the product of its three sizes. */
double cost_of(const std::string &name, const Both &both)
{
	double bytes = 0, first = 1, second = 1, result = 1;

	for (const auto *list : {&both.read, &both.written})
		for (const at::Tensor &one : *list)
			bytes += (double)one.nbytes();
	if (is_among_parts(kDecompositions, name) && !both.read.empty() && both.read[0].dim() >= 2) {
		const at::Tensor &matrix = both.read[0];

		return 10.0 * (double)matrix.numel() * (double)std::min(matrix.size(-1), matrix.size(-2));
	}
	if (!is_among_parts(kProducts, name))
		return bytes / kBytesPerNs;
	for (const at::Tensor &one : both.read) {
		double elements = (double)one.numel();

		second = std::max(second, std::min(first, elements));
		first = std::max(first, elements);
	}
	for (const at::Tensor &one : both.written)
		result = std::max(result, (double)one.numel());
	return bytes / kBytesPerNs + 2 * std::sqrt(first * second * result) / kFlopsPerNs;
}

State worst_of(const std::vector<at::Tensor> &tensors)
{
	State worst = State::Known;

	for (const at::Tensor &one : tensors)
		worst = std::max(worst, known_state(one));
	return worst;
}

/* The whole numbers that an operation that is left out would probably give: a comparison of a value with itself is
 * true, a value is not infinite, the largest value of a row may stand anywhere in it. */
int64_t guess(const std::string &name, const Both &both, const at::Tensor &into)
{
	bool itself = both.read.size() == 2 && both.read[0].const_data_ptr() == both.read[1].const_data_ptr();
	int64_t last = both.read.empty() || both.read[0].dim() == 0 ? 1 : both.read[0].size(-1);
	int64_t below = both.read.empty() ? 0 : both.read[0].dim() - into.dim();

	if (is_among_parts(kDecompositions, name) && below == 2)
		return kZeros; /* a status */
	if (is_among_parts(kDecompositions, name) && below == 1)
		return kCounting; /* pivots */
	if (into.scalar_type() != at::kBool)
		return std::max<int64_t>(last, 1);
	if (!both.read.empty() && both.read[0].scalar_type() == at::kBool &&
	    known_state(both.read[0]) == State::Missing)
		return known_guess(both.read[0]); /* all, any, and */
	if (name == "aten::isnan" || name == "aten::isinf" || (name == "aten::ne" && itself) ||
	    (name == "aten::eq" && !itself))
		return kZeros;
	return name == "aten::eq" || (name == "aten::ne" && both.read.size() == 1) ? kOnes : 2;
}

thread_local uint64_t brought;   /* how often NCCL has asked what it takes: it marks what it brings */
std::atomic<bool> brings{false}; /* it has asked, on any thread */

/* Waits for a collective's results: they are marked when they arrive. */
void await_brought(const std::vector<at::Tensor> &tensors)
{
	for (const at::Tensor &one : tensors)
		if (brings && has_bytes(one))
			simulator.load(std::memory_order_relaxed)
				->open((uint64_t)(uintptr_t)one.const_data_ptr(), values_extent(one));
}

thread_local bool reads_known = true; /* the current operation reads known values only */

/* Whether the host computes this operation; if so, missing values that it reads become likely ones. Marks what it writes. */
bool decide(const std::string &name, const Both &both, double cost)
{
	State state = worst_of(both.read);
	/* An operation that reads missing values gets no time: it would take the time from operations with known
	 * results. */
	bool exact = !both.written.empty(), affordable = known_take(state == State::Known ? cost : 0), computed;

	for (const at::Tensor &one : both.written)
		exact = exact && !is_inexact(one);
	reads_known = state == State::Known;
	/* A product of likely values is larger than any in a model, where values have both signs. */
	bool grows = state != State::Known && !exact && is_among_parts(kProducts, name);
	computed = known_is_whole() || (known_is_cheap(cost) && !grows) || (state == State::Known && affordable) ||
		   (exact && state != State::Missing);
	bool room = known_has_room(both.read, both.written);

	if (computed && !room)
		known_refuse();
	computed = computed && room;
	for (const at::Tensor &one : both.read)
		if (computed)
			known_fill(one);
	for (const at::Tensor &one : both.written) {
		if (computed)
			known_mark(one, state == State::Known ? State::Known : State::Likely);
		else if (one.numel() > 1 || name != "aten::_amp_foreach_non_finite_check_and_unscale_")
			known_mark(one, State::Missing, guess(name, both, one));
		/* else its flag stays as it is: nothing is infinite */
		if (!computed && room && !is_inexact(one) && one.nbytes() <= kGuessedBytes)
			known_fill(one);
	}
	return computed;
}

/* `both_of` is called only where states matter. */
template <typename BothOf> bool worth(const std::string &name, const BothOf &both_of)
{
	bool is_short = known_is_short();

	reads_known = true;
	if (!is_short && !known_matters() && !brings)
		return true;
	Both both = both_of();

	await_brought(both.read);
	return (!is_short && !known_matters()) || decide(name, both, cost_of(name, both));
}

} // namespace

} // namespace neap_torch
