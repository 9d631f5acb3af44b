"""Exported programs become the graphs of the models they are: FLOP, parameters, memory and axes are nest's own."""

import json
import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nest_torch
from nest import api
from nest.errors import InputError
from nest.graph import Operator, OperatorGraph, axis_size
from nest.hooks.registry import registry
from nest.io import unstructure
from nest.models import transformer
from nest.spec import Training, TransformerSpec
from nest.testing import assert_conforms
from nest_torch.exported.importer import importer
from programs import Row, decoder

PLUGINS = registry(extra=[nest_torch])
SEQUENCE = 32
TRAINING = Training(1, SEQUENCE)
WIDTHS: dict[str, int] = {"layers": 2, "hidden": 24, "heads": 6, "kv_heads": 2, "ffn": 40, "vocab": 96}


def load(rows: list[Row], training: Training = TRAINING, **options: Any) -> OperatorGraph:
    return importer.load({"graph": rows, **options}, training)


def own(training: Training = TRAINING, **widths: int) -> OperatorGraph:
    return transformer.load(TransformerSpec(**{**WIDTHS, **widths}), training)  # type: ignore[arg-type]


def kept(operators: tuple[Operator, ...]) -> float:
    """Bytes kept for the backward pass."""
    tensors = {t.name: t.bytes for o in operators for t in (*o.inputs, *o.outputs) if t.name in o.saves}
    return sum(tensors.values())


def figures(graph: OperatorGraph) -> list[tuple[Any, ...]]:
    """What a layer costs, whatever its operators are called; without the rotation, which keeps nothing."""
    return [
        (
            sum(o.flops for o in operators),
            sum(o.model_flops for o in operators),
            sum(o.backward_flops for o in operators),
            sum(o.parameter_count for o in operators),
            kept(operators),
        )
        for operators in graph.by_layer
    ]


FORMS: list[dict[str, Any]] = [
    {},
    {"split": False},
    {"split": False, "nested": False, "flops": False},
    {"samples": 3},
    {"samples": 3, "split": False},
    {"fused_projection": True},
    {"fused_projection": True, "split": False, "samples": 2},
    {"prefix": "transformer.h"},
    {"prefix": "layers"},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(
    "training",
    [
        TRAINING,
        Training(1, SEQUENCE, attention="unfused"),
        Training(1, SEQUENCE, precision="fp32"),
        Training(1, SEQUENCE, loss="fused"),
    ],
    ids=["flash", "unfused", "fp32", "fused loss"],
)
def test_layers_cost_what_the_models_own_cost(form: dict[str, Any], training: Training) -> None:
    graph = load(decoder(**WIDTHS, **form), training)
    assert figures(graph) == figures(own(training))
    assert graph.parameter_count == own().parameter_count
    assert len(graph.layers) == 4
    assert graph.layers[0] == "embedding"
    assert graph.layers[-1] == "head"
    assert graph.blocks == graph.layers[1:-1]


def test_widths_that_are_equal_are_told_apart() -> None:
    """As in Llama 2 with 4096 tokens: sequence, model width and heads times channels are one number."""
    widths = {"hidden": SEQUENCE, "heads": 4, "kv_heads": 4, "ffn": 40, "vocab": 96}
    for split in (True, False):
        graph = load(decoder(layers=2, split=split, **widths))
        assert figures(graph) == figures(own(**widths))
        product = next(o for o in graph.operators if o.name.endswith("attn.o"))
        assert dict(product.space) == {"batch": 1, "sequence": 32, "hidden": 32, "heads": 4, "head": 8}


def test_axes_are_those_strategies_split() -> None:
    for split in (True, False):
        graph = load(decoder(split=split))
        attention = next(each for each in graph.operators if each.kind == "attention")
        assert dict(attention.space) == {"batch": 1, "heads": 6, "sequence": 32, "keys": 32, "head": 4}
        assert axis_size(attention.inputs[1].shape, "kv_heads") == 2
        assert {p.shape for o in graph.operators for p in o.parameters if o.name.endswith("mlp.up")} == {
            (("ffn", 40), ("hidden", 24))
        }
        assert axis_size(graph.operators[0].space, "vocab") == 96
        assert {p.name for o in graph.operators for p in o.parameters} == {"weight"}


PROBLEM: dict[str, Any] = {
    "nest": 1,
    "training": {"global_batch": 8, "sequence_length": SEQUENCE},
    "cluster": {"device": "a100-sxm-40g", "levels": [{"fanout": 4, "link": "nvlink3"}]},
}


@pytest.mark.longer
@pytest.mark.parametrize("fixed", [{"tp": 2}, {"tp": 2, "sp": True}, {"cp": 2}, {"pp": 2}, {}], ids=str)
def test_plans_take_no_less_memory_and_no_less_time_than_the_models_own(fixed: dict[str, Any]) -> None:
    """Projections are products of their own, and read their input each; nothing else differs."""
    model = {"transformer": WIDTHS}
    theirs = api.evaluate({**PROBLEM, "model": {"graph": decoder()}, "fixed": fixed}, plugins=PLUGINS)
    ours = api.evaluate({**PROBLEM, "model": model, "fixed": fixed}, plugins=PLUGINS)
    assert [stage.memory for stage in theirs.stages] == pytest.approx([stage.memory for stage in ours.stages], rel=0.02)
    assert theirs.candidate == ours.candidate
    assert theirs.batch_time is not None
    assert ours.batch_time is not None
    assert theirs.batch_time < 1.6 * ours.batch_time  # Small widths: launches and latencies are all there is.


@pytest.mark.longer
def test_it_conforms() -> None:
    assert_conforms(importer)


def test_another_length_is_told_with_both() -> None:
    with pytest.raises(InputError, match=r"sequence_length is 64.*32 tokens"):
        load(decoder(), Training(1, 64))
    with pytest.raises(InputError, match=r"sequence_length is missing.*32 tokens"):
        load(decoder(), Training(1))


def test_unknown_calls_are_bound_by_memory_and_told_once() -> None:
    rows = decoder(split=False)
    for row in rows:
        if row["op"] == "aten.silu.default":
            row["op"] = "mylib.squash.default"
    graph = load(rows)
    assert sum("squash" in sentence for sentence in graph.assumptions) == 1
    assert graph.model_flops == own().model_flops
    assert load(decoder(split=False)).assumptions == tuple(s for s in graph.assumptions if "squash" not in s)


def test_what_nobody_says_about_attention_is_asked_for() -> None:
    rows = decoder(split=False)
    for row in rows:
        if "attention" in row["op"]:
            row["inputs"] = row["inputs"][:3]
    open_ended = load(rows)
    assert any("causal" in sentence for sentence in open_ended.assumptions)
    assert open_ended.flops == open_ended.model_flops
    told = load(rows, causal=True)
    assert told.flops == own().flops
    assert not any("causal" in sentence for sentence in told.assumptions)


def test_sizes_that_no_node_shows_can_be_said() -> None:
    rows = [row for row in decoder() if not row["module"].startswith("lm_head")]
    assert load(rows).operators[0].parameter_count == SEQUENCE * 24
    for name in ("embed_tokens.weight", "p_embed_tokens_weight"):
        assert load(rows, parameters={name: [50, 24]}).operators[0].parameter_count == 50 * 24
    assert not any(operator.kind == "loss" for operator in load(rows).operators)


def test_tracers_without_prefixes() -> None:
    text = json.dumps(decoder())
    names = sorted({name for row in decoder() for name in row["inputs"] if name.startswith("p_")}, key=len)
    for index, name in enumerate(reversed(names)):
        text = text.replace(f'"{name}"', f'"arg{index}_1"')
    plain = load(json.loads(text))
    products = 2 * (24 * 24 + 2 * 24 * 8 + 24 * 24 + 3 * 24 * 40)
    assert plain.parameter_count == products + 2 * 96 * 24
    assert plain.model_flops == own().model_flops


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"repeat": 1}, "it has 2 blocks"),
    ({"repeat": 0}, "repeat must be"),
    ({"repeat": True}, "repeat must be"),
    ({"repaet": 4}, "did you mean `repeat`"),
    ({"causal": "yes"}, "causal must be"),
    ({"parameters": {"embed_tokens.weight": 5}}, "list of sizes"),
    ({"parameters": {"embed.weight": [5, 5]}}, "embed.weight"),
]


@pytest.mark.parametrize(("options", "told"), BROKEN, ids=str)
def test_options_that_cannot_be_are_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        load(decoder(), **options)


def broken(**changes: Any) -> list[Row]:
    rows = decoder()
    rows[40].update(changes)
    return rows


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (broken(name="embedding"), "two nodes are named 'embedding'"),
        (broken(inputs=["view_30"]), "cycle"),
        (broken(inputs="view_30"), r"nodes\[40\].*inputs"),
        (broken(shape=[[1, -2]]), r"nodes\[40\].*shape"),
        (broken(shape=[[1, "x"]]), r"nodes\[40\].*shape"),
        (broken(name=7), r"nodes\[40\].*name"),
        (broken(flops=-1), r"nodes\[40\].*flops"),
        (broken(module=7), r"nodes\[40\].*module"),
        ([*decoder(), 7], "expected a mapping"),
        ([*decoder(), {"name": "x"}], "missing"),
        ([{**decoder()[0], "op": "aten.lstm.input"}], "lstm"),
        ([{**decoder()[0], "inputs": []}], "computes nothing"),
        ([{**decoder(split=False)[-1], "inputs": ["x", "p_w"]}], "sizes of 'x'.*parameters"),
    ],
)
def test_broken_programs_are_told_so(rows: list[Row], told: str) -> None:
    with pytest.raises(InputError, match=told):
        load(rows)


ODD: tuple[Any, ...] = (
    *(None, True, 0, 1, 3, -1, 0.5, 10**12, 10**400, float("nan"), float("inf"), "", "x", "5", "é", "a" * 400),
    *([], {}, [0], [1, 2], ["a"], [[0, 1]], [None], [[]], {"": {}}, "aten.mm.default", "aten.transpose.int"),
)


@pytest.mark.longer
@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from(FORMS), st.integers(1, 3))
def test_mutated_programs_are_read_or_refused(chance: random.Random, form: dict[str, Any], changes: int) -> None:
    rows = decoder(**form)
    for _ in range(changes):
        row = chance.choice(rows)
        row[chance.choice([*row, "flops", "extra"])] = chance.choice(ODD)
        if chance.random() < 0.1:
            row.pop(chance.choice(list(row)))
    with suppress(InputError):
        load(rows)


def test_files_hold_a_list_or_a_mapping_around_one() -> None:
    graph = load(decoder())
    for source in ({"nodes": decoder(), "torch": "2.13"}, {"graph": {"rows": decoder()}, "repeat": 2}):
        assert importer.accepts(source)
        assert importer.load(source, TRAINING) == graph
    for source in (
        {"nodes": []},
        {"nodes": [1]},
        {"a": decoder(), "b": decoder()},
        {"graph": "x.json"},
        {"graph": unstructure(own())},
        [],
        None,
    ):
        assert not importer.accepts(source)


@pytest.mark.longer
@pytest.mark.parametrize(
    ("name", "layers"), [("llama7b_2layer_aten_graph.json", 2), ("llama7b_2layer_export_graph.json", 32)]
)
def test_llama_as_it_was_exported(shared: Any, name: str, layers: int) -> None:
    """FLOP of the file's own count; parameters, kept bytes and FLOP of nest's own Llama 2."""
    rows = json.loads((shared / "samples" / name).read_text())
    training = Training(1, 4096)
    graph = load(rows, training)
    model = own(training, layers=layers, hidden=4096, heads=32, kv_heads=32, ffn=11008, vocab=32000)
    assert graph.layers == model.layers
    assert figures(graph) == figures(model)
    if "flops" in rows[0]:
        assert graph.model_flops == sum(row["flops"] for row in rows)
        assert figures(load(rows, training, repeat=32)) == figures(
            own(training, layers=32, hidden=4096, heads=32, kv_heads=32, ffn=11008, vocab=32000)
        )
