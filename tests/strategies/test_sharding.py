"""What tensor and sequence parallelism leave of a graph adds up to the whole again, for every shape of model."""

from collections import Counter
from collections.abc import Callable

import pytest

from nest.formulate.recompute import recompute_modes, tensor_bytes
from nest.graph import Block, Communication, Operator, OperatorGraph
from nest.hooks.protocols import StrategyContext
from nest.hooks.registry import registry
from nest.spec import Training, TransformerSpec
from nest.testing import SampleCluster, SampleModel, assert_conforms

Build = Callable[..., OperatorGraph]
Shard = Callable[..., Block]

SPLIT_AXES = {"heads", "kv_heads", "ffn", "vocab"}
WAYS = [{"tp": 2}, {"tp": 4}, {"tp": 4, "sp": 4}, {"tp": 12}, {"tp": 12, "sp": 12}]


def operators(layer: tuple[Operator, ...]) -> dict[str, Operator]:
    return {operator.name: operator for operator in layer if operator.collective is None}


def computing(graph: OperatorGraph) -> dict[str, Operator]:
    return operators(graph.operators)


def calls(operators: tuple[Operator, ...], direction: str) -> list[Communication]:
    return [call for o in operators if o.collective for call in getattr(o.collective, direction)]


@pytest.mark.parametrize("degrees", WAYS, ids=str)
def test_parameters_of_the_ranks_add_up(shape: str, degrees: dict[str, int], build: Build, shard: Shard) -> None:
    whole = build(shape, tokens=48)
    shares = computing(shard(whole, **degrees).graph)
    for name, operator in computing(whole).items():
        for before, after in zip(operator.parameters, shares[name].parameters, strict=True):
            split = [(axis, size) for axis, size in before.shape if axis in SPLIT_AXES]
            expected = before.count
            for _, size in split:
                expected = expected // size * -(-size // degrees["tp"])
            assert after.count == expected
            assert (after.group, after.tied) == (before.group, before.tied)
            if all(size % degrees["tp"] == 0 for _, size in split) and split:
                assert after.count * degrees["tp"] == before.count


@pytest.mark.longer
@pytest.mark.parametrize("name", ["tp", "sp", "cp", "batch"])
def test_the_kit_has_no_objection(name: str, shape: str, source: TransformerSpec, context: StrategyContext) -> None:
    """Work and activations add up, collectives fit, memory does not grow: on 48 devices, where 3, 6 and 12 divide."""
    model = SampleModel(shape, source, Training(global_batch=8, sequence_length=48))
    assert_conforms(
        registry().strategies()[name], models=[model], clusters=[SampleCluster("48 devices", context.cluster)]
    )


def test_with_sequence_parallelism_every_operator_is_split(shape: str, build: Build, shard: Shard) -> None:
    graph = shard(build(shape), tp=4, sp=4).graph
    for operator in computing(graph).values():
        assert len(operator.split) == 1, operator.name
    assert {s for o in graph.operators for s in o.split} == {"tp", "sp"}


def test_what_leaves_a_layer_keeps_its_name_and_its_consumers(shape: str, build: Build, shard: Shard) -> None:
    whole = build(shape)
    for degrees, parts in (({"tp": 4}, 1), ({"tp": 4, "sp": 4}, 4)):
        share = shard(whole, **degrees).graph
        for before, after in zip(whole.layer_tensors, share.layer_tensors, strict=True):
            assert (after.producer, after.consumers) == (before.producer, before.consumers)
            assert after.tensor.name == before.tensor.name
            assert after.tensor.bytes * parts == before.tensor.bytes


def test_degree_one_leaves_the_graph_alone(shape: str, build: Build, context: StrategyContext) -> None:
    block = Block(build(shape), 1)
    for strategy in registry().strategies().values():
        assert 1 in strategy.degrees(block, context)
    assert registry().strategies()["sp"].degrees(block, context) == (1,)


def test_megatron_reduces_twice_per_direction(build: Build, shard: Shard) -> None:
    """Figure 4 of arXiv 1909.08053: two all-reduces forward and two backward in a layer, of its activations."""
    for shape in ("gpt", "llama"):
        block = shard(build(shape), samples=2, tp=4)
        stream = 2 * 64 * 96 * 2.0
        layer = block.graph.by_layer[1]
        for direction in ("forward", "backward"):
            assert calls(layer, direction) == [Communication("all_reduce", stream, "tp")] * 2


def test_sequence_parallelism_halves_every_all_reduce(build: Build, shard: Shard) -> None:
    """Figure 5 of arXiv 2205.05198, with the second gather of what split operators keep (its section 4.2.2)."""
    block = shard(build("gpt"), samples=2, tp=4, sp=4)
    layer, stream = block.graph.by_layer[1], 2 * 64 * 96 * 2.0
    for direction, again in (("forward", 0), ("backward", 2)):
        found = calls(layer, direction)
        assert all(call.bytes == stream and call.axis == "tp" for call in found)
        kinds = Counter(call.kind for call in found)
        assert kinds == {"all_gather": 2 + again, "reduce_scatter": 2}


@pytest.mark.parametrize("loss", ["unfused", "eager"])
def test_the_loss_is_summed_whole(loss: str, build: Build, shard: Shard) -> None:
    """The eager loss also keeps logarithms of probabilities, each of which one rank has."""
    for degrees in ({"tp": 4}, {"tp": 4, "sp": 4}):
        head = shard(build("gpt", loss=loss), **degrees).graph.by_layer[-1]
        reduced = [call for call in calls(head, "forward") if call.kind == "all_reduce"]
        assert reduced == [Communication("all_reduce", 64 * 4.0, "tp")]


@pytest.mark.parametrize("loss", ["fused", "eager", "chunked"])
def test_without_a_parallel_loss_every_rank_reads_all_logits(loss: str, build: Build, shard: Shard) -> None:
    """A gather of 2 bytes a logit makes the loss that of one device; what stands before it is split as ever."""
    alone = build("llama", loss=loss)
    split, gathering = (shard(alone, tp=4, sp=4, loss_parallel=each).graph.by_layer[-1] for each in (True, False))
    forward, backward = ([calls(each, way) for each in (split, gathering)] for way in ("forward", "backward"))
    assert forward[1] == [*forward[0][:-1], Communication("all_gather", 64 * 1000 * 2.0, "tp")]
    assert backward[0] == backward[1]
    for operator, other in zip(operators(gathering).values(), alone.by_layer[-1], strict=True):
        same = other if operator.name in ("head/widen", "head/loss") else operators(split)[operator.name]
        sizes, wanted = ([[size for _, size in shape] for shape in each.shapes] for each in (operator, same))
        assert sizes == wanted, operator.name


@pytest.mark.parametrize("attention", ["flash", "unfused"])
@pytest.mark.parametrize("samples", [1, 3])
def test_activations_are_those_of_the_paper(attention: str, samples: int, build: Build, shard: Shard) -> None:
    """Table 2 of arXiv 2205.05198, without dropout (its masks and its copy of the probabilities).

    Per layer `s*b*h*(8 + 24/t)` and `s*b*h*32/t` bytes; the scores add `2*a*s*s*b/t`, the log-sum-exp that
    flash attention keeps in their place `4*a*s*b/t`.
    """
    s, b, h, a = 64, samples, 96, 12
    graph = build("gpt", attention=attention)
    scores = 2 * a * s * s * b if attention == "unfused" else 4 * a * s * b
    ways = [({}, 32.0, 1)]
    ways += [({"tp": t}, 8 + 24 / t, t) for t in (2, 4)]
    ways += [({"tp": t, "sp": t}, 32 / t, t) for t in (2, 4)]
    for degrees, factor, t in ways:
        layer = shard(graph, samples=samples, **degrees).graph.by_layer[1]
        kept = recompute_modes(layer, (), repeated=False)["none"]
        assert kept.stored_bytes(tensor_bytes(layer)) == pytest.approx(s * b * h * factor + scores / t)
