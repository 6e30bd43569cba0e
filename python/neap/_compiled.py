"""Compiles neap's C++ code against the installed PyTorch, once: neap's allocator (_allocator.py), and the watch on PyTorch's
(_watch.py).

    compiled(torch, unit) --> the object in the cache, else: lock the cache, compile, publish
    cached(torch, unit)   --> the object in the cache, or None: never waits for a compiler
    leave_job(torch, unit) --> XDG_CACHE_HOME/neap/compile, by which `neap run` starts run_job in a process of its own

The cache is XDG_CACHE_HOME/neap/NAME/KEY/OBJECT; the key is a hash of the sources, PyTorch's version and ABI, and the compiler's
arguments. The key does not depend on which compiler it is, so that a machine without one can use an object that another machine
left there. Only a C++ compiler is needed: PyTorch's wheel has its headers, and neap declares the CUDA functions that they name
(src/torch/cuda).
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from ._abi import Status
from ._library import NeapError

_COMPILE_SECONDS = 600
_RETRY_SECONDS = 86400  # a job that failed is not left again before this time has passed
_JOB = "import sys; sys.path.insert(0, sys.argv[1]); from neap import _compiled; _compiled.run_job(sys.argv[2])"
_FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w")
# Features of PyTorch's headers that depend on the version: a macro of src/torch, the header, and the words that show the feature.
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




class Unavailable(NeapError):
    """Raised if an object cannot be compiled here. The text says why, and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(Status.ESTATE, message)


@dataclasses.dataclass(frozen=True)
class Unit:
    """The sources of one object."""

    name: str  # of its folder in the cache
    title: str  # in messages
    main: str  # the file that the compiler is given
    sources: tuple[str, ...]  # patterns of the files that `main` includes, itself among them
    object: str
    advice: str  # what to do without a compiler


@dataclasses.dataclass(frozen=True)
class _Build:
    folder: pathlib.Path
    made: pathlib.Path
    own: pathlib.Path  # neap's declarations of CUDA, which NVIDIA's may replace


def sources(unit: Unit) -> pathlib.Path:
    """Returns the folder of src/torch's files."""
    here = pathlib.Path(__file__).resolve().parent
    for folder in (here / "torch_source", here.parent.parent / "src" / "torch"):
        if (folder / unit.main).is_file():
            return folder
    raise Unavailable(f"{unit.title} for PyTorch: its sources are not beside the package. Install neap again")


def _headers(unit: Unit, folder: pathlib.Path) -> pathlib.Path:
    """Returns the folder that has neap/alloc.h."""
    for found in (folder / "include", folder.parent.parent / "include"):
        if (found / "neap" / "alloc.h").is_file():
            return found
    raise Unavailable(f"{unit.title} for PyTorch: neap/alloc.h is not beside its sources. Install neap again")


def _compiler(unit: Unit) -> str:
    asked = os.environ.get("CXX")
    if asked:
        return asked
    for name in ("c++", "g++", "clang++"):
        found = shutil.which(name)
        if found:
            return found
    raise Unavailable(
        f"{unit.title} is compiled once against the installed PyTorch, and there is no C++ compiler (no CXX in the environment, "
        f"no c++, g++ or clang++ on PATH). Install one (Debian: apt install g++). {unit.advice}"
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


def command(torch: Any, unit: Unit) -> list[str]:
    """Returns the compiler's command line, without the output's name."""
    return [*_compiler(unit).split(), *_arguments(torch, unit)]


def _arguments(torch: Any, unit: Unit) -> list[str]:
    root = pathlib.Path(torch.__file__).resolve().parent
    include = root / "include"
    libraries = root / "lib"
    if not (include / "c10" / "cuda" / "CUDACachingAllocator.h").is_file():
        raise Unavailable(f"{unit.title} for PyTorch: this PyTorch {torch.__version__} is without CUDA, or without its headers")
    folder = sources(unit)
    abi = int(bool(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True)))
    words = [*_FLAGS, f"-D_GLIBCXX_USE_CXX11_ABI={abi}", *_features(include), f"-I{folder / 'cuda'}", f"-I{_headers(unit, folder)}"]
    for headers in (include, include / "torch" / "csrc" / "api" / "include"):
        words += ["-isystem", str(headers)]
    words += [str(folder / unit.main), f"-L{libraries}", "-Wl,--as-needed", "-lc10", "-lc10_cuda", "-ltorch_cpu", "-ltorch_cuda"]
    words += ["-ltorch_python", f"-Wl,-rpath,{libraries}"]  # where older versions have the plug-in interface
    return words


def _toolkits() -> Iterator[pathlib.Path]:
    """Yields folders that may have NVIDIA's own headers, for a PyTorch that uses more of CUDA than neap declares."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield pathlib.Path(os.environ[variable]) / "include"
    for folder in sys.path:
        yield from sorted(pathlib.Path(folder).glob("nvidia/*/include")) if folder else ()
    yield pathlib.Path("/usr/local/cuda/include")


def _key(torch: Any, unit: Unit, words: list[str]) -> str:
    folder = sources(unit)
    digest = hashlib.sha256()
    files = {path for pattern in (*unit.sources, "cuda/*.h") for path in folder.glob(pattern)}
    for path in sorted([*files, *_headers(unit, folder).glob("neap/*.h")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update("\0".join([torch.__version__, str(torch.version.cuda), *words]).encode())
    return digest.hexdigest()[:24]


def _cache() -> pathlib.Path:
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "neap"


def _last_lines(text: str) -> str:
    errors = [line for line in text.splitlines() if "error" in line]
    return "\n".join((errors or text.splitlines())[:12])


def _compile(build: _Build, command: list[str], toolkits: list[pathlib.Path]) -> str:
    """Compiles, and publishes the object whole. Returns the lines of the first error if no declarations of CUDA suffice; "":
    done."""
    first = ""
    for cuda in [build.own, *toolkits]:
        words = [f"-I{cuda}" if word == f"-I{build.own}" else word for word in command]
        part = build.folder / f"part.{os.getpid()}"
        done = subprocess.run([*words, "-o", str(part)], capture_output=True, text=True, timeout=_COMPILE_SECONDS)
        if done.returncode == 0:
            os.replace(part, build.made)
            return ""
        first = first or _last_lines(done.stderr)
    return first


def _toolkits_here() -> list[pathlib.Path]:
    return [folder for folder in _toolkits() if (folder / "cuda_runtime_api.h").is_file()]


def _build(torch: Any, unit: Unit) -> _Build:
    folder = _cache() / unit.name / _key(torch, unit, _arguments(torch, unit))
    return _Build(folder, folder / unit.object, sources(unit) / "cuda")


def _lock(folder: pathlib.Path) -> int:
    return os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _finish(build: _Build, command: list[str], lock: int, toolkits: list[pathlib.Path]) -> str:
    """Compiles once no other process does; closes the lock. Returns the same as _compile."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return "" if build.made.is_file() else _compile(build, command, toolkits)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    finally:
        os.close(lock)


def compiled(torch: Any, unit: Unit) -> pathlib.Path:
    """Returns the object for this PyTorch, compiled if it is not in the cache. Other processes that want it wait meanwhile."""
    build = _build(torch, unit)
    if build.made.is_file():
        return build.made
    words = command(torch, unit)
    try:
        build.folder.mkdir(parents=True, exist_ok=True)
        lock = _lock(build.folder)
    except OSError:  # a read-only home: compile for this process alone
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"neap-{unit.name}-"))
        build = dataclasses.replace(build, folder=folder, made=folder / unit.object)
        lock = _lock(folder)
    failure = _finish(build, words, lock, _toolkits_here())
    if failure:
        raise _failed(torch, unit, words[0], failure)
    return build.made


def _failed(torch: Any, unit: Unit, compiler: str, failure: str) -> Unavailable:
    by = f"against PyTorch {torch.__version__} by {compiler}"
    return Unavailable(f"{unit.title} could not be compiled {by}:\n{failure}\n{unit.advice}")


def cached(torch: Any, unit: Unit) -> pathlib.Path | None:
    """Returns the object for this PyTorch if it was compiled before, else None. Raises Unavailable for a PyTorch without CUDA."""
    made = _build(torch, unit).made
    return made if made.is_file() else None


# Without waiting.


def _put(path: pathlib.Path, content: bytes) -> None:
    """Writes a file whole or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.chmod(0o600)
    os.replace(part, path)


def leave_job(torch: Any, unit: Unit) -> None:
    """Has `neap run` compile the object (src/run/pending_compile.h). Raises Unavailable if that failed lately, and OSError."""
    build = _build(torch, unit)
    words = command(torch, unit)
    failed = build.folder / "failed"
    if failed.is_file() and time.time() - failed.stat().st_mtime < _RETRY_SECONDS:
        raise _failed(torch, unit, words[0], failed.read_text(errors="replace"))
    build.folder.mkdir(parents=True, exist_ok=True)
    job = {"command": words, "own": str(build.own), "made": str(build.made), "toolkits": list(map(str, _toolkits_here()))}
    _put(build.folder / "job", json.dumps(job).encode())
    package = pathlib.Path(__file__).resolve().parent.parent
    argv = [sys.executable, "-I", "-c", _JOB, str(package), str(build.folder)]
    _put(_cache() / "compile", b"".join(os.fsencode(word) + b"\0" for word in argv))


def run_job(place: str) -> None:
    """Runs in the process that `neap run` started."""
    folder = pathlib.Path(place)
    job = json.loads((folder / "job").read_bytes())
    build = _Build(folder, pathlib.Path(job["made"]), pathlib.Path(job["own"]))
    failure = _finish(build, job["command"], _lock(folder), [pathlib.Path(toolkit) for toolkit in job["toolkits"]])
    if failure:
        _put(folder / "failed", failure.encode())
