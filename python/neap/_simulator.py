"""Puts PyTorch on the simulator: loads neap's stand-ins for NVIDIA's libraries before torch loads NVIDIA's.

    sitecustomize of `neap run`, or a test  --load()-->  libcuda.so.1, libnvidia-ml.so.1      from the simulator's folder
                                                         libcudart.so.13, libcublas.so.13...  from the runtime's folder
    import torch  -->  the dynamic loader meets the same sonames, which are loaded already, and takes them

torch's own libraries name the ones that they need, by soname: so each version of PyTorch gets the major versions it was built for,
and never two libcudarts. It does not matter whether the nvidia-* packages are installed.

This file uses only Python's own library: the launcher loads it by its path, even if neap's package cannot be imported.
"""

from __future__ import annotations

import ctypes
import glob
import importlib.util
import os
import re
import struct
import tempfile
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

_DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")
# Names of NVIDIA's libraries: libcudart.so.13, libnccl.so.2, libcusparseLt.so.0.
_NVIDIA = re.compile(r"^lib(cu(?!rl)\w*|nv\w*|nccl)(-\w+)?\.so[.\d]*$")


_loaded = False


class NotSimulated(Exception):
    """Raised if PyTorch cannot run on the simulator. The text says why, and what to do."""


class Loaded(NamedTuple):
    """The result of load()."""

    paths: tuple[str, ...]  # the stand-ins, in the order of loading; none: torch has no libraries
    missing: tuple[str, ...]  # NVIDIA's libraries that torch also needs, and for which neap has no stand-in


def load(torch_folder: str | None = None) -> Loaded:
    """Loads the stand-ins that the PyTorch in this folder needs; by default, the PyTorch that `import torch` would find. Call it
    before torch is imported. Idempotent. Raises NotSimulated."""
    if torch_folder is None:
        spec = importlib.util.find_spec("torch")
        if spec is None or not spec.origin:
            raise NotSimulated("no PyTorch is installed for this Python")
        torch_folder = os.path.dirname(spec.origin)
    if not os.path.isdir(os.path.join(torch_folder, "lib")):
        return Loaded((), ())  # another module of that name
    simulator, runtime = folders()
    needed = _needed_by_torch(torch_folder)
    names = _choose(torch_folder, needed, runtime)
    paths = [os.path.join(simulator, name) for name in _DRIVER] + [os.path.join(runtime, name) for name in names]
    _refuse_others(paths)
    _tell_cudnn(torch_folder)
    _tell_compilers(simulator)
    _open_all(paths)
    global _loaded
    _loaded = True
    own = {os.path.basename(path) for path in glob.glob(os.path.join(glob.escape(torch_folder), "lib", "*.so*"))}
    missing = sorted(name for name in needed if _NVIDIA.match(name) and name not in {*names, *own, *_DRIVER})
    return Loaded(tuple(paths), tuple(missing))


def _tell_compilers(simulator: str) -> None:
    """Keeps compiled and tuned kernels apart from those of a real GPU: here the sources of kernels are placeholders, and their
    times are not those of a device. Triton asks the dynamic linker's cache for the driver, unless a variable names its path."""
    os.environ.setdefault("USE_PYTORCH_KERNEL_CACHE", "0")
    os.environ.setdefault("TRITON_LIBCUDA_PATH", simulator)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"torchinductor_simulated_{os.getuid()}"))


def is_loaded() -> bool:
    """Returns whether load() has loaded the stand-ins in this process."""
    return _loaded


def torch_imported(torch: Any) -> None:
    """Call it once torch is imported on the stand-ins. From then on the host makes the computations that PyTorch makes on
    the device for its own purposes (_objects.py)."""
    path = os.path.join(os.path.dirname(os.path.realpath(__file__)), "_objects.py")
    spec = importlib.util.spec_from_file_location("_neap_objects", path)
    assert spec is not None and spec.loader is not None
    objects = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(objects)
    objects.install(torch)


# The folders.


def _simulator_folders() -> Iterator[str]:
    """Yields the folders that may have the simulator, in the same order as src/device/loader.c."""
    asked = os.environ.get("NEAP_SIM_PATH")
    if asked:
        yield asked
        return
    here = os.path.dirname(os.path.realpath(__file__))
    yield os.path.join(here, "sim")  # a wheel
    yield os.path.join(here, "..", "..", "sim", "driver")  # the build tree
    installed = os.path.join(here, "libraries")  # the path from here to their folder
    if os.path.isfile(installed):
        with open(installed) as file:
            yield os.path.join(here, file.read().strip(), "neap", "sim")


def folders() -> tuple[str, str]:
    """Returns the folders of the simulator and of its stand-ins for the runtime libraries. Raises NotSimulated."""
    tried = []
    for simulator in _simulator_folders():
        simulator = os.path.realpath(simulator)
        asked = os.environ.get("NEAP_SIM_RUNTIME")
        for runtime in [asked] if asked else [os.path.join(simulator, "runtime"), os.path.join(simulator, "..", "runtime")]:
            runtime = os.path.realpath(runtime)
            if os.path.isfile(os.path.join(simulator, _DRIVER[0])) and glob.glob(os.path.join(glob.escape(runtime), "libcudart.so.*")):
                return simulator, runtime
        tried.append(simulator)
    raise NotSimulated(f"neap's stand-ins for NVIDIA's libraries are not there ({', '.join(tried)}): install neap whole")


# The libraries that torch needs.


class _Elf:
    """The dynamic section of a 64-bit shared object in this machine's byte order."""

    _LOAD = 1
    _DYNAMIC = 2  # segments
    _NULL = 0
    _NEEDED = 1
    _STRINGS = 5  # entries of the dynamic section

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        header = self._read(0, 64)
        if header[:5] != b"\x7fELF\x02":
            raise ValueError("no ELF file of 64 bits")
        at, size, count = struct.unpack_from("=Q", header, 32)[0], *struct.unpack_from("=HH", header, 54)
        self._segments = [struct.unpack_from("=IIQQQQ", self._read(at + i * size, 56)) for i in range(count)]

    def _read(self, offset: int, length: int) -> bytes:
        self._file.seek(offset)
        data = self._file.read(length)
        if len(data) != length:
            raise ValueError("cut short")
        return data

    def _offset(self, address: int) -> int:
        for kind, _, offset, begin, _, length in self._segments:
            if kind == self._LOAD and begin <= address < begin + length:
                return int(offset + address - begin)
        raise ValueError("an address outside the file")

    def needed(self) -> list[str]:
        """Returns the sonames that it needs."""
        for kind, _, offset, _, _, length in self._segments:
            if kind == self._DYNAMIC:
                entries = list(struct.iter_unpack("=qQ", self._read(offset, length // 16 * 16)))
                entries = entries[: [tag for tag, _ in entries].index(self._NULL)]
                strings = self._offset(next(value for tag, value in entries if tag == self._STRINGS))
                return [self._string(strings + value) for tag, value in entries if tag == self._NEEDED]
        return []

    def _string(self, offset: int) -> str:
        self._file.seek(offset)
        return self._file.read(256).split(b"\0")[0].decode("ascii")


def needed_by(path: str) -> list[str]:
    """Returns the sonames that a shared object needs; none if the file is no shared object."""
    try:
        with open(path, "rb") as file:
            return _Elf(file).needed()
    except (OSError, ValueError, StopIteration, struct.error, OverflowError):
        return []


def _needed_by_torch(torch_folder: str) -> set[str]:
    files = glob.glob(os.path.join(glob.escape(torch_folder), "lib", "*.so*"))
    return {name for path in files for name in needed_by(path)}


def _torch_version(torch_folder: str) -> str:
    try:
        with open(os.path.join(torch_folder, "version.py"), encoding="utf-8") as file:
            found = re.search(r"^__version__ = '([^']*)'", file.read(), re.MULTILINE)
            return f"PyTorch {found[1]}" if found else "this PyTorch"
    except (OSError, ValueError):
        return "this PyTorch"


def _choose(torch_folder: str, needed: set[str], runtime: str) -> list[str]:
    """Returns the stand-ins to load, libcudart first. Raises NotSimulated."""
    torch = _torch_version(torch_folder)
    there = set(os.listdir(runtime))
    runtimes = sorted(name for name in needed if re.match(r"libcudart\b.*\.so", name))
    if not runtimes:
        raise NotSimulated(
            f"{torch} ({torch_folder}) was built without CUDA and uses no GPU, simulated or not: install a CUDA build of "
            f"PyTorch (on Linux, 'pip install torch' gives one; none of the nvidia-* packages is needed)"
        )
    if len(runtimes) > 1 or runtimes[0] not in there:
        have = ", ".join(sorted(name for name in there if name.startswith("libcudart.so.")))
        raise NotSimulated(f"{torch} needs {' and '.join(runtimes)}, and neap's stand-ins are {have}: CUDA 12 and 13 alone")
    return runtimes + sorted((needed & there) - set(runtimes))


def _tell_cudnn(torch_folder: str) -> None:
    """Sets NEAP_CUDNN_VERSION for this process and its children: the version of cuDNN that this PyTorch was released with, from its
    metadata. PyTorch decides by that version how it uses cuDNN."""
    for metadata in glob.glob(os.path.join(glob.escape(os.path.dirname(torch_folder)), "torch-*.dist-info", "METADATA")):
        try:
            with open(metadata, encoding="utf-8", errors="replace") as file:
                found = re.search(r"^Requires-Dist: nvidia-cudnn-cu\d+ *\(?==([\d.]+)", file.read(1 << 20), re.MULTILINE)
        except OSError:
            continue
        if found:
            os.environ.setdefault("NEAP_CUDNN_VERSION", found[1])


# Loading.


def _stem(path: str) -> str:
    """Returns "libcudart" for /usr/lib/libcudart.so.13.2.75."""
    return os.path.basename(path).split(".so", 1)[0]


def _refuse_others(paths: list[str]) -> None:
    """Refuses if a library of the same name is loaded already, which would be taken before ours: NVIDIA's libraries and ours cannot
    be mixed."""
    ours = {os.path.realpath(path) for path in paths}
    stems = {_stem(path) for path in paths}
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            mapped = {line.split(None, 5)[5].rstrip("\n") for line in maps if line.count("/") > 0}
    except OSError:
        return
    for path in sorted(mapped):
        if ".so" in path and _stem(path) in stems and os.path.realpath(path) not in ours:
            raise NotSimulated(f"{path} was loaded before PyTorch: import torch before what loads it")


def _open_all(paths: list[str]) -> None:
    """Opens all or none."""
    opened = []
    for path in paths:
        try:
            opened.append(ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL))
        except OSError as error:
            import _ctypes

            for library in reversed(opened):
                _ctypes.dlclose(library._handle)
            raise NotSimulated(f"a stand-in for an NVIDIA library cannot be loaded: {error}") from error


__all__ = ["Loaded", "NotSimulated", "folders", "is_loaded", "load", "needed_by", "torch_imported"]
