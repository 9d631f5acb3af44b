"""Nearby runs with up to three changes: the nearest that fit, and those that gain.

Prices are those of `nest evaluate`. A change is shown as added and removed lines of the framework's own file if its
exporter writes one for both plans and the run's own file has the removed ones. A run without a file has the words of
`fixed`, and so has a file's run if no change has lines.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from nest.deployment import Limits, violations
from nest.documents.document import fixed_document
from nest.errors import InputError
from nest.formulate.fixed_plan import fixed_plan
from nest.formulate.launched import launched_with
from nest.formulate.problem import decided_problem
from nest.formulate.risk import admits
from nest.formulate.target import limits_of
from nest.hooks.registry import Registry
from nest.io.source import read_text_of
from nest.plan.evaluate import evaluate
from nest.report.changed_lines import Files, Lines, changed_lines, content_of, flag_of
from nest.spec import Fixed, PlanDocument, Problem
from nest.tolerances import AGREEMENT
from nest.units import percent

FITTING = 3  # Suggested changes for a run that does not fit.
GAIN = 0.01  # Share of the step time that a change must save to be told.
WIDEST = 6  # Changes of each number that are tried together with a further one, those that need least memory.

OVERLAP = "overlap."
Decided = Mapping[str, Any]
Diff = tuple[Lines, Lines]  # Removed and added.


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
        return len({flag_of(line) for line in (*self.removed, *self.added)})

    def sentence(self, before: PlanDocument) -> str:
        """Describe the time saved per step."""
        flags = f"`{' '.join(self.added)}`" if self.added else f"leaving `{' '.join(self.removed)}` out"
        saved = 1 - (self.plan.batch_time or 0.0) / (before.batch_time or 1.0)
        return f"One change saves {percent(saved)} of its step time: {flags}."

    def to_dict(self) -> dict[str, Any]:
        """The change in plain mappings, lists and numbers."""
        return {
            "decided": dict(self.decided),
            "flags": {"removed": list(self.removed), "added": list(self.added)},
            "batch_time": self.plan.batch_time,
            "memory": max(stage.memory for stage in self.plan.stages),
            "fit_probability": self.plan.fit_probability,
        }


@define
class Changes:
    """The changes of a run.

    Attributes:
        problem: with the run's decisions in `fixed`.
        plan: the run today.
        target: name of the framework's exporter; None: unknown.
        known: registered exporters and the like.
        devices: of the run.
        file: the run's own; None: it has none.
        worded: whether changes without lines, which `unshown` notes, have words.
    """

    problem: Problem
    plan: PlanDocument
    target: str | None
    known: Registry
    devices: int
    file: Path | None = None
    worded: bool = False
    unshown: bool = field(default=False, init=False)

    def fitting(self) -> list[Change]:
        """Up to three changes that fit, those of fewest flags first, then by step time, without duplicates."""
        found: dict[frozenset[str], Change] = {}
        tried: list[tuple[Decided, ...]] = [(one,) for one in self._single]
        for count in (1, 2, 3):
            priced = sorted(
                ((self._priced(each), index, each) for index, each in enumerate(tried)), key=lambda each: each[:2]
            )
            for (need, seconds), _, each in priced:
                if need or len(found) >= FITTING + WIDEST or _beaten(_together(each), seconds, found.values()):
                    continue
                if (made := self._made(each)) is not None:
                    found.setdefault(frozenset(made.decided), made)
            if len(found) >= FITTING or count == 3:
                break
            short = (each for (need, _), _, each in priced if 0 < need < float("inf") and self._made(each) is not None)
            tried = list(self._further([*islice(short, WIDEST)]))
        nearest = sorted(found.values(), key=lambda each: (each.flags, each.plan.batch_time or 0.0))[:FITTING]
        return nearest or self._in_other_words(Changes.fitting)

    def gaining(self) -> list[Change]:
        """Single changes that fit and save more than `GAIN` of the step time, the fastest of each kind first."""
        found: dict[str, Change] = {}
        priced = sorted(
            ((self._priced((each,))[::-1], index, each) for index, each in enumerate((*self._single, *self._overlaps))),
            key=lambda each: each[:2],
        )
        for (seconds, need), _, each in priced:
            name = next(iter(each))
            if need or name in found or seconds >= (self.plan.batch_time or 0.0) * (1 - GAIN):
                continue
            if (made := self._made((each,))) is not None:
                found[name] = made
        return list(found.values()) or self._in_other_words(Changes.gaining)

    def _in_other_words(self, find: "Callable[[Changes], list[Change]]") -> list[Change]:
        """Changes in words, if some lacked lines and the run's file launches no fork or other back end."""
        lacks: Any = getattr(self.known.exporters().get(self.target or ""), "lacks", lambda *_: False)
        worded = self.unshown and not self.worded and not lacks(["fixed."], self._text)
        return find(evolve(self, worded=True)) if worded else []

    def _further(self, best: Sequence[tuple[Decided, ...]]) -> Iterator[tuple[Decided, ...]]:
        """Each of `best` with one more change of another decision, without duplicates."""
        seen = set[frozenset[tuple[str, Any]]]()
        for each in best:
            for one in self._single:
                key = frozenset(_together((*each, one)).items())
                if not {*one} & {*_together(each)} and key not in seen:
                    seen.add(key)
                    yield (*each, one)

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
        values, limits = self.plan_values, self._limits(self.problem)
        sequence = limits is None or limits.strategies is None or "sp" in limits.strategies
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
        others = ((name, value) for name, each in choices.items() for value in each if value != values.get(name, 1))
        for name, value in others:
            if name == "chunks" and values["pp"] > 1:
                yield {"chunks": value, "schedule": "interleaved" if value > 1 else "1f1b"}
            elif name == "tp" and values.get("tp", 1) == 1:
                yield {"tp": value, "sp": True} if sequence else {"tp": value}
            elif name != "chunks" and (name not in ("tp", "pp", "cp") or self.devices % value == 0):
                yield {name: value}

    def _limits(self, problem: Problem) -> Limits | None:
        """Limits of the framework; None: no exporter writes its files, or none of this model."""
        try:
            return self.known.run(lambda: limits_of(self.target or "", problem, self.known, "search.target"))
        except InputError:
            return None

    @cached_property
    def plan_values(self) -> dict[str, Any]:
        """Values of the run's decisions."""
        values = self.problem.fixed.values if self.problem.fixed is not None else {}
        return {"pp": len(self.plan.stages), "recompute": "none", "zero": 0, **values}

    def _problem(self, decided: Sequence[Decided]) -> Problem:
        """The problem with changed decisions."""
        every = _together(decided)
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
        return 0.0 if admits(self.problem, priced) else need, priced.batch_time

    def _made(self, decided: Sequence[Decided]) -> Change | None:
        """The change with its plan; None: the framework cannot run it, or the problem does not allow it."""
        problem = self._problem(decided)
        plan = fixed_document(problem, self.known)
        if _breaches(plan) - _breaches(self.plan):
            return None
        every = _together(decided)
        if (limits := self._limits(problem)) is None:
            return self._shown(every, plan, problem, None)
        if {*violations(plan, limits, "")} - {*violations(self.plan, limits, "")}:
            return None
        (before, plain), after = self._lines, self._lines_of(plan)
        after = after or (self._plain(decided) if plain else None)
        if before is not None and (after is None or after[0] != before[0]):
            return None  # The release that reads the run's file cannot run the changed plan.
        made = self._shown(every, plan, problem, self._diff(before, after, plan) if before and after else None)
        self.unshown |= made is None
        return made or (self._in_words(every, plan, problem) if self.worded else None)

    def _diff(self, before: Files, after: Files, plan: PlanDocument) -> Diff | None:
        """Removed and added lines of the run's file; None: it cannot show them."""
        return changed_lines(before, after, self._text, batches=plan.micro_batches != self.plan.micro_batches)

    def _shown(self, decided: Decided, plan: PlanDocument, problem: Problem, lines: Diff | None) -> Change | None:
        """The change by lines or keys of single decisions, without a file in words; None: the framework lacks them."""
        exporter: Any = self.known.exporters().get(self.target or "")
        if self.file is None:
            return Change(decided, plan, *lines) if lines else self._in_words(decided, plan, problem)
        if lines is None and hasattr(exporter, "keys_of"):
            now = {name: self.plan_values.get(name, 0 if name.startswith(OVERLAP) else 1) for name in decided}
            sides = ((now, self.plan), (decided, plan))
            keys = [exporter.keys_of(side, each.micro_batches, self._text) for side, each in sides]
            old, new = (("", content_of(each), ()) for each in keys)
            lines = self._diff(old, new, plan) if all(keys) else None
        lacks = getattr(exporter, "lacks", lambda *_: False)
        return Change(decided, plan, *lines) if lines and not lacks(lines[1], self._text) else None

    @cached_property
    def _text(self) -> str | None:
        return read_text_of(self.file) if self.file else None

    def _in_words(self, decided: Decided, plan: PlanDocument, problem: Problem) -> Change:
        before, after = self.problem.fixed or Fixed({}), problem.fixed or Fixed({})
        even = ("stages even",) if before.stages is not None and after.stages is None else ()
        steps = (f"micro-batches {plan.micro_batches}",) if plan.micro_batches != self.plan.micro_batches else ()
        old = _worded({name: before.values[name] for name in decided if name in before.values})
        return Change(decided, plan, old, (*_worded(decided), *steps, *even))

    @cached_property
    def _lines(self) -> tuple[Files | None, bool]:
        """Lines of the run, and whether they leave out recomputation that its exporter does not write."""
        whole = self._lines_of(self.plan)
        return whole or self._plain(()), whole is None

    def _plain(self, decided: Sequence[Decided]) -> Files | None:
        """Lines of the changed run without recomputation, of which the exporter lacks what both sides have."""
        return self._lines_of(fixed_document(self._problem((*decided, {"recompute": "none"})), self.known))

    def _lines_of(self, plan: PlanDocument) -> Files | None:
        """The exporter's first file: its name, its lines, the others that it names; None: it refuses the plan."""
        exporter = self.known.exporters()[self.target or ""]
        try:
            files = self.known.run(lambda: exporter.export(plan))
        except InputError:
            return None
        first, *others = files
        spelled, apart = getattr(exporter, "spelled", None), getattr(exporter, "apart", ())
        content = spelled(files[first], self._text) if spelled and self.file else files[first]
        named = tuple(files[name] for name in others if name in files[first] or name in apart)
        return first, content_of(content), named


def _worded(decided: Decided) -> Lines:
    return tuple(f"{name} {str(each).lower() if isinstance(each, bool) else each}" for name, each in decided.items())


def _together(decided: Sequence[Decided]) -> dict[str, Any]:
    return {name: value for each in decided for name, value in each.items()}


def _beaten(decided: Decided, seconds: float, found: Iterable[Change]) -> bool:
    """Whether a part of `decided` fits and is as fast."""
    return any(
        each.decided.items() <= decided.items() and (each.plan.batch_time or 0.0) <= seconds * (1 + AGREEMENT)
        for each in found
    )


def _breaches(plan: PlanDocument) -> set[str]:
    """Constraints that a plan violates, and its decisions that the problem does not allow."""
    return {*plan.violates, *(plan.outside or ())}


def changes_of(
    problem: Problem,
    plan: PlanDocument,
    target: str | None,
    known: Registry,
    devices: int | None = None,
    file: Path | None = None,
) -> Changes:
    """Changes of the run in `problem.fixed`, read from `file`, on so many devices; None: those it uses."""
    used = int(plan.summary.get("devices_used") or 1)
    return Changes(decided_problem(problem, None, known), plan, target, known, devices or used, file)
