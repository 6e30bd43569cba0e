"""Gradient checkpointing and memory-efficient attention, switched on in a model that did not ask for them."""

from __future__ import annotations

from typing import Any


def _wrap(layer: Any, torch: Any) -> None:
    from torch.utils.checkpoint import checkpoint

    plain = layer.forward

    def forward(*arguments: Any, **named: Any) -> Any:
        if layer.training and torch.is_grad_enabled():
            return checkpoint(plain, *arguments, use_reentrant=False, **named)
        return plain(*arguments, **named)

    layer.forward = forward
    layer._neap_checkpointed = True


def _layers(model: Any, torch: Any) -> list[Any]:
    """The children of the outermost lists of layers."""
    found: list[Any] = []
    for child in model.children():
        if isinstance(child, (torch.nn.ModuleList, torch.nn.Sequential)) and len(child) > 1:
            found += list(child)
        else:
            found += _layers(child, torch)
    return found


def checkpoint_layers(model: Any, torch: Any) -> int:
    """Computes activations again instead of keeping them, layer by layer. By the model's own switch where it has one (as
    Hugging Face's do), else for each child of a Sequential or ModuleList. How many layers; 0: there were none, or they are
    checkpointed already."""
    switch = getattr(model, "gradient_checkpointing_enable", None)
    if callable(switch):
        if getattr(model, "is_gradient_checkpointing", False):
            return 0
        switch()
        return 1
    if isinstance(model, torch.nn.Sequential) and len(model) > 1:
        layers = list(model)
    else:
        layers = _layers(model, torch)
    layers = [layer for layer in layers if not getattr(layer, "_neap_checkpointed", False)]
    layers = [layer for layer in layers if any(True for _ in layer.parameters())]
    for layer in layers:
        _wrap(layer, torch)
    return len(layers)


def efficient_attention(torch: Any) -> bool:
    """Lets scaled_dot_product_attention choose its memory-efficient kernels; whether that changed anything."""
    backend, changed = torch.backends.cuda, False
    for kind in ("flash", "mem_efficient"):
        if not getattr(backend, f"{kind}_sdp_enabled")():
            getattr(backend, f"enable_{kind}_sdp")(True)
            changed = True
    return changed
