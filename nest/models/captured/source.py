"""What a problem or a file says of a graph that was captured: the graph, and what the capture does not show."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from attrs import field, frozen

from nest.errors import InputErrors
from nest.models.captured.node import KEYS

OPTIONS = ("repeat", "causal", "parameters")
"""Keys beside the graph that nest reads; what else a script wrote beside its nodes says nothing to it."""


@frozen
class CapturedSource:
    """A graph and what is said beside it.

    Attributes:
        nodes: of a captured program; empty: `graph` is the content of an operator graph.
        graph: the content of an operator graph; empty: there are nodes.
        repeat: blocks the model has, of which fewer were captured; None: all were.
        causal: whether attention is causal where nothing in the program tells; None: it is not.
        parameters: sizes of parameters that follow from no node, by name.
    """

    nodes: Sequence[Any] = ()
    graph: Mapping[str, Any] = field(factory=dict)
    repeat: int | None = None
    causal: bool | None = None
    parameters: Mapping[str, tuple[int, ...]] = field(factory=dict)


def is_captured(source: Any) -> bool:
    """Whether `source` is a mapping that holds one list of nodes, or under `graph` what does or an operator graph."""
    return isinstance(source, Mapping) and _held(source) is not None


def is_operator_graph(source: Any) -> bool:
    """Whether `source` is written like `nest.graph.OperatorGraph`."""
    return isinstance(source, Mapping) and {"operators", "layers"} <= source.keys()


def _held(source: Mapping[str, Any]) -> Any:
    """The list of nodes or the content of an operator graph that `source` holds; None: neither, or several."""
    inner = source.get("graph")
    if is_operator_graph(inner):
        return inner
    if isinstance(inner, Mapping):
        return _held(inner)
    lists = [value for value in source.values() if _is_program(value)]
    return lists[0] if len(lists) == 1 and not is_operator_graph(source) else None


def _is_program(value: Any) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return False
    return isinstance(value[0], Mapping) and value[0].keys() >= KEYS


def captured(source: Mapping[str, Any]) -> CapturedSource:
    """What `source`, for which `is_captured` holds, says.

    Raises:
        InputErrors: there is no graph, or an option is misspelt or has no value that it can have.
    """
    problems = [*_misspelt(source), *_misvalued(source)]
    held = _held(source)
    if held is None:
        problems.append("graph is missing: a list of nodes or an operator graph.")
    if is_operator_graph(held):
        stray = [key for key in ("causal", "parameters") if source.get(key) is not None]
        problems += [f"`{key}` is for captured programs; an operator graph says it itself." for key in stray]
    if problems:
        raise InputErrors(problems)
    options: dict[str, Any] = {key: source[key] for key in OPTIONS if source.get(key) is not None}
    options["parameters"] = {name: tuple(sizes) for name, sizes in options.get("parameters", {}).items()}
    return CapturedSource(graph=held, **options) if is_operator_graph(held) else CapturedSource(held, **options)


def _misspelt(source: Mapping[str, Any]) -> list[str]:
    near = {key: get_close_matches(key, OPTIONS, 1, 0.7) for key in map(str, source) if key not in OPTIONS}
    return [f"unknown key {key!r:.40}; did you mean `{found[0]}`?" for key, found in near.items() if found]


def _misvalued(source: Mapping[str, Any]) -> list[str]:
    repeat, causal, parameters = (source.get(key) for key in OPTIONS)
    problems = []
    if repeat is not None and (isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 1):
        problems.append(f"repeat must be a number of blocks, 1 or more; got {repeat!r:.40}.")
    if causal is not None and not isinstance(causal, bool):
        problems.append(f"causal must be true or false; got {causal!r:.40}.")
    if parameters is not None and not _are_sizes(parameters):
        problems.append("parameters must give a list of sizes for each name, as `transformer.wpe.weight: [1024, 768]`.")
    return problems


def _are_sizes(parameters: Any) -> bool:
    return isinstance(parameters, Mapping) and all(
        isinstance(sizes, Sequence)
        and not isinstance(sizes, str)
        and all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes)
        for sizes in parameters.values()
    )
