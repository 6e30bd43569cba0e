import os

TOTAL = 1 << 30
_initialized = False
_current = 0
_queued = []
allocated = cached = peak = reserved_peak = 0
fractions = []
capturing = False
workspaces_cleared = 0


class _Properties:
    total_memory = TOTAL
    uuid = os.environ.get("FAKE_TORCH_UUID", "").removeprefix("GPU-")


def is_initialized():
    return _initialized


def is_available():
    return True


def _lazy_call(function):
    if _initialized:
        function()
    else:
        _queued.append(function)


def init():
    global _initialized
    if not _initialized:
        _initialized = True
        for function in _queued:
            function()


class device:
    def __init__(self, index):
        self.index = index

    def __enter__(self):
        global _current
        self.before, _current = _current, self.index
        return self

    def __exit__(self, *_):
        global _current
        _current = self.before


def device_count():
    return 1


def current_device():
    return _current


def get_device_name(index):
    return "Fake GPU"


def get_device_properties(index):
    return _Properties


def is_current_stream_capturing():
    return capturing


def memory_allocated(index=0):
    return allocated


def memory_reserved(index=0):
    return allocated + cached


def max_memory_allocated(index=0):
    return peak


def max_memory_reserved(index=0):
    return reserved_peak


def mem_get_info(index=0):
    return TOTAL - allocated - cached, TOTAL


def memory_stats(index=0):
    return {
        "allocated_bytes.all.current": allocated,
        "allocated_bytes.all.peak": peak,
        "reserved_bytes.all.current": allocated + cached,
        "reserved_bytes.all.peak": reserved_peak,
        "num_ooms": 0,
    }


def memory_stats_as_nested_dict(index=0):
    return {
        "allocated_bytes": {"all": {"current": allocated, "peak": peak, "allocated": peak}},
        "reserved_bytes": {"all": {"current": allocated + cached, "peak": reserved_peak, "allocated": reserved_peak}},
        "num_ooms": 0,
    }


def memory_snapshot():
    return [{"device": 0, "blocks": [{"state": "inactive", "size": cached}, {"state": "active_allocated", "size": allocated}]}]


def empty_cache():
    global cached
    cached = 0


def reset_peak_memory_stats(index=0):
    global peak, reserved_peak
    peak, reserved_peak = allocated, allocated + cached


def set_per_process_memory_fraction(fraction, index=0):
    import torch

    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    torch._C._cuda_setMemoryFraction(fraction, index)


def _set_fraction(fraction, index):
    global _current
    _current = index  # as PyTorch does: the device it limits is the current one from then on
    fractions.append((fraction, index))


def take(count):
    """Allocates, as a tensor on the device would."""
    import torch

    global allocated, cached, peak, reserved_peak
    init()
    if allocated + cached + count > TOTAL:
        for observer in torch._Observers.found:
            observer(0, count, TOTAL, TOTAL - allocated - cached)
        raise torch.OutOfMemoryError(
            f"CUDA out of memory. Tried to allocate {count / 2**20:.2f} MiB. GPU 0 has a total capacity of 1.00 GiB of which "
            f"{(TOTAL - allocated - cached) / 2**20:.2f} MiB is free."
        )
    allocated += count
    peak, reserved_peak = max(peak, allocated), max(reserved_peak, allocated + cached)


def drop(count):
    """Frees into the cache."""
    global allocated, cached
    allocated, cached = allocated - count, cached + count
