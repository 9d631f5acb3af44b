"""What an instance asks of collective models, which plug-ins provide and solvers only call."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy

from nest.instance.candidate import Array
from nest.instance.cluster import Level


@runtime_checkable
class CollectiveModel(Protocol):
    """Prices collectives (PROBLEM.md section 1).

    No model is called with zero bytes, which cost nothing. Methods of plug-ins may lack the parameter `members`.

    Optional:
        times: `times(kind, bytes, shape, levels, members=None)`, `time` for an array of `bytes`: seconds, of the same
            shape. Searches are faster with it.
        by_level: `by_level(kind, bytes, shape, levels, members=None)`, for an array of `bytes` the seconds for which a
            member's port at each level is occupied, of shape `(levels, *bytes.shape)`; at no level more than `time`.
            Of a model without it the outermost level of the set is occupied all the time (`port_seconds`).
        per_byte: `per_byte(kind, shape, levels, members=None)`, seconds that each byte takes at least: no number of
            bytes takes less than so many times that. Searches are faster with it.
    """

    @property
    def name(self) -> str:
        """Unique among its kind; what people write to choose it."""

    def time(
        self,
        kind: str,
        bytes: float,  # noqa: A002
        shape: Sequence[int],
        levels: Sequence[Level],
        members: int | None = None,
    ) -> float:
        """Seconds that `kind` takes on a set of devices.

        Args:
            kind: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all` or `point_to_point`.
            bytes: the full (unsharded) buffer; for `all_to_all` what each member holds.
            shape: members per level-0 group, level-0 groups per level-1 group, ...
            levels: the network, innermost first, as long as `shape`.
            members: devices in the set, fewer than the product of `shape` where it is uneven; None: as many as that.
        """


def port_seconds(
    model: CollectiveModel, kind: str, sizes: Array, shape: Sequence[int], levels: Sequence[Level], members: int
) -> Array:
    """Seconds for which one collective occupies a device's port at each level (PROBLEM.md section 4, Ports).

    Args:
        model: the collective model.
        kind: as `CollectiveModel.time`.
        sizes: bytes, of any shape; no bytes take none.
        shape: as `CollectiveModel.time`.
        levels: the network, innermost first.
        members: devices in the set.

    Returns: shape `(levels, *sizes.shape)`.
    """
    seconds = numpy.zeros((len(levels), *sizes.shape))
    some = sizes > 0
    if members == 1 or not some.any():
        return seconds
    by_level = getattr(model, "by_level", None)
    if by_level is not None:
        seconds[:, some] = by_level(kind, sizes[some], shape, levels, members=members)
        return seconds
    outermost = max(level for level, count in enumerate(shape) if count > 1)
    price = model.time
    seconds[outermost, some] = [price(kind, float(size), shape, levels, members=members) for size in sizes[some]]
    return seconds
