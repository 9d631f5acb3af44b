"""Replays, against numbers worked out by hand from PROBLEM.md section 4, "Price and replay"."""

import pytest

from tests.measured import profile
from tests.oracle.brute_force import solve
from tests.oracle.costs import sent, zero_times
from tests.oracle.makespan import Chunk, chunks_of, makespan
from tests.oracle.network import Network
from tests.oracle.price import price, setting_of
from tests.oracle.schedules import TABLE, Pipeline


def chunk(forward: float, backward: float, gradients: float | None = None) -> Chunk:
    """A chunk whose messages take no time; half of its backward pass finds gradients of weights, where none is said."""
    w = backward / 2 if gradients is None else gradients
    return Chunk({"f": forward, "b": backward, "i": backward - w, "w": w}, {"f": 0.0, "b": 0.0})


def chain(stages: list[tuple[float, float]], *, edge: float = 0.0, batch: int = 2, **training) -> dict:
    """A layer for each `(forward, backward)` seconds, tensors of `edge` bytes between them, on devices with 10 B/s."""
    return {
        "nest": 1,
        "training": {"global_batch": batch, **training},
        "cluster": {"memory": 1.0, "levels": [{"name": "node", "fanout": 4, "bandwidth": 10.0, "latency": 0.0}]},
        "profile": profile([forward for forward, _ in stages], [backward for _, backward in stages], sent=edge),
    }


def planned(schedule: str, stages: list[list[list[int]]], *, replicas: int = 1, zero: int = 0) -> dict:
    """A plan whose stages have these chunks, on one device each."""
    chunks = len(stages[0])
    return {
        "replicas": replicas,
        "rank_order": "pp-inner",
        "schedule": schedule,
        "chunks": chunks,
        "stages": [
            {
                "layers": sorted(layer for run in runs for layer in run),
                "candidate": "one",
                "offset": offset,
                "recompute": "none",
                "zero": zero,
                "chunks": runs if chunks > 1 else None,
            }
            for offset, runs in enumerate(stages)
        ],
    }


def told(problem: dict, plan: dict) -> tuple[float, float | None]:
    """The closed form and the makespan."""
    numbers = price(problem, plan)
    return pytest.approx(numbers["closed_form"]), pytest.approx(numbers["makespan"])


def test_gpipe_waits_for_the_slow_passes_of_two_stages():
    """All forward passes of the first stage, then all backward passes of the second."""
    stages = [(1.0, 0.001), (0.001, 1.0)]
    plan = planned("gpipe", [[[0]], [[1]]])
    assert told(chain(stages, batch=8, price="replay"), plan) == (7 * 1.001 + 2.002, 8 + 0.001 + 8 + 0.001)
    assert price(chain(stages, batch=8, price="replay"), plan)["batch_time"] == pytest.approx(16.002)
    for asked in ({}, {"price": "closed-form"}):
        numbers = price(chain(stages, batch=8, **asked), plan)
        assert numbers["batch_time"] == pytest.approx(9.009)
        assert numbers["makespan"] is None


def test_one_forward_one_backward_has_two_micro_batches_in_flight():
    """The first stage: 0 to 1, 1 to 2, back from 4 to 5, 5 to 6, back from 7 to 8 and 10 to 11.

    The second one: 1 to 4, 4 to 7, 7 to 10, of which 2 s are backward.
    """
    plan = planned("1f1b", [[[0]], [[1]]])
    assert told(chain([(1.0, 1.0), (1.0, 2.0)], batch=3, price="replay"), plan) == (2 * 3 + 5, 11.0)


def test_unequal_chunks_take_longer_than_their_closed_form():
    """Stages of 12 s, whose outer chunks have most of it: neither runs while the other does.

    First stage: forward until 10 and 12, backward of its second chunk until 22 and 32, of its first until 37 and 42.
    """
    layers = [(5.0, 5.0), (1.0, 1.0), (1.0, 1.0), (5.0, 5.0)]
    plan = planned("interleaved", [[[0], [2]], [[1], [3]]])
    assert told(chain(layers), plan) == (1.5 * 12 + 24 / 2, 42.0)


def test_split_backward_passes_wait_for_gradients_of_inputs_alone():
    """Gradients of inputs return at 4 and 7; the first stage has done with those of weights at 8, and begins the next.

    First stage: 2 s forward, 4 to 6, 6 to 8, 8 to 10, 10 to 12.
    """
    numbers = price(chain([(1.0, 4.0), (1.0, 4.0)]), planned("zero-bubble", [[[0]], [[1]]]))
    assert numbers["closed_form"] == pytest.approx(2 * 5 + (1 / 2) * (2 + 4) - (1 / 2) * 4)
    assert numbers["batch_time"] == numbers["makespan"] == pytest.approx(12.0)


def test_a_staggered_stage_counts_from_its_own_first_pass():
    """The second stage works from 1 to 7, the first from 0 to 4."""
    pipeline = Pipeline("zero-bubble-h2", TABLE["zero-bubble-h2"], 1)
    chunks = [chunk(1.0, 1.0, 0.5), chunk(1.0, 5.0, 4.0)]
    assert makespan(pipeline, 2, 1, chunks) == 6.0
    assert makespan(Pipeline("zero-bubble", TABLE["zero-bubble"], 1), 2, 1, chunks) == 7.0


@pytest.mark.parametrize(("exposed", "zero"), [(1.0, 3), (0.5, 3), (1.0, 2), (1.0, 1)])
def test_what_zero_sends_is_shared_by_bytes_and_its_latencies_evenly(exposed, zero):
    """Weights of 80 bytes gather between two devices in 0.5 + 4 s, gradients of 40 bytes scatter in 0.5 + 2 s."""
    problem = chain([(3.0, 6.0)] * 4, batch=4, exposed=exposed)
    problem["cluster"]["levels"][0]["latency"] = 0.5
    candidate = problem["profile"]["candidates"][0]
    sizes = {"weights": [20.0, 7.0, 60.0, 7.0], "gradients": [40.0, 7.0, 0.0, 7.0], "optimizer": [0.0] * 4}
    candidate["state"] = {"dense": {"ranks": [0], "update": [0.0] * 4, **sizes}}
    setting = setting_of(problem, planned("interleaved", [[[0], [2]], [[1], [3]]], replicas=2, zero=zero))
    groups = sent(problem, Network(problem["cluster"]), setting, candidate, [0, 2])
    shared = zero_times(problem, groups, 18.0, zero)
    found = chunks_of(candidate, [(0,), (2,)], "none", shared, [0.0, 0.0], [0.0, 0.0], False, 18.0 + shared.often)
    gathered = [exposed * (0.25 + 1.0), exposed * (0.25 + 3.0)] if zero == 3 else [0.0, 0.0]
    scattered = [exposed * (0.25 + 2.0), exposed * 0.25] if zero >= 2 else [0.0, 0.0]
    for each, before, after in zip(found, gathered, scattered, strict=True):
        expected = {"f": 3 + before, "b": 6 + before + after, "i": 3 + before, "w": 3 + after}
        assert each.seconds == pytest.approx(expected)
    assert sum(each.seconds["f"] + each.seconds["b"] for each in found) == pytest.approx(18.0 + shared.often)


@pytest.mark.parametrize(
    ("stages", "edge", "hidden", "makespan"),
    [
        # The second stage computes from 3 to 11, the first from 10 to 14: a message of 1 s is under way beside.
        ([(2.0, 2.0)] * 2, 10.0, True, 14.0),
        # Passes that receive take 3 s: 2 to 5, 5 to 8, back until 12, 10 to 13, 13 to 16.
        ([(2.0, 2.0)] * 2, 10.0, False, 16.0),
        # Of 2 s, 1 s hides under 1 s of compute: 1.5 to 4.5 and 5.5, from 6 to 9.
        ([(0.5, 0.5)] * 2, 20.0, True, 9.0),
    ],
)
def test_a_message_hides_as_far_as_there_is_compute(stages, edge, hidden, makespan):
    problem = chain(stages, edge=edge, price="replay", overlap={"pipeline": hidden})
    assert price(problem, planned("gpipe", [[[0]], [[1]]]))["makespan"] == pytest.approx(makespan)


@pytest.mark.parametrize(("asked", "stages", "best"), [("closed-form", 2, 9.099), ("replay", 1, 16.016)])
def test_the_search_takes_the_plan_of_least_price(asked, stages, best):
    """With messages of 0.01 s, replayed, two stages take 16.022 s, and one 8 times 2.002 s."""
    problem = chain([(1.0, 0.001), (0.001, 1.0)], edge=0.1, batch=8, schedule="gpipe", price=asked)
    problem["constraints"] = ["replicas == 1"]
    answer = solve(problem)
    assert len(answer.plan["stages"]) == stages
    assert answer.batch_time == pytest.approx(best)
