"""Fits of devices: coefficients that were put in come out, priors hold where nothing was measured."""

from collections.abc import Mapping
from functools import cache

import numpy
import pytest
from attrs import evolve

from calibrate_tests.synthetic import DATA, EXPERTS, MULTI_HEAD, TENSOR, problem, read
from nest.catalogue import published_devices
from nest.formulate.cost_breakdown import breakdown
from nest.hooks.registry import registry
from nest.spec import Coefficients, DeviceSpec
from nest_calibrate.devices import (
    COMMON,
    Array,
    Evidence,
    Mask,
    calibration,
    cross_validated,
    fit,
    predicted,
    unknowns,
    weights,
)
from nest_calibrate.runs import Runs

DEVICE = published_devices()["h100-sxm"]
TRUE = {
    "matmul": 0.72,
    "attention": 0.4,
    "memory": 0.85,
    "matmul.fp8": 0.6,
    "contracted_half": 300.0,
    "rows_half": 80.0,
    "grouped": 0.6,
    "attention_backward": 0.6,
    "head_half": 20.0,
    "sequence_half": 300.0,
    "shared_keys": 0.2,
    "cast": 3.0,
    "host_launch": 2e-5,
    "tensor_exposed": 0.4,
    "experts_exposed": 0.3,
    "dispatch_exposed": 0.3,
    "ring_exposed": 0.3,
    "data_exposed": 0.2,
    "gathers_exposed": 0.15,
    "synchronisation": 2.0,
    "sharded_synchronisation": 1.5,
}
WIDE = {"layers": 2, "hidden": 8192, "ffn": 28672, "heads": 64, "kv_heads": 8, "vocab": 32000}
PLANS = [
    problem(model, tp=tp, pp=pp, dp=32 // tp // pp, zero=zero, sequence=sequence, training=training, recompute=mode)
    for model, tp, pp, zero, sequence, training, mode in (
        (MULTI_HEAD, 1, 1, 0, 2048, {}, "none"),
        (MULTI_HEAD, 1, 4, 1, 512, {}, "full"),
        (MULTI_HEAD, 8, 1, 1, 128, TENSOR, "none"),
        (None, 8, 1, 1, 8192, TENSOR, "none"),
        (None, 1, 1, 1, 2048, DATA, "full"),
        (None, 2, 2, 1, 16384, DATA, "none"),
        (None, 1, 1, 1, 2048, {"precision": "fp8"}, "none"),
        (None, 4, 1, 1, 256, {"precision": "fp8"}, "none"),
        (None, 1, 2, 1, 256, {}, "none"),
        (None, 4, 1, 0, 1024, {}, "full"),
        (WIDE, 8, 1, 0, 4096, {}, "none"),
        (MULTI_HEAD, 1, 1, 1, 2048, {}, "none"),
        (EXPERTS, 1, 1, 1, 1024, {}, "none"),
    )
    for model in (model or problem()["model"]["transformer"],)
]
FAMILIES = tuple(f"family {index}" for index in range(len(PLANS)))


@cache
def evidence() -> Evidence:
    """The plans on a device with `TRUE` coefficients."""
    known = registry()
    runs = Runs([breakdown(read(each), known) for each in PLANS], known.cost_models()["roofline"])
    found = Evidence({DEVICE.name: DEVICE}, unknowns([DEVICE], {"bf16", "fp8"}), runs.predict, numpy.zeros(0), FAMILIES)
    return evolve(found, seconds=predicted(found, TRUE))


def everything() -> Mask:
    return numpy.ones(len(PLANS), dtype=numpy.bool_)


def fitted(seen: Evidence) -> dict[str, float]:
    """The unknowns of one generation, fitted to all that was measured."""
    (found,) = fit([seen], [numpy.ones(len(seen.families), dtype=bool)])
    return found


def test_the_unknowns_are_shares_and_coefficients_of_the_generation() -> None:
    assert {each.name for each in evidence().unknowns} == set(TRUE)


@pytest.mark.longer
def test_plans_on_a_device_tell_its_coefficients() -> None:
    """Seen so often that what was expected no longer counts, predictions come back, and what they bring out."""
    often = 100
    repeated = evolve(
        evidence(),
        predict=lambda on: numpy.tile(evidence().predict(on), often),
        seconds=numpy.tile(evidence().seconds, often),
        families=tuple(f"{family} {time}" for time in range(often) for family in FAMILIES),
    )
    found = fitted(repeated)
    assert predicted(evidence(), found) == pytest.approx(evidence().seconds, rel=0.01)
    told = ("matmul", "host_launch", "synchronisation", "sharded_synchronisation", "tensor_exposed")
    assert {name: found[name] for name in told} == pytest.approx({name: TRUE[name] for name in told}, rel=0.1)


@pytest.mark.longer
def test_a_few_wrong_measurements_hardly_move_the_others() -> None:
    seen = evidence().seconds
    thrice = evolve(
        evidence(),
        predict=lambda on: numpy.tile(evidence().predict(on), 3),
        seconds=numpy.concatenate([seen, seen, seen * 3 ** (numpy.arange(len(PLANS)) % 4 == 0)]),
        families=FAMILIES * 3,
    )
    found = fitted(thrice)
    assert predicted(evidence(), found) == pytest.approx(seen, rel=0.1)


@pytest.mark.longer
def test_what_nothing_tells_of_stays_as_expected() -> None:
    """Dense runs in one format, on one device, one after the other, say nothing of the rest."""
    chosen = everything()
    chosen[2:] = False
    (found,) = fit([evidence()], [chosen])
    silent = {
        "grouped",
        "cast",
        "matmul.fp8",
        "tensor_exposed",
        "data_exposed",
        "gathers_exposed",
        "ring_exposed",
        "shared_keys",
    }
    expected = {each.name: each.range.prior for each in evidence().unknowns}
    assert {name: found[name] for name in silent} == pytest.approx({name: expected[name] for name in silent}, rel=5e-3)


@pytest.mark.longer
@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_measurements_beyond_reason_end_at_the_bounds(factor: float) -> None:
    """Neither rounding to three digits nor the way through logarithms may leave a range."""
    found = fitted(evolve(evidence(), seconds=evidence().seconds * factor))
    for each in evidence().unknowns:
        assert each.range.low <= found[each.name] <= each.range.high
    Coefficients(**{name: value for name, value in found.items() if name in Coefficients.__annotations__})


def formulas(seconds: list[float], families: str) -> Evidence:
    """Measurements that tell of a few coefficients, by formulas of one line."""

    def predict(on: Mapping[str, DeviceSpec]) -> Array:
        terms = on[DEVICE.name].calibration
        once = terms.synchronisation + 0.2 / terms.cast
        return numpy.array([terms.host_launch, terms.sequence_half, once, once * terms.cast, terms.cast + 1])

    return Evidence({DEVICE.name: DEVICE}, unknowns([DEVICE], {"bf16"}), predict, numpy.array(seconds), tuple(families))


def test_every_end_of_every_range_is_a_device() -> None:
    """What rounding to three digits and the way through logarithms leave of a bound is still allowed."""
    found = fitted(formulas([1e3, 1e9, 1.0, 1.0, 3.0], "abcde"))
    assert (found["host_launch"], found["sequence_half"]) == (1e-4, 2048.0)


def test_no_fold_sees_the_measurements_it_is_judged_by() -> None:
    """Poison: whatever is measured of a family, what is predicted of it in validation stays the same to the bit."""
    (clean,) = cross_validated([formulas([2e-5, 300.0, 1.5, 4.0, 2.5], "abbca")], 3)
    (poisoned,) = cross_validated([formulas([2e-5, 3000.0, 0.1, 4.0, 2.5], "abbca")], 3)
    assert poisoned[[1, 2]].tolist() == clean[[1, 2]].tolist()
    assert (poisoned[[0, 3, 4]] != clean[[0, 3, 4]]).any()


def test_a_single_family_is_judged_by_what_is_expected() -> None:
    alone = evolve(evidence(), families=("only",) * len(PLANS))
    expected = predicted(alone, {each.name: each.range.prior for each in alone.unknowns})
    (found,) = cross_validated([alone], 8)
    assert found.tolist() == pytest.approx(expected.tolist(), rel=1e-12)


def shared(factor: float, families: str) -> Evidence:
    """Four measurements on a device of another generation, `factor` times what is expected of common coefficients."""

    def predict(on: Mapping[str, DeviceSpec]) -> Array:
        terms = on[DEVICE.name].calibration
        common = terms.sharded_synchronisation
        return numpy.array([common, common * terms.synchronisation, terms.synchronisation, terms.cast])

    found = Evidence(
        {DEVICE.name: DEVICE},
        unknowns([DEVICE], {"bf16"}),
        predict,
        numpy.array([1.2, 1.56, 1.3, 2.0]),
        tuple(families),
    )
    return evolve(found, seconds=found.seconds * [factor, factor, 1.0, 1.0])


def test_generations_share_common_coefficients_and_nothing_else() -> None:
    """One that tells of a common coefficient speaks for one that does not; the rest each has to tell by itself."""
    told, silent = shared(2.0, "abcd"), shared(1.0, "abcd")
    silent = evolve(silent, seconds=silent.seconds * [1.0, 1.0, 0.5, 2.0])
    everywhere, last = numpy.ones(4, dtype=bool), numpy.array([False, False, True, True])
    one, other = fit([told, silent], [everywhere, last])
    assert one["sharded_synchronisation"] == other["sharded_synchronisation"] == pytest.approx(2.4, rel=0.1)
    assert {each: one[each] for each in COMMON} == {each: other[each] for each in COMMON}
    assert one["synchronisation"] == pytest.approx(1.3, rel=0.1)
    assert other["synchronisation"] == pytest.approx(0.65, rel=0.1)
    (alone,) = fit([told], [everywhere])
    assert {**alone, "sharded_synchronisation": 0} == pytest.approx({**one, "sharded_synchronisation": 0}, rel=0.01)


def test_a_fold_is_held_out_of_all_generations_at_once() -> None:
    """Poison: a source measured on two generations tells nothing of itself through what these share."""
    clean = cross_validated([shared(1.0, "aabb"), shared(1.0, "aabb")], 2)
    poisoned = cross_validated([shared(3.0, "aabb"), shared(3.0, "aabb")], 2)
    for one, other in zip(clean, poisoned, strict=True):
        assert one[:2].tolist() == other[:2].tolist()


def test_a_generation_without_measurements_has_what_the_others_tell() -> None:
    silent = shared(1.0, "abcd")
    one, other = fit([shared(2.0, "abcd"), silent], [numpy.ones(4, dtype=bool), numpy.zeros(4, dtype=bool)])
    assert other["sharded_synchronisation"] == pytest.approx(one["sharded_synchronisation"], rel=0.01)
    assert other["synchronisation"] == pytest.approx(1.3, rel=1e-12)


def test_a_family_counts_as_the_root_of_its_size() -> None:
    found = weights(["a"] * 16 + ["b"])
    assert (found[:16] ** 2).sum() == pytest.approx(4 * found[16] ** 2)
    assert (found**2).sum() == pytest.approx(17)
    assert weights(["a", "b"]).tolist() == [1, 1]


def test_devices_of_a_generation_differ_by_what_they_sustain_only() -> None:
    both = [DEVICE, published_devices()["h200-sxm"]]
    names = {each.name for each in unknowns(both, {"bf16"})}
    assert "sustained.h200-sxm" in names
    assert "sustained.h100-sxm" not in names
    found = calibration("hopper", {**TRUE, "sustained.h200-sxm": 0.9})
    first, second = (found.on(each) for each in both)
    assert second.calibration == evolve(first.calibration, sustained=0.9)
    assert first.efficiency.items() >= {"matmul": 0.72, "matmul.fp8": 0.6}.items()
