from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.errors import InputError
from networks_tests.field import imported, levels, read, reduced

TWO_TIERS = """# a leaf-spine network
Nodes 32
Tiers 2
Podsize 32

Tier 0
Downlink_speed_Gbps 100
Radix_Down 8
Radix_Up 2
Downlink_Latency_ns 1000
Switch_Latency_ns 300
Oversubscribed 4

Tier 1
Downlink_speed_Gbps 100
Radix_Down 4
Downlink_Latency_ns 500
Switch_Latency_ns 400
"""


def test_oversubscription_follows_from_the_links(tmp_path: Path) -> None:
    found = read(tmp_path, TWO_TIERS)
    assert levels(found) == [(8, 12.5e9), (4, 3.125e9)]
    # Two links of a host and a switch; then also two links between switches, a second leaf and a spine.
    assert [level.latency for level in reduced(found)] == pytest.approx([2.3e-6, 2.3e-6 + 1e-6 + 0.3e-6 + 0.4e-6])


@given(
    hosts=st.integers(1, 4), leaves=st.integers(1, 4), pods=st.integers(1, 4),
    ways=st.integers(1, 3), bundle=st.integers(1, 2), up=st.integers(1, 4),
)  # fmt: skip
def test_three_tiers(
    hosts: int, leaves: int, pods: int, ways: int, bundle: int, up: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    nodes = hosts * leaves * pods
    if nodes < 2:
        return
    text = (
        f"nodes {nodes}\ntiers 3\npodsize {hosts * leaves}\n"
        f"tier 0\ndownlink_speed_gbps 200\nradix_down {hosts}\nradix_up {ways * bundle}\n"
        f"tier 1\ndownlink_speed_gbps 100\nradix_down {leaves * bundle}\nradix_up {up}\nbundle {bundle}\n"
        "tier 2\ndownlink_speed_gbps 400\nradix_down 1\n"
    )
    middle = min(25e9, ways * bundle * 12.5e9 / hosts)
    core = min(middle, ways * up * 50e9 / (hosts * leaves))
    found = levels(read(tmp_path_factory.mktemp("htsim"), text))
    assert [fanout for fanout, _ in found] == [hosts, leaves, pods]
    assert [bandwidth for _, bandwidth in found] == pytest.approx([25e9, middle, core])


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("Podsize 32", "Podsize 16", "no links join the pods"),
        ("Radix_Down 8", "Radix_Down 7", "do not fit into one another"),
        ("Nodes 32", "Nodes 1", "Nodes must be at least 2"),
        ("Tiers 2", "Tiers 4", "2 or 3"),
        ("Tier 1", "Tier 2", "there must be Tier 0 to Tier 1"),
        ("Radix_Up 2", "", "Tier 0 lacks radix_up"),
        ("Radix_Up 2", "Radix_Up two", "line 9 must be a word and a whole number"),
        ("Radix_Up 2", "Radix_Down 2", "line 9 gives Radix_Down a second time"),
    ],
)
def test_what_cannot_be_is_named(old: str, new: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        read(tmp_path, TWO_TIERS.replace(old, new, 1))


def test_shared_samples(shared: Path) -> None:
    assert levels(imported(shared / "topologies" / "astra_sim" / "8nodes.topo")) == [(2, 25e9), (2, 25e9), (2, 25e9)]
