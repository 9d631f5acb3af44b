"""How much more memory than estimated a plan is taken to need at most (`training.memory_margin`)."""

from nest.spec import DeviceSpec, Problem

MEASURED = 0.45
"""The margin of devices of which no peak is known: the largest of those that have one.
`python -m benchmarks.memory RUNS` derives them; docs/explanation/cost-model.md ("How sure memory is") tells more."""


def memory_margin(problem: Problem, device: DeviceSpec | None) -> float:
    """The margin of `problem`; candidates of a profile state their bytes, so that theirs is 0 unless one is written."""
    if problem.training.memory_margin is not None:
        return problem.training.memory_margin
    if problem.model is None:
        return 0.0
    own = None if device is None else device.memory_overheads.margin
    return MEASURED if own is None else own
