"""A program that `torch.export` traced, call by call."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import define

from nest.errors import InputError
from nest_torch.exported.attention import FUSED, Attention, is_fused
from nest_torch.program.recorder import Call, Recorder, atoms
from nest_torch.program.targets import OPAQUE
from nest_torch.program.values import Value
from nest_torch.written_attention import found_attention

INLINED = {"wrap_with_set_grad_enabled": 2, "wrap_with_autocast": 5}
"""Higher-order operators that only run a part of the program, and how many arguments stand before what it is given."""


@define
class Walker(Recorder):
    """Goes through a program and writes down its operators.

    Attributes:
        fused: whether attention is one kernel, however it is written, and causal where its mask is.
    """

    fused: bool = False

    def run(self, module: Any, given: Sequence[Any]) -> list[Any]:
        """Go through the graph of `module`, whose placeholders stand for `given`; what it returns."""
        known: dict[Any, Any] = {}
        inputs = iter(given)
        found = found_attention(module.graph) if self.fused else None
        for node in module.graph.nodes:
            at = found.by_result.get(node.name) if found is not None else None
            if node.op == "placeholder":
                known[node] = next(inputs)
            elif node.op == "get_attr":
                known[node] = _attribute(module, node.target)
            elif at is not None:
                known[node] = self._attended(node, at, known)
            elif node.op == "call_function" and (found is None or node.name in found.needed):
                known[node] = self._called(node, known)
            elif node.op == "output":
                return list(_flat(_resolved(node.args[0], known)))
        return []

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
            path=_path(node),
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
        made = self.results(
            Call(
                FUSED, _path(node), [query, key, value, mask, 0.0, causal], {}, [shape], [query.itemsize], [True], False
            )
        )
        return made * len(shown) if several else made[0]


def _replace(known: dict[Any, Any], old: Value, new: Value) -> None:
    """What was changed in place is the new tensor from now on, through whatever view it is seen."""
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


def _path(node: Any) -> str:
    """The module a call is in: the innermost of its stack."""
    stack = node.meta.get("nn_module_stack")
    return str(list(stack.values())[-1][0]) if stack else ""
