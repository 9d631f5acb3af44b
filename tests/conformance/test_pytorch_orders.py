"""Orders of schedules against the action lists of PyTorch's own classes (torch.distributed.pipelining), on a CPU.

Its schedules make their lists from a few attributes of stages, so that no process group is needed. The list that
`Schedule1F1B` shows numbers the forward passes of the last stage from 1; what it does is asked instead, of this class
and of `ScheduleGPipe`: which passes their loop over micro-batches calls.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice

import pytest

from nest.hooks.registry import registry
from nest.instance import ChunkedSchedule, OrderedSchedule, admits
from nest.instance.schedule import Pass, places_of, runs
from nest.spec.constraints import parse
from nest_frameworks.limits import sharded
from tests.conformance.consumer import consume, needs

CLASSES = {
    "1f1b": "Schedule1F1B",
    "gpipe": "ScheduleGPipe",
    "interleaved": "ScheduleInterleaved1F1B",
    "interleaved-zero-bubble": "ScheduleInterleavedZeroBubble",
    "zb-v": "ScheduleZBVZeroBubble",
    "dualpipe-v": "ScheduleDualPipeV",
}

LETTERS = {"forward": "F", "backward": "B", "input-gradients": "I", "weight-gradients": "W"}

SHAPES = 50

LISTS = """
import re
from types import SimpleNamespace
from torch.distributed.pipelining import schedules

def listed(made, stages, chunks, micro_batches):
    count = stages * chunks
    mine = [SimpleNamespace(stage_index=chunk * stages, num_stages=count, group_size=stages, group_rank=0,
                            is_first=chunk == 0, is_last=False, submod=None, has_backward=True)
            for chunk in range(chunks)]
    order = made(mine, micro_batches).pipeline_order
    rows = []
    for rank in range(stages):
        steps = ["+".join(map(str, action.sub_actions or (action,))) for action in order[rank] if action is not None]
        rows.append([step for step in steps if re.fullmatch(r"(\\+?\\d+[FBIW]\\d+)+", step)])
    return rows

def called(made, stages, micro_batches):
    rows = []
    for rank in range(stages):
        row = []
        nothing = lambda *_, **__: []
        stage = SimpleNamespace(
            stage_index=rank, num_stages=stages, group_size=stages, group_rank=rank, is_first=rank == 0,
            is_last=rank == stages - 1, submod=None, has_backward=True, release_fwd_send_outputs=nothing,
            get_fwd_recv_ops=nothing, get_fwd_send_ops=nothing, get_bwd_recv_ops=nothing, get_bwd_send_ops=nothing,
            perform_reduce_grad=nothing, clear_runtime_states=nothing,
            forward_one_chunk=lambda index, *_, **__: row.append(f"{rank}F{index}"),
            backward_one_chunk=lambda index, *_, **__: row.append(f"{rank}B{index}"),
        )
        schedule = made(stage, micro_batches)
        schedule._has_backward = True
        for name in ("_initialize_stage", "_maybe_compute_loss", "_maybe_get_loss", "_update_losses"):
            setattr(schedule, name, nothing)
        schedule._step_microbatches()
        rows.append(row)
    return rows

found = []
for stages, chunks, micro_batches in given["shapes"]:
    made = getattr(schedules, given["made"])
    several = issubclass(made, schedules.PipelineScheduleMulti)
    found.append(listed(made, stages, chunks, micro_batches) if several else called(made, stages, micro_batches))
answer(found)
"""


@pytest.mark.parametrize("name", CLASSES)
def test_orders_are_those_of_pytorch(name: str) -> None:
    needs("torch")
    shapes = list(islice(admitted(name), SHAPES))
    found = consume(LISTS, {"made": CLASSES[name], "shapes": shapes})
    assert len(found) == SHAPES
    for (stages, chunks, micro_batches), rows in zip(shapes, found, strict=True):
        assert rows == written(made(name, chunks), stages, micro_batches), (stages, chunks, micro_batches)


ACCEPTED = """
from types import SimpleNamespace
from torch.distributed.pipelining import schedules

def takes(stages, chunks, micro_batches):
    count = stages * chunks
    mine = [SimpleNamespace(stage_index=chunk * stages, num_stages=count, group_size=stages, group_rank=0,
                            is_first=chunk == 0, is_last=False, submod=None, has_backward=True)
            for chunk in range(chunks)]
    made = getattr(schedules, given["made"])
    try:
        made(mine if issubclass(made, schedules.PipelineScheduleMulti) else mine[0], micro_batches)
    except ValueError:
        return False
    return True

answer([takes(*shape) for shape in given["shapes"]])
"""


@pytest.mark.parametrize("name", CLASSES)
def test_pytorch_takes_what_limits_and_schedules_allow(name: str) -> None:
    """Its loops ask for whole rounds, of which it has some more kinds than our schedules."""
    needs("torch")
    chunks = 2 if name in ("interleaved", "interleaved-zero-bubble", "zb-v", "dualpipe-v") else 1
    shapes = [(stages, chunks, count) for stages in range(2, 8) for count in range(1, 20)]
    ours = [admits(made(name, chunks), stages, count) and within(name, stages, count) for stages, _, count in shapes]
    theirs = consume(ACCEPTED, {"made": CLASSES[name], "shapes": shapes})
    assert all(taken for taken, allowed in zip(theirs, ours, strict=True) if allowed)
    if "interleaved" not in name:
        assert ours == theirs


def within(name: str, stages: int, micro_batches: int) -> bool:
    """Whether the limits of PyTorch's pipelines allow a schedule of so many micro-batches, without data parallelism."""
    values = defaultdict(lambda: 1, {"pp": stages, "schedule": name, "micro_batches": micro_batches})
    return all(parse(rule).holds(values) for rule in sharded.PIPELINED)


def admitted(name: str) -> Iterator[tuple[int, int, int]]:
    """Stages, chunks and micro-batches, few and many of each."""
    for micro_batches in (8, 16, 3, 24, 5, 32, 1, 12, 48, 17, 20, 64):
        for stages in (2, 4, 3, 8, 5, 6, 7):
            for chunks in (2, 3, 4) if "interleaved" in name else (2,) if name.endswith("v") else (1,):
                if admits(made(name, chunks), stages, micro_batches) and within(name, stages, micro_batches):
                    yield stages, chunks, micro_batches


def made(name: str, chunks: int) -> OrderedSchedule:
    schedule = registry().schedules()[name]
    if isinstance(schedule, ChunkedSchedule):
        schedule = schedule.with_chunks(chunks)
    assert isinstance(schedule, OrderedSchedule)
    return schedule


def written(schedule: OrderedSchedule, stages: int, micro_batches: int) -> list[list[str]]:
    """The orders of a schedule as PyTorch writes them, passes that overlap joined by `+`."""
    places = places_of(schedule, stages, micro_batches)

    def action(stage: int, together: tuple[Pass, ...]) -> str:
        return "+".join(f"{places.place(stage, step)}{LETTERS[step.kind]}{step.micro_batch}" for step in together)

    orders = [runs(schedule.order(stage + 1, stages, micro_batches)) for stage in range(stages)]
    return [[action(stage, together) for together in order] for stage, order in enumerate(orders)]
