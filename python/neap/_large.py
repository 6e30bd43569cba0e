"""Runs programs that are larger than this machine, on the simulator under `neap run` and `neap estimate`. Their devices take no
host memory. With this module, tensors that they build or read on the host take none either, beyond the bound for values.

    tensors on the host     lent memory (src/torch/values_host.h)
    torch.load of a file    mapped, as with mmap=True: the same values, but read only when they are used
    safetensors             maps its files itself
    from_pretrained         of transformers, if files of the weights are missing: files of the same tensors, without bytes, stand in
                            for them. Names come from the checkpoint's index, shapes from the model's class, the type from its
                            configuration, and together they must have the index's total size. Only under `neap estimate`
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import json
import os
import pathlib
import shutil
import struct
import tempfile
from typing import Any

from . import _awaited, _notes, _units

_LENT = (5 << 44, (5 << 44) + (4 << 40))  # addresses, as in values_host.h
_ZIP = b"PK\x03\x04"  # how a file of torch.save begins


class _State:
    """State of this process."""

    loaded: Any = None  # src/torch/values.cpp; None: nothing is lent
    bound = 0  # bytes of host memory
    read = 0  # bytes of the files that torch.load has read
    absent: dict[str, int] = {}  # by model: the bytes of the missing files


def begin(torch: Any, loaded: ctypes.CDLL, bound: int) -> None:
    """Called when torch was imported on the stand-ins."""
    loaded.neap_values_lend.argtypes = [ctypes.c_uint64]
    loaded.neap_values_lend.restype = None
    loaded.neap_values_lent.restype = ctypes.c_uint64
    loaded.neap_values_lend(bound)
    _State.loaded = loaded
    _State.bound = bound
    _draw_once(torch)
    _map_files(torch)
    if os.environ.get("NEAP_ESTIMATE") == "1":
        _awaited.change("transformers.modeling_utils", "PreTrainedModel", _notes.harmless("absent weights")(watch_pretrained))


def unknown() -> list[tuple[str, str]]:
    """Returns the same as _values.unknown."""
    found = [f"{_units.size(size)} of weights of {name}, whose files are not there" for name, size in _State.absent.items()]
    lent = _State.loaded.neap_values_lent() if _State.loaded else 0
    if lent:
        words = f"{_units.size(lent)} of tensors on the host beyond {_units.size(_State.bound)}"
        found.append(f"{words}, which were not written (values_memory= in NEAP_SIM)")
    return [(one, "no room") for one in found]


def _draw_once(torch: Any) -> None:
    """Makes trunc_normal_ draw once: newer versions draw again numbers that are too far from the mean, and would never end if
    nothing is written."""
    real = torch.nn.init._no_grad_trunc_normal_

    @functools.wraps(real)
    def draw(tensor: Any, mean: float, std: float, *arguments: Any, **named: Any) -> Any:
        if not _is_lent(tensor):
            return real(tensor, mean, std, *arguments, **named)
        with torch.no_grad():
            return tensor.uniform_()  # draws as many numbers as versions that draw once

    torch.nn.init._no_grad_trunc_normal_ = draw


def _is_lent(tensor: Any) -> bool:
    try:
        return bool(_LENT[0] <= tensor.data_ptr() < _LENT[1])
    except Exception:  # a tensor without bytes
        return False


def _map_files(torch: Any) -> None:
    real = torch.load

    @functools.wraps(real)
    def load(file: Any, *arguments: Any, **named: Any) -> Any:
        if named.get("mmap") is None and _is_beyond(file):
            return real(os.fspath(file), *arguments, **{**named, "mmap": True})
        return real(file, *arguments, **named)

    torch.load = torch.serialization.load = load


def _is_beyond(file: Any) -> bool:
    """Returns whether the file, with those before it, takes more than the bound."""
    try:
        with open(os.fspath(file), "rb") as opened:
            if opened.read(len(_ZIP)) != _ZIP:
                return False
            _State.read += os.fstat(opened.fileno()).st_size
    except (OSError, TypeError):  # leave the error to PyTorch; or this is no path
        return False
    return _State.read > _State.bound


# Missing weights.

_INDEX = "model.safetensors.index.json"
_TYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16", "float64": "F64", "int64": "I64", "int32": "I32", "bool": "BOOL"}
_POINTER = b"version https://git-lfs"  # how the file begins that git leaves in place of a large file
_ELSEWHERE = ("subfolder", "variant", "gguf_file", "state_dict", "from_tf", "from_flax")  # arguments for other files


def watch_pretrained(owner: Any) -> None:
    """`owner`: transformers' PreTrainedModel."""
    real = owner.from_pretrained.__func__

    @functools.wraps(real)
    def from_pretrained(cls: Any, name: Any, *arguments: Any, **named: Any) -> Any:
        folder = _stand_in(cls, name, named)
        made = real(cls, folder or name, *arguments, **named)
        if folder:
            model = made[0] if isinstance(made, tuple) else made
            model.name_or_path = model.config._name_or_path = str(name)
        return made

    owner.from_pretrained = classmethod(from_pretrained)


@_notes.harmless("absent weights")
def _stand_in(cls: Any, name: Any, named: dict[str, Any]) -> str:
    """Returns the folder that stands in for the model's; "": none is needed, or there is no index."""
    place = None if any(named.get(one) for one in _ELSEWHERE) or name is None else _index(str(name), named)
    if place is None:
        return ""
    index = json.loads(place.read_text(encoding="utf-8"))
    files: dict[str, str] = index["weight_map"]
    absent = {file for file in files.values() if not _is_there(place.parent / file)}
    total = int(index["metadata"]["total_size"])
    if not absent or (total <= _State.bound and not os.path.isdir(name) and not _is_offline(named)):
        return ""  # it will be downloaded
    written = json.loads((place.parent / "config.json").read_text(encoding="utf-8"))  # not what the program makes of it
    entries = _entries(cls, name, named, list(files), written)
    if sum(end - begin for _, _, begin, end in _laid_out(entries)) != total:
        raise ValueError(f"files of the weights of {name} are not there, and its configuration does not have the size in {_INDEX}")
    folder = tempfile.mkdtemp(prefix="neap-weights-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for path in place.parent.iterdir():
        if path.name not in absent:
            os.symlink(path.resolve(), os.path.join(folder, path.name))
    missing = {key: entry for key, entry in entries.items() if files[key] in absent}
    for file in absent:
        _write_empty(os.path.join(folder, file), {key: entry for key, entry in missing.items() if files[key] == file})
    _State.absent[str(name)] = sum(end - begin for _, _, begin, end in _laid_out(missing))
    return folder


def _index(name: str, named: dict[str, Any]) -> pathlib.Path | None:
    """Returns the path of the checkpoint's index. Downloads it from the Hub, unless it is in the cache."""
    if os.path.isdir(name):
        path = pathlib.Path(name, _INDEX)
        return path if path.is_file() else None
    from transformers.utils.hub import cached_file

    try:
        found = cached_file(name, _INDEX, **_passed(named))
    except Exception:  # transformers searches for it, too, and reports what it finds
        return None
    return pathlib.Path(found) if found else None


def _passed(named: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments that select files of the Hub."""
    return {key: named[key] for key in ("revision", "cache_dir", "token", "local_files_only") if named.get(key) is not None}


def _is_there(path: pathlib.Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_POINTER)) != _POINTER
    except FileNotFoundError:
        return False


def _is_offline(named: dict[str, Any]) -> bool:
    import huggingface_hub

    return bool(named.get("local_files_only") or huggingface_hub.constants.HF_HUB_OFFLINE)


_Entry = tuple[str, int, list[int]]  # of a tensor: its type in a header, bytes of an element, shape


def _entries(cls: Any, name: Any, named: dict[str, Any], keys: list[str], written: dict[str, Any]) -> dict[str, _Entry]:
    import torch

    config = named.get("config")
    if config is None or isinstance(config, (str, os.PathLike)):
        config = cls.config_class.from_pretrained(config or name, **_passed(named))
    of_weights = getattr(torch, written.get("dtype") or written.get("torch_dtype") or "float32")
    with torch.device("meta"):
        state = cls(type(config).from_dict(config.to_dict())).state_dict()
    found = {}
    for key in keys:
        dtype = of_weights if state[key].is_floating_point() else state[key].dtype
        found[key] = _TYPES[str(dtype).removeprefix("torch.")], dtype.itemsize, list(state[key].shape)
    return found


def _laid_out(entries: dict[str, _Entry]) -> list[tuple[str, _Entry, int, int]]:
    """Places the tensors one after the other, from 0. Returns each with the first and the end of its bytes."""
    found = []
    at = 0
    for key, entry in entries.items():
        size = entry[1]
        for length in entry[2]:
            size *= length
        found.append((key, entry, at, at + size))
        at += size
    return found


def _write_empty(path: str, entries: dict[str, _Entry]) -> None:
    """Writes a file of safetensors, with a hole in place of its bytes."""
    laid_out = _laid_out(entries)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for key, (kind, _, shape), begin, end in laid_out:
        header[key] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + max((end for *_, end in laid_out), default=0))


__all__ = ["begin", "unknown", "watch_pretrained"]
