"""neap keeps GPU training inside memory: the helpers people write by hand, doing the real thing.

    import neap
    neap.clear_gpu_memory(force=True)        # collects, releases what lingers, empties the cache, says what it did
    print(neap.get_gpu_memory_stats())

Importing it needs neither torch nor a GPU, creates no CUDA context and starts nothing.
"""

from neap._abi import Status
from neap._library import NeapError, version
from neap._sources import Allocator, DeviceMemory, OutOfMemory
from neap.hunt import Lingering, lingering
from neap.memory import (
    ClearResult,
    FractionResult,
    GPUMemoryContext,
    MemoryStats,
    Settings,
    clear_cuda_memory,
    clear_gpu_memory,
    enable_memory_efficient_settings,
    get_cuda_memory_info,
    get_gpu_memory_stats,
    is_out_of_memory,
    log_gpu_memory_stats,
    print_cuda_memory_info,
    reset_peak_memory_stats,
    set_memory_fraction,
)

__all__ = [
    "Allocator",
    "ClearResult",
    "DeviceMemory",
    "FractionResult",
    "GPUMemoryContext",
    "Lingering",
    "MemoryStats",
    "NeapError",
    "OutOfMemory",
    "Settings",
    "Status",
    "clear_cuda_memory",
    "clear_gpu_memory",
    "enable_memory_efficient_settings",
    "get_cuda_memory_info",
    "get_gpu_memory_stats",
    "is_out_of_memory",
    "lingering",
    "log_gpu_memory_stats",
    "print_cuda_memory_info",
    "reset_peak_memory_stats",
    "set_memory_fraction",
    "version",
]
