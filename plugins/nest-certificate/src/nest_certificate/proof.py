"""Proof that no plan of an instance is faster than a bound: the cheapest rule for every case, in a tree."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from nest.errors import NoPlanYet
from nest_certificate.rules import RULES, Case, Instance, Refused, Rules

Tree = dict[str, Any]

KEYS: tuple[tuple[str, Callable[[Case], int]], ...] = (
    ("candidate", lambda case: case.candidate),
    ("schedule", lambda case: case.schedule),
    ("replicas", lambda case: case.replicas),
    ("order", lambda case: case.order),
    ("degree", lambda case: case.degree or 0),
    ("stages", lambda case: case.stages),
)
"""Keys by which cases are split, in order."""


class NotProved(NoPlanYet):
    """No rule bounds a case (exit code 1); the text names it."""


def proof(rules: Rules) -> Tree:
    """Tree of cases whose leaves name the last rules that they need.

    Raises:
        NotProved: a case has no rule.
    """
    proved: list[tuple[Case, str]] = []
    for case in rules.instance.cases:
        if not rules.instance.choices(case):
            continue
        try:
            proved.append((case, RULES[rules.prove(case, len(RULES) - 1)]))
        except Refused as error:
            raise NotProved(f"no certificate: {unproved(rules.instance, case)}") from error
    return tree(proved, KEYS)


def unproved(instance: Instance, case: Case) -> str:
    """Name a case that no rule bounds, and the setting without it."""
    schedule, candidate = instance.schedules[case.schedule], instance.candidates[case.candidate]
    where = (
        f"no rule covers {candidate.data['name']} with {case.stages} stages of {schedule['name']}"
        f" in {case.replicas} {'replica' if case.replicas == 1 else 'replicas'}"
    )
    if schedule["chunks"] > 1:
        return f"{where}. Set `training.schedule: 1f1b`."
    if any(":" in mode for some in instance.choices(case) for mode, _ in some):
        return f"{where}. Recompute all blocks or none: set `search.recompute`."
    return f"{where}. Fix more decisions of the plan."


def tree(proved: Sequence[tuple[Case, str]], keys: Sequence[tuple[str, Callable[[Case], int]]]) -> Tree:
    """Split cases until those of a leaf have one rule; equal parts are one."""
    names = {name for _, name in proved}
    if len(names) <= 1:
        return {"rule": names.pop() if names else RULES[0]}
    (by, key), *rest = keys
    parts: dict[str, tuple[list[list[int]], Tree]] = {}
    for value, group in groupby(sorted(proved, key=lambda each: key(each[0])), key=lambda each: key(each[0])):
        part = tree(list(group), rest)
        ranges = parts.setdefault(repr(part), ([], part))[0]
        ranges.append([value, value])
    if len(parts) == 1:
        return next(iter(parts.values()))[1]
    return {"by": by, "parts": [[joined(ranges), part] for ranges, part in parts.values()]}


def joined(ranges: Iterable[list[int]]) -> list[list[int]]:
    """Ascending ranges, neighbours joined."""
    found: list[list[int]] = []
    for low, high in ranges:
        if found and found[-1][1] + 1 == low:
            found[-1][1] = high
        else:
            found.append([low, high])
    return found
