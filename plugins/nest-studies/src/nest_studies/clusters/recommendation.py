"""Needs of each cluster for a training, as a table with notes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nest.catalogue import clusters
from nest.public.layout import WIDE, Screen, Tone, figures, opening, paragraph, table
from nest.units import format_seconds, likelihood, listed

ANSWERS = ("fewest", "cheapest", "fastest", "nearest")
"""Questions in the order of rows, by the keys of `nest_studies.clusters.recommend.Recommendation`."""

PROVED = "Fewer nodes are proved too slow."
HEADER = ("cluster", "answer", "nodes", "time", "likely from", "to", "likely to fit", "device hours", "cost")


def recommendation_text(document: Mapping[str, Any], screen: Screen = WIDE) -> str:
    """The answers of `Recommendation.to_dict()` below each other, cluster by cluster, and who meets the deadline."""
    clusters, within = document["clusters"], format_seconds(document["within"])
    rows = [row for each in clusters for row in _rows(each)]
    costs = any(each["price"] is not None for each in clusters)
    if not costs:
        rows = [row[:-1] for row in rows]
    header = HEADER if costs else HEADER[:-1]
    lines = [table(header, rows, range(2, len(header)), screen), ""] if rows else []
    lines += [paragraph(f"{each['cluster']}: {each['reason']}", screen, 2) for each in clusters if each["reason"]]
    lines.append(_verdict(document, within, screen))
    unpriced = [each["cluster"] for each in clusters if each["price"] is None]
    if document["budget"] is not None and unpriced:
        remedy = "add cluster.price to a file and name it with --cluster."
        lines.append(paragraph(f"{listed(unpriced)}: no price, so no budget applies; {remedy}", screen))
    lines += _over_budget(document, screen)
    return "\n".join(lines)


def _rows(cluster: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """A row for each number of nodes that answers something, with what it answers."""
    found: dict[str, list[str]] = {}
    for name in ANSWERS:
        if cluster[name] is not None:
            found.setdefault(_nodes(cluster[name], cluster), []).append(name)
    for place, names in enumerate(found.values()):
        answer = cluster[names[0]]
        title = cluster["cluster"] if place == 0 else ""
        yield (title, ", ".join(names), _nodes(answer, cluster), *_figures(answer))


def _nodes(answer: Mapping[str, Any], cluster: Mapping[str, Any]) -> str:
    """Number of nodes, in all and in each pool: `3 of 5 (2 new, 1 old)`."""
    pools = ", ".join(f"{count} {name}" for name, count in answer.get("pools", {}).items() if count)
    return f"{answer['nodes']} of {cluster['nodes']}" + (f" ({pools})" if pools else "")


def _figures(answer: Mapping[str, Any]) -> tuple[str, ...]:
    """Time to train, its range, how likely memory suffices, device hours and cost."""
    span = (format_seconds(answer[key]) if answer[key] is not None else "-" for key in ("low", "high"))
    likely = "-" if answer["fit_probability"] is None else likelihood(answer["fit_probability"])
    cost = "-" if answer["cost"] is None else f"{answer['cost']:,.0f}"
    return (format_seconds(answer["time"]), *span, likely, f"{answer['device_hours']:,.0f}", cost)


def _verdict(document: Mapping[str, Any], within: str, screen: Screen) -> str:
    """Say if the deadline is met, and what else comes nearest."""
    from nest.public.text import format_tokens

    training = f"{format_tokens(document['tokens'])} tokens in {within}"
    if document["met"]:
        missed = [each["cluster"] for each in document["clusters"] if each["proved"] is False]
        proof = f"Fewer of {listed(missed)} may be enough: some plans were missed." if missed else PROVED
        claim = f" that trains {training}. {proof}"
        return opening("The fewest nodes of each cluster", Tone.GOOD, claim, screen)
    nearest = next((each for each in document["clusters"] if each["cluster"] == document["nearest"]), None)
    if nearest is None:
        return opening("No cluster has a plan", Tone.BAD, f" for {training}.", screen)
    answer = nearest["nearest"]
    times = answer["time"] / document["within"]
    text = (
        f" {training}. {nearest['cluster']} is nearest: {answer['nodes']} of {nearest['nodes']} nodes take "
        f"{format_seconds(answer['time'])}, {times:.3g}x as long.{_limit(nearest, document['batch'])}"
    )
    return opening("No cluster manages", Tone.BAD, text, screen)


def _limit(nearest: Mapping[str, Any], batch: int) -> str:
    """Describe what keeps a training from more nodes: the number asked about, or its batch."""
    if nearest["nearest"]["nodes"] < nearest["nodes"]:
        return f" A global batch of {batch:,} samples allows at most {batch:,} data-parallel ranks."
    family, _, devices = nearest["cluster"].rpartition("-")
    more = family in clusters() and devices.isdecimal()
    return f" `--cluster {family}-{2 * int(devices)}` has twice as many nodes." if more else ""


def _over_budget(document: Mapping[str, Any], screen: Screen) -> Sequence[str]:
    """Of clusters with a price, those on which the budget pays for no plan."""
    short = [each["cluster"] for each in document["clusters"] if each["price"] is not None and each["fastest"] is None]
    if document["budget"] is None or not short:
        return ()
    return (paragraph(f"A budget of {document['budget']:,} pays for no plan on {listed(short)}.", screen),)


def curve_text(rows: Sequence[Mapping[str, Any]], screen: Screen = WIDE) -> str:
    """Rows of a curve, which are plans of a number of nodes."""
    return "\n\n".join(_row(row, screen) for row in rows)


def _row(row: Mapping[str, Any], screen: Screen) -> str:
    if row["plan"] is None:
        return paragraph(f"{row['cluster']}: no plan on {row['nodes']} nodes.", screen)
    time, low, high, likely, hours, cost = _figures(row)
    names = [
        ("cluster", row["cluster"]),
        ("nodes", f"{row['uses']} of {row['nodes']}"),
        ("plan", row["decisions"]),
        ("step time", format_seconds(row["batch_time"])),
        ("time to train", time if low == "-" else f"{time} ({low} to {high})"),
        ("likely to fit", likely),
        ("device hours", hours),
        *([] if cost == "-" else [("cost", cost)]),
    ]
    return figures(names, screen)
