"""What the catalogue holds beside devices."""

from attrs import field, frozen, validators

from nest.spec import LevelSpec

_SHARE = [validators.gt(0.0), validators.le(1.0)]


@frozen
class Link:
    """A kind of network link.

    Attributes:
        name: as a level's `link` names it.
        efficiency: share of the nominal bandwidth that collectives reach.
        latency: seconds per step of a collective, end to end.
        bandwidth: nominal bytes per second, per device and direction; None: the level must give it.
        sources: where each figure was read, or how it was fitted.
    """

    name: str
    efficiency: float = field(validator=_SHARE)
    latency: float = field(validator=validators.ge(0))
    bandwidth: float | None = field(default=None, validator=validators.optional(validators.gt(0)))
    sources: tuple[str, ...] = ()


@frozen
class ClusterEntry:
    """A cluster of the catalogue.

    Attributes:
        name: as `cluster` in a problem names it.
        description: one line.
        device: name of its device.
        levels: innermost first.
        memory: bytes per device where the cluster's differ from the device's.
        sources: where its figures were read.
    """

    name: str
    description: str
    device: str
    levels: tuple[LevelSpec, ...]
    memory: float | None = None
    sources: tuple[str, ...] = ()


@frozen
class Precision:
    """A training precision: bytes per parameter, and the number formats products are computed in.

    Attributes:
        name: as `training.precision` names it.
        weights: bytes per parameter of the weights the forward pass reads.
        gradients: bytes per parameter of the gradients that are accumulated and reduced.
        products: formats of products with weights, preferred first; a device computes in the first it has a
            peak for.
        other: the same for everything else (attention core, vocabulary projection).
        sources: where the figures were read.
    """

    name: str
    weights: float = field(validator=validators.gt(0))
    gradients: float = field(validator=validators.gt(0))
    products: tuple[str, ...] = field(validator=validators.min_len(1))
    other: tuple[str, ...] = field(validator=validators.min_len(1))
    sources: tuple[str, ...] = ()


@frozen
class Optimizer:
    """An optimizer by the state it keeps.

    Attributes:
        name: as `training.optimizer` names it.
        moments: bytes per parameter of its own state, in single precision.
        sources: where the figure was read.
    """

    name: str
    moments: float = field(validator=validators.ge(0))
    sources: tuple[str, ...] = ()

    def state_bytes(self, precision: Precision) -> float:
        """Bytes per parameter that ZeRO 1 shards.

        The moments; a single-precision copy of weights that are narrower; and one of gradients that are
        narrower, which the step converts first. With Adam that is 12 bytes for 16-bit weights and 32-bit
        gradients, 16 with 16-bit gradients, 8 in single precision (Megatron-LM,
        docs/source/api-guide/dist_optimizer.md).
        """
        copies = (precision.weights < SINGLE) + (precision.gradients < SINGLE)
        return self.moments + SINGLE * copies

    def update_bytes(self, precision: Precision) -> float:
        """Bytes per parameter a step moves: state read and written, gradients read, weights written."""
        return 2.0 * self.state_bytes(precision) + precision.gradients + precision.weights


SINGLE = 4.0
"""Bytes of a single-precision number (IEEE 754)."""
