"""What `rocm-smi --showtopo` prints, in its parts."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.errors import InputError
from nest.network import LinkGraph, pairs
from nest.network.imported import Imported
from nest.spec import LevelSpec, LinkProfile
from nest.units import BytesPerSecond
from nest_networks.rocm_smi import RocmSmiImporter
from networks_tests.field import level, read

IMPORTER = RocmSmiImporter()

Cell = Callable[[int, int], object]


def matrix(title: str, count: int, cell: Cell) -> str:
    lines = [f"{'=' * 31} {title} between two GPUs {'=' * 31}", "       " + "  ".join(f"GPU{i}" for i in range(count))]
    for one in range(count):
        cells = [0 if one == two else cell(one, two) for two in range(count)]
        lines.append(f"GPU{one}   " + "   ".join(map(str, cells)) + "  ")
    return "\n".join(lines) + "\n\n"


def printed(count: int, kind: Cell, weight: Cell | None = None, node: Callable[[int], int] | None = None) -> str:
    text = f"{'=' * 28} ROCm System Management Interface {'=' * 28}\n"
    if weight is not None:
        text += matrix("Weight", count, weight) + matrix("Hops", count, lambda *_: 1)
    text += matrix("Link Type", count, kind)
    if node is not None:
        text += f"{'=' * 39} Numa Nodes {'=' * 39}\n"
        text += "".join(
            f"GPU[{i}]\t\t: (Topology) Numa Node: {node(i)}\nGPU[{i}]\t\t: (Topology) Numa Affinity: {node(i)}\n"
            for i in range(count)
        )
    return text + f"{'=' * 34} End of ROCm SMI Log {'=' * 34}\n"


def test_eight_mi300x_are_one_level(tmp_path: Path) -> None:
    """As AMD's documents of MI300X platforms print it: XGMI between all, 15 a hop."""
    text = printed(8, lambda *_: "XGMI", lambda *_: 15, lambda gpu: gpu // 4)
    found = read(tmp_path, text, LinkProfile(device="mi300x"))
    assert level(found) == LevelSpec(8, BytesPerSecond(7 * 64e9), name="node", link="infinity-fabric")
    assert found.device == "mi300x"
    unnamed = read(tmp_path, text)
    assert level(unnamed).bandwidth == 7 * 46e9
    assert any("--showproductname" in sentence for sentence in unnamed.assumptions)
    told = read(tmp_path, f"GPU[0]\t\t: Card Model: \t\t0x74b5\nGPU[0]\t\t: GFX Version: \t\tgfx942\n{text}")
    assert (level(told).bandwidth, told.device) == (7 * 64e9, "mi300x")


def test_cards_have_pci_express_and_their_processors(tmp_path: Path) -> None:
    """ROCm/rocm_smi_lib#108: four cards, PCIE and weight 52 between all, on NUMA nodes 0, 1, 3, 2."""
    found = read(tmp_path, printed(4, lambda *_: "PCIE", lambda *_: 52, lambda gpu: (0, 1, 3, 2)[gpu]))
    assert isinstance(found.network, LinkGraph)
    assert pairs(found.network).bandwidth[0, 1] == 10e9
    together = read(tmp_path, printed(2, lambda *_: "PCIE"))  # ROCm/ROCm#1503: two MI100.
    assert isinstance(together.network, LinkGraph)
    assert pairs(together.network).bandwidth[0, 1] > 10e9


def test_groups_with_xgmi_are_joined_by_pci_express(tmp_path: Path) -> None:
    text = printed(8, lambda one, two: "XGMI" if one // 4 == two // 4 else "PCIE", node=lambda gpu: gpu // 4)
    found = read(tmp_path, text)
    assert isinstance(found.network, LinkGraph)
    bandwidth = pairs(found.network).bandwidth
    assert bandwidth[0, 3] > 2 * bandwidth[0, 4]


def test_xgmi_over_a_third_gpu_is_no_link(tmp_path: Path) -> None:
    """A ring of four: opposite GPUs have twice the weight."""
    text = printed(4, lambda *_: "XGMI", lambda one, two: 30 if (one - two) % 4 == 2 else 15)
    found = read(tmp_path, text)
    assert isinstance(found.network, LinkGraph)
    assert len(found.network.ends) == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("GPU2   XGMI   XGMI   0   XGMI  \n", ""), "row of GPU3"),
        (lambda text: text.replace("GPU3   XGMI", "GPU3   PCIE"), "both ways"),
        (lambda text: text.replace("XGMI", "N/A"), "must be XGMI or PCIE"),
        (lambda text: text + text, "2 matrices"),
        (lambda text: text.replace("0   XGMI  \n", "0 \n"), "a row and a column"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, change: Callable[[str], str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(tmp_path, change(printed(4, lambda *_: "XGMI")))


WORDS = st.lists(st.sampled_from(["GPU0", "GPU1", " XGMI ", " 0 ", "\n", "=======", " PCIE ", "Numa"]), max_size=40)


@given(WORDS.map("".join))
def test_strange_texts_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("strange") / "topo.txt"
    path.write_text(f"====== Link Type between two GPUs ======\n{text}")
    with suppress(InputError):
        assert isinstance(IMPORTER.load(path), Imported)
