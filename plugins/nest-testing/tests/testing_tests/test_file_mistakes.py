"""Mistakes of importers and exporters are found by the checks for them."""

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from attrs import evolve

import nest
from nest.graph import Operator, OperatorGraph, Tensor
from nest.hooks.registry import registry
from nest.instance.pairs import Pairs
from nest.network.imported import Imported
from nest.spec import LevelSpec, PlanDocument, Training
from nest.testing import check_exporter, check_model_importer, check_topology_importer, sample_plans
from testing_tests.faulty_plugins import CONFIG as FAULTY

CONFIG: dict[str, Any] = {**FAULTY, "model_type": "llama"}


class Importer:
    """Loads Llama configurations, wrongly."""

    name = "llama"

    def __init__(self, change: Callable[[OperatorGraph], Any] = lambda graph: graph) -> None:
        self.sound = registry().model_importers()["llama"]
        self.change = change

    def accepts(self, source: Any) -> Any:
        return self.sound.accepts(source)

    def load(self, source: Any, training: Training) -> Any:
        return self.change(self.sound.load(source, training))


def failed(importer: Any, **options: Any) -> list[str]:
    return [f.check for f in check_model_importer(importer, **options) if not f.passed]


def test_a_sound_importer_passes() -> None:
    assert failed(Importer(), sources=[CONFIG]) == []


GRAPH = "it loads an operator graph of one sample"
GRAPHS: dict[str, Callable[[OperatorGraph], Any]] = {
    "none": lambda graph: None,
    "of two samples": lambda graph: graph.with_samples(2),
    "with an empty layer": lambda graph: evolve(graph, layers=(*graph.layers, "more")),
    "with a block that is no layer": lambda graph: evolve(graph, blocks=("more",)),
    "with layers out of order": lambda graph: evolve(graph, layers=graph.layers[::-1]),
    "without parameters": lambda graph: graph.map_operators(lambda o: (evolve(o, parameters=()),)),
    "already divided": lambda graph: graph.map_operators(lambda o: (evolve(o, split=("tp",)),)),
    "with negative work": lambda graph: graph.map_operators(lambda o: (evolve(o, flops_per_point=-1.0),)),
    "of another length": lambda graph: graph.map_shapes(
        lambda shape: tuple((axis, 7 if axis == "sequence" else size) for axis, size in shape)
    ),
}


@pytest.mark.parametrize("fault", GRAPHS)
def test_graphs(fault: str) -> None:
    assert GRAPH in failed(Importer(GRAPHS[fault]), sources=[CONFIG])


def test_the_length_of_samples_must_count() -> None:
    short, idle = Importer(), Importer()
    short.load = lambda source, training: short.sound.load(  # type: ignore[method-assign]
        source, evolve(training, sequence_length=64)
    )
    idle.load = lambda source, training: idle.sound.load(source, training).map_operators(  # type: ignore[method-assign]
        lambda operator: (evolve(operator, flops_per_point=0.0, model_flops_per_point=None),)
    )
    for importer in (short, idle):
        assert failed(importer, sources=[CONFIG]) == ["longer samples take more work"]


@pytest.mark.parametrize("blocks", [lambda tokens: 16, lambda tokens: tokens // 4], ids=["as many", "more"])
def test_blocks_of_tokens_grow_with_the_sample(blocks: Callable[[int], int]) -> None:
    def cut(operator: Operator, tokens: int) -> Operator:
        shape = tuple((axis, blocks(tokens) if axis == "sequence" else size) for axis, size in operator.space)
        return evolve(operator, outputs=(*operator.outputs, Tensor("blocks", shape)))

    importer = Importer()
    importer.load = lambda source, training: importer.sound.load(source, training).map_operators(  # type: ignore[method-assign]
        lambda o: (cut(o, training.sequence_length) if o.name == "head/norm" else o,)
    )
    assert failed(importer, sources=[CONFIG]) == (
        ["longer samples take more work"] if blocks(64) == blocks(128) else []
    )


def test_sources_are_left_as_they_are_and_mistakes_told() -> None:
    class Careless(Importer):
        def load(self, source: Any, training: Training) -> Any:
            source["seen"] = source["num_key_value_heads"]
            return super().load(source, training)

    assert failed(Careless(), sources=[dict(CONFIG)]) == [
        "it leaves its source as it is",
        "a key that is missing is told, not stumbled over",
    ]


def test_results_are_the_same_every_time() -> None:
    depth = iter(range(1, 1000))

    class Moody(Importer):
        def load(self, source: Any, training: Training) -> Any:
            return self.sound.load({**source, "num_hidden_layers": next(depth)}, training)

    assert "it loads the same every time" in failed(Moody(), sources=[CONFIG])


def test_accepting_is_a_plain_answer() -> None:
    importer = Importer()
    importer.accepts = lambda source: source["model_type"] == "llama"  # type: ignore[method-assign]
    assert failed(importer, sources=[CONFIG]) == ["it accepts or declines, whatever it is asked about"]
    importer.accepts = lambda source: "yes"  # type: ignore[method-assign]
    assert "it accepts or declines, whatever it is asked about" in failed(importer, sources=[CONFIG])


def test_one_that_accepts_nothing_was_not_tried() -> None:
    importer = Importer()
    importer.accepts = lambda source: False  # type: ignore[method-assign]
    assert failed(importer) == ["it accepts something that was tried"]
    assert failed(importer, sources=[CONFIG]) == ["it accepts something that was tried"]


def test_examples_of_an_importer_are_tried() -> None:
    importer = Importer()
    importer.accepts = lambda source: isinstance(source, dict) and "mine" in source  # type: ignore[method-assign]
    importer.load = lambda source, training: importer.sound.load(CONFIG, training)  # type: ignore[method-assign]
    importer.examples = ({"mine": 1},)  # type: ignore[attr-defined]
    assert failed(importer) == []


class Networks:
    """Loads a matrix, wrongly."""

    name = "matrix"

    def __init__(self, load: Callable[[Any], Any]) -> None:
        self.load = load

    def accepts(self, source: Any) -> bool:
        return registry().topology_importers()["matrix"].accepts(source)


def pairs(bandwidth: float) -> Pairs:
    matrix = numpy.array([[numpy.inf, bandwidth], [bandwidth, numpy.inf]])
    return Pairs(("a", "b"), matrix, numpy.zeros((2, 2)))


@pytest.mark.longer
def test_networks() -> None:
    def found(load: Callable[[Any], Any]) -> list[str]:
        return [f.check for f in check_topology_importer(Networks(load)) if not f.passed]

    speeds = iter(range(1, 1000))
    assert found(lambda source: pairs(1.0)) == []
    assert found(lambda source: pairs(float(next(speeds)))) == ["it loads the same every time"]
    assert found(lambda source: [1, 2]) == ["it loads a cluster, links or pairs"]
    assert found(lambda source: Pairs(("a",), numpy.ones((1, 1)), numpy.ones((1, 1)))) == [
        "it loads a cluster, links or pairs"
    ]


@pytest.mark.parametrize(
    ("hosts", "each", "sound"),
    [
        ((), None, True),
        (("a", "b"), None, True),
        (("a", "b"), 4, True),
        (("a", "b", "c"), None, False),
        (("a", "b"), 2, False),
    ],
)
def test_hosts_hold_the_devices_evenly(hosts: tuple[str, ...], each: int | None, sound: bool) -> None:
    levels = (LevelSpec(4, link="nvlink4"), LevelSpec(2, link="infiniband-ndr"))
    found = check_topology_importer(Networks(lambda source: Imported(levels, hosts, devices_per_host=each)))
    assert [f.check for f in found if not f.passed] == ([] if sound else ["it loads a cluster, links or pairs"])


class Export:
    """Writes what it is told."""

    name = "told"

    def __init__(self, export: Callable[[PlanDocument], Any]) -> None:
        self.export = export


FILES = "it writes text under names that stay in a folder"


@pytest.mark.parametrize(
    "name", ["../plan", "/etc/plan", "a/../../plan", "..\\plan", "C:\\plan", "C:plan", "", "folder/", "nul\0", "..", 3]
)
def test_names_that_leave_the_folder(name: Any) -> None:
    findings = {f.check: f.passed for f in check_exporter(Export(lambda plan: {name: ""}))}
    assert not findings[FILES]


@pytest.mark.parametrize("written", [None, "text", {"plan.txt": b"text"}, {"Plan.txt": "", "plan.txt": ""}])
def test_files_that_are_no_text(written: Any) -> None:
    findings = {f.check: f.passed for f in check_exporter(Export(lambda plan: written))}
    assert not (findings[FILES] and findings["some plan is exported"])


@pytest.mark.longer
def test_exporters_are_pure() -> None:
    def scribbling(plan: PlanDocument) -> dict[str, str]:
        plan.summary["seen"] = len(plan.summary)
        return {"plan.txt": str(plan.summary)}

    plans = sample_plans()
    failing = [f.check for f in check_exporter(Export(scribbling), plans=plans) if not f.passed]
    assert failing == ["it leaves the plan as it is"]
    assert all(f.passed for f in check_exporter(Export(lambda plan: {"a/plan.txt": plan.status})))


def test_one_that_exports_nothing_was_not_tried() -> None:
    assert [f.check for f in check_exporter(Export(lambda plan: {})) if not f.passed] == ["some plan is exported"]


@pytest.mark.longer
def test_the_sample_plans_are_plans() -> None:
    feasible, infeasible, *given = sample_plans()
    assert (feasible.status, infeasible.status) == ("optimal", "infeasible")
    assert len(feasible.stages) == 2
    for plan in (feasible, *given):
        assert nest.check(plan).ok, "python -m tests.testing.sample_plans brings them up to date"
    assert nest.solve(feasible.problem).batch_time == pytest.approx(feasible.batch_time, rel=1e-9)
    assert nest.solve(infeasible.problem).status == "infeasible"
