"""What every stage runs, and in which order: pipeline schedules as PyTorch writes them.

A row is one pipeline rank, an entry `{stage}{F|B|I|W}{micro-batch}`: forward, whole backward, backward of the inputs,
backward of the weights (torch/distributed/pipelining/schedules.py, `_Action.from_str` and `_load_csv`). A stage here
is one run of layers: chunk `c` of rank `r` among `s` ranks is stage `c s + r`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from nest.deployment import Deployment
from nest.errors import InputError

Step = TypeVar("Step")

Order = tuple[tuple[str, ...], ...]
"""For each rank its actions."""


def actions(schedule: str, ranks: int, chunks: int, micro_batches: int) -> Order:
    """For each rank its actions in order. Shape `(ranks, actions)`.

    `chunks`: runs of layers of each rank.

    Raises:
        InputError: nobody here knows the order of that schedule.
    """
    if ranks == 1:
        return (tuple(f"0{kind}{index}" for index in range(micro_batches) for kind in "FB"),)
    if schedule not in ORDERS:
        raise InputError(f"there is no order of actions for the pipeline schedule {schedule!r}.")
    order = ORDERS[schedule]
    return tuple(tuple(order(rank, ranks, chunks, micro_batches)) for rank in range(ranks))


def csv_text(order: Order) -> str:
    """What PyTorch's `_load_csv` reads: a row for each rank."""
    return "".join(",".join(row) + "\n" for row in order)


SCHEDULE_FILE = "pipeline_schedule.csv"


def schedule_file(shape: Deployment) -> dict[str, str]:
    """The file of a plan's schedule; none without a pipeline.

    Raises:
        InputError: nobody here knows the order of its schedule.
    """
    if shape.stages == 1:
        return {}
    return {SCHEDULE_FILE: csv_text(actions(shape.schedule, shape.stages, shape.chunks, shape.micro_batches))}


def _one_forward_one_backward(rank: int, ranks: int, chunks: int, micro_batches: int) -> list[str]:
    """Each stage holds no more micro-batches than stages follow (arXiv 1806.03377, section 3.2)."""
    forward = [f"{rank}F{index}" for index in range(micro_batches)]
    backward = [f"{rank}B{index}" for index in range(micro_batches)]
    return _alternating(forward, backward, warm_up=ranks - rank)


def _gpipe(rank: int, ranks: int, chunks: int, micro_batches: int) -> list[str]:
    """All forward passes, then all backward passes (arXiv 1811.06965, section 2.3)."""
    return [f"{rank}{kind}{index}" for kind in "FB" for index in range(micro_batches)]


def _interleaved(rank: int, ranks: int, chunks: int, micro_batches: int) -> list[str]:
    """Megatron-LM's interleaved order (arXiv 2104.04473, section 2.2): `ranks` micro-batches of a chunk, then the next.

    A rank begins with `2 (s - 1 - r) + (v - 1) s` forward passes and the one that runs.
    """
    rounds = [range(first, first + ranks) for first in range(0, micro_batches, ranks)]
    places = [(chunk, index) for indices in rounds for chunk in range(chunks) for index in indices]
    back = [(chunks - 1 - chunk, index) for chunk, index in places]
    forward = [f"{chunk * ranks + rank}F{index}" for chunk, index in places]
    backward = [f"{chunk * ranks + rank}B{index}" for chunk, index in back]
    return _alternating(forward, backward, warm_up=2 * (ranks - 1 - rank) + (chunks - 1) * ranks + 1)


def _zero_bubble(rank: int, ranks: int, chunks: int, micro_batches: int) -> list[str]:
    """ZB-H1 (arXiv 2401.10241, section 2.1): rank `r` puts the backward of weights off by `r` micro-batches."""
    backward = [
        [f"{rank}I{index}", *([f"{rank}W{index - rank}"] if index >= rank else [])] for index in range(micro_batches)
    ]
    late = range(max(micro_batches - rank, 0), micro_batches)
    forward = [[f"{rank}F{index}"] for index in range(micro_batches)]
    done = _alternating(forward, backward, warm_up=ranks - rank)
    return [action for step in done for action in step] + [f"{rank}W{index}" for index in late]


def _alternating(forward: Sequence[Step], backward: Sequence[Step], warm_up: int) -> list[Step]:
    """`warm_up` forward passes, then a backward and a forward pass in turn, then the rest."""
    first = min(warm_up, len(forward))
    passes = [*forward[:first]]
    for index, step in enumerate(backward):
        passes.append(step)
        passes += forward[first + index : first + index + 1]
    return passes


ORDERS: Mapping[str, Callable[[int, int, int, int], list[str]]] = {
    "1f1b": _one_forward_one_backward,
    "gpipe": _gpipe,
    "interleaved": _interleaved,
    "zero-bubble": _zero_bubble,
}
"""By the name of the schedule (docs/reference/problem.md, `training.schedule`)."""
