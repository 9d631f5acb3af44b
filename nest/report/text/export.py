"""What a framework can run, in a line."""

from collections.abc import Mapping
from typing import Any

from nest.deployment import Limits
from nest.units import format_seconds


def limits_text(limits: Limits | None) -> str:
    """`limits` in short; None: its exporter states none."""
    if limits is None:
        return "none stated"
    fresh = Limits()
    told = [
        _words("strategies", limits.strategies),
        _words("schedules", limits.schedules),
        "ZeRO " + ", ".join(map(str, limits.zero)) if limits.zero != fresh.zero else "",
        _words("recompute", limits.recompute),
        _words("rank orders", limits.rank_orders),
        "offload " + ", ".join(limits.offload) if limits.offload else "no offload",
        "equal stages" if limits.even_stages else "",
        "all devices" if limits.all_devices else "",
        "" if limits.mixed else "one candidate for all stages",
        "" if limits.zero_degrees else "ZeRO over all ranks",
        _rules(len(limits.constraints)),
    ]
    return "; ".join(part for part in told if part)


def _words(what: str, names: tuple[str, ...] | None) -> str:
    return "" if names is None else f"{what} {', '.join(names) or 'none'}"


def _rules(count: int) -> str:
    return f"{count} rule{'s' if count > 1 else ''}" if count else ""


def nearest_text(nearest: Mapping[str, Any]) -> str:
    """A nearest plan (`nest.whatif.nearest_plan.Nearest.to_dict`) in lines: why, what changed, and what that costs."""
    target = nearest["target"]
    lines = [f"{target} cannot run this plan: {reason}." for reason in nearest["reasons"]]
    lines += [f"{each['name']}: {each['before']} -> {each['now']}" for each in nearest["changes"]]
    told = f"exported is the nearest plan: {format_seconds(nearest['batch_time'])} a step, "
    told += f"{_loss(nearest['loss'])} than the plan given"
    if nearest["best_batch_time"] is not None:
        told += (
            f"; the best plan that {target} can run takes {format_seconds(nearest['best_batch_time'])}, "
            f"the nearest is {_loss(nearest['best_loss'])}"
        )
    return "\n".join([*lines, told + "."])


def _loss(share: float) -> str:
    percent = round(share * 100, 2)
    return f"{abs(percent):.2f} % {'faster' if percent < 0 else 'slower'}"
