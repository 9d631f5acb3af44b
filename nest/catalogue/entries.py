"""Entries of the catalogue besides devices."""

from math import hypot
from typing import Any

from attrs import Factory, evolve, field, frozen, validators

from nest.errors import InputError
from nest.graph import Operator, has_axis
from nest.instance import CollectiveLine, EstimateError
from nest.records import Record
from nest.spec.cluster import LevelSpec
from nest.spec.device import Coefficients, DeviceSpec
from nest.spec.training import Training

SINGLE, HALF = 4.0, 2.0
"""Bytes of a single-precision number, and of one of 16 bits (IEEE 754)."""

GRADIENT_BYTES = {"fp32": SINGLE, "bf16": HALF, "fp16": HALF}
"""Bytes per parameter of gradients by the number format of `training.gradients`."""

_SHARE = [validators.gt(0.0), validators.le(1.0)]


@frozen(eq=False, repr=False)
class LinkLine(Record):
    """A library's protocol for collectives on a link (`nest.instance.CollectiveLine`).

    Attributes:
        protocol: its name, for readers.
        kinds: the collectives it runs.
        base: seconds of a call.
        step: seconds of each step.
        efficiency: share of the nominal bandwidth that it reaches.
        own: cost of the share of the buffer that a member need not receive, over a received share's.
        in_switch: the switches reduce.
        members: fewest members with which the library uses it.
    """

    protocol: str
    kinds: tuple[str, ...]
    base: float
    step: float
    efficiency: float = field(validator=_SHARE)
    own: float = 0.0
    in_switch: bool = False
    members: int = 2

    def on(self, bandwidth: float) -> CollectiveLine:
        """Return the protocol on a link of so many nominal bytes per second."""
        return CollectiveLine(
            self.kinds, self.base, self.step, self.efficiency * bandwidth, self.own, self.in_switch, self.members
        )


@frozen(eq=False, repr=False)
class Link(Record):
    """A kind of network link.

    Attributes:
        name: as in a level's `link`.
        efficiency: share of the nominal bandwidth that messages reach, and collectives without `lines`.
        latency: seconds per step of them, end to end.
        bandwidth: nominal bytes per second, per device and direction; None: the level must give it.
        sources: of each figure, or how it was fitted.
        lines: protocols of collectives on it; none: by latency and efficiency alone.
        generations: for a family of links, its members with a bandwidth, which levels of that bandwidth are made of.
        description: one line.
        scale_up: joins the accelerators of a node or a rack directly (NVLink, Infinity Fabric, a TPU's interconnect);
            frameworks overlap tensor parallelism through it piece by piece.
    """

    name: str
    efficiency: float = field(validator=_SHARE)
    latency: float = field(validator=validators.ge(0))
    bandwidth: float | None = field(default=None, validator=validators.optional(validators.gt(0)))
    sources: tuple[str, ...] = ()
    lines: tuple[LinkLine, ...] = ()
    generations: tuple[str, ...] = ()
    description: str = ""
    scale_up: bool = False


@frozen(eq=False, repr=False)
class ClusterEntry(Record):
    """A cluster of the catalogue, its levels innermost first.

    Attributes:
        name: as in a problem's `cluster`.
        description: one line.
        device: name of its device.
        memory: bytes per device, if other than the device's.
        sources: of its figures.
    """

    name: str
    description: str
    device: str
    levels: tuple[LevelSpec, ...]
    memory: float | None = None
    sources: tuple[str, ...] = ()


@frozen(eq=False, repr=False)
class LibraryModel(Record):
    """A named model.

    Attributes:
        name: as in a problem.
        title: the makers' name.
        sources: of its figures.
        config: the keys of its `config.json` that decide its operators.
    """

    name: str
    title: str
    sources: tuple[str, ...]
    config: dict[str, Any]

    @property
    def family(self) -> str:
        """Return its `model_type`."""
        return str(self.config["model_type"])


@frozen(eq=False, repr=False)
class Calibration(Record):
    """Results of measured runs on the devices of one generation (`nest calibrate devices`).

    Attributes:
        name: of the generation, as `generation` of its devices.
        efficiency: shares of roofs by kind of operator, in place of published ones.
        coefficients: terms beside the roofs; their `sustained` is 1.
        sustained: share of each separately measured device, by name; 1 for others.
        sources: the fitted data, and the quality of the fit.
    """

    name: str
    efficiency: dict[str, float]
    coefficients: Coefficients
    sustained: dict[str, float] = field(factory=dict)
    sources: tuple[str, ...] = ()

    def on(self, device: DeviceSpec) -> DeviceSpec:
        """Return `device`, described by published figures, with the calibration."""
        return evolve(
            device,
            efficiency={**device.efficiency, **self.efficiency},
            calibration=evolve(self.coefficients, sustained=self.sustained.get(device.name, 1.0)),
            sources=(*device.sources, *(f"calibration: {source}" for source in self.sources)),
        )


@frozen(eq=False, repr=False)
class Precision(Record):
    """A training precision: bytes per parameter, and the number formats of products.

    Attributes:
        name: as in `training.precision`.
        weights: bytes per parameter of the weights the forward pass reads.
        gradients: bytes per parameter of the accumulated and reduced gradients.
        products: formats of products with weights, preferred first; a device uses the first it has a peak for.
        other: the same for everything else (attention core, vocabulary projection).
        sources: of the figures.
        copies: bytes per parameter of narrow copies kept for products beside weights in 16 bits; 0: products read the
            weights themselves.
        loss_scaling: the loss is scaled up so that small gradients survive, and the step scales them down.
        master_weights: the optimizer keeps a single-precision copy of the weights.
        master_gradients: it keeps one of the gradients.
        weights_once: that copy of the weights is the only one, and `weights` of it are not counted twice.
    """

    name: str
    weights: float = field(validator=validators.gt(0))
    gradients: float = field(validator=validators.gt(0))
    products: tuple[str, ...] = field(validator=validators.min_len(1))
    other: tuple[str, ...] = field(validator=validators.min_len(1))
    sources: tuple[str, ...] = ()
    copies: float = field(default=0.0, validator=validators.ge(0))
    loss_scaling: bool = False
    master_weights: bool = field(default=Factory(lambda self: self.weights < SINGLE, takes_self=True))
    master_gradients: bool = field(default=Factory(lambda self: self.gradients < SINGLE, takes_self=True))
    weights_once: bool = False

    def formats_of(self, operator: Operator) -> tuple[str, ...]:
        """Return the formats of `operator`, preferred first.

        Products with weights run in `products`; the vocabulary projection and all else do not (Transformer Engine
        converts linear layers inside blocks only).
        """
        linear = operator.kind == "matmul" and operator.parameters and not has_axis(operator.space, "vocab")
        return self.products if linear else self.other

    def trained(self, training: Training) -> "Precision":
        """Return the precision with the weights, gradients and copies of `training`.

        Raises:
            InputError: weights in 8 bits without products in them.
        """
        if training.primary_weights is not None and not self.copies:
            raise InputError(
                f"training.primary_weights: training.precision {self.name} has no separate primary weights; leave "
                "it out."
            )
        gradients = self.gradients if training.gradients is None else GRADIENT_BYTES[training.gradients]
        wide = training.primary_weights == "bf16"
        return evolve(
            self,
            weights=HALF + self.copies if wide else self.weights,
            gradients=gradients,
            master_weights=self.master_weights if training.master_weights is None else training.master_weights,
            master_gradients=gradients < SINGLE if training.master_gradients is None else training.master_gradients,
            weights_once=bool(training.weights_once),
        )


@frozen(eq=False, repr=False)
class TimeSpread(Record):
    """Spread of step times around predictions, as standard deviations of the logarithm.

    Attributes:
        between: of the common deviation of a cluster's runs.
        within: of the runs of one cluster around that.
        apart: by how much plans of one task must differ, as a share of the shorter time, for their order to be trusted.
        median: of measured over predicted times.
    """

    between: float = field(validator=validators.gt(0))
    within: float = field(validator=validators.gt(0))
    apart: float = field(validator=validators.gt(0))
    median: float = field(default=1.0, validator=validators.gt(0))

    @property
    def stranger(self) -> EstimateError:
        """Return the error of a time on a cluster without known runs."""
        return EstimateError(self.median, hypot(self.between, self.within))


@frozen(eq=False, repr=False)
class Optimizer(Record):
    """An optimizer of `training.optimizer`.

    Attributes:
        name: as there.
        moments: bytes per parameter of its own state.
        sources: of the figures.
        matrix_moments: those of matrices but embeddings and head (`Operator.trains_matrix`); None: as of all others.
        newton_schulz_steps: on the update of each such matrix.
    """

    name: str
    moments: float = field(validator=validators.ge(0))
    sources: tuple[str, ...] = ()
    matrix_moments: float | None = field(default=None, validator=validators.optional(validators.ge(0)))
    newton_schulz_steps: int = 0

    def state_bytes(self, precision: Precision) -> float:
        """Return the bytes per parameter that ZeRO 1 shards.

        The moments; the single-precision copies of the weights and of the gradients, which the step converts first.
        With Adam that is 12 bytes for 16-bit weights and 32-bit gradients, 16 with 16-bit gradients, 8 in single
        precision (Megatron-LM, docs/source/api-guide/dist_optimizer.md); 12 with 16-bit gradients without a copy (ZeRO,
        arXiv 1910.02054, section 3.1); 10 if the copy of the weights is the only one, so that weights, gradients and
        state take 16 (FSDP, arXiv 2304.11277, section 4.4).
        """
        bytes_kept = self.moments + SINGLE * (precision.master_weights + precision.master_gradients)
        return bytes_kept - precision.weights if precision.weights_once and precision.master_weights else bytes_kept

    def update_bytes(self, precision: Precision) -> float:
        """Return the bytes per parameter a step moves: state read and written, gradients read, weights written.

        Without a single-precision copy the weights are read, too. With loss scaling, a separate pass scales the
        gradients down and looks for overflows (arXiv 1710.03740, section 3.2; Megatron-LM's
        `_unscale_main_grads_and_check_for_nan`).
        """
        moved = 2.0 * self.state_bytes(precision) + precision.gradients + precision.weights
        if not precision.master_weights:
            moved += precision.weights
        if precision.loss_scaling:
            moved += 2.0 * (SINGLE if precision.master_gradients else precision.gradients)
        return moved
