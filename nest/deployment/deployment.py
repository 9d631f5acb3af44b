"""What a plan document says in the terms frameworks use, and what files of frameworks say in those of a problem."""

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
"""How model importers name transformer blocks (docs/reference/models.md)."""

ENDS = ("embedding", "head")
"""Layers at the ends of a model that are no blocks."""

KNOWN = ("tp", "sp", "cp", "ep", "etp", "batch")
"""Strategies that frameworks know; the ranks of `batch` are data-parallel ranks."""


@frozen(eq=False, repr=False)
class Run(Record):
    """Consecutive layers that one stage runs: all of them, or one model chunk of an interleaved schedule.

    Attributes:
        stage: index of the stage, 0 first.
        chunk: index of the chunk on that stage, 0 first.
        layers: names, in the order of the model.
        blocks: numbers of the transformer blocks among them; empty where layers are something else.
    """

    stage: int
    chunk: int
    layers: tuple[str, ...]
    blocks: tuple[int, ...]

    @property
    def others(self) -> tuple[str, ...]:
        """The layers that are no transformer blocks, such as the embedding and the head."""
        return tuple(name for name in self.layers if not BLOCK.fullmatch(name))


@frozen(eq=False, repr=False)
class Deployment(Record):
    """What a plan asks of a framework.

    Attributes:
        degrees: of every strategy, by name; one that is missing has degree 1.
        width: devices of a stage (its device group).
        stages: number of pipeline stages.
        replicas: `d` of PROBLEM.md section 3.
        micro_batch: samples per micro-batch of one data-parallel rank.
        micro_batches: micro-batches per replica (`M`).
        global_batch: samples per optimizer step.
        sequence_length: tokens per sample; None: of measured layers nobody says.
        schedule: name of the pipeline schedule.
        chunks: chunks of layers on each stage.
        rank_order: `pp-inner` or `dp-inner`.
        zero: ZeRO stage of each pipeline stage.
        recompute: recompute mode of each pipeline stage, or of its first blocks (`recomputed`).
        recompute_layers: how many of its blocks, or of those of each of its chunks, are these; None: all.
        recompute_rest: recompute mode of the others; None: there are none.
        zero_degree: ranks over which ZeRO shards at most; None: all that hold the same parameters.
        runs: in the order in which a micro-batch passes them; empty: stages have several chunks, and nobody said which
            schedule has placed them (see `deployment`).
        mixed: whether stages differ in how they are split.
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
        """Degree of a strategy; 1 where it takes no part."""
        return self.degrees.get(strategy, 1)

    @property
    def tp(self) -> int:
        """Tensor-parallel degree."""
        return self.degree("tp")

    @property
    def sequence_parallel(self) -> bool:
        """Whether the ranks of tensor parallelism split the sequence between them."""
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
        """Ranks of a device group beside `tp` and `cp`: copies of attention, ranks of `batch`, of other strategies."""
        return self.width // (self.tp * self.cp)

    @property
    def data_parallel(self) -> int:
        """These of all replicas, which frameworks count as data-parallel ranks; `dp` counts copies alone."""
        return self.replicas * self.copies

    @property
    def world_size(self) -> int:
        """Ranks of the whole training."""
        return self.width * self.stages * self.replicas

    @property
    def others(self) -> Mapping[str, int]:
        """Degrees above 1 of strategies that frameworks do not know, by name."""
        return {name: degree for name, degree in self.degrees.items() if degree > 1 and name not in KNOWN}

    @property
    def blocks(self) -> int:
        """Transformer blocks of the model; 0: its layers are something else."""
        return sum(len(run.blocks) for run in self.runs)

    def recomputed(self, run: Run) -> int:
        """How many of the first transformer blocks of a run are recomputed in full."""
        return len(run.blocks[: self.recompute_layers[run.stage]]) if self.recompute[run.stage] == "full" else 0


def deployment(plan: PlanDocument, schedule: Schedule | None = None) -> Deployment:
    """`plan` in the terms frameworks use.

    Args:
        plan: feasible.
        schedule: the plan's (`nest.hooks.pipelines.deployed` finds it), which says where the chunks of `runs` lie;
            without several chunks it may be left out, and so it may where nothing asks for `runs`.

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
    """How a stage is split, whatever the pool it lies in: its candidate's name, or what a profile says of it."""
    measured = measured_candidate(plan, stage)
    if stage.pool is None or measured is None:
        return (unpooled_name(stage),)
    degrees = sorted((name, degree) for name, degree in measured["degrees"].items() if degree > 1)
    return (tuple(degrees), measured["width"], measured["samples"], measured.get("micro_batch"))


def unpooled_name(stage: StageRecord | StageDecisions) -> str:
    """The name of a stage's candidate without the pool's in front, by which models tell the pools' candidates apart."""
    return stage.candidate if stage.pool is None else stage.candidate.removeprefix(f"{stage.pool}-")


def measured_candidate(plan: PlanDocument, stage: StageRecord) -> Mapping[str, Any] | None:
    """The candidate of a stage in the plan's profile; None: the plan is of a model."""
    profile = plan.problem.get("profile")
    if not isinstance(profile, Mapping):
        return None
    return next((each for each in profile["candidates"] if each["name"] == stage.candidate), None)


def _runs(plan: PlanDocument, schedule: Schedule | None) -> tuple[Run, ...]:
    """The runs of layers in the order in which a micro-batch passes them."""
    if (plan.chunks or 1) == 1:
        return tuple(_run(stage, 0, record.layers) for stage, record in enumerate(plan.stages))
    if schedule is None:
        return ()
    following = [enumerate(chunks) for chunks in chunks_of_stages(plan)]
    return tuple(_run(stage, *next(following[stage])) for stage in route(schedule, len(plan.stages)))


def chunks_of_stages(plan: PlanDocument) -> list[tuple[tuple[str, ...], ...]]:
    """For each stage the layers of each of its chunks, in pipeline order; of plans that do not say, the even split.

    Raises:
        InputError: stages do not say, and there is no even split.
    """
    chunks = plan.chunks or 1
    if chunks == 1:
        return [(stage.layers,) for stage in plan.stages]
    said = [stage.chunks or () for stage in plan.stages]
    if all(len(each) == chunks for each in said):
        return said
    return _even_chunks(plan, chunks)


def _even_chunks(plan: PlanDocument, chunks: int) -> list[tuple[tuple[str, ...], ...]]:
    """As many blocks in each chunk (docs/explanation/problem.md, 4).

    Embedding and head come along with the first and the last chunk, unless blocks come out even only with them.
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
"""The part of a vision-language model that can be priced by itself."""


@frozen(eq=False, repr=False)
class LaunchOptions(Record):
    """What a user says of a launch beside the file that has its flags.

    Attributes:
        nodes: machines it is launched on; None: as the file says.
        devices_per_node: devices, and with them ranks, of each machine; None: as the file says.
        part: the part of a model to price, `language-model`; None: all of it.
        arguments: what a script is called with, `$1` first.
        variables: the environment it is called in.
        folder: where it lies, for the files that it reads; None: nowhere.
        model: what a problem or an option says it trains; None: they say nothing.
    """

    nodes: int | None = None
    devices_per_node: int | None = None
    part: str | None = None
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(factory=dict)
    folder: Path | None = None
    model: Architecture | None = None


MODEL_LEFT = "the model is the problem's."
"""How the note of a reading ends that says which name of a model it does not know."""


@frozen(eq=False, repr=False)
class Reading(Record):
    """What was read of a file that a framework is launched with, in the words of a problem.

    Attributes:
        settings: keys of a problem with what the file says of them: `model`, `training`, `fixed`, as far as they go.
        devices: how many the run is launched on; None: it does not say.
        vocabulary: keys in `settings` of the number of tokens of the vocabulary, which is missing there; empty: it is
            there, or there is no model.
        notes: what was passed over or assumed, a sentence each.
        usual: keys of `training` with what holds where neither the file nor the problem, which names no stack, says.
    """

    settings: Mapping[str, Any]
    devices: int | None = None
    vocabulary: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    usual: Mapping[str, Any] = field(factory=dict)
