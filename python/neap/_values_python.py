"""Computes values without a C++ compiler: does in Python what src/torch/values.cpp does. This adds some 0.1 ms to each operation.

    each operation that CUDA has a function for --> CUDA's, blind; then its twin (_twins.py) or the CPU's, on tensors over the same bytes

It does not track which values are known: if a tensor is too large to compute, it counts as likely, and so does every inexact value
after that. Sparse tensors, graphs' replays, compiled code and TorchScript's kernels are not computed.
"""

from __future__ import annotations

import ctypes
from typing import Any

from . import _twins

_LARGE = 1 << 20  # elements of the largest tensor of an operation that values=auto leaves out
_WHOLE = ("aten::copy_", "aten::convolution", "aten::_unsafe_index_put", "aten::_fft_r2c", "aten::_fft_c2c", "aten::_fft_c2r")
_BARE = {
    *("_fused_sdp_choice", "record_stream", "resize_", "set_", "empty", "empty_strided", "is_pinned", "_pin_memory"),
    *("_cudnn_rnn_flatten_weight", "_cudnn_init_dropout_state", "_use_cudnn_ctc_loss", "_assert_async", "_assert_scalar"),
}


class _Calls(ctypes.Structure):
    """struct neap_sim_values of neap/sim.h."""

    _fields_ = [
        ("version", ctypes.c_uint32),
        ("start", ctypes.CFUNCTYPE(ctypes.c_int)),
        ("open", ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_size_t)),
        ("blind", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)),
    ]


class Operations:
    """The functions of torch.ops.neap_values that _values.py and _twins.py use."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        get = ctypes.CDLL(None).neap_sim_get_values
        get.restype = ctypes.POINTER(_Calls)
        self._calls = get().contents
        self._on = False
        self._whole = False
        self._left_out = False

    def start(self, whole: bool) -> bool:
        self._whole = whole
        self._on = self._calls.version == 1 and bool(self._calls.start())
        return self._on

    def is_on(self) -> bool:
        return self._on

    def host(self, tensor: Any) -> Any:
        torch = self._torch
        if not tensor.is_cuda or tensor.layout != torch.strided:
            return tensor
        if not tensor.numel():
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        elements = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
        length = elements * tensor.element_size()
        end = tensor.storage_offset() * tensor.element_size() + length
        if end > tensor.untyped_storage().nbytes():
            raise RuntimeError(f"a tensor of the device ends at byte {end} of a storage of {tensor.untyped_storage().nbytes()}")
        address = tensor.data_ptr()
        self._calls.open(address, length)
        flat = torch.frombuffer((ctypes.c_ubyte * length).from_address(address), dtype=tensor.dtype)
        same = flat.as_strided(tensor.shape, tensor.stride())
        same = torch._neg_view(same) if tensor.is_neg() else same
        return same.conj() if tensor.is_conj() else same

    def store(self, to: Any, source: Any) -> Any:
        if to.shape != source.shape:
            to.resize_(source.shape)
        if to.data_ptr() != source.data_ptr():
            self.host(to).copy_(source)
        return to

    def blind(self, on: bool) -> int:
        return int(self._calls.blind(int(on)))

    def seed(self, device: int, generator: Any = None) -> int:
        """Returns a seed from the state that CUDA's function has just left."""
        state = (generator or self._torch.cuda.default_generators[device]).get_state()
        return hash(bytes(state.tolist())) & (1 << 62) - 1

    def capture_twin(self) -> bool:
        return False

    def decide(self, _: str, read: list[Any], written: list[Any]) -> bool:
        most = max([tensor.numel() for tensor in (*read, *written)], default=0)
        if self._whole or most <= _LARGE or not any(tensor.is_floating_point() for tensor in written):
            return True
        for tensor in written:
            self.mark_unknown(tensor, False)
        return False

    def mark_unknown(self, tensor: Any, stays: bool) -> None:
        self._left_out = True
        if not stays and tensor.is_floating_point() and tensor.layout == self._torch.strided:
            self.host(tensor).fill_(0.5)

    def knows(self) -> bool:
        return not self._left_out

    def refused(self) -> int:
        return 0

    def unknown(self) -> str:
        return ""


def begin(torch: Any, operations: Operations, key: str) -> None:
    """Puts a Python function before each of CUDA's."""
    others = torch._C._dispatch_library("IMPL", "_", key)
    others.fallback_fallthrough(key)
    _twins.libraries.append(others)
    parsed = torch._C._parse_dispatch_key(key)
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    libraries: dict[str, Any] = {}
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        if name in _twins.TWINS or namespace != "aten" or rest.partition(".")[0] in _BARE:
            continue
        if not has(name, "CUDA") and name not in _WHOLE:
            continue
        operator = _twins.operator(torch, name)
        schema = operator._schema
        writes = any(one.alias_info and one.alias_info.is_write for one in schema.arguments)
        if not writes and any(one.alias_info for one in schema.returns):
            continue  # a view
        if namespace not in libraries:
            libraries[namespace] = torch.library.Library(namespace, "IMPL")
        exact = _with_tensors(torch, operator)
        seeded = torch.Tag.nondeterministic_seeded in operator.tags
        libraries[namespace].impl(rest, _kernel(torch, operations, name, exact, seeded, parsed), key)
    _twins.libraries.extend(libraries.values())


def _kernel(torch: Any, operations: Operations, name: str, operator: Any, seeded: bool, key: Any) -> Any:
    from torch.utils._pytree import tree_map

    function = _on_host(torch, operations, name, operator, seeded)

    def host(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return operations.host(value)
        return torch.device("cpu") if isinstance(value, torch.device) else value

    def alone(error: Exception, arguments: Any, named: Any) -> Any:
        """Returns the CPU's results, if CUDA's function may have failed because of values that it read."""
        invented = operations.blind(False)
        if not invented or isinstance(error, torch.cuda.OutOfMemoryError) or "CUDA error" in str(error):
            raise error
        results = function(*tree_map(host, arguments), **tree_map(host, named))
        return tree_map(lambda one: one.cuda() if isinstance(one, torch.Tensor) else one, results)

    return _twins.kernel(torch, name, operator, function, key, alone)


def _with_tensors(torch: Any, operator: Any) -> Any:
    """Wraps an operator: the dispatcher passes it numbers in place of tensors that PyTorch had made from numbers."""
    tensors = [str(one.type) == "Tensor" for one in operator._schema.arguments]
    if sum(tensors) < 2:
        return operator

    def call(*arguments: Any, **named: Any) -> Any:
        if not any(wanted and isinstance(one, (int, float, complex)) for one, wanted in zip(arguments, tensors)):
            return operator(*arguments, **named)
        wide = any(isinstance(one, torch.Tensor) and one.dtype in (torch.float64, torch.complex128) for one in arguments)

        def tensor(number: Any) -> Any:
            return torch.tensor(number, dtype=torch.float64 if wide and isinstance(number, float) else None)

        given = [
            tensor(one) if wanted and isinstance(one, (int, float, complex)) else one for one, wanted in zip(arguments, tensors)
        ]
        return operator(*given, *arguments[len(given) :], **named)

    return call


def _on_host(torch: Any, operations: Operations, name: str, operator: Any, seeded: bool) -> Any:
    from torch.utils._pytree import tree_map

    def wide(value: Any) -> Any:
        return value.float() if isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16) else value

    def exact(*arguments: Any, **named: Any) -> Any:
        arguments = _twins.mended(torch, name, arguments) or arguments
        try:
            return operator(*arguments, **named)
        except IndexError:
            raise
        except RuntimeError:  # the CPU has no function for a narrow type
            return operator(*tree_map(wide, arguments), **tree_map(wide, named))

    def on_host(*arguments: Any, **named: Any) -> Any:
        if not seeded:
            return exact(*arguments, **named)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(operations.seed(torch.cuda.current_device(), named.get("generator")))
            return operator(*arguments, **({**named, "generator": None} if "generator" in named else named))

    return on_host


__all__ = ["Operations", "begin"]
