"""First plans of eight usual problems, and published ones: `python -m benchmarks.usual_problems [NAME...]`."""

import argparse
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from attrs import frozen

from benchmarks.published.report import table
from nest import api
from nest.documents.first_plan import ORDER, Plan
from nest.formulate.fixed_plan import decided_instance
from nest.formulate.problem import carried_problem
from nest.formulate.risk import RISK, WITHIN, likely_enough
from nest.hooks.registry import registry
from nest.plan.document import solution_of
from nest.report.framework_words import layout_difference, layout_text, likelihood
from nest.spec import PlanDocument
from nest.units import format_bytes, format_seconds, percent

TABLE = Path(__file__).with_suffix(".toml")

UNSAID = {"sp": False, "schedule": "1f1b", "rank_order": "dp-inner", "zero": 1, "recompute": "none"}
"""Decisions of published plans that state none: Megatron-LM's defaults, and its distributed optimizer."""

STACK = "megatron-bridge"
"""The stack that published plans are for: its gradients are in bf16, which decides what fits."""

HEADER = ("problem", "plan", "layout", "step time", "likely to fit", "fullest stage", "remark")


@frozen(eq=False)
class Usual:
    """A problem that many people have, and a published plan for it.

    Attributes:
        name: of the problem.
        model: in the catalogue.
        devices: H100 of a DGX SuperPOD.
        global_batch: samples.
        sequence_length: tokens.
        source: address of the page that states the plan.
        plan: its decisions.
        note: how that page differs from the problem.
        measured: seconds of a step; None: nothing found.
        timed: address of the page that states them.
    """

    name: str
    model: str
    devices: int
    global_batch: int
    sequence_length: int
    source: str
    plan: dict[str, Any]
    note: str = ""
    measured: float | None = None
    timed: str = ""

    @property
    def problem(self) -> dict[str, Any]:
        """The problem as `nest solve` reads it, with nothing that has a default."""
        return {
            "nest": 1,
            "model": self.model,
            "training": {"global_batch": self.global_batch, "sequence_length": self.sequence_length},
            "cluster": f"dgx-h100-superpod-{self.devices}",
        }

    @property
    def title(self) -> str:
        """For tables."""
        return f"{self.model}, {self.devices} H100, batch {self.global_batch} x {self.sequence_length}"


class Outcome(NamedTuple):
    """The answer of nest to a usual problem.

    Attributes:
        usual: the problem.
        plan: the first plan.
        own: the first plan with the stack of the published plan.
        published: the published plan, priced with its stack.
        fit_probability: of the published plan, with the stack of `plan`.
    """

    usual: Usual
    plan: PlanDocument
    own: PlanDocument
    published: PlanDocument
    fit_probability: float | None


def usual_problems() -> list[Usual]:
    """All of them, in the order of their table."""
    return [Usual(name=name, **told) for name, told in tomllib.loads(TABLE.read_text(encoding="utf-8")).items()]


def outcome(usual: Usual) -> Outcome:
    """Solve a problem with both stacks and price the published plan."""
    training, fix = usual.problem["training"], {**UNSAID, **usual.plan}
    bridged = {**usual.problem, "training": {**training, "stack": STACK}}
    plan, own = api.solve(usual.problem), api.solve(bridged)
    target = {"search": {"target": own.problem["search"]["target"]}}  # It lends the layout its words.
    published = api.evaluate({**bridged, **target}, fix=fix)
    return Outcome(usual, plan, own, published, api.evaluate(usual.problem, fix=fix).fit_probability)


def rows(found: Outcome) -> list[Sequence[str]]:
    """The plan and its alternatives, the plan with the other stack, and the published one, a row of the table each."""
    usual, plan, own, published, likely = found
    told = [(usual.title, "nest", *_plan(plan, None), "")]
    for name in ("fastest", "safer", "simpler"):
        other = getattr(plan, name)
        if other is not None:
            figures = _figures(other.batch_time, other.slower_by, other.fit_probability, other.memory)
            told.append(("", name, ", ".join(layout_difference(plan, other.decisions)), *figures, ""))
    told.append(("", f"nest, {STACK}", *_plan(own, None), ""))
    default = "" if likely_enough(likely) else f"{likelihood(likely or 0.0)} likely to fit with the default stack"
    remark = "; ".join(each for each in (usual.note, why_another(own, published), default, _measured(usual)) if each)
    return [*told, ("", f"[published]({usual.source})", *_plan(published, own.batch_time), remark)]


def _plan(plan: PlanDocument, beside: float | None) -> tuple[str, ...]:
    seconds, most = plan.batch_time, max(stage.memory for stage in plan.stages)
    assert seconds is not None
    slower = None if beside is None else seconds / beside - 1
    return layout_text(plan), *_figures(seconds, slower, plan.fit_probability, most)


def _figures(seconds: float, slower: float | None, likely: float | None, memory: float) -> tuple[str, str, str]:
    time = format_seconds(seconds)
    if slower is not None:
        time += f" ({'+' if slower >= 0 else '-'}{percent(abs(slower))})"
    return time, "" if likely is None else likelihood(likely), format_bytes(memory)


def _measured(usual: Usual) -> str:
    if usual.measured is None:
        return ""
    return f"[measured]({usual.timed}): {format_seconds(usual.measured)}"


def why_another(plan: PlanDocument, published: PlanDocument) -> str:
    """Why nest's first plan is another than the published one, in a few words."""
    assert plan.lower_bound is not None
    assert published.batch_time is not None
    if not likely_enough(published.fit_probability):
        return f"less than {percent(1 - RISK, 0)} likely to fit"
    if published.batch_time > plan.lower_bound * (1 + WITHIN):
        return f"more than {percent(WITHIN, 0)} above the fastest possible step"
    ours, theirs = _in_order(plan), _in_order(published)
    first = next((each for each in ours if ours[each] != theirs[each]), None)
    return "the same plan" if first is None else f"more of `{first}`"


def _in_order(plan: PlanDocument) -> dict[str, int]:
    """How much a plan has of each entry of the rule."""
    known = registry()
    problem = carried_problem(plan, known)
    instance = decided_instance(problem, plan, known)
    solution = solution_of(instance, plan)
    each = Plan(instance, solution)
    return {entry.name: entry.amount(each) for entry in ORDER}


def page(names: Sequence[str] = ()) -> list[str]:
    """The table of the problems called `names`; of all where there are none."""
    wanted = [each for each in usual_problems() if not names or each.name in names]
    return table(HEADER, [row for each in wanted for row in rows(outcome(each))])


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; 2 when there is no problem of a name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.usual_problems", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"problems of {TABLE.name} (all)")
    names = parser.parse_args(given).names
    known = [each.name for each in usual_problems()]
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"{unknown[0]}: there are {', '.join(known)}.", file=sys.stderr)
        return 2
    print("\n".join(page(names)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
