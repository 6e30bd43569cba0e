"""Computes values of code that torch.compile has compiled, by the operations of its graph, on the host.

    compile_fx --> the inner compiler: keeps a copy of its graph with the compiled code
    a call     --> 1. the compiled code, which allocates, and launches kernels that do nothing
                   2. the copy, operation by operation, on CPU tensors over the inputs' bytes; stored into the results of 1

The program's own Triton kernels are in no graph: they compute nothing, and the report names them.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

from . import _notes, _races, _twins

_GRAPH = "_neap_graph"  # attribute of the compiled code: the graph's copy
_PRODUCTS = ("mm", "conv", "attention")
_inside = threading.local()  # compile_fx calls itself
failed: dict[str, str] = {}  # operations that could not be computed, and why


def watch(torch: Any, key: Any) -> None:
    """Call it once. Imports nothing of the compiler before the program compiles. `key` None: no values are computed."""
    wrapper = getattr(torch, "_TorchCompileInductorWrapper", None)
    if wrapper is None or hasattr(wrapper.__call__, _GRAPH):
        return
    call = wrapper.__call__

    @functools.wraps(call)
    def compile_graph(self: Any, *arguments: Any, **named: Any) -> Any:
        _prepare(torch, key)
        return call(self, *arguments, **named)

    setattr(compile_graph, _GRAPH, True)
    wrapper.__call__ = compile_graph


@_notes.harmless("values of compiled code")
def _prepare(torch: Any, key: Any) -> None:
    from torch._inductor import compile_fx

    try:
        from torch._inductor.output_code import CompiledFxGraph
    except ImportError:  # before 2.6
        from torch._inductor.codecache import CompiledFxGraph  # type: ignore[attr-defined]

    _time_once()
    if key is None or hasattr(compile_fx.compile_fx, _GRAPH):
        return
    if hasattr(torch._functorch.config, "enable_autograd_cache"):  # a cached result would come without a graph
        torch._functorch.config.enable_autograd_cache = False
    made: Any = CompiledFxGraph
    compile_fx.compile_fx = _with_graphs(compile_fx.compile_fx, compile_fx.compile_fx_inner)
    made.__call__ = _computed(torch, made.__call__, torch._C.DispatchKeySet(key))


@_notes.harmless("choice of kernels")
def _time_once() -> None:
    """Times each kernel of autotuning only once, with the same time for all, so that the first one is chosen. Autotuning would
    clear a buffer as large as the device's cache hundreds of times, and choose by times that mean nothing here."""
    try:
        from torch._inductor.runtime import benchmarking
    except ImportError:  # before 2.6
        return
    once = {
        "TritonBenchmarker": {"warmup": 0, "rep": 0},
        "InductorBenchmarker": {"estimation_iters": 1, "memory_warmup_iters": 0, "benchmark_iters": 1},
    }
    for name, counts in once.items():
        owner: Any = getattr(benchmarking, name, None)
        if "benchmark_gpu" in vars(owner or object) and not hasattr(owner.benchmark_gpu, _GRAPH):
            owner.benchmark_gpu = _alike(owner.benchmark_gpu, counts)


@contextlib.contextmanager
def _blind() -> Iterator[None]:
    import torch

    on = hasattr(torch.ops.neap_values, "is_on") and torch.ops.neap_values.is_on()
    if on:
        torch.ops.neap_values.blind(True)
    try:
        yield
    finally:
        if on:
            torch.ops.neap_values.blind(False)


def _alike(real: Callable[..., Any], counts: dict[str, int]) -> Callable[..., Any]:
    @functools.wraps(real)
    def benchmark_gpu(*arguments: Any, **named: Any) -> Any:
        with _blind():  # these launches do not belong to the program
            found = real(*arguments, **{**named, **counts})
        if isinstance(found, (list, tuple)):
            return [1.0] * len(found)
        return 1.0 if found < math.inf else found  # infinite for a kernel that cannot be launched

    setattr(benchmark_gpu, _GRAPH, True)
    return benchmark_gpu


def _with_graphs(real: Callable[..., Any], inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def keep(graph: Any, *arguments: Any, **named: Any) -> Any:
        kept = _copied(graph)
        made = inner(graph, *arguments, **named)
        setattr(made, _GRAPH, kept)
        return made

    @functools.wraps(real)
    def compile_fx(*arguments: Any, **named: Any) -> Any:
        if getattr(_inside, "deep", False):
            return real(*arguments, **named)
        _inside.deep = True
        try:
            return real(*arguments, **{"inner_compile": keep, **named})
        finally:
            _inside.deep = False

    setattr(compile_fx, _GRAPH, True)
    return compile_fx


def _copied(graph: Any) -> Any:
    """Returns a copy of the graph on the CPU. None: this graph cannot be copied."""
    import torch

    def on_host(value: Any) -> Any:
        return torch.device("cpu") if isinstance(value, torch.device) else value

    try:
        kept: Any = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
        cost = 0.0
        inputs = [node for node in kept.graph.nodes if node.op == "placeholder"]
        kept._neap_mutated = [inputs.index(node.args[0]) for node in kept.graph.nodes if _writes_input(torch, node, inputs)]
        for node in kept.graph.nodes:
            node.args = torch.fx.node.map_aggregate(node.args, on_host)
            node.kwargs = torch.fx.node.map_aggregate(node.kwargs, on_host)
            cost += _cost(torch, node)
        kept.recompile()
        kept._neap_cost = cost
        return kept
    except Exception as error:
        failed.setdefault("torch.compile", str(error).partition("\n")[0])
        return None


def _writes_input(torch: Any, node: Any, inputs: list[Any]) -> bool:
    return node.target is torch.ops.aten.copy_.default and node.args[0] in inputs


def _cost(torch: Any, node: Any) -> float:
    """Estimates the nanoseconds of one core, like values.cpp."""

    def sizes(value: Any) -> list[int]:
        found: list[int] = []
        torch.fx.node.map_aggregate(value, lambda one: found.append(_elements(torch, one)))
        return found

    result = max(sizes(node.meta.get("val")) or [0])
    if node.op != "call_function" or not any(part in str(node.target) for part in _PRODUCTS):
        return result
    read = sorted(sizes([one.meta.get("val") for one in node.all_input_nodes]))[-2:]
    return result + math.sqrt(float(result) * math.prod(read)) / 5


def _elements(torch: Any, value: Any) -> int:
    if not isinstance(value, torch.Tensor):
        return 0
    return math.prod(one if isinstance(one, int) else int(getattr(one.node, "hint", None) or 1) for one in value.shape)


def _computed(torch: Any, real: Callable[..., Any], keys: Any) -> Callable[..., Any]:
    helpers = torch.ops.neap_values

    def tensors(values: Any) -> list[Any]:
        return [one for one in values if isinstance(one, torch.Tensor) and one.is_cuda]

    @functools.wraps(real)
    def call(self: Any, inputs: Any) -> Any:
        if not helpers.is_on():
            return real(self, inputs)
        graph = getattr(self, _GRAPH, None)
        # The compiled code frees its inputs when it has read them; CPU tensors over their bytes do not keep them alive.
        hosts = [helpers.host(one) if isinstance(one, torch.Tensor) else one for one in inputs]
        read = [host for host, one in zip(hosts, inputs) if isinstance(one, torch.Tensor) and one.is_cuda]
        with torch._C._ExcludeDispatchKeyGuard(keys):
            if _races.is_on():
                helpers.settle(tensors(inputs))
            try:
                helpers.blind(True)
                results = real(self, inputs)
            finally:
                helpers.blind(False)
            one_alone = isinstance(results, torch.Tensor)
            written = tensors([results] if one_alone else results)
            if graph is None:
                _forget(torch, [*written, *read])
                return results
            written += [hosts[at] for at in graph._neap_mutated if isinstance(hosts[at], torch.Tensor)]
            if helpers.decide_cost(graph._neap_cost, read, written):
                _store(torch, graph, hosts, [results] if one_alone else results)
        return results

    return call


def _forget(torch: Any, results: Any) -> None:
    """Marks results that nobody computes. Other tensors may have been written: they stay, and count as likely."""
    helpers = torch.ops.neap_values
    for one in results:
        if isinstance(one, torch.Tensor):
            helpers.mark_unknown(one, not one.is_cuda)


def _store(torch: Any, graph: Any, hosts: list[Any], results: Any) -> None:
    helpers = torch.ops.neap_values

    class OnHost(torch.fx.Interpreter):  # type: ignore[misc]
        def fetch_attr(self, target: str) -> Any:
            value = super().fetch_attr(target)
            return helpers.host(value) if isinstance(value, torch.Tensor) else value

        def run_node(self, node: Any) -> Any:
            self.meta = node.meta.get("val")
            return super().run_node(node)

        def call_function(self, target: Any, arguments: Any, named: Any) -> Any:
            twin = _twins.TWINS.get(getattr(target, "name", str)()) if isinstance(target, torch._ops.OpOverload) else None
            if twin is None:
                mended = _twins.mended(torch, getattr(target, "name", str)(), arguments)
                if mended is not None:
                    return target.overloadpacket(*mended, **named)
                return super().call_function(target, arguments, named)
            return _twins.alone(torch, twin, self.meta, arguments, named)

    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(helpers.seed(torch.cuda.current_device()))
            computed = OnHost(graph).run(*hosts)
    except Exception as error:  # the results are unknown then, and the report names the operation
        failed.setdefault("torch.compile", str(error).partition("\n")[0])
        _forget(torch, results)
        return
    for result, value in zip(results, [computed] if isinstance(computed, torch.Tensor) else computed):
        if isinstance(result, torch.Tensor) and isinstance(value, torch.Tensor):
            helpers.store(result, value)


__all__ = ["failed", "watch"]
