"""Nearby runs with up to three changes: the nearest that fit, and those that gain.

Prices are those of `nest evaluate`. A change is shown as added and removed lines of the framework's own file if its
exporter writes one for both plans, else in the words of `fixed`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from attrs import define, evolve, frozen

from nest.deployment import violations
from nest.documents.document import fixed_document
from nest.errors import InputError
from nest.formulate.fixed_plan import fixed_plan
from nest.formulate.launched import launched_with
from nest.formulate.problem import decided_problem
from nest.formulate.risk import likely_enough
from nest.hooks.registry import Registry
from nest.plan.evaluate import evaluate
from nest.spec import PlanDocument, Problem
from nest.units import percent

FITTING = 3  # Suggested changes for a run that does not fit.
GAIN = 0.01  # Share of the step time that a change must save to be told.
MOST_LINES = 8  # Lines of a file that a change is shown by; of more it is shown in the words of `fixed`.
WIDEST = 6  # Changes of each number that are tried together with a further one, those that need least memory.

_FRAME = re.compile(r'#.*|"?\$\{\w+\[@\]\}"?|\w+=\(|[\[\]{}()]*')
"""Lines of a file without content: comments, and frames of an array."""

OVERLAP = "overlap."
Decided = Mapping[str, Any]


@frozen
class Change:
    """A run with other decisions."""

    decided: Decided  # In the words of `fixed` and of `training`.
    plan: PlanDocument  # Of the changed run.
    removed: tuple[str, ...]  # Lines of the framework's file.
    added: tuple[str, ...]  # Their replacements.

    @property
    def flags(self) -> int:
        """Number of changed flags."""
        return len({line.split()[0].partition("=")[0] for line in (*self.removed, *self.added)})

    def sentence(self, before: PlanDocument) -> str:
        """Describe the time saved per step."""
        flags = f"`{' '.join(self.added)}`" if self.added else f"leaving `{' '.join(self.removed)}` out"
        saved = 1 - (self.plan.batch_time or 0.0) / (before.batch_time or 1.0)
        return f"One change saves {percent(saved)} of its step time: {flags}."

    def to_dict(self) -> dict[str, Any]:
        """The change in plain mappings, lists and numbers."""
        plan = self.plan
        return {
            "decided": dict(self.decided),
            "flags": {"removed": list(self.removed), "added": list(self.added)},
            "batch_time": plan.batch_time,
            "memory": max(stage.memory for stage in plan.stages),
            "fit_probability": plan.fit_probability,
        }


@define
class Changes:
    """The changes of a run.

    Attributes:
        problem: with the run's decisions in `fixed`.
        plan: the run as it is.
        target: name of the framework's exporter; None: unknown.
        known: registered exporters and the like.
        devices: of the run.
    """

    problem: Problem
    plan: PlanDocument
    target: str | None
    known: Registry
    devices: int

    def fitting(self) -> list[Change]:
        """Up to three changes that fit, those of fewest flags first, then by step time, without duplicates."""
        found: dict[frozenset[str], Change] = {}
        tried: list[tuple[Decided, ...]] = [(one,) for one in self._single]
        for count in (1, 2, 3):
            priced = sorted(
                ((self._priced(each), index, each) for index, each in enumerate(tried)), key=lambda each: each[:2]
            )
            for (need, _), _, each in priced:
                if need == 0 and len(found) < FITTING + WIDEST and (made := self._made(each)) is not None:
                    found.setdefault(frozenset(made.decided), made)
            if len(found) >= FITTING or count == 3:
                break
            best = [each for (need, _), _, each in priced if 0 < need < float("inf")][:WIDEST]
            tried = list(self._further(best, count + 1))
        return sorted(found.values(), key=lambda each: (each.flags, each.plan.batch_time or 0.0))[:FITTING]

    def gaining(self) -> list[Change]:
        """Single changes that fit and save more than `GAIN` of the step time, the fastest of each kind first."""
        now = self.plan.batch_time or 0.0
        found: dict[str, Change] = {}
        priced = sorted(
            ((self._priced((each,))[::-1], index, each) for index, each in enumerate((*self._single, *self._overlaps))),
            key=lambda each: each[:2],
        )
        for (seconds, need), _, each in priced:
            name = next(iter(each))
            if need or name in found or seconds >= now * (1 - GAIN):
                continue
            if (made := self._made((each,))) is not None:
                found[name] = made
        return list(found.values())

    def _further(self, best: Sequence[tuple[Decided, ...]], count: int) -> Iterator[tuple[Decided, ...]]:
        """Each of `best` with one more change of another decision, without duplicates."""
        seen = set[frozenset[tuple[str, Any]]]()
        for each in best:
            for one in self._single:
                every = (*each, one)
                names = [name for decided in every for name in decided]
                key = frozenset((name, value) for decided in every for name, value in decided.items())
                if len({*names}) == len(names) and key not in seen and len(every) == count:
                    seen.add(key)
                    yield every

    @cached_property
    def _single(self) -> tuple[Decided, ...]:
        """Possible changes of one decision."""
        return tuple(self._decisions())

    @property
    def _overlaps(self) -> list[Decided]:
        """Communication that could overlap and does not."""
        overlap = self.problem.training.overlap
        return [{OVERLAP + name: True} for name in ("data", "tensor", "experts") if not getattr(overlap, name)]

    def _decisions(self) -> Iterator[Decided]:
        values = self.plan_values
        powers = [2**power for power in range(11)]
        choices: dict[str, Sequence[Any]] = {
            "recompute": ("none", "selective", "full"),
            "micro_batch": powers[:5],
            "tp": powers[:7],
            "pp": powers,
            "cp": powers[:6],
            **({"ep": powers[:8]} if "ep" in values else {}),
            "zero": (0, 1, 2, 3),
            "chunks": powers[:4],
        }
        for name, each in choices.items():
            for value in each:
                if value == values.get(name, 1) or (name == "chunks" and values["pp"] == 1):
                    continue
                if name == "recompute":
                    yield {"recompute": value}
                elif name == "chunks":
                    yield {"chunks": value, "schedule": "interleaved" if value > 1 else "1f1b"}
                elif name == "tp" and values.get("tp", 1) == 1:
                    yield {"tp": value, "sp": True}
                elif name not in ("tp", "pp", "cp") or self.devices % value == 0:
                    yield {name: value}

    @cached_property
    def plan_values(self) -> dict[str, Any]:
        """Values of the run's decisions."""
        fixed = self.problem.fixed
        values = dict(fixed.values) if fixed is not None else {}
        return {"pp": len(self.plan.stages), "recompute": "none", "zero": 0, **values}

    def _problem(self, decided: Sequence[Decided]) -> Problem:
        """The problem with changed decisions."""
        every = {name: value for each in decided for name, value in each.items()}
        overlap = {name.removeprefix(OVERLAP): every.pop(name) for name in list(every) if name.startswith(OVERLAP)}
        training = self.problem.training
        problem = evolve(self.problem, training=evolve(training, overlap=evolve(training.overlap, **overlap)))
        return launched_with(problem, every, self.devices)

    def _priced(self, decided: Sequence[Decided]) -> tuple[float, float]:
        """Missing bytes per device, 0 if likely enough to fit, and step time of a run; infinite: none."""
        try:
            instance, solution, _ = fixed_plan(self._problem(decided), self.known)
            priced = evaluate(instance, solution)
        except (InputError, ValueError):
            return float("inf"), float("inf")
        need = max(stage.memory for stage in priced.stages)
        return 0.0 if likely_enough(priced.fit_probability) else need, priced.batch_time

    def _made(self, decided: Sequence[Decided]) -> Change | None:
        """The change with its plan; None: the framework cannot run it."""
        problem = self._problem(decided)
        plan = fixed_document(problem, self.known)
        every = {name: value for each in decided for name, value in each.items()}
        if self.target is None:
            return self._in_words(every, plan)
        exporter = self.known.exporters().get(self.target)
        if exporter is None or not hasattr(exporter, "limits"):
            return self._in_words(every, plan)
        limits = self.known.run(lambda: exporter.limits(problem))
        own = {*violations(self.plan, limits, self.target)}
        if {*violations(plan, limits, self.target)} - own:
            return None
        before, after = self._lines, self._lines_of(plan)
        if before is None:
            return self._in_words(every, plan)
        if after is None:
            return None
        removed, added = (
            tuple(line for line in one if line not in other) for one, other in ((before, after), (after, before))
        )
        if (not removed and not added) or len(removed) + len(added) > MOST_LINES:
            return self._in_words(every, plan)
        return Change(every, plan, removed, added)

    def _in_words(self, decided: Decided, plan: PlanDocument) -> Change:
        values = {} if self.problem.fixed is None else self.problem.fixed.values
        names = [name for name in decided if name in values]
        return Change(
            decided,
            plan,
            tuple(f"{name} {values[name]}" for name in names),
            tuple(
                f"{name} {str(value).lower() if isinstance(value, bool) else value}" for name, value in decided.items()
            ),
        )

    @cached_property
    def _lines(self) -> tuple[str, ...] | None:
        return self._lines_of(self.plan)

    def _lines_of(self, plan: PlanDocument) -> tuple[str, ...] | None:
        """Lines of the exporter's first file, without comments; None: it refuses the plan."""
        assert self.target is not None
        exporter = self.known.exporters()[self.target]
        try:
            files = self.known.run(lambda: exporter.export(plan))
        except InputError:
            return None
        lines = (line.strip().rstrip(",") for line in next(iter(files.values())).splitlines())
        return tuple(line for line in lines if not _FRAME.fullmatch(line))


def changes_of(
    problem: Problem, plan: PlanDocument, target: str | None, known: Registry, devices: int | None = None
) -> Changes:
    """Changes of the run in `problem.fixed` on so many devices; None: those it uses."""
    used = int(plan.summary.get("devices_used") or 1)
    return Changes(decided_problem(problem, None, known), plan, target, known, devices or used)
