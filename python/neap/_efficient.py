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


def _unchecked(model: Any, torch: Any) -> list[Any]:
    """The layers that could be checkpointed and are not."""
    if isinstance(model, torch.nn.Sequential) and len(model) > 1:
        layers = list(model)
    else:
        layers = _layers(model, torch)
    layers = [layer for layer in layers if not getattr(layer, "_neap_checkpointed", False)]
    return [layer for layer in layers if any(True for _ in layer.parameters())]


def can_checkpoint(model: Any, torch: Any) -> bool:
    """Whether checkpoint_layers would find something to do."""
    if callable(getattr(model, "gradient_checkpointing_enable", None)):
        supported = getattr(model, "supports_gradient_checkpointing", True)
        return bool(supported) and not getattr(model, "is_gradient_checkpointing", False)
    return bool(_unchecked(model, torch))


def checkpoint_layers(model: Any, torch: Any) -> int:
    """Computes activations again instead of keeping them, layer by layer. By the model's own switch where it has one (as
    Hugging Face's do), else for each child of a Sequential or ModuleList. How many layers (1 for a switch); 0: none."""
    if not can_checkpoint(model, torch):
        return 0
    switch = getattr(model, "gradient_checkpointing_enable", None)
    if callable(switch):
        switch()
        return 1
    layers = _unchecked(model, torch)
    for layer in layers:
        _wrap(layer, torch)
    return len(layers)


def attention_is_efficient(torch: Any) -> bool:
    """Whether scaled_dot_product_attention may choose its memory-efficient kernels."""
    backend = torch.backends.cuda
    return bool(backend.flash_sdp_enabled() and backend.mem_efficient_sdp_enabled())


def efficient_attention(torch: Any) -> bool:
    """Lets scaled_dot_product_attention choose its memory-efficient kernels; whether that changed anything."""
    backend, changed = torch.backends.cuda, False
    for kind in ("flash", "mem_efficient"):
        if not getattr(backend, f"{kind}_sdp_enabled")():
            getattr(backend, f"enable_{kind}_sdp")(True)
            changed = True
    return changed
