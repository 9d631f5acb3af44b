"""Calls of a module that only repeat one another: found by what they run, so that one of them is traced.

The module is run once without numbers, and every call of every part is written down: operators,
sizes, and which tensors they are given, parameters by their name within the part. Two calls with the same account do
the same with other parameters. While `torch.export` traces the module, the first of such calls stands between two
marks, and one call of `again` takes the place of each other.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from attrs import define, field, frozen
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from nest_torch.tracing import quiet

FEWEST = 8
"""Operators from which on a call is worth being left out."""

ENTER, LEAVE, AGAIN = "enter", "leave", "again"
"""Calls of the traced program around the call that stands for others, and in place of those."""

LIBRARY = "nest"
"""The library of operators that they belong to."""

MOST_OPERATORS = 1500
"""Operators of one call, parts of it apart, beyond which a module loops along the sequence."""


class UnrolledError(Exception):
    """A module that loops along the sequence, of `length`, is not traced as it is."""

    def __init__(self, length: int) -> None:
        super().__init__(f"a loop of {length} steps")
        self.length = length


PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device)
"""Types of arguments, beside tensors, of which the account of a call says all."""


@frozen(eq=False)
class Repeat:
    """A call of a part of a module that others repeat, or that repeats another.

    Attributes:
        path: of the part.
        number: how many calls of it came before.
        calls: of it in one run of the module.
        template: number of the call it repeats, its own for the first, among all that were found.
    """

    path: str
    number: int
    calls: int
    template: int


@define(eq=False)
class _Account:
    """Effects of one call."""

    path: str
    number: int
    parent: "_Account | None"
    given: dict[int, int]
    own: Mapping[int, str]
    rows: list[Any] = field(factory=list)
    usable: bool = True
    chosen: bool = False
    _created: dict[int, int] = field(factory=dict)

    def token(self, tensor: Any) -> Any:
        """Role of a tensor in this call."""
        key = id(tensor)
        if key in self.given:
            return ("given", self.given[key])
        if key in self._created:
            return ("made", self._created[key])
        name = self.own.get(key, "")
        if name.startswith(f"{self.path}."):
            return ("own", name.removeprefix(f"{self.path}."))
        return ("outside", key)

    def note(self, path: str, operator: Any, read: Sequence[Any], written: Sequence[Any]) -> None:
        """Write down a call of an operator in the part at `path`."""
        tokens = tuple(self.token(each) if isinstance(each, torch.Tensor) else _said(each) for each in read)
        self.rows.append((path.removeprefix(self.path), str(operator), tokens, tuple(map(_sizes, written))))
        if operator._schema.is_mutable and any(
            token[0] in ("given", "outside") for token in tokens[:1] if isinstance(token, tuple)
        ):
            self.usable = False
        for each in written:
            if id(each) not in self.given and id(each) not in self.own:
                self._created.setdefault(id(each), len(self._created))


def _said(item: Any) -> Any:
    """A plain argument; numbers that only scale are alike."""
    return float if isinstance(item, float) else (item if isinstance(item, PLAIN) else str(item))


def _sizes(tensor: Any) -> Any:
    return (tuple(tensor.shape), tensor.dtype)


def _tensors(item: Any) -> list[Any]:
    return [each for each in tree_flatten(item)[0] if isinstance(each, torch.Tensor)]


class _Watch(TorchDispatchMode):  # type: ignore[misc]
    """Writes down what runs in every call that is open."""

    def __init__(self, names: Mapping[int, str], most: float) -> None:
        super().__init__()
        self.accounts: list[_Account] = []
        self.open: list[_Account] = []
        self.unrolled = False
        self._most = most
        self._counts: dict[str, int] = {}
        self._names = names
        self._kept: list[Any] = []  # While a tensor lives, no other has its id.
        self.calls: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.namespace == "prim":  # Questions about tensors.
            return made
        innermost = self.open[-1].path if self.open else ""
        self._counts[innermost] = self._counts.get(innermost, 0) + 1
        self.unrolled |= self._counts[innermost] > self._most
        if self.unrolled:
            raise RuntimeError("the account of a loop has no end")
        read, written = tree_flatten((args, kwargs or {}))[0], _tensors(made)
        self._kept += [*_tensors(read), *written]
        path = self.open[-1].path if self.open else ""
        for each in self.open:
            each.note(path, func, read, written)
        return made

    def begin(self, path: str, arguments: Any) -> None:
        """A call begins."""
        leaves, shape = tree_flatten(arguments)
        given: dict[int, int] = {}
        for each in leaves:
            if isinstance(each, torch.Tensor):
                given.setdefault(id(each), len(given))
        number = self.calls.get(path, 0)
        self._counts[path] = 0
        self.calls[path] = number + 1
        account = _Account(path, number, self.open[-1] if self.open else None, given, self._names)
        account.usable = bool(given) and all(isinstance(each, (torch.Tensor, *PLAIN)) for each in leaves)
        told = [(given[id(each)], _sizes(each)) if isinstance(each, torch.Tensor) else _said(each) for each in leaves]
        account.rows.append((str(shape), tuple(map(str, told))))
        self._kept += _tensors(leaves)
        self.accounts.append(account)
        self.open.append(account)

    def end(self, result: Any) -> None:
        """The innermost open call ends."""
        account = self.open.pop()
        leaves, shape = tree_flatten(result)
        tokens = [account.token(each) if isinstance(each, torch.Tensor) else _said(each) for each in leaves]
        account.rows.append((str(shape), tuple(map(str, tokens))))
        made = [each for each in leaves if isinstance(each, torch.Tensor) and id(each) not in account.given]
        account.usable &= all(isinstance(each, (torch.Tensor, *PLAIN)) for each in leaves)
        account.usable &= all(account.token(each)[0] == "made" for each in made) and bool(made)


def _watched(module: Any, positional: Sequence[Any], keywords: Mapping[str, Any], length: int | None) -> _Watch | None:
    """Run the module without numbers and watch; None if it does not run so."""
    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    on_meta = all(each.device.type == "meta" for each in (*held.values(), *_tensors((positional, keywords))))
    mode = None if on_meta else FakeTensorMode()

    def fake(item: Any) -> Any:
        """A tensor without numbers; those of the meta device have none as they are, and run in half the time."""
        return mode.from_tensor(item) if mode is not None and isinstance(item, torch.Tensor) else item

    moved = {name: fake(each) for name, each in held.items()}
    names = {id(each): name for name, each in moved.items()}
    watch = _Watch(names, MOST_OPERATORS if length is not None else math.inf)
    handles = []
    for path, part in module.named_modules():
        if path:
            handles += [
                part.register_forward_pre_hook(
                    lambda _, arguments, named, path=path: watch.begin(path, (arguments, named)), with_kwargs=True
                ),
                part.register_forward_hook(lambda _, __, ___, made: watch.end(made), with_kwargs=True),
            ]
    given = (tuple(fake(each) for each in positional), {name: fake(each) for name, each in keywords.items()})
    try:
        with quiet(), _as_exported(), mode or nullcontext(), torch.no_grad(), watch:
            torch.func.functional_call(module, moved, *given, strict=False)
    except Exception:  # What a module does with numbers it may not do without; then nothing is left out.
        if watch.unrolled and length is not None:
            raise UnrolledError(length) from None
        return None
    finally:
        for handle in handles:
            handle.remove()
    return watch


@contextmanager
def _as_exported() -> Iterator[None]:
    """Modules that ask whether they are exported go the way that they go then."""
    flags = {name: getattr(torch.compiler, name) for name in ("_is_compiling_flag", "_is_exporting_flag")}
    try:
        for name in flags:
            setattr(torch.compiler, name, True)
        yield
    finally:
        for name, before in flags.items():
            setattr(torch.compiler, name, before)


def repeats(
    module: Any, positional: Sequence[Any], keywords: Mapping[str, Any], length: int | None = None
) -> tuple[Repeat, ...]:
    """The outermost calls of parts of a module that are repeated or repeat, in the order in which they are made.

    Args:
        module: whatever device its weights are on.
        positional: what it is called with.
        keywords: likewise, by name.
        length: of the sequence; None: a loop along it is traced, however long.

    Raises:
        UnrolledError: the module loops along the sequence.
    """
    watch = _watched(module, positional, keywords, length)
    if watch is None:
        return ()
    likely = [each for each in watch.accounts if each.usable and len(each.rows) >= FEWEST + 2]
    keys = {id(each): tuple(each.rows) for each in likely}
    counts: dict[Any, int] = {}
    for key in keys.values():
        counts[key] = counts.get(key, 0) + 1
    found: list[Repeat] = []
    first: dict[Any, int] = {}
    for each in watch.accounts:
        each.chosen = each.parent is not None and each.parent.chosen
        if each.chosen or counts.get(keys.get(id(each)), 0) < 2:
            continue
        each.chosen = True
        template = first.setdefault(keys[id(each)], len(found))
        found.append(Repeat(each.path, each.number, watch.calls[each.path], template))
    return tuple(found)


@frozen
class _Given:
    """In place of a returned tensor: the one of this number among those that the call was given."""

    number: int


class _Made:
    """In place of a returned tensor: the next of those that the call made."""


@define(eq=False)
class _Tracing:
    """State of a trace.

    Attributes:
        found: the calls that are alike.
        results: by number of a call that stands for others: what it returns, as leaves of a tree, and the tree.
        made: likewise the tensors that it returns, those it was given left out.
    """

    found: Sequence[Repeat] = ()
    results: dict[int, tuple[list[Any], Any]] = field(factory=dict)
    made: dict[int, list[Any]] = field(factory=dict)


_tracing = _Tracing()
"""PyTorch's operators are global, and so is what those of this module read."""


def mark(node: Any) -> str:
    """Mark around repeated calls that a node of a traced program is; empty if none."""
    schema = getattr(getattr(node, "target", None), "_schema", None)
    library, _, name = str(schema.name).partition("::") if schema is not None else ("", "", "")
    return name if library == LIBRARY else ""


@contextmanager
def left_out(module: Any, found: Sequence[Repeat]) -> Iterator[None]:
    """While this is open, calls of `module` run one of all calls that are alike, between marks."""
    _define()
    rows: dict[str, dict[int, int]] = {}
    for index, each in enumerate(found):
        rows.setdefault(each.path, {})[each.number] = index
    _tracing.found = found
    changed = []
    for path, calls in rows.items():
        part = module.get_submodule(path)
        changed.append((part, part.__dict__.get("forward")))
        part.forward = _replaced(part.forward, calls)
    try:
        yield
    finally:
        for part, own in changed:
            del part.forward
            if own is not None:
                part.forward = own
        _tracing.found = ()
        _tracing.results.clear()
        _tracing.made.clear()


def _replaced(forward: Callable[..., Any], calls: Mapping[int, int]) -> Callable[..., Any]:
    """`forward` with marks around the calls that stand for others, and without those that repeat."""
    count = 0

    def call(*arguments: Any, **keywords: Any) -> Any:
        nonlocal count
        found = _tracing.found
        index = calls.get(count % found[next(iter(calls.values()))].calls)  # A module may be traced more than once.
        count += 1
        if index is None:
            return forward(*arguments, **keywords)
        given = _tensors((arguments, keywords))
        template = found[index].template
        if template != index:
            return _returned(template, torch.ops.nest.again(given, index, template), given)
        inside = torch.ops.nest.enter(given, index)
        arguments, keywords = _with_tensors((arguments, keywords), inside)
        leaves, tree = tree_flatten(forward(*arguments, **keywords))
        numbers = {id(each): number for number, each in enumerate(inside)}
        made = [each for each in leaves if isinstance(each, torch.Tensor) and id(each) not in numbers]
        kinds = [_kind(each, numbers) if isinstance(each, torch.Tensor) else each for each in leaves]
        _tracing.results[index], _tracing.made[index] = (kinds, tree), made
        return _returned(index, torch.ops.nest.leave(made, index), given)

    return call


def _kind(tensor: Any, numbers: Mapping[int, int]) -> _Given | _Made:
    return _Given(numbers[id(tensor)]) if id(tensor) in numbers else _Made()


def _with_tensors(item: Any, tensors: Sequence[Any]) -> Any:
    """`item` with other tensors in place of those in it."""
    leaves, tree = tree_flatten(item)
    others = iter(tensors)
    return tree_unflatten([next(others) if isinstance(each, torch.Tensor) else each for each in leaves], tree)


def _returned(template: int, made: Sequence[Any], given: Sequence[Any]) -> Any:
    """Result of a call whose tensors are `made`, or were `given`."""
    kinds, tree = _tracing.results[template]
    others = iter(made)
    leaves = [
        next(others) if isinstance(each, _Made) else given[each.number] if isinstance(each, _Given) else each
        for each in kinds
    ]
    return tree_unflatten(leaves, tree)


_libraries: list[Any] = []
"""Definitions of operators last as long as their library."""


def _define() -> None:
    """Tell PyTorch what `enter`, `leave` and `again` give back."""
    if _libraries:
        return
    library = torch.library.Library(LIBRARY, "DEF")
    _libraries.append(library)
    for name in (ENTER, LEAVE):
        library.define(f"{name}(Tensor[] given, int number) -> Tensor[]")
    library.define(f"{AGAIN}(Tensor[] given, int number, int template) -> Tensor[]")

    def same(given: Sequence[Any], number: int) -> list[Any]:
        return [torch.empty_like(each) for each in given]

    def made(given: Sequence[Any], number: int, template: int) -> list[Any]:
        return [given[0].new_empty(each.shape, dtype=each.dtype) for each in _tracing.made[template]]

    for name, sizes in ((ENTER, same), (LEAVE, same), (AGAIN, made)):
        torch.library.register_fake(f"{LIBRARY}::{name}", sizes, lib=library)
