"""``torch.compile``, where it works."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from trainables.models.body import layers_of


def compile_layers(body: nn.Module, try_out: Callable[[], None]) -> str:
    """Compile the body's layers in place; all share one compilation, as they are alike.

    Where that fails, as without a C++ compiler, they stay as they were.

    Args:
        body: of :func:`trainables.models.body.make_body`.
        try_out: a forward and a backward pass, which compile.

    Returns:
        What went wrong, in a line; empty if nothing did.
    """
    from torch._dynamo.exc import TorchDynamoException

    layers = list(layers_of(body))
    for layer in layers:
        layer.compile()
    try:
        try_out()
    except (TorchDynamoException, NotImplementedError) as error:
        for layer in layers:
            layer._compiled_call_impl = None
        reason = str(error).strip().splitlines()[0]
        return f"the model is not compiled, and trains without: {type(error).__name__}: {reason}"
    return ""
