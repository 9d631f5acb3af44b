"""Pipeline stages cut by the names of modules: each runs the module's own code from the first of its parts to the last.

A module calls its parts (embedding, blocks, norms, head) one after the other. A stage runs the whole forward pass with
the parts of earlier stages replaced by empty tensors of the right sizes, gives the first of its own what came from the
stage before, and leaves where the first part of the next stage would be called. So code around the parts, such as masks
and positions, runs on every stage as it is written.
"""

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import frozen
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from nest.deployment.deployment import ENDS
from nest.errors import InputError


@frozen
class Part:
    """A module that is on one stage.

    Attributes:
        path: its name.
        layer: the layer of the plan it belongs to.
        made: what it returned, tensors as `(sizes, type)`.
        crossing: indices, among its flattened arguments, of the tensors that come from parts before it.
        owns: whether it has parameters.
    """

    path: str
    layer: str
    made: Any
    crossing: tuple[int, ...]
    owns: bool


@frozen
class _Sizes:
    sizes: tuple[int, ...]
    dtype: Any


def named_inputs(model: nn.Module, given: Any) -> dict[str, Any]:
    """Inputs of a module by name: a mapping as it is, positional ones as the module's code calls them."""
    if isinstance(given, Mapping):
        return dict(given)
    arguments = given if isinstance(given, (tuple, list)) else (given,)
    try:
        return dict(inspect.signature(model.forward).bind(*arguments).arguments)
    except TypeError as error:
        raise InputError(f"{type(model).__name__} cannot be called with these inputs: {error}.") from None


def blocks_of(model: nn.Module, layers: Sequence[str]) -> dict[str, str]:
    """The path of each of `layers` that is a module; `embedding` and `head` are what runs around those.

    Layers of nest's own models are called `layers.0`, ...: they are the members, as many, of the largest list of
    modules.

    Raises:
        InputError: the module has no such part.
    """
    inner = [name for name in layers if name not in ENDS]
    names = {name for name, _ in model.named_modules()}
    if all(name in names for name in inner):
        return {name: name for name in inner}
    lists = [
        (sum(p.numel() for p in module.parameters()), path, module)
        for path, module in model.named_modules()
        if isinstance(module, (nn.ModuleList, nn.Sequential)) and len(module) == len(inner)
    ]
    if not lists:
        strange = next(name for name in inner if name not in names)
        raise InputError(
            f"the model has no part {strange!r:.60}, nor a list of {len(inner)} modules for the plan's layers."
        )
    _, path, module = max(lists, key=lambda row: row[0])
    return {name: f"{path}.{key}" for name, key in zip(inner, module._modules, strict=True)}


def recorded(model: nn.Module, inputs: Mapping[str, Any], blocks: Mapping[str, str]) -> tuple[Part, ...]:
    """The parts of a module in the order in which it calls them, without numbers and without a change to it.

    Raises:
        InputError: it calls a block twice, or not at all.
    """
    layer_of = {path: layer for layer, path in blocks.items()}
    parts: list[Part] = []
    handles = []

    def called(path: str, module: nn.Module) -> Any:
        def hook(_: Any, arguments: Any, keywords: Any, made: Any) -> None:
            flat, _spec = tree_flatten((arguments, keywords))
            crossing = tuple(i for i, each in enumerate(flat) if isinstance(each, torch.Tensor) and each.requires_grad)
            if any(part.path == path for part in parts):
                if path in layer_of:
                    raise InputError(f"the model calls {path} more than once in a forward pass, which cannot be cut.")
                return
            sizes = tree_map(lambda t: _Sizes(tuple(t.shape), t.dtype) if isinstance(t, torch.Tensor) else t, made)
            owns = any(True for _ in module.parameters())
            parts.append(Part(path, layer_of.get(path, ""), sizes, crossing, owns))

        return hook

    for path in units(model, set(layer_of)):
        module = model.get_submodule(path)
        handles.append(module.register_forward_hook(called(path, module), with_kwargs=True))
    try:
        _run_without_numbers(model, inputs)
    finally:
        for handle in handles:
            handle.remove()
    met = {part.path for part in parts}
    missing = next((path for path in layer_of if path not in met), None)
    if missing is not None:
        raise InputError(f"the model does not call its part {missing!r:.60} with these inputs.")
    return tuple(_with_layers(parts))


def _with_layers(parts: Sequence[Part]) -> Iterator[Part]:
    """Assign what runs before all blocks to the embedding, after them to the head, between to the block before."""
    last = max(index for index, part in enumerate(parts) if part.layer)
    current = ENDS[0]
    for index, part in enumerate(parts):
        current = part.layer or (ENDS[1] if index > last else current)
        yield Part(part.path, current, part.made, part.crossing, part.owns)


def units(model: nn.Module, blocks: set[str]) -> Iterator[str]:
    """Paths of the largest modules in which there is no block, and of the blocks."""

    def inside(path: str, module: nn.Module) -> Iterator[str]:
        for name, child in module.named_children():
            below = f"{path}.{name}" if path else name
            if below in blocks or not any(block.startswith(f"{below}.") for block in blocks):
                yield below
            else:
                yield from inside(below, child)

    return inside("", model)


def _run_without_numbers(model: nn.Module, inputs: Mapping[str, Any]) -> None:
    """Run the forward pass on tensors without numbers; where the module's code asks for numbers, on zeros."""
    device = next(model.parameters()).device
    zeros = {
        name: torch.zeros(each.shape, dtype=each.dtype, device=device) if isinstance(each, torch.Tensor) else each
        for name, each in inputs.items()
    }
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    state = {
        name: mode.from_tensor(value.detach()).requires_grad_(value.requires_grad)
        for name, value in (*model.named_parameters(), *model.named_buffers())
    }
    given = {name: mode.from_tensor(each) if isinstance(each, torch.Tensor) else each for name, each in zeros.items()}
    with torch.enable_grad():
        try:
            with mode:
                torch.func.functional_call(model, state, (), given, tie_weights=True)
        except InputError:
            raise
        except Exception:  # Some code looks at what tensors hold.
            model(**zeros)


class _Left(Exception):  # noqa: N818
    """The forward pass has reached the next stage."""

    def __init__(self, tensors: tuple[Any, ...]) -> None:
        self.tensors = tensors


class Elsewhere(nn.Module):  # type: ignore[misc]
    """A part of another stage: returns empty tensors of the sizes that the part returns.

    What code reads of the part, such as a number format, it reads of one without memory for weights.
    """

    def __init__(self, part: nn.Module, made: Any, device: Any) -> None:
        super().__init__()
        bare = {id(p): nn.Parameter(p.detach().to("meta"), p.requires_grad) for p in part.parameters()}
        self.__dict__["_part"] = copy.deepcopy(part, bare)
        self._made, self._device = made, device

    def __getattr__(self, name: str) -> Any:
        """An attribute of the part."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_part"], name)

    def forward(self, *_: Any, **__: Any) -> Any:
        """Zeros in place of what the part makes."""
        return tree_map(
            lambda each: (
                torch.zeros(each.sizes, dtype=each.dtype, device=self._device) if isinstance(each, _Sizes) else each
            ),
            self._made,
        )


class Stage(nn.Module):  # type: ignore[misc]
    """A run of layers of a module, as `torch.distributed.pipelining` calls it.

    Its inputs by name are those of the module; by position it takes what the stage before returns.

    Args:
        model: a copy of the module that shares its parameters; the parts of other stages are taken out of it.
        parts: of the whole module.
        layers: of this stage.
        device: where its tensors are.
    """

    def __init__(self, model: nn.Module, parts: Sequence[Part], layers: Sequence[str], device: Any) -> None:
        super().__init__()
        self.module = model
        here = [index for index, part in enumerate(parts) if part.layer in layers]
        if not here:
            raise InputError(f"no module of the model runs in the layers {', '.join(layers)}.")
        self._received: tuple[Any, ...] = ()
        self.sized = True  # False: the next pass is no training, PyTorch only looks at sizes.
        self.paths = tuple(parts[index].path for index in here)
        for index, part in enumerate(parts):
            if index in here or not (part.owns or part.layer not in ENDS):
                continue
            _put(model, part.path, Elsewhere(model.get_submodule(part.path), part.made, device))
        _drop_loose(model, parts, layers, device)
        if here[0] > 0:
            first = parts[here[0]]
            model.get_submodule(first.path).register_forward_pre_hook(
                lambda _, arguments, keywords: self._enter(first, arguments, keywords), with_kwargs=True, prepend=True
            )
        if here[-1] + 1 < len(parts):
            following = parts[here[-1] + 1]
            model.get_submodule(following.path).register_forward_pre_hook(
                lambda _, arguments, keywords: self._leave(following, arguments, keywords), with_kwargs=True
            )

    def forward(self, *received: Any, **inputs: Any) -> Any:
        """The tensors that the next stage receives; on the last, the first tensor that the module returns."""
        self._received = received
        kept = [] if self.sized else _with_other_buffers(self.module)
        try:
            return first_tensor(self.module(**inputs))
        except _Left as left:
            return left.tensors if len(left.tensors) > 1 else left.tensors[0]
        finally:
            self._received = ()
            for held, buffers in kept:
                held.update(buffers)
            self.sized = True

    def _enter(self, part: Part, arguments: Any, keywords: Any) -> Any:
        flat, spec = tree_flatten((arguments, keywords))
        for index, each in zip(part.crossing, self._received, strict=True):
            flat[index] = each
        return tree_unflatten(flat, spec)

    def _leave(self, part: Part, arguments: Any, keywords: Any) -> Any:
        flat, _ = tree_flatten((arguments, keywords))
        # PyTorch detaches in place what a stage returns; of several, one may be what a block saved for recomputation.
        leaving = [flat[index] for index in part.crossing]
        raise _Left(tuple(each.clone() for each in leaving) if len(leaving) > 1 else tuple(leaving))


def _with_other_buffers(model: nn.Module) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Put copies in place of all buffers; where they were held, and what was held there."""
    kept = [(module._buffers, dict(module._buffers)) for module in model.modules() if module._buffers]
    for held, buffers in kept:
        held.update({name: each if each is None else each.clone() for name, each in buffers.items()})
    return kept


def first_tensor(made: Any) -> Any:
    """The first tensor in what a module returns: its logits, as a rule."""
    if isinstance(made, torch.Tensor):
        return made
    if isinstance(made, Mapping):
        return next(each for each in made.values() if isinstance(each, torch.Tensor))
    return next(each for each in made if isinstance(each, torch.Tensor))


def copy_sharing(model: nn.Module) -> nn.Module:
    """A copy of a module and all below it that shares parameters and buffers."""
    shared = {id(each): each for each in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


def present(model: nn.Module, path: str) -> nn.Module | None:
    """The module at a path; None: this stage does not have it."""
    try:
        found = model.get_submodule(path)
    except AttributeError:
        return None
    return None if isinstance(found, Elsewhere) else found


def _put(model: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)


def _drop_loose(model: nn.Module, parts: Sequence[Part], layers: Sequence[str], device: Any) -> None:
    """Parameters beside the parts, such as learned positions, are the embedding's; elsewhere zeros take their place."""
    if ENDS[0] in layers:
        return
    held = tuple(f"{part.path}." for part in parts)
    for path, parameter in list(model.named_parameters()):
        if not path.startswith(held):
            parent, _, name = path.rpartition(".")
            owner = model.get_submodule(parent)
            delattr(owner, name)
            owner.register_buffer(name, torch.zeros(parameter.shape, dtype=parameter.dtype, device=device), False)
