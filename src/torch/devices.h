/* torch/devices.h: the first part of PyTorch's allocator interface over libneap: the devices, each opened when
 * PyTorch first allocates there, and PyTorch's own allocator beside them.
 *
 *   Devices  opens them           Pools    private pools
 *   Reports  what is held         Allocator (allocator.h)  memory, settings, other processes
 *
 * Each class is derived from the one before it and implements its part of the interface, in the file of its name.
 * PyTorch's interface gets new parameters and functions from version to version. So each function is declared in
 * every form that a supported version has, and none is marked `override`: the form of the installed version
 * overrides, and the other forms are overloads that nobody calls. A function that a newer PyTorch adds without a
 * default fails to compile, and neap.install_allocator() says so.
 *
 * Two kinds of memory are not neap's and go to PyTorch's own allocator (`native_`): pools with an allocator of their
 * own or with no_split, and everything while caching_allocator_enable(False) holds. */
#ifndef NEAP_TORCH_DEVICES_H
#define NEAP_TORCH_DEVICES_H

#include "device.h"

#include <c10/cuda/CUDAFunctions.h>

namespace neap_torch
{

using c10::DataPtr;
using c10::DeviceIndex;

class Devices : public cca::CUDAAllocator
{
      public:
	/* `lend` is asked for memory before a request fails. */
	Devices(cca::CUDAAllocator *native, neap_oom_callback lend) : native_(native), lend_(lend) {}

	void init(int devices);
	bool initialized();
	double getMemoryFraction(DeviceIndex device);
	void setMemoryFraction(double fraction, DeviceIndex device);

      protected:
	/* nullptr: nothing was allocated there. */
	Device *opened(DeviceIndex device) const
	{
		return device >= 0 && device < kDevices ? devices_[device].load(std::memory_order_acquire) : nullptr;
	}
	Device &open(DeviceIndex device)
	{
		Device *found = opened(device);
		return C10_LIKELY(found != nullptr) ? *found : open_first(device);
	}
	/* The thread's current device. With a single device it is that one: the runtime is not asked. */
	DeviceIndex current() const { return C10_LIKELY(count_ == 1) ? 0 : c10::cuda::current_device(); }
	/* The device whose live block starts there. */
	Device *owner(void *pointer, neap_block_info *block) const;
	/* PyTorch's own allocator, ready for memory that is not neap's. */
	cca::CUDAAllocator &delegate();

	static constexpr int kDevices = 64;
	cca::CUDAAllocator *native_;
	std::atomic<bool> delegates_{false};
	std::atomic<int> count_{0};
	mutable std::mutex lock_; /* the opening of devices, the fractions, the observers */
	History history_;

      private:
	Device &open_first(DeviceIndex device);

	neap_oom_callback lend_;
	neap_driver *driver_ = nullptr; /* opened with the first device, so that a process without CUDA has none */
	std::atomic<Device *> devices_[kDevices] = {};
	double fractions_[kDevices] = {}; /* asked for before the device was opened; 0: not */
};

} // namespace neap_torch

#endif
