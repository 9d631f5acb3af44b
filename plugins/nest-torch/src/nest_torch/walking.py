"""A program that `torch.export` traced, call by call."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import define, field

from nest.errors import InputError
from nest_torch.exported.attention import FUSED, Attention, is_fused
from nest_torch.program.recorder import Call, Recorder, atoms
from nest_torch.program.targets import OPAQUE
from nest_torch.program.values import CONSTANT, PARAMETER, Value
from nest_torch.repeats import AGAIN, ENTER, LEAVE, Repeat, mark
from nest_torch.written_attention import Found, found_attention

INLINED = {"wrap_with_set_grad_enabled": 2, "wrap_with_autocast": 5}
"""Higher-order operators that only run a part of the program, and how many arguments stand before what it is given."""


@define(eq=False)
class _Body:
    """The part of a program that others repeat.

    Attributes:
        known: what the nodes of its graph stand for.
        found: the attention of the graph.
        first: the node that hands the call what it is given.
        nodes: those of the call.
        last: the node that takes what it returns.
    """

    known: dict[Any, Any]
    found: Found | None
    first: Any
    nodes: list[Any] = field(factory=list)
    last: Any = None


@define
class Walker(Recorder):
    """Goes through a program and writes down its operators.

    Attributes:
        fused: whether attention is one kernel, however it is written, and causal where its mask is.
        repeats: the calls that were left out of the program, and those they repeat.
    """

    fused: bool = False
    repeats: Sequence[Repeat] = ()
    _bodies: dict[int, "_Body"] = field(factory=dict, init=False)
    _renamed: tuple[str, str] = field(default=("", ""), init=False)
    _held: dict[str, Value] = field(factory=dict, init=False)
    _names: dict[Any, str] = field(factory=dict, init=False)

    def run(self, module: Any, given: Sequence[Any]) -> list[Any]:
        """Go through the graph of `module`, whose placeholders stand for `given`; what it returns."""
        known: dict[Any, Any] = {}
        inputs = iter(given)
        found = found_attention(module.graph) if self.fused else None
        open_bodies: list[_Body] = []
        for node in module.graph.nodes:
            here = mark(node)
            if here == ENTER:
                body = _Body(known, found, node)
                self._bodies[node.args[1]] = body
                open_bodies.append(body)
            elif here == LEAVE:
                open_bodies.pop().last = node
            else:
                for body in open_bodies:
                    body.nodes.append(node)
            if node.op == "placeholder":
                known[node] = self._placed(node, next(inputs))
            elif node.op == "get_attr":
                known[node] = _attribute(module, node.target)
            elif node.op == "call_function":
                self._step(node, known, found)
            elif node.op == "output":
                return list(_flat(_resolved(node.args[0], known)))
        return []

    def _placed(self, node: Any, value: Any) -> Any:
        """Value of a placeholder; parameters and buffers are remembered by name."""
        if isinstance(value, Value) and value.stored.origin in (PARAMETER, CONSTANT):
            self._names[node] = value.stored.name
            self._held[value.stored.name] = value
        return value

    def _step(self, node: Any, known: dict[Any, Any], found: Found | None) -> None:
        """Write down what a call does, and what comes out."""
        here = mark(node)
        if here in (ENTER, LEAVE):
            known[node] = [known.get(each) for each in node.args[0]]
        elif here == AGAIN:
            known[node] = self._again(self.repeats[node.args[1]], [known.get(each) for each in node.args[0]])
        elif found is not None and node.name in found.by_result:
            known[node] = self._attended(node, found.by_result[node.name], known)
        elif found is None or node.name in found.needed:
            known[node] = self._called(node, known)

    def _again(self, repeat: Repeat, given: Sequence[Any]) -> list[Any]:
        """Repeat the call that `repeat` names, with this one's arguments and parameters."""
        body = self._bodies[repeat.template]
        old = self.repeats[repeat.template].path
        known = dict(body.known)
        for node, name in self._names.items():
            if name.startswith(f"{old}."):
                known[node] = self._held.get(repeat.path + name.removeprefix(old), known[node])
        known[body.first] = list(given)
        before, self._renamed = self._renamed, (old, repeat.path)
        for node in body.nodes:
            if node.op == "call_function":
                self._step(node, known, body.found)
        self._renamed = before
        return [known.get(each) for each in body.last.args[0]]

    def _called(self, node: Any, known: dict[Any, Any]) -> Any:
        arguments, keywords = _resolved(list(node.args), known), _resolved(dict(node.kwargs), known)
        name = getattr(node.target, "__name__", str(node.target))
        if name == "getitem":
            return arguments[0][arguments[1]]
        if name in INLINED:
            skipped = INLINED[name]
            inner = next(each for each in arguments[:skipped] if hasattr(each, "graph"))
            return self.run(inner, arguments[skipped:])
        schema = getattr(node.target, "_schema", None)
        results = [each for each in _flat(node.meta.get("val")) if hasattr(each, "shape") and hasattr(each, "dtype")]
        if schema is None:
            if not results:
                return None  # Arithmetic with sizes.
            raise InputError(f"the program calls {name}, which nest cannot read. Trace a part without control flow.")
        call = Call(
            target=str(schema.name).split("::")[-1],
            path=self._path(node),
            arguments=arguments,
            keywords=keywords,
            shapes=[tuple(int(length) for length in each.shape) for each in results],
            itemsizes=[int(each.dtype.itemsize) for each in results],
            floating=[bool(each.dtype.is_floating_point or each.dtype.is_complex) for each in results],
            pointwise=torch.Tag.pointwise in node.target.tags,
        )
        library = str(schema.name).split("::")[0]
        if library not in ("aten", "prim", "prims") and call.target not in self.makers and results:
            raise InputError(
                f"{call.path or 'the module'} calls {schema.name}, of which nest knows neither FLOP nor bytes."
            )
        if call.target in OPAQUE:
            raise InputError(f"{call.path or 'the module'} calls {call.target}, whose inside nest does not see.")
        if not results:
            return None
        try:
            made = self.results(call)
        except (ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError) as error:
            told = f"{call.path or 'the module'} calls {call.target} in a form that nest cannot read"
            raise InputError(f"{told} ({type(error).__name__}: {error}).") from error
        if schema.is_mutable and node.args and isinstance(arguments[0], Value):
            _replace(known, arguments[0], made[0])
        return made if isinstance(node.meta.get("val"), (list, tuple)) else made[0]

    def _path(self, node: Any) -> str:
        """The module a call is in: the innermost of its stack."""
        stack = node.meta.get("nn_module_stack")
        path = str(list(stack.values())[-1][0]) if stack else ""
        old, new = self._renamed
        inside = old and (path == old or path.startswith(f"{old}."))
        return new + path.removeprefix(old) if inside else path

    def _attended(self, node: Any, at: Attention, known: Mapping[Any, Any]) -> Any:
        """Attention as one call; of its masks only what is learned is read."""
        by_name = {each.name: value for each, value in known.items()}
        query, key, value = (by_name[name] for name in (at.query, at.key, at.value))
        if at.turned:
            key = key.seen_as((*key.dims[:-2], key.dims[-1], key.dims[-2]))
        shown = node.meta["val"]
        several = isinstance(shown, (list, tuple))
        shape = tuple(int(length) for length in (shown[0] if several else shown).shape)
        said = node.kwargs.get("is_causal", node.args[5] if len(node.args) > 5 else False)
        causal = at.causal or (is_fused(at.node.target) and said is True)
        mask = by_name[at.mask] if at.mask else None
        arguments = [query, key, value, mask, 0.0, causal]
        made = self.results(
            Call(FUSED, self._path(node), arguments, {}, [shape], [query.itemsize], [True], pointwise=False)
        )
        return made * len(shown) if several else made[0]


def _replace(known: dict[Any, Any], old: Value, new: Value) -> None:
    """Let a tensor changed in place be the new tensor from now on, through whatever view."""
    for node, value in known.items():
        if value is old:
            known[node] = new
        elif isinstance(value, Value) and value.stored is old.stored and atoms(value) == atoms(old):
            known[node] = new.seen_as(value.dims)


def _attribute(module: Any, target: str) -> Any:
    for name in target.split("."):
        module = getattr(module, name)
    return module


def _resolved(item: Any, known: Mapping[Any, Any]) -> Any:
    if isinstance(item, torch.fx.Node):
        return known[item]
    if isinstance(item, (list, tuple)):
        return [_resolved(each, known) for each in item]
    if isinstance(item, dict):
        return {key: _resolved(each, known) for key, each in item.items()}
    return item


def _flat(item: Any) -> Iterator[Any]:
    if isinstance(item, (list, tuple)):
        for each in item:
            yield from _flat(each)
    elif item is not None:
        yield item
