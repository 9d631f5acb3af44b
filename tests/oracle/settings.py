"""Sections 2 and 3 of PROBLEM.md: what a plan decides once for all its stages, and the rules it must keep."""

import re
from dataclasses import dataclass, replace
from itertools import pairwise, product

from tests.oracle.chunks import asks_for_even, chunk_numbers, dealable
from tests.oracle.network import Network
from tests.oracle.parts import Recompute, choices, modes_used, names_of
from tests.oracle.schedules import Pipeline, pipeline_of, said_by

RANK_ORDERS = ["pp-inner", "dp-inner"]
SCHEDULES = ["nest", "1f1b", "gpipe"]
"""Those that deal one run of layers to each stage."""


def given(mapping: dict | None, key: str, default):
    """`mapping[key]`, or the default where the key is absent or null."""
    value = (mapping or {}).get(key)
    return default if value is None else value


def schedules_of(problem: dict) -> list[str]:
    named = given(problem["training"], "schedule", "1f1b")
    return [named] if isinstance(named, str) else list(named)


def zero_degrees_of(problem: dict) -> list[int | None]:
    """Over how many ranks ZeRO may shard; None is all."""
    fixed = given(problem.get("fixed"), "zero_degree", None)
    named = given(problem.get("search"), "zero_degree", "all") if fixed is None else fixed
    degrees = named if isinstance(named, list) else [named]
    return [None if degree == "all" else degree for degree in degrees]


def exposed_share(problem: dict) -> float:
    training = problem["training"]
    hidden = given(training.get("overlap"), "data", False)
    return given(training, "exposed", 0.0 if hidden else 1.0)


def hides_messages(problem: dict, schedule: str) -> bool:
    """Whether messages between stages hide under the compute of the steady state."""
    named = given(problem["training"].get("overlap"), "pipeline", False)
    return named if isinstance(named, bool) else schedule in named


def hides(problem: dict) -> bool:
    """Whether data-parallel communication hides only under compute that lasts long enough; a profile has to ask."""
    return given(problem["training"], "hiding", False)


@dataclass(frozen=True)
class Setting:
    """One choice of everything stages share.

    `width` is that of the widest candidate the plan uses, and `candidates` are those its stages choose from: a
    single one, or with `search.mixed` all that take as many samples and are not wider.
    """

    candidates: tuple[dict, ...]
    width: int
    replicas: int
    rank_order: str
    pipeline: Pipeline
    micro_batches: int
    replica_devices: int
    zero_degree: int | None = None

    @property
    def schedule(self) -> str:
        return self.pipeline.name

    @property
    def chunks(self) -> int:
        return self.pipeline.chunks

    @property
    def samples(self) -> int:
        return self.candidates[0]["samples"]

    def choices(self, stages: int):
        """Every choice of a candidate per stage, one of them as wide as the setting says."""
        for chosen in product(self.candidates, repeat=stages):
            if max(candidate["width"] for candidate in chosen) == self.width:
                yield chosen

    def devices(self, chosen) -> int:
        """How many devices a plan with these candidates on its stages uses."""
        return self.replicas * sum(candidate["width"] for candidate in chosen)

    def first_device(self, offset: int, width: int, replica: int) -> int:
        """Where the block of this width at `offset` of `replica` starts in the cluster."""
        if self.rank_order == "pp-inner":
            return replica * self.replica_devices + offset
        return offset * self.replicas + replica * width

    def block(self, offset: int, width: int, replica: int) -> range:
        first = self.first_device(offset, width, replica)
        return range(first, first + width)

    def sharing(self, width: int, ranks: list[int]) -> list[int]:
        """The devices over which a stage of this width at offset 0 reduces the gradients of a group."""
        return [self.first_device(0, width, replica) + rank for replica in range(self.replicas) for rank in ranks]

    def shards(self, ranks: list[int]) -> int:
        """Over how many devices ZeRO shards a group."""
        every = self.replicas * len(ranks)
        return every if self.zero_degree is None else min(every, self.zero_degree)

    def shards_evenly(self, candidate: dict) -> bool:
        """Whether the devices of every group can be cut into shard groups of one size."""
        groups = candidate["state"].values()
        return all(self.replicas * len(group["ranks"]) % self.shards(group["ranks"]) == 0 for group in groups)

    def level_between(self, network: Network, one: tuple[int, int], two: tuple[int, int]) -> int:
        """Level of the boundary between blocks, each an offset and a width: the worst over the replicas."""
        return max(
            network.level([*self.block(*one, replica), *self.block(*two, replica)]) for replica in range(self.replicas)
        )

    def levels_around(self, network: Network, widths, offsets, known: dict | None = None) -> tuple[int, ...]:
        """Level in front of each chunk in pipeline order, and behind the last; -1 where both are on one stage.

        `known` remembers the levels between two blocks, for further calls with the same setting.
        """
        known = {} if known is None else known

        def between(one: int, two: int) -> int:
            places = tuple((offsets[stage], widths[stage]) for stage in sorted((one, two)))
            if one != two and places not in known:
                known[places] = self.level_between(network, *places)
            return -1 if one == two else known[places]

        return (-1, *(between(*pair) for pair in pairwise(self.pipeline.route(len(widths)))), -1)

    def placements(self, widths, free: int = 0):
        """Every monotone placement of blocks of these widths from device `free` of a replica on, gaps allowed."""
        if not widths:
            yield ()
            return
        width, *rest = widths
        for offset in range(0, self.replica_devices - width + 1, width):
            if offset >= free:
                for others in self.placements(rest, offset + width):
                    yield (offset, *others)


def micro_batches(problem: dict, samples: int, replicas: int) -> int | None:
    """`M`, or None where the batch cannot be dealt so."""
    batch = problem["training"]["global_batch"]
    share = samples * replicas
    if share > batch:
        return None
    if batch % share and not given(problem["training"], "uneven_batch", False):
        return None
    return -(-batch // share)


def together(problem: dict, network: Network, pipeline: Pipeline):
    """Sets of candidates that the stages of one plan choose from, each with the width of the widest."""
    usable = [candidate for candidate in problem["profile"]["candidates"] if network.admits(candidate["width"])]
    if not given(problem.get("search"), "mixed", False) or pipeline.chunks > 1:
        for candidate in usable:
            yield (candidate,), candidate["width"]
        return
    for samples, width in sorted({(candidate["samples"], candidate["width"]) for candidate in usable}):
        yield tuple(c for c in usable if c["samples"] == samples and c["width"] <= width), width


def settings(problem: dict, network: Network):
    """Every setting the problem allows, constraints aside."""
    names = [
        (name, number) for name in schedules_of(problem) for number in chunk_numbers(problem, said_by(problem, name))
    ]
    for pipeline in [pipeline_of(problem, *each) for each in names]:
        for candidates, width in together(problem, network, pipeline):
            for replicas in range(1, network.size // width + 1):
                count = micro_batches(problem, candidates[0]["samples"], replicas)
                if count is None:
                    continue
                own = width * (network.size // (replicas * width))
                for order, degree in product(
                    given(problem.get("search"), "rank_order", RANK_ORDERS), zero_degrees_of(problem)
                ):
                    setting = Setting(candidates, width, replicas, order, pipeline, count, own, degree)
                    usable = tuple(candidate for candidate in candidates if setting.shards_evenly(candidate))
                    if any(candidate["width"] == width for candidate in usable):
                        yield replace(setting, candidates=usable)


class Rules:
    """`constraints` and `fixed` of a problem."""

    def __init__(self, problem: dict) -> None:
        self.problem = problem
        self.even = asks_for_even(problem)
        fixed = dict(problem.get("fixed") or {})
        self.stages = fixed.pop("stages", None)
        for name in ("recompute_layers", "recompute_rest"):  # `choices` leaves no others.
            fixed.pop(name, None)
        if fixed.get("zero_degree") == "all":  # No number: `zero_degrees_of` leaves no other choice.
            del fixed["zero_degree"]
        self.equalities = fixed
        texts = [text.strip() for text in problem.get("constraints") or []]
        self.together = [eval(t, {"same_stage": lambda *names: names}) for t in texts if t.startswith("same_")]
        self.uniform = {re.fullmatch(r"uniform\((\w+)\)", t)[1] for t in texts if t.startswith("uniform")}
        expressions = [t for t in texts if not t.startswith(("same_stage", "uniform"))]
        self.expressions = [compile(text, text, "eval") for text in expressions]

    def names(
        self, setting: Setting, candidate: dict, stages: int, devices: int, recompute: Recompute, zero: int
    ) -> dict:
        """The value of every name of the constraint language for one stage of a plan on so many devices."""
        degrees = {"tp": 1, "cp": 1}
        for other in self.problem["profile"]["candidates"]:
            degrees |= dict.fromkeys(other["degrees"], 1)
        degrees |= candidate["degrees"]
        ranks = setting.replicas * candidate["width"] / (degrees["tp"] * degrees["cp"])
        told, size = "micro_batch" in candidate, given(candidate, "micro_batch", candidate["samples"])
        data_parallel = setting.replicas * candidate["samples"] / size if told else ranks
        return degrees | {
            "pp": stages,
            "dp": data_parallel,
            "replicas": setting.replicas,
            "micro_batch": size,
            "micro_batches": setting.micro_batches,
            "devices": devices,
            "width": candidate["width"],
            "schedule": setting.schedule,
            "chunks": setting.chunks,
            "rank_order": setting.rank_order,
            "zero": zero,
            "zero_degree": ranks if setting.zero_degree is None else setting.zero_degree,
            **names_of(self.problem, recompute),
        }

    def allow(
        self, setting: Setting, candidate: dict, stages: int, devices: int, recompute: Recompute, zero: int
    ) -> bool:
        """Whether a stage with these names may be in a plan."""
        search = self.problem.get("search")
        names = self.names(setting, candidate, stages, devices, recompute, zero)
        listed = given(search, "recompute", candidate["recompute"])
        return (
            names["zero"] in given(search, "zero", [0, 1, 2, 3])
            and modes_used(recompute) <= set(listed)
            and all(names[name] == value for name, value in self.equalities.items())
            and all(eval(text, {}, names) for text in self.expressions)
        )

    def modes(self, setting: Setting, candidate: dict, stages: int, devices: int) -> list[tuple[Recompute, int]]:
        """The (recompute, zero) pairs a stage of this candidate may use."""
        every = product(choices(self.problem, candidate), range(4))
        return [mode for mode in every if self.allow(setting, candidate, stages, devices, *mode)]

    def joint_modes(self, modes: list[tuple[Recompute, int]]):
        """Sets of modes from which each stage chooses freely; together they are all choices allowed."""
        recomputes = [{r} for r, _ in modes] if "recompute" in self.uniform else [{r for r, _ in modes}]
        zeros = [{z} for _, z in modes] if "zero" in self.uniform else [{z for _, z in modes}]
        seen = []
        for recompute, zero in product(recomputes, zeros):
            kept = [mode for mode in modes if mode[0] in recompute and mode[1] in zero]
            if kept and kept not in seen:
                seen.append(kept)
                yield kept

    def allow_run(self, partition) -> bool:
        """Whether stages of one run of layers each may be these: `even` ones hold as many blocks, in order."""
        if not self.even:
            return True
        blocks, stages = dealable(self.problem), len(partition)
        size = len(blocks) // stages
        runs = [blocks[stage * size : (stage + 1) * size] for stage in range(stages)]
        return not len(blocks) % stages and [sorted(stage) for stage in partition] == [
            sorted(layer for block in run for layer in block) for run in runs
        ]

    def allow_partition(self, partition) -> bool:
        """Whether the stages, as tuples of layer indices, respect `same_stage` and `fixed.stages`."""
        names = self.problem["profile"]["layers"]
        stages = [{names[layer] for layer in stage} for stage in partition]
        if self.stages is not None and stages != [set(stage) for stage in self.stages]:
            return False
        return all(any(set(group) <= stage for stage in stages) for group in self.together)
