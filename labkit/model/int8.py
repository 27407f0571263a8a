"""Matrices in int8: the fast version of lab 10's QuantizedLinear.

torch's dynamic quantization rounds a matrix once to 8 bits, with a scale per row, and its
inputs at every call. Its kernel multiplies integers and reads a quarter of the bytes. The
embedding, the norms and the routers of a mixture stay in float32. A tied table is kept twice,
in float32 for the embedding and in int8 for the head.
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec

import torch
from torch import nn

from labkit.model.chat.stream import ChatError

OFFERED = find_spec("torch.ao.quantization") is not None  # torch plans to remove it
ROUTER = "mlp.gate"  # a rounded score may send a token to another expert


def in_int8(model: nn.Module) -> nn.Module:
    """Round the matrices of a model in place; return the model, which can no longer be trained.

    dtype:  float32 in and out, on the CPU only
    Errors: ChatError for other dtypes and devices, for code that does more with a layer than
            call it, and for a torch without dynamic quantization
    """
    weight = next(model.parameters())
    tried = torch.zeros(1, 1, dtype=torch.long, device=weight.device)
    if weight.dtype is not torch.float32 or weight.device.type != "cpu":
        kind = str(weight.dtype).removeprefix("torch.")
        raise ChatError(
            "int8 needs a model in float32 on the cpu; this one is in {kind} on {device}",
            kind=kind,
            device=weight.device,
        )
    if not OFFERED:
        raise ChatError(
            "torch {version} has no dynamic quantisation", version=torch.__version__
        )
    from torch.ao import quantization

    chosen = {
        name: quantization.per_channel_dynamic_qconfig
        for name, layer in model.named_modules()
        if type(layer) is nn.Linear and not name.endswith(ROUTER)
    }
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the warning that it will be removed
        model(tried)
        quantization.quantize_dynamic(model.eval(), chosen, inplace=True)
        try:
            model(tried)
        except (AttributeError, TypeError, RuntimeError) as error:
            raise ChatError(
                "int8 needs code that only calls its layers; this does more: {error}",
                error=error,
            ) from error
    return model
