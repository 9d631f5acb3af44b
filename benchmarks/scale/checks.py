"""What answers must be: solved, refused with a size, equal to known optima, not below a published bound."""

import re
from collections import Counter
from collections.abc import Sequence

from benchmarks.scale.measure import Answer, Check, Finding

SAME = 1e-9
"""Relative difference up to which step times are equal (PROBLEM.md section 5)."""

PUBLISHED_DIGITS = 1e-4
"""The published largest loads have four decimals (data/README.md)."""


def statuses(answers: Sequence[Answer]) -> str:
    """How many answers there are of each status; of a single answer, also why it was refused."""
    if len(answers) == 1 and answers[0]["status"] == "refused":
        return f"refused: {answers[0]['message']}"
    counts = Counter(answer["status"] for answer in answers)
    return ", ".join(f"{count} {name}" if len(answers) > 1 else name for name, count in sorted(counts.items()))


def settled(answers: Sequence[Answer]) -> Finding:
    """Every answer is a proven optimum or a proof that there is no plan."""
    return Finding(statuses(answers), all(answer["status"] in ("optimal", "infeasible") for answer in answers))


def solved(answers: Sequence[Answer]) -> Finding:
    """Every answer is a proven optimum."""
    return Finding(statuses(answers), all(answer["status"] == "optimal" for answer in answers))


def branched(least: float | None, may_refuse: bool) -> Check:
    """Solved, with no stage time below a published bound; or refused with the size that is too large.

    Args:
        least: the published largest stage time, which ours cannot be below, seconds; None: none is known.
        may_refuse: whether a refusal that states a size will do.
    """

    def check(answers: Sequence[Answer]) -> Finding:
        (answer,) = answers
        if answer["status"] == "refused":
            return Finding(statuses(answers), may_refuse and states_a_size(answer["message"]))
        listed = answer["statistics"].get("downsets")
        searched = f"{statuses(answers)}, {'by CP-SAT' if listed is None else f'{listed} downsets searched'}"
        if answer["status"] != "optimal" or least is None:
            return Finding(searched, answer["status"] == "optimal")
        slowest = max(stage["time"] for stage in answer["stages"])
        right = slowest >= least - PUBLISHED_DIGITS
        return Finding(f"{searched}, slowest stage {slowest:.4f}, published bound {least:.4f}", right)

    return check


def within(gap: float) -> Check:
    """There is a plan, above what no plan is faster than by this share at most."""

    def check(answers: Sequence[Answer]) -> Finding:
        (answer,) = answers
        time, bound = answer.get("batch_time"), answer.get("lower_bound")
        if not time or not bound:
            return Finding(statuses(answers), False)
        return Finding(f"{statuses(answers)}, gap {time / bound - 1:.2%}", time <= bound * (1 + gap))

    return check


def states_a_size(message: str) -> bool:
    """Whether a refusal gives a number above a hundred, such as of downsets."""
    return any(int(number.replace(",", "")) > 100 for number in re.findall(r"\d[\d,]*", message))


def equal_to(optima: Sequence[float | None]) -> Check:
    """Each step time equals the known optimum; None: there is no plan."""

    def check(answers: Sequence[Answer]) -> Finding:
        right = sum(is_optimum(answer, optimum) for answer, optimum in zip(answers, optima, strict=True))
        return Finding(f"{right} of {len(optima)} equal to the known optimum", right == len(optima))

    return check


def is_optimum(answer: Answer, optimum: float | None) -> bool:
    """Whether an answer has this step time in seconds; None: whether it says there is no plan."""
    if optimum is None or answer["status"] != "optimal":
        return optimum is None and bool(answer["status"] == "infeasible")
    return bool(abs(answer["batch_time"] - optimum) <= SAME * optimum)
