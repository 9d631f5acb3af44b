"""Pipeline stages cut by the names of modules: each runs the module's own code from the first of its parts to the last.

A module calls its parts (embedding, blocks, norms, head) one after the other. A stage runs the whole forward pass with
the parts of earlier stages replaced by empty tensors of the right sizes. What those made and a later part reads is put
in its place as it came from the stage before (`nest_torch.parallel.flow`). The stage leaves where the first part of
the next stage would be called. So code around the parts, such as masks, runs on every stage.
"""

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from nest.deployment.deployment import ENDS
from nest.errors import InputError
from nest_torch.parallel.flow import (
    CHANGED,
    Flow,
    Key,
    Sizes,
    Watch,
    first_tensor,
    name_of,
    replaced,
    tensors_in,
    written,
)
from nest_torch.parallel.placements import Dense, placed, whole


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


class _Left(Exception):  # noqa: N818
    """The forward pass has reached the next stage."""


class Elsewhere(nn.Module):  # type: ignore[misc]
    """A part of another stage: returns empty tensors of the sizes that the part returns.

    What code reads of the part, such as a number format, it reads of one without memory for weights.
    """

    def __init__(self, part: nn.Module, made: Callable[[], Any], device: Any) -> None:
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
                torch.zeros(each.sizes, dtype=each.dtype, device=self._device) if isinstance(each, Sizes) else each
            ),
            self._made(),
        )


class Stage(nn.Module):  # type: ignore[misc]
    """A run of layers of a module, as `torch.distributed.pipelining` calls it.

    Its inputs by name are those of the module; by position it takes what the stage before returns.

    Args:
        model: a copy of the module that shares its parameters; the parts of other stages are taken out of it.
        flow: a forward pass of the whole module.
        layers: of this stage.
        device: where its tensors are.
    """

    def __init__(self, model: nn.Module, flow: Flow, layers: Sequence[str], device: Any) -> None:
        super().__init__()
        self.module, self.flow = model, flow
        here = [index for index, call in enumerate(flow.calls) if call.layer in layers]
        if not here:
            raise InputError(f"no module of the model runs in the layers {', '.join(layers)}.")
        self._end, self._count = here[-1] + 1, here[-1] + 1 - here[0]
        self._arriving, self._leaving = self._crossing(flow, here[0]), self._crossing(flow, self._end)
        self.sized = True  # False: the next pass is no training, PyTorch only looks at sizes.
        self.mesh: Any = None  # Where tensors are placed; None: they are plain.
        self._watch: Watch | None = None
        self._hooked = False
        own = {flow.calls[index].path for index in here}
        for path in {call.path: None for call in flow.calls if call.path not in own}:
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, Elsewhere(model.get_submodule(path), self._sizes, device))
        self._drop_loose(range(here[0] + 1 if here[0] else 0, self._end + 1), device)

    def follow(self, flow: Flow) -> None:
        """Run with inputs of the sizes of another flow.

        Raises:
            InputError: other tensors cross the stage's cuts.
        """
        start = self._end - self._count
        arriving, leaving = self._crossing(flow, start), self._crossing(flow, self._end)
        paths = [[call.path for call in each.calls] for each in (flow, self.flow)]
        if paths[0] != paths[1] or arriving != self._arriving or leaving != self._leaving:
            raise InputError("with inputs of these sizes other tensors cross the cuts of the pipeline; keep the sizes.")
        self.flow = flow

    @staticmethod
    def _crossing(flow: Flow, call: int) -> tuple[Key, ...]:
        return flow.crossing(call) if 0 < call < len(flow.calls) else ()

    def forward(self, *received: Any, **inputs: Any) -> Any:
        """The tensors that the next stage receives; on the last, the first tensor that the module returns."""
        kept = [] if self.sized else _with_other_buffers(self.module)
        if not self._hooked:  # Behind FSDP's own, whose functions are none of the module's code.
            self._hooked = True
            for path in {call.path: None for call in self.flow.calls}:
                part = self.module.get_submodule(path)
                part.register_forward_pre_hook(lambda *_: self._enter(), prepend=True)
                part.register_forward_hook(lambda _, __, made: self._leave_part(made))
        arriving = {key: self._arrived(key, each) for key, each in zip(self._arriving, received, strict=True)}
        leaving: dict[Key, Any] = {}

        def seen(place: tuple[int, int], function: Any, given: Any, made: Any) -> Any:
            rows = {key[2]: each for key, each in arriving.items() if key[:2] == place}
            wanted = [key for key in self._leaving if key[:2] == place]
            if rows or wanted:
                if self.flow.functions[place] != name_of(function):
                    raise InputError(CHANGED)
                read = tensors_in(given)
                made = replaced(read, made, rows) if rows else made
                results = written(read, made)
                leaving.update({key: results[key[2]] for key in wanted})
            return made

        self._watch = Watch(seen)
        try:
            with self._watch.running():
                return first_tensor(self.module(**inputs))
        except _Left:
            return self._left(leaving)
        finally:
            self._watch = None
            for held, buffers in kept:
                held.update(buffers)
            self.sized = True

    def _arrived(self, key: Key, each: Any) -> Any:
        each = Dense.apply(each)
        each = each.clone() if key in self.flow.changed else each
        return each if self.mesh is None else placed(each, self.mesh)

    def _left(self, leaving: Mapping[Key, Any]) -> Any:
        if leaving.keys() != set(self._leaving):
            raise InputError(CHANGED)
        made = tuple(whole(leaving[key]) for key in self._leaving)
        # PyTorch detaches in place what a stage returns; of several, one may be what a block saved for recomputation.
        dense = torch.contiguous_format
        if len(made) > 1 or made[0]._is_view():  # Nor can it detach a view.
            return tuple(each.clone(memory_format=dense) for each in made)
        return made[0].contiguous()

    def _sizes(self) -> Any:
        """Results of the call that runs."""
        assert self._watch is not None
        return self.flow.calls[self._watch.calls - 1].made

    def _enter(self) -> None:
        if self._watch is not None:
            if self._watch.calls == self._end:
                raise _Left
            self._watch.enter()

    def _leave_part(self, made: Any) -> Any:
        return self._watch.leave(made) if self._watch is not None else made

    def _drop_loose(self, places: range, device: Any) -> None:
        """Put zeros in place of parameters beside the parts that other stages read; unread ones are the first's."""
        for path, read in self.flow.loose.items():
            if not any(place in places for place in read or (0,)):
                parent, _, name = path.rpartition(".")
                owner = self.module.get_submodule(parent)
                parameter = getattr(owner, name)
                delattr(owner, name)
                owner.register_buffer(name, torch.zeros(parameter.shape, dtype=parameter.dtype, device=device), False)


def _with_other_buffers(model: nn.Module) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Put copies in place of all buffers; where they were held, and what was held there."""
    kept = [(module._buffers, dict(module._buffers)) for module in model.modules() if module._buffers]
    for held, buffers in kept:
        held.update({name: each if each is None else each.clone() for name, each in buffers.items()})
    return kept


def present(model: nn.Module, path: str) -> nn.Module | None:
    """The module at a path; None: this stage does not have it."""
    try:
        found = model.get_submodule(path)
    except AttributeError:
        return None
    return None if isinstance(found, Elsewhere) else found
