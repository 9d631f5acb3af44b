"""What a nearest plan changed and costs, in sentences."""

from collections.abc import Mapping
from typing import Any

from nest.units import format_seconds


def nearest_text(nearest: Mapping[str, Any]) -> str:
    """A nearest plan (`nest.whatif.nearest_plan.Nearest.to_dict`) in lines: why, what changed, and what that costs."""
    target = nearest["target"]
    lines = [f"{target} cannot run this plan: {reason}." for reason in nearest["reasons"]]
    lines += [f"{each['name']}: {each['before']} -> {each['now']}" for each in nearest["changes"]]
    told = f"exported is the nearest plan: {format_seconds(nearest['batch_time'])} a batch, "
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
