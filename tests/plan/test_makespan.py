"""Makespans: hand-computed ones, closed forms of GPipe, and the lemma for which nothing is replayed."""

from random import Random

import pytest

from nest.plan.makespan import ChunkSeconds, pipeline_length
from nest.schedules.gpipe import GPipe
from nest.schedules.one_forward_one_backward import OneForwardOneBackward
from nest.schedules.zero_bubble import ZeroBubble
from tests.seeds import seeds

ONE, GPIPE = OneForwardOneBackward(), GPipe()


def stages(forward, backward):
    return [[ChunkSeconds(f, b, b / 2, 0.0, 0.0)] for f, b in zip(forward, backward, strict=True)]


def closed_form(forward, backward, micro_batches):
    times = [f + b for f, b in zip(forward, backward, strict=True)]
    return (micro_batches - 1) * max(times) + sum(times)


def test_gpipe_waits_for_the_slowest_of_each_pass():
    """Section 4's example in PROBLEM.md: the closed form says 9.009 s."""
    assert pipeline_length(GPIPE, 8, stages([1, 0.001], [0.001, 1])) == pytest.approx(7 * 2 + 2.002, rel=1e-12)


def test_what_travels_delays_the_receiver_and_leaves_it_free():
    sender, receiver = ChunkSeconds(1.0, 2.0, 1.0, 0.0, 0.5), ChunkSeconds(1.0, 2.0, 1.0, 0.5, 0.0)
    # Forward 0-1, on its way to 1.5, forward 1.5-2.5, backward to 4.5, on its way to 5, backward to 7.
    assert pipeline_length(ONE, 1, [[sender], [receiver]]) == pytest.approx(7.0, rel=1e-12)


def test_gradients_of_weights_wait_for_nobody():
    # Stage 2: f 1-2, b 2-3, w 3-4; stage 1: f 0-1, b 3-4, w 4-5.
    assert pipeline_length(ZeroBubble(), 1, stages([1, 1], [2, 2])) == pytest.approx(5.0, rel=1e-12)


@pytest.mark.parametrize("seed", seeds(40, 2000))
def test_where_a_closed_form_suffices_no_replay_takes_longer(seed):
    random = Random(seed)
    count, micro_batches = random.randint(1, 6), random.randint(1, 9)
    forward, backward = (
        [random.choice([random.random(), 5 * random.random(), usual]) for _ in range(count)] for usual in (1.0, 2.0)
    )
    planned = closed_form(forward, backward, micro_batches)
    length = pipeline_length(ONE, micro_batches, stages(forward, backward))
    assert length <= planned * (1 + 1e-12) or not ONE.suffices(forward, backward)
    whole = pipeline_length(GPIPE, micro_batches, stages(forward, backward))
    exact = (micro_batches - 1) * (max(forward) + max(backward)) + sum(forward) + sum(backward)
    assert whole == pytest.approx(exact, rel=1e-12)
    assert whole <= planned * (1 + 1e-12) or not GPIPE.suffices(forward, backward)
