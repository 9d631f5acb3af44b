"""What the whole training takes: steps, time, device hours and cost."""

from collections.abc import Mapping
from math import ceil
from typing import Any

from nest.instance import Instance
from nest.plan import PricedPlan, time_range
from nest.spec import Problem
from nest.units import format_seconds

SECONDS_AN_HOUR = 3600.0


def whole_training(problem: Problem, instance: Instance, priced: PricedPlan, devices: int) -> dict[str, Any] | None:
    """The `summary.training` of a plan, all steps alike; None: the problem does not say how many tokens there are.

    Args:
        problem: self-contained.
        instance: of the problem.
        priced: the plan.
        devices: that it uses, which alone are paid for.

    Returns:
        `tokens`, `steps`, `time` (seconds), `device_hours` and, with `cluster.price`, `cost`; `low` and `high` of
        time and cost as of the batch time's range, where it has one.
    """
    tokens, length = problem.training.tokens, problem.training.sequence_length
    if tokens is None or length is None:
        return None
    steps = ceil(tokens / (instance.space.global_batch * length))
    span = time_range(priced.batch_time, priced.time_error)
    times = (
        {"time": priced.batch_time} if span is None else {"time": priced.batch_time, "low": span.low, "high": span.high}
    )
    found: dict[str, Any] = {"tokens": tokens, "steps": steps, **{key: steps * each for key, each in times.items()}}
    found["device_hours"] = found["time"] * devices / SECONDS_AN_HOUR
    if (price := problem.cluster.price) is not None:
        for key in times:
            name = "cost" if key == "time" else f"cost_{key}"
            found[name] = found[key] * devices / SECONDS_AN_HOUR * price
    return found


def training_rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """`summary.training` for people: what it takes and what it costs, as names and figures."""
    steps = "1 step" if found["steps"] == 1 else f"{found['steps']:,} steps"
    time = f"{format_seconds(found['time'])} for {format_tokens(found['tokens'])} tokens in {steps}"
    if "low" in found:
        time += f" ({format_seconds(found['low'])} to {format_seconds(found['high'])})"
    rows = [("time to train", time), ("device hours", f"{found['device_hours']:,.0f}")]
    if "cost" in found:
        cost = f"{found['cost']:,.0f}"
        if "cost_low" in found:
            cost += f" ({found['cost_low']:,.0f} to {found['cost_high']:,.0f})"
        rows.append(("cost", f"{cost}, in the currency of cluster.price"))
    return rows


def format_tokens(count: int) -> str:
    """A number of tokens as people say it: `15T`, `2.4B`."""
    for factor, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= factor:
            return f"{count / factor:.4g}{letter}"
    return str(count)
