/* torch/values_plan.cpp: plans how to compute an operation. A part of values.cpp. */

namespace neap_torch
{

namespace
{

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using c10::OperatorHandle;
using Stack = torch::jit::Stack;

constexpr DispatchKey kKey = DispatchKey::CustomRNGKeyId;

std::atomic<const neap_sim_values *> simulator{nullptr}; /* null: nothing is computed yet */

enum class Kind {
	Through, /* composed of others, or nothing to compute: the other kernels, which may come back here */
	Custom,  /* a program's or an extension's: of PyTorch's operations, which come here, or a kernel of its own */
	Bare,    /* CUDA's function alone: it computes on the host itself, or has no values */
	Compute,
};

/* Indices that the CPU's function does not check: those outside of `least` to the limit would read or write
 * anywhere. */
struct Trusted {
	const char *name, *indices;
	const char *limit; /* the argument that gives the limit: a number, or a tensor with its sizes */
	int dimensions; /* of those sizes, so many of the last, multiplied; 0: the first one; -3: the third from the end */
	int least = 0;
	int beyond = 0;                /* 1: the limit itself is allowed too */
	const char *ignored = nullptr; /* the argument that has an index of no meaning */
};

constexpr Trusted kTrusted[] = {
	{"aten::embedding_dense_backward", "indices", "num_weights", 0},
	{"aten::_embedding_bag_backward", "indices", "num_weights", 0},
	{"aten::_embedding_bag_backward", "offset2bag", "grad", 0},
	{"aten::_embedding_bag_dense_backward", "indices", "num_weights", 0},
	{"aten::_embedding_bag_dense_backward", "offset2bag", "grad", 0},
	{"aten::_embedding_bag_per_sample_weights_backward", "indices", "weight", 0},
	{"aten::_embedding_bag_per_sample_weights_backward", "offset2bag", "grad", 0},
	{"aten::_ctc_loss", "targets", "log_probs", 1},
	{"aten::_ctc_loss_backward", "targets", "log_probs", 1},
	{"aten::nll_loss_backward", "target", "self", 1, 0, 0, "ignore_index"},
	{"aten::nll_loss2d_backward", "target", "self", -3, 0, 0, "ignore_index"},
	{"aten::max_pool2d_with_indices_backward", "indices", "self", 2, -1},
	{"aten::max_pool3d_with_indices_backward", "indices", "self", 3, -1},
	{"aten::adaptive_max_pool2d_backward", "indices", "self", 2},
	{"aten::adaptive_max_pool3d_backward", "indices", "self", 3},
	{"aten::_convert_indices_from_coo_to_csr", "self", "size", 0},
	{"aten::_convert_indices_from_csr_to_coo", "crow_indices", "col_indices", 1, 0, 1},
};

/* Arguments whose bounds depend on one another (values_checks.cpp). */
using Named = std::function<const IValue &(const char *name)>;
void check_lengths(const Named &argument);
void check_lengths_back(const Named &argument);
void check_segments(const Named &argument);
void check_pivots(const Named &argument);
void check_terms(const Named &argument);

struct Examined {
	const char *name;
	void (*check)(const Named &argument); /* throws */
};

constexpr Examined kExamined[] = {{"aten::_ctc_loss", check_lengths},
				  {"aten::_ctc_loss_backward", check_lengths_back},
				  {"aten::segment_reduce", check_segments},
				  {"aten::_segment_reduce_backward", check_segments},
				  {"aten::linalg_ldl_solve", check_pivots}};
constexpr const char *kPolynomials = "_polynomial_"; /* in the names of those that sum n terms */

/* The CPU's function reads values and complains, where CUDA's function asserts on the device or reads them too: these
 * are errors of the program itself. Other complaints of the CPU's function mean that it cannot do what CUDA's
 * does. */
const char *const kComplaints[] = {"out of bounds",
				   "out of range",
				   "not in the valid range",
				   "invalid max index",
				   "should be between 0 and 1",
				   "p_in >= 0 && p_in <= 1",
				   "element < 0",
				   "can not be negative",
				   "non-negative integral",
				   "elements of std >= 0",
				   "] is not finite",
				   "number of ones in mask"};

/* Divisions of whole numbers: on a CPU the least number divided by -1 raises a signal. A GPU returns that number. */
const char *const kDivides[] = {"aten::div",       "aten::div_", "aten::floor_divide", "aten::floor_divide_",
				"aten::remainder", "aten::fmod", "aten::remainder_",   "aten::fmod_",
				"aten::lcm",       "aten::lcm_"};

struct Plan {
	Kind kind;
	bool divides;
	std::vector<const Trusted *> trusts;
	void (*examine)(const Named &) = nullptr;
	bool seeded;                       /* draws random numbers */
	bool masks;                        /* has indices that may be masks */
	bool pins;                         /* its result may have a new storage: pin_memory() */
	bool overwrites;                   /* its first argument, without reading it */
	bool writer;                       /* host_is_writer */
	int generator;                     /* the argument's place; -1: none */
	std::vector<bool> fresh;           /* by result: it is neither an argument nor a view of one */
	std::vector<int> same;             /* by result that is not fresh: the argument's place */
	std::vector<bool> written;         /* by argument: the operation writes it */
	std::atomic<bool> no_out{false};   /* `out` cannot do it: only the variant without it computes in this type */
	c10::optional<OperatorHandle> out; /* the same operation with its results as arguments */
	std::vector<int> out_from;         /* by argument of `out`: the place of this one's; -1 - i: result i */
	std::atomic<bool> unknown{false};  /* the CPU has no function for it */
	std::atomic<bool> noted{false};
};

/* Composed operations that are computed whole: their parts are CUDA's alone, or work on memory. */
const char *const kWhole[] = {"aten::copy_",
			      "aten::convolution",
			      "aten::convolution_overrideable",
			      "aten::_unsafe_index_put",
			      "aten::_fft_r2c",
			      "aten::_fft_c2c",
			      "aten::_fft_c2r",
			      "aten::ldexp",
			      "aten::ldexp_"};
/* Operations that decide on the host, or have no values. */
const char *const kBare[] = {"aten::_fused_sdp_choice",
			     "aten::record_stream",
			     "aten::resize_",
			     "aten::set_",
			     "aten::empty",
			     "aten::empty_strided",
			     "aten::is_pinned",
			     "aten::_pin_memory",
			     "aten::_cudnn_rnn_flatten_weight",
			     "aten::_cudnn_init_dropout_state",
			     "aten::_use_cudnn_ctc_loss",
			     "aten::_use_miopen_ctc_loss",
			     "aten::_has_compatible_shallow_copy_type",
			     "aten::_assert_async",
			     "aten::_assert_scalar"};

/* Operations that overwrite their first argument. */
const char *const kOverwrites[] = {
	"aten::copy_",       "aten::fill_",          "aten::zero_",         "aten::normal_", "aten::uniform_",
	"aten::random_",     "aten::bernoulli_",     "aten::exponential_",  "aten::cauchy_", "aten::geometric_",
	"aten::log_normal_", "aten::_foreach_zero_", "aten::_foreach_copy_"};

/* The CPU's variant with given results leaves some unwritten: the mean, for an input with gaps. */
const char *const kNoOut[] = {"aten::native_batch_norm"};

template <size_t N> bool is_among(const char *const (&names)[N], const std::string &name)
{
	for (const char *one : names)
		if (name == one)
			return true;
	return false;
}

bool is_bare(const std::string &name)
{
	return is_among(kBare, name) || name.rfind("c10d::", 0) == 0 || name.rfind("symm_mem::", 0) == 0 ||
	       name.rfind("_c10d_functional", 0) == 0;
}

bool has(const OperatorHandle &op, DispatchKey key) { return op.hasKernelForDispatchKey(key); }

/* Whether `op` has a function of its own for CUDA; one that is composed of other operations is not. */
bool computes(const OperatorHandle &op, const std::string &name)
{
	return has(op, DispatchKey::CUDA) || is_among(kWhole, name);
}

bool is_alike(const c10::Argument &a, const c10::Argument &b)
{
	return a.name() == b.name() && *a.type() == *b.type();
}

/* Fills `out_from` if `other` is `op` with an argument for each result, and nothing else. */
bool matches(const c10::FunctionSchema &op, const c10::FunctionSchema &other, std::vector<int> *ret_from)
{
	const auto &have = op.arguments(), &want = other.arguments();
	std::vector<int> from;
	size_t results = 0;

	for (const auto &argument : want) {
		size_t i = 0;

		if (argument.is_out()) {
			from.push_back(-1 - (int)results++);
			continue;
		}
		while (i < have.size() && !is_alike(have[i], argument))
			i++;
		if (i == have.size())
			return false;
		from.push_back((int)i);
	}
	if (results != op.returns().size() || results + have.size() != want.size())
		return false;
	*ret_from = std::move(from);
	return true;
}

/* Finds the variant of `op` that writes into given results, if the CPU has its own function for it. */
void find_out(const OperatorHandle &op, Plan *plan)
{
	static const std::vector<c10::OperatorName> all = c10::Dispatcher::singleton().getAllOpNames();

	for (const auto &result : op.schema().returns())
		if (result.type()->kind() != c10::TypeKind::TensorType)
			return;
	for (const auto &name : all) {
		if (name.name != op.schema().name() || name.overload_name.find("out") == std::string::npos)
			continue;
		auto other = c10::Dispatcher::singleton().findSchema(name);

		if (other && has(*other, DispatchKey::CPU) &&
		    matches(op.schema(), other->schema(), &plan->out_from)) {
			plan->out = other;
			return;
		}
	}
}

bool is_generator(const c10::Argument &argument)
{
	return argument.type()->str().find("Generator") != std::string::npos;
}

bool is_seeded(const OperatorHandle &op)
{
	for (const auto &tag : op.getTags())
		if (tag == at::Tag::nondeterministic_seeded)
			return true;
	return false;
}

/* The place of the argument that a result is, or is a view of; 0 if it is neither. */
int argument_of(const c10::FunctionSchema &schema, const c10::Argument &result)
{
	for (size_t i = 0; result.alias_info() && i < schema.arguments().size(); i++)
		if (schema.arguments()[i].alias_info() &&
		    schema.arguments()[i].alias_info()->beforeSets() == result.alias_info()->beforeSets())
			return (int)i;
	return 0;
}

std::unique_ptr<Plan> plan_for(const OperatorHandle &op)
{
	auto plan = std::make_unique<Plan>();
	const auto &schema = op.schema();
	bool fresh = false;

	plan->generator = -1;
	plan->seeded = is_seeded(op);
	plan->masks = false;
	plan->pins = schema.name() == "aten::set_";
	plan->overwrites = is_among(kOverwrites, schema.name());
	plan->writer = host_is_writer(op, plan->overwrites);
	plan->divides = is_among(kDivides, schema.name()) &&
			(schema.name().rfind("aten::div", 0) != 0 || schema.argumentIndexWithName("rounding_mode"));
	for (const auto &argument : schema.arguments()) {
		if (is_generator(argument))
			plan->generator = (int)(&argument - schema.arguments().data());
		plan->written.push_back(argument.alias_info() && argument.alias_info()->isWrite());
		plan->masks = plan->masks || (argument.name() == "indices" && argument.type()->str() == "Tensor?[]");
		fresh = fresh || plan->written.back();
	}
	for (const auto &result : schema.returns()) {
		plan->fresh.push_back(!result.alias_info());
		plan->same.push_back(argument_of(schema, result));
		fresh = fresh || plan->fresh.back();
	}
	for (const Trusted &one : kTrusted)
		if (schema.name() == one.name)
			plan->trusts.push_back(&one);
	for (const Examined &one : kExamined)
		if (schema.name() == one.name)
			plan->examine = one.check;
	if (schema.name().find(kPolynomials) != std::string::npos && schema.argumentIndexWithName("n"))
		plan->examine = check_terms;
	if (is_bare(schema.name()))
		plan->kind = Kind::Bare;
	else if (schema.name().rfind("aten::", 0) != 0 && has(op, DispatchKey::CUDA) && !has(op, DispatchKey::CPU))
		plan->kind = Kind::Custom;
	else
		plan->kind = fresh && computes(op, schema.name()) ? Kind::Compute : Kind::Through;
	if (plan->kind == Kind::Compute && !plan->seeded && !is_among(kNoOut, schema.name()))
		find_out(op, plan.get());
	return plan;
}

/* Plans are made once and stay: by the schema's address, which is the operator's own. */
Plan &plan_of(const OperatorHandle &op)
{
	static std::mutex lock;
	static std::unordered_map<const void *, std::unique_ptr<Plan>> plans;
	static thread_local std::unordered_map<const void *, Plan *> known;
	const void *key = &op.schema();
	auto here = known.find(key);

	if (here != known.end())
		return *here->second;
	std::lock_guard<std::mutex> guard(lock);
	auto &plan = plans[key];

	if (!plan)
		plan = plan_for(op);
	return *(known[key] = plan.get());
}

} // namespace

} // namespace neap_torch
