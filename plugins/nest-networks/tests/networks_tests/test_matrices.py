"""Machines as tools of drivers print them: long logs, partitions, faults, and what a link profile says of a host."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nest.errors import InputError
from nest.network import LinkGraph
from nest.spec import LinkProfile, TierSpec
from nest.units import BytesPerSecond
from networks_tests.field import levels, read, told
from networks_tests.test_nvidia_smi import alike, table
from networks_tests.test_rocm_smi import printed

LOG = "".join(f"2026-11-30 02:{at % 60:02} step {at} loss 1.5 GPU0 GPU1 busy\n" for at in range(3000))


def amd(count: int, kind: Callable[[int, int], str], hops: Callable[[int, int], int], parts: int = 1) -> str:
    """What amd-smi topology prints of cards with so many partitions, its weights all 0."""
    names = [f"0000:{0x0C + 0x10 * (at // parts):02x}:00.{at % parts}" for at in range(count)]

    def rows(title: str, cell: Callable[[int, int], object], own: str) -> str:
        cells = ([str(own if one == two else cell(one, two)) for two in range(count)] for one in range(count))
        return f"{title} TABLE:\n{' ' * 13}{' '.join(names)}\n" + "".join(
            f"{name} {'         '.join(row)}\n" for name, row in zip(names, cells, strict=True)
        )

    tables = rows("ACCESS", lambda *_: "ENABLED", "ENABLED") + rows("WEIGHT", lambda *_: 0, "0")
    return tables + rows("HOPS", hops, "0") + rows("LINK TYPE", kind, "SELF") + rows("NUMA BW", lambda *_: "0-0", "N/A")


@pytest.mark.longer
def test_a_matrix_at_the_end_of_a_long_log(tmp_path: Path) -> None:
    assert len(LOG) > 2 * 64 * 2**10
    assert levels(read(tmp_path, LOG + table(alike(8, "NV18")))) == [(8, 450e9)]
    assert levels(read(tmp_path, LOG + printed(8, lambda *_: "XGMI", lambda *_: 15))) == [(8, 7 * 46e9)]
    assert levels(read(tmp_path, LOG + amd(8, lambda *_: "XGMI", lambda *_: 1))) == [(8, 7 * 46e9)]


MI300X = "GPU[0]\t\t: Card Model: \t\t0x74a1\nGPU[0]\t\t: GFX Version: \t\tgfx942\n"


@pytest.mark.parametrize(("cards", "parts"), [(8, 8), (7, 8), (8, 2), (4, 3)])
def test_partitions_share_the_links_of_their_card(cards: int, parts: int, tmp_path: Path) -> None:
    count = cards * parts
    weights = lambda one, two: 13 if one // parts == two // parts else 41  # noqa: E731
    for text in (
        MI300X + printed(count, lambda *_: "XGMI", weights),
        MI300X + amd(count, lambda *_: "XGMI", lambda *_: 1, parts),
    ):
        found = read(tmp_path, text)
        assert levels(found) == [(count, pytest.approx((cards - 1) * 64e9 / parts))]
        assert found.device is None
        assert f"the {count} GPUs are partitions of {cards} cards" in told(found)


@pytest.mark.longer
@pytest.mark.parametrize(("count", "cards"), [(16, 8), (64, 8), (12, 4)])
def test_partitions_that_weights_do_not_tell_apart(count: int, cards: int, tmp_path: Path) -> None:
    found = read(tmp_path, MI300X + printed(count, lambda *_: "XGMI", lambda *_: 15))
    assert levels(found) == [
        (count, pytest.approx((cards - 1) * 64e9 * cards / count))
    ]  # Not more than the cards have.


def test_amd_smi_tells_links_by_hops(tmp_path: Path) -> None:
    far = read(tmp_path, amd(4, lambda *_: "XGMI", lambda one, two: 1 if abs(one - two) in (1, 3) else 2))
    assert isinstance(far.network, LinkGraph)
    cards = read(tmp_path, amd(2, lambda *_: "PCIE", lambda *_: 2))
    assert "PCI Express" in told(cards)
    text = amd(8, lambda *_: "XGMI", lambda *_: 1)
    with pytest.raises(InputError, match=r"LINK TYPE TABLE.*a row and a column for each GPU"):
        read(tmp_path, text[: text.index("NUMA BW") - 200])


def test_a_gpu_without_nvlink_among_seven_is_a_fault(tmp_path: Path) -> None:
    cells = [[("NODE" if 3 in (one, two) else "NV18") if one != two else "X" for two in range(8)] for one in range(8)]
    assert "GPU3 has no NVLink, the other 7 devices do: a fault of the machine" in told(read(tmp_path, table(cells)))
    assert "fault" not in told(read(tmp_path, table(alike(8, "NV18"))))
    assert "fault" not in told(read(tmp_path, table(alike(8, "NODE"))))
    weights = lambda one, two: 15  # noqa: E731
    kind = lambda one, two: "PCIE" if 0 in (one, two) else "XGMI"  # noqa: E731
    assert "GPU0 has no Infinity Fabric" in told(read(tmp_path, printed(8, kind, weights)))


def host(link: str | None, bandwidth: float | None = None) -> LinkProfile:
    tier = TierSpec(link, None if bandwidth is None else BytesPerSecond(bandwidth))
    return LinkProfile(host=tier, tiers=(TierSpec(link="ethernet", bandwidth=BytesPerSecond(50e9)),))


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        (table(alike(8, "NV18")), host("nvlink5"), 900e9),
        (table(alike(8, "NV18")), host("nvlink4"), 450e9),
        (table(alike(8, "NV18")), host("nvlink5", 800e9), 800e9),
        (table(alike(4, "NV4")), host(None, 600e9), 600e9),
        (table([[cell.replace("18", "17") for cell in row] for row in alike(8, "NV18")]), host("nvlink5"), 850e9),
        (printed(8, lambda *_: "XGMI", lambda *_: 15), host("infinity-fabric", 537.6e9), 537.6e9),
        (amd(8, lambda *_: "XGMI", lambda *_: 1), host("infinity-fabric"), 448e9),
    ],
)
def test_host_of_a_link_profile_counts(text: str, given: LinkProfile, expected: float, tmp_path: Path) -> None:
    found = read(tmp_path, text, given)
    ((_, bandwidth),) = levels(found)
    assert bandwidth == pytest.approx(expected)
    assert "the file has no NVLink speed" not in told(found)
    assert "assuming 46 GB/s" not in told(found)


def test_host_of_a_link_profile_counts_for_pci_express(tmp_path: Path) -> None:
    slow, fast = (read(tmp_path, table(alike(2, "PHB")), given) for given in (host("pcie4"), host(None, 63e9)))
    for found, nominal in ((slow, 31e9), (fast, 63e9)):
        assert isinstance(found.network, LinkGraph)
        assert found.network.bandwidth.max() == pytest.approx(0.76 * nominal)
    other = read(tmp_path, table(alike(2, "PHB")), host("nvlink4"))
    assert isinstance(other.network, LinkGraph)
    assert other.network.bandwidth.max() < 63e9  # NVLink is no PCI Express.


@pytest.mark.parametrize(
    ("number", "device", "rate"), [("0x75a3", "mi355x", 76.8e9), ("0x74a5", "mi325x", 64e9), ("0x74a1", "mi300x", 64e9)]
)
def test_cards_of_amd_are_known_by_their_number(number: str, device: str, rate: float, tmp_path: Path) -> None:
    text = f"GPU[0]\t\t: Card Model: \t\t{number}\n" + printed(8, lambda *_: "XGMI", lambda *_: 15)
    found = read(tmp_path, text)
    assert (levels(found), found.device) == ([(8, pytest.approx(7 * rate))], device)


@pytest.mark.parametrize("device", ["l40s", "rtx-pro-6000", "mi325x", "mi355x", "mi250x", "gb10"])
def test_new_devices_may_be_named_for_a_matrix(device: str, tmp_path: Path) -> None:
    found = read(tmp_path, table(alike(4, "NODE")), LinkProfile(device=device))
    assert found.device == device
    assert isinstance(found.network, LinkGraph)
    if device in ("l40s", "rtx-pro-6000"):  # Their slots are PCI Express 4.0 and 5.0.
        assert found.network.bandwidth.max() == pytest.approx(0.76 * {"l40s": 31.5e9, "rtx-pro-6000": 63e9}[device])


def test_cards_that_the_catalogue_has_are_still_joined_by_pci_express(tmp_path: Path) -> None:
    gpus = "".join(
        f'<pci busid="0000:{bus}:00.0" class="0x030200" vendor="0x10de" device="0x26b9" link_speed="16.0 GT/s PCIe" '
        f'link_width="16"><gpu dev="{at}" sm="89" rank="{at}" gdr="1"/></pci>'
        for at, bus in enumerate(("16", "38", "49", "5a"))
    )
    cpu = '<cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">'
    found = read(tmp_path, f'<system version="1">\n{cpu}{gpus}</cpu></system>\n')
    assert (found.device, isinstance(found.network, LinkGraph)) == ("l40s", True)
