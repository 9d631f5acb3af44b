"""Slips that cost a factor are told, with what is likely meant; figures that people mean are not."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import nest
from nest import api
from nest.catalogue import links
from nest.formulate.problem import whole_problem
from nest.formulate.slips import EVEN, slips, slips_of_plan, uneven_sequence
from nest.graph import KINDS
from nest.hooks.registry import registry
from nest.io import read_mapping, structure
from nest.spec import PlanDocument, Problem
from tests.docs.document import REPOSITORY

SMALL = {"transformer": {"layers": 2, "hidden": 512, "ffn": 1024, "heads": 8, "vocab": 1000}}
BASE: dict[str, Any] = {
    "nest": 1,
    "model": SMALL,
    "training": {"global_batch": 8, "sequence_length": 1024, "graphs": "iteration"},
    "cluster": {
        "device": "h100-sxm",
        "levels": [{"fanout": 8, "link": "nvlink4"}, {"fanout": 2, "link": "infiniband-ndr"}],
    },
}


def changed(**sections: Any) -> dict[str, Any]:
    """The problem with keys of its sections in place of its own."""
    problem = deepcopy(BASE)
    for name, value in sections.items():
        problem[name] = {**problem[name], **value} if isinstance(value, dict) and name != "model" else value
    return problem


def outer(**level: Any) -> dict[str, Any]:
    return changed(cluster={"levels": [BASE["cluster"]["levels"][0], {"fanout": 2, **level}]})


def inner(**level: Any) -> dict[str, Any]:
    return changed(cluster={"levels": [{"fanout": 8, **level}]})


def told(written: dict[str, Any]) -> list[str]:
    return [*slips(whole_problem(written, registry())[0], registry())]


def one(written: dict[str, Any]) -> str:
    """The only sentence on a problem."""
    sentences = told(written)
    assert len(sentences) == 1, sentences
    return sentences[0]


def test_the_problem_itself_has_no_slip() -> None:
    assert told(BASE) == []


# Bandwidths.


def test_bits_written_for_bytes_are_told_with_both_figures_and_both_meanings() -> None:
    assert one(outer(link="infiniband-ndr", bandwidth="400 GB/s")) == (
        "cluster.levels[1].bandwidth: 400 GB/s is 8 times the 50 GB/s of infiniband-ndr per device and direction; "
        "did you mean 400 Gbit/s, or 50 GB/s for each of 8 devices?"
    )


def test_bytes_written_for_bits_are_told() -> None:
    assert one(outer(link="infiniband-ndr", bandwidth="50 Gbit/s")) == (
        "cluster.levels[1].bandwidth: 6.25 GB/s is 1/8 of the 50 GB/s of infiniband-ndr per device and direction; "
        "did you mean 50 GB/s?"
    )


def test_both_directions_inside_a_machine_are_told_with_and_without_a_link() -> None:
    for level in ({"link": "nvlink4"}, {"link": "nvlink"}, {}):
        assert one(inner(**level, bandwidth="900 GB/s")) == (
            "cluster.levels[0].bandwidth: 900 GB/s is 2 times the 450 GB/s of nvlink4 per device and direction; "
            "did you mean 450 GB/s in each direction?"
        )


def test_a_family_of_links_is_compared_with_the_member_that_is_usual_for_the_device() -> None:
    assert "8 times the 50 GB/s of infiniband-ndr" in one(outer(link="infiniband", bandwidth="400 GB/s"))
    assert told(outer(link="infiniband", bandwidth="25 GB/s")) == []


@pytest.mark.parametrize("factor", [0.25, 0.5, 1, 2, 4])
def test_several_links_a_device_and_oversubscription_are_not_told(factor: float) -> None:
    assert told(outer(link="infiniband-ndr", bandwidth=factor * 50e9)) == []


def test_links_of_pools_and_between_them_are_looked_at() -> None:
    ndr = {"link": "infiniband-ndr", "bandwidth": "400 GB/s"}
    pools = [
        {"name": name, "device": device, "levels": [{"fanout": 8, "link": link}, {"fanout": 2, **ndr}]}
        for name, device, link in (("new", "h100-sxm", "nvlink4"), ("old", "a100-sxm-80g", "nvlink3"))
    ]
    problem = {**BASE, "cluster": {"pools": pools, "between": [{"pools": ["new", "old"], **ndr}]}}
    places = [each.split(": ")[0] for each in told(problem)]
    assert places == [
        f"cluster.{place}.bandwidth" for place in ("pools[0].levels[1]", "pools[1].levels[1]", "between[0]")
    ]


# Latencies, memories, figures of devices.


@pytest.mark.parametrize(
    ("level", "end"),
    [
        (
            {"link": "infiniband-ndr", "latency": "6 ms"},
            "6 ms is 882 times the 6.80 us of infiniband-ndr; did you mean 6 us?",
        ),
        ({"bandwidth": "50 GB/s", "latency": "10 ms"}, "times the 6.80 us of infiniband; did you mean 10 us?"),
        (
            {"link": "infiniband-ndr", "latency": "3 ns"},
            "is 1/2.27e+03 of the 6.80 us of infiniband-ndr; did you mean 3 us?",
        ),
    ],
)
def test_latencies_in_another_unit_are_told(level: dict[str, Any], end: str) -> None:
    sentence = one(outer(**level))
    assert sentence.startswith("cluster.levels[1].latency: ")
    assert sentence.endswith(end)


@pytest.mark.parametrize("latency", ["0 us", "0.5 us", "30 us", "500 us"])
def test_latencies_of_real_networks_are_not_told(latency: str) -> None:
    assert told(outer(link="infiniband-ndr", latency=latency)) == []


@pytest.mark.parametrize(
    ("memory", "hint"),
    [
        ("80 MB", "did you mean 80 GB?"),
        ("80 TB", "did you mean 80 GB?"),
        ("640 GB", "did you mean 80 GB for each of 8 devices?"),
        ("300 GB", "give the memory of one device."),
    ],
)
def test_memory_far_from_the_device_s_is_told(memory: str, hint: str) -> None:
    sentence = one(changed(cluster={"memory": memory}))
    assert sentence.startswith(f"cluster.memory: {memory} is ")
    assert "the 85.52 GB of h100-sxm" in sentence
    assert sentence.endswith(hint)


@pytest.mark.parametrize("memory", ["10 GB", "40 GB", "80 GiB", "96 GB", "141 GB"])
def test_memory_of_a_slice_or_of_a_sibling_is_not_told(memory: str) -> None:
    assert told(changed(cluster={"memory": memory})) == []


OWN = {
    "name": "own",
    "memory": "80 GB",
    "memory_bandwidth": "3 TB/s",
    "peak": {"bf16": "800 TFLOP/s"},
    "host_bandwidth": "60 GB/s",
}


@pytest.mark.parametrize(
    ("figures", "place", "hint"),
    [
        ({"peak": {"bf16": "800 PFLOP/s"}}, "peak.bf16", "did you mean 800 TFLOP/s?"),
        ({"peak": {"bf16": "800 GFLOP/s"}}, "peak.bf16", "did you mean 800 TFLOP/s?"),
        ({"memory_bandwidth": "3 GB/s"}, "memory_bandwidth", "did you mean 3 TB/s?"),
        ({"memory": "80 TB"}, "memory", "did you mean 80 GB?"),
        ({"host_bandwidth": "60 TB/s"}, "host_bandwidth", "did you mean 60 GB/s?"),
    ],
)
def test_figures_of_a_device_in_another_unit_are_told(figures: dict[str, Any], place: str, hint: str) -> None:
    assert told(changed(cluster={"device": OWN})) == []
    sentence = one(changed(cluster={"device": {**OWN, **figures}}))
    assert sentence.startswith(f"cluster.device.{place}: ")
    assert sentence.endswith(hint)


# Lengths and tokens.


def test_the_tokens_of_a_batch_given_as_those_of_a_sample_are_told() -> None:
    long = changed(model="llama-3-8b", training={"sequence_length": 4 * 2**20})
    assert one(long) == (
        "training.sequence_length: 4,194,304 tokens are 512 times the model's context of 8,192; "
        "give the tokens of one sample."
    )
    assert told(changed(model="llama-3-8b", training={"sequence_length": 131072})) == []


def test_a_training_of_fewer_tokens_than_a_step_is_told() -> None:
    assert one(changed(training={"tokens": 15})) == (
        "training.tokens: 15 tokens are less than one step (8,192); give the whole training, such as 15T."
    )
    assert told(changed(training={"tokens": 8192})) == []


def problem(length: int, **sections: Any) -> dict[str, Any]:
    levels = [{"fanout": 4, "link": "nvlink4"}]
    return {**changed(training={"sequence_length": length}, cluster={"levels": levels}), **sections}


def of_length(written: dict[str, Any]) -> list[str]:
    return [*uneven_sequence(whole_problem(written, registry())[0], registry())]


def test_degrees_that_do_not_divide_the_sequence_are_told_with_the_length_that_they_divide() -> None:
    (sentence,) = of_length(problem(1023))
    assert sentence.startswith("training.sequence_length: 1023 tokens do not divide evenly, which rules out ")
    assert "sp 2, 4" in sentence
    assert "cp 2, 4" in sentence
    assert sentence.endswith("; 1024 would not.")


@pytest.mark.parametrize("length", [EVEN, 8 * EVEN, 1000])
def test_nothing_is_told_where_nothing_is_ruled_out(length: int) -> None:
    assert of_length(problem(length)) == []


def test_nothing_is_told_of_degrees_that_are_not_allowed() -> None:
    assert of_length(problem(1023, strategies={"cp": [1], "sp": False})) == []
    assert of_length(problem(1023, strategies={"tp": [3]})) == []  # What is wrong the search says.


@pytest.mark.parametrize(
    ("bandwidths", "start"),
    [
        ((450e9, 50e9), None),
        ((50e9, 50e9), None),
        ((45.5e9, 50e9), None),
        ((50e9, 450e9), "cluster.levels: level 1, 450 GB/s, is faster than level 0, 50 GB/s, inside it; "),
    ],
)
def test_levels_written_from_the_outside_in_are_told(bandwidths: tuple[float, ...], start: str | None) -> None:
    sentences = told(changed(cluster={"levels": [{"fanout": 2, "bandwidth": each} for each in bandwidths]}))
    assert [each.startswith(start or "") for each in sentences] == ([] if start is None else [True])


# Operators.

TENSOR = {"shape": [["batch", 1], ["sequence", 1024], ["hidden", 64]], "itemsize": 2}
SPACE = [["batch", 1], ["sequence", 1024], ["hidden", 64]]


def graph(kind: str, **further: Any) -> dict[str, Any]:
    operator = {
        "name": "a/op",
        "layer": "a",
        "kind": kind,
        "space": SPACE,
        "flops_per_point": 2,
        "inputs": [{**TENSOR, "name": "x", "differentiable": False}],
        "outputs": [{**TENSOR, "name": "y"}],
        **further,
    }
    return {"layers": ["a"], "blocks": ["a"], "operators": [operator]}


@pytest.mark.parametrize(
    ("kind", "further", "nearest"),
    [("convolution", {"contracted": ["hidden"]}, "matmul"), ("layernorm", {}, "norm"), ("rotate", {}, "elementwise")],
)
def test_operators_of_an_unknown_kind_are_told(kind: str, further: dict[str, Any], nearest: str) -> None:
    assert one(changed(model=graph(kind, **further))) == (
        f"model: unknown operator kind '{kind}' (a/op), priced at the device's peak; the nearest kind is {nearest}."
    )


def test_known_kinds_and_those_of_which_the_device_says_something_are_not_told() -> None:
    for kind in set(KINDS) - {"collective"}:
        assert told(changed(model=graph(kind))) == []
    device = {**OWN, "efficiency": {"convolution": 0.5}}
    assert told(changed(model=graph("convolution"), cluster={"device": device})) == []


# Plans.


def of_plan(written: dict[str, Any]) -> list[str]:
    sentences: list[str] = []
    plan = api.solve(written, message=sentences.append)
    shown = [*slips_of_plan(plan, structure(plan.problem, Problem))]
    assert [each for each in sentences if each in shown] == shown  # People are told.
    return shown


def test_a_batch_given_in_tokens_is_told_before_the_search() -> None:
    sentence = one(changed(model="llama-3-8b", training={"global_batch": 4 * 2**20, "sequence_length": 8192}))
    assert sentence.startswith("training.global_batch: a step of 4,194,304 samples takes at least ")
    assert sentence.endswith("; if 4,194,304 is in tokens, write 512.")
    assert told(changed(model="llama-3-8b", training={"global_batch": 512, "sequence_length": 8192})) == []


@pytest.mark.longer
@pytest.mark.parametrize(
    ("batch", "utilisation", "end"),
    [
        (8, 0.5, "takes 3 h; check the batch and the number of devices."),
        (2048, 0.2, "takes 3 h; if 2,048 is in tokens, write 2."),
        (2048, 0.5, None),  # Told before the search.
    ],
)
def test_a_step_of_hours_is_told(batch: int, utilisation: float, end: str | None) -> None:
    plan = nest.solve(changed(training={"global_batch": 16})).to_dict()
    summary = {**plan["summary"], "model_flops_utilisation": utilisation}
    slow = structure({**plan, "batch_time": 10800.0, "summary": summary}, PlanDocument)
    asked = structure({**plan["problem"], "training": {**plan["problem"]["training"], "global_batch": batch}}, Problem)
    sentences = [each for each in slips_of_plan(slow, asked) if "a step of" in each]
    assert [each.endswith(end or "") for each in sentences] == ([] if end is None else [True])


def idle(batch: int, **sections: Any) -> list[str]:
    """Of a model that fits on one device, on 16 of which each is best a replica."""
    return of_plan({**changed(training={"global_batch": batch}), "strategies": {"tp": [1], "cp": [1]}, **sections})


@pytest.mark.parametrize("more", [{}, {"uneven_batch": True}])
def test_devices_that_another_number_of_replicas_would_use_are_idle_for_another_reason(more: dict[str, Any]) -> None:
    plan = nest.solve(changed(training={"global_batch": 16, **more})).to_dict()
    few = {**plan, "data_parallel": 1, "micro_batches": 16}
    few["summary"] = {**plan["summary"], "devices": 16, "devices_used": 1}
    assert [*slips_of_plan(structure(few, PlanDocument), structure(plan["problem"], Problem))] == []


def test_padding_is_told() -> None:
    uneven = changed(training={"global_batch": 17, "uneven_batch": True})
    sentences: list[str] = []
    api.evaluate({**uneven, "fixed": {"tp": 1, "pp": 1, "micro_batch": 1}}, message=sentences.append)
    assert sentences[1:] == [
        "training.global_batch: 17 samples fill 53.1 % of their micro-batches; 16 or 32 would fill all."
    ]


@pytest.mark.longer
@pytest.mark.parametrize("decided", ["dp", "replicas"])
def test_nothing_is_told_of_replicas_that_somebody_decides(decided: str) -> None:
    assert idle(14, fixed={decided: 7}) == []


# Nothing of what nest ships.


def shipped() -> Iterator[Path]:
    yield from sorted((REPOSITORY / "examples").glob("*/problem.yaml"))
    yield from sorted((REPOSITORY / "examples").glob("*.yaml"))
    yield from sorted((REPOSITORY / "docs").rglob("*.yaml"))


@pytest.mark.parametrize("path", [*shipped()], ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_no_example_has_a_slip(path: Path) -> None:
    if "cluster" in (content := read_mapping(path).mapping) and "training" in content:
        assert told_of(path) == []


def told_of(path: Path) -> list[str]:
    return [*slips(whole_problem(path, registry())[0], registry())]


def test_the_links_compared_with_are_in_the_catalogue() -> None:
    from nest.formulate.slips import USUAL_LINKS

    assert set(USUAL_LINKS) <= set(links())
