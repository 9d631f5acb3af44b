"""The cost model `measured`: the table's times where it has them, the default's elsewhere."""

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

import nest_measured
from nest import api
from nest.errors import InputError
from nest.hooks.registry import registry
from nest.spec import Training
from nest_measured.model import VARIABLE, Measured
from nest_measured.sizes import size_names, sizes_of
from small_models import DEFAULT, DEVICE, MODELS, PROBLEM, TRAINING, graph, row

PLUGINS = registry(extra=[nest_measured])


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


@pytest.mark.longer
def test_eager_kernels_add_gradients_up(use: Any) -> None:
    operators = graph(MODELS["llama"]).operators
    product = next(each for each in operators if each.name == "layers.0/attention_output")
    sums = {"kind": "elementwise", "sizes": {"bytes": 3 * 4 * product.parameter_count}, "forward": 1e-3}
    use([row(product, 3.0), sums])
    fused, eager = (Measured().price(product, DEVICE, evolve(TRAINING, kernels=each)) for each in ("fused", "eager"))
    assert eager.backward == pytest.approx(fused.backward + 1e-3)
    assert eager.forward == fused.forward


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
