"""Random samples of what a module is called with: sizes as in an example, token ids within the tables they index."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from nest_torch.parallel.flow import first_tensor


def observed(
    model: nn.Module, inputs: Mapping[str, Any], precision: Any, device: Any = "cpu"
) -> tuple[dict[str, int], tuple[int, ...]]:
    """Observe the rows of the tables that inputs index, and the sizes of results for two samples."""
    given = {
        name: torch.zeros(
            (2, *each.shape[1:]), dtype=precision if each.is_floating_point() else each.dtype, device=device
        )
        if isinstance(each, torch.Tensor) and each.dim()
        else each
        for name, each in inputs.items()
    }
    bounds: dict[str, int] = {}

    def hook(module: Any, arguments: Any, _: Any) -> None:
        for name, each in given.items():
            if arguments and isinstance(each, torch.Tensor) and arguments[0].data_ptr() == each.data_ptr():
                bounds[name] = min(module.num_embeddings, bounds.get(name, module.num_embeddings))

    handles = [m.register_forward_hook(hook) for m in model.modules() if isinstance(m, nn.Embedding)]
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            made = first_tensor(model(**given))
    finally:
        for module, before in training.items():
            module.training = before
        for handle in handles:
            handle.remove()
    return bounds, tuple(made.shape)


def drawn(
    inputs: Mapping[str, Any], count: int, bounds: Mapping[str, int], precision: Any, generator: torch.Generator
) -> dict[str, Any]:
    """`count` samples in place of those of `inputs`, on the processor; what is no tensor stays."""

    def one(name: str, each: Any) -> Any:
        if not isinstance(each, torch.Tensor) or not each.dim():
            return each
        rows = (count, *each.shape[1:])
        if each.is_floating_point():
            return torch.randn(rows, generator=generator, dtype=precision)
        if each.dtype == torch.bool:
            return torch.ones(rows, dtype=torch.bool)
        return torch.randint(0, bounds.get(name, 2), rows, generator=generator, dtype=each.dtype)

    return {name: one(name, each) for name, each in inputs.items()}
