"""How good a plan is, and what it decides."""

from nest.report.runner_up import other_risk_text, runner_up_text
from nest.reporting.naming import in_words
from nest.reporting.records import Fact, Section
from nest.reporting.rendering import Standing
from nest.reporting.subject import Subject
from nest.spec import PlanDocument
from nest.units import format_seconds

SECONDS_PER_DAY = 86400


def headline(subject: Subject) -> Section:
    """Figures that stand out, decisions, and the runner-up."""
    plan, found = subject.plan, subject.summary
    facts = [Fact("Batch time", format_seconds(subject.batch_time), subject.batch_time)]
    if plan.throughput is not None:
        facts.append(Fact("Throughput", f"{plan.throughput:.4g} samples/s", plan.throughput))
    if "tokens_per_second" in found:
        tokens = found["tokens_per_second"]
        each = found["tokens_per_second_per_device"]
        facts.append(Fact("Tokens per second and device", f"{each:,.0f}", each))
        facts.append(Fact("Tokens per day", in_words(tokens * SECONDS_PER_DAY), tokens * SECONDS_PER_DAY))
        share = found["model_flops_utilisation"]
        facts.append(Fact("Model FLOP utilisation (MFU)", f"{share:.1%}", share))
    facts.append(Fact("Idle share", f"{found['idle_share']:.1%}", found["idle_share"]))
    used, there = found["devices_used"], found["devices"]
    facts.append(Fact("Devices used", f"{used:,} of {there:,}", float(used)))
    if plan.lower_bound is not None:
        note = "proved, no gap" if plan.status == "optimal" else _gap(plan)
        facts.append(Fact("No plan is faster than", format_seconds(plan.lower_bound), plan.lower_bound, note))
    return Section("headline", "The plan", facts=tuple(facts), decisions=_decisions(plan), paragraphs=_told(plan))


def _gap(plan: PlanDocument) -> str:
    """How far the plan is from its bound; nothing where the bound says nothing."""
    return f"gap {(plan.batch_time or 0.0) / plan.lower_bound - 1:.2%}" if plan.lower_bound else ""


def _decisions(plan: PlanDocument) -> tuple[Fact, ...]:
    """What the plan decides for all stages, and what each stage chooses."""
    assert plan.candidate is not None
    used = list(dict.fromkeys(stage.candidate for stage in plan.stages))
    if len(used) > 1:
        found = [Fact("Candidates", ", ".join(used))]
    else:
        found = [
            Fact(name, str(degree), float(degree)) for name, degree in plan.candidate.degrees.items() if degree > 1
        ]
    size = plan.candidate.micro_batch or plan.candidate.samples
    found += [
        Fact("pp", str(len(plan.stages)), float(len(plan.stages)), "stage" if len(plan.stages) == 1 else "stages"),
        Fact("Replicas", str(plan.data_parallel), float(plan.data_parallel or 1)),
        Fact("Micro-batches", f"{plan.micro_batches:,}", float(plan.micro_batches or 0), f"of {size:,} in a replica"),
        Fact("Schedule", str(plan.schedule), None, f"{plan.chunks} chunks" if (plan.chunks or 1) > 1 else ""),
        Fact("Rank order", str(plan.rank_order)),
        Fact("ZeRO", _choices([str(stage.zero) for stage in plan.stages])),
        Fact("Recomputation", _choices([stage.recompute for stage in plan.stages])),
    ]
    if plan.zero_degree is not None:
        found.append(Fact("Shard groups", str(plan.zero_degree), float(plan.zero_degree), "ranks"))
    return tuple(found)


def _choices(each: list[str]) -> str:
    """What all stages choose, or the choices with the number of stages that make them."""
    counted = {choice: each.count(choice) for choice in dict.fromkeys(each)}
    if len(counted) == 1:
        return each[0]
    return ", ".join(f"{choice} on {count}" for choice, count in counted.items()) + " stages"


def _told(plan: PlanDocument) -> tuple[str, ...]:
    """Sentences on what the figures do not say."""
    told = []
    if plan.placement is not None:
        proved = "proved the best for this plan" if plan.placement.status == "optimal" else "the best found"
        told.append(
            f"The network is no hierarchy: levels come near it. On the network itself the batch takes "
            f"{format_seconds(plan.placement.batch_time)}, with the placement below, {proved}."
        )
    if plan.runner_up is not None and "reason" in plan.runner_up:
        told.append(runner_up_text(plan.runner_up))
    if (span := plan.batch_time_range) is not None:
        told.append(
            f"A batch takes {format_seconds(span.low)} to {format_seconds(span.high)} with a probability of"
            f" {span.probability:.0%}."
        )
    told += [other_risk_text(each) for each in plan.other_risks]
    return tuple(told)


def standing(plan: PlanDocument) -> Standing:
    """The status of a plan and what is proved of it."""
    if plan.status == "infeasible":
        return Standing("Infeasible", "bad", "No plan of this problem fits.")
    if not plan.fits:
        return Standing("Does not fit", "bad", "A stage may need more memory than a device has.")
    if plan.lower_bound is None:
        return Standing("As decided", "poor", "This plan was given and priced; nothing is claimed of others.")
    if plan.status == "optimal":
        return Standing("Optimal", "good", f"No plan of this problem is faster. {_verified(plan)}".strip())
    least = format_seconds(plan.lower_bound)
    gap = f", {_gap(plan)}" if plan.lower_bound else ""
    return Standing("Feasible", "poor", f"No plan is faster than {least}{gap}. {_verified(plan)}".strip())


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
