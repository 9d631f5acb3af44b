"""Candidates: sub-graph strategies as solvers see them (PROBLEM.md section 2)."""

from collections.abc import Sequence

import numpy
from attrs import field, frozen, validators
from attrs.converters import optional
from numpy.typing import NDArray

from nest.errors import InputError
from nest.reuse import once
from nest.tolerances import SUM_ERROR
from nest.units import LARGEST

Array = NDArray[numpy.float64]


def read_only(values: Sequence[float] | Sequence[Sequence[float]] | Array) -> Array:
    """Convert `values` to a read-only float64 array."""
    array = numpy.array(values, dtype=numpy.float64)
    array.setflags(write=False)
    return array


@frozen(eq=False)
class ParameterGroup:
    """Parameters whose gradients are reduced over the same ranks; arrays of shape `(layers,)`.

    Attributes:
        name: `dense`, `expert`, ...
        ranks: device offsets inside a block with equal parameters; with the replicas, the group that reduces gradients
            and over which ZeRO shards.
        weights: bytes per device before ZeRO.
        gradients: bytes per device before ZeRO.
        optimizer: bytes per device before ZeRO.
        update: seconds of the optimizer step before ZeRO.
        pieces: calls that gather a layer's weights, and scatter its gradients, if ZeRO does so in every micro-batch; a
            stage makes their sum, each of an equal part. None: one call for the whole stage.
    """

    name: str
    ranks: tuple[int, ...]
    weights: Array = field(converter=read_only, repr=False)
    gradients: Array = field(converter=read_only, repr=False)
    optimizer: Array = field(converter=read_only, repr=False)
    update: Array = field(converter=read_only, repr=False)
    pieces: Array | None = field(default=None, converter=optional(read_only), repr=False)


@frozen(eq=False)
class Overheads:
    """Bytes of a recompute mode that belong to no tensor of an operator; for reports only, as the mode includes them.

    Attributes:
        fragmentation: unused share of `more`.
        framework: bytes of each layer's `peak` held by driver and libraries.
        buffers: bytes of `peak` used by communication, shape `(layers,)`; None: none.
    """

    fragmentation: float = 0.0
    framework: float = 0.0
    buffers: Array | None = field(default=None, converter=optional(read_only), repr=False)


@frozen(eq=False)
class RecomputeMode:
    """Cost and memory of one recompute mode; arrays of shape `(layers,)`.

    Attributes:
        name: `none`, `selective`, `full`, ...
        extra: seconds added to the backward pass per micro-batch.
        first: bytes for one micro-batch in flight; infinite if the layer cannot run in this mode.
        more: bytes for each further one.
        peak: transient bytes; a stage takes the largest of its layers.
        stash_inputs: a stage keeps its inputs for each further micro-batch.
        overheads: bytes of these that belong to no tensor of an operator.
        busy: seconds per micro-batch that recomputed collectives occupy a device's port at each level, shape `(levels,
            layers)`, on top of the candidate's `busy`; None: none are recomputed.
    """

    name: str
    extra: Array = field(converter=read_only, repr=False)
    first: Array = field(converter=read_only, repr=False)
    more: Array = field(converter=read_only, repr=False)
    peak: Array = field(converter=read_only, repr=False)
    stash_inputs: bool = False
    overheads: Overheads = Overheads()
    busy: Array | None = field(default=None, converter=optional(read_only), repr=False)


@frozen(eq=False)
class Candidate:
    """One combination of strategies, degrees and micro-batch size, in numbers.

    Attributes:
        name: unique in the instance.
        degrees: strategy degrees, for constraints and reports only.
        width: devices of one stage of one replica (`g`).
        samples: samples of a block per micro-batch (`m`).
        forward: seconds per micro-batch, shape `(layers,)`.
        backward: seconds per micro-batch, shape `(layers,)`.
        state: parameter groups.
        recompute: recompute modes.
        tensor_bytes: bytes each device of the producer sends of each tensor of the layer graph, shape `(tensors,)`.
        micro_batch: samples per micro-batch of one data-parallel rank. A block with several copies of the attention
            part has as many times more `samples`; others have equal numbers. None: not in a profile; counts as
            `samples`.
        gathered: bytes of a stage with ZeRO 3 besides its state and mode: weights held whole for the running layers.
            Not in PROBLEM.md, so 0 for profiles.
        busy: seconds per micro-batch that a layer's collectives, hidden or not, occupy a device's port at each level,
            shape `(levels, layers)` (PROBLEM.md section 4, Ports); None: its stages have no ports.
        weight_gradients: seconds per micro-batch of `backward` for weight gradients, for which no other stage waits,
            shape `(layers,)`: at most half of it, as schedules fill with them what input gradients leave. None: half of
            `backward`, as a matrix product takes as many FLOP for either gradient (arXiv 2401.10241, table 1, except
            for the attention core).
        collectives: seconds per micro-batch, of `forward` and `backward` together, added by collectives inside a layer,
            shape `(layers,)`; for reports only. None: layers were measured whole.
        pool: name of the pool of its stages; None: the cluster has no pools.

    Raises:
        InputError: an array has the wrong length, a number that is negative, not finite (except for `first`) or above
            1e30, or a mode has `busy` though the candidate has none.
    """

    name: str
    degrees: dict[str, int]
    width: int
    samples: int
    forward: Array = field(converter=read_only, repr=False)
    backward: Array = field(converter=read_only, repr=False)
    state: tuple[ParameterGroup, ...]
    recompute: tuple[RecomputeMode, ...]
    tensor_bytes: Array = field(converter=read_only, repr=False)
    micro_batch: int | None = None
    gathered: float = field(default=0.0, validator=[validators.ge(0), validators.le(LARGEST)])
    busy: Array | None = field(default=None, converter=optional(read_only), repr=False)
    collectives: Array | None = field(default=None, converter=optional(read_only), repr=False)
    weight_gradients: Array | None = field(default=None, converter=optional(read_only), repr=False)
    pool: str | None = None
    _bounds: dict[tuple[str, str], RecomputeMode] = field(factory=dict, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if self.width < 1 or self.samples < 1:
            raise InputError(f"candidate {self.name!r}: width and samples must be at least 1.")
        if not self.recompute:
            raise InputError(f"candidate {self.name!r} has no recompute mode.")
        layers = len(self.forward)
        self._check_busy(layers)
        self._check_weight_gradients(layers)
        if self._sound(layers):
            return
        for place, array in self.arrays():
            expected = len(self.tensor_bytes) if place == "tensor_bytes" else layers
            if array.shape != (expected,):
                raise InputError(f"candidate {self.name!r}: {place} has {array.size} numbers for {expected} layers.")
            finite = array[array != numpy.inf] if place.endswith(".first") else array
            if not numpy.isfinite(finite).all() or (array < 0).any():
                raise InputError(f"candidate {self.name!r}: {place} has a number that is negative or not finite.")
            if (finite > LARGEST).any():
                raise InputError(f"candidate {self.name!r}: {place} has a number above {LARGEST:g}.")

    @property
    def split(self) -> tuple[object, ...]:
        """Key of the split of stages: equal across pools if a framework splits all stages alike."""
        degrees = tuple(sorted((name, degree) for name, degree in self.degrees.items() if degree > 1))
        return degrees, self.width, self.samples, self.micro_batch

    def _check_weight_gradients(self, layers: int) -> None:
        row = self.weight_gradients
        if row is None:
            return
        if row.shape != (layers,) or not (row >= 0).all():
            raise InputError(
                f"candidate {self.name!r}: weight_gradients must have a number from 0 for each of {layers} layers."
            )
        most = self.backward / 2
        if (row > most * (1 + SUM_ERROR)).any():
            layer = int((row - most).argmax())
            raise InputError(
                f"candidate {self.name!r}: weight_gradients[{layer}] is {row[layer]:g} s, more than half of "
                "`backward`; weight gradients may not take longer than input gradients."
            )

    @property
    def finding_weight_gradients(self) -> Array:
        """Seconds per micro-batch for weight gradients, a part of `backward`. Shape `(layers,)`."""
        return self.backward / 2 if self.weight_gradients is None else self.weight_gradients

    def _check_busy(self, layers: int) -> None:
        levels = None if self.busy is None else len(self.busy)
        rows = {"busy": self.busy} | {f"recompute.{mode.name}.busy": mode.busy for mode in self.recompute}
        for place, array in rows.items():
            if array is None:
                continue
            if levels is None:
                raise InputError(f"candidate {self.name!r}: {place} is given, but the candidate itself has no busy.")
            if array.shape != (levels, layers):
                raise InputError(
                    f"candidate {self.name!r}: {place} must have a row for each level and in it a number for each of "
                    f"{layers} layers."
                )
            if not ((array >= 0) & (array <= LARGEST)).all():
                raise InputError(f"candidate {self.name!r}: {place} has a number below 0 or above {LARGEST:g}.")

    def _sound(self, layers: int) -> bool:
        """Quick check of every array; details on faults need another pass."""
        arrays = [array for _, array in self.arrays()]
        shapes = [(len(self.tensor_bytes),) if array is self.tensor_bytes else (layers,) for array in arrays]
        if any(array.shape != shape for array, shape in zip(arrays, shapes, strict=True)):
            return False
        numbers = numpy.concatenate(arrays)
        return bool(numbers.min(initial=0.0) >= 0.0 and numbers.max(initial=0.0) <= LARGEST)

    def arrays(self) -> list[tuple[str, Array]]:
        """Every array with its place, `forward`, `state.dense.weights`, ..."""
        of_layers = [("forward", self.forward), ("backward", self.backward), ("tensor_bytes", self.tensor_bytes)]
        of_state = ("weights", "gradients", "optimizer", "update", "pieces")
        state = [(f"state.{group.name}.{name}", getattr(group, name)) for group in self.state for name in of_state]
        of_modes = ("extra", "first", "more", "peak")
        modes = [(f"recompute.{mode.name}.{name}", getattr(mode, name)) for mode in self.recompute for name in of_modes]
        return [(place, array) for place, array in (*of_layers, *state, *modes) if array is not None]

    def mode(self, name: str) -> RecomputeMode:
        """Recompute mode of that name.

        For a partial mode (`nest.instance.recompute.Partial`), the least cost and memory of each layer.

        Raises:
            KeyError: there is none.
        """
        for mode in self.recompute:
            if mode.name == name:
                return mode
        first, _, rest = name.split(":") if name.count(":") == 2 else (name, "", "")
        if not rest:
            raise KeyError(name)
        return once(self._bounds, (first, rest), lambda: _at_least(name, self.mode(first), self.mode(rest)))


def _at_least(name: str, one: RecomputeMode, other: RecomputeMode) -> RecomputeMode:
    """Least cost and memory of layers over two modes."""
    extra, first, more, peak = (
        numpy.minimum(getattr(one, row), getattr(other, row)) for row in ("extra", "first", "more", "peak")
    )
    busy = None if one.busy is None or other.busy is None else numpy.minimum(one.busy, other.busy)
    return RecomputeMode(name, extra, first, more, peak, one.stash_inputs and other.stash_inputs, busy=busy)
