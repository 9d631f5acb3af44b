"""The `summary` of a plan document: shares of the step time, utilisation, tokens per second, the training, its cost."""

from collections.abc import Mapping
from itertools import pairwise
from math import ceil
from typing import Any, NamedTuple

from nest.instance import Instance, Pool, Solution, copies_of
from nest.plan.evaluate import PricedPlan, PricedStage
from nest.plan.layout import schedule_of
from nest.spec import ClusterSpec, PlanDocument, StageRecord, TimeRange, Training
from nest.units import format_seconds, listed, percent

UNCALIBRATED = "; device not calibrated"
"""Said of a range of step times that published figures of a device alone give."""

SHARE_NAMES = {
    "compute": "compute",
    "collectives": "collectives",
    "recompute": "recomputation",
    "pipeline": "pipeline P2P",
    "sharding": "ZeRO",
    "ports": "busy ports",
    "bubble": "bubble",
    "sync": "gradient sync",
}
"""Names of the parts of the step time (`time_shares`) in tables."""

NOTICEABLE = 1e-3  # Least share of the step time for which collectives inside layers are listed one by one.
NAMED = 3  # Most unmeasured sizes named one by one with the nearest measured ones.

COPIES = "Each device holds two stages: half of the micro-batches run through the pipeline in the other direction."
"""Note on a plan that holds its parameters twice (`summary.copies`)."""


def collectives_text(summary: Mapping[str, Any], batch_time: float) -> str:
    """Describe the time of collectives inside layers on the slowest stage, and the exposed part; empty: too little."""
    parts = [
        f"{each['strategy']} over {each['level']} {format_seconds(each['seconds'])}, {_exposed(each)} exposed"
        for each in summary.get("collectives", ())
        if each["seconds"] > NOTICEABLE * batch_time
    ]
    return f"TP, CP and EP communication: {'; '.join(parts)}" if parts else ""


def coverage_text(summary: Mapping[str, Any]) -> str:
    """Describe the measured share of compute (`summary.coverage`); empty: the plan is priced without a table.

    The three most important sizes that were not measured are named with the nearest one, whose time was scaled.
    """
    known = summary.get("coverage")
    if known is None:
        return ""
    near = known["measured"] - known["at_its_sizes"]
    text = f"Operator times: {percent(known['measured'])} measured"
    if known["nearest"]:
        parts = [
            f"{each['kind']} of {_sizes(each['sizes'])} from {_others(each)} ({percent(each['share'])})"
            for each in known["nearest"][:NAMED]
        ]
        others = len(known["nearest"]) + known["more"] - len(parts)
        more = f", and {others} more" if others else ""
        text += f" ({percent(near)} scaled from the nearest sizes: {'; '.join(parts)}{more})"
    if known["computed"]:
        rest = ", ".join(f"{each['kind']} {percent(each['share'])}" for each in known["computed"])
        text += f". Computed without measurement: {rest}"
    return f"{text}."


def _sizes(sizes: Mapping[str, int]) -> str:
    return " x ".join(f"{size:,} {name}" for name, size in sizes.items() if size > 1)


def _others(near: Mapping[str, Any]) -> str:
    return listed([f"{size:,} {name}" for name, size in near["measured_at"].items() if size != near["sizes"][name]])


def _exposed(each: Mapping[str, Any]) -> str:
    share = each["shown"] / each["seconds"]
    return "none" if share < NOTICEABLE else "all" if share > 1 - NOTICEABLE else percent(share, 0)


class ModelFacts(NamedTuple):
    """Facts on the model besides its layers' costs."""

    sequence_length: int | None  # Tokens per sample; None: samples have none.
    flops_per_sample: float  # Model FLOP of both passes (`nest models` prints the convention).
    # Matrix peak of a device at the training's precision, FLOP per second, by pool; "" without pools.
    peaks: Mapping[str, float]
    # The trained part in words (`what`), its `parameters`, and `of` how many; None: all.
    trained: Mapping[str, Any] | None = None


def trained_text(trained: Mapping[str, Any]) -> str:
    """Describe `summary.trained`."""
    return f"{trained['what']}: {trained['parameters']:,} of {trained['of']:,} parameters"


def upper_memory(stage: StageRecord) -> float:
    """Return the bytes of a stage compared with a device's; in plans of older versions the expected ones."""
    return stage.memory if stage.upper_memory is None else stage.upper_memory


def needed_memory(plan: PlanDocument, pool: str | None = None) -> float:
    """Return the bytes of a device (of `pool`) for a plan with decisions to fit."""
    return max(upper_memory(stage) for stage in plan.stages if pool in (None, stage.pool))


def stage_seconds(stage: PricedStage, micro_batches: int) -> dict[str, float]:
    """Return a stage's seconds for all micro-batches of a batch by cause (PROBLEM.md section 4).

    `collectives` is the exposed part of collectives inside layers, `pipeline` of messages received over its boundaries
    while the pipeline is full, `sharding` ZeRO communication in every micro-batch, `ports` the excess of its busiest
    port over these. Recomputed collectives belong to `recompute`, those of layers measured whole to `compute`.
    """
    parts = {
        "compute": stage.compute - stage.collectives,
        "collectives": stage.collectives,
        "recompute": stage.recompute,
        "pipeline": stage.arriving + stage.returning - stage.hidden,
        "sharding": stage.sharding,
        "ports": stage.port_wait,
    }
    return {cause: micro_batches * seconds for cause, seconds in parts.items()}


def time_shares(priced: PricedPlan) -> dict[str, float]:
    """Return the parts of the step time, seconds, which add up to it.

    They are those of the slowest stage; `bubble` is the schedule's, `sync` the longest gradient reduction and optimizer
    step.
    """
    parts = stage_seconds(max(priced.stages, key=lambda stage: stage.time), priced.micro_batches)
    parts["bubble"] = priced.batch_time - priced.sync - sum(parts.values())
    parts["sync"] = priced.sync
    return parts


def figures(instance: Instance, solution: Solution, priced: PricedPlan, facts: ModelFacts | None) -> dict[str, Any]:
    """Return the `summary` of a plan document.

    Tokens per second (samples, if they have none) are per device used. Model FLOP utilisation takes the backward pass
    as twice the forward, less the gradients of frozen parameters, without recomputation (PaLM, arXiv 2204.02311,
    appendix B).
    """
    used = solution.replicas * sum(stage.width for stage in priced.stages)
    summary: dict[str, Any] = {
        "devices": instance.size,
        "devices_used": used,
        "idle_share": priced.idle_share,
        "time_shares": time_shares(priced),
    }
    if instance.pools is None:
        summary["memory_capacity"] = priced.device_memory
    else:
        summary["pools"] = [_pool_figures(pool, solution, instance, priced) for pool in instance.pools.members]
    copies = copies_of(schedule_of(instance, solution))
    if copies > 1:
        summary["copies"] = copies
    if facts is not None and facts.trained is not None:
        summary["trained"] = dict(facts.trained)
    if facts is not None and priced.batch_time > 0:
        samples = instance.space.global_batch / priced.batch_time
        if facts.sequence_length is None:
            summary["samples_per_second_per_device"] = samples / used
        else:
            summary["tokens_per_second"] = samples * facts.sequence_length
            summary["tokens_per_second_per_device"] = samples * facts.sequence_length / used
        pools = [instance.candidates[stage.candidate].pool or "" for stage in solution.stages]
        widths = [stage.width for stage in priced.stages]
        peak = solution.replicas * sum(width * facts.peaks[pool] for width, pool in zip(widths, pools, strict=True))
        summary["model_flops_utilisation"] = facts.flops_per_sample * samples / peak
    return summary


def training_steps(training: Training) -> int | None:
    """Return the steps of the whole training; None: tokens or the length of samples are not stated."""
    if training.tokens is None or training.sequence_length is None:
        return None
    return ceil(training.tokens / (training.global_batch * training.sequence_length))


def _pool_figures(pool: Pool, solution: Solution, instance: Instance, priced: PricedPlan) -> dict[str, Any]:
    """Return `summary.pools` of one pool."""
    stages = zip(solution.stages, priced.stages, strict=True)
    widths = [stage.width for each, stage in stages if instance.candidates[each.candidate].pool == pool.name]
    return {
        "name": pool.name,
        "devices": pool.cluster.size,
        "devices_used": solution.replicas * sum(widths),
        "memory_capacity": pool.cluster.device_memory,
        "levels": [level.name for level in pool.cluster.levels],
    }


def memory_capacity(summary: Mapping[str, Any], pool: str | None) -> float | None:
    """Return the bytes of a device, in one of the pools if there are any; None: not in the summary."""
    for each in summary.get("pools", ()):
        if each["name"] == pool:
            return float(each["memory_capacity"])
    capacity: float | None = summary.get("memory_capacity")
    return capacity


OTHER_POOL = "other pool"  # Name in tables of the boundary between stages of different pools.


def level_name(summary: Mapping[str, Any], pool: str | None, level: int) -> str:
    """Return the name in tables of a boundary of this level."""
    names = next((each["levels"] for each in summary.get("pools", ()) if each["name"] == pool), summary.get("levels"))
    if level < 0:
        return "-"
    return OTHER_POOL if level == len(names or ()) and pool is not None else str((names or ())[level])


def whole_training(
    training: Training, cluster: ClusterSpec, batch_time: float, span: TimeRange | None, summary: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the `summary.training` of a plan, all steps alike; None: the problem states no number of tokens.

    Args:
        batch_time: seconds of a step.
        span: its range.
        summary: has the devices used, which alone are paid for, and the cost of a step.

    Returns:
        `tokens`, `steps`, `time` (seconds), `device_hours` and, with `cluster.price` or a price of each pool used,
        `cost`; `low` and `high` of time and cost over the step time's range, if it has one.
    """
    tokens, steps = training.tokens, training_steps(training)
    if tokens is None or steps is None:
        return None
    times = {"time": batch_time, **({} if span is None else {"low": span.low, "high": span.high})}
    whole: dict[str, Any] = {"tokens": tokens, "steps": steps, **{key: steps * each for key, each in times.items()}}
    whole["device_hours"] = whole["time"] * summary["devices_used"] / SECONDS_AN_HOUR
    if (price := price_of_an_hour(cluster, summary)) is not None:
        egress = steps * summary.get("cost", {}).get("egress", 0.0)
        for key in times:
            name = "cost" if key == "time" else f"cost_{key}"
            whole[name] = whole[key] / SECONDS_AN_HOUR * price + egress
    return whole


SECONDS_AN_HOUR = 3600.0
GIGABYTE = 1e9  # Bytes by which clouds charge traffic that leaves a zone.


def price_of_an_hour(cluster: ClusterSpec, summary: Mapping[str, Any]) -> float | None:
    """Return the price of an hour of the devices used; None: not stated for all of them."""
    if cluster.pools is None:
        return None if cluster.price is None else cluster.price * float(summary["devices_used"])
    prices, total = {each.name: each.price for each in cluster.pools}, 0.0
    for each in summary["pools"]:
        price, used = prices[each["name"]], each["devices_used"]
        if price is None and used:
            return None
        total += (price or 0.0) * used
    return total


def cost_of_a_step(
    training: Training,
    cluster: ClusterSpec,
    instance: Instance,
    solution: Solution,
    priced: PricedPlan,
    summary: Mapping[str, Any],
) -> dict[str, float] | None:
    """Return the `summary.cost` of a plan; None: the price of its devices is not stated.

    Returns:
        `step`: currency per optimizer step; `egress`: the part paid for bytes that leave their pool, if any; `token`:
        currency per token, if the problem states their number.
    """
    hour = price_of_an_hour(cluster, summary)
    if hour is None:
        return None
    cost = {"step": hour * priced.batch_time / SECONDS_AN_HOUR}
    if any(each.egress is not None for each in cluster.between or ()):
        cost["egress"] = egress_of_a_step(cluster, instance, solution, priced.micro_batches)
        cost["step"] += cost["egress"]
    if training.sequence_length is not None:
        cost["token"] = cost["step"] / (training.global_batch * training.sequence_length)
    return cost


def egress_of_a_step(cluster: ClusterSpec, instance: Instance, solution: Solution, micro_batches: int) -> float:
    """Return the currency for the bytes of a step that leave their pool over a link that charges for them."""
    charged = {frozenset(each.pools): each.egress for each in cluster.between or () if each.egress is not None}
    if not charged:
        return 0.0
    sent = sent_between_pools(instance, solution, micro_batches)
    return sum(charged.get(pair, 0.0) * count / GIGABYTE for pair, count in sent.items())


def sent_between_pools(instance: Instance, solution: Solution, micro_batches: int) -> dict[frozenset[str], float]:
    """Return the bytes of a step between each two pools, both ways, by their names, without zeros.

    Over the boundary behind a stage go the tensors made up to it and read later; every device of the stage sends its
    candidate's bytes of each forward, and every device of the next stage its own of their gradients.
    """
    home = {layer: index for index, stage in enumerate(solution.stages) for layer in stage.layers}
    sent: dict[frozenset[str], float] = {}
    for behind, stages in enumerate(pairwise(solution.stages)):
        ends = [instance.candidates[stage.candidate] for stage in stages]
        pools = frozenset(str(each.pool) for each in ends)
        if len(pools) < 2:
            continue
        crossing = [
            index
            for index, (producer, consumers) in enumerate(instance.graph.tensors)
            if home[producer] <= behind < max((home[each] for each in consumers), default=-1)
        ]
        both = sum(end.width * float(end.tensor_bytes[crossing].sum()) for end in ends)
        sent[pools] = sent.get(pools, 0.0) + both * micro_batches * solution.replicas
    return sent
