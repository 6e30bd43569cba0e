/* torch/values_host.cpp: see values_host.h. A part of values.cpp. */
#include "values_host.h"

#include "races.h"
#include "values_known.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Utils.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace neap_torch
{

namespace
{

class Silent : public c10::WarningHandler
{
	void process(const c10::Warning &) override {}
};

constexpr uint64_t kLargeBytes = 1u << 20; /* of a tensor's memory: smaller ones are neither counted nor lent */
constexpr uint64_t kWindowBytes = 64u << 20;
constexpr uint64_t kPageBytes = 4096;
constexpr uint16_t kLeastNumber = 0x3c00,
		   kNumbers = 0x380; /* bfloat16: 0.0078 to 1, in any wider type positive, too */

struct {
	std::mutex lock;
	std::multimap<uint64_t, uintptr_t> free; /* by bytes */
	uintptr_t next = kLentBegin, mapped = kLentBegin;
	int file = -1;
	uint64_t most_bytes = 0, lent = 0, lent_most = 0; /* most_bytes 0: nothing is lent */
	std::atomic<uint64_t> real{0};
	std::atomic<bool> any{false};
} lender;

/* -- lent memory ------------------------------------------------------------------------------------------------------ */

/* Lock held. The file behind every window, with its numbers; -1: there is none. */
int window_file()
{
	if (lender.file >= 0)
		return lender.file;
	int file = memfd_create("neap-lent", MFD_CLOEXEC);
	std::vector<uint16_t> numbers(kWindowBytes / sizeof(uint16_t));
	size_t written = 0;

	for (size_t i = 0; i < numbers.size(); i++)
		numbers[i] = (uint16_t)(kLeastNumber + hashed(i + 1) % kNumbers);
	while (file >= 0 && written < kWindowBytes) {
		ssize_t count = write(file, (char *)numbers.data() + written, kWindowBytes - written);

		if (count > 0) {
			written += (size_t)count;
		} else if (count == 0 || errno != EINTR) {
			close(file);
			file = -1;
		}
	}
	return lender.file = file;
}

/* Lock held. Maps windows up to `end`. */
bool map_windows(uintptr_t end)
{
	int file = window_file();

	while (file >= 0 && lender.mapped < end) {
		void *at = mmap((void *)lender.mapped, kWindowBytes, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, file, 0);

		if (at != (void *)lender.mapped) {
			if (at != MAP_FAILED)
				munmap(at, kWindowBytes); /* a kernel that does not know MAP_FIXED_NOREPLACE */
			return false;
		}
		lender.mapped += kWindowBytes;
	}
	return file >= 0;
}

/* 0: there are no addresses left, or no mappings (vm.max_map_count). */
uintptr_t lend(uint64_t bytes)
{
	std::lock_guard<std::mutex> guard(lender.lock);
	auto found = lender.free.find(bytes);
	uintptr_t at = lender.next;

	if (found != lender.free.end()) {
		at = found->second;
		lender.free.erase(found);
	} else if (bytes > kLentEnd - at || !map_windows(at + bytes)) {
		return 0;
	} else {
		lender.next = at + bytes;
	}
	lender.lent += bytes;
	lender.lent_most = std::max(lender.lent_most, lender.lent);
	lender.any.store(true, std::memory_order_relaxed);
	return at;
}

uint64_t whole_pages(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

struct Loan {
	uintptr_t address;
	uint64_t bytes;
};

void take_back(void *context)
{
	auto *loan = (Loan *)context;

	{
		std::lock_guard<std::mutex> guard(lender.lock);

		lender.free.emplace(loan->bytes, loan->address);
		lender.lent -= loan->bytes;
	}
	delete loan;
}

/* A block of ordinary memory, which is counted. */
struct Counted {
	c10::DataPtr memory;
	uint64_t bytes;
};

void discount(void *context)
{
	auto *counted = (Counted *)context;

	lender.real -= counted->bytes;
	delete counted;
}

class Lender : public c10::Allocator
{
      public:
	c10::DataPtr allocate(size_t bytes) override
	{
		uint64_t whole = whole_pages(bytes);
		uintptr_t at = 0;

		if (bytes < kLargeBytes)
			return c10::GetCPUAllocator()->allocate(bytes);
		if (lender.real + values_bytes() + whole > lender.most_bytes)
			at = lend(whole);
		if (at) {
			known_mark_range(at, whole, State::Missing);
			known_measure();
			return {(void *)at, new Loan{at, whole}, take_back, c10::Device(at::kCPU)};
		}
		auto counted =
			std::make_unique<Counted>(Counted{c10::GetCPUAllocator()->allocate(bytes), (uint64_t)whole});
		void *address = counted->memory.get();

		lender.real += whole;
		return {address, counted.release(), discount, c10::Device(at::kCPU)};
	}
	void copy_data(void *to, const void *from, std::size_t bytes) const override
	{
		default_copy_data(to, from, bytes);
	}
};

Lender *the_lender()
{
	static auto *one = new Lender; /* the interpreter's end frees tensors after this object's */

	return one;
}

/* -- new tensors ------------------------------------------------------------------------------------------------------ */

uint64_t elements_of(c10::IntArrayRef sizes)
{
	uint64_t elements = 1;

	for (int64_t size : sizes)
		if (size < 0 || __builtin_mul_overflow(elements, (uint64_t)size, &elements))
			return 0;
	return elements;
}

/* The arguments of aten::empty and aten::empty_strided. */
struct Asked {
	std::vector<int64_t> sizes, strides;
	bool strided, symbolic = false;
	c10::optional<at::ScalarType> type;
	c10::optional<at::Layout> layout;
	c10::optional<at::Device> device;
	bool pinned;
	c10::optional<at::MemoryFormat> format;
};

Asked asked_of(const torch::jit::Stack &stack, size_t begin, bool strided)
{
	Asked asked;
	const c10::IValue *more = &stack[begin + (strided ? 2 : 1)];

	asked.strided = strided;
	asked.symbolic = !stack[begin].isIntList() || (strided && !stack[begin + 1].isIntList());
	if (!asked.symbolic)
		asked.sizes = stack[begin].toIntVector();
	if (!asked.symbolic && strided)
		asked.strides = stack[begin + 1].toIntVector();
	asked.type = more[0].toOptional<at::ScalarType>();
	asked.layout = more[1].toOptional<at::Layout>();
	asked.device = more[2].toOptional<at::Device>();
	asked.pinned = more[3].toOptional<bool>().value_or(false);
	if (!strided)
		asked.format = more[4].toOptional<at::MemoryFormat>();
	return asked;
}

bool is_large(const Asked &asked)
{
	at::ScalarType type = asked.type.value_or(at::get_default_dtype_as_scalartype());

	return lender.most_bytes && !asked.symbolic && !asked.pinned &&
	       asked.layout.value_or(at::kStrided) == at::kStrided && asked.device.value_or(at::kCPU).is_cpu() &&
	       (at::isFloatingType(type) || at::isComplexType(type)) &&
	       elements_of(asked.sizes) * c10::elementSize(type) >= kLargeBytes;
}

/* Takes the place of the function that chooses the backend by the device, and does the same. */
template <bool strided> void make_empty(const c10::OperatorHandle &op, c10::DispatchKeySet, torch::jit::Stack *stack)
{
	size_t begin = stack->size() - op.schema().arguments().size();
	Asked asked = asked_of(*stack, begin, strided);

	if (!is_large(asked)) {
		op.redispatchBoxed(
			c10::DispatchKeySet(c10::computeDispatchKey(asked.type, asked.layout, asked.device)), stack);
		if (asked.pinned)
			races_new_pinned(stack->back().toTensor());
		return;
	}
	at::ScalarType type = asked.type.value_or(at::get_default_dtype_as_scalartype());
	c10::DispatchKeySet keys(c10::DispatchKey::CPU);
	at::Tensor made =
		strided ? at::detail::empty_strided_generic(asked.sizes, asked.strides, the_lender(), keys, type)
			: at::detail::empty_generic(asked.sizes, the_lender(), keys, type, asked.format);

	stack->resize(begin);
	stack->emplace_back(std::move(made));
}

/* -- operations that are left out ------------------------------------------------------------------------------------- */

/* A fake tensor of torch.compile, which Python defines, has no bytes. */
bool is_plain(const at::Tensor &tensor)
{
	return tensor.defined() && tensor.is_cpu() && !tensor.key_set().has(c10::DispatchKey::Python) &&
	       tensor.layout() == c10::kStrided && tensor.has_storage() && !tensor.is_quantized();
}

bool is_lent(const at::Tensor &tensor)
{
	return is_plain(tensor) && host_is_lent((uintptr_t)tensor.storage().data());
}

at::Tensor without_bytes(const at::Tensor &tensor)
{
	return at::empty_strided(tensor.sizes(), tensor.strides(),
				 tensor.options().device(at::kMeta).pinned_memory(false));
}

constexpr int kState = at::MERSENNE_STATE_N, kMiddle = at::MERSENNE_STATE_M;

uint32_t twisted(uint32_t one, uint32_t next)
{
	return (((one & 0x80000000u) | (next & 0x7fffffffu)) >> 1) ^ (-(next & 1u) & 0x9908b0dfu);
}

/* The next 624 numbers of the generator (MT19937), in place. */
#pragma GCC push_options
#pragma GCC optimize("O3")
void turn(uint32_t *state)
{
	for (int i = 0; i < kState - kMiddle; i++)
		state[i] = state[i + kMiddle] ^ twisted(state[i], state[i + 1]);
	for (int i = kState - kMiddle; i < kState - 1; i++)
		state[i] = state[i + kMiddle - kState] ^ twisted(state[i], state[i + 1]);
	state[kState - 1] = state[kMiddle - 1] ^ twisted(state[kState - 1], state[0]);
}
#pragma GCC pop_options

/* The generator goes on as if so many numbers of 32 bits had been drawn. */
void skip(at::Generator generator, uint64_t draws)
{
	auto *own = at::check_generator<at::CPUGeneratorImpl>(generator);
	std::lock_guard<std::mutex> guard(own->mutex_);
	at::mt19937 engine = own->engine();
	at::mt19937_data_pod data = engine.data();

	/* `left_` - 1 numbers are there. The draw after them makes the next ones, of which it takes the first. */
	while (draws >= (uint64_t)data.left_) {
		draws -= (uint64_t)data.left_;
		turn(data.state_.data());
		data.left_ = kState;
		data.next_ = 1;
	}
	data.left_ -= (int)draws;
	data.next_ += (uint32_t)draws;
	engine.set_data(data);
	own->set_engine(engine);
}

/* How many numbers of 32 bits the operation draws for so few elements, at most 47. */
uint64_t draws_of_few(const c10::OperatorHandle &op, torch::jit::Stack arguments, int64_t elements)
{
	constexpr int64_t kGap = 2; /* stands for a tensor that is not contiguous */
	at::Tensor written = arguments[0].toTensor();
	at::Generator generator = at::detail::createCPUGenerator(0);
	bool whole = written.is_contiguous();
	at::Tensor few = at::empty_strided({elements}, {whole ? 1 : kGap}, written.options());

	for (size_t i = 0; i < arguments.size(); i++)
		if (op.schema().arguments()[i].name() == "generator")
			arguments[i] = generator;
	arguments[0] = few;
	op.callBoxed(&arguments);
	int left = at::check_generator<at::CPUGeneratorImpl>(generator)->engine().data().left_;

	return left == 1 ? 0 : (uint64_t)(kState + 1 - left);
}

/* How many numbers of 32 bits the operation draws. PyTorch's functions draw equally many for each 16 elements, and
 * perhaps some more for the remaining ones. */
uint64_t draws_for(const c10::OperatorHandle &op, const torch::jit::Stack &arguments)
{
	int64_t elements = arguments[0].toTensor().numel(), few = std::min<int64_t>(elements, 16 + elements % 16);
	uint64_t draws = draws_of_few(op, arguments, few);

	if (elements == few)
		return draws;
	return draws + (draws_of_few(op, arguments, few + 16) - draws) * (uint64_t)((elements - few) / 16);
}

} // namespace

void host_watch()
{
	static std::vector<c10::RegistrationHandleRAII> *kept = new std::vector<c10::RegistrationHandleRAII>;
	auto &dispatcher = c10::Dispatcher::singleton();
	Silent silent; /* PyTorch warns of a second function at one key */
	c10::WarningUtils::WarningHandlerGuard quiet(&silent);

	if (!kept->empty())
		return;
	for (bool strided : {false, true})
		kept->push_back(dispatcher.registerImpl(
			strided ? c10::OperatorName("aten::empty_strided", "")
				: c10::OperatorName("aten::empty", "memory_format"),
			c10::DispatchKey::BackendSelect,
			strided ? c10::KernelFunction::makeFromBoxedFunction<&make_empty<true>>()
				: c10::KernelFunction::makeFromBoxedFunction<&make_empty<false>>(),
			std::nullopt, nullptr, "neap"));
}

void host_start(uint64_t most_bytes)
{
	lender.most_bytes = most_bytes;
	host_watch();
}

bool host_lends() { return lender.any.load(std::memory_order_relaxed); }

uint64_t host_taken() { return host_lends() ? lender.real.load() : 0; }

uint64_t host_lent()
{
	std::lock_guard<std::mutex> guard(lender.lock);

	return lender.lent_most;
}

bool host_is_writer(const c10::OperatorHandle &op, bool overwrites)
{
	const auto &schema = op.schema();
	bool pointwise = false;
	size_t written = 0;

	for (const auto &tag : op.getTags())
		pointwise = pointwise || tag == at::Tag::pointwise;
	for (const auto &argument : schema.arguments())
		written += argument.alias_info() && argument.alias_info()->isWrite();
	return written == 1 && schema.arguments()[0].alias_info() && !schema.arguments()[0].is_out() &&
	       schema.returns().size() == 1 && schema.returns()[0].alias_info() && (pointwise || overwrites) &&
	       (op.hasKernelForDispatchKey(c10::DispatchKey::CPU) || schema.name() == "aten::copy_");
}

bool host_leaves_out(const c10::OperatorHandle &op, torch::jit::Stack *stack, size_t begin)
{
	c10::impl::ExcludeDispatchKeyGuard guard(c10::autograd_dispatch_keyset_with_ADInplaceOrView |
						 c10::DispatchKeySet(c10::DispatchKey::CustomRNGKeyId));
	at::Generator generator = at::detail::getDefaultCPUGenerator();
	torch::jit::Stack shapes;

	if (!(*stack)[begin].isTensor() || !is_lent((*stack)[begin].toTensor()))
		return false;
	at::Tensor written = (*stack)[begin].toTensor();

	for (size_t i = begin; i < stack->size(); i++) {
		const c10::IValue &value = (*stack)[i];

		if (value.isTensorList() || (value.isTensor() && !is_plain(value.toTensor())))
			return false;
		if (value.isGenerator())
			generator = value.toGenerator();
		shapes.push_back(value.isTensor()      ? without_bytes(value.toTensor())
				 : value.isGenerator() ? c10::IValue()
						       : value);
	}
	try {
		op.callBoxed(&shapes);
	} catch (const c10::NotImplementedError &) {
		return false;
	}
	for (const auto &tag : op.getTags())
		if (tag == at::Tag::nondeterministic_seeded)
			skip(generator, draws_for(op, {stack->begin() + (ptrdiff_t)begin, stack->end()}));
	stack->resize(begin);
	stack->emplace_back(std::move(written));
	return true;
}

} // namespace neap_torch
