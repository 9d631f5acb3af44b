"""What `nvidia-smi topo -m` prints, however it was pasted."""

from contextlib import suppress
from pathlib import Path

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.errors import InputError
from nest.network import LinkGraph, pairs, reduce
from nest.network.imported import Imported
from nest.spec import LevelSpec, LinkProfile
from nest_networks.nvidia_smi import NvidiaSmiImporter
from networks_tests.field import read

IMPORTER = NvidiaSmiImporter()
LEGEND = "\nLegend:\n\n  X    = Self\n  NV#  = a bonded set of # NVLinks\n\nNIC Legend:\n\n  NIC0: mlx5_0\n"

DGX_1 = [
    "  X NV1 NV1 NV2 NV2 SYS SYS SYS",
    "NV1   X NV2 NV1 SYS NV2 SYS SYS",
    "NV1 NV2   X NV2 SYS SYS NV1 SYS",
    "NV2 NV1 NV2   X SYS SYS SYS NV1",
    "NV2 SYS SYS SYS   X NV1 NV1 NV2",
    "SYS NV2 SYS SYS NV1   X NV2 NV1",
    "SYS SYS NV1 SYS NV1 NV2   X NV2",
    "SYS SYS SYS NV1 NV2 NV1 NV2   X",
]
"""Six links of every V100 of a DGX-1."""


def table(rows: list[list[str]], *, separator: str = "\t", nics: int = 0, escapes: bool = False) -> str:
    """The matrix as the driver prints it; cells of NICs are SYS."""
    names = [f"GPU{index}" for index in range(len(rows))] + [f"NIC{index}" for index in range(nics)]
    head = separator.join(["", *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])
    lines = [f"\x1b[4m{head}\x1b[0m" if escapes else head]
    for name, cells in zip(names, rows, strict=False):
        lines.append(separator.join([name, *(f" {cell} " for cell in cells), *["SYS"] * nics, "0-63", "0", "N/A"]))
    for index in range(nics):
        own = [" X " if index == other else "PIX" for other in range(nics)]
        lines.append(separator.join([f"NIC{index}", *["SYS"] * len(rows), *own]))
    return "\n".join([*lines, LEGEND])


def alike(count: int, kind: str) -> list[list[str]]:
    return [["X" if one == two else kind for two in range(count)] for one in range(count)]


def bandwidths(found: Imported) -> numpy.typing.NDArray[numpy.float64]:
    assert isinstance(found.network, LinkGraph)
    return pairs(found.network).bandwidth


@pytest.mark.parametrize(("count", "links"), [(8, 18), (8, 12), (16, 6), (4, 18), (8, 8)])
def test_gpus_with_more_links_than_there_are_meet_at_a_switch(tmp_path: Path, count: int, links: int) -> None:
    found = read(tmp_path, table(alike(count, f"NV{links}")))
    assert found.network == (LevelSpec(count, links * 25e9, name="node", link="nvlink"),)
    assert found.devices_per_host == count
    assert any("25 GB/s" in sentence and "link profile" in sentence for sentence in found.assumptions)


@pytest.mark.parametrize(("count", "links"), [(4, 4), (4, 6), (3, 2), (2, 12)])
def test_direct_links_to_everyone_are_used_together(tmp_path: Path, count: int, links: int) -> None:
    (level,) = read(tmp_path, table(alike(count, f"NV{links}"))).network
    assert (level.fanout, level.bandwidth) == (count, links * (count - 1) * 25e9)


@pytest.mark.parametrize(
    ("device", "rate", "link"),
    [("v100-sxm-32g", 25e9, "nvlink2"), ("h100-sxm", 25e9, "nvlink4"), ("gb200", 50e9, "nvlink5")],
)
def test_the_device_of_the_profile_tells_the_generation(tmp_path: Path, device: str, rate: float, link: str) -> None:
    found = read(tmp_path, table(alike(8, "NV18")), LinkProfile(device=device))
    assert found.network == (LevelSpec(8, 18 * rate, name="node", link=link),)
    assert found.device == device


def test_a_mesh_is_a_graph_of_its_links(tmp_path: Path) -> None:
    found = read(tmp_path, table([row.split() for row in DGX_1]), LinkProfile(device="v100-sxm-32g"))
    assert isinstance(found.network, LinkGraph)
    assert found.network.names == tuple(f"GPU{index}" for index in range(8))  # No PCI Express, no switches.
    between = bandwidths(found)
    assert between[0, 3] == pytest.approx(2 * between[0, 1])
    assert between[0, 3] == pytest.approx(2 * 25e9 * 0.61)  # Efficiency of the catalogue's nvlink2.
    assert any("rings" in sentence for sentence in found.assumptions)


def test_islands_of_nvlink_are_joined_by_pci_express(tmp_path: Path) -> None:
    rows = [["X" if i == j else "NV4" if i // 2 == j // 2 else "SYS" for j in range(4)] for i in range(4)]
    found = read(tmp_path, table(rows))
    assert isinstance(found.network, LinkGraph)
    reduced = reduce(pairs(found.network)).best
    assert reduced.exact
    assert reduced.fanouts == (2, 2)
    assert reduced.levels[0].bandwidth == pytest.approx(4 * 25e9 * 0.64)
    assert reduced.levels[1].bandwidth == pytest.approx(10e9 / 2)  # Two GPUs share the link between processors.


def test_paths_over_pci_express_are_a_tree(tmp_path: Path) -> None:
    def kind(one: int, two: int) -> str:
        for most, name in ((1, "X"), (2, "PIX"), (4, "PXB"), (8, "NODE")):
            if one // most == two // most:
                return name
        return "SYS"

    found = read(tmp_path, table([[kind(one, two) for two in range(16)] for one in range(16)]))
    assert isinstance(found.network, LinkGraph)
    reduced = reduce(pairs(found.network)).best
    assert reduced.exact
    assert reduced.fanouts == (2, 2, 2, 2)
    full = 31e9 * 0.76
    assert [level.bandwidth for level in reduced.levels] == pytest.approx([full, full / 2, full / 4, 10e9 / 8])
    assert any("10 GB/s" in sentence for sentence in found.assumptions)


KINDS = st.sampled_from(["NV1", "NV2", "NV4", "PIX", "PXB", "PHB", "NODE", "SYS"])


@pytest.mark.longer
@given(st.data())
def test_however_it_is_printed_it_is_the_same(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 7))
    upper = {(one, two): data.draw(KINDS) for two in range(count) for one in range(two)}
    rows = [["X" if i == j else upper[min(i, j), max(i, j)] for j in range(count)] for i in range(count)]
    folder = tmp_path_factory.mktemp("matrix")
    plain = read(folder, table(rows))
    nics = data.draw(st.integers(0, 12))
    text = table(rows, separator=data.draw(st.sampled_from(["\t", "  ", "\t\t"])), nics=nics, escapes=True)
    missing = data.draw(st.integers(1, count - 1))  # Of two triangles one is enough.
    lines = [line for line in text.split("\n") if not line.startswith(f"GPU{missing}")]
    other = read(folder, "\n".join(["$ nvidia-smi topo -m", *lines]))
    assert plain.assumptions == other.assumptions
    if isinstance(plain.network, LinkGraph):
        assert isinstance(other.network, LinkGraph)
        assert plain.network.names == other.network.names
        assert numpy.array_equal(bandwidths(plain), bandwidths(other))
    else:
        assert plain.network == other.network


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (["GPU0 X", "GPU1 NV2 X NV1"], "1 cells for 3 GPUs"),
        (["GPU0 X NV2 NV1"], "no connection of GPU1 and GPU2"),
        (["GPU0 X OK NV1", "GPU1 OK X NV1"], "'OK'"),
        (["GPU0 X NV0 NV1", "GPU1 NV0 X NV1"], "'NV0'; known are NV and a number above 0"),
        (["GPU0 X NV2 NV1", "GPU1 NV1 X NV1"], "'NV1', in an earlier line by 'NV2'"),
        (["GPU0 X NV2 NV1", "GPU0 X NV2 NV1"], "two rows"),
        (["GPU0 X NV2 NV1", "GPU1 X NV2 NV1"], "the connection of GPU1 and GPU0 is 'X'"),
    ],
)
def test_what_cannot_be_is_told(tmp_path: Path, rows: list[str], told: str) -> None:
    with pytest.raises(InputError, match=told):
        read(tmp_path, "\n".join(["      GPU0 GPU1 GPU2 CPU Affinity", *rows]))


@given(st.text(alphabet="GPUNVXSY0123 \t\n", max_size=200))
def test_nothing_but_a_plain_sentence_comes_of_any_text(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("any") / "topo"
    path.write_text("\tGPU0\tGPU1\n" + text)
    if IMPORTER.accepts(path):
        with suppress(InputError):
            IMPORTER.load(path)


def test_what_is_no_such_file_is_left_to_others(tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("GPU0 is fast\nGPU1 is slow\n")
    for source in (other, tmp_path, tmp_path / "none", "GPU0", None, {"GPU0": 1}):
        assert not IMPORTER.accepts(source)
