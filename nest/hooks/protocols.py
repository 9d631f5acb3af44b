"""Protocols of objects that plug-ins return."""

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
    """Context of a strategy besides the block.

    Attributes:
        cluster: devices and network.
        training: how the model is trained.
    """

    cluster: Cluster
    training: Training


@frozen(eq=False, repr=False)
class MeasuredOperator(Record):
    """Measurement behind the times of an operator.

    Attributes:
        sizes: of the operator, by name, as measurements of its kind are looked up.
        measured_at: sizes of the measurement; if they differ, its times were scaled.
        backward: the backward pass was measured, too; else it is scaled from the forward pass.
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
        host: seconds of the host to launch it, in each direction; a layer takes at least the sum over its operators.
        weight_gradients: seconds of `backward` for the gradients of its parameters; None: all if none of its inputs has
            a gradient, half for a product with parameters, else none.
        measured: measurement behind `forward` and `backward`; None: they are computed.
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
    """An object registered by name."""

    @property
    def name(self) -> str:
        """Unique name among its kind."""
        ...


@runtime_checkable
class Strategy(Named, Protocol):
    """A sub-graph strategy, such as tensor parallelism.

    It sees one layer of each kind: layers that differ only in names are rewritten and priced once, so it must treat
    equal layers alike. Tensors that other layers read keep their names (rules: docs/reference/strategies.md).

    Optional:
        by_default: if false, the strategy takes part only in problems whose `strategies` or `fixed` names it, and if
            the stages of one plan may differ (`search.mixed`).
        padding: the share by which a rank's work may exceed an even one, such as a capacity factor less 1; only
            `nest.testing` reads it.
        rank_column: if true, its ranks are an axis of their own (`Block.with_axis`), and rank tables have a column of
            its name; without it, plans that it splits have no rank tables.
        follows: name of a strategy whose degree `nest evaluate` gives it by default, if possible.
        searched: `searched(block, context)`, the `degrees` that are tried by default; without it, all.
        within: name of a parameter group in whose regions (`nest.graph.sharded_graph.region`) alone it changes
            operators, besides calls at their borders. All others stay unchanged, ranks along existing axes keep their
            places, and `width / samples` stays the same. Blocks that differ only by such strategies are ruled out
            together if their common part takes too long.
    """

    @property
    def after(self) -> tuple[str, ...]:
        """Strategies to be applied before this one, by name."""
        ...

    def degrees(self, block: Block, context: StrategyContext) -> Sequence[int]:
        """Possible degrees on `block`, ascending; 1 (unchanged) is always allowed."""
        ...

    def apply(self, block: Block, degree: int, context: StrategyContext) -> Block:
        """Rewrite `block` for `degree` (one of `degrees`, above 1)."""
        ...


@runtime_checkable
class ModelImporter(Named, Protocol):
    """A reader of model descriptions.

    Optional:
        examples: accepted sources; only `nest.testing` reads them.
        architecture: `architecture(source)`, the `nest.spec.Architecture` of a transformer, for exporters.
        sequence_length: `sequence_length(source)`, tokens per sample of a source for one length only; 0: its samples
            have no tokens, such as images. Problems may then leave `training.sequence_length` out.
    """

    def accepts(self, source: Any) -> bool:
        """True if this importer knows `source` (a mapping read from a file, or a specification)."""
        ...

    def load(self, source: Any, training: Training) -> OperatorGraph:
        """Build the operator graph of one sample."""
        ...


@runtime_checkable
class TopologyImporter(Named, Protocol):
    """A reader of cluster descriptions.

    A source is the path of a file, a part of one (`FILE#NAME`, a `nest.network.imported.PartOf`), the name or mapping
    in a problem's `cluster.topology`, or, for a built-in network, its record (`nest.spec`).

    Optional:
        examples: accepted sources; only `nest.testing` reads them.
        profiled: if true, `load(source, profile)` also takes a `nest.spec.LinkProfile`, or None, for figures missing in
            its files.
    """

    def accepts(self, source: Any) -> bool:
        """True if this importer knows `source`."""
        ...

    def load(self, source: Any) -> Cluster | LinkGraph | Pairs | Imported:
        """Read the cluster, or its network by links or pairs, which is then reduced to levels.

        `Imported` also lists hosts and devices, and assumptions; its network may be the levels of a `cluster` section,
        which keep the names of their links.
        """
        ...


class ProfiledImporter(TopologyImporter, Protocol):
    """A reader of networks whose files leave figures out (`profiled` is true)."""

    def load(self, source: Any, profile: LinkProfile | None = None) -> Cluster | LinkGraph | Pairs | Imported:
        """Read the network, completed by `profile`, or by the importer's usual figures if that is None."""
        ...


@runtime_checkable
class CostModel(Named, Protocol):
    """A model of operator times.

    Optional:
        from_measurements: if true, it uses measured times if available (`OperatorCost.measured`), and plans report the
            measured share of compute.
    """

    def price(self, operator: Operator, device: DeviceSpec, training: Training) -> OperatorCost:
        """Price `operator` (never a collective) on `device`."""
        ...


@runtime_checkable
class LayerTimes(Named, Protocol):
    """Combines the times of a layer's operators."""

    def seconds(
        self, durations: Sequence[float], engines: Sequence[str], precedence: Sequence[tuple[int, int]]
    ) -> float:
        """Seconds of a layer in one direction, forward or backward.

        Args:
            durations: seconds of each operator, collectives included, at least 0. Shape `(operators,)`.
            engines: engine of the device for each operator. Shape `(operators,)`.
            precedence: `(before, after)`, indices of operators; the second waits for the first.
        """
        ...


@runtime_checkable
class Planner(Named, Protocol):
    """An alternative planner; `nest compare` shows its plan next to the fastest one.

    It only decides: all plans are priced by the same code. One for clusters of several kinds of device
    (`Instance.pools`) has a true attribute `on_pools`; there it takes part without being named.

    Optional:
        with_options: `with_options(options)`, the planner with the options of `--planner NAME:OPTION=VALUE,...`, text
            by name; raises `InputError` for an unknown option. Left out, it takes none.
    """

    @property
    def summary(self) -> str:
        """One line on how it plans."""
        ...

    def plan(self, instance: Instance, context: PlannerContext) -> Proposal:
        """Decide a plan for `instance`, or say why there is none; deterministic in seed and number of evaluations."""
        ...


@runtime_checkable
class Exporter(Named, Protocol):
    """A writer of other tools' files.

    `nest.deployment` converts a plan into frameworks' terms and maps ranks to devices; `nest.hooks.architectures` gives
    the model's architecture, `nest.hooks.pipelines` the order of chunks and every device's passes.

    Optional:
        summary: one line for `nest export --list`.
        limits: `limits(problem)`, the `nest.deployment.Limits` of its framework for a `nest.spec.Problem`: plans beyond
            them are refused with reasons, and `search.target` searches within them.
        refuse: `refuse(plan)` raises the `InputError` of `export` without writing files. Left out, `export` is called.
        spelled: `spelled(content, text)`, the first file with lines as in the user's file `text`.
        apart: names of files with settings that the first lacks, and does not name.
        rank_order: `rank_order(plan)`, the order of ranks in its framework with the files of `export`: a mixed radix,
            fastest coordinate first, a permutation of the default `tp`, `cp`, `dp` and `pp`.
        on_pools: if true, it takes plans with stages on several kinds of device (`cluster.pools`): split alike unless
            its limits have `mixed`, and with one chunk each. Left out, it takes plans on one kind only.
    """

    def export(self, plan: PlanDocument) -> Mapping[str, str]:
        """Contents of the files, by name."""
        ...


@runtime_checkable
class PlanReader(Named, Protocol):
    """A reader of a framework's launch files, whose decisions `nest evaluate --from` prices.

    With the name of an exporter, it reads files of that framework, and `--against-best` searches within the exporter's
    limits. Settings that change time or memory and are not understood are reported in a note.

    Optional:
        read_launch: `read_launch(text, options)`, same as `read` with all launch options of the user, the
            `nest.deployment.LaunchOptions`; left out, `--devices-per-node` and `--part` are refused.
        examples: readable texts; only `nest.testing` reads them.
    """

    @property
    def summary(self) -> str:
        """One line on what it reads."""
        ...

    def read(self, text: str, nodes: int | None = None) -> Reading:
        """Read the decisions of a file; `InputError` if there are none, or they contradict each other.

        Args:
            text: content of the file.
            nodes: machines of the launch; None: those in the file.
        """
        ...


@runtime_checkable
class Stack(Named, Protocol):
    """Defaults of a framework at a version; `nest.spec.StackSpec` is one.

    Optional:
        version: of the framework.
        notes: other behaviour, by subject, for `nest stacks`.
        sources: of each statement, beginning with its key or subject.
        pipeline_overlap: schedules with hidden communication between stages.
    """

    @property
    def description(self) -> str:
        """One line for `nest stacks`."""
        ...

    @property
    def targets(self) -> tuple[str, ...]:
        """Exporters whose files it runs: as `search.target`, their names imply it."""
        ...

    @property
    def training(self) -> StackDefaults:
        """Defaults for keys of `training`."""
        ...


@runtime_checkable
class Engine(Named, Protocol):
    """Runs the points of a sweep (`nest sweep --engine`): in processes of this machine, or on other machines.

    Its inputs and outputs can be pickled and are opaque to it. It runs unguarded and without a time limit; results are
    kept as they come, so that an error loses only the missing ones.

    Optional:
        configured: `configured(jobs, scheduler)`, the same engine with so many workers, or with the workers of the
            scheduler at an address; both may be None; `InputError` if impossible. Left out, `--jobs` and `--scheduler`
            are refused.
    """

    @property
    def summary(self) -> str:
        """One line on where it runs."""
        ...

    def submit(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
        """Apply `function` to each item; yields results as they come, in any order; `InputError` if nothing can run.

        Args:
            function: called once with each item, by any worker. Results depend only on the item.
            items: at least one. Neighbours share work if one worker gets both in sequence.
        """
        ...
