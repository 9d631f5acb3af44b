"""Collectives on links with several protocols, against a slow transcription and what physics says of any of them."""

from itertools import product
from math import prod

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from nest.catalogue import links, network_levels
from nest.collectives.alpha_beta import AlphaBeta
from nest.instance import CollectiveLine, Level
from nest.spec import LevelSpec
from nest.units import BytesPerSecond
from tests.collectives.test_alpha_beta import members_of

MODEL = AlphaBeta()
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
PHASES = {"all_reduce": 2}

sizes = st.floats(0, 1e12)
protocols = st.builds(
    CollectiveLine,
    kinds=st.sampled_from([KINDS, ("all_reduce",), ("all_gather", "reduce_scatter"), ("all_to_all",)]),
    base=st.floats(0, 1e-3),
    step=st.floats(0, 1e-3),
    bandwidth=st.floats(1e6, 1e13),
    own=st.floats(0, 1),
    members=st.integers(2, 5),
)
in_switch = st.builds(
    CollectiveLine,
    kinds=st.just(("all_reduce",)),
    base=st.floats(0, 1e-3),
    step=st.floats(0, 1e-3),
    bandwidth=st.floats(1e6, 1e13),
    in_switch=st.just(True),
    members=st.integers(2, 5),
)
levels = st.builds(
    Level,
    name=st.just("level"),
    fanout=st.just(1),
    bandwidth=st.floats(1e6, 1e13),
    latency=st.floats(0, 1e-2),
    lines=st.lists(protocols | in_switch, max_size=4).map(tuple),
)
networks = st.lists(st.tuples(st.integers(1, 6), levels), min_size=1, max_size=3)


def runs(kind: str, level: Level, members: int) -> list[CollectiveLine]:
    """Those of a level that serve, else PROBLEM.md's."""
    found = [line for line in level.lines if kind in line.kinds and members >= line.members]
    return found or [CollectiveLine((kind,), 0.0, level.latency, level.bandwidth)]


def alone(kind: str, n: float, members: int, level: Level) -> float:
    """On one level, among as many members as meet there."""
    if members == 1:
        return 0.0
    phases = PHASES.get(kind, 1)
    return min(
        line.base
        + phases * (members - 1) * line.step
        + (n if line.in_switch else phases * n * (members - 1 + line.own) / members) / line.bandwidth
        for line in runs(kind, level, members)
    )


def slow(kind: str, n: float, shape: list[int], network: list[Level], devices: int) -> float:
    """What docs/explanation/cost-model.md says, one number at a time."""
    members = prod(shape)
    if members == 1 or n == 0:
        return 0.0
    outermost = max(level for level in range(len(shape)) if shape[level] > 1)
    total = 0.0
    for level, here in enumerate(shape):
        inside = prod(shape[:level])
        if kind == "all_to_all":
            total += alone(kind, n * here * inside / members, here, network[level])
        elif kind == "all_reduce" and level < outermost:
            total += sum(alone(half, n / inside, here, network[level]) for half in ("reduce_scatter", "all_gather"))
        else:
            total += alone(kind, n / inside, here, network[level])
    return total if kind == "all_to_all" else min(total, rings(kind, n, shape, network, outermost, devices))


def rings(kind: str, n: float, shape: list[int], network: list[Level], outermost: int, members: int) -> float:
    """Over all members: one ring for each rail, or PROBLEM.md's flat one."""
    phases = PHASES.get(kind, 1)
    met = [level for level in range(len(shape)) if shape[level] > 1]
    usable = [
        [
            line
            for line in network[level].lines
            if kind in line.kinds and shape[level] >= line.members and not line.in_switch
        ]
        for level in met
    ]
    if not all(usable):
        narrowest = min(level.bandwidth for level in network[: outermost + 1])
        steps = phases * (members - 1) * network[outermost].latency
        return steps + phases * (members - 1) / members * n / narrowest
    best = float("inf")
    for chosen in product(*usable):
        steps, slowest = 0.0, 0.0
        for level, line in zip(met, chosen, strict=True):
            # Edges of a ring between children of this level's groups; the ring is cut open at the outermost.
            children, groups = (min(members, prod(shape[each:])) for each in (level, level + 1))
            edges = children - groups if level < outermost else shape[level] - 1
            steps += phases * edges * line.step
            moved = phases * n * (members - 1 + line.own) / members / prod(shape[:level])
            slowest = max(slowest, moved / line.bandwidth)
        best = min(best, max(line.base for line in chosen) + steps + slowest)
    return best


@pytest.mark.parametrize("kind", KINDS)
@given(network=networks, n=sizes, fullness=st.floats(0, 1))
def test_agrees_with_the_formulas(kind: str, network: list[tuple[int, Level]], n: float, fullness: float) -> None:
    shape, rows = [members for members, _ in network], [level for _, level in network]
    members = members_of(shape, fullness)
    expected = pytest.approx(slow(kind, n, shape, rows, members), rel=1e-9, abs=1e-18)
    assert MODEL.time(kind, n, shape, rows, members) == expected


@pytest.mark.parametrize("kind", KINDS)
@given(network=networks, n=sizes, more=sizes)
def test_more_bytes_never_take_less_time(kind: str, network: list[tuple[int, Level]], n: float, more: float) -> None:
    shape, rows = [members for members, _ in network], [level for _, level in network]
    before, after = MODEL.time(kind, n, shape, rows), MODEL.time(kind, n + more, shape, rows)
    assert after >= before * (1 - 1e-12)


@given(line=protocols, n=sizes, members=st.integers(2, 100))
def test_more_members_never_take_less_time_by_the_same_protocol(line: CollectiveLine, n: float, members: int) -> None:
    for kind in line.kinds:
        level = Level("level", 128, 1e9, 0.0, lines=(evolve(line, members=2),))
        assert MODEL.time(kind, n, (members + 1,), (level,)) >= MODEL.time(kind, n, (members,), (level,)) * (1 - 1e-12)


@pytest.mark.parametrize("kind", KINDS)
@given(n=sizes, members=st.integers(1, 64), bandwidth=st.floats(1e6, 1e13), latency=st.floats(0, 1e-2))
def test_one_line_without_a_base_is_the_formula(
    kind: str, n: float, members: int, bandwidth: float, latency: float
) -> None:
    plain = Level("level", 64, bandwidth, latency)
    lined = evolve(plain, lines=(CollectiveLine(KINDS, 0.0, latency, bandwidth),))
    by_formula = MODEL.time(kind, n, (members,), (plain,))
    assert MODEL.time(kind, n, (members,), (lined,)) == pytest.approx(by_formula, rel=1e-12)


def catalogued(name: str, bandwidth: float = 50e9) -> Level:
    nominal = links()[name].bandwidth or bandwidth
    return network_levels([LevelSpec(fanout=8, bandwidth=BytesPerSecond(nominal), link=name)])[0]


LINED = sorted(name for name, link in links().items() if link.lines)


@pytest.mark.longer
@pytest.mark.parametrize("name", LINED)
@pytest.mark.parametrize("kind", KINDS)
@given(n=st.floats(1, 1e11), members=st.integers(2, 72))
def test_links_of_the_catalogue_are_no_faster_than_their_wires(name: str, kind: str, n: float, members: int) -> None:
    """A member receives what it lacks; with a reduction in the switch an all-reduce brings it `n` bytes, once."""
    level = catalogued(name)
    nominal = level.bandwidth / links()[name].efficiency
    switched = any(line.in_switch for line in links()[name].lines)
    received = 1 if kind == "all_reduce" and switched else PHASES.get(kind, 1) * (members - 1) / members
    assert MODEL.time(kind, n, (members,), (level,)) >= received * n / nominal * (1 - 1e-9)


@pytest.mark.parametrize("name", LINED)
@pytest.mark.parametrize("kind", KINDS)
def test_links_of_the_catalogue_take_longer_for_more_members(name: str, kind: str) -> None:
    """But for the reduction in the switch, which begins at several members."""
    level = catalogued(name)
    level = evolve(level, lines=tuple(line for line in level.lines if not line.in_switch))
    for size in (1.0, 2.0**16, 2.0**20, 2.0**26, 2.0**30):
        times = [MODEL.time(kind, size, (members,), (level,)) for members in range(2, 73)]
        assert times == sorted(times)


@pytest.mark.parametrize(
    ("payload", "busbw"), [(2**20, 5.37), (2**23, 35.12), (2**27, 197.94), (2**30, 361.99), (2**34, 381.8)]
)
def test_four_machines_of_eight_come_out_as_measured(payload: float, busbw: float) -> None:
    """Bus bandwidths in GB/s of all-reduces on 4 nodes of 8 B200, 8 x 400 Gbit/s each, which the link was fitted to:
    stas00/ml-engineering@744d01e network/README.md."""
    written = [LevelSpec(fanout=8, link="nvlink5"), LevelSpec(fanout=4, bandwidth=BytesPerSecond(50e9), link="efa")]
    seconds = MODEL.time("all_reduce", payload, (8, 4), network_levels(written))
    assert seconds == pytest.approx(2 * 31 / 32 * payload / (busbw * 1e9), rel=0.06)


@pytest.mark.parametrize(("payload", "busbw"), [(2**24, 219.89), (2**27, 401.93), (2**29, 450.29), (2**33, 477.45)])
def test_eight_devices_come_out_as_somebody_else_measured_them(payload: float, busbw: float) -> None:
    """Bus bandwidths in GB/s of all-reduces on 8 H200, which the link was not fitted to: the same source."""
    seconds = MODEL.time("all_reduce", payload, (8,), network_levels([LevelSpec(fanout=8, link="nvlink4")]))
    assert seconds == pytest.approx(2 * 7 / 8 * payload / (busbw * 1e9), rel=0.125)
