"""Slots: levels between blocks, against a direct reading of PROBLEM.md section 3."""

from hypothesis import given
from hypothesis import strategies as st

from nest.instance import Cluster, Level
from nest.solve.dp.placement import slots


@st.composite
def settings(draw: st.DrawFn) -> tuple[Cluster, int, int, str]:
    fanouts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    machines = Cluster(tuple(Level(f"l{i}", f, 1.0, 0.0) for i, f in enumerate(fanouts)), 1.0)
    width = draw(st.sampled_from([w for w in range(1, machines.size + 1) if machines.admits(w)]))
    replicas = draw(st.integers(1, machines.size // width))
    return machines, width, replicas, draw(st.sampled_from(["pp-inner", "dp-inner"]))


@given(settings())
def test_levels_between_slots(setting: tuple[Cluster, int, int, str]) -> None:
    machines, width, replicas, order = setting
    places = slots(machines, width, replicas, order)
    size = width * (machines.size // (replicas * width))
    assert places.count == size // width
    for a in range(places.count):
        for b in range(a + 1, places.count):
            worst = -1
            for r in range(replicas):
                starts = [
                    r * size + s * width if order == "pp-inner" else s * width * replicas + r * width for s in (a, b)
                ]
                devices = [d for start in starts for d in range(start, start + width)]
                worst = max(worst, machines.level(min(devices), max(devices)))
            assert places.level(a, b) == worst
