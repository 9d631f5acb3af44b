"""Whole parameters in the module's own order, whatever a rank holds of them and however its pieces are stored."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, NoReturn

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from nest.errors import InputError
from nest_torch.parallel.splits import Cut, rank_by_rank
from nest_torch.parallel.stages import Stage

_STORED = "_nest_stored"


def store_rank_by_rank(module: nn.Module, name: str, tensor: Any, cut: Cut, ranks: int) -> Any:
    """`tensor`, a parameter of a module, with its pieces dealt to the ranks; saving puts them back."""
    if cut.pieces == 1:
        return tensor
    if not hasattr(module, _STORED):
        setattr(module, _STORED, {})
        module.register_state_dict_pre_hook(_refuse)
        module.register_load_state_dict_pre_hook(_refuse)
    getattr(module, _STORED).setdefault(name, []).append((cut, ranks))
    return rank_by_rank(tensor, cut, ranks)


def _refuse(module: nn.Module, *_: Any) -> NoReturn:
    names = ", ".join(getattr(module, _STORED))
    raise InputError(
        f"{type(module).__name__} stores the fused pieces of {names} rank by rank; save with parallel.state_dict() and "
        "load with parallel.load_state_dict(state)."
    )


def whole(owner: nn.Module, name: str, tensor: Any) -> Any:
    """The whole of a parameter of `owner`, or of its gradient, in the module's order; all its ranks must call it."""
    full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    for cut, ranks in reversed(getattr(owner, _STORED, {}).get(name, ())):
        inner = full.shape[cut.dim] // cut.pieces // ranks
        parts = full.unflatten(cut.dim, (ranks, cut.pieces, inner)).transpose(cut.dim, cut.dim + 1)
        full = parts.reshape(full.shape).contiguous()
    return full


def stored(owner: nn.Module, name: str) -> bool:
    """Return whether the pieces of a parameter are stored rank by rank."""
    return name in getattr(owner, _STORED, {})


def owners(stage: nn.Module, unsaved: bool = False) -> Iterator[tuple[str, nn.Module, str, Any]]:
    """By name each parameter and each buffer that is saved, the module it belongs to, and its name there.

    `unsaved`: buffers too that are not saved.
    """
    prefix = "module." if isinstance(stage, Stage) else ""
    for path, module in stage.named_modules():
        held = {**module._parameters, **module._buffers}
        for name, tensor in held.items():
            if tensor is not None and (unsaved or name not in module._non_persistent_buffers_set):
                yield f"{path}.{name}".lstrip(".").removeprefix(prefix), module, name, tensor


def saved(parts: Sequence[nn.Module]) -> dict[str, Any]:
    """By name in the module what the stages of this rank save, whole."""
    return {path: whole(owner, name, tensor.detach()) for stage in parts for path, owner, name, tensor in owners(stage)}


def load(parts: Sequence[nn.Module], state: Mapping[str, Any]) -> None:
    """Write whole tensors, by name in the module, to what this rank holds of them.

    Raises:
        InputError: one is missing, or has other sizes; nothing is written then.
    """
    held = [row for stage in parts for row in owners(stage)]
    for path, _, _, tensor in held:
        if path not in state:
            raise InputError(f"the saved state has no {path!r}; give what parallel.state_dict() returned.")
        if state[path].shape != tensor.shape:
            raise InputError(
                f"{path} is {list(state[path].shape)} in the saved state, but {list(tensor.shape)} in the module."
            )
    with torch.no_grad():
        for path, owner, name, tensor in held:
            tensor.copy_(laid(owner, name, tensor, state[path]))


def laid(owner: nn.Module, name: str, tensor: Any, given: Any) -> Any:
    """This rank's share of a whole tensor, laid out as `tensor`, the parameter `name` of `owner`."""
    given = given.to(tensor.device, tensor.dtype)
    for cut, ranks in getattr(owner, _STORED, {}).get(name, ()):
        given = rank_by_rank(given, cut, ranks)
    if isinstance(tensor, DTensor):
        given = distribute_tensor(given, tensor.device_mesh, tensor.placements, src_data_rank=None)
    return given


def saved_moments(parts: Sequence[nn.Module], optimizer: Any) -> dict[str, dict[str, Any]]:
    """By name of each parameter what an optimizer keeps of it: whole tensors, and numbers such as its steps."""
    return {
        path: {
            key: whole(owner, name, each).detach().to("cpu", copy=True) if as_large(each, tensor) else copy(each)
            for key, each in optimizer.state[tensor].items()
        }
        for stage in parts
        for path, owner, name, tensor in owners(stage)
        if tensor in optimizer.state
    }


def load_moments(parts: Sequence[nn.Module], optimizer: Any, state: Mapping[str, Mapping[str, Any]]) -> None:
    """Give an optimizer what `saved_moments` returned, laid out as the parameters of this rank.

    Raises:
        InputError: a parameter is missing.
    """
    for stage in parts:
        for path, owner, name, tensor in owners(stage):
            if not isinstance(tensor, nn.Parameter) or not tensor.requires_grad:
                continue
            if path not in state:
                raise InputError(f"the optimizer's state has no {path!r}; give what optimizer_state_dict() returned.")
            optimizer.state[tensor] = {
                key: laid(owner, name, tensor, each) if as_large(each, tensor) else copy(each)
                for key, each in state[path].items()
            }


def as_large(each: Any, parameter: Any) -> bool:
    """Return whether something is a tensor of the sizes of a parameter."""
    return isinstance(each, torch.Tensor) and each.dim() > 0 and each.shape == parameter.shape
