"""Whole models to instances."""

from collections.abc import Callable

import numpy
import pytest
from attrs import evolve

from nest.errors import InputError
from nest.formulate.instance import build_instance
from nest.hooks.registry import registry
from nest.instance import Candidate, Instance
from nest.spec import Problem, TransformerSpec
from tests.bare_devices import unhurried

Build = Callable[..., Problem]


def chosen(instance: Instance, **degrees: int) -> Candidate:
    for each in instance.candidates:
        if each.micro_batch == 1 and all(each.degrees[name] == degree for name, degree in degrees.items()):
            return each
    raise AssertionError(degrees)


def test_layers_and_what_crosses_them(problem: Build) -> None:
    instance = build_instance(problem(), registry())
    assert instance.graph.layers == ("embedding", *(f"layers.{i}" for i in range(4)), "head")
    assert instance.graph.tensors == tuple((i, (i + 1,)) for i in range(5))
    stream = 128 * 64 * 2
    assert chosen(instance, tp=1).tensor_bytes.tolist() == [stream] * 5
    assert chosen(instance, tp=8, sp=1).tensor_bytes.tolist() == [stream] * 5
    assert chosen(instance, tp=8, sp=8).tensor_bytes.tolist() == [stream / 8] * 5


@pytest.mark.longer
def test_experts_are_a_group_of_their_own(problem: Build) -> None:
    model = TransformerSpec(layers=2, hidden=64, ffn=128, heads=8, vocab=500, experts=4, top_k=2, moe_ffn=32)
    instance = build_instance(problem(model), registry())
    for degrees, share in (({"etp": 2, "ep": 1}, 2), ({"etp": 2, "ep": 2}, 4), ({"etp": 1, "ep": 4}, 4)):
        state = chosen(instance, tp=2, sp=2, cp=1, **degrees).state
        assert [group.name for group in state] == ["dense", "expert"]
        assert state[1].weights.tolist() == [0, *[2 * 4 * 3 * 64 * 32 / share] * 2, 0]


def test_more_samples_take_more_of_everything_but_state(problem: Build) -> None:
    """Tiles and waves apart, which some sizes fill better than others."""
    device = evolve(unhurried("a100-sxm-80g"), multiprocessors=None)
    instance = build_instance(problem(cluster={"device": device}), registry())
    pairs = [
        (one, two)
        for one in instance.candidates
        for two in instance.candidates
        if (one.samples, two.samples) == (1, 2) and one.degrees == two.degrees
    ]
    assert len(pairs) == len(instance.candidates) / 2
    for one, two in pairs:
        assert (two.forward > one.forward).all()
        assert (two.forward <= 2 * one.forward + 1e-12).all()
        assert (two.tensor_bytes == 2 * one.tensor_bytes).all()
        for a, b in zip(one.recompute, two.recompute, strict=True):
            assert (b.first == 2 * a.first).all()
        assert numpy.array_equal(one.state[0].weights, two.state[0].weights)


def test_a_host_that_is_slower_than_the_device_sets_the_pace(problem: Build) -> None:
    free = build_instance(problem(cluster={"device": unhurried("a100-sxm-80g")}), registry())
    for one, same in zip(build_instance(problem(), registry()).candidates, free.candidates, strict=True):
        assert (one.forward >= same.forward).all()
        assert (one.forward > same.forward).any()


def test_recomputation_trades_time_for_memory(problem: Build) -> None:
    for attention in ("flash", "unfused"):
        for each in build_instance(problem(training={"attention": attention}), registry()).candidates:
            none, selective, full, stage = each.recompute
            assert (none.first >= selective.first).all()
            assert (selective.first >= full.first).all()
            assert (none.extra <= selective.extra).all()
            assert (selective.extra <= full.extra).all()
            assert (full.extra <= each.forward).all()
            # A layer alone never needs more than keeping everything does.
            assert (full.first + full.peak <= none.first + none.peak + 1e-6).all()
            assert (stage.extra == each.forward).all()
            assert (stage.first == none.first).all()
            assert (stage.more <= full.more).all()


def test_a_model_needs_a_device(problem: Build) -> None:
    with pytest.raises(InputError, match=r"cluster.device is missing"):
        build_instance(problem(cluster={"device": None, "memory": 80e9}), registry())


def test_a_precision_the_device_lacks_is_told(problem: Build) -> None:
    with pytest.raises(InputError, match=r"training.precision is fp16.*tpu-v5p"):
        build_instance(problem(training={"precision": "fp16"}, cluster={"device": "tpu-v5p"}), registry())


def test_the_same_problem_gives_the_same_numbers(problem: Build) -> None:
    first, second = (build_instance(problem(), registry(extra=[])) for _ in range(2))
    for a, b in zip(first.candidates, second.candidates, strict=True):
        assert a.name == b.name
        assert [array.tobytes() for _, array in a.arrays()] == [array.tobytes() for _, array in b.arrays()]
