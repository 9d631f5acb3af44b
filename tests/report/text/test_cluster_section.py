"""A cluster section as text: YAML reads back what was written, whatever hosts are called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.io import read_text
from nest.network.graph import link_graph, written_graph
from nest.spec import ClusterOfFile, ClusterSpec, LevelSpec
from nest.units import Bytes, BytesPerSecond, Seconds
from nest_networks.levels_text import section_text

NAMES = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6), min_size=1, max_size=4, unique=True
)


@pytest.mark.longer
@given(NAMES, st.text(), st.floats(1, 1e18), st.floats(1e-12, 1))
def test_levels_read_back(hosts: list[str], comment: str, bandwidth: float, latency: float) -> None:
    cluster = ClusterSpec(
        levels=(
            LevelSpec(2, BytesPerSecond(bandwidth), Seconds(latency), hosts[0]),
            LevelSpec(len(hosts), link="nvlink4"),
        ),
        device="h100-sxm",
        memory=Bytes(8e10),
        hosts=tuple(hosts),
        devices_per_host=2,
    )
    text = section_text(cluster, [comment])
    assert read_text(text, ClusterOfFile, "cluster.yaml").cluster == cluster


@pytest.mark.longer
@given(NAMES)
def test_graphs_read_back(names: list[str]) -> None:
    nodes = [*names, *(f"{name}'" for name in names)]
    links = [(index, (index + 1) % len(nodes), 1e9 / (index + 1), 1e-6) for index in range(len(nodes) - 1)]
    cluster = ClusterSpec(topology=written_graph(link_graph(nodes, [True] * len(nodes), links)))
    assert read_text(section_text(cluster), ClusterOfFile, "cluster.yaml").cluster == cluster


def test_assumptions_are_comments_and_nothing_more() -> None:
    cluster = ClusterSpec(levels=(LevelSpec(2, link="nvlink4"),), assumed=("Guessed.",))
    text = section_text(cluster, ["one\ntwo: 2", *(cluster.assumed or ())])
    assert text.splitlines()[:3] == ["# one two: 2", "# Guessed.", "cluster:"]
    assert "assumed" not in text
