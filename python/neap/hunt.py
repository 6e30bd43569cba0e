"""Finds what holds tensors, and releases what may be released.

The garbage collector knows every object that can hold another. The search goes up from the tensors, one pass over the heap a level:

    tensor <- list <- dict of a module                       a global
    tensor <- cell <- tuple <- function                      a closure
    tensor <- frame that has ended <- traceback              a saved traceback
    tensor <- object <- object <- itself, and nothing else   a cycle: gone after a collection
    tensor <- frame that runs                                in use; not visible before Python 3.13

A tensor that was computed leads to its autograd graph, and that to tensors saved for a backward pass, which no Python object
refers to (_graphs.py): `history.append(loss)` keeps 4 bytes and all activations. They are counted for the tensor that leads to
them. Other memory that only PyTorch's C++ side holds (a gradient, say) has no object to find: it is the difference between
what is allocated and what is named here.

The tensors of a model or an optimizer (6000 at 800 layers) are not followed one by one: whatever holds the model holds them.

Several tensors can share one storage (`out` and `out.detach()`): it is named once, with the holders of any of them.
Objects that gc.freeze() has hidden from the collector are not found.

Reading a running frame's variables would make Python (before 3.13) keep a copy of them in the frame, and with it the tensors: for
a running frame, the function is named, and not the variable.
"""

from __future__ import annotations

import dataclasses
import gc
import inspect
import re
import sys
import types
import weakref
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from . import _graphs, _sources, _units

_DEPTH = 8  # hops from a tensor to its holder, at most
_TRACED = 5000  # tensors followed, the largest first
_REPORTED = 20
_FEW = 50  # up to this many objects, the collector searches faster than this file
_UNSEEN = "a variable of a running function, or PyTorch's C++ side (a gradient, say)"
_KINDS = ("traceback", "closure", "global", "class", "frame", "object", "unknown")  # the first that holds it names it


@dataclasses.dataclass(frozen=True)
class Lingering:
    """A tensor that occupies memory, or whose autograd graph does, and what holds it. With a `count` above 1 it stands for several
    similar tensors with similar holders (the shape of one, the bytes of all), or for all tensors of a model or an optimizer
    (`what`)."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    bytes: int  # of its storage
    kind: str  # "traceback", "closure", "cycle", "global", "class", "frame" (in use), "object", "unknown"
    holders: tuple[str, ...]
    released: bool
    saved: int = 0  # other bytes, in tensors that its graph keeps for a backward pass and nothing else holds
    count: int = 1
    what: str = ""  # "parameters of GPT", "state of AdamW"

    def __str__(self) -> str:
        held = "; ".join(self.holders) or _UNSEEN
        end = "released" if self.released else "kept"
        graph = f" and {_units.size(self.saved)} saved for its backward pass" if self.saved else ""
        kind = self.what or f"{self.dtype} {list(self.shape)}"
        several = f" in {self.count} tensors," if self.count > 1 else ""
        return f"{_units.size(self.bytes)}{several} {kind} on {self.device}{graph}: {held} ({end})"


class _Own(list):  # type: ignore[type-arg]
    """Marks our own lists, so that they are not taken for holders."""


class _OwnDict(dict):  # type: ignore[type-arg]
    """Marks our own dictionaries."""


def kinds_of(device_types: str | Collection[str]) -> tuple[str, ...]:
    """ Returns the types as a tuple: "cuda" is one type, not four letters."""
    return (device_types,) if isinstance(device_types, str) else tuple(device_types)


def storage_key(tensor: Any) -> tuple[int, str, int]:
    """Returns a key for the storage of a tensor, valid as long as it lives: all views of one storage have the same key."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), str(tensor.device), storage.nbytes()


class Storage:
    """Bytes that tensors occupy: their own, as far as Python objects hold them, and those that their graphs keep."""

    __slots__ = ("key", "tensors", "saved")

    def __init__(self, key: tuple[int, str, int]) -> None:
        self.key = key
        self.tensors = _Own()
        self.saved = 0

    @property
    def bytes(self) -> int:
        """Bytes of the storage itself."""
        return self.key[2]


def _referrers(targets: Any) -> Any:
    """Returns the same as gc.get_referrers(*targets), but faster: that function compares every reference with every target."""
    if len(targets) <= _FEW:
        return gc.get_referrers(*targets) if targets else ()
    wanted = {id(target) for target in targets}
    objects = gc.get_objects()
    found = _Own()
    for begin in range(0, len(objects), _FEW):  # hardly any of them refers to a target
        some = objects[begin : begin + _FEW]
        if not wanted.isdisjoint(map(id, gc.get_referents(*some))):
            found.extend(item for item in some if not wanted.isdisjoint(map(id, gc.get_referents(item))))
    return found


def _held(found: dict[Any, Storage], roots: Any) -> set[int]:
    """Returns the ids of the tensors to which a Python object refers. A tensor that only PyTorch's C++ side keeps may still have
    the Python object that it had in a function's variable."""
    targets = _Own(tensor for storage in found.values() for tensor in storage.tensors)
    targets.extend(roots)
    wanted = {id(tensor) for tensor in targets}
    held = set[int]()
    for parent in _referrers(targets):
        if not _is_own(parent) and parent is not targets:
            held.update(id(child) for child in gc.get_referents(parent) if id(child) in wanted)
    return held


def _count_graphs(torch: Any, device_types: Collection[str], found: dict[Any, Storage], roots: Any, objects: Any) -> None:
    """Counts the bytes that the graphs of these tensors keep, for the storage of each tensor, and adds that storage to `found`,
    whatever its device. An object that only a graph keeps is then no longer listed by itself."""
    held = _held(found, roots)
    known = {key for key, storage in found.items() if any(id(tensor) in held for tensor in storage.tensors)}
    walk = _graphs.Walk(torch, device_types, known, storage_key, objects)
    named = _Own(root for root in roots if id(root) in held)
    others = _Own(root for root in roots if id(root) not in held)  # variables of running functions
    for one, count in walk.saved(named, oldest_first=True) + walk.saved(others, oldest_first=False):
        key = storage_key(one)
        if count and key not in found:  # on another device: `history.append(loss.cpu())`
            found[key] = Storage(key)
            found[key].tensors.append(one)
        if count:
            found[key].saved += count
    for key in walk.counted:
        found.pop(key, None)


def storages(device_types: Collection[str]) -> Any:
    """Returns the storages of tensors on these devices, and of their graphs there, the largest first. Drop the list soon."""
    torch, device_types = _sources.torch_module(), kinds_of(device_types)
    found: dict[Any, Storage] = _OwnDict()
    roots = _Own()
    if torch is None:
        return _Own()
    objects = _Own(gc.get_objects())
    for item in objects:
        try:
            if not issubclass(type(item), torch.Tensor):
                continue
            if item.grad_fn is not None:
                roots.append(item)
            if item.device.type not in device_types:
                continue
            key = storage_key(item)
            if key[2]:
                if key not in found:
                    found[key] = Storage(key)
                found[key].tensors.append(item)
        except Exception:  # a fake tensor, or a subclass with its own behaviour
            continue
    if roots:
        _count_graphs(torch, device_types, found, roots, objects)
    return _Own(sorted(found.values(), key=lambda one: one.bytes + one.saved, reverse=True))


def _running() -> set[int]:
    """Returns the frames that are being executed, in all threads."""
    ids = set()
    for frame in sys._current_frames().values():
        here: types.FrameType | None = frame
        while here is not None:
            ids.add(id(here))
            here = here.f_back
    del frame  # our own frame: a cycle that would keep our callers' variables
    return ids


def _is_own(item: object) -> bool:
    if type(item) in (_Own, _OwnDict, _Search, Storage, _Group):
        return True
    return isinstance(item, types.FrameType) and item.f_code.co_filename == __file__


def _module_of(namespace: dict[str, Any]) -> str | None:
    """Returns the name of the module whose globals this dictionary is; None: it is no such dictionary."""
    name = namespace.get("__name__")
    if not isinstance(name, str):
        return None
    module = sys.modules.get(name)
    if module is not None and getattr(module, "__dict__", None) is namespace:
        return name
    return name if "__builtins__" in namespace else None


def _step(parent: Any, child: Any) -> str:
    """Returns how a parent refers to its child, in Python's notation."""
    if isinstance(parent, dict):
        for key, value in list(parent.items()):
            if value is child:
                shown = repr(key)[:40] if isinstance(key, (str, int, float, bytes)) else f"<{type(key).__qualname__}>"
                return f"[{shown}]"
    elif isinstance(parent, (list, tuple)):
        for index, value in enumerate(parent):
            if value is child:
                return f"[{index}]"
    else:
        slots = getattr(type(parent), "__slots__", ())
        attributes: dict[str, Any] = dict(getattr(parent, "__dict__", None) or {})
        attributes.update({n: getattr(parent, n, None) for n in ([slots] if isinstance(slots, str) else slots)})
        for name, value in attributes.items():
            if value is child:
                return f".{name}"
    return "[...]"


class _Search:
    """Parents of the targets, up to _DEPTH hops, and the chains from them to a final holder."""

    def __init__(self, targets: _Own) -> None:
        self._running = _running()
        self._parents: _OwnDict = _OwnDict()  # id of child: its parents
        self.frames: _OwnDict = _OwnDict()  # id: frames of tracebacks that lead to a target
        frontier = _Own(targets)
        seen = {id(t) for t in targets}
        for _ in range(_DEPTH):
            wanted = {id(item) for item in frontier}
            above = _Own()
            for parent in _referrers(frontier):
                if _is_own(parent) or parent is frontier:
                    continue
                for child in gc.get_referents(parent):
                    if id(child) in wanted:
                        self._parents.setdefault(id(child), _Own()).append(parent)
                if id(parent) not in seen and not self._ends(parent):
                    seen.add(id(parent))
                    above.append(parent)
            frontier = above

    def _ends(self, item: Any) -> bool:
        """Whether nothing above this object matters."""
        if isinstance(item, (types.ModuleType, types.FrameType, type)):
            return True
        return isinstance(item, dict) and _module_of(item) is not None

    def parents(self, item: Any) -> Iterable[Any]:
        """Yields the objects that refer to it."""
        found: Iterable[Any] = self._parents.get(id(item), ())
        return found

    def holders(self, target: Any) -> tuple[str, tuple[str, ...]]:
        """Returns the kind of its holder, and each holder in words."""
        found = _Own()
        for parent in self.parents(target):
            found.append(self._chain(parent, target, "", {id(target)}, 0))
        found = _Own(dict.fromkeys(f for f in found if f))  # each once
        found.sort(key=lambda pair: _KINDS.index(pair[0]))
        kind = found[0][0] if found else "unknown"
        return kind, tuple(text for _, text in found[:3])

    def _chain(self, item: Any, child: Any, tail: str, seen: set[int], depth: int) -> tuple[str, str] | None:
        """Follows a chain from an object that refers to `child` up to a holder; None: the chain only leads back."""
        if id(item) in seen:
            return None
        ended = self._end(item, child, tail)
        if ended or depth >= _DEPTH:
            return ended
        tail = ("" if isinstance(item, types.CellType) else _step(item, child)) + tail
        best: tuple[str, str] | None = None
        for parent in self.parents(item):
            if isinstance(item, dict) and isinstance(parent, type):  # a class's attributes
                key = next((str(k) for k, v in list(item.items()) if v is child), "?")
                rest = tail[len(_step(item, child)) :]
                return "class", f"attribute {key}{rest} of class {parent.__qualname__}"
            of_parent: Any = getattr(parent, "__dict__", None)
            if isinstance(item, dict) and of_parent is item:  # an object's attributes
                key = next((str(k) for k, v in list(of_parent.items()) if v is child), "...")
                above = self._through_object(parent, f".{key}" + tail[len(_step(item, child)) :], seen | {id(item)}, depth)
            else:
                above = self._chain(parent, item, tail, seen | {id(item)}, depth + 1)
            if above and (best is None or _KINDS.index(above[0]) < _KINDS.index(best[0])):
                best = above
        return best or ("object", f"{type(item).__qualname__} object{tail}")

    def _through_object(self, item: Any, tail: str, seen: set[int], depth: int) -> tuple[str, str] | None:
        if isinstance(item, (types.ModuleType, type)):
            return self._end(item, None, tail)
        best: tuple[str, str] | None = None
        for parent in self.parents(item):
            above = self._chain(parent, item, tail, seen | {id(item)}, depth + 1)
            if above and (best is None or _KINDS.index(above[0]) < _KINDS.index(best[0])):
                best = above
        return best or ("object", f"{type(item).__qualname__} object{tail}")

    def _end(self, item: Any, child: Any, tail: str) -> tuple[str, str] | None:
        """Returns the end of the chain, if this object is one."""
        if isinstance(item, types.FrameType):
            return self._frame(item, child, tail)
        if isinstance(item, dict):
            module = _module_of(item)
            if module is not None:
                variable = next((str(k) for k, v in list(item.items()) if v is child), "?")
                return "global", f"global {variable}{tail} of module {module}"
        if isinstance(item, types.ModuleType):
            return "global", f"module {item.__name__}{tail}"
        if isinstance(item, type):
            attribute = next((k for k, v in list(vars(item).items()) if v is child), "?")
            return "class", f"attribute {attribute}{tail} of class {item.__qualname__}"
        if isinstance(item, types.CellType):
            return self._cell(item, tail)
        return None

    def _frame(self, frame: types.FrameType, child: Any, tail: str) -> tuple[str, str] | None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        where = f"{name} ({code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno})"
        if id(frame) in self._running:
            return "frame", f"a variable{tail and ' that leads to ' + tail} of {where}, which is running"
        if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            return "frame", f"a variable of {where}, a generator or coroutine"
        self.frames[id(frame)] = frame
        copied = frame.f_locals  # before Python 3.13 a dictionary that the frame keeps
        if copied is child and tail.startswith("['"):
            variable, _, tail = tail[2:].partition("']")
        else:
            variable = next((k for k, v in list(copied.items()) if v is child), "?")
        return "traceback", f"local variable {variable}{tail} of {where}, in a saved traceback"

    def _cell(self, cell: types.CellType, tail: str) -> tuple[str, str] | None:
        for closure in self.parents(cell):
            if not isinstance(closure, tuple):
                continue
            for function in self.parents(closure):
                if isinstance(function, types.FunctionType) and function.__closure__ is closure:
                    names = function.__code__.co_freevars
                    at = next(i for i, c in enumerate(closure) if c is cell)
                    return "closure", f"closure variable {names[at]}{tail} of {function.__qualname__}"
        return None


class _Group:
    """Storages that one model or optimizer holds: its holders are theirs."""

    __slots__ = ("owner", "what", "storages")

    def __init__(self, owner: Any, what: str) -> None:
        self.owner = owner
        self.what = what
        self.storages = _Own()


def _owners(torch: Any) -> tuple[Any, Any]:
    """Returns the models that are not part of another model, and the optimizers."""
    kinds: dict[type, int] = {}
    modules = _Own()
    optimizers = _Own()
    for item in gc.get_objects():
        kind = type(item)
        if kind not in kinds:
            kinds[kind] = 1 if issubclass(kind, torch.nn.Module) else 2 if issubclass(kind, torch.optim.Optimizer) else 0
        if kinds[kind]:
            (modules if kinds[kind] == 1 else optimizers).append(item)
    parts = {id(part) for module in modules for part in module.__dict__.get("_modules", {}).values()}
    return _Own(module for module in modules if id(module) not in parts), optimizers


def _members(torch: Any, models: Any, optimizers: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yields each tensor of these, with its owner and its role there."""
    for model in models:
        name = type(model).__name__
        for module in model.modules():
            for parameter in list(module.__dict__.get("_parameters", {}).values()):
                if parameter is not None:
                    yield model, f"parameters of {name}", parameter
                    if parameter.grad is not None:
                        yield model, f"gradients of {name}", parameter.grad
            for buffer in list(module.__dict__.get("_buffers", {}).values()):
                if buffer is not None:
                    yield model, f"buffers of {name}", buffer
    for optimizer in optimizers:
        for state in list(optimizer.__dict__.get("state", {}).values()):
            for value in list(state.values()) if isinstance(state, dict) else ():
                if issubclass(type(value), torch.Tensor):
                    yield optimizer, f"state of {type(optimizer).__name__}", value


def _grouped(torch: Any, found: Any) -> tuple[Any, Any]:
    """Returns these storages as groups of more than one, and the remaining ones."""
    keys: dict[Any, Storage] = _OwnDict((storage.key, storage) for storage in found)
    groups: dict[Any, _Group] = _OwnDict()
    for owner, what, tensor in _members(torch, *_owners(torch)):
        try:
            key = storage_key(tensor)
        except Exception:  # a fake tensor, a lazy parameter
            continue
        if key in keys:
            place = (id(owner), what, key[1])
            if place not in groups:
                groups[place] = _Group(owner, what)
            groups[place].storages.append(keys.pop(key))
    alone = _Own(keys.values())
    alone.extend(group.storages[0] for group in groups.values() if len(group.storages) == 1)
    alone.sort(key=lambda one: one.bytes + one.saved, reverse=True)
    return _Own(group for group in groups.values() if len(group.storages) > 1), alone


@dataclasses.dataclass
class Account:
    """The findings about one storage or a group of storages. Keeps no tensor."""

    refs: list[Any]  # weak references
    facts: tuple[tuple[int, ...], str, str, int]  # shape, dtype, device, bytes
    saved: int
    kind: str
    holders: tuple[str, ...]
    count: int = 1
    what: str = ""
    died: str = ""  # the phase in which it died


def _account(search: _Search, storage: Storage) -> Account:
    """Makes the account of one storage: of the tensors that share it, shows the one that a named holder holds."""
    named: list[tuple[str, tuple[str, ...]]] = [search.holders(tensor) for tensor in storage.tensors]
    at = min(range(len(named)), key=lambda n: _KINDS.index(named[n][0]))
    kind, holders = named[at]
    others = [text for other_kind, texts in named for text in texts if other_kind != "frame" or kind == "frame"]
    tensor = storage.tensors[at]
    facts = (
        tuple(int(n) for n in tensor.shape),
        str(tensor.dtype).replace("torch.", ""),
        str(tensor.device),
        storage.bytes,
    )
    refs = [weakref.ref(tensor) for tensor in storage.tensors]
    return Account(refs, facts, storage.saved, kind, tuple(dict.fromkeys([*holders, *others]))[:3])


def _account_group(search: _Search, group: _Group) -> Account:
    kind, holders = search.holders(group.owner)
    first = group.storages[0]
    tensor = first.tensors[0]
    facts = (
        tuple(int(n) for n in tensor.shape),
        str(tensor.dtype).replace("torch.", ""),
        str(tensor.device),
        sum(storage.bytes for storage in group.storages),
    )
    refs = [weakref.ref(tensor) for storage in group.storages for tensor in storage.tensors]
    saved = sum(storage.saved for storage in group.storages)
    return Account(refs, facts, saved, kind, holders, len(group.storages), group.what)


def _look(
    device_types: Collection[str], skip: Collection[Any] = (), only: Collection[Any] | None = None
) -> tuple[list[Account], list[types.FrameType]]:
    """Returns accounts of all tensors, and the frames of tracebacks that hold some. Keeps no tensor. The tensors of a model or an
    optimizer share one account, unless `only` limits the search."""
    collects = gc.isenabled()
    gc.disable()  # it would start again and again, because of the objects made here
    try:
        return _look_at(device_types, skip, only)
    finally:
        if collects:
            gc.enable()


def _look_at(
    device_types: Collection[str], skip: Collection[Any], only: Collection[Any] | None
) -> tuple[list[Account], list[types.FrameType]]:
    found = storages(device_types)
    found = _Own(s for s in found if s.key not in skip and (only is None or s.key in only))
    groups = _Own()
    if only is None and found:
        groups, found = _grouped(_sources.torch_module(), found)
    found = _Own(found[:_TRACED])
    targets = _Own(tensor for storage in found for tensor in storage.tensors)
    targets.extend(group.owner for group in groups)
    search = _Search(targets)
    accounts = [_account_group(search, group) for group in groups] + [_account(search, storage) for storage in found]
    accounts.sort(key=lambda account: account.facts[3] + account.saved, reverse=True)
    return accounts, list(search.frames.values())


def accounts(device_types: Collection[str], only: Collection[Any]) -> list[Account]:
    """Returns the holders of the tensors in these storages (keys), the largest first. Releases nothing."""
    return _look(device_types, only=only)[0]


def _alike(accounts: Iterable[Account]) -> list[Account]:
    """Merges the accounts of similar tensors whose holders differ only in a number."""
    found: dict[Any, Account] = {}
    for account in accounts:
        shape, dtype, device, count = account.facts
        held = tuple(re.sub(r"\d+", "#", holder) for holder in account.holders)
        key = (shape, dtype, device, account.kind, held, account.died, account.what)
        if key in found:
            one = found[key]
            one.facts = (shape, dtype, device, one.facts[3] + count)
            one.saved += account.saved
            one.count += account.count
        else:
            found[key] = dataclasses.replace(account, refs=[])
    return list(found.values())


def _lingering(accounts: Iterable[Account], phase_of_cycles: str = "collected") -> Iterator[Lingering]:
    for account in accounts:
        kind = "cycle" if account.died == phase_of_cycles else account.kind
        holders = account.holders
        if kind == "cycle":
            holders = tuple(f"a reference cycle through {text}" for text in holders) or ("a reference cycle",)
        yield Lingering(*account.facts, kind, holders, bool(account.died), account.saved, account.count, account.what)


def lingering(
    device_types: Collection[str] = ("cuda",),
    limit: int = _REPORTED,
    skip: Collection[Any] = (),
    only: Collection[Any] | None = None,
) -> tuple[Lingering, ...]:
    """Returns the largest tensors on devices of these types, one for each storage and at most `limit`, each with its bytes, the
    bytes that its autograd graph keeps for a backward pass, and its holders. Leaves out the storage keys in `skip`, or takes only
    those in `only`. Releases nothing and raises nothing of its own; () without torch. Goes through all of Python's objects: some
    tenths of a second in a large program. Meanwhile, other threads should not allocate: their new tensors may be named or not.

    >>> neap.lingering()
    ()
    """
    accounts, _ = _look(device_types, skip, only)
    return tuple(_lingering(accounts[:limit]))


def _forget(frame: types.FrameType) -> None:
    """Drops the variables of a frame that has ended. Leaves a generator's frame alone: clearing it would end the generator."""
    if frame.f_code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return
    try:
        frame.clear()
        _ = frame.f_locals  # updates Python's copy of the variables
    except RuntimeError:  # the frame is running
        pass


def forget_frames(error: BaseException) -> None:
    """Drops the variables that the tracebacks of an exception and of its causes keep alive. The text stays."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    running = _running()
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        todo += [one.__cause__, one.__context__]
        trace = one.__traceback__
        while trace is not None:
            if id(trace.tb_frame) not in running:
                _forget(trace.tb_frame)
            trace = trace.tb_next


def _mark(accounts: list[Account], phase: str) -> None:
    for account in accounts:
        if not account.died and all(ref() is None for ref in account.refs):
            account.died = phase


def release(device_types: Collection[str] = ("cuda",), limit: int = _REPORTED) -> tuple[int, tuple[Lingering, ...]]:
    """Like lingering, but similar tensors with similar holders are one entry with a count; also releases tensors that only
    reference cycles and saved tracebacks hold. Returns the number of unreachable objects that the collector found, too.

    In a traceback, the frames that lead to a tensor lose their local variables; its text stays. Running frames, and those of
    generators, are left alone.
    """
    accounts, frames = _look(device_types)
    collected = gc.collect()
    _mark(accounts, "collected")
    if frames:
        while frames:
            _forget(frames.pop())
        collected += gc.collect()
        _mark(accounts, "cleared")
    gone = [a for a in accounts if a.died]
    kept = [a for a in accounts if not a.died]
    return collected, tuple(_lingering(_alike(gone + kept)[:limit]))
