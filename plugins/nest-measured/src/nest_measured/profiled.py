"""Results of `nest profile` as a table."""

from collections.abc import Sequence
from statistics import median

from attrs import evolve

from nest.errors import InputError
from nest.spec.measurements import Measurement, OperatorMeasurement
from nest.units import Seconds
from nest_measured.table import Row, Table

SIZED = ("matmul", "attention")
"""Kinds whose sizes in a table follow from their shape."""

LEFT_OUT = ("update", "copy", "launch")
"""Kinds that are no operators of a model's graph."""


def table_of(measurements: Sequence[Measurement], device: str) -> Table:
    """The table of operators measured on one device; of what was measured several times the median counts.

    A causal kernel stands for attention where both were measured: sizes do not tell them apart.

    Args:
        measurements: as `nest profile` writes them; those of collectives count for nothing here.
        device: what the catalogue calls the device.

    Raises:
        InputError: they are of several devices, or of no operator.
    """
    found = [each for each in measurements if isinstance(each, OperatorMeasurement) and each.kind not in LEFT_OUT]
    devices = sorted({each.device or "an unknown device" for each in found})
    if len(devices) > 1:
        raise InputError(f"measured on {' and '.join(devices)}; a table is of one device.")
    causal = {_key(each) for each in found if each.shape.get("causal")}
    rows: dict[tuple[object, ...], dict[str, list[OperatorMeasurement]]] = {}
    for each in found:
        if each.shape.get("causal") is False and _key(each) in causal:
            continue
        rows.setdefault(_key(each), {}).setdefault(each.direction, []).append(each)
    table = [
        Row(
            both["forward"][0].kind,
            _sizes(both["forward"][0]),
            _median(both["forward"]),
            _median(both["backward"]) if "backward" in both else None,
            both["forward"][0].precision,
            sum(each.repeats for each in both["forward"]),
        )
        for both in rows.values()
        if "forward" in both
    ]
    # A cross-entropy is a softmax of the logits, and all but nothing besides.
    logits = [row for row in table if row.kind == "softmax"]
    table += [evolve(row, kind="loss", sizes={"bytes": row.sizes["bytes"] // 2}) for row in logits]
    if not table:
        raise InputError("there is no forward pass of an operator among the measurements.")
    return Table(tuple(table), device)


def _median(measured: Sequence[OperatorMeasurement]) -> Seconds:
    return Seconds(median(each.seconds for each in measured))


def _key(each: OperatorMeasurement) -> tuple[object, ...]:
    sizes = _sizes(each) if each.kind in SIZED else each.shape  # A backward pass moves other bytes.
    return (each.kind, tuple(sorted(sizes.items())), each.precision)


def _sizes(each: OperatorMeasurement) -> dict[str, int]:
    """Sizes as tables have them: a batch of products is groups that share the rows."""
    if each.kind == "matmul":
        groups = each.size("batch")
        sizes = {name: each.size(name) for name in ("columns", "contracted")}
        return {"rows": groups * each.size("rows"), **sizes, "groups": groups}
    if each.kind == "attention":
        sizes = {name: each.size(name) for name in ("batch", "heads", "sequence", "head")}
        keys, value = each.size("keys", sizes["sequence"]), each.size("value", sizes["head"])
        return {**sizes, "keys": keys, "value": value}
    return {"bytes": round(each.bytes or 0.0)}
