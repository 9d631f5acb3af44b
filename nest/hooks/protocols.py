"""What the objects that plug-ins return must offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from attrs import frozen

from nest.instance.network import CollectiveModel
from nest.instance.schedule import ChunkedSchedule, OrderedSchedule, Pass, Schedule, moments_of_order, numbered
from nest.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from nest.deployment.deployment import Reading
    from nest.graph import Block, Operator, OperatorGraph
    from nest.hooks.planning import PlannerContext, Proposal
    from nest.instance import Instance
    from nest.instance.cluster import Cluster
    from nest.instance.pairs import Pairs
    from nest.network.graph import LinkGraph
    from nest.network.imported import Imported
    from nest.spec import DeviceSpec, LinkProfile, PlanDocument, StackDefaults, Training

__all__ = [
    "ChunkedSchedule",
    "CollectiveModel",
    "CostModel",
    "Engine",
    "Exporter",
    "LayerTimes",
    "MeasuredOperator",
    "ModelImporter",
    "OperatorCost",
    "OrderedSchedule",
    "Pass",
    "PlanReader",
    "Planner",
    "ProfiledImporter",
    "Schedule",
    "Stack",
    "Strategy",
    "StrategyContext",
    "TopologyImporter",
    "moments_of_order",
    "numbered",
]


@frozen(eq=False, repr=False)
class StrategyContext(Record):
    """What a strategy may look at beside the block.

    Attributes:
        cluster: devices and network.
        training: how the model is trained.
    """

    cluster: Cluster
    training: Training


@frozen(eq=False, repr=False)
class MeasuredOperator(Record):
    """What was measured of the times of an operator.

    Attributes:
        sizes: of the operator, by name, as measurements of its kind are looked up.
        measured_at: those of the measurement that was taken; where they are others, its times were scaled.
        backward: whether the backward pass was measured as well; else it follows the forward one in proportion.
    """

    sizes: tuple[tuple[str, int], ...]
    measured_at: tuple[tuple[str, int], ...]
    backward: bool = True


@frozen(eq=False, repr=False)
class OperatorCost(Record):
    """Price of one operator on one rank, per micro-batch.

    Attributes:
        forward: seconds.
        backward: seconds.
        update: seconds of the optimizer step of its parameters, once per batch.
        saved: bytes kept for the backward pass beyond the tensors the operator `saves`.
        transient: bytes needed only while it runs.
        host: seconds the host takes to launch it, in each direction; a layer takes no less than its operators together.
        weight_gradients: seconds of `backward` that find the gradients of its parameters; None: all where nothing it
            reads has a gradient, half of a product with parameters, else none.
        measured: what `forward` and `backward` were measured at; None: they are computed.
    """

    forward: float
    backward: float
    update: float = 0.0
    saved: float = 0.0
    transient: float = 0.0
    host: float = 0.0
    weight_gradients: float | None = None
    measured: MeasuredOperator | None = None


class Named(Protocol):
    """What is registered by name."""

    @property
    def name(self) -> str:
        """Unique among its kind; what people write to choose it."""
        ...


@runtime_checkable
class Strategy(Named, Protocol):
    """A sub-graph strategy, such as tensor parallelism.

    It sees one layer of each kind: layers that differ in names only are rewritten and priced once, so it must
    treat equal layers alike. Tensors that other layers read keep their names (docs/reference/strategies.md
    has the rules).

    Optional:
        by_default: when false, the strategy takes part only in problems whose `strategies` or `fixed` names it, and
            where the stages of one plan may differ (`search.mixed`).
        padding: the share by which the work of a rank may exceed an even one, such as a capacity factor less 1; only
            `nest.testing` reads it.
        rank_column: when true, its ranks are an axis of their own (`Block.with_axis`), and rank tables have a column of
            its name; without it, there are no rank tables of plans where it splits anything.
        follows: the name of a strategy whose degree `nest evaluate` gives it, where it can have that, when nothing is
            said.
        searched: `searched(block, context)`, those of `degrees` that are tried when a problem says nothing of the
            strategy; without it, all.
        within: the name of a parameter group in whose regions (`nest.graph.sharded_graph.region`) alone it changes
            operators, beside calls at their borders. All others stay as they are, ranks along the axes there are lie as
            they did, and `width / samples` stays the same. Blocks that differ by such strategies alone are then ruled
            out together where what they share takes too long.
    """

    @property
    def after(self) -> tuple[str, ...]:
        """Strategies to be applied before this one, by name."""
        ...

    def degrees(self, block: Block, context: StrategyContext) -> Sequence[int]:
        """Degrees this strategy may take on `block`, ascending; 1 (leave it alone) is always allowed."""
        ...

    def apply(self, block: Block, degree: int, context: StrategyContext) -> Block:
        """`block` rewritten for `degree` (one of `degrees`, above 1)."""
        ...


@runtime_checkable
class ModelImporter(Named, Protocol):
    """A reader of model descriptions.

    Optional:
        examples: sources it accepts; only `nest.testing` reads them.
        architecture: `architecture(source)`, the `nest.spec.Architecture` of a transformer, for exporters.
        sequence_length: `sequence_length(source)`, tokens per sample where the source is for one length only; 0: its
            samples have no tokens, as images. Problems may then leave `training.sequence_length` out.
    """

    def accepts(self, source: Any) -> bool:
        """Whether this importer knows `source` (a mapping read from a file, or a specification)."""
        ...

    def load(self, source: Any, training: Training) -> OperatorGraph:
        """The operator graph of one sample."""
        ...


@runtime_checkable
class TopologyImporter(Named, Protocol):
    """A reader of cluster descriptions.

    A source is the path of a file, a part of one (`FILE#NAME`, a `nest.network.imported.PartOf`), the name or mapping a
    problem gives as `cluster.topology`, or, where the mapping is that of a built-in network, its record (`nest.spec`).

    Optional:
        examples: sources it accepts; only `nest.testing` reads them.
        profiled: when true, `load(source, profile)` also takes a `nest.spec.LinkProfile`, or None, for what files of
            its kind do not say.
    """

    def accepts(self, source: Any) -> bool:
        """Whether this importer knows `source`."""
        ...

    def load(self, source: Any) -> Cluster | LinkGraph | Pairs | Imported:
        """The cluster described, or its network by links or pairs, which is then reduced to levels.

        `Imported` also says what hosts and devices there are, and what was assumed; its network may be given by the
        levels of a `cluster` section, which keep the names of their links.
        """
        ...


class ProfiledImporter(TopologyImporter, Protocol):
    """A reader of networks whose files leave figures out (`profiled` is true)."""

    def load(self, source: Any, profile: LinkProfile | None = None) -> Cluster | LinkGraph | Pairs | Imported:
        """The network, completed by `profile`, or by the importer's usual figures where that is None."""
        ...


@runtime_checkable
class CostModel(Named, Protocol):
    """A model of operator times.

    Optional:
        from_measurements: when true, it takes times of measurements where it has them (`OperatorCost.measured`), and
            plans say which share of what operators compute was measured.
    """

    def price(self, operator: Operator, device: DeviceSpec, training: Training) -> OperatorCost:
        """Cost of `operator` (never a collective) on `device`."""
        ...


@runtime_checkable
class LayerTimes(Named, Protocol):
    """How the times of a layer's operators become the layer's."""

    def seconds(
        self, durations: Sequence[float], engines: Sequence[str], precedence: Sequence[tuple[int, int]]
    ) -> float:
        """Seconds of a layer in one direction, forward or backward.

        Args:
            durations: seconds of each operator, collectives included, none negative. Shape `(operators,)`.
            engines: the engine of the device that runs each operator. Shape `(operators,)`.
            precedence: `(before, after)`, indices of two operators, the second of which waits for the first.
        """
        ...


@runtime_checkable
class Planner(Named, Protocol):
    """Plans a problem in a way of its own; `nest compare` puts what it decides beside the fastest plan.

    It says what is decided and nothing of what that costs: all plans are priced by the same code. One that plans
    clusters of several kinds of device (`Instance.pools`) says so by an attribute `on_pools` that is true; only there
    it is asked without being named.

    Optional:
        with_options: `with_options(options)`, the planner with what `--planner NAME:OPTION=VALUE,...` says, text by
            name; it raises the `InputError` of an option that it lacks. Left out, it takes none.
    """

    @property
    def summary(self) -> str:
        """One line on how it plans."""
        ...

    def plan(self, instance: Instance, context: PlannerContext) -> Proposal:
        """What it decides for `instance`, or why nothing; the same for the same seed and number of evaluations."""
        ...


@runtime_checkable
class Exporter(Named, Protocol):
    """A writer of other tools' files.

    `nest.deployment` puts a plan into the terms frameworks use, and says which rank is which device;
    `nest.hooks.architectures` says what the model is made of, `nest.hooks.pipelines` in which order a micro-batch
    passes the chunks of stages, and what every device runs when.

    Optional:
        summary: one line for `nest export --list`.
        limits: `limits(problem)`, the `nest.deployment.Limits` of what its framework can run of a `nest.spec.Problem`:
            plans beyond them are refused with their reasons, `search.target` searches within them.
        refuse: `refuse(plan)`, which raises the `InputError` that `export` would, without writing what takes long. Left
            out, `export` is asked whether it takes a plan.
        rank_order: `rank_order(plan)`, how its framework counts ranks when run with the files of `export`: a mixed
            radix, the fastest coordinate first, a permutation of `tp`, `cp`, `dp` and `pp`. Left out, in that order.
        on_pools: when true, it takes plans whose stages lie on several kinds of device (`cluster.pools`): split alike
            unless its limits have `mixed`, and of one chunk each. Left out, it takes plans on one kind alone.
    """

    def export(self, plan: PlanDocument) -> Mapping[str, str]:
        """File names and their contents."""
        ...


@runtime_checkable
class PlanReader(Named, Protocol):
    """A reader of the files that a framework is launched with: what they decide, `nest evaluate --from` prices.

    Called like an exporter, it reads files of the framework that the exporter writes for, and `--against-best` searches
    within the exporter's limits. What a file says that changes time or memory and is not understood is told in a note.

    Optional:
        read_launch: `read_launch(text, options)`, as `read`, with all that a user says of the launch, the
            `nest.deployment.LaunchOptions`; left out, `--devices-per-node` and `--part` are refused.
        examples: texts it reads; only `nest.testing` reads them.
    """

    @property
    def summary(self) -> str:
        """One line on what it reads."""
        ...

    def read(self, text: str, nodes: int | None = None) -> Reading:
        """What a file says; an `InputError` where that is nothing, or contradicts itself.

        Args:
            text: content of the file.
            nodes: machines it is launched on; None: as it says.
        """
        ...


@runtime_checkable
class Stack(Named, Protocol):
    """What a framework at a version does where a problem leaves it open; `nest.spec.StackSpec` is one.

    Optional:
        version: of the framework.
        notes: what else it does, by subject, for `nest stacks`.
        sources: where each statement was read, beginning with its key or subject.
        pipeline_overlap: schedules with which it hides communication between stages.
    """

    @property
    def description(self) -> str:
        """One line for `nest stacks`."""
        ...

    @property
    def targets(self) -> tuple[str, ...]:
        """Exporters whose files it runs: their names as `search.target` imply it."""
        ...

    @property
    def training(self) -> StackDefaults:
        """Keys of `training` that it fills in where a problem leaves them out."""
        ...


@runtime_checkable
class Engine(Named, Protocol):
    """Runs the points of a sweep (`nest sweep --engine`): in processes of this machine, or on any number of machines.

    What it is given and what it gives can be pickled, and is nothing else to it. It runs unguarded and for as long as
    it takes; results are kept as they come, so that what raises loses only what was not given yet.

    Optional:
        configured: `configured(jobs, scheduler)`, the same engine with so many workers, or with those of the scheduler
            at an address, each of which may be None; an `InputError` where it cannot. Left out, `--jobs` and
            `--scheduler` are refused.
    """

    @property
    def summary(self) -> str:
        """One line on what it runs on."""
        ...

    def submit(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
        """What `function` makes of each item, as they come, in any order; an `InputError` where nothing can be run.

        Args:
            function: to be called once with each item, by any worker. Its answers depend on nothing but the item.
            items: at least one. Neighbours share work where one worker is given both, one after the other.
        """
        ...
