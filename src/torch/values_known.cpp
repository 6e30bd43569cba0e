/* torch/values_known.cpp: see values_known.h. A part of values.cpp. */
#include "values_known.h"

#include "values_host.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>

namespace neap_torch
{

at::Tensor host(const at::Tensor &tensor);
uint64_t values_extent(const at::Tensor &tensor);
uint64_t values_bytes();

namespace
{

constexpr double kStepNs = 1e9;       /* the least time for each step */
constexpr double kOperationNs = 30e3; /* and for each operation: three times its time without values */
constexpr double kCheapNs = 50e3;
constexpr double kSmallNs = 2e6;    /* at most: paid from a second of its own, which no large product can spend */
constexpr double kMovedPerNs = 0.5; /* bytes between ranks: packed, sent, reduced, written */
constexpr uint64_t kLargestBytes = 1ull << 30; /* of an operation's results, while there is much room: unchecked */
constexpr uint64_t kAlwaysBytes = 1u << 16;    /* such results always have room */

struct Piece {
	uintptr_t end;
	State state;
	int64_t guess;
};

struct {
	std::mutex lock;
	std::map<uintptr_t, Piece> pieces; /* by begin; disjoint; bytes outside of all pieces are known */
	std::atomic<bool> any{false};
	bool leaves_out = false;
	uint64_t most_bytes = 0;
	std::atomic<int64_t> until_measured{0}; /* operations */
	std::atomic<bool> is_short{false};
	std::atomic<bool> refused{false};
	double spent = 0, spent_small = 0, given = 0; /* of this step */
} known;

/* From the tensor's first byte to the one after its last. */
std::pair<uintptr_t, uintptr_t> span(const at::Tensor &tensor)
{
	uintptr_t begin = (uintptr_t)tensor.const_data_ptr();

	return {begin, begin + values_extent(tensor)};
}

bool has_bytes(const at::Tensor &tensor)
{
	return tensor.defined() && tensor.layout() == c10::kStrided && tensor.has_storage() && tensor.numel() > 0;
}

/* How many bytes of the pages under the tensor have no host memory yet. */
uint64_t absent_bytes(const at::Tensor &tensor)
{
	constexpr uintptr_t kPages = 4096; /* pages per call */
	static const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	unsigned char resident[kPages];
	uint64_t absent = 0;

	if (!has_bytes(tensor))
		return 0;
	auto [begin, end] = span(tensor);

	for (uintptr_t at = begin / page * page; at < end; at += kPages * page) {
		uintptr_t count = std::min(kPages, (end - at + page - 1) / page);

		if (mincore((void *)at, count * page, resident) != 0)
			return end - begin;
		for (uintptr_t i = 0; i < count; i++)
			absent += resident[i] & 1 ? 0 : page;
	}
	return absent;
}

/* Lock held. Makes `at` a border of pieces. */
void split(uintptr_t at)
{
	auto after = known.pieces.upper_bound(at);

	if (after == known.pieces.begin())
		return;
	auto piece = std::prev(after);

	if (piece->first < at && piece->second.end > at) {
		known.pieces[at] = piece->second;
		piece->second.end = at;
	}
}

bool is_inexact(const at::Tensor &tensor)
{
	return at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type());
}

uint64_t hashed(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* Each element once: PyTorch does not write into a view that repeats them, such as an expanded one. */
at::Tensor host_once(const at::Tensor &tensor)
{
	at::Tensor bytes = host(tensor);

	for (int64_t d = 0; d < bytes.dim(); d++)
		if (bytes.stride(d) == 0)
			bytes = bytes.narrow(d, 0, 1);
	return bytes;
}

/* Fills the tensor with the table's numbers, from a place that depends on the tensor's address. */
void spread(const at::Tensor &tensor, const at::Tensor &table)
{
	int64_t begin = (int64_t)(hashed((uint64_t)(uintptr_t)tensor.const_data_ptr()) & 4095);
	at::Tensor turned = table.roll(-begin), bytes = host_once(tensor);
	int64_t count = bytes.numel(), whole = count / 4096 * 4096;

	if (!bytes.is_contiguous()) {
		bytes.copy_(turned.repeat({count / 4096 + 1}).narrow(0, 0, count).view(bytes.sizes()));
		return;
	}
	bytes = bytes.view({count});
	bytes.narrow(0, 0, whole).view({-1, 4096}).copy_(turned);
	bytes.narrow(0, whole, count - whole).copy_(turned.narrow(0, 0, count - whole));
}

} // namespace

void known_start(bool may_leave_out, uint64_t most_bytes)
{
	known.leaves_out = may_leave_out;
	known.most_bytes = most_bytes;
}

void known_measure() { known.until_measured = 0; }

bool known_is_short()
{
	if (--known.until_measured >= 0)
		return known.is_short;
	uint64_t taken = values_bytes() + host_taken();
	uint64_t most = known.most_bytes > taken ? (known.most_bytes - taken) / kLargestBytes : 0;

	known.until_measured = (int64_t)std::min<uint64_t>(most, 1000);
	known.is_short = most == 0;
	return most == 0;
}

bool known_has_room(const std::vector<at::Tensor> &read, const std::vector<at::Tensor> &written)
{
	uint64_t more = 0;

	if (!known.is_short)
		return true;
	for (const at::Tensor &one : written)
		more += absent_bytes(one);
	for (const at::Tensor &one : read)
		if (known_state(one) == State::Missing)
			more += absent_bytes(one);
	return more <= kAlwaysBytes || values_bytes() + host_taken() + more <= known.most_bytes;
}

void known_refuse() { known.refused = true; }

uint64_t known_refused() { return known.refused ? known.most_bytes : 0; }

bool known_matters() { return known.leaves_out || known.any.load(std::memory_order_relaxed); }

State known_state(const at::Tensor &tensor)
{
	if (!known.any.load(std::memory_order_relaxed) || !has_bytes(tensor))
		return State::Known;
	auto [begin, end] = span(tensor);

	return known_state_of(begin, end - begin);
}

State known_state_of(uintptr_t begin, uintptr_t bytes)
{
	State worst = State::Known;
	std::lock_guard<std::mutex> guard(known.lock);
	auto piece = known.pieces.upper_bound(begin);

	if (piece != known.pieces.begin() && std::prev(piece)->second.end > begin)
		piece--;
	for (; piece != known.pieces.end() && piece->first < begin + bytes; piece++)
		worst = std::max(worst, piece->second.state);
	return worst;
}

void known_mark(const at::Tensor &tensor, State state, int64_t guess)
{
	if (!has_bytes(tensor) || (state == State::Known && !known.any.load(std::memory_order_relaxed)))
		return;
	auto [begin, end] = span(tensor);

	if (state == State::Known && host_is_lent(begin))
		state = State::Likely;
	known_mark_range(begin, end - begin, state, guess);
}

void known_mark_range(uintptr_t begin, uintptr_t bytes, State state, int64_t guess)
{
	uintptr_t end = begin + bytes;
	std::lock_guard<std::mutex> guard(known.lock);

	split(begin);
	split(end);
	known.pieces.erase(known.pieces.lower_bound(begin), known.pieces.lower_bound(end));
	if (state != State::Known)
		known.pieces[begin] = {end, state, guess};
	known.any.store(!known.pieces.empty(), std::memory_order_relaxed);
}

int64_t known_guess(const at::Tensor &tensor)
{
	std::lock_guard<std::mutex> guard(known.lock);
	auto piece = known.pieces.upper_bound(span(tensor).first);

	return piece == known.pieces.begin() ? kZeros : std::prev(piece)->second.guess;
}

namespace
{

void fill_whole_numbers(const at::Tensor &tensor)
{
	static const at::Tensor numbers = [] {
		at::Tensor table = at::empty({4096}, at::kLong);

		for (int64_t i = 0; i < 4096; i++)
			table.data_ptr<int64_t>()[i] = (int64_t)(hashed((uint64_t)i + 1) >> 2);
		return table;
	}();
	int64_t guess = known_guess(tensor);
	at::Tensor bytes = host_once(tensor);

	if (guess > kZeros)
		spread(tensor, numbers.remainder(guess));
	else if (guess == kCounting && bytes.dim() > 0)
		bytes.copy_(at::arange(1, bytes.size(-1) + 1).expand(bytes.sizes()));
	else
		bytes.fill_(guess != kZeros);
}

} // namespace

void known_fill(const at::Tensor &tensor)
{
	static const at::Tensor likely = [] {
		at::Tensor table = at::empty({4096}, at::kFloat);

		/* Above 0 and at most 1: what a loss, a scale and a probability may be. */
		for (int64_t i = 0; i < 4096; i++)
			table.data_ptr<float>()[i] =
				(float)(0.02 + 0.98 * (double)(hashed((uint64_t)i + 1) >> 11) / 9007199254740992.0);
		return table;
	}();

	if (known_state(tensor) != State::Missing)
		return;
	if (is_inexact(tensor))
		spread(tensor, likely);
	else
		fill_whole_numbers(tensor);
	known_mark(tensor, State::Likely);
}

void known_step()
{
	std::lock_guard<std::mutex> guard(known.lock);

	known.spent = known.spent_small = known.given = 0;
}

State known_to_move(uintptr_t begin, uintptr_t bytes, bool exact)
{
	State state = known_state_of(begin, bytes);

	if (state == State::Missing)
		return state;
	if (known.is_short && values_bytes() + bytes > known.most_bytes) {
		known_refuse();
		return State::Missing;
	}
	if (known_is_whole() || exact)
		return state;
	return state == State::Known && known_take((double)bytes / kMovedPerNs) ? state : State::Missing;
}

bool known_is_whole() { return !known.leaves_out; }

bool known_is_cheap(double cost_ns) { return cost_ns <= kCheapNs; }

bool known_take(double cost_ns)
{
	if (!known.leaves_out)
		return true;
	std::lock_guard<std::mutex> guard(known.lock);

	known.given += kOperationNs;
	if (known_is_cheap(cost_ns))
		return true;
	if (known.spent + cost_ns <= std::max(kStepNs, known.given))
		known.spent += cost_ns;
	else if (cost_ns <= kSmallNs && known.spent_small + cost_ns <= kStepNs)
		known.spent_small += cost_ns; /* small operations give sizes: the boxes that meet an anchor */
	else
		return false;
	return true;
}

} // namespace neap_torch
