"""Each term of the cost model switched off in turn: what that does to errors and to the order of plans."""

from collections.abc import Sequence
from pathlib import Path

import numpy
from attrs import evolve, frozen

from benchmarks.fidelity.predictions import Array, Fold, Generation, Table, gathered, spread
from benchmarks.fidelity.ranking import Agreement, agreement, task_sets
from benchmarks.fidelity.refit import refitted
from benchmarks.fidelity.runs import Told
from benchmarks.fidelity.terms import WITHOUT, Plugin, Term, Without
from nest.hooks.protocols import CostModel
from nest.hooks.registry import Registry, registry
from nest_calibrate.devices import Evidence
from nest_calibrate.generations import MeasuredRun, evidence, taken_apart
from nest_calibrate.lines import Line

NOTHING = 5e-4
"""Change of every mean error up to which a term is said to do nothing: what repeated fits may differ by."""


NOTHING_OFF = Term("(nothing)", "everything is on")
"""What the effects of terms are compared with."""


@frozen
class Effect:
    """What predictions are without a term, coefficients fitted to other families.

    Attributes:
        term: its name.
        off: what happens without it.
        runs: predictions it changes.
        kept: mean absolute error with the other coefficients as they were fitted with it.
        fitted: the same with the others fitted again.
        hurt: the group whose error grows most, coefficients fitted again.
        before: the group's error with the term.
        after: without.
        ranking: how well plans are put in order without it.
    """

    term: str
    off: str
    runs: int
    kept: float
    fitted: float
    hurt: str
    before: float
    after: float
    ranking: Agreement | None

    def idle(self, base: float) -> bool:
        """Whether it does nothing to speak of, `base` being the mean error with it."""
        return max(abs(self.kept - base), abs(self.fitted - base), abs(self.after - self.before)) <= NOTHING


def ablation(table: Table, costs: CostModel, terms: Sequence[Term], told: Told) -> list[Effect]:
    """The effect of nothing at all, and of each of `terms`.

    All unknowns are first fitted once more in the way that is used without a term, so that only the term differs.
    """
    told("with everything on")
    again = tuple(evolve(each, folds=tuple(refitted(each.evidence, each.folds))) for each in table.generations)
    base = gathered(again, [each.validated for each in again], len(table.runs))
    table = evolve(table, generations=again, validated=base)
    return [effect(table, NOTHING_OFF, base, base), *(_effect(table, costs, term, told) for term in terms)]


def _effect(table: Table, costs: CostModel, term: Term, told: Told) -> Effect:
    kept, fitted = [], []
    for generation in table.generations:
        told(f"without {term.name}: {generation.name}")
        seen = without(generation, term, costs)
        frozen_there = generation.validated if seen is None else spread(seen, _left(generation.folds, seen))
        again = frozen_there
        if seen is not None and seen.unknowns and not numpy.allclose(frozen_there, generation.validated, rtol=1e-9):
            again = spread(seen, refitted(seen, _left(generation.folds, seen)))
        kept.append(frozen_there)
        fitted.append(again)
    count = len(table.runs)
    return effect(table, term, gathered(table.generations, kept, count), gathered(table.generations, fitted, count))


def effect(table: Table, term: Term, kept: Array, fitted: Array) -> Effect:
    """What predictions without a term amount to, the others `kept` as they were or `fitted` again."""
    runs = [each.run for each in table.runs]
    base, old, new = (numpy.abs(each / table.measured - 1) for each in (table.validated, kept, fitted))
    groups = sorted({run.group for run in runs})
    chosen = {name: numpy.array([run.group == name for run in runs]) for name in groups}
    hurt = max(groups, key=lambda name: float(new[chosen[name]].mean() - base[chosen[name]].mean()))
    return Effect(
        term=term.name,
        off=term.off,
        runs=int((~numpy.isclose(kept, table.validated, rtol=1e-9)).sum()),
        kept=float(old.mean()),
        fitted=float(new.mean()),
        hurt=hurt,
        before=float(base[chosen[hurt]].mean()),
        after=float(new[chosen[hurt]].mean()),
        ranking=agreement(task_sets(runs), fitted, table.measured),
    )


def _left(folds: Sequence[Fold], seen: Evidence) -> list[Fold]:
    """The folds with values of the unknowns that `seen` still has."""
    names = [each.name for each in seen.unknowns]
    return [evolve(fold, values={name: fold.values[name] for name in names}) for fold in folds]


def without(generation: Generation, term: Term, costs: CostModel) -> Evidence | None:
    """The evidence of a generation with a term switched off; None where it has no part in it."""
    seen = generation.evidence
    if term.problem is not None or term.price is not None:
        runs = changed(generation.runs, term, costs)
        if runs is None:
            return None
        priced = costs if term.price is None else Without(costs, term.price)
        seen = evolve(evidence(runs, priced), families=seen.families)
    unknowns = tuple(each for each in seen.unknowns if not term.unknown(each.name))
    devices = seen.devices
    if term.device is not None:
        devices = {name: term.device(device) for name, device in seen.devices.items()}
    return evolve(seen, unknowns=unknowns, devices=devices)


def changed(runs: Sequence[MeasuredRun], term: Term, costs: CostModel) -> tuple[MeasuredRun, ...] | None:
    """The runs as they are without a term; None where they are the same."""
    known: Registry = registry()
    if term.price is not None:
        known = registry([Plugin(Without(costs, term.price))])
    found = []
    for each in runs:
        problem = each.run.problem if term.problem is None else term.problem(each.run.problem)
        if term.price is not None:
            problem = evolve(problem, costs=WITHOUT)
        if problem == each.run.problem:
            found.append(each)
        else:
            found.extend(taken_apart([Line(Path(), 0, evolve(each.run, problem=problem))], known))
    return None if all(new is old for new, old in zip(found, runs, strict=True)) else tuple(found)
