"""Planning operator by operator: the same sums as layer by layer, and no cut that costs more than is counted."""

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import nest
from nest.errors import InputError
from nest.formulate.instance import build_instance
from nest.formulate.layer_classes import layer_classes
from nest.formulate.partition import inseparable, owners
from nest.formulate.recompute import external_inputs, recompute_modes, tensor_bytes
from nest.formulate.shard import ShardedGraphs
from nest.graph import Operator, Tensor
from nest.hooks.protocols import StrategyContext
from nest.hooks.registry import registry
from nest.instance import Candidate, Instance
from nest.solve.dp.attempt import inseparable_layers
from nest.spec import Overlap, Problem, Search, TransformerSpec
from tests.bare_devices import written
from tests.seeds import few
from tests.small_instances import downsets_of

Build = Callable[..., Problem]

MODELS = {
    "dense": TransformerSpec(layers=3, hidden=64, ffn=128, heads=8, kv_heads=4, vocab=500),
    "experts": TransformerSpec(
        layers=3, hidden=64, ffn=128, heads=8, vocab=500, experts=4, top_k=2, moe_ffn=32, dense_layers=1
    ),
}
TRAININGS = [{}, {"attention": "unfused"}, {"overlap": Overlap(tensor=True)}, {"selective": ("norm", "activation")}]
TRAININGS.append({"selective": ("attention_norm", "mlp_norm", "mlp_up", "mlp_activated")})


def both(problem: Build, model: TransformerSpec, **training: Any) -> tuple[Instance, Instance]:
    """Planned by layers and by operators."""
    by_layer, by_operator = (
        build_instance(problem(model, training=training, search=Search(granularity=name)), registry())
        for name in ("layer", "operator")
    )
    return by_layer, by_operator


def homes(instance: Instance, names: tuple[str, ...]) -> list[int]:
    """For each operator, the index of its layer among `names`."""
    return [names.index(operator.split("/")[0]) for operator in instance.graph.layers]


@pytest.mark.parametrize("training", few(TRAININGS, {}, TRAININGS[-1]), ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_the_operators_of_a_layer_add_up_to_it(model: str, training: dict[str, Any], problem: Build) -> None:
    whole, fine = both(problem, MODELS[model], **training)
    home = homes(fine, whole.graph.layers)
    assert [c.name for c in whole.candidates] == [c.name for c in fine.candidates]
    for coarse, parts in zip(whole.candidates, fine.candidates, strict=True):
        for (place, expected), (_, values) in zip(coarse.arrays(), parts.arrays(), strict=True):
            if place == "tensor_bytes" or place.endswith("peak"):
                continue
            sums = numpy.bincount(home, weights=values, minlength=len(expected))
            assert sums == pytest.approx(expected, rel=1e-12), place
        for mode in ("none", "selective"):
            largest = numpy.zeros(len(whole.graph.layers))
            numpy.maximum.at(largest, home, parts.mode(mode).peak)
            assert largest == pytest.approx(coarse.mode(mode).peak, rel=1e-12)


@pytest.mark.longer
def test_what_crosses_between_layers_is_the_same(problem: Build) -> None:
    whole, fine = both(problem, MODELS["dense"])
    home = homes(fine, whole.graph.layers)
    for coarse, parts in zip(whole.candidates, fine.candidates, strict=True):
        for layer in range(1, len(whole.graph.layers)):
            crossing = [
                size
                for (producer, consumers), size in zip(fine.graph.tensors, parts.tensor_bytes, strict=True)
                if home[producer] < layer <= max(home[each] for each in consumers)
            ]
            assert sum(crossing) == coarse.tensor_bytes[layer - 1]


@pytest.mark.longer
@pytest.mark.parametrize("training", TRAININGS[:2] + TRAININGS[3:], ids=str)
@pytest.mark.parametrize("degrees", [(1, 1), (2, 2)], ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_no_cut_keeps_more_than_is_counted(
    model: str, degrees: tuple[int, int], training: dict[str, Any], problem: Build
) -> None:
    """Two stages, cut anywhere: their memory, computed from the operators they hold, is within the model's."""
    asked = problem(MODELS[model], training={"micro_batch": (1,), **training}, search=Search(granularity="operator"))
    instance = build_instance(asked, registry())
    graph = registry().model_importers()["transformer"].load(asked.model, asked.training)
    context = StrategyContext(instance.cluster, asked.training)
    kinds = layer_classes(graph)
    plain = {name: each for name, each in registry().strategies().items() if name in ("tp", "sp")}
    block = next(
        each
        for each in ShardedGraphs(graph, plain, {}, (1,), context).every()
        if (each.degree("tp"), each.degree("sp")) == degrees
    )
    assert len(kinds.graph.layers) < len(graph.layers)
    candidate = next(c for c in instance.candidates if (c.degrees["tp"], c.degrees["sp"]) == degrees)
    price = registry().cost_models()["roofline"].price
    from nest.catalogue import device

    gpu = device("a100-sxm-80g")
    transient = {o.name: price(o, gpu, asked.training).transient for o in block.graph.operators if o.collective is None}
    sizes = tensor_bytes(block.graph.operators)
    rows = [
        (layer, originals[owner].name, operator)
        for layer, originals, rewritten in zip(graph.layers, graph.by_layer, block.graph.by_layer, strict=True)
        for owner, operator in zip(owners(originals, rewritten), rewritten, strict=True)
    ]
    downsets = downsets_of(instance.graph, inseparable_layers(instance))
    inside = 0
    for members in downsets.members[1:-1]:
        stage = [name for name, member in zip(instance.graph.layers, members, strict=True) if member]
        inside += {"/".join(name.split("/")[:1]) for name in stage} & set(graph.blocks) != set()
        entering = sum(
            size
            for (producer, consumers), size in zip(instance.graph.tensors, candidate.tensor_bytes, strict=True)
            if not members[producer] and members[list(consumers)].any()
        )
        for held, stashed in ((members, entering), (~members, 0.0)):
            names = {name for name, member in zip(instance.graph.layers, held, strict=True) if member}
            _check_stage(
                candidate, held, stashed, [operator for _, owner, operator in rows if owner in names], transient
            )
            for mode in (each for each in candidate.recompute if each.name != "stage"):
                stored, peak = 0.0, 0.0
                for layer in graph.layers:
                    part = [operator for home, owner, operator in rows if home == layer and owner in names]
                    kept = recompute_modes(part, asked.training.selected, layer in graph.blocks)[mode.name]
                    stored += kept.stored_bytes(sizes)
                    working = max((transient.get(operator.name, 0.0) for operator in part), default=0.0)
                    peak = max(peak, kept.restored_bytes(sizes) + working)
                if mode.name != "full":
                    assert mode.first[held].sum() == pytest.approx(stored, rel=1e-12)
                for flying in (1, 2, 5):
                    counted = mode.first[held].sum() + mode.peak[held].max()
                    counted += (flying - 1) * (mode.more[held].sum() + mode.stash_inputs * stashed)
                    assert counted >= (flying * stored + peak) * (1 - 1e-12)
    assert inside > 10


def _check_stage(
    candidate: Candidate, held: Any, stashed: float, operators: list[Operator], transient: dict[str, float]
) -> None:
    """A stage that runs again keeps its inputs, data included, and, of one micro-batch, what its layers save."""
    mode = candidate.mode("stage")
    sizes = tensor_bytes(operators)
    saved = {(operator.layer, name) for operator in operators for name in operator.saves}
    inputs = external_inputs(operators)
    data = {t.name for operator in operators for t in operator.inputs if not t.differentiable} & inputs
    once = sum(sizes[name] for _, name in saved)
    once += sum(sizes[name] for name in inputs - {name for _, name in saved})
    once += max((transient.get(operator.name, 0.0) for operator in operators), default=0.0)
    assert mode.extra[held].sum() == pytest.approx(candidate.forward[held].sum())
    for flying in (1, 2, 5):
        needed = once + (flying - 1) * sum(sizes[name] for name in inputs)
        counted = mode.first[held].sum() + mode.peak[held].max()
        counted += (flying - 1) * (mode.more[held].sum() + mode.stash_inputs * stashed)
        assert counted >= needed * (1 - 1e-12)
    assert mode.more[held].sum() == sum(sizes[name] for name in data)


def tensor(name: str) -> Tensor:
    return Tensor(name, (("sequence", 4), ("hidden", 8)))


def operator(name: str, reads: str, writes: str, saves: str = "", kind: str = "norm") -> Operator:
    inputs, outputs = (tuple(tensor(each) for each in names) for names in (reads, writes))
    return Operator(name, "l", kind, inputs=inputs, outputs=outputs, saves=tuple(saves))


def test_what_was_inserted_counts_towards_whom_it_serves() -> None:
    originals = [operator("p", "a", "b"), operator("q", "b", "c")]
    rewritten = [operator("?", "a", "x"), operator("p", "x", "y"), operator("!", "y", "b"), operator("q", "b", "c")]
    assert owners(originals, rewritten) == (0, 0, 0, 1)
    assert owners(originals, [*originals, operator("end", "c", "z")]) == (0, 1, 1)
    assert owners(originals, [operator("first", "a", "z"), originals[1]]) == (1, 1)


def test_what_shares_its_bytes_is_not_parted() -> None:
    rows = [
        operator("a", "x", "y", "x"),
        operator("b", "y", "z", "y"),
        operator("c", "y", "w", "y"),
        operator("d", "w", "v", "w", kind="core"),
        operator("e", "v", "u", "v", kind="core"),
        operator("f", "u", "t"),
    ]
    assert inseparable(rows, (), repeated=True) == ((1, 2),)
    assert inseparable(rows, ("core",), repeated=True) == ((1, 2), (3, 4))
    assert inseparable(rows, ("core",), repeated=False) == ((1, 2),)
    assert inseparable(rows, ("norm",), repeated=True) == ((0, 1, 2, 3),)


SMALL: dict[str, Any] = {
    "nest": 1,
    "model": "llama-2-7b",
    "training": {
        "global_batch": 8,
        "sequence_length": 4096,
        "micro_batch": [1],
        "memory_margin": 0,
        "schedule": ["1f1b"],
    },
    "cluster": {"device": written("a100-sxm-80g"), "levels": [{"fanout": 4, "link": "nvlink3"}]},
}


def with_granularity(name: str, **changes: Any) -> dict[str, Any]:
    return {**SMALL, "search": {"granularity": name, "target": "none"}, **changes}


@pytest.mark.longer
@pytest.mark.parametrize("fixed", [{"pp": 2, "tp": 2}, {"stages": [20, 12]}, {"pp": 4, "recompute": "selective"}])
def test_the_same_decisions_cost_the_same(fixed: dict[str, Any]) -> None:
    coarse, fine = (nest.evaluate(with_granularity(name, fixed=fixed)) for name in ("layer", "operator"))
    assert fine.batch_time == pytest.approx(coarse.batch_time, rel=1e-12)
    for one, other in zip(coarse.stages, fine.stages, strict=True):
        assert other.memory == pytest.approx(one.memory, rel=1e-12)
        assert tuple(dict.fromkeys(name.split("/")[0] for name in other.layers)) == one.layers
    assert nest.check(fine.to_dict()).ok


def test_a_layer_stands_for_its_operators() -> None:
    asked = with_granularity("operator", constraints=['same_stage("embedding", "layers.20")'], fixed={"pp": 2})
    first = nest.solve(asked).stages[0].layers
    assert {"embedding/words", "layers.20/attention_norm", "layers.20/mlp_residual"} <= set(first)
    blocks = [f"layers.{index}" for index in range(32)]
    stages = [["embedding", *blocks[:4], "layers.4/attention_norm"]]
    rest = [f"layers.4/{name}" for name in REST]
    named = nest.solve(with_granularity("operator", fixed={"stages": [*stages, [*rest, *blocks[5:], "head"]]}))
    assert [stage.layers[-1] for stage in named.stages] == ["layers.4/attention_norm", "head/loss"]


REST = [
    "query", "key_value", "rotary", "attention", "attention_output", "attention_residual", "mlp_norm", "mlp_up",
    "mlp_activated", "mlp_down", "mlp_residual",
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"constraints": ['same_stage("embeding", "head")']},
            "no layer called 'embeding'.*'embedding'.*Known: embedding, h",
        ),
        (
            {"constraints": ['same_stage("layers.0/quer", "head")']},
            "no operator called 'layers.0/quer'. Did you mean 'layers.0/query'",
        ),
        ({"fixed": {"stages": [["embedding", "layer.0"], ["head"]]}}, r"fixed.stages\[0\].*no layer called 'layer.0'"),
        ({"fixed": {"stages": [20, 20]}}, "add up to 40, but the model has 32 transformer blocks"),
        ({"fixed": {"stages": [["layers.0/query"], ["layers"]]}}, "no layer called 'layers'"),
        ({"search": {"granularity": "operators"}}, "granularity must be one of layer, block, operator"),
    ],
)
def test_mistakes_are_told_in_the_words_of_the_model(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        nest.solve(with_granularity("operator", **changes))


def test_operators_that_share_bytes_cannot_be_fixed_apart() -> None:
    blocks = [f"layers.{index}" for index in range(1, 32)]
    front = ["embedding", "layers.0/attention_norm", "layers.0/query"]
    back = [f"layers.0/{name}" for name in REST if name != "query"]
    with pytest.raises(InputError, match=r"'layers.0/query' is in stage 0 and 'layers.0/key_value' in stage 1"):
        nest.solve(with_granularity("operator", fixed={"stages": [front, [*back, *blocks, "head"]]}))
