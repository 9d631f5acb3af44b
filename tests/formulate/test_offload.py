"""Offload to the host: what leaves the device, what it costs, and what is refused."""

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

import nest
from nest.catalogue import device, devices, optimizer, optimizers, precision
from nest.errors import InputError
from nest.formulate.instance import build_instance
from nest.formulate.recompute import Host, host
from nest.hooks.registry import registry
from nest.instance import Candidate
from nest.spec import ClusterSpec, LevelSpec, Problem, Search, Training, TransformerSpec
from nest.units import BytesPerSecond

Build = Callable[..., Problem]


def candidates(problem: Build, *offload: str, **changes: Any) -> tuple[Candidate, ...]:
    training = {"offload": offload, **changes.pop("training", {})}
    return build_instance(problem(training=training, **changes), registry()).candidates


def test_a_step_on_the_host_is_two_transfers_and_a_pass_over_its_memory() -> None:
    """bf16 with Adam: 4 bytes down, 2 up, and 12 read, 12 written, 4 read, 2 written in memory."""
    found = Host(bandwidth=2.0, memory_bandwidth=10.0, holds=frozenset({"optimizer"}))
    assert found.update_seconds(precision("bf16"), optimizer("adam")) == pytest.approx((4 + 2) / 2 + 30 / 10)


def test_each_way_hides_under_its_own_pass() -> None:
    """A transfer takes three seconds each way."""
    found = Host(bandwidth=2.0, memory_bandwidth=None, holds=frozenset({"activations"}))
    for forward, backward, waited in (
        (0.0, 0.0, 6.0),
        (1.0, 2.0, 3.0),
        (5.0, 2.0, 1.0),
        (1.0, 5.0, 2.0),
        (3.0, 3.0, 0.0),
    ):
        assert found.exposed_seconds(6.0, forward, backward) == waited


@given(
    name=st.sampled_from([each.name for each in devices().values() if each.host_memory_bandwidth is not None]),
    kind=st.sampled_from(sorted(name for name in optimizers() if not optimizer(name).newton_schulz_steps)),
    width=st.sampled_from(["fp32", "fp16", "bf16", "fp8"]),
    copied=st.sampled_from([None, False, True]),
)
def test_a_step_on_the_host_is_never_faster_than_one_on_the_device(
    name: str, kind: str, width: str, copied: bool | None
) -> None:
    asked = Training(1, precision=width, optimizer=kind, master_weights=copied, offload=("optimizer",))
    bytes_of, gpu = precision(width).trained(asked), device(name)
    there = host(gpu, asked)
    assert there is not None
    here = optimizer(kind).update_bytes(bytes_of) / (gpu.memory_bandwidth * gpu.efficiency["memory"])
    assert there.update_seconds(bytes_of, optimizer(kind)) > here


def test_matrix_products_of_an_optimizer_are_not_priced_on_the_host(problem: Build) -> None:
    with pytest.raises(InputError, match="nest prices no muon on the host; leave optimizer out"):
        candidates(problem, "optimizer", training={"optimizer": "muon"})


def test_the_optimizer_leaves_the_device(problem: Build) -> None:
    for here, there in zip(candidates(problem), candidates(problem, "optimizer"), strict=True):
        assert [mode.name for mode in there.recompute] == [mode.name for mode in here.recompute]
        for own, away in zip(here.state, there.state, strict=True):
            assert not away.optimizer.any()
            assert own.optimizer.any()
            assert (away.weights == own.weights).all()
            assert (away.gradients == own.gradients).all()
            parameters = own.weights / 2
            gpu = device("a100-sxm-80g")
            assert gpu.host_bandwidth is not None
            assert gpu.host_memory_bandwidth is not None
            each = 6 / (gpu.host_bandwidth * gpu.efficiency["host"]) + 30 / gpu.host_memory_bandwidth
            assert away.update == pytest.approx(parameters * each)


def test_what_blocks_save_leaves_and_ends_keep_theirs(problem: Build) -> None:
    gpu = device("a100-sxm-80g")
    assert gpu.host_bandwidth is not None
    reached = gpu.host_bandwidth * gpu.efficiency["host"]
    for each in candidates(problem, "activations"):
        none, away = each.mode("none"), each.mode("offload")
        blocks = numpy.array([False, True, True, True, True, False])
        saved = numpy.where(blocks, none.first, 0.0)
        assert (away.first == none.first - saved).all()
        assert (away.more == none.more - saved).all()
        assert not away.stash_inputs
        waiting = numpy.maximum(0, saved / reached - each.forward) + numpy.maximum(0, saved / reached - each.backward)
        assert away.extra == pytest.approx(waiting)
        assert away.peak == pytest.approx(none.peak + saved + 2 * saved.max())


@pytest.mark.parametrize("granularity", ["layer", "operator"])
def test_parts_of_a_layer_wait_as_long_as_the_layer(granularity: str, problem: Build) -> None:
    whole = candidates(problem, "activations")
    fine = candidates(problem, "activations", search=Search(granularity=granularity))
    for one, other in zip(whole, fine, strict=True):
        assert other.mode("offload").extra.sum() == pytest.approx(one.mode("offload").extra.sum(), rel=1e-12)
        assert other.mode("offload").peak.max() >= one.mode("offload").peak.max() * (1 - 1e-12)


@pytest.mark.longer
@settings(max_examples=12)
@given(
    link=st.floats(1e7, 1e13),
    name=st.sampled_from(sorted(devices())),
    attention=st.sampled_from(["flash", "unfused"]),
    flying=st.integers(1, 6),
    layers=st.integers(1, 4),
)
def test_activations_on_the_host_never_take_less_time_nor_more_memory_than_three_layers(
    link: float, name: str, attention: str, flying: int, layers: int
) -> None:
    """Whatever the link. Three layers' worth stay on the device, so a stage in which no more wait gains nothing."""
    asked = Problem(
        nest=1,
        model=TransformerSpec(layers=4, hidden=64, ffn=128, heads=8, vocab=500),
        training=Training(
            global_batch=8, sequence_length=64, micro_batch=(1,), attention=attention, offload=("activations",)
        ),
        cluster=ClusterSpec(
            levels=(LevelSpec(fanout=8, link="nvlink3"),),
            device=evolve(device(name), host_bandwidth=BytesPerSecond(link)),
        ),
    )
    for each in build_instance(asked, registry()).candidates:
        none, away = each.mode("none"), each.mode("offload")
        assert (away.extra >= 0).all()
        slowest = 2 * none.first[1] / (link * device(name).efficiency.get("host", 1.0))
        assert (away.extra <= slowest * (1 + 1e-12)).all()
        stage = slice(1, 1 + layers)

        def memory(mode: Any, stage: slice = stage) -> float:
            kept = mode.first[stage].sum() + (flying - 1) * mode.more[stage].sum()
            return float(kept + mode.peak[stage].max())

        if flying * layers >= 3:
            assert memory(away) <= memory(none) * (1 + 1e-12)


SMALL: dict[str, Any] = {"nest": 1, "model": "llama-2-7b", "cluster": "dgx-h100-superpod-8"}
TRAINING = {"global_batch": 16, "sequence_length": 4096, "micro_batch": [1]}


def evaluated(offload: list[str], **fixed: Any) -> Any:
    return nest.evaluate({**SMALL, "training": {**TRAINING, "offload": offload}, "fixed": fixed})


@pytest.mark.longer
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_the_optimizer_on_the_host_takes_longer_and_less_memory(zero: int) -> None:
    here, there = (evaluated(offload, tp=2, pp=2, zero=zero) for offload in ([], ["optimizer"]))
    assert there.batch_time > here.batch_time
    for own, away in zip(here.stages, there.stages, strict=True):
        assert away.memory < own.memory
        assert away.time == own.time
    assert nest.check(there.to_dict()).ok


@pytest.mark.longer
def test_each_rank_brings_its_share_of_the_step() -> None:
    """PROBLEM.md section 4: with ZeRO 1 the step on the host is divided by the replicas, as any step is."""
    whole, shared = (evaluated(["optimizer"], tp=2, zero=zero) for zero in (0, 1))
    here = evaluated([], tp=2, zero=0)
    step = whole.batch_time - here.batch_time
    assert whole.data_parallel == 4
    assert shared.batch_time < whole.batch_time - 0.5 * step


def test_what_cannot_be_is_told(problem: Build) -> None:
    with pytest.raises(InputError, match=r"host_memory_bandwidth, unknown for 'tpu-v4'"):
        candidates(problem, "optimizer", cluster={"device": "tpu-v4"})
    bare = evolve(device("h100-sxm"), name="mine", host_bandwidth=None)
    with pytest.raises(InputError, match=r"training.offload needs cluster.device.host_bandwidth.*'mine'"):
        candidates(problem, "activations", cluster={"device": bare})
    for changes in ({"fixed": {"recompute": "offload"}}, {"search": Search(recompute=("offload",))}):
        with pytest.raises(InputError, match=r"recompute: `offload` needs `activations` in"):
            candidates(problem, "optimizer", **changes)
    with pytest.raises(InputError, match=r"training.offload"):
        nest.solve({**SMALL, "training": {**TRAINING, "offload": ["weights"]}})
