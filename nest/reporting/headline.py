"""How good a plan is, and what it decides."""

from collections.abc import Iterator, Mapping
from typing import Any

from nest.report.summary import decisions_text, is_simplest
from nest.reporting.naming import in_words
from nest.reporting.records import Fact, Section
from nest.reporting.rendering import Standing
from nest.reporting.subject import Subject
from nest.reporting.words import plan_in_words
from nest.spec import PlanDocument
from nest.spec.problem import NO_TARGET
from nest.units import format_bytes, format_seconds

SECONDS_PER_DAY = 86400


def headline(subject: Subject) -> Section:
    """The plan in words, and the figures that stand out."""
    plan = subject.plan
    decided = f"In short: {decisions_text(plan)}, rank order {plan.rank_order}."
    facts = tuple(_facts(subject))
    return Section("headline", "The plan", lead=plan_in_words(subject), paragraphs=(decided,), facts=facts)


def _facts(subject: Subject) -> Iterator[Fact]:
    """The figures, those that people decide by first."""
    plan, found = subject.plan, subject.summary
    span = plan.batch_time_range
    between = f"{_between(span.low, span.high)}, {span.probability:.0%} likely" if span is not None else ""
    yield Fact("Batch time", format_seconds(subject.batch_time), subject.batch_time, between)
    if "tokens_per_second" in found:
        share = found["model_flops_utilisation"]
        yield Fact("Model FLOP utilisation (MFU)", f"{share:.1%}", share)
    yield from _training(found.get("training"))
    if plan.throughput is not None:
        yield Fact("Throughput", f"{plan.throughput:.4g} samples/s", plan.throughput)
    if "tokens_per_second" in found:
        each = found["tokens_per_second_per_device"]
        a_day = f"{in_words(found['tokens_per_second'] * SECONDS_PER_DAY)} a day in all"
        yield Fact("Tokens per second and device", f"{each:,.0f}", each, a_day)
    fullest = max(stage.memory for stage in plan.stages)
    likely = "" if plan.fit_probability is None else f"{plan.fit_probability:.0%} likely to fit"
    room = f"{format_bytes(fullest)} of {format_bytes(subject.priced.device_memory)}"
    yield Fact("Memory of the fullest stage", room, fullest, likely)
    used, there = found["devices_used"], found["devices"]
    yield Fact("Devices used", f"{used:,} of {there:,}", float(used))
    idle = found["idle_share"]
    bubble = found["time_shares"]["bubble"] / subject.batch_time if subject.batch_time else 0.0
    yield Fact("Idle, average of stages", f"{idle:.1%}", idle, f"pipeline bubble {bubble:.1%}")


def _training(told: Mapping[str, Any] | None) -> Iterator[Fact]:
    """Time and cost of the whole training, where the problem says how many tokens it takes."""
    if told is None:
        return
    tokens = f"{in_words(told['tokens'])} tokens"
    between = f"{_between(told['low'], told['high'])}; " if told.get("low") is not None else ""
    yield Fact("Time to train", format_seconds(told["time"]), told["time"], f"{between}{tokens}")
    hours = told["device_hours"]
    if told.get("cost") is None:
        yield Fact("Device hours to train", in_words(hours), hours, tokens)
        return
    least, most = told.get("cost_low"), told.get("cost_high")
    between = f"{in_words(least)} to {in_words(most)}; " if least is not None and most is not None else ""
    yield Fact("Cost to train", in_words(told["cost"]), told["cost"], f"{between}{in_words(hours)} device hours")


def _between(low: float, high: float) -> str:
    return f"{format_seconds(low)} to {format_seconds(high)}"


def _gap(plan: PlanDocument) -> str:
    """How far the plan is from its bound; nothing where the bound says nothing."""
    return f"gap {(plan.batch_time or 0.0) / plan.lower_bound - 1:.2%}" if plan.lower_bound else ""


def standing(plan: PlanDocument) -> Standing:
    """The status of a plan and what is proved of it."""
    if plan.status == "infeasible":
        return Standing("Infeasible", "bad", "No plan of this problem fits.")
    if not plan.fits:
        return Standing("Does not fit", "bad", "A stage may need more memory than a device has.")
    if plan.lower_bound is None:
        return Standing("As decided", "poor", "This plan was given and priced; nothing is claimed of others.")
    if plan.status == "optimal":
        target = plan.problem.get("search", {}).get("target")
        whose = "of this problem" if target in (None, NO_TARGET) else f"that {target} can run"
        return Standing("Optimal", "good", f"No plan {whose} is faster. {_verified(plan)}".strip())
    if not plan.lower_bound:
        return Standing(
            "Feasible", "poor", f"The search was stopped; a faster plan may exist. {_verified(plan)}".strip()
        )
    least, gap = format_seconds(plan.lower_bound), f", {_gap(plan)}"
    status = ("Simplest", "good") if is_simplest(plan) else ("Feasible", "poor")
    return Standing(*status, f"No plan is faster than {least}{gap}. {_verified(plan)}".strip())


def _verified(plan: PlanDocument) -> str:
    """What a second solver said."""
    told = plan.verification
    if told is None:
        return ""
    solver = told.get("solver", "a second solver")
    return {
        "proved": f"Proved a second time by {solver}.",
        "refuted": f"{solver} found it when it was asked to prove another.",
        "open": f"{solver} was asked for a proof and left it open: {told.get('reason') or 'no reason is given'}.",
    }.get(str(told.get("status")), "")
