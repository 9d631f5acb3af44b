"""In-network reduction: what it costs by hand, that it is never worse, and where it has nothing to offer."""

from math import prod
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nest_sharp
from nest import api
from nest.catalogue import clusters, links, network_levels
from nest.errors import InputError
from nest.hooks.registry import registry
from nest.instance import Level
from nest.io import read_mapping
from nest_sharp.model import REDUCING_LINKS, Sharp, reduces

SHARP = Sharp()
DEFAULT = next(iter(registry().collective_models().values()))
KINDS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "point_to_point")
NODE = Level("node", 8, 300e9, 3e-6, "nvlink4")
FABRIC = Level("fabric", 16, 45e9, 7e-6, "infiniband-ndr")
LARGE, SMALL = 1e9, 1e3
EXAMPLE = Path(__file__).parent.parent / "examples" / "llama-3-8b-on-64-single-gpu-nodes" / "problem.yaml"

level = st.builds(
    Level,
    st.sampled_from(["node", "a sharp one"]),
    st.integers(1, 8),
    st.floats(1e9, 1e12),
    st.floats(0, 1e-4),
    st.sampled_from([None, "nvlink4", "infiniband-edr", "infiniband-ndr"]),
)
networks = st.lists(level, min_size=1, max_size=3).flatmap(
    lambda levels: st.tuples(st.tuples(*(st.integers(1, each.fanout) for each in levels)), st.just(tuple(levels)))
)


@given(networks, st.sampled_from(KINDS), st.lists(st.floats(0, 1e11), min_size=1, max_size=4))
def test_it_is_never_slower_and_alike_for_arrays(
    network: tuple[tuple[int, ...], tuple[Level, ...]], kind: str, sizes: list[float]
) -> None:
    shape, levels = network
    found = [SHARP.time(kind, size, shape, levels) for size in sizes]
    assert SHARP.times(kind, numpy.array(sizes), shape, levels).tolist() == pytest.approx(found, rel=1e-12)
    for size, seconds in zip(sizes, found, strict=True):
        usual = DEFAULT.time(kind, size, shape, levels)
        assert 0 <= seconds <= usual
        if kind not in ("all_reduce", "reduce_scatter") or not any(map(reduces, levels)) or prod(shape) == 1:
            assert seconds == usual


@given(networks, st.sampled_from(KINDS), st.floats(0, 1e11), st.floats(1, 10))
def test_more_bytes_take_no_less(
    network: tuple[tuple[int, ...], tuple[Level, ...]], kind: str, size: float, factor: float
) -> None:
    assert SHARP.time(kind, size * factor, *network) >= SHARP.time(kind, size, *network)


@given(networks, st.floats(0, 1e11))
def test_an_all_reduce_is_not_below_what_every_link_must_carry(
    network: tuple[tuple[int, ...], tuple[Level, ...]], size: float
) -> None:
    """On the outermost level met, each member's share of the buffer must leave it."""
    shape, levels = network
    outermost = max((index for index, members in enumerate(shape) if members > 1), default=None)
    if outermost is not None and any(map(reduces, levels)):
        inside = prod(shape[:outermost])
        least = size / inside * (1 - 1 / shape[outermost]) / levels[outermost].bandwidth
        assert SHARP.time("all_reduce", size, shape, levels) >= least


def test_one_level() -> None:
    assert SHARP.time("all_reduce", LARGE, (8,), (NODE,)) == pytest.approx(2 * 3e-6 + LARGE / 300e9)
    ratio = DEFAULT.time("all_reduce", LARGE, (8,), (NODE,)) / SHARP.time("all_reduce", LARGE, (8,), (NODE,))
    assert ratio == pytest.approx(2 * 7 / 8, rel=0.01)
    assert SHARP.time("all_reduce", SMALL, (8,), (NODE,)) == pytest.approx(2 * 3e-6 + SMALL / 300e9)
    # Two members: a ring sends half of the buffer each way, as a switch does.
    assert SHARP.time("all_reduce", LARGE, (2,), (NODE,)) == DEFAULT.time("all_reduce", LARGE, (2,), (NODE,))


def test_a_reduce_scatter_gains_latency_only() -> None:
    assert SHARP.time("reduce_scatter", SMALL, (8,), (NODE,)) == pytest.approx(3e-6 + SMALL / 300e9)
    assert SHARP.time("reduce_scatter", LARGE, (8,), (NODE,)) == DEFAULT.time("reduce_scatter", LARGE, (8,), (NODE,))


def test_two_levels_share_the_buffer() -> None:
    expected = 2 * 3e-6 + LARGE / 300e9 + 2 * 7e-6 + LARGE / 8 / 45e9
    assert SHARP.time("all_reduce", LARGE, (8, 16), (NODE, FABRIC)) == pytest.approx(expected)


def test_a_level_that_does_not_reduce_keeps_its_ring() -> None:
    plain = Level("fabric", 16, 45e9, 7e-6, "ethernet")
    outer = DEFAULT.time("all_reduce", LARGE / 8, (1, 16), (NODE, plain))
    expected = 2 * 3e-6 + LARGE / 300e9 + outer
    assert SHARP.time("all_reduce", LARGE, (8, 16), (NODE, plain)) == pytest.approx(expected)


def test_levels_tell_by_link_or_by_name() -> None:
    assert frozenset(links()) >= REDUCING_LINKS
    assert [reduces(level) for level in network_levels(clusters()["dgx-h100-superpod"].levels)] == [True] * 3
    assert [reduces(level) for level in network_levels(clusters()["dgx-a100-superpod"].levels)] == [False, True, True]
    assert reduces(Level("SHARP-leaf", 2, 1.0, 0.0))
    assert not reduces(Level("sharpened", 2, 1.0, 0.0))
    assert not reduces(Level("node", 2, 1.0, 0.0, "nvlink"))


def test_an_unknown_collective_is_refused() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        SHARP.time("broadcast", LARGE, (8,), (NODE,))


@pytest.mark.longer
def test_it_changes_the_plan_of_the_example() -> None:
    problem: dict[str, Any] = dict(read_mapping(EXAMPLE).mapping)
    plugins = registry(extra=[nest_sharp])
    with_it = api.solve(problem, plugins=plugins)
    without = api.solve({**problem, "collectives": "alpha-beta"}, plugins=plugins)
    assert {with_it.status, without.status} <= {"optimal", "near-optimal"}
    assert with_it.candidate is not None
    assert without.candidate is not None
    assert with_it.batch_time is not None
    assert without.batch_time is not None
    assert with_it.candidate.degrees != without.candidate.degrees
    assert with_it.batch_time < without.batch_time
    assert api.check(with_it.to_dict(), plugins=plugins).ok
    with pytest.raises(InputError, match="sharp"):
        api.solve(problem, plugins=registry())
