"""Context parallelism: ranks hold runs of the sequence, and attention sees the keys and values of all of them.

Keys and values are gathered before attention (Llama 3, arXiv 2407.21783, section 3.3.2).
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed._functional_collectives import all_gather_tensor_autograd
from torch.distributed.device_mesh import DeviceMesh
from torch.overrides import TorchFunctionMode

from nest.errors import InputError
from nest_torch.parallel.tensors import SEQUENCE, replace_forward


class _WholeKeys(TorchFunctionMode):  # type: ignore[misc]
    """Attention over the keys and values of all ranks."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        self._mesh = mesh

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        if function is not torch.nn.functional.scaled_dot_product_attention:
            return function(*arguments, **(keywords or {}))
        return self._attention(*arguments, **(keywords or {}))

    def _attention(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **more: Any,
    ) -> Any:
        if attn_mask is not None:
            raise InputError("context parallelism runs attention without a mask, or causal; this module gives a mask.")
        group, rank, count = self._mesh.get_group(), self._mesh.get_local_rank(), query.shape[-2]
        key, value = (all_gather_tensor_autograd(each.contiguous(), each.dim() - 2, group) for each in (key, value))
        mask = None
        if is_causal:
            rows = torch.arange(rank * count, (rank + 1) * count, device=query.device)
            mask = torch.arange(key.shape[-2], device=query.device) <= rows.unsqueeze(-1)
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, dropout_p, False, **more)


def gather_keys(block: nn.Module, mesh: DeviceMesh) -> None:
    """Let attention in a block see the keys of all ranks of context parallelism."""

    def around(forward: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        with _WholeKeys(mesh):
            return forward(*arguments, **keywords)

    replace_forward(block, around)


def share_of_sequence(given: Any, mesh: DeviceMesh, length: int) -> Any:
    """A rank's run of the sequence of a tensor; what has no sequence of `length` stays whole."""
    if not isinstance(given, torch.Tensor) or given.dim() <= SEQUENCE or given.shape[SEQUENCE] != length:
        return given
    return given.chunk(mesh.size(), SEQUENCE)[mesh.get_local_rank()].contiguous()


def with_positions(inputs: dict[str, Any], length: int, accepts: bool) -> dict[str, Any]:
    """Inputs with the positions of all tokens, which ranks could not tell from their run of them.

    Raises:
        InputError: the module takes no `position_ids`.
    """
    if "position_ids" in inputs:
        return inputs
    if not accepts:
        raise InputError("the module takes no position_ids, so ranks of context parallelism cannot tell their tokens.")
    first = next(each for each in inputs.values() if isinstance(each, torch.Tensor))
    places = torch.arange(length, device=first.device).expand(first.shape[0], length)
    return {**inputs, "position_ids": places}


def length_of(inputs: Mapping[str, Any]) -> int:
    """Tokens of a sample: the second dimension of the first input that has one."""
    return next(int(v.shape[1]) for v in inputs.values() if isinstance(v, torch.Tensor) and v.dim() > 1)
