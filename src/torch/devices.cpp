/* torch/devices.cpp: see devices.h. */
#include "devices.h"

namespace neap_torch
{

Device &Devices::open_first(DeviceIndex device)
{
	TORCH_CHECK(device >= 0 && device < count_ && device < kDevices, "Allocator not initialized for device ",
		    device, ": did you call init?");
	std::lock_guard<std::mutex> guard(lock_);
	if (Device *found = opened(device))
		return *found;
	neap_error error = {};
	if (!driver_)
		check(libneap.neap_driver_open(NEAP_BACKEND_DEFAULT, &driver_, &error), error);
	size_t foreign = 0;
	if (delegates_)
		foreign = static_cast<size_t>(native_->getDeviceStats(device).reserved_bytes[0].current);
	auto made = std::make_unique<Device>(driver_, device, history_, foreign);
	libneap.neap_set_oom_callback(made->alloc(), lend_, this);
	if (fractions_[device] > 0)
		check(libneap.neap_set_fraction(made->alloc(), fractions_[device], &error), error);
	devices_[device].store(made.get(), std::memory_order_release);
	return *made.release(); /* lives as long as the process */
}

Device *Devices::owner(void *pointer, neap_block_info *block) const
{
	for (DeviceIndex i = 0; i < count_ && i < kDevices; i++) {
		Device *device = opened(i);
		if (device &&
		    libneap.neap_block_at(device->alloc(), reinterpret_cast<uint64_t>(pointer), block) == NEAP_OK)
			return device;
	}
	return nullptr;
}

cca::CUDAAllocator &Devices::delegate()
{
	std::lock_guard<std::mutex> guard(lock_);
	if (!native_->initialized())
		native_->init(count_);
	delegates_ = true;
	return *native_;
}

void Devices::init(int devices)
{
	count_ = devices;
#ifdef NEAP_HAS_per_process_memory_fraction
	double fraction = cca::CUDAAllocatorConfig::per_process_memory_fraction();
	for (int i = 0; fraction < 1 && i < devices && i < kDevices; i++)
		setMemoryFraction(fraction, static_cast<DeviceIndex>(i));
#endif
}

bool Devices::initialized() { return count_ > 0; }

double Devices::getMemoryFraction(DeviceIndex device)
{
	Device *found = opened(device);
	double fraction = found                              ? libneap.neap_get_fraction(found->alloc())
			  : device >= 0 && device < kDevices ? fractions_[device]
							     : 0;
	return fraction > 0 ? fraction : 1;
}

void Devices::setMemoryFraction(double fraction, DeviceIndex device)
{
	TORCH_CHECK(device >= 0 && device < count_ && device < kDevices, "Allocator not initialized for device ",
		    device, ": did you call init?");
	TORCH_CHECK(fraction >= 0 && fraction <= 1, "invalid fraction:", fraction, ". Please set within [0, 1].");
	double limit = fraction > 0 ? fraction : 1e-15; /* libneap's 0 is "no limit" */
	{
		std::lock_guard<std::mutex> guard(lock_);
		fractions_[device] = limit;
	}
	neap_error error = {};
	if (Device *found = opened(device))
		check(libneap.neap_set_fraction(found->alloc(), limit, &error), error);
}

} // namespace neap_torch
