"""Collectives on networks whose switches reduce.

Graham et al., Scalable Hierarchical Aggregation and Reduction Protocol (SHARP): A Hardware Architecture for Efficient
Data Reduction, COM-HPC 2016. Members send their buffers up a tree of switches, which add them up on the way; the result
comes down the same tree. A ring passes every byte on from member to member instead.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy

from nest.hooks.protocols import CollectiveModel
from nest.instance import Array, Level

REDUCING_LINKS = frozenset({"nvlink4", "nvlink5", "infiniband-hdr", "infiniband-ndr", "infiniband-xdr"})
"""Links of nest's catalogue whose switches reduce buffers of any size at the speed of the link.

InfiniBand from Quantum (HDR) on: Graham et al., SHARP Streaming-Aggregation Hardware Design and Evaluation, ISC 2020;
switches of the generation before (EDR) reduce short messages only. NVLink from the third NVSwitch on, which came with
NVLink 4: NVIDIA H100 Tensor Core GPU Architecture (2022). `nvlink` and `infiniband` do not say their generation.
"""

WORD = "sharp"
"""In the name of a level: its switches reduce, whatever its link."""

STEPS = {"all_reduce": 2, "reduce_scatter": 1}
"""Latencies of a level paid where its switches reduce: of the way up, and of the way down if all get the result."""

Seconds = TypeVar("Seconds", float, Array)


class Sharp:
    """The default collective model, and per level reductions inside its switches where these are faster."""

    name = "sharp"

    def time(
        self,
        kind: str,
        bytes: float,  # noqa: A002
        shape: Sequence[int],
        levels: Sequence[Level],
        members: int | None = None,
    ) -> float:
        """Seconds that `kind` takes on a set of devices.

        An all-reduce takes, level by level from the innermost, the share that the levels inside have left to each
        member, `n / (members inside)`. Where switches reduce, that share crosses the level's links once each way, both
        at the same time, and pays its latency twice; a ring would send `2 (m - 1)/m` of it and pay `2 (m - 1)`. NCCL
        plans alike: for an all-reduce, and nothing else, it rates NVLink SHARP at twice the bandwidth (NVIDIA/nccl,
        tuning of the algorithm NVLS). A reduce-scatter sends the whole share up, no fewer bytes than the `(m - 1)/m` of
        a ring, but pays the latency once. All other collectives reduce nothing and stay as they are.

        Args:
            kind: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all` or `point_to_point`.
            bytes: the full (unsharded) buffer; for `all_to_all` what each member holds.
            shape: members per level-0 group, level-0 groups per level-1 group, ...
            levels: the network, innermost first, as long as `shape`.
            members: devices in the set; None: as many as the product of `shape`.

        Raises:
            ValueError: the default model knows no such `kind`.
        """
        return _seconds(_default().time, min, kind, bytes, shape, levels, members) if bytes else 0.0

    def times(
        self,
        kind: str,
        bytes: Array,  # noqa: A002
        shape: Sequence[int],
        levels: Sequence[Level],
        members: int | None = None,
    ) -> Array:
        """`time` for an array of `bytes`: seconds, of the same shape."""
        seconds = _seconds(_vectorised(_default()), numpy.minimum, kind, bytes, shape, levels, members)
        return numpy.where(bytes == 0, 0.0, seconds)


def reduces(level: Level) -> bool:
    """Return whether the switches of `level` reduce: by its link, or by the word `sharp` in its name."""
    return level.link in REDUCING_LINKS or WORD in re.split(r"[^a-z0-9]+", level.name.lower())


Price = Callable[[str, Seconds, Sequence[int], Sequence[Level], int | None], Seconds]


def _seconds(
    price: Price[Seconds],
    smaller: Callable[[Seconds, Seconds], Seconds],
    kind: str,
    size: Seconds,
    shape: Sequence[int],
    levels: Sequence[Level],
    members: int | None,
) -> Seconds:
    """The cheaper of the default and of going level by level, each in its switches or as by default."""
    usual = price(kind, size, shape, levels, members)
    met = [(index, level) for index, level in enumerate(levels) if shape[index] > 1]
    if kind not in STEPS or not any(reduces(level) for _, level in met):
        return usual
    total = 0.0 * size
    inside = 1
    for index, level in met:
        share = size / inside
        alone = [count if other == index else 1 for other, count in enumerate(shape)]
        seconds = price(kind, share, alone, levels, shape[index])
        if reduces(level):
            seconds = smaller(seconds, STEPS[kind] * level.latency + share / level.bandwidth)
        total = total + seconds
        inside *= shape[index]
    return smaller(usual, total)


def _default() -> CollectiveModel:
    """The collective model used where a problem names none."""
    from nest.hooks.registry import registry

    return next(iter(registry().collective_models().values()))


def _vectorised(model: CollectiveModel) -> Price[Array]:
    """A model's `times`, which it may lack."""
    offered: Any = getattr(model, "times", None)
    if offered is not None:
        return lambda *asked: numpy.asarray(offered(*asked))
    return lambda kind, sizes, *where: numpy.array(
        [model.time(kind, float(size), *where) for size in sizes.flat]
    ).reshape(sizes.shape)
