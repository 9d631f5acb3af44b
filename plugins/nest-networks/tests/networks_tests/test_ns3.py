from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.errors import InputError
from nest.network.graph import LinkGraph
from nest_networks.ns3 import delay, rate
from networks_tests.field import imported, read, reduced, told

STAR = """5 1 4
4
4 0 400Gbps 0.0005ms 0
4 1 400Gbps 0.0005ms 0
4 2 400Gbps 0.0005ms 0
4 3 400Gbps 0.0005ms 0
"""


def test_a_star_is_one_level(tmp_path: Path) -> None:
    [level] = reduced(read(tmp_path, STAR))
    assert (level.fanout, level.bandwidth, level.latency) == (4, 50e9, pytest.approx(1e-6))


@given(leaves=st.integers(2, 4), below=st.integers(2, 4), uplinks=st.integers(1, 3))
def test_links_up_are_shared(leaves: int, below: int, uplinks: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    hosts = leaves * below
    rows = [f"{host} {hosts + host // below} 200Gbps 1us 0" for host in range(hosts)]
    rows += [f"{hosts + leaf} {hosts + leaves} 200Gbps 1us 0" for leaf in range(leaves) for _ in range(uplinks)]
    switches = " ".join(str(hosts + index) for index in range(leaves + 1))
    text = f"{hosts + leaves + 1} {leaves + 1} {len(rows)}\n{switches}\n" + "\n".join(rows) + "\n"
    inner, outer = reduced(read(tmp_path_factory.mktemp("ns3"), text))
    assert (inner.fanout, inner.bandwidth) == (below, 25e9)
    assert (outer.fanout, outer.bandwidth) == (leaves, pytest.approx(25e9 * min(1.0, uplinks / below)))


def test_simai_names_gpus_and_hosts(tmp_path: Path) -> None:
    rows = [f"{gpu} {8 + gpu // 4} 3600Gbps 0.000025ms 0" for gpu in range(8)]
    rows += [f"{gpu} 10 400Gbps 0.0005ms 0" for gpu in range(8)]
    text = f"11 4 2 1 {len(rows)} H100\n8 9\n10\n" + "\n".join(rows)
    found = read(tmp_path, text)
    assert (found.device, found.devices_per_host) == ("h100-sxm", 4)
    assert isinstance(found.network, LinkGraph)
    assert found.network.names[:8] == tuple(f"host{host}.{gpu}" for host in range(2) for gpu in range(4))
    assert [(level.fanout, level.bandwidth) for level in reduced(found)] == [(4, 450e9), (2, 50e9)]


@pytest.mark.parametrize(
    ("text", "bytes_per_second"),
    [("400Gbps", 50e9), ("8b/s", 1), ("1KiB/s", 1024), ("25GB/s", 25e9), ("8Kibps", 1024), ("1e9", 1.25e8)],
)
def test_rates(text: str, bytes_per_second: float) -> None:
    assert rate(text) == pytest.approx(bytes_per_second)


@pytest.mark.parametrize(
    ("text", "seconds"), [("0.0005ms", 5e-7), ("1us", 1e-6), ("2", 2), ("0ns", 0), ("3e2ns", 3e-7)]
)
def test_delays(text: str, seconds: float) -> None:
    assert delay(text) == pytest.approx(seconds)


def test_lost_packets_are_told(tmp_path: Path) -> None:
    assert "1 links lose packets" in told(read(tmp_path, STAR.replace("0.0005ms 0\n", "0.0005ms 0.1\n", 1)))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("400Gbps", "fast", "'fast' is no rate"),
        ("400Gbps", "0Gbps", "line 3: '0Gbps' is no rate"),
        ("0.0005ms", "soon", "'soon' is no delay"),
        ("4 3 ", "4 7 ", "line 6 has '7' as the node of a link; nodes are 0 to 4"),
        ("5 1 4", "5 1 5", "the file ends where"),
        ("5 1 4", "5 1 3", "line 6 has more than the 3 links"),
        ("5 1 4", "6 1 4", "not connected"),
        ("4 3 400Gbps 0.0005ms 0", "4 3 400Gbps 0.0005ms x", "'x' where an error rate should be"),
    ],
)
def test_what_cannot_be_is_named(old: str, new: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        read(tmp_path, STAR.replace(old, new, 1))


def test_words_behind_the_links_are_passed_over(tmp_path: Path) -> None:
    tail = "\nFirst line: total node #, switch node #, link #\nSecond line: switch node IDs...\nsrc0 dst0 rate\n...\n"
    whole, plain = (reduced(read(tmp_path, STAR + each)) for each in (tail, ""))
    assert whole == plain
    with pytest.raises(InputError, match="more than the 4 links"):
        read(tmp_path, f"{STAR}{tail}0 4 400Gbps 0.0005ms 0\n")


def test_shared_samples(shared: Path) -> None:
    path = shared / "topologies" / "astra_sim" / "ns3_8_nodes_1_switch_topology.txt"
    assert [(level.fanout, level.bandwidth) for level in reduced(imported(path))] == [(8, 50e9)]
