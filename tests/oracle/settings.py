"""Sections 2 and 3 of PROBLEM.md: what a plan decides once for all its stages, and the rules it must keep."""

import re
from dataclasses import dataclass
from itertools import combinations, pairwise, product

from tests.oracle.network import Network

RANK_ORDERS = ["pp-inner", "dp-inner"]
SCHEDULES = ["nest", "1f1b", "gpipe"]


def given(mapping: dict | None, key: str, default):
    """`mapping[key]`, or the default where the key is absent or null."""
    value = (mapping or {}).get(key)
    return default if value is None else value


def schedules_of(problem: dict) -> list[str]:
    named = given(problem["training"], "schedule", "1f1b")
    return [named] if isinstance(named, str) else list(named)


def exposed_share(problem: dict) -> float:
    training = problem["training"]
    hidden = given(training.get("overlap"), "data", False)
    return given(training, "exposed", 0.0 if hidden else 1.0)


@dataclass(frozen=True)
class Setting:
    """One choice of everything stages share."""

    candidate: dict
    replicas: int
    rank_order: str
    schedule: str
    micro_batches: int
    replica_devices: int

    @property
    def width(self) -> int:
        return self.candidate["width"]

    def first_device(self, offset: int, replica: int) -> int:
        """Where the block at `offset` of `replica` starts in the cluster."""
        if self.rank_order == "pp-inner":
            return replica * self.replica_devices + offset
        return offset * self.replicas + replica * self.width

    def block(self, offset: int, replica: int) -> range:
        first = self.first_device(offset, replica)
        return range(first, first + self.width)

    def sharing(self, ranks: list[int]) -> list[int]:
        """The devices over which the stage at offset 0 reduces the gradients of a group."""
        return [self.first_device(0, replica) + rank for replica in range(self.replicas) for rank in ranks]

    def boundary_levels(self, network: Network, offsets) -> tuple[int, ...]:
        """Level of each boundary between neighbouring stages, the worst over the replicas."""
        return tuple(
            max(
                network.level([*self.block(one, replica), *self.block(two, replica)])
                for replica in range(self.replicas)
            )
            for one, two in pairwise(offsets)
        )

    def placements(self, stages: int):
        """Every monotone placement: one offset per stage, gaps allowed."""
        return combinations(range(0, self.replica_devices, self.width), stages)


def micro_batches(problem: dict, samples: int, replicas: int) -> int | None:
    """`M`, or None where the batch cannot be dealt so."""
    batch = problem["training"]["global_batch"]
    share = samples * replicas
    if share > batch:
        return None
    if batch % share and not given(problem["training"], "uneven_batch", False):
        return None
    return -(-batch // share)


def settings(problem: dict, network: Network):
    """Every setting the problem allows, constraints aside."""
    if given(problem.get("search"), "mixed", False):
        raise NotImplementedError("the oracle does not mix candidates")
    for candidate in problem["profile"]["candidates"]:
        width = candidate["width"]
        if not network.admits(width):
            continue
        for replicas in range(1, network.size // width + 1):
            count = micro_batches(problem, candidate["samples"], replicas)
            if count is None:
                continue
            own = width * (network.size // (replicas * width))
            for order, schedule in product(
                given(problem.get("search"), "rank_order", RANK_ORDERS), schedules_of(problem)
            ):
                yield Setting(candidate, replicas, order, schedule, count, own)


class Rules:
    """`constraints` and `fixed` of a problem."""

    def __init__(self, problem: dict) -> None:
        self.problem = problem
        fixed = dict(problem.get("fixed") or {})
        self.stages = fixed.pop("stages", None)
        self.equalities = fixed
        texts = [text.strip() for text in problem.get("constraints") or []]
        self.together = [eval(t, {"same_stage": lambda *names: names}) for t in texts if t.startswith("same_")]
        self.uniform = {re.fullmatch(r"uniform\((\w+)\)", t)[1] for t in texts if t.startswith("uniform")}
        self.expressions = [t for t in texts if not t.startswith(("same_stage", "uniform"))]

    def names(self, setting: Setting, stages: int, recompute: str, zero: int) -> dict:
        """The value of every name of the constraint language for one stage of a plan."""
        degrees = {"tp": 1, "cp": 1}
        for candidate in self.problem["profile"]["candidates"]:
            degrees |= dict.fromkeys(candidate["degrees"], 1)
        degrees |= setting.candidate["degrees"]
        return degrees | {
            "pp": stages,
            "dp": setting.replicas * setting.width / (degrees["tp"] * degrees["cp"]),
            "replicas": setting.replicas,
            "micro_batch": setting.candidate["samples"],
            "micro_batches": setting.micro_batches,
            "devices": setting.replicas * setting.width * stages,
            "width": setting.width,
            "schedule": setting.schedule,
            "rank_order": setting.rank_order,
            "zero": zero,
            "recompute": recompute,
        }

    def allow(self, setting: Setting, stages: int, recompute: str, zero: int) -> bool:
        """Whether a stage of such a plan may use this recompute mode and ZeRO stage."""
        search = self.problem.get("search")
        names = self.names(setting, stages, recompute, zero)
        return (
            zero in given(search, "zero", [0, 1, 2, 3])
            and recompute in given(search, "recompute", [recompute])
            and all(names[name] == value for name, value in self.equalities.items())
            and all(eval(text, {}, names) for text in self.expressions)
        )

    def modes(self, setting: Setting, stages: int) -> list[tuple[str, int]]:
        """The (recompute, zero) pairs a stage may use."""
        every = product(setting.candidate["recompute"], range(4))
        return [mode for mode in every if self.allow(setting, stages, *mode)]

    def joint_modes(self, modes: list[tuple[str, int]]):
        """Sets of modes from which each stage chooses freely; together they are all choices allowed."""
        recomputes = [{r} for r, _ in modes] if "recompute" in self.uniform else [{r for r, _ in modes}]
        zeros = [{z} for _, z in modes] if "zero" in self.uniform else [{z for _, z in modes}]
        seen = []
        for recompute, zero in product(recomputes, zeros):
            kept = [mode for mode in modes if mode[0] in recompute and mode[1] in zero]
            if kept and kept not in seen:
                seen.append(kept)
                yield kept

    def allow_partition(self, partition) -> bool:
        """Whether the stages, as tuples of layer indices, respect `same_stage` and `fixed.stages`."""
        names = self.problem["profile"]["layers"]
        stages = [{names[layer] for layer in stage} for stage in partition]
        if self.stages is not None and stages != [set(stage) for stage in self.stages]:
            return False
        return all(any(set(group) <= stage for stage in stages) for group in self.together)
