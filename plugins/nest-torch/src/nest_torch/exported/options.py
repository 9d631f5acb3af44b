"""Facts beside the nodes of an exported program, from a problem or a file."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from attrs import field, frozen

from nest.errors import InputErrors
from nest_torch.exported.node import KEYS

OPTIONS = ("repeat", "causal", "parameters")
"""Keys beside the nodes that nest reads; what else a script wrote there says nothing to it."""


@frozen
class ExportedSource:
    """The nodes of an exported program and what is said beside them.

    Attributes:
        nodes: as read from the file.
        repeat: blocks the model has, of which fewer were exported; None: all were.
        causal: whether attention is causal where nothing in the program says; None: it is not.
        parameters: sizes of parameters that follow from no node, by name.
    """

    nodes: Sequence[Any]
    repeat: int | None = None
    causal: bool | None = None
    parameters: Mapping[str, tuple[int, ...]] = field(factory=dict)


def exported_nodes(source: Any) -> Sequence[Any] | None:
    """The one list of nodes that a mapping, or the mapping under its `graph`, holds; None: there is none, or several.

    An operator graph, which the mapping may hold in its place, is none of ours.
    """
    if not isinstance(source, Mapping) or {"operators", "layers"} <= source.keys():
        return None
    inner = source.get("graph")
    if isinstance(inner, Mapping):
        return exported_nodes(inner)
    lists = [value for value in source.values() if _is_program(value)]
    return lists[0] if len(lists) == 1 else None


def _is_program(value: Any) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return False
    return isinstance(value[0], Mapping) and value[0].keys() >= KEYS


def read_source(source: Mapping[str, Any]) -> ExportedSource:
    """The nodes and options of `source`.

    Raises:
        InputErrors: there are no nodes, or an option is misspelt or has no value that it can have.
    """
    problems = [*_misspelt(source), *_misvalued(source)]
    nodes = exported_nodes(source)
    if nodes is None:
        problems.append("graph is missing: a list of nodes or an operator graph.")
    if problems or nodes is None:
        raise InputErrors(problems)
    options: dict[str, Any] = {key: source[key] for key in OPTIONS if source.get(key) is not None}
    options["parameters"] = {name: tuple(sizes) for name, sizes in options.get("parameters", {}).items()}
    return ExportedSource(nodes, **options)


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
