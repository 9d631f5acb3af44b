"""What real frameworks say of exported plans: `python -m tests.conformance.verdicts [FRAMEWORK ...]` prints a table.

The frameworks are those of the environments of `tools/frameworks make`.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping
from datetime import date
from subprocess import SubprocessError
from typing import Any

from attrs import frozen

import nest
from nest.hooks.pipelines import deployed
from nest.spec import PlanDocument
from nest_frameworks.common import problem_of, samples
from nest_frameworks.limits import Asked, relatives
from nest_frameworks.megatron.flags import flag_groups
from nest_frameworks.megatron.notation import given_flags
from tests.conformance import drawn
from tests.conformance.askers import ASKERS, script_of
from tests.conformance.consumer import REPOSITORY, consume, versions
from tests.conformance.megatron_core import FLAGS, case_of

COUNT = 60
SECONDS = 3600
README = REPOSITORY / "examples/llama-3-70b-on-128-h100/problem.yaml"
README_TARGETS = ("megatron", "megatron-bridge")
OVERLAY = "megatron_bridge.yaml"


@frozen
class Verdicts:
    """The verdicts of one framework.

    Attributes:
        name: the exporter.
        release: of the framework; None: it is not there.
        asked: number of plans.
        refused: by plan, what the framework says against it.
    """

    name: str
    release: str | None
    asked: int
    refused: Mapping[str, str]


def case(plan: PlanDocument, files: Mapping[str, str]) -> dict[str, Any]:
    """What a framework's check is told of a plan."""
    shape = deployed(plan)
    told: dict[str, Any] = {
        "files": dict(files),
        "world": shape.world_size,
        "stages": shape.stages,
        "tp": shape.tp,
        "ep": shape.ep,
        "micro": samples(shape),
        "steps": shape.micro_batches,
        "zero": shape.zero[0],
        "blocks": shape.blocks,
        "layers": [len(run.blocks) for run in shape.runs],
    }
    if FLAGS in files:
        told |= case_of(files[FLAGS], shape.world_size)
    if OVERLAY in files:
        told["model"] = given_flags(flag_groups(plan, relatives.bridge(Asked.of(problem_of(plan))))["MODEL_ARGS"])
    return told


def cases(name: str, count: int = COUNT) -> dict[str, dict[str, Any]]:
    """Cases by number and kind of plan; the README's first, where it is exported for this framework."""
    found = {}
    if name in README_TARGETS and count >= COUNT:
        plan = nest.solve(README)
        found["README"] = case(plan, nest.export(plan, name))
    made = drawn.plans(name, count)
    return found | {f"{number} {kind}": case(plan, files) for number, (kind, plan, files) in enumerate(made, 1)}


def ask(name: str, asked: Mapping[str, Any]) -> Verdicts:
    """Ask the framework of exporter `name`."""
    asker = ASKERS[name]
    found = versions(*asker.distributions)
    if None in found:
        return Verdicts(name, None, 0, {})
    of, told = asker.distributions[0], {"cases": dict(asked)}
    try:
        answers = consume(script_of(asker), told, of=of, seconds=SECONDS, **asker.environment)
    except (AssertionError, SubprocessError) as error:
        last = str(error).strip().splitlines()[-1][-200:]
        answers = dict.fromkeys(asked, f"{of} {found[0]} gave no answer, because its check ended: {last}")
    return Verdicts(name, found[0], len(asked), {key: why for key, why in answers.items() if why is not None})


def table(verdicts: Iterable[Verdicts]) -> str:
    """A table of verdicts, dated, and below it every reason for refusals, with the first plan that has it."""
    rows = [f"| framework | release | plans of {date.today()} | accepted |", "|---|---|---|---|"]
    below: list[str] = []
    for each in verdicts:
        if each.release is None:
            rows.append(f"| {each.name} | not installed | | |")
            continue
        rows.append(f"| {each.name} | {each.release} | {each.asked} | {each.asked - len(each.refused)} |")
        plans: dict[str, list[str]] = {}
        for key, why in each.refused.items():
            plans.setdefault(why, []).append(key)
        for why, (first, *more) in plans.items():
            below.append(f"{each.name}, {first}{f' and {len(more)} more' * bool(more)}: {why}")
    return "\n".join([*rows, *([""] if below else []), *below])


def main() -> int:
    """Ask, print the table, and return 1 where a framework refuses a plan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="FRAMEWORK", help=", ".join(ASKERS))
    parser.add_argument("--count", type=int, default=COUNT, help=f"plans for each framework; {COUNT} if left out")
    parser.add_argument("--installed", action="store_true", help="only frameworks that are installed")
    asked = parser.parse_args()
    found = []
    for name in asked.names or ASKERS:
        there = None not in versions(*ASKERS[name].distributions)
        if asked.installed and not there:
            continue
        found.append(ask(name, cases(name, asked.count) if there else {}))
        print(f"{name}: {found[-1].asked} asked, {len(found[-1].refused)} refused", file=sys.stderr, flush=True)
    print(table(found))
    return int(any(each.refused for each in found))


if __name__ == "__main__":
    sys.exit(main())
