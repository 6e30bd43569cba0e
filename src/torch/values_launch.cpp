/* torch/values_launch.cpp: forgets values that kernels outside of PyTorch's operations may write: kernels of CUDA
 * extensions, and kernels that the program loads through the driver's API (numba, nvRTC). A part of values.cpp.
 *
 * Nobody computes such a kernel. Its C++ name has its parameters' types: it may write through a pointer to a type
 * that is not const. A kernel without such a name (extern "C") may write through each of its arguments. If a graph
 * captures the kernel, each replay forgets the values.
 */
#include <cxxabi.h>
#include <sstream>
#include <sys/uio.h>

namespace neap_torch
{

namespace
{

constexpr size_t kMostArguments = 256, kUnnamedArguments = 16;
constexpr size_t kMostPacked = 4096; /* bytes */
constexpr size_t kLookedAt = 4096;   /* bytes of a block */

struct {
	std::mutex lock;
	std::map<uint64_t, uint64_t> blocks; /* PyTorch's, by address: bytes */
	Plan plan{};
	std::unordered_map<std::string, bool> noted;
} launches;

/* Reads this process's memory, which may not be mapped. */
bool read_carefully(const void *from, void *into, size_t bytes)
{
	iovec to = {into, bytes}, source = {const_cast<void *>(from), bytes};

	return process_vm_readv(getpid(), &to, 1, &source, 1, 0) == (ssize_t)bytes;
}

/* `is_there`: at least one byte of it is mapped. A word at a multiple of its size lies in one page. */
bool read_word(const void *from, bool is_there, uint64_t *ret_word)
{
	if (!is_there || (uintptr_t)from % sizeof *ret_word != 0)
		return read_carefully(from, ret_word, sizeof *ret_word);
	__builtin_memcpy(ret_word, from, sizeof *ret_word);
	return true;
}

/* Whether the type is a pointer or a number, and so one parameter of the kernel with every compiler. numba makes
 * several parameters of an array. */
bool is_plain(const std::string &type)
{
	static const std::string numbers = " bool char signed unsigned short int long float double ";
	std::istringstream words(type);
	std::string word;

	if (!type.empty() && (type.back() == '*' || type.back() == '&'))
		return true;
	while (words >> word)
		if (numbers.find(" " + word + " ") == std::string::npos)
			return false;
	return true;
}

/* For each parameter, whether the kernel may write through it. Empty: not known. */
std::vector<bool> writes_of(const std::string &name, bool *ret_plain)
{
	std::vector<bool> writes;
	size_t at = name.rfind(')');
	int depth = 0;
	std::string type;

	*ret_plain = true;
	if (at == std::string::npos)
		return writes;
	for (size_t i = at; i-- > 0;) { /* from the last parameter to the first */
		char c = name[i];

		if (depth == 0 && (c == ',' || c == '(')) {
			writes.push_back(type.find("const") == std::string::npos);
			*ret_plain = *ret_plain && is_plain(type);
			type.clear();
			if (c == '(')
				break;
			continue;
		}
		depth += c == ')' || c == '>' || c == ']';
		depth -= c == '(' || c == '<' || c == '[';
		type.insert(type.begin(), c);
	}
	std::reverse(writes.begin(), writes.end());
	return writes;
}

struct Range {
	uint64_t begin, bytes; /* 0: none */
};

/* The part of the driver's allocation around the address that lies between `low` and `high`. */
Range driver_range(uint64_t address, uint64_t low, uint64_t high)
{
	static int (*const find)(unsigned long long *, size_t *, unsigned long long) = [] {
		void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);

		return (int (*)(unsigned long long *, size_t *, unsigned long long))(
			driver ? dlsym(driver, "cuMemGetAddressRange_v2") : nullptr);
	}();
	unsigned long long begin = 0;
	size_t bytes = 0;

	if (address < kDevicesBegin || address >= kLentBegin || !find || find(&begin, &bytes, address) != 0)
		return {0, 0};
	low = std::max<uint64_t>(low, begin);
	return {low, std::min<uint64_t>(high, begin + bytes) - low};
}

/* PyTorch's block at the address, or else memory that is not PyTorch's. */
Range range_at(uint64_t address)
{
	uint64_t low = 0, high = UINT64_MAX;

	{
		std::lock_guard<std::mutex> guard(launches.lock);
		auto after = launches.blocks.upper_bound(address);

		if (after != launches.blocks.end())
			high = after->first;
		if (after != launches.blocks.begin()) {
			auto [begin, bytes] = *std::prev(after);

			if (address - begin < bytes)
				return {begin, bytes};
			low = begin + bytes;
		}
	}
	return driver_range(address, low, high);
}

/* Marks the values in the range as likely ones; zeros, which a kernel would have overwritten, as missing. */
void forget_range(Range range)
{
	char content[kLookedAt];
	size_t looked_at = std::min(range.bytes, kLookedAt);

	simulator.load()->open(range.begin, range.bytes);
	bool zeros = read_carefully((const void *)(uintptr_t)range.begin, content, looked_at) &&
		     std::all_of(content, content + looked_at, [](char c) { return c == 0; });

	known_mark_range(range.begin, range.bytes, zeros ? State::Missing : State::Likely);
}

void forget_block(uint64_t address)
{
	Range range = range_at(address);

	if (range.bytes == 0)
		return;
	if (is_capturing())
		add_captured_effect([range] { forget_range(range); });
	else
		forget_range(range);
}

void note_launch(const std::string &name, const char *why)
{
	std::lock_guard<std::mutex> guard(launches.lock);

	if (launches.noted.emplace(name, true).second) {
		launches.plan.noted = false;
		note_unknown(name, launches.plan, why);
	}
}

/* `loaded`: the program loaded the kernel; else it is an extension's, compiled as its C++ name says. `count`: the
 * number of arguments; 0: not known. */
void forget_launched(const char *symbol, void *const *arguments, size_t count, bool loaded)
{
	char *text = abi::__cxa_demangle(symbol, nullptr, nullptr, nullptr);
	std::string name = text ? text : symbol;
	bool plain;
	std::vector<bool> writes = writes_of(name, &plain);

	free(text);
	note_launch(name.substr(0, name.find('(')),
		    loaded ? "a kernel that the program loaded" : "a kernel of an extension");
	if (writes.empty() || (count ? writes.size() != count : loaded && !plain))
		writes.assign(count ? count : kUnnamedArguments, true);
	for (size_t i = 0; arguments && i < std::min(writes.size(), kMostArguments); i++) {
		uint64_t place, address;

		if (!read_word(arguments + i, count > 0, &place) || !place)
			return;
		if (read_word((const void *)(uintptr_t)place, count > 0, &address)) {
			if (writes[i])
				forget_block(address);
		} else if (count == 0) {
			return;
		}
	}
}

/* Forgets the range at each address among the packed bytes. */
void forget_packed(const void *packed, size_t bytes)
{
	uint64_t address;

	for (size_t at = 0; packed && at + sizeof address <= std::min(bytes, kMostPacked); at += sizeof address)
		if (read_word((const char *)packed + at, true, &address))
			forget_block(address);
}

} // namespace

} // namespace neap_torch

/* PyTorch's allocator hands out a block, or takes one back (`bytes` below 0). From sim/runtime/torch.c. */
extern "C" __attribute__((visibility("default"))) void neap_values_block(uint64_t address, int64_t bytes)
{
	std::lock_guard<std::mutex> guard(neap_torch::launches.lock);

	if (bytes > 0)
		neap_torch::launches.blocks[address] = (uint64_t)bytes;
	else
		neap_torch::launches.blocks.erase(address);
}

/* An extension launches a kernel. From sim/runtime/kernel.c; raises nothing. */
extern "C" __attribute__((visibility("default"))) void neap_values_launched(const char *symbol,
									    void *const *arguments)
{
	try {
		neap_torch::forget_launched(symbol, arguments, 0, false);
	} catch (const std::exception &) { /* the host is out of memory: the values count as known */
	}
}

/* The program launches a kernel that it loaded itself. From sim/driver/launch.c; raises nothing. */
extern "C" __attribute__((visibility("default"))) void neap_values_loaded(const neap_sim_launch *launch)
{
	try {
		neap_torch::forget_launched(launch->name, launch->parameters, launch->count, true);
		neap_torch::forget_packed(launch->packed, launch->packed_bytes);
	} catch (const std::exception &) { /* as above */
	}
}
