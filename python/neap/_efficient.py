"""Switches on gradient checkpointing and memory-efficient attention in a model that did not ask for them."""

from __future__ import annotations

import gc
import sys
from typing import Any


def unwrapped(model: Any, torch: Any) -> Any:
    """Returns the model as its user wrote it: without DistributedDataParallel, DataParallel and torch.compile around it."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if isinstance(model, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
            inner = model.module
        if inner is None:
            return model
        model = inner


class _Recomputed:
    """A layer's `forward` that keeps no activations but its inputs. It is copied and pickled with the layer, and then finds the
    copy."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer
        self.plain: Any | None = layer.__dict__.get("forward")  # a forward that the program put in its place

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        import torch
        from torch.utils.checkpoint import checkpoint

        plain = self.plain or type(self.layer).forward.__get__(self.layer)
        if self.layer.training and torch.is_grad_enabled():
            return checkpoint(plain, *arguments, use_reentrant=False, **named)
        return plain(*arguments, **named)


def _lists(model: Any, torch: Any) -> list[Any]:
    """Returns the children of the outermost lists of layers, each once."""
    if isinstance(model, (torch.nn.ModuleList, torch.nn.Sequential)) and len(model) > 1:
        return list(model)
    return [layer for child in model.children() for layer in _lists(child, torch)]


def unchecked(model: Any, torch: Any) -> list[Any]:
    """Returns the layers that could be checkpointed and are not."""
    layers = {id(layer): layer for layer in _lists(model, torch)}.values()  # a layer in two places counts once
    layers = [layer for layer in layers if not isinstance(layer.__dict__.get("forward"), _Recomputed)]  # type: ignore
    return [layer for layer in layers if any(True for _ in layer.parameters())]


def recompute(layer: Any) -> None:
    """Makes this layer compute its activations again instead of keeping them."""
    layer.forward = _Recomputed(layer)


def keep(layer: Any) -> None:
    """Undoes recompute()."""
    recomputed = layer.__dict__.get("forward")
    if isinstance(recomputed, _Recomputed):
        del layer.__dict__["forward"]
        if recomputed.plain is not None:
            layer.forward = recomputed.plain


def can_checkpoint(model: Any, torch: Any) -> bool:
    """Returns whether checkpoint_layers would change anything."""
    if isinstance(model, torch.nn.DataParallel):  # its replicas would call the first replica's layers
        return False
    model = unwrapped(model, torch)
    if callable(getattr(model, "gradient_checkpointing_enable", None)):
        supported = getattr(model, "supports_gradient_checkpointing", True)
        return bool(supported) and not getattr(model, "is_gradient_checkpointing", False)
    return bool(unchecked(model, torch))


def checkpoint_layers(model: Any, torch: Any) -> int:
    """Makes layers compute activations again instead of keeping them. Uses the model's own switch if there is one (as in Hugging
    Face's models), else changes each child of a Sequential or ModuleList. Returns how many layers were changed (1 for a switch)."""
    if not can_checkpoint(model, torch):
        return 0
    inner = unwrapped(model, torch)
    switch = getattr(inner, "gradient_checkpointing_enable", None)
    if callable(switch):
        switch()
        count = 1
    else:
        layers = unchecked(inner, torch)
        for layer in layers:
            recompute(layer)
        count = len(layers)
    if inner is not model:
        torch.compiler.reset()  # compiled code still keeps activations
    return count


def _computes_attention_itself(model: Any) -> bool:
    """Returns whether it is a model of transformers whose attention keeps its scores, and which can use PyTorch's attention
    instead."""
    kind = getattr(getattr(model, "config", None), "_attn_implementation", None)
    supported = getattr(model, "_supports_sdpa", False) and callable(getattr(model, "set_attn_implementation", None))
    return kind == "eager" and bool(supported)


def attention_is_efficient(torch: Any, model: Any) -> bool:
    """Returns whether scaled_dot_product_attention may choose its memory-efficient kernels, and the model is not known to avoid
    it."""
    backend = torch.backends.cuda
    chosen = backend.flash_sdp_enabled() and backend.mem_efficient_sdp_enabled()
    return bool(chosen) and not _computes_attention_itself(unwrapped(model, torch))


def allow_efficient_kernels(torch: Any) -> bool:
    """Lets scaled_dot_product_attention choose its memory-efficient kernels. Returns whether that changed anything."""
    backend = torch.backends.cuda
    changed = False
    for kind in ("flash", "mem_efficient"):
        if not getattr(backend, f"{kind}_sdp_enabled")():
            getattr(backend, f"enable_{kind}_sdp")(True)
            changed = True
    return changed


def efficient_models(torch: Any) -> int:
    """Makes every model of transformers in this process that computes attention itself use PyTorch's attention. Returns how many
    there were."""
    if "transformers" not in sys.modules:
        return 0
    models = [item for item in gc.get_objects() if issubclass(type(item), torch.nn.Module) and _computes_attention_itself(item)]
    for model in models:
        model.set_attn_implementation("sdpa")
    return len(models)


def efficient_attention(torch: Any, model: Any) -> bool:
    """Lets scaled_dot_product_attention choose its memory-efficient kernels, and the model use it. Returns whether that changed
    anything."""
    changed = allow_efficient_kernels(torch)
    inner = unwrapped(model, torch)
    if _computes_attention_itself(inner):
        inner.set_attn_implementation("sdpa")
        changed = True
    return changed
