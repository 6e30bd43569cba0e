/* torch/values.cpp: on the simulator, what PyTorch's CUDA kernels would have computed, computed by its CPU kernels. One
 * object, compiled against the installed PyTorch by python/neap/_values.py.
 *
 *   autograd, autocast, modes
 *        |
 *     compute      the fallback of a dispatch key that PyTorch gives to nobody, below all of those and above the devices
 *        |   1. the CUDA function, blind (neap/sim.h): it allocates what it would on a GPU, and launches what does nothing
 *        |   2. the CPU function, on tensors over the same bytes: a device's address is a host's
 *        v   3. its results, copied into those of 1; where a size depends on values, those of 1 are resized first
 *   CUDA, CPU
 *
 * So whatever shares storage shares values, and the caching allocator does what it does without values. An operation
 * that PyTorch composes of others is let through: those come here one by one. Operations that exist for CUDA alone have
 * kernels in Python, at the same key (python/neap/_twins.py); other keys do not see this one at all.
 *
 * The key is included thread by thread; autograd hands it on to its own.
 */
#include "values_known.cpp"

#include "values_host.cpp"

#include "neap/sim.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/NestedTensorImpl.h>
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
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <torch/library.h>

#include <atomic>
#include <dlfcn.h>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

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

/* -- what to do with an operation ---------------------------------------------------------------------------------- */

enum class Kind {
	Through, /* composed of others, or nothing to compute: the other kernels, which may come back here */
	Custom,  /* a program's or an extension's: of PyTorch's operations, which come here, or a kernel of its own */
	Bare,    /* CUDA's function alone: it computes on the host itself, or has no values */
	Compute,
};

/* Indices that the CPU's function trusts: others than -1, or 0, to the limit would read or write anywhere. */
struct Trusted {
	const char *name, *indices;
	const char
		*limit; /* the argument that has it: a number, or a tensor by its sizes; null: any others may, too */
	int dimensions; /* of those sizes, so many of the last, multiplied; 0: the first one */
};

constexpr Trusted kTrusted[] = {
	{"aten::embedding_dense_backward", "indices", "num_weights", 0},
	{"aten::_embedding_bag_dense_backward", "indices", "num_weights", 0},
	{"aten::_embedding_bag_dense_backward", "offset2bag", "grad", 0},
	{"aten::_embedding_bag_per_sample_weights_backward", "indices", "weight", 0},
	{"aten::_embedding_bag_per_sample_weights_backward", "offset2bag", "grad", 0},
	{"aten::_ctc_loss", "targets", "log_probs", 1},
	{"aten::_ctc_loss_backward", "targets", "log_probs", 1},
	{"aten::max_pool2d_with_indices_backward", "indices", "self", 2},
	{"aten::max_pool3d_with_indices_backward", "indices", "self", 3},
	{"aten::adaptive_max_pool2d_backward", "indices", "self", 2},
	{"aten::adaptive_max_pool3d_backward", "indices", "self", 3},
	{"aten::_convert_indices_from_coo_to_csr", "self", "size", 0},
	{"aten::segment_reduce", "lengths", nullptr, 0},
	{"aten::segment_reduce", "offsets", nullptr, 0},
	{"aten::_segment_reduce_backward", "lengths", nullptr, 0},
	{"aten::_segment_reduce_backward", "offsets", nullptr, 0},
};

/* Of whole numbers: on a CPU the least one divided by -1 is a signal. A GPU gives that number. */
const char *const kDivides[] = {"aten::div",       "aten::div_", "aten::floor_divide", "aten::floor_divide_",
				"aten::remainder", "aten::fmod", "aten::remainder_",   "aten::fmod_",
				"aten::lcm",       "aten::lcm_"};

struct Plan {
	Kind kind;
	bool divides;
	std::vector<const Trusted *> trusts;
	bool seeded;                       /* draws random numbers */
	bool masks;                        /* has indices that may be masks */
	bool overwrites;                   /* its first argument, without reading it */
	bool writer;                       /* host_is_writer */
	int generator;                     /* the argument's place; -1: none */
	std::vector<bool> fresh;           /* by result: it is neither an argument nor a view of one */
	std::vector<int> same;             /* by result that is not fresh: the argument's place */
	std::vector<bool> written;         /* by argument: the operation writes it */
	std::atomic<bool> no_out{false};   /* that cannot do it: a type that only the other one computes in */
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
/* Decides on the host, or has no values. */
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

/* Of their first argument. */
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

/* The variant of `op` that writes into given results, if it is the CPU's own. */
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

/* -- the host's side of a value ------------------------------------------------------------------------------------ */

/* A tensor with bytes on a device. One that Python defines (a fake one of torch.compile) says that it is there, and is not. */
bool is_device(const at::Tensor &tensor)
{
	return tensor.defined() && tensor.is_cuda() && !tensor.key_set().has(DispatchKey::Python);
}

/* Of a kind whose bytes are not those of one plain tensor: sparse, nested, quantized. */
bool is_odd(const at::Tensor &tensor)
{
	return tensor.layout() != c10::kStrided || tensor.is_quantized() || tensor.is_nested() ||
	       !tensor.has_storage();
}

} // namespace

/* The bytes from the tensor's first to its last. */
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

/* The plain tensors that hold the bytes of one that is odd. None: it is of a kind that nobody here knows. */
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

/* Whether `test` holds for a tensor in the value. Nothing is copied: each operation asks this. */
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

/* -- random numbers ------------------------------------------------------------------------------------------------- */

thread_local uint64_t replayed; /* the place of the operation in the graph that is replayed; 0: none is */

/* The seed for one operation, from the generator that CUDA's function drew from just now: the same seed and the same
 * number of draws before give the same values. They are not those of a GPU. */
uint64_t seed_for(const IValue *asked, c10::Device device)
{
	at::Generator generator =
		asked && asked->isGenerator() ? asked->toGenerator() : at::globalContext().defaultGenerator(device);
	std::lock_guard<std::mutex> guard(generator.mutex());

	return hashed(generator.current_seed() * 0x9e3779b97f4a7c15ull + generator.get_offset() + (replayed << 40));
}

/* While it lives, CPU functions draw from `seed`, and the program's own sequence stays where it is. */
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

/* -- one operation ---------------------------------------------------------------------------------------------------- */

/* Below all that stands above this key, and the key itself. */
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

/* -- whether to compute (values=auto) ------------------------------------------------------------------------------ */

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

	return address >= 2ull << 44 && address < kLentEnd;
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

/* Of an operation whose device function has run: `results` ends with its results. */
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

/* What the CPU's function takes, in nanoseconds of one core, roughly. A product of matrices of m x k and k x n elements
 * takes mkn steps: the root of the product of its three sizes. */
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

/* What an operation that is left out probably gives, in whole numbers: a comparison of a value with itself is true, a value
 * is not infinite, the largest of a row is anywhere in it. */
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
std::atomic<bool> brings{false}; /* it has, on any thread */

/* What a collective brings is marked when it is there. */
void await_brought(const std::vector<at::Tensor> &tensors)
{
	for (const at::Tensor &one : tensors)
		if (brings && has_bytes(one))
			simulator.load(std::memory_order_relaxed)
				->open((uint64_t)(uintptr_t)one.const_data_ptr(), values_extent(one));
}

thread_local bool reads_known = true; /* what the operation that is computed now reads */

/* Whether the host computes this operation; if so, missing values that it reads become likely ones. Marks what it writes. */
bool decide(const std::string &name, const Both &both, double cost)
{
	State state = worst_of(both.read);
	/* What reads missing values is not paid for: it would take the time from what can be known. */
	bool exact = !both.written.empty(), affordable = known_take(state == State::Known ? cost : 0), computed;

	for (const at::Tensor &one : both.written)
		exact = exact && !is_inexact(one);
	reads_known = state == State::Known;
	/* A product of likely values is larger than any that a model has: those are of both signs. */
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

DispatchKeySet below(DispatchKeySet keys) { return keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, kKey); }

/* A mask among indices, as the indices of its elements that are set: CUDA's function would look for them itself. */
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

std::mutex unknown_lock;
std::vector<std::string> unknown_names;

void note_unknown(const OperatorHandle &op, Plan &plan, const char *why)
{
	if (plan.noted.exchange(true))
		return;
	std::lock_guard<std::mutex> guard(unknown_lock);
	std::string name = toString(op.operator_name());

	unknown_names.push_back(name + "\t" + std::string(why).substr(0, std::string(why).find('\n')));
}

void mark(const IValue &value, State state)
{
	std::vector<at::Tensor> tensors;

	gather(value, &tensors);
	for (const at::Tensor &one : tensors)
		known_mark(one, state);
}

/* Puts the host's result where CUDA's function has put its own; returns what takes that one's place. */
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

/* Once more in float32, where the CPU has no function for a narrower type. */
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

int64_t limit_of(const IValue &value, int dimensions)
{
	int64_t limit = 1;

	if (value.isInt())
		return value.toInt();
	const at::Tensor &tensor = value.toTensor();

	if (dimensions == 0)
		return tensor.dim() ? tensor.size(0) : 0;
	for (int64_t d = std::max<int64_t>(tensor.dim() - dimensions, 0); d < tensor.dim(); d++)
		limit *= tensor.size(d);
	return limit;
}

/* Throws IndexError for indices by which the CPU's function would leave its tensors. */
void check_trusted(const OperatorHandle &op, const Plan &plan, const Stack &stack)
{
	size_t begin = stack.size() - plan.written.size();

	for (const Trusted *one : plan.trusts) {
		const IValue &indices = stack[begin + (size_t)*op.schema().argumentIndexWithName(one->indices)];

		if (!indices.isTensor() || !indices.toTensor().defined() || !indices.toTensor().numel())
			continue;
		TORCH_CHECK_INDEX(one->limit || reads_known, one->indices, " are not known");
		if (!one->limit)
			continue;
		auto [least, most] = indices.toTensor().aminmax();
		int64_t limit = limit_of(stack[begin + (size_t)*op.schema().argumentIndexWithName(one->limit)],
					 one->dimensions);

		TORCH_CHECK_INDEX(least.item<int64_t>() >= (one->dimensions > 1 ? -1 : 0) &&
					  most.item<int64_t>() < limit,
				  one->indices, " out of bounds: on a GPU, an assertion of the device");
	}
}

at::Tensor tensor_of(const IValue &value)
{
	if (value.isTensor())
		return value.toTensor();
	return at::scalar_tensor(value.toScalar(), at::TensorOptions(value.toScalar().type()));
}

/* Divides by 1 what would overflow when it is divided by -1: the result is the same number, or no rest. Throws where there
 * is no such way. */
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

/* The CPU's function on `stack`. False: there is none, or it cannot do this; the reason is noted. */
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
		} catch (const c10::Error &) {
			if (!has_half(again))
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
		/* Of one type, or of all. */
		plan.unknown = !op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
		note_unknown(op, plan, error.what_without_backtrace());
		return false;
	} catch (const c10::Error &error) {
		note_unknown(op, plan, error.what_without_backtrace());
		return false;
	} catch (const std::exception &error) {
		note_unknown(op, plan, error.what());
		return false;
	}
	return true;
}

/* Into CUDA's results at once. False: not possible, nothing is done. */
bool call_out(Plan &plan, const std::vector<IValue> &arguments, Stack *results)
{
	Stack stack;

	if (!plan.out || plan.no_out || plan.unknown || !plan.trusts.empty())
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
	Silent silent; /* where the results have another shape there is a warning, and the other way */
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

/* The results of the CPU's function, on what `ret_results` holds or, if that is empty, on the arguments' host sides. False: it
 * has none. */
bool host_results(const OperatorHandle &op, Plan &plan, c10::Device device, const std::vector<IValue> &arguments,
		  Stack *ret_results)
{
	std::unique_ptr<Seeded> seeded;

	if (plan.unknown)
		return false;
	if (ret_results->empty())
		for (const IValue &value : arguments)
			ret_results->push_back(host_value(value));
	if (plan.seeded) {
		const IValue *asked = plan.generator >= 0 ? &arguments[(size_t)plan.generator] : nullptr;

		seeded = std::make_unique<Seeded>(seed_for(asked, device));
		if (asked)
			(*ret_results)[(size_t)plan.generator] = IValue();
	}
	return call_host(op, plan, ret_results);
}

/* A result that got its size and its block after it was marked: what stood there before says nothing about it. */
void mark_resized(const IValue &result, int64_t elements, const std::vector<IValue> &arguments)
{
	Both both;

	if (elements < 0 || result.toTensor().numel() == elements || !known_matters() || is_odd(result.toTensor()))
		return;
	for (const IValue &value : arguments)
		gather(value, &both.read);
	known_mark(result.toTensor(), worst_of(both.read) == State::Known ? State::Known : State::Likely);
}

void compute_host(const OperatorHandle &op, Plan &plan, c10::Device device, const std::vector<IValue> &arguments,
		  Stack *results)
{
	Below guard;
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

		if (!plan.fresh[i])
			continue;
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

/* In place of those of CUDA's function. */
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

/* CUDA's function failed, blind. If it did because of what it would have read, the CPU's does not fail: then the results
 * are that one's, on the device. Else its own error is the program's. */
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

/* False: it failed after it had read zeros in place of values, and not for want of memory or by the device's own error. */
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

/* -- graphs: what a capture launches is computed by each replay ------------------------------------------------------- */

struct Captured {
	c10::optional<OperatorHandle> op; /* none: a twin's, which Python computes */
	Plan *plan;
	c10::Device device;
	std::vector<IValue> arguments; /* the host's side: it keeps no block of the device */
	Stack results;                 /* likewise */
	Both both;                     /* likewise */
};

struct {
	std::mutex lock;
	std::atomic<int64_t> open{-1};
	int64_t next = 0; /* the number of the recording that takes captured operations; -1: none */
	std::unordered_map<int64_t, std::shared_ptr<std::vector<Captured>>> all;
} recordings;

bool is_capturing()
{
	return recordings.open >= 0 &&
	       c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

void add_captured(Captured one)
{
	std::lock_guard<std::mutex> guard(recordings.lock);
	auto &list = recordings.all[recordings.open];

	if (!list)
		list = std::make_shared<std::vector<Captured>>();
	list->push_back(std::move(one));
}

std::shared_ptr<std::vector<Captured>> captured_of(int64_t number)
{
	std::lock_guard<std::mutex> guard(recordings.lock);
	auto found = recordings.all.find(number);

	return found == recordings.all.end() ? nullptr : found->second;
}

void capture(const OperatorHandle &op, Plan &plan, const std::vector<IValue> &arguments, const Stack &results)
{
	Captured one{op, &plan, device_of(arguments), {}, {}, both_of(op, plan, arguments, results)};

	for (const IValue &value : arguments)
		one.arguments.push_back(host_value(value));
	for (const IValue &value : results)
		one.results.push_back(host_value(value));
	for (auto *list : {&one.both.read, &one.both.written})
		for (at::Tensor &tensor : *list)
			tensor = host(tensor);
	add_captured(std::move(one));
}

int64_t capture_begin()
{
	std::lock_guard<std::mutex> guard(recordings.lock);

	return recordings.open = recordings.next++;
}

void capture_end()
{
	std::lock_guard<std::mutex> guard(recordings.lock);

	recordings.open = -1;
}

void capture_drop(int64_t number)
{
	std::lock_guard<std::mutex> guard(recordings.lock);

	recordings.all.erase(number);
}

/* A twin's operation: whether it is captured, so that `replay` stops at it. */
bool capture_twin()
{
	if (!is_capturing())
		return false;
	add_captured(Captured{c10::nullopt, nullptr, c10::Device(at::kCUDA, 0), {}, {}, {}});
	return true;
}

/* Computes the operations of a recording from `from` on, to its end or to a twin's. Returns the place after that one, 0 at the
 * end. */
int64_t replay(int64_t number, int64_t from)
{
	auto found = captured_of(number);

	replayed = 0;
	if (!found)
		return 0;
	for (size_t i = (size_t)from; i < found->size(); i++) {
		Captured &one = (*found)[i];
		Stack results = one.results;

		replayed = i + 1;
		if (!one.op)
			return (int64_t)i + 1;
		if (worth(one.op->schema().name(), [&] { return one.both; }))
			compute_host(*one.op, *one.plan, one.device, one.arguments, &results);
		replayed = 0;
	}
	return 0;
}

/* After a collective that is not NCCL's: what it brought is as good as what it took; what other processes sent is likely at
 * least. */
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

/* Nobody computes what it writes: that is noted, and its results are missing. What it writes in place stays. */
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

/* -- sparse, nested and quantized tensors --------------------------------------------------------------------------------- */

/* The dispatcher calls a sparse or nested tensor's own function before `compute`. Before that one stands BackendSelect, which
 * is for operations without tensors. */
constexpr DispatchKey kOddKey = DispatchKey::BackendSelect;
constexpr DispatchKey kOddKeys[] = {DispatchKey::SparseCUDA, DispatchKey::SparseCsrCUDA,
				    DispatchKey::NestedTensorCUDA, DispatchKey::QuantizedCUDA};
/* They change what a sparse tensor consists of, by other operations. */
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

/* The CPU's function may have given a sparse tensor other members. */
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

/* Throws for a sparse tensor whose indices leave it; `strict`: also where PyTorch would not check them. */
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

/* On the host's sides that the arguments had before CUDA's function replaced their members. Sizes depend on the values, so
 * they are always computed. */
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

void compute_sparse(const OperatorHandle &op, DispatchKeySet keys, Stack *stack)
{
	size_t begin = stack->size() - op.schema().arguments().size();
	DispatchKeySet rest = keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, kOddKey);
	bool odd = false;

	for (size_t i = begin; i < stack->size(); i++)
		odd = odd || is_odd_value((*stack)[i]);
	if (odd && simulator.load() && c10::impl::tls_is_dispatch_key_included(kKey) &&
	    !c10::impl::tls_is_dispatch_key_excluded(kKey))
		compute_odd(op, plan_of(op), rest, stack, begin);
	else
		op.redispatchBoxed(rest, stack);
}

void compute(const OperatorHandle &op, DispatchKeySet keys, Stack *stack)
{
	size_t begin = stack->size() - op.schema().arguments().size();
	bool device = false, odd = false;

	for (size_t i = begin; i < stack->size(); i++) {
		device = device || is_on_device((*stack)[i]);
		odd = odd || is_odd_value((*stack)[i]);
	}
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
		else if (worth(op.schema().name(), [&] { return both_of(op, plan, arguments, *stack); }))
			compute_host(op, plan, device_of(arguments), arguments, stack);
		return;
	}
	stack->resize(begin);
	compute_alone(op, plan, arguments, stack, failure);
}

/* -- for Python -------------------------------------------------------------------------------------------------------- */

Both both_from(at::TensorList read, at::TensorList written)
{
	Both both;

	for (const at::Tensor &one : read)
		gather(one, &both.read);
	for (const at::Tensor &one : written)
		gather(one, &both.written);
	return both;
}

/* For a twin: whether it computes from `read` what belongs into `written`. */
bool decide_twin(const std::string &name, at::TensorList read, at::TensorList written)
{
	return worth(name, [&] { return both_from(read, written); });
}

/* For compiled code, of which Python knows the cost. */
bool decide_cost(double cost_ns, at::TensorList read, at::TensorList written)
{
	bool is_short = known_is_short();

	if (!is_short && !known_matters() && !brings)
		return true;
	Both both = both_from(read, written);

	await_brought(both.read);
	return (!is_short && !known_matters()) || decide("", both, cost_ns);
}

/* It could not be computed; `stays`: it has what it had before. */
void mark_unknown(const at::Tensor &tensor, bool stays) { mark(tensor, stays ? State::Likely : State::Missing); }

bool is_on() { return simulator.load() != nullptr; }

at::Tensor host_tensor(const at::Tensor &tensor) { return host(tensor); }

void set_blind(bool on) { simulator.load(std::memory_order_relaxed)->blind(on); }

at::Tensor store_tensor(const at::Tensor &to, const at::Tensor &from)
{
	Below guard;

	return store(to, from);
}

/* The seed for what a function draws that CUDA's own function on this device drew just now. */
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
	library.def("mark_unknown(Tensor self, bool stays) -> ()", neap_torch::mark_unknown);
	library.def("unknown() -> str", neap_torch::take_unknown);
	library.def("refused() -> int", neap_torch::take_refused);
}

/* Puts `compute` before each operation that it computes. To be called once, before the key is included anywhere. `twins`:
 * the operations that have a kernel in Python, a line each. */
extern "C" __attribute__((visibility("default"))) void neap_values_register(const char *twins)
{
	static std::vector<c10::RegistrationHandleRAII> kept;
	std::string lines = std::string("\n") + twins + "\n";

	/* All of them: where an operation is composed by default, that would stand at this key instead of the fallback, and
	 * before another device's own function. */
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

/* CUDA is initialised: from here on values are computed; `whole`: all of them, else what is worth it; either in at most so
 * many bytes of host memory. False: the process's libcudart is not neap's, or NEAP_SIM forbids it. */
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

/* The process's own tensors, from now on: beyond so many bytes of host memory, together with values, large ones are lent theirs
 * (values_host.h). Once. */
extern "C" __attribute__((visibility("default"))) void neap_values_lend(uint64_t most_bytes)
{
	neap_torch::host_start(most_bytes);
}

/* The most bytes that were lent at one time. */
extern "C" __attribute__((visibility("default"))) uint64_t neap_values_lent(void) { return neap_torch::host_lent(); }

/* Of the bytes of a tensor, without the dispatcher, where the program's own modes would see it. 0: known, 1: likely,
 * 2: missing. */
extern "C" __attribute__((visibility("default"))) int neap_values_state(uint64_t address, uint64_t bytes)
{
	if (neap_torch::brings)
		neap_torch::simulator.load()->open(address, bytes);
	return (int)neap_torch::known_state_of(address, bytes);
}

extern "C" __attribute__((visibility("default"))) void neap_values_step(void) { neap_torch::known_step(); }

/* For NCCL, through libcudart: what is known of the bytes that a call takes; missing: they are not worth moving. */
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
