"""How much more memory than estimated a plan is taken to need at most (`training.memory_margin`)."""

from nest.spec import Problem

MEASURED = 0.45
"""One hundredth more than the smallest margin, in hundredths rounded up, with which none of 82 published peaks is above
the upper estimate. `python -m benchmarks.memory RUNS` derives it; docs/explanation/cost-model.md ("How sure memory is")
tells more."""


def memory_margin(problem: Problem) -> float:
    """The margin of `problem`; candidates of a profile state their bytes, so that theirs is 0 unless one is written."""
    if problem.training.memory_margin is not None:
        return problem.training.memory_margin
    return 0.0 if problem.model is None else MEASURED
