"""Measured layer costs in place of a model: the candidates of PROBLEM.md section 2 as numbers (FORMATS.md)."""

from collections.abc import Iterator

from attrs import field, frozen

from nest.errors import FieldError, FieldErrors
from nest.spec.validators import all_different, at_least, each, every, not_empty
from nest.units import Bytes, Seconds

_EACH_NON_NEGATIVE = each(at_least(0))
_EACH_NON_NEGATIVE_OR_NONE = each(at_least(0), none=True)
_ROWS_NON_NEGATIVE = each(_EACH_NON_NEGATIVE)


@frozen
class ProfileGroup:
    """One named parameter group of a candidate; arrays run over the layers, per device before ZeRO.

    Attributes:
        ranks: device offsets inside a block that hold the same parameters.
        weights: bytes.
        gradients: bytes.
        optimizer: bytes.
        update: seconds of the optimizer step.
    """

    ranks: tuple[int, ...] = field(validator=every(not_empty, all_different, each(at_least(0))))
    weights: tuple[Bytes, ...] = field(validator=_EACH_NON_NEGATIVE)
    gradients: tuple[Bytes, ...] = field(validator=_EACH_NON_NEGATIVE)
    optimizer: tuple[Bytes, ...] = field(validator=_EACH_NON_NEGATIVE)
    update: tuple[Seconds, ...] = field(validator=_EACH_NON_NEGATIVE)


@frozen
class ProfileRecompute:
    """One recompute mode of a candidate; arrays run over the layers.

    Attributes:
        extra: seconds added to the backward pass.
        first: bytes for one in-flight micro-batch; None where the layer cannot run in this mode.
        more: bytes for each further one.
        peak: transient bytes.
        stash_inputs: whether the stage's inputs are kept for each further micro-batch.
        busy: seconds per micro-batch for which the collectives that run again keep a device's port occupied, a row of
            layers for each level of the network, innermost first; None: none run again.
    """

    extra: tuple[Seconds, ...] = field(validator=_EACH_NON_NEGATIVE)
    first: tuple[Bytes | None, ...] = field(validator=_EACH_NON_NEGATIVE_OR_NONE)
    more: tuple[Bytes, ...] = field(validator=_EACH_NON_NEGATIVE)
    peak: tuple[Bytes, ...] = field(validator=_EACH_NON_NEGATIVE)
    stash_inputs: bool = False
    busy: tuple[tuple[Seconds, ...], ...] | None = field(default=None, validator=_ROWS_NON_NEGATIVE)


@frozen
class ProfileCandidate:
    """One candidate; arrays run over the layers, `edge_bytes` over the edges.

    Attributes:
        name: unique among the candidates.
        width: devices that run one stage of one replica.
        samples: samples a block consumes per micro-batch.
        forward: seconds per micro-batch.
        backward: seconds per micro-batch.
        state: parameter groups by name.
        recompute: recompute modes by name.
        edge_bytes: bytes each device of the producer sends along each edge, per micro-batch.
        degrees: strategy degrees by name, for constraints and reports.
        micro_batch: samples per micro-batch of one data-parallel rank, a divisor of `samples`: of a block that holds
            several copies, each with samples of its own, those of one. With it, `dp` in constraints is
            `replicas * samples / micro_batch`; None: `replicas * width / (tp * cp)`.
        busy: seconds per micro-batch for which a layer's collectives keep a device's port occupied, hidden or not: a
            row of layers for each level of the network, innermost first (PROBLEM.md section 4, Ports); None: stages of
            this candidate have no ports.
    """

    name: str
    width: int = field(validator=at_least(1))
    samples: int = field(validator=at_least(1))
    forward: tuple[Seconds, ...] = field(validator=_EACH_NON_NEGATIVE)
    backward: tuple[Seconds, ...] = field(validator=_EACH_NON_NEGATIVE)
    state: dict[str, ProfileGroup]
    recompute: dict[str, ProfileRecompute] = field(validator=not_empty)
    edge_bytes: tuple[Bytes, ...] = field(validator=_EACH_NON_NEGATIVE)
    degrees: dict[str, int] = field(factory=dict, validator=each(at_least(1)))
    micro_batch: int | None = field(default=None, validator=at_least(1))
    busy: tuple[tuple[Seconds, ...], ...] | None = field(default=None, validator=_ROWS_NON_NEGATIVE)


@frozen
class ProfileSpec:
    """Layers, edges between them, and candidates.

    Attributes:
        layers: unique names.
        edges: `(producer, consumer)` layer indices; the edges of one producer carry one tensor,
            which counts once where several of them cross a cut: with the largest of their bytes.
        candidates: at least one.
    """

    layers: tuple[str, ...] = field(validator=every(not_empty, all_different))
    edges: tuple[tuple[int, int], ...]
    candidates: tuple[ProfileCandidate, ...] = field(validator=not_empty)

    def __attrs_post_init__(self) -> None:
        errors = list(self._edge_errors())
        if errors:
            raise FieldErrors(errors)

    def _edge_errors(self) -> Iterator[FieldError]:
        count = len(self.layers)
        for index, edge in enumerate(self.edges):
            for end, layer in enumerate(edge):
                if not 0 <= layer < count:
                    yield FieldError(("edges", index, end), f"is {layer}, but layers run from 0 to {count - 1}")
            if edge[0] == edge[1]:
                yield FieldError(("edges", index), f"goes from layer {edge[0]} to itself")
