"""Mistakes and oddities of a cluster, from its importer's sentences, and their cost to a plan."""

import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from attrs import evolve, frozen

import nest
from nest.catalogue import link
from nest.errors import InputError
from nest.hooks.registry import registry
from nest.public.layout import Screen
from nest.public.planning import as_fixed, build_cluster
from nest.spec import ClusterSpec, LevelSpec, PlanDocument
from nest.units import Bytes, BytesPerSecond, Seconds, first_names, format_seconds, percent
from nest_networks.files import natural

MOST = 9
"""Findings that are printed, below a line on the whole cluster; the costliest first."""

WRONG, ODD = "wrong", "odd"

Levels = tuple[LevelSpec, ...]
"""With a bandwidth each."""


@frozen
class Finding:
    """Something wrong or odd.

    Attributes:
        kind: `wrong`: to be repaired; `odd`: perhaps meant so.
        sentence: what it is, and where.
        mended: the levels without it; None: they do not change, or cannot be told.
        harmed: the levels with it, where those of the file do not have it; None: they do.
        cost: what it costs, in words; empty: not known.
        seconds: of a step of the plan.
    """

    kind: str
    sentence: str
    mended: Levels | None = None
    harmed: Levels | None = None
    cost: str = ""
    seconds: float = 0.0


def levels_of(section: ClusterSpec) -> Levels:
    """The levels of a cluster: nominal as the file gives them, or those its graph is reduced to; none: it has pools."""
    if section.pools:
        return ()
    if section.levels:
        return tuple(
            evolve(each, bandwidth=each.bandwidth or BytesPerSecond(link(str(each.link)).bandwidth or 0.0))
            for each in section.levels
        )
    named = section.device or section.memory
    built = build_cluster(section if named else evolve(section, memory=Bytes(1.0)), registry())[0].levels
    return tuple(
        LevelSpec(each.fanout, BytesPerSecond(each.bandwidth), Seconds(each.latency), each.name) for each in built
    )


def text(document: Mapping[str, Any], screen: Screen) -> str:
    """At most ten lines."""
    rows = [
        f"{each['kind']:<6} {each['what']}{f' {cost}' if (cost := each['cost']) else ''}"
        for each in document["findings"]
    ]
    more = [f"... and {len(rows) - MOST + 1} more (`--json` has all)."] if len(rows) > MOST else []
    return "\n".join(
        [document["summary"], *(rows[: MOST - 1] + more if more else rows or ["Nothing is wrong or odd."])]
    )


def summary(section: ClusterSpec, levels: Levels) -> str:
    """The cluster in a line."""
    if section.pools:
        kinds = ", ".join(f"{len(pool.hosts or ())} hosts of {pool.device}" for pool in section.pools)
        return f"{kinds}, each a pool."
    count, per_host = prod(level.fanout for level in levels), section.devices_per_host or 1
    whose = section.device if isinstance(section.device, str) else "accelerators"
    shown = ", ".join(f"{level.name or index} {_rate(_of(level))}" for index, level in enumerate(levels))
    hosts = max(1, count // per_host)
    return f"{hosts} host{'s' * (hosts > 1)} of {per_host} {whose}: {shown}."


def _of(level: LevelSpec) -> float:
    return level.bandwidth or 0.0


def _with(level: LevelSpec, bandwidth: float) -> LevelSpec:
    return evolve(level, bandwidth=BytesPerSecond(bandwidth))


def _rate(bandwidth: float) -> str:
    return f"{bandwidth / 1e9:.3g} GB/s"


def findings(section: ClusterSpec, levels: Levels, plan: PlanDocument | None) -> list[Finding]:
    """Findings from the importer's sentences, the levels and the order of hosts."""
    found: list[Finding] = []
    for sentence in section.assumed or ():
        for pattern, kind, mend in RULES:
            match = re.search(pattern, sentence)
            if match is not None:
                text_ = sentence[0].upper() + sentence[1:]
                found.append(Finding(kind, text_, mend(levels, match)))
                break
    slow = re.search(SLOW, "\n".join(each.sentence for each in found), re.MULTILINE)
    if slow is not None:  # Of which links up to some level are uneven.
        found = [each for each in found if f"offer each accelerator {slow[1]} to" not in each.sentence]
    return [*found, *_oversubscribed(levels), *_order(section, levels, plan)]


Mend = Callable[[Levels, "re.Match[str]"], Levels | None]


def _unknown(levels: Levels, match: "re.Match[str]") -> None:
    return None


def _slow(levels: Levels, match: "re.Match[str]") -> Levels | None:
    """Without slow rails, every level that is as slow as they are gets what the next rail has."""
    if len(levels) < 2:
        return None
    ratio, least = float(match[2]) / float(match[1]), _of(levels[1])
    return tuple(
        _with(level, ratio * _of(level)) if at and _of(level) >= 0.99 * least else level
        for at, level in enumerate(levels)
    )


def _uneven(levels: Levels, match: "re.Match[str]") -> Levels:
    ratio = float(match[3]) / float(match[2])
    return tuple(_with(level, ratio * _of(level)) if level.name == match[1] else level for level in levels)


def _fewer(levels: Levels, match: "re.Match[str]") -> Levels | None:
    ratio = float(match[2]) / float(match[1])
    return (_with(levels[0], ratio * _of(levels[0])), *levels[1:]) if levels else None


SLOW = r"^Slow links: .*\(([\d.]+) GB/s, mostly it is ([\d.]+)\)"

RULES: tuple[tuple[str, str, Mend], ...] = (
    (r"^Left out: .*(?:no accelerators for jobs|no `Gres`)", ODD, _unknown),
    (r"^Left out: .*(?:no switches|does not have\b)", ODD, _unknown),
    (r"^Left out: |^Missing: ", WRONG, _unknown),
    (r"^Without power: ", ODD, _unknown),
    (SLOW, WRONG, _slow),
    (r" no (?:NVLink|Infinity Fabric), (?:the other|which) ", WRONG, _unknown),
    (r"have (\d+) to (\d+) .* links to the switch", WRONG, _fewer),
    (r"^Links up to the level (\S+) offer each accelerator ([\d.e+]+) to ([\d.e+]+) GB/s", WRONG, _uneven),
    (r"^Groups of \d+ to \d+ hosts|domains and switches cross|^Every link is planned by itself", ODD, _unknown),
    (r"labels that may name switches|top switches; assuming|lists no switches", ODD, _unknown),
    (r"are partitions of \d+ cards|of two vendors|have no known rate", ODD, _unknown),
)
"""Meanings of importers' sentences, the first match counts: their words are those of this distribution."""


def _oversubscribed(levels: Levels) -> list[Finding]:
    """Levels of the network that are slower than the one inside them."""
    found = []
    for at in range(2, len(levels)):
        inner, outer = _of(levels[at - 1]), _of(levels[at])
        if outer < 0.99 * inner:
            mended = tuple(
                _with(level, max(_of(level), inner)) if place >= at else level for place, level in enumerate(levels)
            )
            name = levels[at].name or f"level {at}"
            sentence = (
                f"{name} is oversubscribed {inner / outer:.3g} to 1: {_rate(outer)} across it, {_rate(inner)} below it."
            )
            found.append(Finding(ODD, sentence, mended))
    return found


def _order(section: ClusterSpec, levels: Levels, plan: PlanDocument | None) -> list[Finding]:
    """Hosts of the plan, else by name, whose order crosses the lowest switches; and hosts of the plan that are gone."""
    hosts = [*(section.hosts or ())]
    own = plan.problem["cluster"].get("hosts") if plan is not None else None
    found, order, whose = [], sorted(hosts, key=natural), "the order of their names"
    if own:
        lost = [name for name in own if name not in set(hosts)]
        if hosts and lost:
            found.append(
                Finding(
                    WRONG,
                    f"The plan uses {first_names(lost)} ({len(lost)} host{'s' * (len(lost) > 1)}), "
                    "which cannot be planned with.",
                )
            )
        order, whose = [name for name in own if name in set(hosts)], "the plan's order"
    per_host, size, tier = section.devices_per_host or 1, 1, -1
    for at, level in enumerate(levels):
        size *= level.fanout
        if size > per_host and not size % per_host:
            tier = at
            break
    width = size // per_host
    if tier < 0 or len(order) < len(hosts) or not 1 < width < len(hosts):
        return found
    leaf = {name: at // width for at, name in enumerate(hosts)}
    groups = [order[at : at + width] for at in range(0, len(order), width)]
    crossing = sum(len({leaf[name] for name in group}) > 1 for group in groups)
    if crossing:
        harmed = (
            *levels[:tier],
            _with(levels[tier], min(_of(levels[tier]), _of(levels[tier + 1]))),
            *levels[tier + 1 :],
        )
        sentence = (
            f"Hosts in {whose} cross switches: {crossing} of {len(groups)} groups of {width} are under several. Launch "
            "in the order of `hosts`."
        )
        found.append(Finding(WRONG if own else ODD, sentence, levels, harmed))
    return found


def priced(found: Sequence[Finding], plan: PlanDocument, levels: Levels) -> list[Finding]:
    """`found` with what each costs a step of `plan`, on the cluster of the file.

    Raises:
        InputError: the plan is on another number of devices, or cannot be priced with other levels.
    """
    count = prod(level.fanout for level in levels)
    cluster = plan.problem["cluster"]
    levels_planned = cluster.get("levels") or ()
    planned = (
        prod(level["fanout"] for level in levels_planned) if levels_planned else plan.summary.get("devices", count)
    )
    if cluster.get("pools") or not levels or planned != count:
        return [*found, Finding(ODD, f"The plan has {planned} devices, the file {count}: costs cannot be told.")]
    kept = {key: value for key, value in cluster.items() if key not in ("levels", "name", "topology", "link_profile")}

    def seconds(used: Levels) -> float:
        keys = ("fanout", "bandwidth", "latency", "name", "link")
        rows = [{key: value for key in keys if (value := getattr(each, key)) is not None} for each in used]
        problem = {**plan.problem, "cluster": {**kept, "levels": rows}, "fixed": as_fixed(plan)}
        time = nest.evaluate(problem).batch_time
        if time is None:
            raise InputError("the plan cannot be priced on this cluster.")
        return time

    as_is = seconds(levels)
    result = []
    for each in found:
        if each.mended is None:
            result.append(each)
            continue
        slow, fast = as_is if each.harmed is None else seconds(each.harmed), seconds(each.mended)
        cost = f"Costs {percent(slow / fast - 1)} ({format_seconds(slow)} a step, {format_seconds(fast)} without)."
        result.append(evolve(each, cost=cost, seconds=slow - fast))
    return result
