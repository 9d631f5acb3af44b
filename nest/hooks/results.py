"""What the objects of plug-ins may return, by kind and member: each check returns the value, or says what is wrong."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from numbers import Integral, Real
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, NoReturn

import numpy

from nest.deployment import MEGATRON_ORDER, FlagsRead, Limits
from nest.graph import Block, OperatorGraph
from nest.hooks import protocols
from nest.hooks.graph_results import sound_block, sound_graph
from nest.hooks.guard import KINDS, Nonsense
from nest.hooks.network_results import sound_network
from nest.hooks.planning import Proposal, sound_proposal
from nest.hooks.protocols import OperatorCost
from nest.instance import Array, Cluster, Instance, Level
from nest.instance.pairs import Pairs
from nest.instance.protocols import PASSES, Pass
from nest.network.graph import LinkGraph
from nest.network.imported import Imported
from nest.spec import StackDefaults
from nest.tolerances import AGREEMENT
from nest.units import LARGEST

MOST_COMPARED = 4096
"""Sizes of one call for the times of collectives that are compared with each other."""


def whole(value: Any, what: str, most: float = LARGEST) -> int:
    """`value`, a whole number from 1 to `most`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= most:
        raise Nonsense(f"{what} is {_shown(value)}, no whole number from 1 to {most:g}")
    return int(value)


def amount(value: Any, what: str) -> float:
    """`value`, a number from 0 to `LARGEST`."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= LARGEST:
        raise Nonsense(f"{what} is {_shown(value)}, no number from 0 to {LARGEST:g}")
    return float(value)


def truth(value: Any, *_: Any, **__: Any) -> bool:
    """`value`, true or false."""
    if not isinstance(value, (bool, numpy.bool_)):
        raise Nonsense(f"{_shown(value)} is neither true nor false")
    return bool(value)


def _names(found: Any) -> tuple[str, ...]:
    names = tuple(found)
    if isinstance(found, str) or not all(isinstance(name, str) for name in names):
        raise Nonsense(f"{_shown(found)} is no sequence of names")
    return names


def _word(found: Any) -> str:
    if not isinstance(found, str):
        raise Nonsense(f"{_shown(found)} is no name")
    return found


def _degrees(found: Any, block: Block, context: Any) -> tuple[int, ...]:
    if not isinstance(found, Sequence) or isinstance(found, (str, bytes)):
        raise Nonsense(f"{_shown(found)} is no sequence of degrees")
    return tuple(whole(degree, "a degree") for degree in found)


def _operator_cost(found: Any, *_: Any, **__: Any) -> OperatorCost:
    if not isinstance(found, OperatorCost):
        raise Nonsense(f"{_shown(found)} is no OperatorCost")
    names = ("forward", "backward", "update", "saved", "transient", "host")
    return OperatorCost(**{name: amount(getattr(found, name), name) for name in names})


def _seconds(found: Any, *_: Any, **__: Any) -> float:
    return amount(found, "the time")


def _times(found: Any, kind: str, sizes: Array, *_: Any, **__: Any) -> Array:
    times = numpy.asarray(found)
    if times.shape != sizes.shape or times.dtype.kind not in "fiu":
        raise Nonsense(f"{_shown(found)} is no array of {len(sizes)} times")
    good = (times >= 0) & (times <= LARGEST)
    if not good.all():
        amount(times[~good][0].item(), "a time")
    _require_rising(sizes, times)
    return times.astype(numpy.float64)


def _require_rising(sizes: Array, times: Array) -> None:
    """That no more bytes take less time, of some of the sizes where they are many (docs/explanation/proofs.md)."""
    some = slice(None, None, -(-len(sizes) // MOST_COMPARED) or 1)
    order = sizes[some].argsort(kind="stable")
    less, more = sizes[some][order], times[some][order]
    longest = numpy.maximum.accumulate(more)
    falling = numpy.flatnonzero(more < longest * (1 - AGREEMENT))
    if len(falling):
        place = int(falling[0])
        before = int(longest[: place + 1].argmax())
        _falls((float(less[before]), float(more[before])), (float(less[place]), float(more[place])))


def _falls(less: tuple[float, float], more: tuple[float, float]) -> NoReturn:
    raise Nonsense(f"{more[0]:g} bytes take {more[1]:g} s, and {less[0]:g} bytes {less[1]:g} s")


class _Rising:
    """Checks the time of one collective, and that no more bytes take less than in the call before of its kind."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[float, float]] = {}

    def __call__(
        self,
        found: Any,
        kind: str,
        bytes: float,  # noqa: A002
        shape: Sequence[int],
        levels: Sequence[Level],
        members: int | None = None,
    ) -> float:
        key, now = (kind, tuple(shape), tuple(levels), members), (float(bytes), _seconds(found))
        less, more = sorted((self._last.get(key, now), now))
        if more[1] < less[1] * (1 - AGREEMENT):
            _falls(less, more)
        self._last[key] = now
        return now[1]


def _schedule(found: Any, *_: Any, **__: Any) -> Any:
    if not isinstance(found, protocols.Schedule):
        raise Nonsense(f"{_shown(found)} is no schedule")
    return found


def _weights(found: Any, micro_batches: int, stages: int) -> tuple[float, float]:
    if not isinstance(found, Sequence) or isinstance(found, (str, bytes)) or len(found) != 2:
        raise Nonsense(f"{_shown(found)} is no pair of weights")
    return amount(found[0], "a weight"), amount(found[1], "a weight")


def _in_flight(found: Any, stage: int, stages: int, micro_batches: int) -> float:
    if isinstance(found, bool) or not isinstance(found, Real) or not 1 <= found <= micro_batches:  # type: ignore[operator]
        raise Nonsense(f"{_shown(found)} micro-batches are in flight; there are {micro_batches}")
    return int(found) if isinstance(found, Integral) else float(found)


def _order(found: Any, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
    if not isinstance(found, Sequence) or isinstance(found, (str, bytes)):
        raise Nonsense(f"{_shown(found)} is no sequence of passes")
    for each in found:
        if not isinstance(each, Pass) or each.kind not in PASSES:
            raise Nonsense(f"{_shown(each)} is no pass of a kind there is ({', '.join(PASSES)})")
        numbers: list[tuple[Any, str]] = [(each.micro_batch, "the micro-batch"), (each.chunk, "the chunk")]
        for number, what in numbers:
            if isinstance(number, bool) or not isinstance(number, Integral) or number < 0:
                raise Nonsense(f"{what} of a pass is {_shown(number)}, no whole number from 0")
    return tuple(found)


def _model(found: Any, *_: Any, **__: Any) -> OperatorGraph:
    return sound_graph(found)


def _network(found: Any, *_: Any, **__: Any) -> Cluster | LinkGraph | Pairs | Imported:
    return sound_network(found)


def _files(found: Any, *_: Any, **__: Any) -> dict[str, str]:
    if not isinstance(found, Mapping):
        raise Nonsense(f"{_shown(found)} is no mapping of file names to contents")
    for name, text in found.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise Nonsense(f"{_shown(name)} is not the name of a file with its text")
        for path in (PurePosixPath(name), PureWindowsPath(name)):
            if not path.name or path.anchor or ".." in path.parts:
                raise Nonsense(f"{_shown(name)} is not the name of a file inside a folder")
    return dict(found)


def _rank_order(found: Any, *_: Any, **__: Any) -> tuple[str, ...]:
    if sorted(names := _names(found)) != sorted(MEGATRON_ORDER):
        raise Nonsense(f"{_shown(found)} is no permutation of {', '.join(MEGATRON_ORDER)}")
    return names


def _flags_read(found: Any, *_: Any, **__: Any) -> FlagsRead:
    if not isinstance(found, FlagsRead):
        raise Nonsense(f"{_shown(found)} is not nest.deployment.FlagsRead")
    return found


def _proposal(found: Any, instance: Instance, context: Any) -> Proposal:
    return sound_proposal(found, instance)


def _limits(found: Any, *_: Any, **__: Any) -> Limits:
    if not isinstance(found, Limits):
        raise Nonsense(f"{_shown(found)} is no Limits")
    return found


def _stack_defaults(found: Any, *_: Any, **__: Any) -> StackDefaults:
    if not isinstance(found, StackDefaults):
        raise Nonsense(f"{_shown(found)} is no StackDefaults")
    return found


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


CHECKS: dict[tuple[str, str], Callable[..., Any]] = {
    ("strategies", "degrees"): _degrees,
    ("strategies", "after"): _names,
    ("strategies", "by_default"): truth,
    ("strategies", "follows"): _word,
    ("strategies", "searched"): _degrees,
    ("model_importers", "accepts"): truth,
    ("model_importers", "load"): _model,
    ("topology_importers", "accepts"): truth,
    ("topology_importers", "load"): _network,
    ("cost_models", "price"): _operator_cost,
    ("collective_models", "time"): _Rising,
    ("collective_models", "times"): _times,
    ("layer_times", "seconds"): _seconds,
    ("schedules", "chunks"): partial(whole, what="the number of chunks"),
    ("schedules", "with_chunks"): _schedule,
    ("schedules", "weights"): _weights,
    ("schedules", "in_flight"): _in_flight,
    ("schedules", "order"): _order,
    ("schedules", "staggered"): truth,
    ("planners", "summary"): _word,
    ("planners", "plan"): _proposal,
    ("exporters", "summary"): _word,
    ("exporters", "limits"): _limits,
    ("exporters", "rank_order"): _rank_order,
    ("exporters", "read"): _flags_read,
    ("exporters", "export"): _files,
    ("stacks", "description"): _word,
    ("stacks", "version"): _word,
    ("stacks", "targets"): _names,
    ("stacks", "sources"): _names,
    ("stacks", "pipeline_overlap"): _names,
    ("stacks", "training"): _stack_defaults,
}
"""Each takes what was returned and what the member was given; attributes are given nothing.

What is not listed, such as a member that newer versions of nest ask for, is used as it is.
"""


def members_of(kind: str) -> tuple[str, ...]:
    """Members that an object of `kind` has or may have."""
    protocol = getattr(protocols, KINDS[kind])
    needed = [name for name in vars(protocol) if not name.startswith("_")]
    return tuple(dict.fromkeys([*needed, *(member for of, member in CHECKS if of == kind)]))


def check_of(kind: str, name: str, member: str) -> Callable[..., Any] | None:
    """The check of a member of the object of `kind` called `name`; None: there is none."""
    if (kind, member) == ("strategies", "apply"):
        return partial(_applied, name)
    check = CHECKS.get((kind, member))
    return check() if check is _Rising else check


def _applied(name: str, found: Any, block: Block, degree: int, context: Any) -> Block:
    return sound_block(found, name, block, degree)
