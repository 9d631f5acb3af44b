"""From what people wrote to the instance that solvers see, with what is taken for granted on the way told."""

from collections.abc import Callable, Mapping
from typing import Any

from nest.formulate.cluster import told_of_levels
from nest.formulate.contradictions import refuse_contradictions
from nest.formulate.given import Changes, Source, naming, whole_problem
from nest.formulate.implied_target import untargeted, with_target
from nest.formulate.indivisible import told_of_length
from nest.formulate.instance import Formulation, formulate
from nest.formulate.stack import told_of_stack
from nest.hooks.registry import Registry
from nest.instance import Instance, SearchProgress
from nest.solve.effort import Deadline
from nest.spec import Problem

Told = Callable[[str], None]


def in_numbers(
    problem: Source | Problem,
    known: Registry,
    progress: Callable[[SearchProgress], None] | None = None,
    told: Told | None = None,
    changes: Changes | None = None,
    deadline: Deadline | None = None,
) -> tuple[Problem, Instance, Formulation]:
    """A problem, complete, as the instance that solvers see, with what that was made of.

    Args:
        problem: a path, a mapping as read from a file, or a `Problem`.
        known: registered strategies, importers and the like.
        progress: told now and then how far the formulation is.
        told: told what is taken for granted of a problem that does not say it, a sentence each.
        changes: keys of its sections in place of what is written.
        deadline: as for `formulate`.

    Raises:
        InputError: the problem cannot be used.
        NoPlanYet: the time is up before anything could be priced.
    """
    with naming(problem):
        whole, written = whole_problem(problem, known, None, changes)
        stack = told_of_stack(whole, written, known)
        whole, target = with_target(whole, written, known)
        if told is not None:
            levels = None if whole.model is None else told_of_levels(whole.cluster)
            length = told_of_length(whole, known)
            for sentence in (None if target is None else target.sentence, stack, levels, length):
                if sentence is not None:
                    told(sentence)
        refuse_contradictions(whole, written, known)
        return whole, *formulate(whole, known, progress=progress, deadline=deadline)


def decided_problem(
    problem: Source | Problem,
    fix: Mapping[str, Any] | None,
    known: Registry,
    told: Told | None = None,
    changes: Changes | None = None,
) -> Problem:
    """A problem, complete, with `fix` decided, and without a target unless it names one; arguments as above.

    Raises:
        InputError: the problem cannot be read.
    """
    whole, written = whole_problem(problem, known, fix, changes)
    stack = told_of_stack(whole, written, known)
    if told is not None and stack is not None:
        told(stack)
    return untargeted(whole, written, known)
