"""True values on the simulator (values=full): each of PyTorch's CUDA operations computes on the host, over the device's own bytes.

    import torch on the stand-ins --> begin(): src/torch/values.cpp, compiled once, loaded; the twins (_twins.py) beside it
    each thread of Python's       --> the dispatch key that brings operations there is included (autograd's threads get it from it)

Nothing here changes what PyTorch's allocator does.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable
from typing import Any

from . import _compiled, _twins

UNIT = _compiled.Unit(
    name="values",
    title="neap's values for the simulator",
    main="values.cpp",
    sources=("values.cpp",),
    object="neap_values.so",
    advice="Without one, NEAP_SIM=...,values=none runs the program with zeros for what kernels would compute",
)
KEY = "CustomRNGKeyId"  # as in values.cpp


class _State:
    """Of this process."""

    loaded: Any = None


def asked() -> str:
    """What NEAP_SIM says of values: none or full."""
    found = re.findall(r"(?:^|,)values=(\w+)", os.environ.get("NEAP_SIM", ""))
    return found[-1] if found else "none"


def begin(torch: Any) -> None:
    """torch has been imported on the stand-ins. Raises Unavailable where the object cannot be compiled."""
    if _State.loaded is not None or asked() == "none" or not torch.cuda.is_available():
        return
    loaded = ctypes.CDLL(str(_compiled.compiled(torch, UNIT)), mode=ctypes.RTLD_GLOBAL)
    loaded.neap_values_start.argtypes = [ctypes.c_char_p]
    loaded.neap_values_start.restype = ctypes.c_bool
    twins = _twins.names(torch)
    if not loaded.neap_values_start("\n".join(twins).encode()):
        raise RuntimeError("the stand-in for CUDA's runtime computes no values")
    _twins.register(torch, twins, KEY)
    _State.loaded = loaded
    _include(torch)


def _include(torch: Any) -> None:
    """In this thread, and in each that Python starts from now on."""
    key = torch._C._parse_dispatch_key(KEY)
    torch._C._dispatch_tls_set_dispatch_key_included(key, True)
    start: Callable[[Any], None] = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def bootstrap(thread: Any) -> None:
        torch._C._dispatch_tls_set_dispatch_key_included(key, True)
        start(thread)

    threading.Thread._bootstrap_inner = bootstrap  # type: ignore[attr-defined]


def unknown() -> list[tuple[str, str]]:
    """The operations that were not computed so far, and why."""
    import torch

    if _State.loaded is None:
        return []
    lines = torch.ops.neap_values.unknown().splitlines()
    return [(name, why) for name, _, why in (line.partition("\t") for line in lines)]
