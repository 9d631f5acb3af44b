"""The command: `python -m benchmarks.published.recipes [ROW...] [--data FOLDER] [--output FILE]`.

Recipes that NVIDIA publishes with Megatron Bridge, priced as `fixed`, beside the first plan of the same problem.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

import nest
from benchmarks.published.measure import decisions
from benchmarks.published.report import table
from benchmarks.scale.machine import facts
from nest.errors import InputError
from nest.formulate.risk import RISK, WITHIN
from nest.formulate.target import reasons
from nest.hooks.registry import registry
from nest.spec import PlanDocument

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
GROUPS = ("megatron_bridge", "megatron_bridge_moe")
TARGET = "megatron-bridge"
LIKELY = 1 - RISK
"""Probability to fit of plans that a search admits by default (`training.memory_risk`)."""
LARGE = 0.08
"""Gain of a first plan from which its reason is asked for: as much as predictions may err."""
SPLIT = "layers of stages"
KEPT = {
    "recomputation": ("recompute",),
    "tp, cp": ("tp", "sp", "cp"),
    "ep, etp": ("ep", "etp"),
    "pp": ("pp",),
    "schedule, chunks": ("schedule", "chunks"),
    "micro-batch": ("micro_batch",),
    "ZeRO": ("zero",),
    "rank order": ("rank_order",),
    SPLIT: ("layers", "pp", "schedule", "chunks"),
}
"""Decisions that a reason may be, by what they are called."""
CALLED = {"micro_batch": "micro-batch", "zero": "ZeRO", "rank_order": "rank order"}
"""Names in `fixed` of decisions that `benchmarks.published.measure.decisions` names otherwise."""


@frozen
class Recipe:
    """A row of the data.

    Attributes:
        name: of the row.
        problem: with the recipe under `fixed`.
        measured: seconds of a step.
    """

    name: str
    problem: dict[str, Any]
    measured: float

    @property
    def open(self) -> dict[str, Any]:
        """The problem with nothing decided."""
        return {key: value for key, value in self.problem.items() if key != "fixed"}


@frozen
class Outcome:
    """A recipe as nest prices it, and its first plan.

    Attributes:
        recipe: the row.
        priced: its plan.
        first: the first plan of its problem.
        refusals: why its framework cannot run the recipe; none: it can.
    """

    recipe: Recipe
    priced: PlanDocument
    first: PlanDocument
    refusals: tuple[str, ...]

    @property
    def gain(self) -> float:
        """Share of the recipe's predicted time that the first plan saves."""
        assert self.priced.batch_time is not None
        assert self.first.batch_time is not None
        return 1 - self.first.batch_time / self.priced.batch_time

    @property
    def likely(self) -> bool:
        """Whether a search admits the recipe."""
        return (self.priced.fit_probability or 0.0) >= LIKELY

    def contradictions(self, within: float) -> Iterator[str]:
        """Faults of the claim that it can be launched and, if likely to fit, is hardly faster than the first plan."""
        yield from self.refusals
        assert self.first.batch_time is not None
        assert self.priced.batch_time is not None
        assert self.first.lower_bound is not None
        if self.likely and self.priced.batch_time < self.first.lower_bound * (1 - 1e-9):
            yield f"it takes {self.priced.batch_time} s, the search proves {self.first.lower_bound} s"
        if self.likely and self.first.batch_time > self.priced.batch_time * (1 + within):
            yield f"it is {self.first.batch_time / self.priced.batch_time - 1:.2%} faster than the first plan"

    def row(self) -> list[str]:
        """The cells of its row."""
        fits = [f"{each.fit_probability or 0.0:.0%}" for each in (self.priced, self.first)]
        times = [f"{each.batch_time:.4g} s" for each in (self.priced, self.first)]
        measured = f"{self.recipe.measured:.4g} s"
        return [self.recipe.name, measured, times[0], fits[0], times[1], fits[1], _share(self.gain)]


def recipes(folder: Path, names: Sequence[str] = ()) -> list[Recipe]:
    """The rows of the data of such names; empty: all."""
    files = sorted((folder / "fidelity").glob("measured*.jsonl"))
    rows = (json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines())
    found = [Recipe(row["id"], row["problem"], row["measured"]["batch_time"]) for row in rows if row["group"] in GROUPS]
    return [each for each in found if not names or each.name in names]


def outcomes(found: Sequence[Recipe]) -> Iterator[Outcome]:
    """Each recipe beside its problem's first plan, which is searched once for all recipes of a problem."""
    first: dict[str, PlanDocument] = {}
    for recipe in found:
        asked = json.dumps(recipe.open, sort_keys=True)
        if asked not in first:
            first[asked] = nest.solve(recipe.open)
        priced = nest.evaluate({**recipe.problem, "search": {"target": TARGET}})
        yield Outcome(recipe, priced, first[asked], reasons(priced, registry(), [TARGET])[TARGET])


def changed(outcome: Outcome) -> dict[str, tuple[str, str]]:
    """Decisions that the first plan changes, as in the recipe and in the plan."""
    plans = (outcome.priced, outcome.first)
    theirs, ours = (
        {**decisions(each), "layers": "/".join(str(len(stage.layers)) for stage in each.stages)} for each in plans
    )
    return {name: (theirs[name], ours[name]) for name in theirs if theirs[name] != ours[name]}


def left(outcome: Outcome) -> dict[str, float | None]:
    """The gain that is left where the search keeps a decision of the recipe that it would change; None: no plan."""
    fixed, kept = outcome.recipe.problem["fixed"], dict[str, float | None]()
    assert outcome.priced.batch_time is not None
    for what, names in KEPT.items():
        if not changed(outcome).keys() & {CALLED.get(name, name) for name in names}:
            continue
        decided: dict[str, Any] = {name: fixed[name] for name in names if name in fixed}
        if what == SPLIT:
            decided["stages"] = [list(stage.layers) for stage in outcome.priced.stages]
        best = nest.solve({**outcome.recipe.open, "fixed": decided, "search": {"within": 0}}).batch_time
        kept[what] = None if best is None else 1 - best / outcome.priced.batch_time
    return kept


def _share(gain: float) -> str:
    return f"{gain:.1%}".replace("%", " %")


def page(found: Sequence[Outcome]) -> list[str]:
    """All recipes, and what of large gains is left where a decision of the recipe stays, as Markdown."""
    header = ("recipe", "measured", "nest's price", "fits", "first plan", "fits", "gain")
    lines = table(header, [each.row() for each in found])
    large: dict[tuple[str, ...], tuple[Outcome, int]] = {}
    for each in found:
        if each.gain > LARGE:
            key = tuple(each.row()[2:])
            large[key] = (large[key][0] if key in large else each, large.get(key, (each, 0))[1] + 1)
    rows = []
    for each, count in large.values():
        differs = ", ".join(f"{name} {one} -> {other}" for name, (one, other) in changed(each).items())
        kept = ", ".join(f"{what} {'no plan' if gain is None else _share(gain)}" for what, gain in left(each).items())
        name = each.recipe.name + (f" and {count - 1} more" if count > 1 else "")
        rows.append([name, _share(each.gain), differs, kept])
    header = ("recipe", "gain", "what the first plan changes", "gain left where the recipe's stays")
    return [*lines, "", f"Gains above {_share(LARGE)}:", "", *table(header, rows)]


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; 1 when a claim does not hold, 2 when there is no row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published.recipes", description=__doc__.splitlines()[2])
    parser.add_argument("names", nargs="*", metavar="ROW", help="rows (all)")
    parser.add_argument("--data", type=Path, default=DATA, metavar="FOLDER", help=f"shared data ({DATA})")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write what was found as Markdown")
    options = parser.parse_args(given)
    rows = recipes(options.data, options.names)
    if not rows:
        print(InputError(f"no such rows in {options.data}; name others, or the folder with --data."), file=sys.stderr)
        return 2
    found = []
    for outcome in outcomes(rows):
        found.append(outcome)
        print(f"{len(found)} of {len(rows)}: {outcome.recipe.name}", file=sys.stderr, flush=True)
    wrong = [f"{each.recipe.name}: {told}" for each in found for told in each.contradictions(within=WITHIN)]
    lines = [*page(found), "", "Contradictions:" if wrong else "No contradictions.", ""]
    lines += [f"* {each}" for each in wrong]
    print("\n".join(lines))
    if options.output is not None:
        about = ", ".join(f"{name} {value}" for name, value in facts().items())
        options.output.write_text("\n".join(["# Published recipes", "", f"{about}.", "", *lines, ""]), encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
