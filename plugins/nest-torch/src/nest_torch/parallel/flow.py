"""Tensors of a forward pass by the order in which its code makes them: what a pipeline carries over a cut.

A module calls its parts (embedding, blocks, head); the code between them adds residuals, keeps skips, makes masks. A
tensor has a `Key`, the same in each pass: how many parts were called before it was made, and how many functions since.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from attrs import frozen
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode, _get_current_function_mode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from nest.deployment.deployment import ENDS
from nest.errors import InputError
from nest_torch.tracing import NarrowProducts

Key = tuple[int, int, int]
"""Calls of parts begun before, functions called since (0: it is what the last of those parts returned), and index."""

END = 10**9
"""Place of the result of a forward pass, behind all calls."""

CHANGED = "the code between two layers ran in another way than when the pipeline was cut; keep it free of chance."

OF_SIZES = ("zeros_like", "ones_like", "empty_like", "full_like", "new_zeros", "new_ones", "new_empty", "new_full")
"""Functions of the sizes of a tensor only."""


@frozen
class Call:
    """One call of a part.

    Attributes:
        path: of the module.
        layer: the layer of the plan it belongs to.
        made: what it returned, tensors as `Sizes`.
    """

    path: str
    layer: str
    made: Any


@frozen
class Sizes:
    """Sizes and number format of a tensor that a part makes."""

    sizes: tuple[int, ...]
    dtype: Any


@frozen
class Flow:
    """A forward pass.

    Attributes:
        calls: of its parts, in order.
        last_use: by key of a tensor that depends on parts or parameters, the last place that reads it.
        loose: by name of a parameter beside the parts, the places that read it.
        changed: keys of tensors that code writes to after they are made.
        functions: by place, the name of the function that made those tensors; empty: a part did.
    """

    calls: tuple[Call, ...]
    last_use: Mapping[Key, int]
    loose: Mapping[str, tuple[int, ...]]
    changed: frozenset[Key]
    functions: Mapping[tuple[int, int], str]

    def crossing(self, call: int) -> tuple[Key, ...]:
        """Tensors made before the call of that index and read by it or later."""
        return tuple(sorted(key for key, last in self.last_use.items() if key[0] <= call < last))


class Watch(TorchFunctionMode):  # type: ignore[misc]
    """Counts the calls of parts, and shows what the code between them makes.

    Args:
        seen: is given the place, the tensors that were read, and what was made; returns what the code goes on with.
    """

    def __init__(self, seen: Callable[[tuple[int, int], Any, Any, Any], Any]) -> None:
        super().__init__()
        self.calls, self._functions, self._inside, self._away, self._seen = 0, 0, False, False, seen

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        made = function(*arguments, **(keywords or {}))
        if self._inside:
            return made
        self._functions += 1
        return self._seen((self.calls, self._functions), function, (arguments, keywords), made)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Watch what runs within."""
        self.__enter__()
        try:
            yield
        finally:
            if not self._away:
                self.__exit__(None, None, None)

    def enter(self) -> None:
        """Note that a part begins; what it calls is its own."""
        self.calls, self._functions, self._inside = self.calls + 1, 0, True
        if _get_current_function_mode() is self:  # Compilers look at the modes around a block.
            self.__exit__(None, None, None)
            self._away = True

    def leave(self, made: Any) -> Any:
        """Note that the part ends; what the code goes on with."""
        if self._away:
            self.__enter__()
        self._inside = self._away = False
        return self._seen((self.calls, 0), None, (), made)


def tensors_in(given: Any) -> list[Any]:
    """Every tensor in arguments or results."""
    return [each for each in tree_leaves(given) if isinstance(each, torch.Tensor)]


def name_of(function: Any) -> str:
    """Name of a function; empty: there is none."""
    return getattr(function, "__name__", "")


def written(read: list[Any], made: Any) -> list[Any]:
    """Results of a function; if it returns nothing, as `x[0] = y`, the tensor it wrote to."""
    return read[:1] if made is None else tensors_in(made)


def replaced(read: list[Any], made: Any, changes: Mapping[int, Any]) -> Any:
    """`made` with the tensors of some indices changed, also those that the function was given and wrote to."""
    given = {id(each) for each in read}
    rows = written(read, made)
    for index, each in changes.items():
        if tuple(rows[index].shape) != tuple(each.shape):
            raise InputError(CHANGED)
        if id(rows[index]) in given:
            rows[index].copy_(each)
        else:
            rows[index] = each
    if made is None:
        return None
    flat, spec = tree_flatten(made)
    rest = iter(rows)
    return tree_unflatten([next(rest) if isinstance(each, torch.Tensor) else each for each in flat], spec)


def recorded(model: nn.Module, inputs: Mapping[str, Any], blocks: Mapping[str, str]) -> Flow:
    """The forward pass of a module, without numbers and without a change to it.

    Raises:
        InputError: it calls a block twice, or not at all.
    """
    layer_of = {path: layer for layer, path in blocks.items()}
    paths = [path for path in units(model, set(layer_of)) if path in layer_of or _is_part(model.get_submodule(path))]
    try:
        recorder = _run(model, inputs, paths, fake=True)
    except InputError:
        raise
    except Exception:  # Some code looks at what tensors hold.
        recorder = _run(model, inputs, paths, fake=False)
    counts = {path: sum(path == met for met, _ in recorder.calls) for path in layer_of}
    for path, count in counts.items():
        if count == 0:
            raise InputError(f"the model does not call its part {path!r:.60} with these inputs.")
        if count > 1:
            raise InputError(f"the model calls {path} more than once in a forward pass, which cannot be cut.")
    loose = {name: tuple(sorted(places)) for name, places in recorder.loose.items()}
    calls = tuple(_with_layers(recorder.calls, layer_of))
    return Flow(calls, recorder.last_use, loose, frozenset(recorder.changed), recorder.functions)


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


def _is_part(module: nn.Module) -> bool:
    """Return whether one stage only may run a module: it has parameters, draws random numbers, or keeps statistics."""
    kinds = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase)
    return any(True for _ in module.parameters()) or any(isinstance(each, kinds) for each in module.modules())


def _with_layers(calls: Sequence[tuple[str, Any]], layer_of: Mapping[str, str]) -> Iterator[Call]:
    """Assign what runs before all blocks to the embedding, after them to the head, between to the block before."""
    last = max(index for index, (path, _) in enumerate(calls) if path in layer_of)
    current = ENDS[0]
    for index, (path, made) in enumerate(calls):
        current = layer_of.get(path, ENDS[1] if index > last else current)
        yield Call(path, current, made)


class _Recorder:
    """Notes the calls of parts, and where tensors are made and read."""

    def __init__(self, loose: Mapping[int, str]) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.last_use: dict[Key, int] = {}
        self.changed: set[Key] = set()
        self.functions: dict[tuple[int, int], str] = {}
        self.loose: dict[str, set[int]] = {name: set() for name in loose.values()}
        self._names = loose
        self._keys: dict[int, Key] = {}
        self._kept: list[Any] = []  # So that no other tensor takes an address.
        self._versions: list[tuple[Any, int]] = []
        self.watch = Watch(self._seen)

    def begin(self, given: Any) -> None:
        self._versions = [(each, each._version) for each in tensors_in(given)]
        for each, _ in self._versions:
            self.read(each, self.watch.calls + 1)
        self.watch.enter()

    def end(self, path: str, made: Any) -> None:
        self._changed(each for each, before in self._versions if each._version > before)
        self.calls.append(
            (path, tree_map(lambda t: Sizes(tuple(t.shape), t.dtype) if isinstance(t, torch.Tensor) else t, made))
        )
        self.watch.leave(made)

    def _changed(self, each_of: Iterator[Any]) -> None:
        self.changed |= {self._keys[id(each)] for each in each_of if id(each) in self._keys}

    def read(self, each: Any, place: int) -> bool:
        """Note that a tensor is read; whether it depends on parts or parameters."""
        name, key = self._names.get(id(each)), self._keys.get(id(each))
        if name is not None:
            self.loose[name].add(place)
        if key is not None:
            self.last_use[key] = max(place, self.last_use.get(key, 0))
        return name is not None or key is not None

    def _seen(self, place: tuple[int, int], function: Any, given: Any, made: Any) -> Any:
        read = tensors_in(given)
        depends = [self.read(each, place[0]) for each in read]
        if (any(depends) or function is None) and name_of(function) not in OF_SIZES:
            self.functions[place] = name_of(function)
            rows = written(read, made)
            own = {id(each) for each in read}
            self._changed(each for each in rows if id(each) in own)
            for index, each in enumerate(rows):
                self._keys[id(each)] = (*place, index)
                self._kept.append(each)
        return made


def _run(model: nn.Module, inputs: Mapping[str, Any], paths: Sequence[str], fake: bool) -> _Recorder:
    """Run the forward pass on tensors without numbers, or on zeros."""
    device = next(model.parameters()).device
    model = copy_sharing(model)  # What code keeps as an attribute stays on the copy.
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def own(each: Any) -> Any:
        if not isinstance(each, torch.Tensor):
            return each
        copy = each.detach() if isinstance(each, nn.Parameter) else each.detach().clone()
        return (mode.from_tensor(copy) if fake else copy).requires_grad_(each.requires_grad)

    state = {name: own(each) for name, each in (*model.named_parameters(), *model.named_buffers())}
    given = {
        name: own(torch.zeros(each.shape, dtype=each.dtype, device=device)) if isinstance(each, torch.Tensor) else each
        for name, each in inputs.items()
    }
    held = tuple(f"{path}." for path in paths)
    recorder = _Recorder({id(state[n]): n for n, _ in model.named_parameters() if not n.startswith(held)})
    handles = []
    for path in paths:
        module = model.get_submodule(path)
        handles.append(
            module.register_forward_pre_hook(lambda _, *given: recorder.begin(given), with_kwargs=True, prepend=True)
        )
        handles.append(module.register_forward_hook(lambda _, __, made, path=path: recorder.end(path, made)))
    try:
        with torch.enable_grad():
            if fake:
                with NarrowProducts(), mode, recorder.watch.running():
                    made = torch.func.functional_call(model, state, (), given, tie_weights=True)
            else:
                with recorder.watch.running():
                    made = torch.func.functional_call(model, state, (), given, tie_weights=True)
    finally:
        for handle in handles:
            handle.remove()
    recorder.read(first_tensor(made), END)
    return recorder


def copy_sharing(model: nn.Module) -> nn.Module:
    """A copy of a module and all below it that shares parameters and buffers."""
    shared = {id(each): each for each in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


def first_tensor(made: Any) -> Any:
    """The first tensor in what a module returns: its logits, as a rule."""
    if isinstance(made, torch.Tensor):
        return made
    if isinstance(made, Mapping):
        return next(each for each in made.values() if isinstance(each, torch.Tensor))
    return next(each for each in made if isinstance(each, torch.Tensor))
