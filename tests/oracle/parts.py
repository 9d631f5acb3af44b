"""PROBLEM.md section 3, `search.recompute_layers`: stages that recompute some of their layers.

What a stage recomputes is a mode's name, or `(mode, count, rest)`: the first layers of each of its chunks, so many in
pipeline order, run in the mode, the others in a lighter one.
"""

from dataclasses import dataclass
from functools import lru_cache

from tests.oracle.chunks import topological

ASCENDING = ("none", "selective", "full")
"""Modes from the lightest on; others of a profile are heavier, in the order of the file."""
WHOLE_ONLY = ("stage", "offload")

Recompute = str | tuple[str, int, str]


@dataclass(frozen=True)
class Part:
    """A stage in two modes: the layers that run in each."""

    mode: str
    rest: str
    first: frozenset[int]
    others: frozenset[int]


def choices(problem: dict, candidate: dict) -> list[Recompute]:
    """Whole modes of a candidate, and where they are asked for parts of stages."""
    own, fixed = list(candidate["recompute"]), problem.get("fixed") or {}
    pairs = pairs_of(problem, own)
    if "recompute_layers" in fixed:
        return fixed_part(problem, pairs, own)
    if "recompute" in fixed or not (problem.get("search") or {}).get("recompute_layers"):
        return own
    counts = range(1, len(problem["profile"]["layers"]))
    return [*own, *((mode, count, rest) for mode, rest in pairs for count in counts)]


def known_modes(problem: dict) -> list[str]:
    """The modes of all candidates, in the order of the file."""
    return list(dict.fromkeys(mode for each in problem["profile"]["candidates"] for mode in each["recompute"]))


def pairs_of(problem: dict, own: list[str]) -> list[tuple[str, str]]:
    """Each mode of a candidate with a lighter one."""
    every = known_modes(problem)
    rising = [mode for mode in ASCENDING if mode in every]
    rising += [mode for mode in every if mode not in (*ASCENDING, *WHOLE_ONLY)]
    rising = [mode for mode in rising if mode in own]
    return [(mode, rest) for i, mode in enumerate(rising) for rest in rising[:i]]


def fixed_part(problem: dict, pairs, own: list[str]) -> list[Recompute]:
    """What `fixed.recompute_layers` leaves: of the mode that is fixed, or the heaviest, so many first layers."""
    fixed = problem["fixed"]
    count = fixed["recompute_layers"]
    heavy = fixed.get("recompute", pairs_of(problem, known_modes(problem))[-1][0])
    if count >= len(problem["profile"]["layers"]):
        return [mode for mode in own if mode == heavy]
    rest = fixed.get("recompute_rest")
    lighter = [other for mode, other in pairs_of(problem, known_modes(problem)) if mode == heavy]
    wanted = (heavy, lighter[0] if rest is None else rest)
    return [(wanted[0], count, wanted[1])] if wanted in pairs else []


def names_of(problem: dict, recompute: Recompute) -> dict:
    """What constraints read."""
    if isinstance(recompute, str):
        count = 0 if recompute == "none" else len(problem["profile"]["layers"])
        return {"recompute": recompute, "recompute_layers": count}
    return {"recompute": recompute[0], "recompute_layers": recompute[1]}


def modes_used(recompute: Recompute) -> set[str]:
    """Names of the modes that it takes."""
    return {recompute} if isinstance(recompute, str) else {recompute[0], recompute[2]}


order_of = lru_cache(maxsize=4096)(topological)


def on_stage(problem: dict, runs, recompute: Recompute) -> str | Part:
    """What the layers of a stage with these chunks run in."""
    if isinstance(recompute, str):
        return recompute
    mode, count, rest = recompute
    profile = problem["profile"]
    order = order_of(len(profile["layers"]), tuple(map(tuple, profile["edges"])))
    first = frozenset(layer for run in runs for layer in [each for each in order if each in run][:count])
    return Part(mode, rest, first, frozenset(layer for run in runs for layer in run) - first)


def mode_of(candidate: dict, recompute: str | Part) -> dict:
    """Rows of what a stage recomputes, as FORMATS.md has them of a mode."""
    modes = candidate["recompute"]
    if isinstance(recompute, str):
        return modes[recompute]
    heavy, light = modes[recompute.mode], modes[recompute.rest]
    used = [mode for mode, layers in ((heavy, recompute.first), (light, recompute.others)) if layers]

    def joined(one, other) -> list:
        return [
            mine if layer in recompute.first else its for layer, (mine, its) in enumerate(zip(one, other, strict=True))
        ]

    rows = {key: joined(heavy[key], light[key]) for key in ("extra", "first", "more", "peak")}
    busy = [mode.get("busy") for mode in (heavy, light)]
    if any(busy):
        silent = [[0.0] * len(heavy["extra"])] * max(len(each or ()) for each in busy)
        rows["busy"] = [joined(*each) for each in zip(*(each or silent for each in busy), strict=True)]
    return {**rows, "stash_inputs": any(mode.get("stash_inputs") for mode in used)}
