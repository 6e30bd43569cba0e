"""neap keeps GPU training inside memory: the helpers people write by hand, doing the real thing.

    import neap
    neap.clear_gpu_memory(force=True)        # collects, releases what lingers, empties the cache, says what it did
    print(neap.get_gpu_memory_stats())

Importing it needs neither torch nor a GPU, creates no CUDA context and starts nothing.
"""

from typing import TYPE_CHECKING

from ._abi import Status
from ._growth import Growing
from ._ladder import Split, next_split
from ._leaks import Leak
from ._library import NeapError, version
from ._options import CallbackOptions, CleanupOptions, LadderOptions, MemoryOptions, SavingOptions, WatchOptions
from ._ranks import RankFailed
from ._recompute import CheckpointPlan, checkpoint_within
from ._results import Milestone, RungTaken, TrainingResult
from ._sources import Allocator, DeviceMemory, OutOfMemory
from ._step import TrainingOutOfMemory
from ._strategies import EfficientForward, Strategy, efficient_forward
from .agent import attach, describe, detach
from .checkpoints import Checkpoint, CheckpointCleanup, cleanup_checkpoints, find_checkpoint_folders, restore_checkpoints
from .hunt import Lingering, lingering
from .manager import MemoryManager, TrialResult
from .memory import (
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
    install_allocator,
    is_out_of_memory,
    log_gpu_memory_stats,
    memory_stats,
    memory_summary,
    print_cuda_memory_info,
    reset_peak_memory_stats,
    set_memory_fraction,
)
from .moving import (
    LoadedCheckpoint,
    SavedCheckpoint,
    cleanup_model_memory,
    load_checkpoint,
    offloaded,
    safe_tensor_to_cpu,
    save_checkpoint,
)
from .series import ExperimentResult, ExperimentSeriesRunner
from .training import Training

__version__: str  # as version() says

if not TYPE_CHECKING:

    def __dir__():
        return __all__

    def __getattr__(name):
        if name == "__version__":  # importing neap does not load libneap
            return version()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "__version__",
    "Allocator",
    "CallbackOptions",
    "CleanupOptions",
    "LadderOptions",
    "MemoryOptions",
    "SavingOptions",
    "WatchOptions",
    "Checkpoint",
    "CheckpointCleanup",
    "CheckpointPlan",
    "ClearResult",
    "DeviceMemory",
    "EfficientForward",
    "ExperimentResult",
    "ExperimentSeriesRunner",
    "FractionResult",
    "GPUMemoryContext",
    "Growing",
    "Leak",
    "Lingering",
    "LoadedCheckpoint",
    "Milestone",
    "RungTaken",
    "MemoryManager",
    "MemoryStats",
    "NeapError",
    "OutOfMemory",
    "RankFailed",
    "SavedCheckpoint",
    "Settings",
    "Split",
    "Status",
    "Strategy",
    "Training",
    "TrainingOutOfMemory",
    "TrainingResult",
    "TrialResult",
    "attach",
    "checkpoint_within",
    "cleanup_checkpoints",
    "cleanup_model_memory",
    "clear_cuda_memory",
    "clear_gpu_memory",
    "describe",
    "detach",
    "efficient_forward",
    "enable_memory_efficient_settings",
    "find_checkpoint_folders",
    "get_cuda_memory_info",
    "get_gpu_memory_stats",
    "install_allocator",
    "is_out_of_memory",
    "lingering",
    "load_checkpoint",
    "log_gpu_memory_stats",
    "memory_stats",
    "memory_summary",
    "next_split",
    "offloaded",
    "print_cuda_memory_info",
    "reset_peak_memory_stats",
    "restore_checkpoints",
    "safe_tensor_to_cpu",
    "save_checkpoint",
    "set_memory_fraction",
    "version",
]
