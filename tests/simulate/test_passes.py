"""What passes take (PROBLEM.md section 4, "Price and replay"), by hand."""

from typing import Any

import pytest
from attrs import evolve

import nest
from nest.instance import Pass
from nest.instance.schedule import Places
from nest.simulate.replay import Replay, replay
from nest.simulate.timeline import run
from nest.spec import PlanDocument
from tests.simulate.uniform_plans import decided

ONCE = {"dense": {"weights": [100.0, 40.0, 300.0, 0.0], "gradients": [60.0, 0.0, 180.0, 0.0]}}
TWICE = ONCE | {"expert": {"weights": [0.0, 10.0, 200.0, 30.0], "gradients": [0.0, 100.0, 100.0, 300.0]}}


def problem(layers: int, schedule: str, state: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Layers that run 1 s forward and 2 s backward, on pairs of devices, on pairs of pairs."""
    none = [0.0] * layers
    candidate = {
        "name": "one",
        "degrees": {},
        "width": 1,
        "samples": 1,
        "forward": [1.0] * layers,
        "backward": [2.0] * layers,
        "state": {
            name: {"ranks": [0], "optimizer": none, "update": none} | group for name, group in (state or {}).items()
        },
        "recompute": {"none": dict.fromkeys(("extra", "first", "more", "peak"), none)},
        "edge_bytes": [0.0] * (layers - 1),
    }
    edges = [[layer, layer + 1] for layer in range(layers - 1)]
    profile = {"layers": [f"l{layer}" for layer in range(layers)], "edges": edges, "candidates": [candidate | changes]}
    levels = [
        {"name": "board", "fanout": 2, "bandwidth": 1000.0, "latency": 0.0},
        {"name": "node", "fanout": 2, "bandwidth": 5.0, "latency": 0.3},
        {"name": "pod", "fanout": 2, "bandwidth": 10.0, "latency": 0.1},
    ]
    cluster = {"levels": levels, "memory": 1e4}
    return {"nest": 1, "profile": profile, "training": {"global_batch": 4, "schedule": schedule}, "cluster": cluster}


def plan(asked: dict[str, Any], replicas: int = 1, **fixed: Any) -> PlanDocument:
    """Two stages side by side on a board."""
    return nest.evaluate(asked, fix={"pp": 2, "replicas": replicas, "rank_order": "pp-inner"} | fixed)


def seconds(found: Replay, kind: str, run: str) -> dict[tuple[int, int], float]:
    """By stage and chunk, the seconds of pieces of a kind in passes of a kind, alike for all micro-batches."""
    taken: dict[tuple[int, int], set[float]] = {}
    for task in found.timeline.tasks:
        if (task.kind, task.run) == (kind, run):
            taken.setdefault((task.stage, task.chunk), set()).add(round(task.end - task.start, 6))
    assert all(len(each) == 1 for each in taken.values())
    return {place: each.pop() for place, each in taken.items()}


def lengths(found: Replay, stage: int = 0) -> dict[str, float]:
    """Seconds of the passes of a stage of one chunk."""
    return {span.run.kind: round(span.end - span.start, 6) for span in found.timeline.spans if span.stage == stage}


def test_what_zero_sends_is_shared_by_the_bytes_of_chunks_and_latencies_in_equal_parts() -> None:
    """Two replicas gather `n` bytes in 0.1 s and `n` / 20, of which half is exposed; stage 1 has layers 1 and 3.

    Of its dense weights, 20.1 s, the chunks have 5.05 s and 15.05 s, of those of experts 0.05 s and 10.05 s. Stage 2
    has no dense gradients, so that these cost it nothing.
    """
    asked = problem(4, "interleaved", TWICE)
    asked["training"] |= {"exposed": 0.5}
    found = nest.simulate(plan(asked, 2, chunks=2, zero=3))
    gathered = {(0, 0): 2.55, (0, 1): 12.55, (1, 0): 1.3, (1, 1): 0.8}
    assert seconds(found, "gather-weights", "forward") == seconds(found, "gather-weights", "backward") == gathered
    scattered = {(0, 0): 1.55, (0, 1): 7.05, (1, 0): 2.525, (1, 1): 7.525}
    assert seconds(found, "reduce-gradients", "backward") == scattered


def test_latencies_are_of_the_ring_that_was_chosen() -> None:
    """Four replicas in two nodes gather few bytes round a flat ring, 0.3 s and 0.15 `n`, more in two rings, 0.4 s and
    0.125 `n`: stage 1 has 2 bytes in its chunks, stage 2 has 20.
    """
    state = {"dense": {"weights": [0.5, 5.0, 1.5, 15.0], "gradients": [0.0] * 4}}
    asked = problem(4, "interleaved", state)
    asked["training"]["global_batch"] = 8
    found = nest.simulate(plan(asked, 4, chunks=2, zero=3))
    assert seconds(found, "gather-weights", "forward") == {(0, 0): 0.225, (0, 1): 0.375, (1, 0): 0.825, (1, 1): 2.075}


def test_every_piece_of_a_group_has_the_latencies() -> None:
    """Stage 1 gathers in three pieces, which take 0.3 s before any byte; stage 2 in two."""
    asked = problem(4, "interleaved", ONCE)
    instance, solution = decided(plan(asked, 2, chunks=2, zero=3))
    (candidate,) = instance.candidates
    (group,) = candidate.state
    pieced = evolve(candidate, state=(evolve(group, pieces=[1.0, 1.0, 2.0, 1.0]),))
    found = replay(evolve(instance, candidates=(pieced,)), solution)
    assert seconds(found, "gather-weights", "forward") == {(0, 0): 5.15, (0, 1): 15.15, (1, 0): 2.1, (1, 1): 0.1}


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("1f1b", {"forward": 6.1, "backward": 10.95}),
        ("zero-bubble", {"forward": 6.1, "input-gradients": 7.35, "weight-gradients": 3.6}),
    ],
)
def test_parts_of_the_backward_pass(schedule: str, expected: dict[str, float]) -> None:
    """The first stage gathers for 5.1 s, scatters for 3.1 s, receives gradients for 0.5 s, recomputes for 0.25 s, and
    finds gradients of weights for 0.5 s of the 2 s of its backward pass.
    """
    state = {"dense": {"weights": [100.0, 0.0], "gradients": [60.0, 0.0]}}
    recompute = {"none": {"extra": [0.25] * 2} | dict.fromkeys(("first", "more", "peak"), [0.0] * 2)}
    more = {"edge_bytes": [500.0], "weight_gradients": [0.5] * 2, "recompute": recompute}
    asked = problem(2, schedule, state, **more)
    assert lengths(nest.simulate(plan(asked, 2, zero=3))) == expected


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("1f1b", {"forward": 2.0, "backward": 4.0}),
        ("zero-bubble", {"forward": 2.0, "input-gradients": 2.0, "weight-gradients": 2.0}),
    ],
)
def test_passes_that_wait_for_ports_grow_by_one_factor(schedule: str, expected: dict[str, float]) -> None:
    """A port of the first stage is occupied for 6 s, twice as long as its passes take; the second stage is not."""
    asked = problem(2, schedule, busy=[[6.0, 3.0], [0.0, 0.0], [0.0, 0.0]])
    found = nest.simulate(plan(asked))
    assert lengths(found) == expected
    assert lengths(found, 1) == {kind: each / 2 for kind, each in expected.items()}


def test_a_stage_without_passes_only_waits_in_the_closed_form() -> None:
    """Nothing grows by any factor; the second stage is full for 6 s: 3 * 6 s + 3 s + 6 s, in place of 4 * 3 s."""
    asked = problem(2, "1f1b", forward=[1.0, 0.0], backward=[2.0, 0.0], busy=[[0.0, 6.0], [0.0, 0.0], [0.0, 0.0]])
    found = nest.simulate(plan(asked))
    assert (found.closed_form, found.batch_time) == (27.0, 12.0)


@pytest.mark.parametrize(
    ("size", "extra", "spans"),
    [
        (1500.0, 0.0, [(0, 0.0, 1.0), (1, 2.5, 3.5), (1, 3.5, 5.5), (0, 7.0, 9.0)]),
        (6000.0, 0.0, [(0, 0.0, 1.0), (1, 4.0, 8.0), (1, 8.0, 10.0), (0, 13.0, 18.0)]),
        (8000.0, 1.0, [(0, 0.0, 1.0), (1, 5.0, 10.0), (1, 10.0, 13.0), (0, 17.0, 24.0)]),
    ],
)
def test_messages_hide_as_far_as_a_stage_computes(
    size: float, extra: float, spans: list[tuple[int, float, float]]
) -> None:
    """One micro-batch through two stages that compute for 3 s, or 4 s with what they recompute: messages of 1.5 s hide,
    of 6 s and 8 s one half does. The pass begins that half after the sender's end, and the other half is its part.
    """
    recompute = {"none": {"extra": [extra] * 2} | dict.fromkeys(("first", "more", "peak"), [0.0] * 2)}
    asked = problem(2, "1f1b", edge_bytes=[size], recompute=recompute)
    asked["training"]["global_batch"] = 1
    instance, solution = decided(plan(asked))
    found = replay(evolve(instance, space=evolve(instance.space, hidden_messages=("1f1b",))), solution)
    assert [(span.stage, span.start, span.end) for span in found.timeline.spans] == spans


def test_overlapped_passes_wait_for_what_either_needs_and_send_when_both_are_done() -> None:
    """Forward passes of the first stage take 3 s, of the second 1 s, backward passes 2 s.

    The second stage overlaps its first backward pass with a forward pass that waits until 6 s, and sends at 9 s.
    """
    first = [Pass("forward", 0), Pass("forward", 1), Pass("backward", 0), Pass("backward", 1)]
    second = [Pass("forward", 0), Pass("backward", 0, overlapped=True), Pass("forward", 1), Pass("backward", 1)]
    spans = run(
        [first, second], Places(2, 2, (0, 1)), lambda stage, step: 2.0 if step.kind == "backward" else (3.0, 1.0)[stage]
    )
    assert sorted((span.stage, span.start, span.end) for span in spans) == [
        (0, 0.0, 3.0),
        (0, 3.0, 6.0),
        (0, 9.0, 11.0),
        (0, 11.0, 13.0),
        (1, 3.0, 4.0),
        (1, 6.0, 8.0),
        (1, 8.0, 9.0),
        (1, 9.0, 11.0),
    ]
