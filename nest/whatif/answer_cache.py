"""Answers kept on disk (`NEST_CACHE`), so that nothing is asked twice of the same plan, or of the same problem."""

import os
from collections.abc import Callable
from math import inf
from typing import Any

from nest.hooks.loader import DISABLED, only_own
from nest.hooks.registry import Registry
from nest.io.kept import keep, kept_file, read_kept
from nest.solve.effort import Deadline
from nest.spec import PlanDocument, Problem


def kept_plan(problem: Problem, known: Registry, deadline: Deadline, solve: Callable[[], PlanDocument]) -> PlanDocument:
    """The best plan of a self-contained problem: the one kept, or a new one, which is kept from now on.

    It is told to whoever asks for this very problem again; the search of no other one begins with it
    (docs/decisions/0015-prices-and-tables-kept.md). Nothing is kept as `nest.formulate.kept_model` keeps nothing, nor
    of a search that is stopped.

    Args:
        problem: self-contained.
        known: registered strategies and the like.
        deadline: until when plans are looked for.
        solve: finds the plan.

    Raises:
        InputError: as `kept`.
    """
    if deadline.left < inf or not only_own(known.installed()):
        return solve()
    asked = f"{os.environ.get(DISABLED)} {known.warnings} {problem.text}"
    plan: PlanDocument = kept(("solve", 0), asked, solve, lambda: deadline.left == inf)
    return plan


def kept(
    question: tuple[str, int], plans: str, answer: Callable[[], Any], lasts: Callable[[], bool] = lambda: True
) -> Any:
    """The answer to a question on some plans: the one kept, or a new one, which is kept from now on.

    What is kept is an answer to this very question on these very plans by this very code.

    Args:
        question: a part of an explanation or a report, and the place among its questions.
        plans: what the answer follows from, as text.
        answer: makes the answer.
        lasts: whether a new one is to be kept.

    Raises:
        InputError: as `answer` does; or the folder that the user names cannot be written to.
    """
    path = kept_file(f"{question} {plans}")
    found = None if path is None else read_kept(path)
    if found is None:
        found = answer()
        if path is not None and lasts():
            keep(path, found)
    return found
