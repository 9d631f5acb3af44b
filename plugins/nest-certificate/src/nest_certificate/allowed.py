"""Choices that constraints and targets allow in each case of the plan space."""

from collections import defaultdict
from typing import Any

from nest.instance import Candidate, Instance, chunks_of, recompute_values
from nest.spec.constraints import Constraint
from nest_certificate.rules import Case
from nest_certificate.rules import Instance as Numbers

Choice = tuple[str, int]
Sets = tuple[tuple[Choice, ...], ...]


def allowed_choices(instance: Instance, numbers: Numbers) -> dict[str, Any] | None:
    """For each case with plans the index of its sets of choices, and these; None: no constraint reads any."""
    constraints = [each for each in instance.space.constraints if not each.same_stage]
    if not constraints:
        return None
    rules, cases, sets = _Rules(instance, constraints), defaultdict[str, dict[str, int]](dict), dict[Sets, int]()
    for case in numbers.cases:
        found = rules.sets(case)
        if found:
            key = ",".join(map(str, (case.candidate, case.replicas, case.order, case.schedule, case.degree)))
            cases[key][str(case.stages)] = sets.setdefault(found, len(sets))
    return {"sets": list(sets), "cases": dict(cases)}


class _Rules:
    """Constraints of an instance, cached by the values that they read."""

    def __init__(self, instance: Instance, constraints: list[Constraint]) -> None:
        self.instance = instance
        self.uniform = {each.uniform for each in constraints if each.uniform}
        named = [(each, tuple(sorted(each.names()))) for each in constraints if not each.uniform]
        self.of_plans = [each for each in named if not each[0].per_stage]
        self.of_stages = [each for each in named if each[0].per_stage]
        self.stage_names = sorted({name for _, names in self.of_stages for name in names})
        self.known: dict[Any, bool] = {}
        self.known_sets: dict[Any, Sets] = {}

    def holds(self, constraint: Constraint, names: tuple[str, ...], values: dict[str, Any]) -> bool:
        key = (constraint.text, *(values[name] for name in names))
        if key not in self.known:
            self.known[key] = constraint.holds({name: values[name] for name in names})
        return self.known[key]

    def sets(self, case: Case) -> Sets:
        """Sets of choices, from one of which every stage of a plan takes its own."""
        values = plan_values(self.instance, case)
        if not all(self.holds(*each, values) for each in self.of_plans):
            return ()
        names = self.instance.recompute_names(case.candidate)
        chosen = {"zero", "recompute", "recompute_layers"}
        key = (names, *(values[name] for name in self.stage_names if name not in chosen))
        if key not in self.known_sets:
            self.known_sets[key] = self._stage_sets(names, values)
        return self.known_sets[key]

    def _stage_sets(self, names: tuple[str, ...], values: dict[str, Any]) -> Sets:
        space, alike = self.instance.space, defaultdict[Any, list[Choice]](list)
        for name in names:
            for zero in space.zero:
                own = values | {"zero": zero, **recompute_values(space, name)}
                if all(self.holds(*each, own) for each in self.of_stages):
                    uniform = (name if "recompute" in self.uniform else "", zero if "zero" in self.uniform else -1)
                    alike[uniform].append((name, zero))
        return tuple(map(tuple, alike.values()))


def plan_values(instance: Instance, case: Case) -> dict[str, Any]:
    """Values of the names of constraints on a plan (docs/reference/constraints.md), by default 1."""
    candidate: Candidate = instance.candidates[case.candidate]
    schedule, degrees, samples = instance.space.schedules[case.schedule], candidate.degrees, candidate.samples
    ranks = _share(case.replicas * candidate.width, degrees.get("tp", 1) * degrees.get("cp", 1))
    size = samples if candidate.micro_batch is None else candidate.micro_batch
    values: dict[str, Any] = defaultdict(lambda: 1, degrees)
    return values | {
        "pp": case.stages,
        "devices": case.replicas * candidate.width * case.stages,
        "dp": ranks if candidate.micro_batch is None else _share(case.replicas * samples, size),
        "zero_degree": ranks if case.degree is None else case.degree,
        "replicas": case.replicas,
        "micro_batch": size,
        "micro_batches": case.batches,
        "width": candidate.width,
        "rank_order": instance.space.rank_orders[case.order],
        "schedule": schedule.name,
        "chunks": chunks_of(schedule),
    }


def _share(whole: int, among: int) -> int | float:
    return whole / among if whole % among else whole // among
