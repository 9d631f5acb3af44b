"""Proof that no plan of an instance is faster than a bound: the cheapest rule for every case, in a tree."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from nest.errors import NoPlanYet
from nest_certificate.rules import RULES, Case, Instance, Refused, Rules

Tree = dict[str, Any]
Item = tuple[Case, tuple[int, ...]]

KEYS: tuple[tuple[str, Callable[[Item], int]], ...] = (
    ("candidate", lambda item: item[0].candidate),
    ("schedule", lambda item: item[0].schedule),
    ("replicas", lambda item: item[0].replicas),
    ("order", lambda item: item[0].order),
    ("degree", lambda item: item[0].degree or 0),
    ("stages", lambda item: item[0].stages),
    ("set", lambda item: item[1][0]),
)
"""Keys by which cases are split, in order."""


CHEAP = ("totals", "counts")  # Rules that bound many sets of choices together.
APART = " apart"  # Ends the rule of a case whose sets of choices are bounded one by one.


class NotProved(NoPlanYet):
    """No rule bounds a case (exit code 1); the text names it."""


def rule_for(rules: Rules, case: Case, choices: tuple[Any, ...], names: Sequence[str]) -> str | None:
    """First of the rules, the cheapest first, that proves a case; None: none does."""
    for name in names:
        rules.states = 0
        try:
            if getattr(rules, name)(case, choices) >= rules.claim:
                return name
        except Refused:
            continue
    return None


def proof(rules: Rules) -> Tree:
    """Tree of cases whose leaves name their rules.

    Raises:
        NotProved: a case has no rule.
    """
    proved: list[tuple[Item, str]] = []
    for case in rules.instance.cases():
        sets = rules.instance.choices(case)
        if not sets:
            continue
        union = tuple(dict.fromkeys(choice for some in sets for choice in some))
        together = rule_for(rules, case, union, [name for name in RULES if len(sets) == 1 or name in CHEAP])
        if together is not None:
            proved.append(((case, tuple(range(len(sets)))), together))
            continue
        for index, some in enumerate(sets):
            alone = rule_for(rules, case, some, RULES)
            if alone is None:
                raise NotProved(f"no certificate: {unproved(rules.instance, case)}")
            proved.append(((case, (index,)), alone + APART))
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


def tree(proved: Sequence[tuple[Item, str]], keys: Sequence[tuple[str, Callable[[Item], int]]]) -> Tree:
    """Split cases until those of a leaf have one rule; equal parts are one."""
    names = {name for _, name in proved}
    if len(names) <= 1:
        name = names.pop() if names else RULES[0]
        apart = {"apart": True} if name.endswith(APART) else {}
        return {"rule": name.removesuffix(APART), **apart}
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
