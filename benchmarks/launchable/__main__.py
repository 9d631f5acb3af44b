"""The command: `python -m benchmarks.launchable [NAME...] [--time-limit S] [--own-best] [--output FILE]`."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import frozen

from benchmarks.launchable.problems import problems
from benchmarks.published.report import table
from benchmarks.scale.machine import facts
from nest import api
from nest.api import exported, nearest
from nest.errors import InputError
from nest.report.framework_words import layout_text
from nest.spec import PlanDocument

FRAMEWORKS = ("megatron", "torchtitan")
HEADER = ("problem", "first plan", "step time", "proved", "megatron", "torchtitan", "search")


@frozen
class Outcome:
    """What became of a problem.

    Attributes:
        name: of the problem.
        plan: its first plan.
        seconds: that the search took.
        taken: for each framework whether its exporter takes the plan as it is.
        losses: for each framework that does not, how much longer its own best plan takes, as a share; None: there
            is none, or nobody asked.
    """

    name: str
    plan: PlanDocument
    seconds: float
    taken: dict[str, bool]
    losses: dict[str, float | None]

    def row(self) -> list[str]:
        """The cells of its row."""
        if self.plan.batch_time is None:
            return [self.name, "no plan", "", "", "", "", f"{self.seconds:.1f} s"]
        proved = "yes" if self.plan.status == "optimal" else "no"
        time_told = f"{self.plan.batch_time:.4g} s"
        cells = [self._cell(name) for name in FRAMEWORKS]
        return [self.name, layout_text(self.plan), time_told, proved, *cells, f"{self.seconds:.1f} s"]

    def _cell(self, name: str) -> str:
        if self.taken[name]:
            return "yes"
        loss = self.losses.get(name)
        return "no" if loss is None else f"its own best {loss:+.1%}"


def taken(plan: PlanDocument, framework: str) -> bool:
    """Whether the exporter takes a plan as it is."""
    try:
        exported(plan, (framework,))
    except InputError:
        return False
    return True


def outcomes(names: Sequence[str], limit: float, own: bool, told: Callable[[str], None]) -> list[Outcome]:
    """Each problem solved, and its plan exported.

    Args:
        names: of problems; empty: all.
        limit: seconds each search may take.
        own: whether to search the best plans of frameworks that do not take the first one.
        told: told the name of each problem before it is solved.
    """
    found = []
    for name, problem in problems():
        if names and name not in names:
            continue
        told(name)
        started = time.monotonic()
        plan = api.solve(problem, time_limit=limit)
        seconds = time.monotonic() - started
        able = {each: plan.batch_time is not None and taken(plan, each) for each in FRAMEWORKS}
        losses: dict[str, float | None] = {}
        for each in FRAMEWORKS if own and plan.batch_time is not None else ():
            if not able[each]:
                other = nearest(plan, each)
                best = None if other is None else other.best or other.plan.batch_time
                losses[each] = None if best is None else best / (plan.batch_time or best) - 1
        found.append(Outcome(name, plan, seconds, able, losses))
    return found


def page(found: Sequence[Outcome], command: str, machine: dict[str, str]) -> str:
    """What was found as Markdown."""
    counts = [
        f"{name}: {sum(each.taken[name] for each in found)} of {len(found)} plans as they are" for name in FRAMEWORKS
    ]
    about = f"`{command}`, {', '.join(f'{name} {value}' for name, value in machine.items())}."
    rows = table(HEADER, [each.row() for each in found])
    return "\n".join(["# First plans", "", about, "", *rows, "", f"{'; '.join(counts)}.", ""])


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; 2 when no problem has a name."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.launchable", description="Whether first plans can be launched as they are."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="problems (all)")
    parser.add_argument("--time-limit", type=float, default=200.0, metavar="S", help="of each search (200)")
    parser.add_argument(
        "--own-best", action="store_true", help="search the best plans of frameworks that do not take the first one"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write what was found as Markdown")
    options = parser.parse_args(given)
    found = outcomes(
        options.names, options.time_limit, options.own_best, lambda name: print(name, file=sys.stderr, flush=True)
    )
    if not found:
        print("there is no problem of these names.", file=sys.stderr)
        return 2
    asked = [*options.names, *(["--own-best"] if options.own_best else [])]
    text = page(found, " ".join(["python -m benchmarks.launchable", *asked]), facts())
    print(text)
    if options.output is not None:
        options.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
