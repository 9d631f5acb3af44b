"""Weights of a module on the meta device: made by its own code, part by part, of which each rank keeps its share."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from nest.errors import InputError
from nest_torch.parallel import saving, shares
from nest_torch.parallel.flow import units
from nest_torch.parallel.tying import tied_names

REMEDY = "give it a reset_parameters, or make it with weights"


def fill(model: nn.Module, parts: Sequence[nn.Module], blocks: Sequence[str], device: Any) -> None:
    """Give the stages of this rank weights as one process has them that draws part after part from the same seed.

    Every rank draws the numbers of the whole module, one part at a time, and starts with the random state of the first.
    A part's code is `_init_weights` of the model of transformers around it, else `reset_parameters` of each module,
    inner ones first, as where modules make their own weights.

    Args:
        model: the whole module, on the meta device.
        parts: the stages of this rank, split and sharded.
        blocks: paths of the repeated layers, each of which is made at once.
        device: where weights are made.

    Raises:
        InputError: code leaves a parameter or buffer as it was.
    """
    kept = _allocated(parts, device)
    state = (torch.cuda.get_rng_state() if device.type == "cuda" else torch.get_rng_state()).to(device)
    dist.broadcast(state, 0)
    (torch.cuda if device.type == "cuda" else torch).set_rng_state(state.cpu())
    whole = shares.bare(model)
    alike = {name: names for names in tied_names(whole) for name in names}
    with torch.no_grad():
        for path, module, inner in _in_order(whole, "", set(units(whole, set(blocks)))):
            made = module._apply(lambda each: _unset(each, device), recurse=inner)
            bare = {name: (each, each._version) for name, each in _own(made, inner)}
            for each, reset in _resets(whole, path, made, inner):
                reset(each)
            for name, tensor in _own(made, inner):
                key = f"{path}.{name}".lstrip(".")
                if _is_unset(tensor, *bare.get(name, (None, 0))):
                    raise InputError(f"{key} of {type(made).__name__} has no numbers; {REMEDY}.")
                for owner, last, own in (row for one in alike.get(key, [key]) for row in kept.get(one, ())):
                    own.copy_(saving.laid(owner, last, own, tensor))
            module._apply(lambda each: each.to("meta"), recurse=inner)


def _allocated(parts: Sequence[nn.Module], device: Any) -> dict[str, list[tuple[nn.Module, str, Any]]]:
    """By name in the module the tensors of this rank that have no numbers yet, with memory now."""
    tied = [tied_names(stage) for stage in parts]
    missing = [{path for path, *_, each in saving.owners(stage, True) if each.device.type == "meta"} for stage in parts]
    found: dict[str, list[tuple[nn.Module, str, Any]]] = {}
    for stage, names, paths in zip(parts, tied, missing, strict=True):
        stage._apply(lambda each: torch.empty_like(each, device=device) if each.device.type == "meta" else each)
        for same in names:
            first = stage.get_parameter(same[0])
            for name in same[1:]:
                path, _, last = name.rpartition(".")
                setattr(stage.get_submodule(path), last, first)
        for path, owner, last, each in saving.owners(stage, True):
            if path in paths:
                found.setdefault(path, []).append((owner, last, each))
    return found


def _in_order(module: nn.Module, path: str, whole: set[str]) -> Iterator[tuple[str, nn.Module, bool]]:
    """Modules to be made, inner ones first: those of `whole` with all below them, those around them alone."""
    if path not in whole or not path:
        for name, child in module.named_children():
            yield from _in_order(child, f"{path}.{name}".lstrip("."), whole)
    yield path, module, path in whole and bool(path)


def _unset(each: Any, device: Any) -> Any:
    made = torch.empty_like(each, device=device)
    return made.fill_(float("nan")) if each.is_floating_point() else made


def _is_unset(each: Any, before: Any, version: int) -> bool:
    """Return whether no number was written to a tensor of `_unset`, which was `before` and in that version.

    Whole numbers and booleans have no NaN. Theirs is the same tensor, in the same version by PyTorch's count of writes.
    """
    same = each is before and each._version == version
    return bool(each.numel() and (each.isnan().all() if each.is_floating_point() else same))


def _resets(
    model: nn.Module, path: str, module: nn.Module, inner: bool
) -> Iterator[tuple[nn.Module, Callable[[nn.Module], Any]]]:
    """Each module to be given weights, inner ones first, and what does it."""
    for name, child in module.named_children() if inner else ():
        yield from _resets(model, f"{path}.{name}".lstrip("."), child, inner)
    around: Any = _around(model, path)
    own: Any = getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))
    if around is not None:
        yield module, around._init_weights
    elif own is not None:
        yield module, lambda _: own()


def _around(model: nn.Module, path: str) -> nn.Module | None:
    """The innermost module at or around a path that makes the weights of those in it; None: there is none."""
    places = path.split(".") if path else []
    for count in range(len(places), -1, -1):
        module = model.get_submodule(".".join(places[:count]))
        if hasattr(module, "_init_weights"):
            return module
    return None


def _own(module: nn.Module, inner: bool) -> list[tuple[str, Any]]:
    return [*module.named_parameters(recurse=inner), *module.named_buffers(recurse=inner)]
