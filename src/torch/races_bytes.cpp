/* torch/races_bytes.cpp: which bytes of memory a tensor's elements are. A part of races.cpp.
 *
 *   contiguous        one run
 *   some rows         a run each, up to kRuns
 *   columns, strides  one range that has gaps: NEAP_SIM_SPARSE
 */
#include "races.h"

#include <algorithm>

namespace neap_torch
{

namespace
{

constexpr int64_t kRuns = 64; /* so many runs of bytes without a gap are reported one by one */

struct Dimension {
	int64_t size, stride;
};

/* The dimensions that matter, the innermost first; those that continue one another are one. */
std::vector<Dimension> dimensions_of(const at::Tensor &tensor)
{
	std::vector<Dimension> all, joined;

	for (int64_t d = 0; d < tensor.dim(); d++)
		if (tensor.size(d) > 1 && tensor.stride(d) != 0)
			all.push_back({tensor.size(d), tensor.stride(d)});
	std::sort(all.begin(), all.end(), [](const Dimension &a, const Dimension &b) { return a.stride < b.stride; });
	for (const Dimension &one : all) {
		Dimension before = joined.empty() ? Dimension{1, 1} : joined.back();

		if (one.stride == before.size * before.stride && (!joined.empty() || one.stride == 1)) {
			if (joined.empty())
				joined.push_back(one);
			else
				joined.back().size *= one.size;
		} else {
			joined.push_back(one);
		}
	}
	return joined;
}

void add_range(RacesTouches *touches, uint64_t address, uint64_t bytes, uint32_t use, int device)
{
	touches->touches.push_back({address, bytes, use});
	touches->devices.push_back(device);
}

/* Runs of `bytes` each, over the dimensions from `from` on. */
void add_runs(RacesTouches *touches, uint64_t address, uint64_t bytes, const std::vector<Dimension> &dimensions,
	      size_t from, uint64_t element, uint32_t use, int device)
{
	if (from == dimensions.size()) {
		add_range(touches, address, bytes, use, device);
		return;
	}
	for (int64_t i = 0; i < dimensions[from].size; i++)
		add_runs(touches, address + (uint64_t)(i * dimensions[from].stride) * element, bytes, dimensions,
			 from + 1, element, use, device);
}

void add_bytes(RacesTouches *touches, const at::Tensor &tensor, uint32_t use, int device)
{
	uint64_t address = (uint64_t)(uintptr_t)tensor.const_data_ptr(), element = tensor.element_size();
	std::vector<Dimension> dimensions = dimensions_of(tensor);
	bool inner = !dimensions.empty() && dimensions[0].stride == 1;
	int64_t runs = 1;
	uint64_t last = 0;

	for (size_t i = 0; i < dimensions.size(); i++) {
		last += (uint64_t)((dimensions[i].size - 1) * dimensions[i].stride);
		if (i >= (size_t)inner)
			runs *= dimensions[i].size;
	}
	if (runs <= kRuns)
		add_runs(touches, address, (inner ? (uint64_t)dimensions[0].size : 1) * element, dimensions, inner,
			 element, use, device);
	else
		add_range(touches, address, (last + 1) * element, use | NEAP_SIM_SPARSE, device);
}

} // namespace

} // namespace neap_torch
