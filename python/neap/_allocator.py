"""neap as PyTorch's allocator: compiles src/torch once against the installed PyTorch, and installs the result.

    install() --> the object in the cache, else: lock the cache, compile, publish --> load --> neap_torch_install
    install(plugin=True) --> _plugin.py, which compiles nothing

The cache is XDG_CACHE_HOME/neap/allocator/KEY/neap_torch.so; the key is a hash of the sources, PyTorch's version and ABI, and
the compiler's command. Only a C++ compiler is needed: PyTorch's wheel has its headers, and neap declares the CUDA functions
that these name (src/torch/cuda).
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import importlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from . import _library, _plugin
from ._abi import Status
from ._library import NeapError

_MESSAGE_ROOM = 4096
_COMPILE_SECONDS = 600
_FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w")
# What PyTorch's headers have, by version: a macro of src/torch, the header, and the words by which it shows.
_FEATURES = (
    ("NEAP_HAS_enable", "c10/cuda/CUDACachingAllocator.h", r"virtual void enable\("),
    ("NEAP_HAS_StreamSegmentSize", "c10/cuda/CUDACachingAllocator.h", r"struct StreamSegmentSize\b"),
    ("NEAP_HAS_ShareableHandle", "c10/cuda/CUDACachingAllocator.h", r"struct ShareableHandle\b"),
    ("NEAP_HAS_createOrIncrefPool", "c10/cuda/CUDACachingAllocator.h", r"virtual void createOrIncrefPool\("),
    ("NEAP_POOL_ALLOCATOR_SHARED", "c10/cuda/CUDACachingAllocator.h", r"virtual void createOrIncrefPool\([^)]*shared_ptr"),
    ("NEAP_HAS_markCaptureBegin", "c10/cuda/CUDACachingAllocator.h", r"virtual void markCaptureBegin\("),
    ("NEAP_HAS_setUseOnOOM", "c10/cuda/CUDACachingAllocator.h", r"virtual void setUseOnOOM\("),
    ("NEAP_USE_ON_OOM_BOOL", "c10/cuda/CUDACachingAllocator.h", r"virtual void setUseOnOOM\([^)]*bool"),
    ("NEAP_HAS_setNoSplit", "c10/cuda/CUDACachingAllocator.h", r"virtual void setNoSplit\("),
    ("NEAP_EMPTIES_POOLS", "c10/core/CachingDeviceAllocator.h", r"virtual void emptyCache\(\s*MempoolId_t"),
    ("NEAP_EMPTIES_POOLS", "c10/cuda/CUDACachingAllocator.h", r"virtual void emptyCache\(\s*MempoolId_t"),
    ("NEAP_SNAPSHOT_POOL", "c10/cuda/CUDACachingAllocator.h", r"virtual SnapshotInfo snapshot\(\s*MempoolId_t"),
    ("NEAP_SNAPSHOT_TRACES", "c10/cuda/CUDACachingAllocator.h", r"virtual SnapshotInfo snapshot\(\s*MempoolId_t[^)]*include_traces"),
    ("NEAP_HAS_per_process_memory_fraction", "c10/cuda/CUDAAllocatorConfig.h", r"static double per_process_memory_fraction\("),
    ("NEAP_HAS_reserved_bytes_by_private_pools", "c10/core/CachingDeviceAllocator.h", r"reserved_bytes_by_private_pools;"),
    ("NEAP_HAS_ANNOTATE", "c10/core/CachingDeviceAllocator.h", r"\bANNOTATE\b"),
    ("NEAP_HAS_AnnotationEntry", "c10/core/CachingDeviceAllocator.h", r"struct AnnotationEntry\b"),
    ("NEAP_HAS_AnnotationEntry", "c10/cuda/CUDACachingAllocator.h", r"struct AnnotationEntry\b"),
)
_RENAMED = {  # PyTorch moved these types from one namespace to another
    "NEAP_HAS_AnnotationEntry": r"external_annotations;",
}


class AllocatorUnavailable(NeapError):
    """neap cannot be PyTorch's allocator here. The text says why, and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(Status.ESTATE, message)


_installed = False
_WITHOUT = (
    "Without a compiler: neap.install_allocator(plugin=True) or neap run --allocator plugin, which uses PyTorch's plug-in and "
    "serves no CUDA graphs (docs/allocator.md)"
)


def installed() -> bool:
    """Whether neap is PyTorch's allocator in this process, compiled or through the plug-in."""
    return _installed


def _sources() -> pathlib.Path:
    """The folder of src/torch's files."""
    here = pathlib.Path(__file__).resolve().parent
    for folder in (here / "torch_source", here.parent.parent / "src" / "torch"):
        if (folder / "neap_torch.cpp").is_file():
            return folder
    raise AllocatorUnavailable("neap's allocator for PyTorch: its sources are not beside the package. Install neap again")


def _headers(sources: pathlib.Path) -> pathlib.Path:
    """The folder that has neap/alloc.h."""
    for folder in (sources / "include", sources.parent.parent / "include"):
        if (folder / "neap" / "alloc.h").is_file():
            return folder
    raise AllocatorUnavailable("neap's allocator for PyTorch: neap/alloc.h is not beside its sources. Install neap again")


def _compiler() -> str:
    asked = os.environ.get("CXX")
    if asked:
        return asked
    for name in ("c++", "g++", "clang++"):
        found = shutil.which(name)
        if found:
            return found
    raise AllocatorUnavailable(
        "neap's allocator is compiled once against the installed PyTorch, and there is no C++ compiler (no CXX in the environment, "
        f"no c++, g++ or clang++ on PATH). Install one (Debian: apt install g++). {_WITHOUT}"
    )


def _features(include: pathlib.Path) -> Iterator[str]:
    found = {}
    for macro, header, words in _FEATURES:
        path = include / header
        text = path.read_text(errors="replace") if path.is_file() else ""
        if re.search(words, text):
            found[macro] = True
    cuda = (include / "c10/cuda/CUDACachingAllocator.h").read_text(errors="replace")
    for macro, words in _RENAMED.items():
        if not re.search(words, cuda):
            found.pop(macro, None)
    return (f"-D{macro}" for macro in found)


def _command(torch: Any, sources: pathlib.Path, cuda: pathlib.Path) -> list[str]:
    """Everything but the output's name."""
    root = pathlib.Path(torch.__file__).resolve().parent
    include = root / "include"
    libraries = root / "lib"
    if not (include / "c10" / "cuda" / "CUDACachingAllocator.h").is_file():
        raise AllocatorUnavailable(f"neap's allocator for PyTorch: this PyTorch {torch.__version__} is without CUDA, or without "
                                   "its headers")
    abi = int(bool(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True)))
    words = _compiler().split()
    words += [*_FLAGS, f"-D_GLIBCXX_USE_CXX11_ABI={abi}", *_features(include), f"-I{cuda}", f"-I{_headers(sources)}"]
    for folder in (include, include / "torch" / "csrc" / "api" / "include"):
        words += ["-isystem", str(folder)]
    words += [str(sources / "neap_torch.cpp"), f"-L{libraries}", "-Wl,--as-needed", "-lc10", "-lc10_cuda", "-ltorch_cuda"]
    words += ["-ltorch_python", f"-Wl,-rpath,{libraries}"]  # where older versions have the plug-in interface
    return words


def _toolkits() -> Iterator[pathlib.Path]:
    """Where NVIDIA's own headers may be: for a PyTorch that names more of CUDA than neap declares."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield pathlib.Path(os.environ[variable]) / "include"
    for folder in sys.path:
        yield from sorted(pathlib.Path(folder).glob("nvidia/*/include")) if folder else ()
    yield pathlib.Path("/usr/local/cuda/include")


def _key(torch: Any, sources: pathlib.Path, command: list[str]) -> str:
    digest = hashlib.sha256()
    for path in sorted([*sources.glob("*.cpp"), *sources.glob("*.h"), *sources.glob("cuda/*.h"), *_headers(sources).glob("neap/*.h")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update("\0".join([torch.__version__, str(torch.version.cuda), *command]).encode())
    return digest.hexdigest()[:24]


def _cache() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base) / "neap" / "allocator"


def _last_lines(text: str) -> str:
    errors = [line for line in text.splitlines() if "error" in line]
    return "\n".join((errors or text.splitlines())[:12])


def _compile(command: list[str], folder: pathlib.Path, toolkits: list[pathlib.Path], own: pathlib.Path) -> str:
    """Publishes the object whole. The first error's lines where no declarations of CUDA do; "": done."""
    first = ""
    for cuda in [own, *toolkits]:
        words = [f"-I{cuda}" if word == f"-I{own}" else word for word in command]
        part = folder / f"part.{os.getpid()}"
        done = subprocess.run([*words, "-o", str(part)], capture_output=True, text=True, timeout=_COMPILE_SECONDS)
        if done.returncode == 0:
            os.replace(part, folder / "neap_torch.so")
            return ""
        first = first or _last_lines(done.stderr)
    return first


def _toolkits_here() -> list[pathlib.Path]:
    return [folder for folder in _toolkits() if (folder / "cuda_runtime_api.h").is_file()]


def compiled(torch: Any) -> pathlib.Path:
    """The object for this PyTorch, compiled if it is not in the cache. Other processes that want it wait meanwhile."""
    sources = _sources()
    own = sources / "cuda"
    command = _command(torch, sources, own)
    folder = _cache() / _key(torch, sources, command)
    made = folder / "neap_torch.so"
    if made.is_file():
        return made
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:  # a read-only home: for this process alone
        folder = pathlib.Path(tempfile.mkdtemp(prefix="neap-allocator-"))
        made = folder / "neap_torch.so"
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        failure = "" if made.is_file() else _compile(command, folder, _toolkits_here(), own)
    except (OSError, subprocess.SubprocessError) as error:
        failure = str(error)
    finally:
        os.close(lock)
    if failure:
        raise AllocatorUnavailable(
            f"neap's allocator could not be compiled against PyTorch {torch.__version__} by {command[0]}:\n{failure}\n{_WITHOUT}"
        )
    return made


def _load(torch: Any) -> None:
    path = compiled(torch)
    try:
        built = ctypes.CDLL(str(path))
    except OSError as error:
        raise AllocatorUnavailable(f"neap's allocator, compiled as {path}, does not load: {error}") from None
    install = built.neap_torch_install
    install.restype = ctypes.c_int
    install.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    message = ctypes.create_string_buffer(_MESSAGE_ROOM)
    library = _library.library()
    if install(library._handle, message, _MESSAGE_ROOM) != 0:
        raise AllocatorUnavailable(f"neap's allocator was not installed: {message.value.decode('utf-8', 'replace')}")


def _plug_in(torch: Any) -> None:
    try:
        _plugin.install(torch)
    except (AttributeError, OSError, RuntimeError) as error:
        raise AllocatorUnavailable(f"neap's allocator through the plug-in of PyTorch {torch.__version__}: {error}") from None


def install(plugin: bool = False) -> None:
    """Makes neap PyTorch's allocator in this process. Idempotent. Raises AllocatorUnavailable."""
    global _installed
    if _installed:
        return
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        raise AllocatorUnavailable(f"neap's allocator: PyTorch cannot be imported: {error}") from None
    if torch.version.cuda is None:
        raise AllocatorUnavailable(f"neap's allocator: this PyTorch {torch.__version__} is without CUDA")
    if torch.cuda.is_initialized():
        raise AllocatorUnavailable(
            "neap's allocator must be installed before CUDA is used: call neap.install_allocator() right after `import torch`, or "
            "start the program with `neap run --allocator neap`"
        )
    (_plug_in if plugin else _load)(torch)
    _installed = True
