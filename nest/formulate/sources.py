"""From what a problem's `model` says to an operator graph."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from attrs import frozen

from nest.catalogue import unknown_name
from nest.errors import InputError, InputErrors
from nest.files import read, read_mapping, structure, there_is
from nest.files.names import near
from nest.files.source import SUFFIXES
from nest.files.synonyms import plain
from nest.formulate.model_library import library_models
from nest.graph import OperatorGraph
from nest.hooks.guard import attribute
from nest.hooks.protocols import ModelImporter
from nest.spec import Training, TransformerSpec

CONTEXT_KEYS = ("max_position_embeddings", "n_positions")
"""Where configurations say how many tokens a sample may have."""

USUAL_SEQUENCE = 4096
"""Tokens per sample when a description asks for none: Llama 2's pre-training context (arXiv 2307.09288)."""

GRAPH = "graph"
"""The key of a model under which an operator graph or an exported program is, or the path of a file that holds one."""

Model = TransformerSpec | dict[str, Any]
"""A model that needs no further file: a description by widths, or the content of a configuration."""


class Importers(Protocol):
    """The part of the registry needed here."""

    def model_importers(self) -> Mapping[str, ModelImporter]:
        """Model importers by name."""
        ...

    def credit(self, kind: str, name: str) -> None:
        """Note that an object was used."""
        ...


@frozen
class DescribedModel:
    """A model described by its widths, as files and problems write it (FORMATS.md).

    Attributes:
        transformer: the widths.
    """

    transformer: TransformerSpec


def load_model(source: str | Model, training: Training, base: Path | None, registry: Importers) -> OperatorGraph:
    """The operator graph of one sample of the model that `source` stands for.

    Args:
        source: as in `resolve_model`.
        training: gives the sequence length and the precision.
        base: folder that relative paths start from; None: the working directory.
        registry: offers the importers.

    Raises:
        InputError: there is no such file or name, no importer knows the family, or the importer refuses it.
    """
    model = resolve_model(source, base)
    importers = registry.model_importers()
    accepting = [importer for importer in importers.values() if importer.accepts(model)]
    place = f"model {source!r}" if isinstance(source, str) else "model"
    if not accepting:
        raise _unknown_family(place, model, importers)
    for other in accepting[1:]:
        attribute(other, f"accepts {place}, which the importer {accepting[0].name!r} accepts already")
    if len(accepting) > 1:
        names = ", ".join(importer.name for importer in accepting)
        raise InputError(f"{place}: several importers claim it ({names}); switch all but one off.")
    registry.credit("model_importers", accepting[0].name)
    try:
        return accepting[0].load(model, training)
    except InputErrors as errors:
        raise InputErrors(f"{place}: {problem}" for problem in errors.problems) from None


def resolve_model(source: str | Model, base: Path | None) -> Model:
    """What `source` stands for, complete in itself, so that a plan file can hold it.

    Args:
        source: a name `nest models` lists; the path of a `config.json`, of the folder that holds one, of a
            file with `transformer:`, of an operator graph or of an exported program; or the content itself.
        base: folder that relative paths start from; None: the working directory.

    Raises:
        InputError: there is no such file or name, or the file cannot be read.
    """
    if isinstance(source, TransformerSpec):
        return source
    if isinstance(source, str):
        library = library_models()
        return dict(library[source].config) if source in library else _read_model(source, base)
    return structure(source, DescribedModel).transformer if _describes(source) else _with_graph(source, base)


def default_sequence_length(model: Model, registry: Importers) -> int:
    """Tokens per sample to describe `model` with: those it was exported for, or its context, at most `USUAL_SEQUENCE`.

    Raises:
        InputError: an importer refuses it.
    """
    for importer in registry.model_importers().values():
        if hasattr(importer, "sequence_length") and importer.accepts(model):
            try:
                return int(importer.sequence_length(model)) or USUAL_SEQUENCE
            except InputErrors as errors:
                raise InputErrors(f"model: {problem}" for problem in errors.problems) from None
    contexts: list[int] = []
    if not isinstance(model, TransformerSpec):
        found = (model.get(key) for key in CONTEXT_KEYS)
        contexts = [length for length in found if isinstance(length, int) and length > 0]
    return min([USUAL_SEQUENCE, *contexts])


def _read_model(source: str, base: Path | None) -> Model:
    path = (base or Path()) / source
    if there_is(path) == "folder":
        path = path / "config.json"
    if there_is(path) != "file":
        raise _no_model(source, path)
    content = read_mapping(path, listed=GRAPH).mapping
    if _describes(content):
        return read(path, DescribedModel).transformer
    # The path of a graph in a file starts from that file.
    return _with_graph(content, path.parent)


def _no_model(source: str, path: Path) -> InputError:
    """The error for a model that is neither a file nor a name: what it may be instead, and how to get its file."""
    close = near(source, library_models())
    named = plain(source)
    if any(plain(each) in named for each in close):
        return InputError(f"model: there is no file or model called {source!r:.80}. Did you mean {close[0]!r}?")
    if _ON_THE_HUB.fullmatch(source) and path.suffix not in SUFFIXES:
        other = f" The nearest that nest knows by name is {close[0]!r}, another model." if close else ""
        return InputError(
            f"model: nest does not know {source!r:.80} by name and downloads nothing; save "
            f"https://huggingface.co/{source}/raw/main/config.json and give its path.{other}"
        )
    if path.suffix in SUFFIXES or "/" in source:
        return InputError(f"model: there is no file {str(path)!r:.200}; `nest models` lists the names known.")
    return unknown_name("model", "file or model", source, library_models())


_ON_THE_HUB = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
"""An organisation and a model, as Hugging Face writes them."""


def _with_graph(content: Mapping[str, Any], base: Path | None) -> dict[str, Any]:
    """`content` with the file that it names under `graph` in place of its path."""
    named = content.get(GRAPH)
    if not isinstance(named, str):
        return dict(content)
    path = (base or Path()) / named
    if there_is(path) != "file":
        raise InputError(f"model.{GRAPH}: there is no file {str(path)!r:.200}.")
    found = read_mapping(path, listed=GRAPH).mapping
    return {**content, GRAPH: found[GRAPH] if set(found) == {GRAPH} else found}


def _describes(content: Mapping[str, Any]) -> bool:
    """Whether a mapping is a description by widths and no configuration."""
    return "transformer" in content and "model_type" not in content


def _unknown_family(place: str, model: Model, importers: Mapping[str, ModelImporter]) -> InputError:
    """The error for a model no importer accepts: it names the family and lists those there are."""
    family = model.get("model_type") if isinstance(model, dict) else "transformer"
    if isinstance(model, dict) and family is None and _is_exported_program(model):
        return InputError(
            f"{place}: this is an exported program (torch.export), which the plug-in nest-torch reads; install it, or "
            "give an operator graph."
        )
    if isinstance(model, dict) and family is None and {GRAPH, "operators", "layers"} & model.keys():
        return InputError(
            f"{place}: this is no graph that nest reads; give a list of nodes, each with `name`, `op`, `inputs` and "
            f"`shape`, or an operator graph with `operators` and `layers`, in the file or under `{GRAPH}`."
        )
    if not isinstance(family, str):
        return InputError(
            f"{place}: `model_type`, the name of its family, is missing; "
            f"give one of {', '.join(sorted(importers))}, or describe the model by `transformer:`."
        )
    # No nearest name is offered: `qwen3_moe` is no remedy for a model of another family with a similar name.
    return InputError(
        f"{place}: the family {family!r:.60} is not known; nest knows {', '.join(sorted(importers))}. If it is a "
        "transformer, describe it as `model: {transformer: {layers, hidden, ffn, heads, kv_heads, vocab}}`, with "
        "`experts`, `top_k` and `moe_ffn` for a mixture of experts."
    )


def _is_exported_program(model: Mapping[str, Any]) -> bool:
    """Whether a model, or the mapping under its `graph`, holds a list of nodes as `torch.export` names them."""
    inner = model.get(GRAPH)
    rows = [value[0] for value in model.values() if isinstance(value, list) and value]
    return any(isinstance(row, Mapping) and {"name", "op", "inputs", "shape"} <= row.keys() for row in rows) or (
        isinstance(inner, Mapping) and _is_exported_program(inner)
    )
