"""Integers never exceed what they stand for, and fall short of it by no more than stated."""

import pytest
from hypothesis import given, strategies

from nest.instance import Weights
from nest.spec.training import MOST_SAMPLES
from nest.tolerances import PROOF
from nest_cpsat.scaling import scale

seconds = strategies.floats(0.0, 1e6)
weights = strategies.one_of(
    strategies.tuples(strategies.integers(0, 100_000).map(float), strategies.sampled_from([0.0, 0.5, 1 / 3, 1.0, 3.0])),
    strategies.tuples(strategies.floats(0.0, 1e4), strategies.floats(0.0, 10.0)),
).filter(lambda pair: pair[0] + pair[1] >= 1e-3)
plans = strategies.lists(strategies.tuples(seconds, seconds, seconds), min_size=1, max_size=8)


def pair(slowest: float, total: float) -> Weights:
    """Weights that weigh all passes the same."""
    return Weights(slowest, total, total, total)


@given(weights=weights, stages=plans, sync=seconds)
def test_integers_bound_a_plan_from_below_within_the_error(
    weights: tuple[float, float], stages: list[tuple[float, float, float]], sync: float
) -> None:
    times = [sum(terms) for terms in stages]
    batch_time = weights[0] * max(times) + weights[1] * sum(times) + sync
    if batch_time < 1e-6:
        return
    scaled = scale(pair(*weights), len(stages), batch_time, 3)
    ticks = [sum(scaled.ticks(term) for term in terms) for terms in stages]
    total = scaled.slowest * max(ticks) + scaled.total * sum(ticks) + scaled.sync * scaled.sync_ticks(sync)
    assert total <= scaled.limit(batch_time)
    # What may be taken away is never less than it stands for.
    assert scaled.covering_ticks(sync) * scaled.sync * scaled.tick / scaled.parts >= sync * (1 - 1e-14)
    assert scaled.seconds(total) <= batch_time <= scaled.seconds(total) + scaled.error


@pytest.mark.parametrize("micro_batches", [1, 7, 4096, 10**6])
@pytest.mark.parametrize("stages", [1, 16, 64])
@pytest.mark.parametrize("share", [0.0, 1.0, 0.5, 1 / 3, 0.25])
def test_schedules_are_counted_finer_than_asked_in_numbers_cp_sat_can_bear(
    micro_batches: int, stages: int, share: float
) -> None:
    """The schedules of PROBLEM.md section 4; `interleaved` has shares of 1/v."""
    weights = (micro_batches - share if share else micro_batches + stages - 1.0, share)
    scaled = scale(pair(*weights), stages, 1.0, 3)
    assert scaled.error < PROOF / 2
    assert (scaled.slowest, scaled.total) == pytest.approx((weights[0] * scaled.parts, weights[1] * scaled.parts))
    assert max(scaled.slowest, scaled.total, scaled.sync, scaled.ticks(9.0), scaled.sync_ticks(9.0)) <= 2**30
    assert scaled.limit(1.0) < 2**54


@pytest.mark.parametrize("share", [0.0, 1.0, 1 / 3])
def test_the_largest_batch_leaves_numbers_that_cp_sat_can_bear(share: float) -> None:
    scaled = scale(pair(MOST_SAMPLES - share if share else MOST_SAMPLES + 255.0, share), 256, 1.0, 3)
    assert max(scaled.slowest, scaled.total, scaled.sync) <= 2**30
    assert scaled.limit(1.0) < 2**62
