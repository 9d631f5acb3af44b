"""The catalogue's data files: complete, sourced, and what FORMATS.md promises."""

import re
from math import nan
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from nest.catalogue import (
    TimeSpread,
    clusters,
    device,
    devices,
    link,
    links,
    named_cluster,
    network_levels,
    optimizer,
    optimizers,
    precision,
    precisions,
    published_devices,
    scale_up_levels,
)
from nest.catalogue.entries import Link
from nest.errors import InputError
from nest.instance import EstimateError, Level
from nest.spec import DeviceSpec, LevelSpec, Training
from nest.spec.training import PRECISIONS
from nest.units import BytesPerSecond

REPOSITORY = Path(__file__).resolve().parents[2]


def test_every_precision_of_the_format_is_there() -> None:
    assert set(precisions()) == set(PRECISIONS)


def test_every_entry_has_sources_and_its_files_name() -> None:
    for table in (devices(), links(), clusters(), precisions(), optimizers()):
        assert list(table) == sorted(table)
        for name, entry in table.items():
            assert entry.name == name
            assert entry.sources, name


def test_device_figures_are_plausible() -> None:
    for entry in devices().values():
        peaks = [entry.peak.fp32, entry.peak.bf16, entry.peak.fp8, entry.peak.nvfp4]
        known = [peak for peak in peaks if peak is not None]
        assert known == sorted(known), entry.name
        assert all(0 < share <= 1 for share in entry.efficiency.values()), entry.name
        assert 10e9 < entry.memory < 1e12, entry.name
        assert (2e11 if entry.name == "gb10" else 5e11) < entry.memory_bandwidth < 2e13, entry.name
        if entry.name in ("gb10", "tpu-v7x", "trainium2"):  # Of its host's own memory; not published.
            assert entry.host_bandwidth is None
            continue
        assert entry.host_bandwidth is not None, entry.name
        assert 1e10 < entry.host_bandwidth < entry.memory_bandwidth / 10, entry.name
        assert 1e10 < (entry.host_memory_bandwidth or 2e10) < entry.memory_bandwidth / 10, entry.name


def test_bytes_per_parameter_are_megatrons() -> None:
    """Megatron-LM, docs/source/api-guide/dist_optimizer.md: 20, 18 and 16 bytes, of which 16, 12 and 8 are sharded."""
    adam = optimizer("adam")
    for name, total, sharded in (("fp16", 20, 16), ("bf16", 18, 12), ("fp32", 16, 8)):
        bytes_of = precision(name)
        assert adam.state_bytes(bytes_of) == sharded
        assert bytes_of.weights + bytes_of.gradients + adam.state_bytes(bytes_of) == total


@pytest.mark.parametrize(
    ("published", "optimizer_name", "training", "total"),
    [
        (
            "ZeRO, arXiv 1910.02054, section 3.1: 2 + 2 + 12",
            "adam",
            {"precision": "fp16", "master_gradients": False},
            16,
        ),
        ("the same of SGD without momentum: 2 + 2 + 4", "sgd", {"precision": "fp16", "master_gradients": False}, 8),
        ("Megatron-LM dist_optimizer.md, float16 and float16", "adam", {"precision": "bf16", "gradients": "bf16"}, 20),
        ("Megatron-LM dist_optimizer.md, float16 and fp32", "adam", {"precision": "fp16", "gradients": "fp32"}, 18),
        ("DeepSeek-V3, arXiv 2412.19437, section 3.3.2: 2 + 4 + 4 + 2*2", "adam-bf16", {}, 14),
        (
            "pure bf16, as torch.optim.Adam(model.bfloat16()): four numbers of 2 bytes",
            "adam-bf16",
            {"gradients": "bf16", "master_weights": False, "master_gradients": False},
            8,
        ),
        (
            "FSDP with weights in single precision alone (arXiv 2304.11277, section 4.4)",
            "adam",
            {"weights_once": True},
            16,
        ),
        ("8-bit primary weights in both layouts", "adam", {"precision": "fp8", "primary_weights": "fp8"}, 18),
        ("bf16 weights with cached 8-bit copies", "adam", {"precision": "fp8", "primary_weights": "bf16"}, 20),
    ],
)
def test_published_bytes_per_parameter(
    published: str, optimizer_name: str, training: dict[str, Any], total: float
) -> None:
    asked = Training(global_batch=1, **training)
    bytes_of = precision(asked.precision).trained(asked)
    held = bytes_of.weights + bytes_of.gradients + optimizer(optimizer_name).state_bytes(bytes_of)
    assert held == total, published


@given(
    name=st.sampled_from(PRECISIONS),
    kind=st.sampled_from(sorted(optimizers())),
    gradients=st.sampled_from([None, "fp32", "bf16", "fp16"]),
    weights=st.booleans(),
    copied=st.booleans(),
)
def test_no_copy_takes_less_and_a_step_moves_what_it_keeps(
    name: str, kind: str, gradients: str | None, weights: bool, copied: bool
) -> None:
    asked = Training(global_batch=1, gradients=gradients, master_weights=weights, master_gradients=copied)
    bytes_of, usual = precision(name).trained(asked), precision(name)
    chosen = optimizer(kind)
    assert chosen.state_bytes(bytes_of) == chosen.moments + 4 * weights + 4 * copied
    assert chosen.update_bytes(bytes_of) >= 2 * chosen.state_bytes(bytes_of) + bytes_of.gradients + bytes_of.weights
    assert (usual.master_weights, usual.master_gradients) == (usual.weights < 4, usual.gradients < 4)


def test_scaling_the_loss_takes_a_pass_over_the_gradients_as_the_step_uses_them() -> None:
    scaled = precision("fp16")
    plain = evolve(scaled, loss_scaling=False)
    assert optimizer("adam").update_bytes(scaled) == optimizer("adam").update_bytes(plain) + 2 * 4


def test_weights_in_8_bits_need_products_in_8_bits() -> None:
    with pytest.raises(InputError, match=r"training.primary_weights: training.precision bf16 has no"):
        precision("bf16").trained(Training(global_batch=1, primary_weights="fp8"))


def test_clusters_name_devices_and_links_there_are() -> None:
    for entry in clusters().values():
        assert device(entry.device).memory > 0
        assert network_levels(entry.levels)
        assert entry.description


@pytest.mark.parametrize(
    ("name", "fanouts"),
    [
        ("dgx-h100-superpod", [8, 32, 4]),
        ("dgx-h100-superpod-4", [4]),
        ("dgx-h100-superpod-8", [8]),
        ("dgx-h100-superpod-128", [8, 16]),
        ("dgx-h100-superpod-2048", [8, 32, 8]),
        ("nest-h100-spine-leaf-64", [8, 4, 2]),
        ("p5.48xlarge", [8, 1]),
        ("p5.48xlarge-64", [8, 8]),
        ("BM.GPU.H100.8-4", [4]),
        ("a3-highgpu-8g-32", [8, 4]),
    ],
)
def test_a_cluster_can_be_asked_for_in_another_size(name: str, fanouts: list[int]) -> None:
    assert [level.fanout for level in named_cluster(name).levels] == fanouts


def test_machines_of_clouds_share_what_their_interfaces_carry_among_their_devices() -> None:
    """Their descriptions say how many interfaces there are, and of what rate."""
    clouds = [entry for entry in clusters().values() if "machines of 8" in entry.description]
    assert len(clouds) == 22
    for entry in clouds:
        said = re.search(r", (\d+) .* (\d+) Gbit/s$", entry.description)
        assert said is not None, entry.name
        node, network = entry.levels
        assert (node.fanout, network.fanout) == (8, 1), entry.name
        assert network.bandwidth == int(said[1]) * int(said[2]) * 1e9 / 8 / 8, entry.name
        assert node.bandwidth == link(str(node.link)).bandwidth, entry.name


@pytest.mark.parametrize(
    "name", ["p5.48xlarge-12", "dgx-h100-superpod-12", "dgx-h100-superpod-1000", "dgx-h100-superpod-0"]
)
def test_a_size_that_breaks_groups_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot have"):
        named_cluster(name)


@pytest.mark.parametrize(
    ("look", "wrong", "right"),
    [(device, "h100_sxm", "h100-sxm"), (optimizer, "adan", "adam"), (named_cluster, "dgx-h100-superpd-8", "dgx")],
)
def test_an_unknown_name_gets_the_nearest_and_the_list(look: object, wrong: str, right: str) -> None:
    assert callable(look)
    with pytest.raises(InputError, match="Known: ") as error:
        look(wrong)
    assert right in str(error.value)
    assert repr(wrong) in str(error.value)


def test_the_scale_up_network_ends_at_the_first_level_of_other_links() -> None:
    fast, slow = LevelSpec(4, link="nvlink4"), LevelSpec(4, link="infiniband-ndr")
    for levels, expected in (((fast, fast, slow, fast), 2), ((slow, fast), 0), ((fast,), 1)):
        assert scale_up_levels(network_levels(levels)) == expected
    unnamed = LevelSpec(4, bandwidth=BytesPerSecond(1e11))
    assert scale_up_levels(network_levels((unnamed, unnamed))) == 1


def test_a_time_on_an_unknown_cluster_spreads_by_its_level_and_by_its_run() -> None:
    """Standard deviations of what is independent add up by their squares."""
    assert TimeSpread(between=0.3, within=0.4, apart=0.1).stranger == EstimateError(1.0, 0.5)


def test_levels_take_from_their_link_what_they_leave_out() -> None:
    nvlink4, nvlink = links()["nvlink4"], links()["nvlink"]
    assert nvlink4.bandwidth is not None
    written, named, partly = network_levels(
        [
            LevelSpec(fanout=2, bandwidth=100.0),  # type: ignore[arg-type]
            LevelSpec(fanout=2, link="nvlink4", name="node"),
            LevelSpec(fanout=2, bandwidth=100.0, latency=7.0, link="nvlink"),  # type: ignore[arg-type]
        ]
    )
    lines = tuple(line.on(nvlink4.bandwidth) for line in nvlink4.lines)
    assert lines
    assert written == Level("level 0", 2, 100.0, 0.0)
    assert named == Level("node", 2, nvlink4.bandwidth * nvlink4.efficiency, nvlink4.latency, "nvlink4", lines)
    assert partly == Level("level 2", 2, 100.0 * nvlink.efficiency, 7.0, "nvlink")


@pytest.mark.parametrize("generation", links()["nvlink"].generations)
def test_a_family_of_links_is_the_member_whose_bandwidth_a_level_has(generation: str) -> None:
    bandwidth = BytesPerSecond(links()[generation].bandwidth or 0)
    named, told = network_levels(
        [
            LevelSpec(fanout=2, link=generation, name="node"),
            LevelSpec(fanout=2, link="nvlink", bandwidth=bandwidth, name="node"),
        ]
    )
    assert told == evolve(named, link="nvlink")
    (other,) = network_levels([LevelSpec(fanout=2, link="nvlink", bandwidth=BytesPerSecond(200e9))])
    assert other.bandwidth == 200e9 * links()["nvlink"].efficiency


@pytest.mark.parametrize(
    ("level", "place"),
    [
        (LevelSpec(fanout=2), r"cluster.levels\[0\].bandwidth"),
        (LevelSpec(fanout=2, link="infiniband"), r"cluster.levels\[0\].bandwidth"),
        (LevelSpec(fanout=2, link="nvlnk"), r"cluster.levels\[0\].link.*nvlink"),
    ],
)
def test_a_level_without_bandwidth_is_refused(level: LevelSpec, place: str) -> None:
    with pytest.raises(InputError, match=place):
        network_levels([level])


def device_figures(device: DeviceSpec) -> list[float]:
    """The columns of the page's table of devices; nan: an empty cell."""
    peaks = [(getattr(device.peak, name) or nan) / 1e12 for name in ("fp32", "fp16", "bf16", "fp8", "nvfp4")]
    shares = [device.efficiency.get(kind, 1.0) for kind in ("matmul", "attention", "memory")]
    host = [(device.host_bandwidth or nan) / 1e9, (device.host_memory_bandwidth or nan) / 1e9]
    return [
        device.memory / 1e9,
        device.memory_bandwidth / 1e9,
        *peaks,
        *shares,
        *host,
        device.efficiency.get("host", 1.0),
    ]


def link_figures(link: Link) -> list[float]:
    return [link.latency * 1e6, link.efficiency, (link.bandwidth or nan) / 1e9]


@pytest.mark.parametrize("table", ["devices", "links", "clusters", "precisions", "optimizers"])
def test_the_reference_page_lists_every_entry_with_its_figures(table: str) -> None:
    """docs/reference/devices.md is written by hand; this keeps it fresh."""
    page = (REPOSITORY / "docs" / "reference" / "devices.md").read_text()
    section = page.split(f"## {table.capitalize()}\n")[1].split("\n## ")[0]
    rows = {
        cells[0].strip("`"): cells[1:]
        for line in section.splitlines()
        if line.startswith("| `") and (cells := [cell.strip() for cell in line.strip("|").split("|")])
    }
    expected = {
        "devices": lambda: {d.name: device_figures(d) for d in published_devices().values()},
        "links": lambda: {e.name: link_figures(e) for e in links().values()},
        "clusters": lambda: {e.name: [] for e in clusters().values()},
        "precisions": lambda: {e.name: [e.weights, e.gradients] for e in precisions().values()},
        "optimizers": lambda: {
            e.name: [e.moments, e.moments if e.matrix_moments is None else e.matrix_moments]
            for e in optimizers().values()
        },
    }[table]()
    assert set(rows) == set(expected)
    for name, figures in expected.items():
        shown = [float(re.sub(r"[^0-9.]", "", cell) or "nan") for cell in rows[name][: len(figures)]]
        assert shown == pytest.approx(figures, rel=1e-4, nan_ok=True), name


def test_the_reference_page_has_the_device_and_levels_of_every_cluster() -> None:
    page = (REPOSITORY / "docs" / "reference" / "devices.md").read_text()
    for each in clusters().values():
        pairs = zip(network_levels(each.levels), each.levels, strict=True)
        levels = ", ".join(f"{level.fanout} x {written.bandwidth / 1e9:g} GB/s" for level, written in pairs)
        assert f"| {each.device} | {levels} |" in page, each.name
