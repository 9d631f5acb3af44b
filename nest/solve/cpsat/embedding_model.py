"""The CP-SAT model of `nest.solve.placement`: which leaf of a block lies on which device.

Seconds are rounded down to ticks (`scaling`), so CP-SAT's bound in seconds is below every placement's real time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy
from attrs import field, frozen
from ortools.sat.python import cp_model
from ortools.sat.python.cp_model import IntVar, LinearExpr

from nest.solve.cpsat.scaling import Scale, scale
from nest.solve.placement.problem import Block, EmbeddingProblem, Link, Mask, Placement

SEED = 0

TERMS = 5
"""Numbers rounded on their own that make up a stage's time: what is fixed, two boundaries, their returns, sharding."""

Leaf = tuple[int, int, int]
"""A replica, a stage, and the number of a leaf in its block."""


def ask(
    problem: EmbeddingProblem, known: float, least: Sequence[float], effort: float
) -> tuple[Placement | None, float]:
    """The best placement within so many deterministic seconds, and the seconds that no placement is below.

    One worker is asked, so that the answer is always the same; None: it found no placement.

    Args:
        problem: what is asked.
        known: seconds of the start.
        least: seconds that each link takes at least.
        effort: deterministic seconds.
    """
    model = _Model(problem, scale(problem.weights, len(problem.widths), known, TERMS))
    model.place()
    model.break_symmetry()
    model.minimise(known, least)
    model.hint()
    solver = cp_model.CpSolver()
    solver.parameters.random_seed = SEED
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = effort
    status = solver.status_name(solver.solve(model.model))
    bound = model.scale.seconds(solver.best_objective_bound)
    return model.placement(solver) if status in ("OPTIMAL", "FEASIBLE") else None, bound


@frozen(eq=False)
class _Model:
    problem: EmbeddingProblem
    scale: Scale
    model: cp_model.CpModel = field(factory=cp_model.CpModel)
    cells: dict[Leaf, list[IntVar]] = field(factory=dict)
    exceeded: dict[tuple[object, ...], IntVar] = field(factory=dict)
    together: dict[tuple[Block, ...], list[IntVar]] = field(factory=dict)
    aligned: dict[int, IntVar] = field(factory=dict)

    def place(self) -> None:
        """Every leaf gets its devices, every device one leaf at most, and blocks are compact."""
        problem = self.problem
        for replica, stage in problem.blocks:
            for number, width in enumerate(problem.leaves(stage)):
                cells = [self.model.new_bool_var("") for _ in range(problem.devices)]
                self.model.add(sum(cells) == width)
                self.cells[replica, stage, number] = cells
        for column in zip(*self.cells.values(), strict=True):
            self.model.add_at_most_one(column)
        for replica, stage in problem.blocks:
            leaves = problem.leaves(stage)
            for mine in range(len(leaves)):
                for other in range(len(leaves)):
                    good = problem.compact[problem.meeting[mine, other]]
                    missing = 1 if mine == other else 0
                    if leaves[other] > missing:
                        one, two = self.cells[replica, stage, mine], self.cells[replica, stage, other]
                        self._each_meets(one, [two], good, leaves[other] - missing, [])

    def _each_meets(
        self,
        one: Sequence[IntVar],
        others: Sequence[Sequence[IntVar]],
        good: Mask,
        count: int,
        unless: Sequence[IntVar],
    ) -> None:
        """Each device of `one` has `count` devices of `others` among its good ones, or one of `unless` holds."""
        for device, cell in enumerate(one):
            near = [cells[other] for other in numpy.flatnonzero(good[device]).tolist() for cells in others]
            if len(near) < count:
                self.model.add_bool_or([cell.negated(), *unless])
            elif count == 1:
                self.model.add_bool_or([cell.negated(), *unless, *near])
            else:
                self.model.add(LinearExpr.sum([*near, *[count * each for each in unless]]) >= count * cell)

    def block(self, block: Block) -> list[list[IntVar]]:
        """The cells of all leaves of a block."""
        replica, stage = block
        return [self.cells[replica, stage, number] for number in range(len(self.problem.leaves(stage)))]

    def break_symmetry(self) -> None:
        """Replicas are alike, and so are leaves that meet the others of their block alike: lower devices first."""
        replicas = range(self.problem.replicas)
        sums = [self._positions(self.block((replica, 0))) for replica in replicas]
        for first, second in pairwise(sums):
            self.model.add(first <= second)
        meeting = self.problem.meeting
        for replica, stage in self.problem.blocks:
            leaves = range(len(self.problem.leaves(stage)))
            for mine in leaves[:-1]:
                rest = [leaf for leaf in leaves if leaf not in (mine, mine + 1)]
                if (meeting[mine, rest] == meeting[mine + 1, rest]).all():
                    pair = [self._positions([self.cells[replica, stage, leaf]]) for leaf in (mine, mine + 1)]
                    self.model.add(pair[0] <= pair[1])

    def _positions(self, cells: Sequence[Sequence[IntVar]]) -> LinearExpr:
        terms = [(device, cell) for leaf in cells for device, cell in enumerate(leaf)]
        return LinearExpr.weighted_sum([cell for _, cell in terms], [device for device, _ in terms])

    def minimise(self, known: float, least: Sequence[float]) -> None:
        """The step time in ticks, no more than that of the start."""
        model, problem, scale = self.model, self.problem, self.scale
        times: list[list[LinearExpr]] = [[] for _ in problem.times]
        syncs: list[list[LinearExpr]] = [[] for _ in problem.syncs]
        for link, bound in zip(problem.links, least, strict=True):
            if link.stages:
                taken = self._taken(link, bound, scale.ticks)
                for touched in link.stages:
                    times[touched].append(taken)
            if link.sync is not None:
                syncs[link.sync].append(self._taken(link, bound, scale.sync_ticks))
        limit = scale.limit(known)
        # No stage takes longer in a placement that keeps the limit, and products stay within 64 bits.
        longest = limit // max(scale.slowest, scale.total, 1)
        slowest, sync = model.new_int_var(0, longest, ""), model.new_int_var(0, limit // scale.sync, "")
        stages = [model.new_int_var(0, longest, "") for _ in times]
        for stage, seconds, terms in zip(stages, problem.times, times, strict=True):
            model.add(stage >= LinearExpr.sum(terms) + scale.ticks(seconds))
            model.add(slowest >= stage)
        for seconds, terms in zip(problem.syncs, syncs, strict=True):
            model.add(sync >= LinearExpr.sum(terms) + scale.sync_ticks(seconds))
        for stage, least_time in zip(stages, problem.least_times, strict=False):
            model.add(stage >= scale.ticks(least_time))
        model.add(sync >= scale.sync_ticks(max(problem.least_syncs, default=0.0)))
        batch = scale.slowest * slowest + scale.total * LinearExpr.sum(stages) + scale.sync * sync
        model.add(batch <= limit)
        model.minimize(batch)

    def _taken(self, link: Link, bound: float, ticks: Callable[[float], int]) -> LinearExpr:
        """Ticks of a link: of its best level, and more for every step that is exceeded."""
        steps = sorted(set(link.seconds))
        aligned = self._aligned(link)
        variables, more = [], []
        for seconds, above in pairwise(steps):
            if ticks(above) == ticks(seconds):
                continue
            variables.append(self._exceeded(link, seconds))
            more.append(ticks(above) - ticks(seconds))
            if seconds < bound:
                self.model.add_bool_or([variables[-1]] if aligned is None else [variables[-1], aligned])
        taken = LinearExpr.weighted_sum(variables, more) + ticks(steps[0])
        if aligned is None:
            return taken
        link_ticks = ticks(link.aligned_seconds)
        either = self.model.new_int_var(min(link_ticks, ticks(steps[0])), max(link_ticks, ticks(steps[-1])), "")
        used = self.model.new_bool_var("")
        self.model.add_implication(used, aligned)
        self.model.add(either >= taken).only_enforce_if(used.negated())
        self.model.add(either >= link_ticks).only_enforce_if(used)
        return either

    def _exceeded(self, link: Link, seconds: float) -> IntVar:
        """Whether some pair of a link may take longer than so many seconds."""
        good = self.problem.within(link, seconds)
        key = (link.groups, link.inside, good.tobytes())
        if key not in self.exceeded:
            self.exceeded[key] = exceeded = self.model.new_bool_var("")
            for group in link.groups:
                self._meet(group, link.inside, good, exceeded)
        return self.exceeded[key]

    def _meet(self, group: Sequence[Block], inside: bool, good: Mask, exceeded: IntVar) -> None:
        """All devices of a group of blocks are good for each other, or it is exceeded."""
        widths = [self.problem.widths[stage] for _, stage in group]
        cells = [self.block(block) for block in group]
        if inside or set(widths) == {1}:
            # Every two devices, whatever their blocks.
            if sum(widths) > 1:
                together = self._together(tuple(group))
                self._each_meets(together, [together], good, sum(widths) - 1, [exceeded])
            return
        for index, block in enumerate(cells):
            others = [leaf for other, rest in enumerate(cells) if other != index for leaf in rest]
            if others:
                for leaf in block:
                    self._each_meets(leaf, others, good, sum(widths) - widths[index], [exceeded])

    def _together(self, group: tuple[Block, ...]) -> list[IntVar]:
        """For each device whether one of the blocks lies on it."""
        if group not in self.together:
            leaves = [leaf for block in group for leaf in self.block(block)]
            self.together[group] = [self.model.new_bool_var("") for _ in range(self.problem.devices)]
            for device, cell in enumerate(self.together[group]):
                self.model.add(LinearExpr.sum([leaf[device] for leaf in leaves]) == cell)
        return self.together[group]

    def _aligned(self, link: Link) -> IntVar | None:
        """Whether the blocks of a link occupy one of its aligned sets; it may only be true where they do."""
        if not link.aligned:
            return None
        (group,) = link.groups
        stage = group[0][1]
        if stage not in self.aligned:
            chosen = [self.model.new_bool_var("") for _ in link.aligned]
            for choice, blocks in zip(chosen, link.aligned, strict=True):
                for block in group:
                    on = [sum(leaf[device] for leaf in self.block(block)) for device in range(self.problem.devices)]
                    for devices in blocks:
                        for one, two in pairwise(devices):
                            self.model.add(on[one] == on[two]).only_enforce_if(choice)
                    inside = [device for devices in blocks for device in devices]
                    self.model.add(sum(on[device] for device in inside) == len(blocks[0])).only_enforce_if(choice)
            self.aligned[stage] = self.model.new_bool_var("")
            self.model.add_bool_or([self.aligned[stage].negated(), *chosen])
        return self.aligned[stage]

    def hint(self) -> None:
        """Tell CP-SAT of the start."""
        for (replica, stage, number), cells in self.cells.items():
            first = number * self.problem.leaf
            own = set(self.problem.start[replica][stage][first : first + self.problem.leaf])
            for device, cell in enumerate(cells):
                self.model.add_hint(cell, device in own)

    def placement(self, solver: cp_model.CpSolver) -> Placement:
        """The devices of each block; the order of devices inside a leaf is theirs."""

        def devices(block: Block) -> tuple[int, ...]:
            leaves = self.block(block)
            return tuple(device for leaf in leaves for device, cell in enumerate(leaf) if solver.value(cell))

        stages = range(len(self.problem.widths))
        return tuple(tuple(devices((replica, stage)) for stage in stages) for replica in range(self.problem.replicas))
