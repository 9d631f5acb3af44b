"""Layers as schedules: on hand-made layers with known optimum, on real models, and from problem to plan."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nest
import nest.costs
from nest.catalogue import devices, optimizer, precision
from nest.errors import InputError
from nest.formulate import operator_costs as tasks
from nest.formulate.candidate_costs import candidate
from nest.formulate.instance import build_instance
from nest.formulate.layer_classes import layer_classes
from nest.formulate.pricing import Pricing
from nest.graph import Block, Collective, Communication, Operator, OperatorGraph, Tensor
from nest.hooks.protocols import LayerTimes, OperatorCost
from nest.hooks.registry import registry
from nest.instance import Candidate, Cluster, Instance, Level
from nest.spec import ClusterSpec, DeviceSpec, LevelSpec, MatrixPeaks, Overlap, Problem, Training, TransformerSpec
from nest.spec.device import ENGINES
from nest_cpsat import makespan as solver
from tests.bare_devices import unhurried

GPU = ("matrix", "communication")
MODELS: dict[str, Any] = {
    "dense": TransformerSpec(layers=4, hidden=64, ffn=128, heads=8, kv_heads=4, vocab=500),
    "experts": TransformerSpec(
        layers=3, hidden=64, ffn=128, heads=8, vocab=500, experts=4, top_k=2, moe_ffn=32, shared_expert_ffn=64
    ),
}
SECONDS = {"long": 7.0, "short": 3.0, "first": 2.0, "add": 1.0}


class ByName:
    """Prices an operator by its name; backward as forward."""

    name = "by-name"

    def price(self, operator: Operator, device: DeviceSpec, training: Training) -> OperatorCost:
        seconds = SECONDS[operator.name.split("/")[1]]
        return OperatorCost(seconds, seconds)


class OneASecond:
    """Prices a collective by its bytes."""

    name = "one-a-second"

    def time(self, kind: str, bytes: float, shape: Any, levels: Any, members: int) -> float:  # noqa: A002
        return bytes


def tensor(name: str) -> Tensor:
    return Tensor(name, (("hidden", 4),), itemsize=1.0)


def operator(name: str, kind: str, reads: tuple[str, ...], writes: tuple[str, ...], **more: Any) -> Operator:
    return Operator(
        f"l/{name}", "l", kind, inputs=tuple(map(tensor, reads)), outputs=tuple(map(tensor, writes)), **more
    )


def all_reduce(forward: float = 0.0, backward: float = 0.0) -> Collective:
    def calls(size: float) -> tuple[Communication, ...]:
        return (Communication("all_reduce", size, "tp"),) if size else ()

    return Collective(calls(forward), calls(backward))


def branches(*extra: Operator) -> tuple[Operator, ...]:
    """A product, then two branches of a product and an all-reduce of 6 seconds each, and their sum."""
    return (
        operator("first", "matmul", ("x",), ("a",)),
        operator("short", "matmul", ("a",), ("p",)),
        operator("sum of short", "collective", ("p",), ("q",), collective=all_reduce(6.0)),
        operator("long", "matmul", ("a",), ("r",)),
        operator("sum of long", "collective", ("r",), ("s",), collective=all_reduce(6.0)),
        operator("add", "elementwise", ("q", "s"), ("y",)),
        *extra,
    )


def layer(
    operators: tuple[Operator, ...], engines: tuple[str, ...], name: str = "scheduled", overlap: bool = False
) -> Candidate:
    graph = OperatorGraph(operators, ("l",))
    device = DeviceSpec("toy", memory=1e9, memory_bandwidth=1.0, peak=MatrixPeaks(bf16=1.0), engines=engines)  # type: ignore[arg-type]
    pricing = Pricing(
        Cluster((Level("node", 4, 1e3, 0.0),), memory=1e9),
        device,
        Training(1, overlap=Overlap(tensor=overlap)),
        precision("bf16"),
        optimizer("adam"),
        ByName(),
        OneASecond(),
        registry().layer_times()[name],
    )
    layers = layer_classes(graph)
    block = Block(layers.graph, 1).with_axis("tp", 2).applied("tp", 2, layers.graph)
    return candidate("c", block, layers, pricing)


def test_a_layer_on_two_engines_takes_its_known_optimum() -> None:
    """The short branch first: its all-reduce hides under the long product, 2 + 3 + 7 + 6 + 1."""
    assert layer(branches(), GPU).forward.tolist() == [19.0]
    assert layer(branches(), ("matrix",)).forward.tolist() == [25.0]
    assert layer(branches(), GPU, "sequential").forward.tolist() == [25.0]


def test_element_by_element_work_runs_beside_products() -> None:
    """`short` and `long` are products; `add` reads neither."""
    beside = operator("add", "norm", ("a",), ("z",))
    row = (branches()[0], branches()[1], branches()[3], beside)
    assert layer(row, ENGINES).forward.tolist() == [12.0]
    assert layer(row, GPU).forward.tolist() == [13.0]


def test_backward_dependencies_are_reversed() -> None:
    """Backward the collective of a branch comes before its product: the shorter wait of both runs first."""
    turned = (
        operator("first", "matmul", ("x",), ("a",)),
        operator("short", "matmul", ("a",), ("p",)),
        operator("sum of short", "collective", ("p",), ("q",), collective=all_reduce(backward=6.0)),
        operator("add", "elementwise", ("a",), ("r",)),
        operator("long", "matmul", ("q", "r"), ("y",)),
    )
    # long 7, then the all-reduce of 6 hides `add` of 1, then short 3, first 2.
    assert layer(turned, GPU).backward.tolist() == [18.0]
    assert layer(turned, GPU).forward.tolist() == [13.0]


def test_gradients_are_summed_after_they_are_made() -> None:
    """What tensor parallelism puts in front of split operators waits for all of them in the backward pass."""
    row = (
        operator("first", "matmul", ("x",), ("a",)),
        operator("gradient of a", "collective", ("a",), (), collective=all_reduce(backward=5.0)),
        operator("short", "matmul", ("a",), ("p",)),
        operator("long", "matmul", ("a",), ("r",)),
    )
    assert layer(row, GPU).backward.tolist() == [3.0 + 7.0 + 5.0 + 2.0]
    assert tasks.precedence(row) == ((0, 1), (1, 2), (1, 3))


def test_with_overlap_collectives_hold_nothing_up() -> None:
    """The longer of both: computation 13, communication 12; the same with `sequential`, and with one engine."""
    for engines in (GPU, ("matrix",)):
        for name in ("scheduled", "sequential"):
            assert layer(branches(), engines, name, overlap=True).forward.tolist() == [13.0]


def built(model: str, engines: tuple[str, ...], name: str | None = None, **training: Any) -> Instance:
    levels = (LevelSpec(8, 300e9, 1e-6), LevelSpec(2, 25e9, 5e-6))  # type: ignore[arg-type]
    return build_instance(
        Problem(
            nest=1,
            model=MODELS[model],
            training=Training(16, 128, micro_batch=(1, 2), **training),
            cluster=ClusterSpec(levels, device=unhurried("a100-sxm-80g"), engines=engines),
            layer_times=name,
        ),
        registry(),
    )


@pytest.mark.longer
@pytest.mark.parametrize(
    ("engines", "overlap"),
    [
        (ENGINES, False),
        (GPU, True),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((GPU, False), (ENGINES, True))),
    ],
)
@pytest.mark.parametrize("model", MODELS)
def test_never_above_sequential(model: str, engines: tuple[str, ...], overlap: bool) -> None:
    training = {"overlap": Overlap(tensor=overlap)}
    found, summed = (built(model, engines, name, **training).candidates for name in ("scheduled", "sequential"))
    for fast, slow in zip(found, summed, strict=True):
        for (place, a), (_, b) in zip(fast.arrays(), slow.arrays(), strict=True):
            assert (a <= b * (1 + 1e-12)).all(), place  # sums in another order
    # The shared expert runs while what the routed ones made is summed.
    hidden = any((a.forward < b.forward * (1 - 1e-6)).any() for a, b in zip(found, summed, strict=True))
    assert hidden or model == "dense" or overlap


def test_equal_layers_are_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    original = solver.makespan

    def counted(*problem: Any) -> Any:
        asked.append(problem)
        return original(*problem)

    monkeypatch.setattr(solver, "makespan", counted)
    nest.costs._least.cache_clear()
    model: LayerTimes = registry().layer_times()["scheduled"]
    problem = ([1.0, 2.0], ["matrix", "vector"], [])
    assert {model.seconds(*problem) for _ in range(1000)} == {2.0}
    assert len(asked) == 1
    model.seconds([1.0, 2.0], ["matrix", "vector"], [(0, 1)])
    assert len(asked) == 2


@given(st.lists(st.floats(0, 1), max_size=9))
def test_sequential_is_the_sum_in_any_order(durations: list[float]) -> None:
    model = registry().layer_times()["sequential"]
    none = ["matrix"] * len(durations)
    assert model.seconds(durations, none, []) == model.seconds(durations[::-1], none, [])
    assert model.seconds(durations, none, []) == pytest.approx(sum(durations), rel=1e-12)


def problem(**more: Any) -> dict[str, Any]:
    cluster: dict[str, Any] = {"device": "a100-sxm-80g", "levels": [{"fanout": 8, "bandwidth": "30 GB/s"}]}
    cluster["engines"] = more.pop("engines", list(GPU))
    shape = {"layers": 4, "hidden": 512, "ffn": 1024, "heads": 8, "vocab": 1000}
    experts = {"experts": 4, "top_k": 2, "moe_ffn": 512, "shared_expert_ffn": 1024}
    return {
        "nest": 1,
        "model": {"transformer": shape | experts},
        "training": {"global_batch": 16, "sequence_length": 256, "stack": "none", "graphs": "iteration"},
        "cluster": cluster,
        "strategies": {"tp": [4]},
        **more,
    }


@pytest.mark.longer
@pytest.mark.parametrize("granularity", [pytest.param("layer", marks=pytest.mark.slow), "operator"])
def test_from_problem_to_checked_plan(granularity: str) -> None:
    asked = problem(search={"granularity": granularity}, constraints=["pp <= 2"])
    plan = nest.solve(asked | {"layer_times": "scheduled"})
    slower = nest.solve(asked | {"layer_times": "sequential"})
    assert plan.batch_time is not None
    assert slower.batch_time is not None
    assert plan.batch_time < slower.batch_time * (1 - 1e-3)
    for each in (plan, slower):
        assert nest.check(each).disagreements == ()


@pytest.mark.parametrize(
    ("engines", "told"),
    [
        ([], "cluster.engines must not be empty"),
        (["matrix", "vektor"], r"cluster.engines\[1\] must be one of matrix, vector, communication"),
        (["vector"], "cluster.engines must include matrix"),
        (["matrix", "matrix"], "each may be there once"),
    ],
)
def test_engines_nobody_knows_are_refused(engines: list[str], told: str) -> None:
    with pytest.raises(InputError, match=told):
        nest.solve(problem(engines=engines))


def test_an_unknown_model_of_layer_times_is_refused() -> None:
    with pytest.raises(InputError, match="layer_times: there is no model of layer times called 'schedule'"):
        nest.solve(problem(layer_times="schedule"))


def test_every_device_of_the_catalogue_has_engines_that_may_be_written() -> None:
    for device in devices().values():
        assert "matrix" in device.engines
        assert set(device.engines) <= set(ENGINES)
