"""Words for the decisions of a plan, and for their differences from another plan's."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from nest.instance import recompute_words
from nest.spec import PlanDocument

Decided = Mapping[str, Sequence[str]]
"""Decisions by name: one value, or one for each stage in pipeline order."""

_DEGREES = ("tp", "sp", "cp", "ep", "etp")  # Degrees in their usual order; others come after them, by name.

_REST = ("pp", "replicas", "micro_batch", "schedule", "chunks", "rank_order", "recompute", "zero", "zero_degree")

FOLLOWS = {"sp": "tp"}
"""Degrees that usually equal another one, whose ranks they divide further work over (`nest.strategies.sp`)."""

_UNSAID = {"chunks": {"1"}, "zero_degree": {"all"}}  # Values of a whole plan that are not mentioned.

THE_SAME = "the same decisions"


def whole(decided: Decided) -> str:
    """Describe all decisions: `tp 4, cp 2, pp 8, 2 replicas, micro-batch 1, ...`, degrees as in `degrees_text`."""
    degrees = [name for name in decided if name not in _REST]
    usual = {name: set(values_of(decided, FOLLOWS.get(name, ""))) for name in degrees}
    said = [name for name in decided if set(decided[name]) != (usual[name] if name in usual else _UNSAID.get(name))]
    return ", ".join(decision_text(name, decided[name]) for name in in_usual_order(said))


def degrees_text(candidates: Sequence[Mapping[str, int]]) -> list[str]:
    """Describe the degrees of a plan's candidates: `tp 8` and `cp 2`, or `tp 8/4` if they differ.

    Strategies without a part are left out, and `sp` unless it differs from `tp`.
    """
    names = dict.fromkeys(name for each in candidates for name in each)
    values = {name: list(dict.fromkeys(each.get(name, 1) for each in candidates)) for name in names}
    said = (name for name in names if values[name] != values.get(FOLLOWS.get(name, ""), [1]))
    return [f"{name} {'/'.join(map(str, values[name]))}" for name in said]


def difference(before: Decided, now: Decided, without: Collection[str] = ()) -> str:
    """Describe the decisions of `now` that differ from `before`, except `without`.

    If nothing else differs: the stages that have each of the same values.
    """
    changes = _differing(before, now)
    if changes:
        return ", ".join(decision_text(name, values_of(now, name)) for name in changes if name not in without)
    placed = [
        name for name in in_usual_order([*before, *now]) if list(values_of(before, name)) != list(values_of(now, name))
    ]
    moved = [f"{decision_text(name, now[name])} on other stages" for name in placed if name not in without]
    return ", ".join(moved) or THE_SAME


def differs(name: str, before: Decided, now: Decided) -> bool:
    """Return whether a decision differs by itself, not as the one it follows."""
    return name in _differing(before, now)


def decision_text(name: str, values: Sequence[str]) -> str:
    """Describe one decision: `tp 4`, `2 replicas`, `ZeRO 0-1`, `recompute none, full on 2 of 8 stages`."""
    if name == "replicas":
        return counted(int(values[0]), "replica")
    if name == "chunks":
        return counted(int(values[0]), "chunk")
    if name == "zero_degree":
        return f"shard groups of {'all ranks' if values[0] == 'all' else values[0]}"
    if name == "zero":
        return f"ZeRO {_levels(sorted({int(value) for value in values}))}"
    if name == "recompute":
        return f"recompute {_by_stages([recompute_words(value) for value in values])}"
    return f"{_NAMES.get(name, name)} {'/'.join(dict.fromkeys(values))}"


def values_of(decided: Decided, name: str) -> Sequence[str]:
    """Return the values of a decision; a strategy without a part has degree 1."""
    return decided.get(name, ("1",))


def counted(number: float, what: str, plural: str = "s") -> str:
    """Return a number and its noun: `1 replica`, `2 replicas`."""
    return f"{number:g} {what}{plural if number != 1 else ''}"


_NAMES = {"micro_batch": "micro-batch", "rank_order": "rank order"}


def in_usual_order(names: Collection[str]) -> list[str]:
    """Return names of decisions, each once, in their usual order."""
    others = sorted(set(names).difference(_DEGREES, _REST))
    return [name for name in (*_DEGREES, *others, *_REST) if name in names]


def _differing(before: Decided, now: Decided) -> list[str]:
    """Return the decisions with other values than before, except those that follow another one in both."""
    return [
        name
        for name in in_usual_order([*before, *now])
        if set(values_of(before, name)) != set(values_of(now, name))
        and not (
            name in FOLLOWS and all(values_of(each, name) == values_of(each, FOLLOWS[name]) for each in (before, now))
        )
    ]


def _levels(levels: Sequence[int]) -> str:
    """Name the levels of ZeRO in use: `1`, `0-1`, `0 and 3`."""
    if len(levels) > 1 and levels[-1] - levels[0] == len(levels) - 1:
        return f"{levels[0]}-{levels[-1]}"
    return " and ".join(map(str, levels))


def _by_stages(values: Sequence[str]) -> str:
    """Name the value of most stages, and how many have others."""
    (usual, _), *others = Counter(values).most_common()
    rarer = " and ".join(f"{value} on {count}" for value, count in others)
    return f"{usual}, {rarer} of {len(values)} stages" if others else usual


def is_mixed(plan: PlanDocument) -> bool:
    """Return whether stages use different candidates."""
    return len({stage.candidate for stage in plan.stages}) > 1


def chunk_ranges(stages: Sequence[Sequence[Sequence[str]]]) -> str:
    """Name the layers of neighbouring stages chunk by chunk; one chunk each as in `ranges`.

    Args:
        stages: for each, the names of the layers of each of its chunks.
    """
    parts = []
    for chunks in zip(*stages, strict=True):
        # Where a pipeline comes back up the stages, later ones hold earlier layers.
        ways = (chunks, chunks[::-1]) if len(stages[0]) > 1 else (chunks,)
        parts.append(min((ranges([name for chunk in way for name in chunk]) for way in ways), key=len))
    return _shortened(parts, " | ", f"{len(parts)} chunks")


LONGEST_LIST = 60  # Characters of layer names in one row; longer lists are cut short.

_NUMBERED = re.compile(r"(.*?)(\d+)")


def ranges(names: Sequence[str]) -> str:
    """Shorten layer names: runs such as `layers.0 layers.1 layers.2` become `layers.0-2`, long lists are cut short."""
    parts: list[str] = []
    stem, first, last = "", -1, -1
    for name in names:
        match = _NUMBERED.fullmatch(name)
        number = int(match[2]) if match else -1
        if match and parts and match[1] == stem and number == last + 1 and last >= 0:
            last = number
            parts[-1] = f"{stem}{first}-{last}"
        else:
            parts.append(name)
            stem, first, last = (match[1], number, number) if match else ("", -1, -1)
    return _shortened(parts, ", ", f"{len(names)} layers")


def _shortened(parts: Sequence[str], between: str, count: str) -> str:
    """Join parts, or the first of them and their number if that is too long."""
    text = between.join(parts)
    if len(text) <= LONGEST_LIST:
        return text
    text = parts[0]
    for part in parts[1:]:
        if len(text) + len(part) > LONGEST_LIST - 20:
            break
        text += f"{between}{part}"
    return f"{text}{between}... ({count})"
