"""Section 5 of PROBLEM.md: try every plan, keep the best.

A plan is a setting, a split of the layers into stages or chunks, and per stage a candidate, a place and a mode
(recompute, ZeRO). All but modes are enumerated. Only three things are not spelled out, and `test_brute_force.py`
compares with a version that spells out all of them:

* a placement enters the cost through the levels of its boundaries only: equal level sequences are tried once;
* modes are chosen as `modes.py` says;
* stages whose compute alone, or in these modes without transfers, takes longer than a plan already found are left
  out, as neither what is sent nor where blocks lie takes time away.
"""

from dataclasses import dataclass
from itertools import chain
from math import inf

from tests.oracle.chunks import splits
from tests.oracle.costs import (
    Sent,
    Shared,
    can_run,
    compute_time,
    cuts_around,
    finding_weight_gradients,
    memory,
    messages,
    over,
    sent,
    stage_times,
    zero_times,
)
from tests.oracle.makespan import chunks_of, replayed
from tests.oracle.modes import Pricing, Timed, pricing_of
from tests.oracle.network import Network
from tests.oracle.partitions import downsets, partitions
from tests.oracle.parts import Recompute, on_stage
from tests.oracle.settings import Rules, Setting, hides_messages, settings

FITS = 1 + 1e-12
"""Memory may exceed the capacity by rounding, no more."""
TIE = 1 + 1e-12
"""Step times within this factor count as equal (PROBLEM.md section 5)."""
WORSE = 1 + 1e-9
"""What takes longer than the best plan by more than this factor is left out: far above rounding and ties."""


@dataclass(frozen=True)
class Answer:
    """The best plan; or none, with the smallest worst-stage memory of the plans allowed but for memory."""

    batch_time: float | None
    plan: dict | None
    reachable_memory: float | None


@dataclass(frozen=True)
class Option:
    """A mode of a stage with its memory.

    Attributes:
        mode: recompute mode and ZeRO stage.
        memory: bytes.
        time: seconds per micro-batch, at least; what is sent over boundaries aside.
        shared: what its parameter groups add.
    """

    mode: tuple[Recompute, int]
    memory: float
    time: float
    shared: Shared


@dataclass(frozen=True)
class Split:
    """The layers of the stages and of the chunks, the downsets between these, and the stage of each."""

    stages: tuple[tuple[int, ...], ...]
    runs: tuple[tuple[int, ...], ...]
    sets: tuple[frozenset[int], ...]
    route: tuple[int, ...]

    def own(self, stage: int) -> list[int]:
        """The chunks of a stage, all counted from 0."""
        return [chunk for chunk, home in enumerate(self.route) if home == stage]


def split_of(stages, runs, route) -> Split:
    return Split(tuple(stages), tuple(runs), tuple(downsets(runs)), tuple(route))


def alone(partition) -> Split:
    """Stages of one chunk each."""
    return split_of(partition, partition, range(len(partition)))


class Search:
    """The exhaustive search of one problem."""

    def __init__(self, problem: dict, fits: float = FITS) -> None:
        self.problem = problem
        self.network = Network(problem["cluster"])
        self.rules = Rules(problem)
        self.capacity = problem["cluster"]["memory"] * fits
        self.layers = problem["profile"]["layers"]
        self.best: dict[tuple[int, int], tuple[float, dict]] = {}
        self.limit = inf
        self.reachable = inf
        self.known_quickest = {}

    def run(self) -> Answer:
        every = partitions(len(self.layers), self.problem["profile"]["edges"])
        allowed = [p for p in every if self.rules.allow_partition(p) and self.rules.allow_run(p)]
        plain = [alone(partition) for partition in allowed]
        # Few micro-batches first: they often are the best, and the limit they set spares most of the others.
        for setting in sorted(settings(self.problem, self.network), key=lambda setting: setting.micro_batches):
            self.forget()
            for split in plain if setting.chunks == 1 else self.chunked(setting):
                if setting.pipeline.admits(len(split.stages), setting.micro_batches):
                    for chosen in setting.choices(len(split.stages)):
                        self.try_stages(setting, split, chosen)
        return self.answer()

    def chunked(self, setting: Setting) -> list[Split]:
        """Every split into stages of several chunks that the rules allow."""
        every = splits(self.problem, setting.pipeline, setting.micro_batches)
        return [split_of(*each) for each in every if self.rules.allow_partition(each[0])]

    def forget(self) -> None:
        """Forget what was remembered of another setting."""
        self.known_options = {}
        self.known_times = {}
        self.known_timed = {}
        self.known_sent = {}
        self.known_modes = {}
        self.known_levels = {}
        self.known_cuts = {}

    def levels(self, setting: Setting, widths) -> dict:
        """Each sequence of levels around blocks of these widths that there can be, with a placement that has it."""
        if widths not in self.known_levels:
            found, apart = {}, {}
            for offsets in setting.placements(widths):
                found.setdefault(setting.levels_around(self.network, widths, offsets, apart), offsets)
            self.known_levels[widths] = found
        return self.known_levels[widths]

    def modes(self, setting: Setting, candidate: dict, stages: int, devices: int) -> list[tuple[Recompute, int]]:
        """The modes a stage may use."""
        key = (candidate["name"], stages, devices)
        if key not in self.known_modes:
            self.known_modes[key] = self.rules.modes(setting, candidate, stages, devices)
        return self.known_modes[key]

    def option(self, setting: Setting, candidate: dict, runs, moments, entering, mode) -> Option:
        """What a stage is like in one mode, without regard to memory."""
        key = (candidate["name"], runs, moments, entering, mode)
        if key not in self.known_options:
            recompute, zero = on_stage(self.problem, runs, mode[0]), mode[1]
            size = memory(self.problem, candidate, setting, runs, recompute, zero, moments, entering)
            layers = tuple(sorted(layer for run in runs for layer in run))
            time, shared = self.times(setting, candidate, layers, (recompute, zero))
            self.known_options[key] = Option(mode, size, time, shared)
        return self.known_options[key]

    def times(self, setting: Setting, candidate: dict, layers, mode) -> tuple[float, Shared]:
        """The time of a stage in one mode, transfers and ports aside, and what its parameter groups add."""
        key = (candidate["name"], layers, mode)
        if key not in self.known_times:
            recompute, zero = mode
            groups, compute = self.sent(setting, candidate, layers), compute_time(candidate, layers, recompute)
            shared = zero_times(self.problem, groups, compute, zero)
            self.known_times[key] = (compute + shared.often, shared)
        return self.known_times[key]

    def timed(self, setting: Setting, candidate: dict, runs, weights, cuts, around, option: Option) -> Timed:
        """The option between boundaries of these levels; `runs`, `cuts` and `around` are those of each chunk."""
        key = (candidate["name"], runs, weights, cuts, around, option.mode)
        if key not in self.known_timed:
            arriving, returning = (
                messages(self.network, [each[end] for each in cuts], [each[end] for each in around]) for end in (0, 1)
            )
            recompute = on_stage(self.problem, runs, option.mode[0])
            times = stage_times(
                self.problem,
                setting,
                candidate,
                sorted(chain.from_iterable(runs)),
                recompute,
                option.shared,
                weights,
                arriving,
                returning,
            )
            chunks = ()
            if replayed(self.problem, setting.pipeline):
                ways = [[seconds for _, seconds in way] for way in (arriving, returning)]
                hides = hides_messages(self.problem, setting.schedule)
                chunks = chunks_of(candidate, runs, recompute, option.shared, *ways, hides, times[0])
            self.known_timed[key] = Timed(option.mode, *times, tuple(chunks))
        return self.known_timed[key]

    def sent(self, setting: Setting, candidate: dict, layers) -> list[Sent]:
        key = (candidate["name"], layers)
        if key not in self.known_sent:
            self.known_sent[key] = sent(self.problem, self.network, setting, candidate, layers)
        return self.known_sent[key]

    def quickest(self, candidate: dict, layers, weights) -> tuple[float, float]:
        """What compute alone takes with each layer of a stage in its quickest mode, and adds to the sum."""
        key = (candidate["name"], layers, weights[1:])
        if key not in self.known_quickest:
            _, first, second, third = weights
            quickest = [min(each) for each in zip(*(m["extra"] for m in candidate["recompute"].values()), strict=True)]
            time = sum(over(layers, row) for row in (candidate["forward"], candidate["backward"], quickest))
            forward, gradients = (
                over(layers, row) for row in (candidate["forward"], finding_weight_gradients(candidate))
            )
            rest = time - forward - gradients
            self.known_quickest[key] = (time, first * forward + second * rest + third * gradients)
        return self.known_quickest[key]

    def cuts(self, candidate: dict, sets, run: int) -> tuple[float, float]:
        key = (candidate["name"], sets[run - 1], sets[run])
        if key not in self.known_cuts:
            self.known_cuts[key] = cuts_around(self.problem, candidate, sets, run)
        return self.known_cuts[key]

    def try_stages(self, setting: Setting, split: Split, chosen) -> None:
        """Try every placement and mode of these stages, unless their compute alone is slower than the best plan."""
        widths = tuple(candidate["width"] for candidate in chosen)
        if sum(widths) > setting.replica_devices:
            return
        stages, devices = len(split.stages), setting.devices(chosen)
        weights = setting.pipeline.weights(setting.micro_batches, stages)
        least = [
            self.quickest(candidate, layers, weights) for candidate, layers in zip(chosen, split.stages, strict=True)
        ]
        if weights[0] * max(time for time, _ in least) + sum(filling for _, filling in least) > self.limit:
            return
        modes = [self.modes(setting, candidate, stages, devices) for candidate in chosen]
        if not all(modes):
            return
        levels = self.levels(setting, widths)
        if not levels:
            return
        owned = [split.own(stage) for stage in range(stages)]
        cuts = [
            tuple(self.cuts(candidate, split.sets, chunk + 1) for chunk in own)
            for candidate, own in zip(chosen, owned, strict=True)
        ]
        held = [[split.runs[chunk] for chunk in own] for own in owned]
        every = [
            [
                self.option(
                    setting,
                    candidate,
                    tuple(held[stage]),
                    setting.pipeline.moments(stage + 1, stages, setting.micro_batches),
                    tuple(front for front, _ in cuts[stage]),
                    mode,
                )
                for mode in modes[stage]
                if can_run(candidate, split.stages[stage], on_stage(self.problem, held[stage], mode[0]))
            ]
            for stage, candidate in enumerate(chosen)
        ]
        if not all(every):
            return
        for options in self.together(every):
            self.reachable = min(self.reachable, max(min(o.memory for o in stage) for stage in options))
            fitting = [[o for o in stage if o.memory <= self.capacity] for stage in options]
            if all(fitting):
                self.try_placements(setting, split, chosen, weights, owned, cuts, levels, fitting)

    def together(self, every: list[list[Option]]):
        """The options from which each stage chooses freely: all of them, unless a rule asks for uniform modes."""
        if not self.rules.uniform:
            yield every
            return
        for kept in self.rules.joint_modes([option.mode for stage in every for option in stage]):
            options = [[option for option in stage if option.mode in kept] for stage in every]
            if all(options):
                yield options

    def try_placements(self, setting: Setting, split: Split, chosen, weights, owned, cuts, levels, fitting) -> None:
        """Try every sequence of levels with the best modes there."""
        pricing = self.pricing(setting, weights)
        # What is left of the sum without transfers and ports is not known where parts weigh differently.
        least = [min(option.time for option in stage) for stage in fitting]
        if weights[0] * max(least) + (weights[1] * sum(least) if pricing.aligned else 0.0) > self.limit:
            return
        key = (setting.devices(chosen), len(chosen))
        for around, offsets in levels.items():
            options = [
                [
                    self.timed(
                        setting,
                        candidate,
                        tuple(split.runs[chunk] for chunk in owned[stage]),
                        weights,
                        cuts[stage],
                        tuple((around[chunk], around[chunk + 1]) for chunk in owned[stage]),
                        option,
                    )
                    for option in fitting[stage]
                ]
                for stage, candidate in enumerate(chosen)
            ]
            known, _ = self.best.get(key, (inf, None))
            for total, modes in pricing.choices(options, min(known, self.limit)):
                if key not in self.best or total < self.best[key][0]:
                    self.best[key] = (total, describe(setting, split, chosen, offsets, modes))
                    self.limit = min(self.limit, total * WORSE)

    def pricing(self, setting: Setting, weights) -> Pricing:
        return pricing_of(self.problem, setting.pipeline, setting.micro_batches, weights)

    def answer(self) -> Answer:
        if not self.best:
            return Answer(None, None, None if self.reachable == inf else self.reachable)
        least = min(total for total, _ in self.best.values())
        _, plan = min((key, plan) for key, (total, plan) in self.best.items() if total <= least * TIE)[:2]
        return Answer(least, plan, None)


def describe(setting: Setting, split: Split, chosen, offsets, modes) -> dict:
    """A plan as decisions only, layers by index."""
    return {
        "replicas": setting.replicas,
        "rank_order": setting.rank_order,
        "schedule": setting.schedule,
        "chunks": setting.chunks,
        "zero_degree": setting.zero_degree,
        "stages": [
            {
                "layers": list(layers),
                "candidate": candidate["name"],
                "offset": offset,
                "recompute": recompute,
                "zero": zero,
                "chunks": [list(split.runs[chunk]) for chunk in split.own(stage)] if setting.chunks > 1 else None,
            }
            for stage, (layers, candidate, offset, (recompute, zero)) in enumerate(
                zip(split.stages, chosen, offsets, modes, strict=True)
            )
        ],
    }


def solve(problem: dict, fits: float = FITS) -> Answer:
    """The best of all plans of a profile problem in SI numbers; memory may be so many times the capacity."""
    return Search(problem, fits).run()
