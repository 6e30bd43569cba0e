"""NVML by ctypes: the driver's figures of a device and of this process. For bench/gpu_truth.py and bench/gpu_live.py.

NVIDIA's libnvidia-ml.so.1, or the simulator's if NEAP_DEVICE=sim. The device is the first that CUDA_VISIBLE_DEVICES
names by a number, else NVML's first. A figure that the driver does not report is None.
"""

import ctypes
import os

NOT_AVAILABLE = (1 << 64) - 1
V2 = 40 | 2 << 24


class _MemoryV2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), *((name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used"))]


class _Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]


class Nvml:
    def __init__(self):
        folder = os.environ.get("NEAP_SIM_PATH", "") if os.environ.get("NEAP_DEVICE") == "sim" else ""
        self._library = ctypes.CDLL(os.path.join(folder, "libnvidia-ml.so.1"))
        self._device = ctypes.c_void_p()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
        if self._library.nvmlInit_v2():
            raise OSError("nvmlInit failed")
        index = int(visible) if visible.isdigit() else 0
        if self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(self._device)):
            raise OSError(f"NVML has no device {index}")

    def memory(self):
        """The device's used and free bytes, and those that the driver reserves."""
        found = _MemoryV2(version=V2)
        if self._library.nvmlDeviceGetMemoryInfo_v2(self._device, ctypes.byref(found)):
            return (None, None, None)
        return (found.used, found.free, found.reserved)

    def processes(self):
        """[(PID as NVML says, bytes or None)]; None: NVML refuses."""
        count = ctypes.c_uint(256)
        list_ = (_Process * 256)()
        if self._library.nvmlDeviceGetComputeRunningProcesses_v3(self._device, ctypes.byref(count), list_):
            return None
        return [(p.pid, None if p.bytes == NOT_AVAILABLE else p.bytes) for p in list_[: count.value]]

    def own_bytes(self):
        """The bytes of this process. In a PID namespace NVML's PIDs are the host's: there the bytes of the only process."""
        found = self.processes() or []
        mine = [size for pid, size in found if pid == os.getpid()]
        return mine[0] if mine else found[0][1] if len(found) == 1 else None

    def driver_version(self):
        text = ctypes.create_string_buffer(96)
        return None if self._library.nvmlSystemGetDriverVersion(text, 96) else text.value.decode()
