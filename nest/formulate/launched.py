"""Values a launch derives from a split of its model: data parallelism, and what follows it."""

from collections.abc import Mapping
from math import prod
from typing import Any

from attrs import evolve

from nest.errors import InputError
from nest.formulate.fixed_plan import with_decisions
from nest.spec import Fixed, Problem

SPLITS = ("tp", "cp", "pp")  # Decisions from which a launch on a number of devices derives its data parallelism.


def launched_with(problem: Problem, decisions: Mapping[str, Any], devices: int) -> Problem:
    """`problem`, a run on so many devices, with further decisions and what a launch derives from them.

    Where its split changes, `dp` fills the devices and `zero_degree` keeps its number of groups, `etp` stays the
    tensor-parallel degree where it is, and stages are made anew. Nothing is derived where `micro_batches` or `devices`
    is decided.

    Raises:
        InputErrors: a decision is of a kind no decision is.
        InputError: the split does not fill the devices.
    """
    before = problem.fixed or Fixed({})
    changed = with_decisions(problem, decisions)
    after = changed.fixed or before
    old, new = ({name: int(each.values.get(name, 1)) for name in SPLITS} for each in (before, after))
    said = {name: decisions[name] for name in ("dp", "replicas") if name in decisions}
    if {"micro_batches", "devices"} & decisions.keys() or (old == new and not said):
        return changed
    others = max(devices // (int(before.values.get("dp", devices)) * prod(old.values())), 1)  # Such as of a plug-in.
    data, left = divmod(devices, whole := prod(new.values()) * others)
    if left or {data} != {data, *said.values()}:
        split = " x ".join(f"{name.upper()} {degree}" for name, degree in {**new, **said}.items() if degree != 1)
        told = f"change it, as it needs a multiple of {whole}" if left else f"leave {' and '.join(said)} out"
        raise InputError(f"{split} does not fill the {devices} devices of the run; {told}, or give --nodes.")
    values: dict[str, int | float | str | bool] = {**after.values, "dp": data}
    values.pop("replicas", None)
    if new["tp"] == 1 and "sp" in values:
        values["sp"] = False
    if "etp" not in decisions and before.values.get("etp") == old["tp"] != new["tp"]:
        values["etp"] = new["tp"]
    if (degree := before.values.get("zero_degree")) and "zero_degree" not in decisions and "dp" in before.values:
        groups = max(int(before.values["dp"]) * old["cp"] // int(degree), 1)
        values["zero_degree"] = max(data * new["cp"] // groups, 1)
    stages = after.stages
    if old["pp"] != new["pp"] and "stages" not in decisions:
        stages = None
        if new["pp"] == 1:
            values.pop("chunks", None)
            values["schedule"] = "1f1b"
    return evolve(changed, fixed=evolve(after, values=values, stages=stages))
