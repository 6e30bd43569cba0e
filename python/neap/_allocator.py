"""Installs neap as PyTorch's allocator: compiles src/torch once against the installed PyTorch (_compiled.py), and installs the
result.

    install() --> _compiled.compiled --> load --> neap_torch_install
    install(plugin=True) --> _plugin.py, which compiles nothing
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

from . import _compiled, _library, _plugin

_MESSAGE_ROOM = 4096


class AllocatorUnavailable(_compiled.Unavailable):
    """Raised if neap cannot be PyTorch's allocator here. The text says why, and what to do."""


_installed = False
_WITHOUT = (
    "Without a compiler: neap.install_allocator(plugin=True) or neap run --allocator plugin, which uses PyTorch's plug-in and "
    "serves no CUDA graphs (docs/allocator.md)"
)
UNIT = _compiled.Unit(
    name="allocator",
    title="neap's allocator",
    main="neap_torch.cpp",
    sources=("[!w]*.cpp", "[!w]*.h"),  # all but the watch's files
    object="neap_torch.so",
    advice=_WITHOUT,
)


def installed() -> bool:
    """Whether neap is PyTorch's allocator in this process, compiled or through the plug-in."""
    return _installed


def _load(torch: Any) -> None:
    try:
        path = _compiled.compiled(torch, UNIT)
    except _compiled.Unavailable as error:
        raise AllocatorUnavailable(str(error)) from None
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
