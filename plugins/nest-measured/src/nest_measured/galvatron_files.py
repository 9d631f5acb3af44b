"""Reading the files Galvatron's profilers write (PKU-DAIR/Hetu-Galvatron, `galvatron/core/profiler`).

Each is one JSON object, whose keys say what it holds. Times are milliseconds, sizes are MiB.
"""

import json
import re
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from attrs import field, frozen

from nest.errors import InputError

TIME = re.compile(r"layertype_(\d+|other)_bsz(\d+)_seq(\d+)")
"""Forward time of a layer, or of all else, per sample, in a batch of so many."""

MEMORY = re.compile(r"(layertype_\d+|other_memory_pp_on_(?:first|last))(_sp)?")
"""Memory of a layer, or of the first or last stage beside its layers; `_sp`: with sequence parallelism."""

MESSAGE = re.compile(r"allreduce_size_(\d+)_(\d+)MB_time")
"""Time of an all-reduce of so many MiB among so many ranks."""

BANDWIDTH = re.compile(r"allreduce_size_(\d+)_consec_1")
"""Bus bandwidth of an all-reduce among neighbouring ranks, GB/s."""

MILLISECOND = 1e-3
MEBIBYTE = 2.0**20


@frozen
class Memory:
    """Memory of the layers of one model for one sequence length, with or without sequence parallelism.

    Attributes:
        parameters: of a layer in fp32, bytes.
        activations: bytes kept for a sample of a layer, by tensor-parallel degree.
        checkpoint: bytes kept for a sample of a layer that is run again, on one rank; None: not profiled.
        ends: for the embedding and the head, by tensor-parallel degree, bytes of model states and of a sample's
            activations.
    """

    parameters: float
    activations: Mapping[int, float]
    checkpoint: float | None
    ends: tuple[Mapping[int, tuple[float, float]], Mapping[int, tuple[float, float]]]


@frozen
class Profiles:
    """Contents of a set of files.

    Attributes:
        layer: seconds per sample of a layer's forward pass, by `(samples, tokens)`.
        other: the same of embedding and head together.
        memory: by `(tokens, whether sequence parallelism is on)`.
        messages: by ranks, `(bytes, seconds)` of an all-reduce, ascending.
        bandwidths: by ranks, bus bandwidth of an all-reduce, in MiB per millisecond.
        unused: files that held nothing of these.
    """

    layer: dict[tuple[int, int], float] = field(factory=dict)
    other: dict[tuple[int, int], float] = field(factory=dict)
    memory: dict[tuple[int, bool], Memory] = field(factory=dict)
    messages: dict[int, tuple[tuple[float, float], ...]] = field(factory=dict)
    bandwidths: dict[int, float] = field(factory=dict)
    unused: tuple[Path, ...] = ()


def read_profiles(files: Iterable[Path]) -> Profiles:
    """Read files into one set.

    Raises:
        InputError: a file cannot be read, is broken, or repeats with other numbers what another says.
    """
    found = Profiles()
    unused = []
    for path in files:
        content = _read(path)
        try:
            used = [_add_times(found, content), _add_memory(found, content), _add_network(found, content)]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            told = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
            raise InputError(f"{path}: this is no profile of Galvatron: {told}.") from None
        if not any(used):
            unused.append(path)
    return Profiles(found.layer, found.other, found.memory, found.messages, found.bandwidths, tuple(unused))


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read as JSON: {getattr(error, 'strerror', None) or error}.") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: a profile of Galvatron is one JSON object.")
    return content


def _number(value: Any, name: str) -> float:
    """A number that is finite and not negative."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value) or value < 0:
        raise ValueError(f"{name} must be a number of at least 0, is {value!r:.40}")
    return float(value)


def _put(place: dict[Any, float], key: Any, value: float, name: str) -> None:
    if place.setdefault(key, value) != value:
        raise ValueError(f"{name} is given twice, with different numbers; leave one of the files out")


def _add_times(found: Profiles, content: Mapping[str, Any]) -> bool:
    matches = [(match, name) for name in content if (match := TIME.fullmatch(name))]
    kinds = {match[1] for match, _ in matches} - {"other"}
    if len(kinds) > 1:
        raise ValueError(f"it has {len(kinds)} kinds of layer; models of one kind of layer can be imported")
    for match, name in matches:
        place = found.other if match[1] == "other" else found.layer
        _put(place, (int(match[2]), int(match[3])), _number(content[name], name) * MILLISECOND, name)
    return bool(matches)


def _add_memory(found: Profiles, content: Mapping[str, Any]) -> bool:
    matches = [match for name in content if (match := MEMORY.fullmatch(name))]
    for suffix in sorted({match[2] or "" for match in matches}):
        if f"layertype_1{suffix}" in content:
            raise ValueError("it has several kinds of layer; models of one kind of layer can be imported")
        for tokens, layer in content[f"layertype_0{suffix}"].items():
            activations = {
                degree: _number(size, degree) * MEBIBYTE for degree, size in layer["tp_activation_per_bsz_dict"].items()
            }
            first, last = (_end(content[f"other_memory_pp_on_{end}{suffix}"][tokens]) for end in ("first", "last"))
            memory = Memory(
                parameters=_number(layer["parameter_size"], "parameter_size") * MEBIBYTE,
                activations={int(degree): size for degree, size in activations.items() if degree.isdecimal()},
                checkpoint=activations.get("checkpoint"),
                ends=(first, last),
            )
            if found.memory.setdefault((int(tokens), bool(suffix)), memory) != memory:
                raise ValueError(f"layertype_0{suffix} is given twice, with different numbers")
    return bool(matches)


def _end(content: Mapping[str, Any]) -> dict[int, tuple[float, float]]:
    states, kept = content["model_states"], content["activation"]
    return {
        int(degree): (_number(states[degree], degree) * MEBIBYTE, _number(kept[degree], degree) * MEBIBYTE)
        for degree in states
        if degree in kept
    }


def _add_network(found: Profiles, content: Mapping[str, Any]) -> bool:
    messages: dict[int, dict[float, float]] = {}
    used = False
    for name, value in content.items():
        if match := MESSAGE.fullmatch(name):
            messages.setdefault(int(match[1]), {})[int(match[2]) * MEBIBYTE] = _number(value, name) * MILLISECOND
        elif match := BANDWIDTH.fullmatch(name):
            if not _number(value, name):
                raise ValueError(f"{name} is 0")
            _put(found.bandwidths, int(match[1]), float(value), name)
            used = True
    for ranks, times in messages.items():
        if found.messages.setdefault(ranks, tuple(sorted(times.items()))) != tuple(sorted(times.items())):
            raise ValueError(f"the times of all-reduces among {ranks} ranks are given twice, with different numbers")
    return used or bool(messages)
