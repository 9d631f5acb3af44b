"""Cuts of a forward pass that lose a tensor: one that reaches the result other than as an argument of the next part."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from nest_torch.parallel import stages


def skipped(model: nn.Module, inputs: Mapping[str, Any], blocks: Mapping[str, str]) -> dict[str, str]:
    """By layer whose part a stage may begin with, a part before it whose tensor goes around that cut.

    The ways from the result back to the parts are those of gradients, without numbers.

    Raises:
        InputError: the module calls a block twice, or not at all.
    """
    entered: dict[str, list[Any]] = {}
    left: dict[str, list[Any]] = {}
    result: list[Any] = []

    def begin(*_: Any) -> None:
        for each in (entered, left, result):
            each.clear()

    def enter(path: str) -> Any:
        def hook(_: Any, arguments: Any, keywords: Any) -> Any:
            flat, spec = tree_flatten((arguments, keywords))
            # Of its own, so that a way around the part is another one.
            flat = [each.view_as(each) if _has_way(each) else each for each in flat]
            entered.setdefault(path, [each.grad_fn for each in flat if _has_way(each)])
            return tree_unflatten(flat, spec)

        return hook

    def leave(path: str) -> Any:
        def hook(_: Any, __: Any, made: Any) -> None:
            left.setdefault(path, [each.grad_fn for each in tree_leaves(made) if _has_way(each)])

        return hook

    handles = [
        model.register_forward_pre_hook(begin),
        model.register_forward_hook(lambda _, __, made: result.append(stages.first_tensor(made).grad_fn)),
    ]
    for path in stages.units(model, set(blocks.values())):
        module = model.get_submodule(path)
        handles.append(module.register_forward_pre_hook(enter(path), with_kwargs=True))
        handles.append(module.register_forward_hook(leave(path)))
    try:
        parts = stages.recorded(model, inputs, blocks)
    finally:
        for handle in handles:
            handle.remove()
    found = {}
    for index in range(1, len(parts)):
        if parts[index].layer != parts[index - 1].layer:
            reached = _reached(result, entered[parts[index].path])
            around = (p.path for p in reversed(parts[:index]) if any(node in reached for node in left[p.path]))
            first = next(around, None)
            if first is not None:
                found[parts[index].layer] = first
    return found


def _has_way(each: Any) -> bool:
    return isinstance(each, torch.Tensor) and each.grad_fn is not None


def _reached(start: list[Any], barred: list[Any]) -> set[Any]:
    """Every step of the gradients' way from `start` that does not lead through `barred`."""
    seen, waiting = set(barred), list(start)
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting.extend(following for following, _ in node.next_functions)
    return seen - set(barred)
