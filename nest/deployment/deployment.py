"""Conversion of plan documents to frameworks' terms, and of framework files to a problem's."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from nest.errors import InputError
from nest.instance import Schedule, route
from nest.records import Record
from nest.spec import Architecture, PlanDocument, StageDecisions, StageRecord

BLOCK = re.compile(r"layers\.(\d+)")
"""Names of transformer blocks from model importers (docs/reference/models.md)."""

ENDS = ("embedding", "head")
"""Layers at the ends of a model that are no blocks."""

KNOWN = ("tp", "sp", "cp", "ep", "etp", "batch")
"""Strategies of frameworks; the ranks of `batch` are data-parallel ranks."""


@frozen(eq=False, repr=False)
class Run(Record):
    """Consecutive layers of one stage: all of them, or one model chunk of an interleaved schedule.

    Attributes:
        stage: index of the stage, from 0.
        chunk: index of the chunk on that stage, from 0.
        layers: names, in the order of the model.
        blocks: numbers of the transformer blocks among them; empty: there are none.
    """

    stage: int
    chunk: int
    layers: tuple[str, ...]
    blocks: tuple[int, ...]

    @property
    def others(self) -> tuple[str, ...]:
        """Layers that are no transformer blocks, such as embedding and head."""
        return tuple(name for name in self.layers if not BLOCK.fullmatch(name))


@frozen(eq=False, repr=False)
class Deployment(Record):
    """A plan in a framework's terms.

    Attributes:
        degrees: of every strategy, by name; a missing one has degree 1.
        width: devices of a stage (its device group).
        stages: number of pipeline stages.
        replicas: `d` of PROBLEM.md section 3.
        micro_batch: samples per micro-batch of one data-parallel rank.
        micro_batches: micro-batches per replica (`M`).
        global_batch: samples per optimizer step.
        sequence_length: tokens per sample; None: unknown for measured layers.
        schedule: name of the pipeline schedule.
        chunks: chunks of layers on each stage.
        rank_order: `pp-inner` or `dp-inner`.
        zero: ZeRO stage of each pipeline stage.
        recompute: recompute mode of each pipeline stage, or of its first blocks (`recomputed`).
        recompute_layers: number of first blocks, of a stage or of each of its chunks; None: all.
        recompute_rest: recompute mode of the others; None: there are none.
        zero_degree: most ranks for ZeRO sharding; None: all with equal parameters.
        runs: in the order of a micro-batch; empty: several chunks per stage, placed by an unknown schedule (see
            `deployment`).
        mixed: stages differ in their split.
    """

    degrees: Mapping[str, int]
    width: int
    stages: int
    replicas: int
    micro_batch: int
    micro_batches: int
    global_batch: int
    sequence_length: int | None
    schedule: str
    chunks: int
    rank_order: str
    zero: tuple[int, ...]
    recompute: tuple[str, ...]
    recompute_layers: tuple[int | None, ...]
    recompute_rest: tuple[str | None, ...]
    zero_degree: int | None
    runs: tuple[Run, ...]
    mixed: bool

    def degree(self, strategy: str) -> int:
        """Degree of a strategy; 1 if unused."""
        return self.degrees.get(strategy, 1)

    @property
    def tp(self) -> int:
        """Tensor-parallel degree."""
        return self.degree("tp")

    @property
    def sequence_parallel(self) -> bool:
        """True if tensor-parallel ranks split the sequence."""
        return self.degree("sp") > 1

    @property
    def cp(self) -> int:
        """Context-parallel degree."""
        return self.degree("cp")

    @property
    def ep(self) -> int:
        """Expert-parallel degree."""
        return self.degree("ep")

    @property
    def etp(self) -> int:
        """Expert-tensor-parallel degree."""
        return self.degree("etp")

    @property
    def copies(self) -> int:
        """Ranks of a device group besides `tp` and `cp`: copies of attention, ranks of `batch`, of other strategies."""
        return self.width // (self.tp * self.cp)

    @property
    def data_parallel(self) -> int:
        """Data-parallel ranks as frameworks count them: copies of all replicas; `dp` counts copies alone."""
        return self.replicas * self.copies

    @property
    def world_size(self) -> int:
        """Ranks of the whole training."""
        return self.width * self.stages * self.replicas

    @property
    def others(self) -> Mapping[str, int]:
        """Degrees above 1 of strategies unknown to frameworks, by name."""
        return {name: degree for name, degree in self.degrees.items() if degree > 1 and name not in KNOWN}

    @property
    def blocks(self) -> int:
        """Transformer blocks of the model; 0: it has none."""
        return sum(len(run.blocks) for run in self.runs)

    def recomputed(self, run: Run) -> int:
        """Number of fully recomputed first transformer blocks of a run."""
        return len(run.blocks[: self.recompute_layers[run.stage]]) if self.recompute[run.stage] == "full" else 0


def deployment(plan: PlanDocument, schedule: Schedule | None = None) -> Deployment:
    """Convert `plan` to frameworks' terms.

    Args:
        plan: feasible.
        schedule: of the plan (from `nest.hooks.pipelines.deployed`), for the chunks of `runs`; optional with one chunk
            per stage, or if `runs` are not needed.

    Raises:
        InputError: the plan is infeasible, or lacks decisions.
    """
    candidate = plan.candidate
    if candidate is None or plan.data_parallel is None or plan.micro_batches is None or not plan.stages:
        raise InputError(f"the plan is {plan.status!r}; nothing to export.")
    training = plan.problem["training"]
    return Deployment(
        degrees=dict(candidate.degrees),
        width=candidate.width,
        stages=len(plan.stages),
        replicas=plan.data_parallel,
        micro_batch=candidate.samples if candidate.micro_batch is None else candidate.micro_batch,
        micro_batches=plan.micro_batches,
        global_batch=training["global_batch"],
        sequence_length=training.get("sequence_length"),
        schedule=plan.schedule or "",
        chunks=plan.chunks or 1,
        rank_order=plan.rank_order or "",
        zero=tuple(stage.zero for stage in plan.stages),
        recompute=tuple(stage.recompute for stage in plan.stages),
        recompute_layers=tuple(stage.recompute_layers for stage in plan.stages),
        recompute_rest=tuple(stage.recompute_rest for stage in plan.stages),
        zero_degree=plan.zero_degree,
        runs=_runs(plan, schedule),
        mixed=len({_split(plan, stage) for stage in plan.stages}) > 1,
    )


def _split(plan: PlanDocument, stage: StageRecord) -> tuple[object, ...]:
    """Key of a stage's split in any pool: its candidate's name, or data of a profile."""
    measured = measured_candidate(plan, stage)
    if stage.pool is None or measured is None:
        return (unpooled_name(stage),)
    degrees = sorted((name, degree) for name, degree in measured["degrees"].items() if degree > 1)
    return (tuple(degrees), measured["width"], measured["samples"], measured.get("micro_batch"))


def unpooled_name(stage: StageRecord | StageDecisions) -> str:
    """Name of a stage's candidate without the prefix of its pool."""
    return stage.candidate if stage.pool is None else stage.candidate.removeprefix(f"{stage.pool}-")


def measured_candidate(plan: PlanDocument, stage: StageRecord) -> Mapping[str, Any] | None:
    """Candidate of a stage in the plan's profile; None: the plan is of a model."""
    profile = plan.problem.get("profile")
    if not isinstance(profile, Mapping):
        return None
    return next((each for each in profile["candidates"] if each["name"] == stage.candidate), None)


def _runs(plan: PlanDocument, schedule: Schedule | None) -> tuple[Run, ...]:
    """Runs of layers in the order of a micro-batch."""
    if (plan.chunks or 1) == 1:
        return tuple(_run(stage, 0, record.layers) for stage, record in enumerate(plan.stages))
    if schedule is None:
        return ()
    following = [enumerate(chunks) for chunks in chunks_of_stages(plan)]
    return tuple(_run(stage, *next(following[stage])) for stage in route(schedule, len(plan.stages)))


def chunks_of_stages(plan: PlanDocument) -> list[tuple[tuple[str, ...], ...]]:
    """Layers of each chunk of each stage, in pipeline order; by default the even split.

    Raises:
        InputError: chunks are not given, and there is no even split.
    """
    chunks = plan.chunks or 1
    if chunks == 1:
        return [(stage.layers,) for stage in plan.stages]
    said = [stage.chunks or () for stage in plan.stages]
    if all(len(each) == chunks for each in said):
        return said
    return _even_chunks(plan, chunks)


def _even_chunks(plan: PlanDocument, chunks: int) -> list[tuple[tuple[str, ...], ...]]:
    """Equal numbers of blocks in each chunk (docs/explanation/problem.md, 4).

    Embedding and head join the first and the last chunk, unless blocks divide evenly only with them.
    """
    total = [name for stage in plan.stages for name in stage.layers]
    beside = {name for name in ENDS if name in total}
    parts = len(plan.stages) * chunks
    if (len(total) - len(beside)) % parts:
        beside = set()
    size, left = divmod(len(total) - len(beside), parts)
    even: list[tuple[tuple[str, ...], ...]] = []
    for stage in plan.stages:
        runs: list[list[str]] = [[] for _ in range(chunks)]
        counted = 0
        for name in stage.layers:
            if left or (name not in beside and counted == size * chunks):
                raise InputError(f"the plan's layers do not split evenly into {chunks} chunks per stage.")
            place = counted // size - (name in beside and counted == size * chunks)
            runs[place].append(name)
            counted += name not in beside
        even.append(tuple(tuple(run) for run in runs))
    return even


def _run(stage: int, chunk: int, layers: tuple[str, ...]) -> Run:
    numbers = (BLOCK.fullmatch(name) for name in layers)
    return Run(stage, chunk, layers, tuple(int(match.group(1)) for match in numbers if match))


LANGUAGE_MODEL = "language-model"
"""Part of a vision-language model that can be priced by itself."""


@frozen(eq=False, repr=False)
class LaunchOptions(Record):
    """Launch options of a user besides the file with the flags.

    Attributes:
        nodes: machines of the launch; None: those in the file.
        devices_per_node: devices, and so ranks, of each machine; None: those in the file.
        part: part of a model to price, `language-model`; None: all of it.
        arguments: of a script, `$1` first.
        variables: environment of the launch.
        folder: of the file, for other files that it reads; None: unknown.
        model: of the problem or an option; None: unknown.
        machine: devices of a machine of the cluster, if neither the file nor the user says; None: unknown.
        release: of the framework, such as 0.16; None: the one in the file, or the newest.
    """

    nodes: int | None = None
    devices_per_node: int | None = None
    part: str | None = None
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(factory=dict)
    folder: Path | None = None
    model: Architecture | None = None
    machine: int | None = None
    release: str | None = None


MODEL_LEFT = "the model is the problem's."
"""End of a reading's note on an unknown name of a model."""


@frozen(eq=False, repr=False)
class Reading(Record):
    """Content of a launch file in a problem's terms.

    Attributes:
        settings: keys of a problem with values from the file: `model`, `training`, `fixed`, as far as they go.
        devices: number of devices of the run; None: unknown.
        vocabulary: path in `settings` of the missing number of tokens of the vocabulary; empty: present, or no model.
        notes: on settings passed over or assumed, a sentence each.
        usual: keys of `training` with defaults if neither the file nor the problem, which names no stack, sets them.
        ranks_per_node: devices that it uses of each node; None: unknown.
    """

    settings: Mapping[str, Any]
    devices: int | None = None
    vocabulary: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    usual: Mapping[str, Any] = field(factory=dict)
    ranks_per_node: int | None = None
