"""The cost model `measured`: the table's times where it has them, the default's elsewhere."""

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

import nest_measured
from nest import api
from nest.catalogue import device
from nest.errors import InputError
from nest.graph import Operator, OperatorGraph
from nest.hooks.registry import registry
from nest.io import unstructure
from nest.spec import MlaSpec, Training, TransformerSpec
from nest_measured.model import VARIABLE, Measured
from nest_measured.sizes import size_names, sizes_of

PLUGINS = registry(extra=[nest_measured])
DEFAULT = next(iter(registry().cost_models().values()))
DEVICE = device("h100-sxm")
TRAINING = Training(global_batch=8, sequence_length=512)
COMMON = {"layers": 2, "hidden": 256, "ffn": 1024, "heads": 8, "vocab": 1000}

MODELS = {
    "llama": TransformerSpec(kv_heads=2, **COMMON),
    "experts": TransformerSpec(experts=8, top_k=2, moe_ffn=128, shared_expert_ffn=64, **COMMON),
    "latent": TransformerSpec(
        mla=MlaSpec(q_lora_rank=64, kv_lora_rank=32, qk_nope_head_dim=24, qk_rope_head_dim=8, v_head_dim=16), **COMMON
    ),
}


def graph(model: TransformerSpec, training: Training = TRAINING) -> OperatorGraph:
    return registry().model_importers()["transformer"].load(model, training)


def row(operator: Operator, factor: float) -> dict[str, Any]:
    cost = DEFAULT.price(operator, DEVICE, TRAINING)
    measured = {"kind": operator.kind, "sizes": sizes_of(operator), "forward": factor * cost.forward}
    return {**measured, "backward": factor * cost.backward} if cost.backward else measured


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets the cost model use a table of these operators."""

    def used(operators: list[dict[str, Any]], **other: Any) -> None:
        path = tmp_path / "table.json"
        path.write_text(json.dumps({"operators": operators, **other}))
        monkeypatch.setenv(VARIABLE, str(path))

    return used


@pytest.mark.parametrize("model", MODELS)
def test_measured_times_replace_the_defaults(model: str, use: Any) -> None:
    operators = graph(MODELS[model]).operators
    use([row(operator, 3.0) for operator in operators])
    for operator in operators:
        cost, usual = (each.price(operator, DEVICE, TRAINING) for each in (Measured(), DEFAULT))
        assert cost.forward == pytest.approx(3 * usual.forward)
        assert cost.backward == pytest.approx(3 * usual.backward)
        assert (cost.update, cost.saved, cost.transient) == (usual.update, usual.saved, usual.transient)


@pytest.mark.parametrize("model", MODELS)
def test_every_size_has_its_name(model: str) -> None:
    for operator in graph(MODELS[model]).operators:
        found = sizes_of(operator)
        assert found is not None
        assert set(found) == set(size_names(operator.kind))
        assert all(size >= 1 for size in found.values())


def test_sizes_by_hand() -> None:
    found = {operator.name: sizes_of(operator) for operator in graph(MODELS["llama"]).operators}
    assert found["layers.0/key_value"] == {"rows": 512, "columns": 2 * 2 * 32, "contracted": 256, "groups": 1}
    assert found["layers.0/attention_output"] == {"rows": 512, "columns": 256, "contracted": 256, "groups": 1}
    assert found["layers.0/attention_norm"] == {"bytes": 2 * 512 * 256 * 2}
    attention = {"batch": 1, "heads": 8, "sequence": 512, "keys": 512, "head": 32, "value": 32}
    assert found["layers.0/attention"] == attention
    mixture = {operator.name: sizes_of(operator) for operator in graph(MODELS["experts"]).operators}
    assert mixture["layers.0/router"] == {"rows": 512, "columns": 8, "contracted": 256, "groups": 1}
    assert mixture["layers.0/expert_down"] == {"rows": 1024, "columns": 256, "contracted": 128, "groups": 8}


def test_attention_that_stores_its_scores_is_no_fused_kernel() -> None:
    unfused = Training(global_batch=8, sequence_length=512, attention="unfused")
    cores = [operator for operator in graph(MODELS["llama"], unfused).operators if operator.kind == "attention"]
    assert len(cores) == 6
    assert [sizes_of(operator) for operator in cores] == [None] * 6


def test_what_the_table_lacks_is_the_defaults(use: Any) -> None:
    operators = graph(MODELS["llama"]).operators
    measured = next(operator for operator in operators if operator.name == "layers.0/attention")
    use([row(measured, 3.0)])
    for operator in operators:
        factor = 3 if operator.kind == "attention" else 1
        cost, usual = (each.price(operator, DEVICE, TRAINING) for each in (Measured(), DEFAULT))
        assert cost.forward == pytest.approx(factor * usual.forward)


def test_a_backward_pass_that_was_not_measured_keeps_its_proportion(use: Any) -> None:
    operator = next(operator for operator in graph(MODELS["llama"]).operators if operator.kind == "attention")
    use([{key: value for key, value in row(operator, 3.0).items() if key != "backward"}])
    cost, usual = (each.price(operator, DEVICE, TRAINING) for each in (Measured(), DEFAULT))
    assert cost.backward / cost.forward == pytest.approx(usual.backward / usual.forward)


UNHURRIED = evolve(DEVICE, calibration=evolve(DEVICE.calibration, host_launch=0.0))

PROBLEM: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {**COMMON, "kv_heads": 2}},
    "training": {"global_batch": 8, "sequence_length": 512, "micro_batch": [1], "stack": "none"},
    # The host launches in no time: it would hold up operators as small as these.
    "cluster": {"device": unstructure(UNHURRIED), "levels": [{"fanout": 1, "bandwidth": "1 GB/s"}]},
    "costs": "measured",
}


def test_plans_are_made_with_it(use: Any) -> None:
    use([row(operator, 3.0) for operator in graph(MODELS["llama"]).operators])
    plan = api.solve(PROBLEM, plugins=PLUGINS)
    usual = api.solve({**PROBLEM, "costs": None}, plugins=PLUGINS)
    assert plan.status == usual.status == "optimal"
    assert [stage.time for stage in plan.stages] == [pytest.approx(3 * stage.time) for stage in usual.stages]
    assert api.check(plan.to_dict(), plugins=PLUGINS).ok
    # Another table is another problem: the plan's numbers do not follow from it.
    use([row(operator, 4.0) for operator in graph(MODELS["llama"]).operators])
    assert not api.check(plan.to_dict(), plugins=PLUGINS).ok


def test_a_table_is_used_on_its_device_only(use: Any) -> None:
    operator = graph(MODELS["llama"]).operators[0]
    use([row(operator, 3.0)], device="a100-sxm-80g")
    with pytest.raises(InputError, match=r"a100-sxm-80g.*h100-sxm"):
        api.solve(PROBLEM, plugins=PLUGINS)


def test_a_table_is_used_in_its_precision_only(use: Any) -> None:
    operator = next(each for each in graph(MODELS["llama"]).operators if each.kind == "norm")
    use([{**row(operator, 2.0), "precision": "fp16"}])
    with pytest.raises(InputError, match=r"was measured in fp16, but training\.precision is bf16"):
        Measured().price(operator, DEVICE, TRAINING)
    use([{**row(operator, 2.0), "precision": "fp16"}, row(operator, 3.0)])
    usual = DEFAULT.price(operator, DEVICE, TRAINING)
    assert Measured().price(operator, DEVICE, TRAINING).forward == pytest.approx(3.0 * usual.forward)


def test_a_missing_table_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(InputError, match=f"{VARIABLE}.*is not set"):
        api.solve(PROBLEM, plugins=PLUGINS)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none.json"))
    with pytest.raises(InputError, match=r"none\.json.*cannot be read"):
        api.solve(PROBLEM, plugins=PLUGINS)
