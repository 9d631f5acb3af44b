"""Answers kept on disk (`NEST_CACHE`), so that nothing is asked twice of the same plan, or of the same problem."""

import os
from collections.abc import Callable
from math import inf
from typing import Any

from nest.hooks.loader import DISABLED, only_own
from nest.hooks.registry import Registry
from nest.io.disk_cache import keep, kept_file, read_kept
from nest.solve.effort import Deadline
from nest.spec import PlanDocument, Problem


def cached_plan(
    problem: Problem, known: Registry, deadline: Deadline, solve: Callable[[], PlanDocument]
) -> PlanDocument:
    """The best plan of a self-contained problem: the one kept, or a new one, which is kept from now on.

    It is told to whoever asks for this very problem again; the search of no other one begins with it
    (docs/decisions/0015-answers-kept.md). Nothing is kept where plug-ins of others take part, whose code nobody looks
    at, with a time limit, or of a search that is stopped.

    Args:
        problem: self-contained.
        known: registered strategies and the like.
        deadline: until when plans are looked for.
        solve: finds the plan.
    """
    if deadline.left < inf or not only_own(known.installed()):
        return solve()
    asked = f"{os.environ.get(DISABLED)} {known.warnings} {problem.text}"
    plan: PlanDocument = kept(("solve", 0), asked, solve, PlanDocument, lambda: deadline.left == inf)
    return plan


def kept(
    question: tuple[str, int],
    plans: str,
    answer: Callable[[], Any],
    kind: Any,
    lasts: Callable[[], bool] = lambda: True,
) -> Any:
    """The answer to a question on some plans: the one kept, or a new one, which is kept from now on.

    What is kept is an answer to this very question on these very plans by this very code.

    Args:
        question: a part of an explanation or a report, and the place among its questions.
        plans: what the answer follows from, as text.
        answer: makes the answer.
        kind: its type.
        lasts: whether a new one is to be kept.

    Raises:
        InputError: as `answer` does.
    """
    asked = f"{question} {plans}"
    path = kept_file(asked)
    found = None if path is None else read_kept(path, asked, kind)
    if found is None:
        found = answer()
        if path is not None and lasts():
            keep(path, asked, found, kind)
    return found
