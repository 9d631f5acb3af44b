"""The alpha-beta model against a slow transcription of PROBLEM.md section 1, and the catalogue against its fits."""

from math import prod
from pathlib import Path

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.catalogue import links
from nest.collectives.alpha_beta import AlphaBeta
from nest.instance import Level

MODEL = AlphaBeta()
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "point_to_point")

sizes = st.floats(0, 1e12) | st.integers(0, 10**12)
levels = st.builds(
    Level, name=st.just("level"), fanout=st.just(1), bandwidth=st.floats(1e6, 1e13), latency=st.floats(0, 1e-2)
)
networks = st.lists(st.tuples(st.integers(1, 9), levels), min_size=1, max_size=4)


def members_of(shape: list[int], fullness: float) -> int:
    """Devices of a set of this shape: the fewest there can be, or so much of the way from these to the product."""
    fewest = 1 + sum(members - 1 for members in shape)
    return fewest + round(fullness * (prod(shape) - fewest))


def slow(kind: str, n: float, shape: list[int], network: list[Level], devices: int) -> float:
    """PROBLEM.md section 1, word by word."""
    k = prod(shape)
    if k == 1 or n == 0:
        return 0.0
    w = max(level for level in range(len(shape)) if shape[level] > 1)
    if kind == "point_to_point":
        return network[w].latency + n / network[w].bandwidth
    if kind == "all_reduce":
        return sum(slow(half, n, shape, network, devices) for half in ("reduce_scatter", "all_gather"))
    hierarchical = 0.0
    for level, members in enumerate(shape):
        hierarchical += (members - 1) * network[level].latency
        inside = prod(shape[:level])
        if kind == "all_to_all":
            first_met_here = (members - 1) * inside
            hierarchical += n * first_met_here / k / network[level].bandwidth
        else:
            hierarchical += (members - 1) / members * (n / inside) / network[level].bandwidth
    if kind == "all_to_all":
        return hierarchical
    k = devices
    narrowest = min(level.bandwidth for level in network[: w + 1])
    flat = (k - 1) * network[w].latency + (k - 1) / k * n / narrowest
    return min(hierarchical, flat)


@pytest.mark.parametrize("kind", KINDS)
@given(network=networks, n=sizes, fullness=st.floats(0, 1))
def test_agrees_with_the_formulas(kind: str, network: list[tuple[int, Level]], n: float, fullness: float) -> None:
    shape, rows = [members for members, _ in network], [level for _, level in network]
    members = members_of(shape, fullness)
    expected = pytest.approx(slow(kind, n, shape, rows, members), rel=1e-12, abs=1e-300)
    assert MODEL.time(kind, n, shape, rows, members) == expected
    assert MODEL.time(kind, n, shape, rows) == MODEL.time(kind, n, shape, rows, prod(shape))


@pytest.mark.parametrize("kind", KINDS)
@given(network=networks, several=st.lists(sizes, min_size=1, max_size=5), fullness=st.floats(0, 1))
def test_arrays_agree_with_single_calls(
    kind: str, network: list[tuple[int, Level]], several: list[float], fullness: float
) -> None:
    shape, rows = [members for members, _ in network], [level for _, level in network]
    members = members_of(shape, fullness)
    found = MODEL.times(kind, numpy.array(several, dtype=float), shape, rows, members)
    assert found.tolist() == [MODEL.time(kind, float(n), shape, rows, members) for n in several]


@pytest.mark.parametrize("kind", KINDS)
def test_no_bytes_cost_nothing_and_few_pay_their_latency(kind: str) -> None:
    network = (Level("a", 8, 1e9, 1.0),)
    assert MODEL.time(kind, 0, (4,), network) == 0.0
    assert MODEL.times(kind, numpy.zeros(2), (4,), network).tolist() == [0.0, 0.0]
    assert MODEL.time(kind, 1e-6, (4,), network) >= 1.0


def test_the_flat_ring_wins_where_inner_steps_are_slow() -> None:
    network = (Level("a", 2, 1e9, 10.0), Level("b", 2, 1e9, 1.0))
    assert MODEL.time("reduce_scatter", 1e-300, (2, 2), network) == 3.0


def test_a_flat_ring_has_as_many_members_as_there_are_devices() -> None:
    network = (Level("a", 2, 1e9, 10.0), Level("b", 2, 1e9, 1.0))
    assert MODEL.time("reduce_scatter", 3e9, (2, 2), network, members=3) == 2 * 1.0 + 2 / 3 * 3.0
    assert MODEL.time("all_reduce", 3e9, (2, 2), network, members=3) == 2 * (2 * 1.0 + 2 / 3 * 3.0)
    assert MODEL.time("reduce_scatter", 3e9, (2, 2), network) == 3 * 1.0 + 3 / 4 * 3.0


def test_an_unknown_collective_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="all_reduce"):
        MODEL.time("broadcast", 1.0, (2,), (Level("a", 2, 1.0, 0.0),))


TABLES = {
    "nvlink3": {"a100_sxm_nccl2.27.3": 300e9},
    "nvlink4": {"h100_sxm_nccl2.29.2": 450e9, "h200_sxm_nccl2.29.2": 450e9},
    "nvlink5": {"b200_sxm_nccl2.29.2": 900e9, "gb200_nccl2.29.2": 900e9},
}
TABLES["nvlink"] = {table: nominal for group in TABLES.values() for table, nominal in group.items()}


@pytest.mark.parametrize("link", TABLES)
def test_links_are_the_least_squares_of_measurements(link: str, shared: Path) -> None:
    """The fit the catalogue's sources describe: relative errors over 8 MiB to 512 MiB, message sizes in elements."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow reads the measured tables")
    rows = []
    for table, nominal in TABLES[link].items():
        for row in parquet.read_table(shared / "collectives" / f"{table}.parquet").to_pylist():
            phases = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2}.get(row["op_name"])
            moved, members, seconds = row["message_size"] * 2, row["num_gpus"], row["latency"] * 1e-3
            if phases and row["nccl_dtype"] == "half" and moved >= 8 * 2**20:
                steps = phases * (members - 1)
                rows.append((steps / seconds, steps / members * moved / nominal / seconds))
    design = numpy.array(rows)
    latency, slope = numpy.linalg.lstsq(design, numpy.ones(len(rows)), rcond=None)[0]
    assert links()[link].latency == pytest.approx(latency, abs=0.06e-6)
    assert links()[link].efficiency == pytest.approx(1 / slope, abs=0.006)
