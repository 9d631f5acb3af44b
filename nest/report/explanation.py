"""An explanation of a plan in sentences."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nest.report.table import ranges
from nest.units import format_bytes, format_seconds

Told = Mapping[str, Any]

_UNITS = {"bytes/s": (1e9, "GB/s"), "FLOP/s": (1e12, "TFLOP/s")}
"""Units in which people give what is varied, with what they are in SI units."""

_CAUSES = {
    "compute": "computation and communication inside it",
    "recompute": "recomputation",
    "pipeline": "its boundaries",
    "sharding": "ZeRO in every micro-batch",
    "bubble": "waiting for the pipeline",
    "sync": "gradient reduction and optimizer step",
}

_PARTS = {"communication": "buffers", "activations": "activations in flight"}

NOTICEABLE = 5e-4
"""Shares of the batch time below this are not told: no decimal place that is shown would be."""

UNSHOWN = 5e-5
"""Differences of batch times below this are 0.00% when they are shown."""

UNPROVED = "not searched to the end"
"""What is said of plans that a time limit cut short."""


def explanation_text(told: Told) -> str:
    """An explanation (`nest.explaining.Explanation.to_dict`) in sections, a sentence or two a line."""
    sections = [] if told["plan"] is None else [f"{told['plan']}: {format_seconds(told['batch_time'])} a batch"]
    if told["status"] == "infeasible":
        sections.append(f"No feasible plan. {told['diagnosis']}")
    elif told["best_batch_time"] is None:
        sections.append(f"This plan was priced, not searched: its problem has none. {told['best_diagnosis']}")
    elif told["best_batch_time"] < told["batch_time"] * (1 - 1e-9):
        sections.append(_not_the_best(told))
    if told["binding"]:
        lines = [line for each in told["binding"] for line in _BINDING[each["name"]](each)]
        sections.append(_section("What binds", lines))
    if "constraints" in told["parts"]:
        sections.append(_section("What restrictions cost", [*_prices(told["constraints"], told["best_batch_time"])]))
    if told["alternatives"]:
        sections.append(_section("The best plan that decides one thing otherwise", [*_others(told["alternatives"])]))
    if "flips" in told["parts"]:
        sections.append(_section("What would change the answer", [*_flips(told["flips"], told["best_batch_time"])]))
    return "\n\n".join(sections)


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, *(f"- {line}" for line in lines or ("nothing that was asked for",))])


def _not_the_best(told: Told) -> str:
    loss = told["batch_time"] / told["best_batch_time"] - 1
    return (
        f"The best plan of this problem takes {format_seconds(told['best_batch_time'])}, this one "
        f"{format_seconds(told['batch_time'])} ({loss:.2%} longer). Restrictions and what would change the answer are "
        "told of the best plan."
    )


def _memory(each: Told) -> Iterator[str]:
    share = each["upper"] / each["capacity"]
    room = f"{format_bytes(abs(each['free']))} {'are free' if each['free'] >= 0 else 'too many'}"
    many = f" (so do {len(each['stages']) - 1} others, within 1%)" if len(each["stages"]) > 1 else ""
    yield (
        f"memory: stage {each['stage']}{many} needs up to {format_bytes(each['upper'])} of "
        f"{format_bytes(each['capacity'])} ({share:.1%}), {room}; {format_bytes(each['expected'])} are expected"
    )
    if each["parts"]:
        parts = sorted(each["parts"].items(), key=lambda part: -part[1])
        sizes = ", ".join(f"{_PARTS.get(name, name)} {format_bytes(size)}" for name, size in parts)
        yield (
            f"made of {sizes}; {_count(each['in_flight'], 'micro-batch', 'es')} in flight, "
            f"recompute {each['recompute']}"
        )


def _slowest(each: Told) -> Iterator[str]:
    shares = sorted(each["shares"].items(), key=lambda share: -share[1])
    causes = ", ".join(f"{_CAUSES[name]} {share:.1%}" for name, share in shares if share >= NOTICEABLE)
    text = f"slowest stage: {each['stage']} ({ranges(each['layers'])}), {format_seconds(each['time'])} a micro-batch"
    if each["uneven_share"] >= NOTICEABLE:
        text += f"; stages of equal length would save up to {each['uneven_share']:.1%} of the batch time"
    yield text
    yield f"the batch time is {causes}"


def _bubble(each: Told) -> Iterator[str]:
    chunks = f" of {each['chunks']} chunks" if (each["chunks"] or 1) > 1 else ""
    yield (
        f"bubble: stages wait {each['share']:.1%} of the batch time, with {each['stages']} stages, "
        f"{_count(each['micro_batches'], 'micro-batch', 'es')} and schedule {each['schedule']}{chunks}"
    )


def _boundaries(each: Told) -> Iterator[str]:
    level = f" over {each['level']}" if each["level"] is not None else ""
    yield (
        f"stage boundaries: the slowest stage spends {each['share']:.1%} of the batch time on them; at most "
        f"{format_bytes(each['bytes'])} a device and micro-batch{level}"
    )


def _exchange(each: Told) -> Iterator[str]:
    zero = ", ".join(map(str, each["zero"]))
    sharding = each["sharding_share"]
    beside = f", and ZeRO in every micro-batch {sharding:.1%}" if sharding >= NOTICEABLE else ""
    yield (
        f"data parallelism: stage {each['stage']} takes {format_seconds(each['time'])} a batch for gradient reduction "
        f"and optimizer step ({each['share']:.1%}){beside}, with {_count(each['replicas'], 'replica')} and ZeRO {zero}"
    )


def _batch(each: Told) -> Iterator[str]:
    copies = each["samples"] // each["micro_batch"] if each["micro_batch"] else 1
    product = [
        _count(each["replicas"], "replica"),
        _count(each["micro_batches"], "micro-batch", "es"),
        *([f"{copies} copies"] if copies > 1 else []),
        _count(each["micro_batch"], "sample"),
    ]
    padding = f", {each['padding']} of them padding" if each["padding"] > 0 else ""
    yield f"batch: {each['global_batch']} samples are {' x '.join(product)}{padding}"


def _devices(each: Told) -> Iterator[str]:
    idle = each["of"] - each["used"]
    yield f"devices: {each['used']} of {each['of']} used" + (f", {idle} idle" if idle else "")


_BINDING = {
    "memory": _memory,
    "slowest stage": _slowest,
    "bubble": _bubble,
    "boundaries": _boundaries,
    "data parallelism": _exchange,
    "batch": _batch,
    "devices": _devices,
}


def _prices(prices: Sequence[Told], batch_time: float | None) -> Iterator[str]:
    free, unknown = [], []
    for each in sorted(prices, key=lambda each: each["relative"] or 0.0):
        instead = each["instead"]
        without = f"{instead} in place of {_entry(each)}" if instead else f"without {_entry(each)}"
        if each["plan"] is None:
            if batch_time is None:
                unknown.append(_entry(each))
            else:
                yield f"{without}: no plan was found. {each['refusal']}"
        elif each["costs"]:
            yield f"{without}: {_gain(each, batch_time)}"
        else:
            free.append(_entry(each) + ("" if each["proved"] else f" ({UNPROVED})"))
    if free:
        yield f"no cost: {'; '.join(free)}"
    if unknown:
        yield f"without any one of these there is no plan either: {'; '.join(unknown)}"


def _gain(each: Told, batch_time: float | None) -> str:
    """How much faster the best plan without a restriction is, or that there is one only then."""
    proof = "" if each["proved"] else f"; {UNPROVED}"
    if batch_time is None:
        return f"there is a plan, {each['plan']}: {format_seconds(each['batch_time'])} a batch{proof}"
    if -each["relative"] < UNSHOWN:
        return f"faster by less than 0.01% ({_changes(each)}){proof}"
    return f"{-each['relative']:.2%} faster ({_changes(each)}): {each['reason']}{proof}"


def _entry(each: Told) -> str:
    if each["place"].startswith("constraints["):
        return f"`{each['written']}`"
    return f"{each['place']} {each['written']}"


def _others(alternatives: Sequence[Told]) -> Iterator[str]:
    none = []
    for each in alternatives:
        if not each["asked"]:
            none.append(f"{each['decision']} {each['value']} ({each['refusal']})")
        elif each["plan"] is None:
            yield f"{each['decision']} other than {each['value']}: no plan. {each['refusal']}"
        else:
            yield _alternative(each)
    if none:
        yield f"not to be had otherwise: {'; '.join(none)}"


def _alternative(each: Told) -> str:
    also = [change for change in each["changes"] if change["name"] != each["decision"]]
    beside = f", with {_arrows(also)}" if also else ""
    head = f"{each['decision']} {each['instead']} instead of {each['value']}{beside}"
    proof = "" if each["proved"] else f"; {UNPROVED}"
    if each["reason"] is None:
        return f"{head}: as fast{proof}"
    if abs(each["relative"]) < UNSHOWN:
        return f"{head}: {'slower' if each['relative'] > 0 else 'faster'} by less than 0.01%{proof}"
    return f"{head}: {each['relative']:+.2%}, as {each['reason']}{proof}"


def _flips(flips: Sequence[Told], batch_time: float | None) -> Iterator[str]:
    stays: dict[str, list[str]] = {}
    for each in flips:
        end = f"{'down' if each['direction'] == 'less' else 'up'} to {_amount(each['same_at'], each['unit'])}"
        proof = "" if each["proved"] else f" ({UNPROVED})"
        if each["changed_at"] is not None:
            yield f"{_varied(each)}: {_changed(each, end, batch_time)}{proof}"
        else:
            stays.setdefault(_varied(each), []).append(end + proof)
    if stays:
        same = "there is no plan" if batch_time is None else "nothing changes"
        told = [f"{name} {' and '.join(ends)}" for name, ends in stays.items()]
        yield f"{same} with {'; '.join(told)}"


def _changed(each: Told, end: str, batch_time: float | None) -> str:
    found, at, near = each["outcome"], _amount(each["changed_at"], each["unit"]), _amount(each["same_at"], each["unit"])
    if batch_time is None:
        return f"at {at} there is a plan, {found['plan']}; {'with less' if at == near else end} there is none"
    side = f"with {each['direction']}{f', at {at}' if at != near else ''}"
    side = f"at {at}" if each["same_at"] == each["value"] else f"{end} its decisions stay the best; {side}"
    if found["plan"] is None:
        return f"{side}, no plan is feasible"
    room = "" if each["kept"] is not None else ", as this one no longer fits"
    return f"{side}, the best has {_changes(found)}{room} ({format_seconds(found['batch_time'])} a batch)"


def _count(number: float, what: str, plural: str = "s") -> str:
    return f"{number:g} {what}{plural if number != 1 else ''}"


def _varied(each: Told) -> str:
    return f"{each['parameter']} (now {_amount(each['value'], each['unit'])})"


def _amount(value: float, unit: str) -> str:
    if unit == "bytes":
        return format_bytes(value)
    size, name = _UNITS.get(unit, (1.0, unit))
    return f"{value / size:.4g} {name}"


def _changes(each: Told) -> str:
    return _arrows(each["changes"]) or each["plan"]


def _arrows(changes: Sequence[Told]) -> str:
    return ", ".join(f"{change['name']} {change['before']} -> {change['now']}" for change in changes)
