"""The cells of the paper's figures: which model on which devices in micro-batches of what size."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from nest.catalogue import clusters
from nest.formulate.network import no_hierarchy
from nest.hooks.registry import registry
from nest.io import structure
from nest.spec import ClusterSpec

Problem = dict[str, Any]

TPU, GPU = "nest-tpuv4-fat-tree", "nest-h100-spine-leaf"
"""The paper's networks, as the catalogue has them: 8 devices a node, 4 nodes a rack, as many racks as there are."""

RACK = 32
"""Devices below the outermost level of both."""

GLOBAL_BATCH = 4096
"""Samples per optimizer step (NEST artifact, scai-tech/Nest)."""

SEQUENCE_LENGTHS = {"bert-large": 512, "llama-2-7b": 4096, "llama-3-70b": 4096, "mixtral-8x7b": 4096, "gpt3-175b": 2048}
"""Tokens per sample by model, as the names of the artifact's files of estimates have them (`..._sl_4096`)."""

MODELS = tuple(SEQUENCE_LENGTHS)
BY_MICRO_BATCH = ("bert-large", "llama-2-7b", "llama-3-70b")
"""The models of Figure 6."""

TODAY = {"llama-3-70b": 256, "mixtral-8x7b": 256, "deepseek-v3": 1024}
"""Models of today, and devices that are enough for them."""

TODAY_LENGTH = 4096
"""Tokens per sample of those the paper does not have."""

BOUND, RUN = "nest", "1f1b"
"""Schedules: the paper's bound, and one that frameworks run."""

LINK = {"bandwidth": 45e9, "latency": 5e-7}
"""Links of neighbours: 50 GB/s a direction, of which 45 are reached (Jouppi et al., arXiv 2304.01433; `nest topology
profiles`, ici-v4)."""

NETWORKS: dict[str, Problem] = {
    "torus 4x4x4": {"torus": {"shape": [4, 4, 4], **LINK}},
    "mesh 8x8": {"mesh": {"shape": [8, 8], **LINK}},
}
"""Grids of 64 TPU v4, of which the paper plans on hop distances as levels."""

AS_LEVELS = " as levels"
"""Ends the name of a grid of which only hop distances are known: each level is as slow as its slowest pair."""

ON_GRIDS = ("bert-large", "llama-2-7b")

LONG = {"llama-3.1-8b": (32_768, 131_072)}
"""Tokens per sample of models whose sequences are worth splitting."""

ADDED = {"cp": (1, 2, 4, 8), "ulysses": (1, 2, 4, 8)}
"""Strategies that share a sequence, with their degrees: nest's own, and the plug-in nest-ulysses."""

TARGETS = {TPU: "none", GPU: "megatron"}
"""Frameworks that models of today are planned for: the one that most train with on GPUs; of TPUs none is asked for."""

DEVICES = (64, 128, 256, 512, 1024)
MICRO_BATCHES = (1, 2, 4, 8)


@frozen
class Cell:
    """One problem of the paper.

    Attributes:
        model: as `nest models` lists it.
        cluster: as `nest clusters` lists it.
        devices: how many of them.
        micro_batch: samples.
        source: file that holds the problem; None: it is made of the names.
        schedule: of the pipeline.
        target: the framework that has to be able to run the plans; `none`: any plan will do.
        batch: samples per step.
        sequence: tokens per sample; None: those of the model.
        added: the one strategy of `ADDED` that may be used; None: none of them.
    """

    model: str
    cluster: str
    devices: int
    micro_batch: int
    source: Path | None = None
    schedule: str = BOUND
    target: str = "none"
    batch: int = GLOBAL_BATCH
    sequence: int | None = None
    added: str | None = None

    @property
    def name(self) -> str:
        """For people."""
        ending = "" if self.schedule == BOUND else f", {self.schedule}"
        ending += "" if self.sequence is None else f", {self.sequence} tokens, {self.added or 'no strategy'} added"
        return f"{self.model} on {self.devices} devices of {self.cluster}, micro-batch {self.micro_batch}{ending}"

    @property
    def folder(self) -> str:
        """For files."""
        return f"{self.model}-on-{self.devices}-{self.cluster}"

    def problem(self) -> Problem:
        """What is planned: the paper's schedule, and its search with ZeRO and recomputation left open.

        Samples that are no multiple of the replicas are rounded up, as the artifact does. Context parallelism is left
        out: no sequence here is long, and but for one estimate of Mixtral the artifact's files all say `cp_1`. The
        paper has no margin of memory.
        """
        if self.source is not None:
            written: Problem = json.loads(self.source.read_text(encoding="utf-8"))
            return written
        return {
            "nest": 1,
            "model": self.model,
            "training": {
                "global_batch": self.batch,
                "sequence_length": self.sequence or SEQUENCE_LENGTHS.get(self.model, TODAY_LENGTH),
                "micro_batch": [self.micro_batch],
                "schedule": self.schedule,
                "uneven_batch": self.schedule == BOUND,
                "memory_margin": 0,
                "stack": "none",  # The paper hides no communication.
            },
            "cluster": self._network(),
            "strategies": {
                name: degrees if name == self.added else (1,) for name, degrees in ADDED.items() if name in known()
            },
            "search": {
                "rank_order": ["pp-inner", "dp-inner"],
                "target": self.target,
                "zero": [0, 1, 2, 3],
                "recompute": ["none", "selective", "full"],
                "recompute_layers": False,  # No planner of the paper recomputes a part of a stage.
                "within": 0,  # Gains are over the fastest plan, not the simplest within 1 %.
            },
        }

    def _network(self) -> Problem:
        entry = clusters()[TPU if self.cluster.removesuffix(AS_LEVELS) in NETWORKS else self.cluster]
        device = {"device": entry.device, "memory": entry.memory}
        grid = NETWORKS.get(self.cluster.removesuffix(AS_LEVELS))
        if grid is None:
            levels = [_level(each, each.fanout) for each in entry.levels]
            return {**device, "levels": [*levels[:-1], _level(entry.levels[-1], self.devices // RACK)]}
        if not self.cluster.endswith(AS_LEVELS):
            return {**device, "topology": grid}
        found = no_hierarchy(structure({**device, "topology": grid}, ClusterSpec), registry())
        assert found is not None
        return {**device, "levels": [_level(each, each.fanout) for each in found[1].best.levels]}


def _level(level: Any, fanout: int) -> Problem:
    return {"name": level.name, "fanout": fanout, "bandwidth": level.bandwidth, "latency": level.latency}


def known() -> tuple[str, ...]:
    """Strategies that are installed."""
    return tuple(registry().strategies())


def figure_5(quick: bool = False) -> tuple[Cell, ...]:
    """Every model on 64 to 1,024 devices of the TPUv4 fat-tree, micro-batch 1."""
    if quick:
        return tuple(Cell("llama-2-7b", TPU, devices, 1) for devices in DEVICES[:2])
    return tuple(Cell(model, TPU, devices, 1) for model in MODELS for devices in DEVICES)


def figure_6(quick: bool = False) -> tuple[Cell, ...]:
    """Three models on 256 devices of the TPUv4 fat-tree, in micro-batches of 1 to 8."""
    if quick:
        return tuple(Cell("bert-large", TPU, 64, size) for size in MICRO_BATCHES[:2])
    return tuple(Cell(model, TPU, 256, size) for model in BY_MICRO_BATCH for size in MICRO_BATCHES)


def table_3(quick: bool = False) -> tuple[Cell, ...]:
    """Every model on 128 and 1,024 devices of the H100 spine-leaf network, micro-batch 1."""
    if quick:
        return (Cell("llama-2-7b", GPU, 64, 1),)
    return tuple(Cell(model, GPU, devices, 1) for model in MODELS for devices in (128, 1024))


def today(quick: bool = False) -> tuple[Cell, ...]:
    """Models of today on both networks, with a schedule that frameworks run; on GPUs as Megatron-LM can run them."""
    if quick:
        return (Cell("llama-2-7b", GPU, 64, 1, None, RUN, TARGETS[GPU]),)
    return tuple(
        Cell(model, network, devices, 1, None, RUN, target)
        for model, devices in TODAY.items()
        for network, target in TARGETS.items()
    )


def on_grids(quick: bool = False) -> tuple[Cell, ...]:
    """Models on a torus and a mesh of 64 TPU v4: by hop distances, and on the network as it is."""
    models, grids = (ON_GRIDS[1:], list(NETWORKS)[1:]) if quick else (ON_GRIDS, list(NETWORKS))
    return tuple(Cell(model, grid + end, 64, 1) for model in models for grid in grids for end in (AS_LEVELS, ""))


def with_added(quick: bool = False) -> tuple[Cell, ...]:
    """Long sequences on 64 H100, without and with each strategy that shares a sequence and is installed."""
    added = (None, *(name for name in ADDED if name in known()))
    cells = [
        Cell(model, GPU, 64, 1, None, RUN, "none", 2**22 // length, length, each)
        for model, lengths in LONG.items()
        for length in lengths
        for each in added
    ]
    return tuple(cells[: len(added)] if quick else cells)


ARTIFACT_MODELS = {"bert": "bert-large", "llama2": "llama-2-7b", "llama3": "llama-3-70b", "gpt3": "gpt3-175b"}
"""What the artifact's files call the models; of Mixtral there is none."""


def artifact(folder: Path, ending: str = "") -> tuple[Cell, ...]:
    """The artifact's solver inputs for Figure 5, as profile problems, as far as `folder` holds them.

    Args:
        folder: with files such as `tpuv4_fatTree__llama2__n64__mbs1.json`.
        ending: of their names behind the micro-batch; `__seconds`: those with the slip of units repaired.
    """
    pattern = re.compile(rf"tpuv4_fatTree__(\w+?)__n(\d+)__mbs1{ending}\.json")
    found = [(match, path) for path in sorted(folder.glob("*.json")) if (match := pattern.fullmatch(path.name))]
    cells = [
        Cell(ARTIFACT_MODELS[match[1]], f"artifact{ending}", int(match[2]), 1, path)
        for match, path in found
        if match[1] in ARTIFACT_MODELS
    ]
    return tuple(sorted(cells, key=lambda cell: (MODELS.index(cell.model), cell.devices)))


def every(groups: Sequence[Sequence[Cell]]) -> tuple[Cell, ...]:
    """All cells of some figures, each once."""
    return tuple(dict.fromkeys(cell for group in groups for cell in group))
