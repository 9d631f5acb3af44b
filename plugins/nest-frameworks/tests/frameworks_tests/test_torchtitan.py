"""torchtitan's own names: sizes it knows, sizes it is taught, module names, and which version can run what."""

import ast
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

import nest
from frameworks_tests.plans import DENSE, SPARSE, plan, problem
from frameworks_tests.published import PUBLISHED, published_plan
from frameworks_tests.reading import parsed
from nest.errors import InputError
from nest.formulate.model import resolve_model
from nest.hooks.architectures import architecture, architecture_of
from nest_frameworks import torchtitan
from nest_frameworks.torchtitan.models import FLAVORS, NEW, OLD, family, figures, flavor, registration


@pytest.mark.longer
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_are_found_by_their_widths(name: str) -> None:
    model = architecture(published_plan(name))
    for version in (OLD, NEW):
        found = flavor(model, version)
        assert found is not None
        assert found.name == PUBLISHED[name]


def test_sizes_are_told_apart() -> None:
    assert len({(known.model, known.figures) for known in FLAVORS}) == len(FLAVORS)


@pytest.mark.parametrize(
    ("widths", "name"),
    [(DENSE, "llama3"), (SPARSE, None), ({**DENSE, "gated_mlp": False}, None), ({**DENSE, "head_dim": 32}, None)],
    ids=["like llama", "experts", "no gate", "narrow heads"],
)
def test_the_build_of_a_model_decides_its_name(widths: dict[str, Any], name: str | None) -> None:
    assert family(architecture_of({"transformer": dict(widths)})) == name


@given(hidden=st.integers(1, 64), ratio=st.integers(1, 12), step=st.integers(1, 64))
def test_a_size_that_is_taught_has_the_widths_of_the_plan(hidden: int, ratio: int, step: int) -> None:
    """With torchtitan's own rounding (torchtitan/models/llama3/model/model.py of 0.2.2)."""
    widths = {**DENSE, "hidden": 64 * hidden, "head_dim": 8 * hidden, "ffn": step * ratio * 16}
    model = architecture_of({"transformer": widths})
    assert model is not None
    taught = _taught(registration(model))
    width = int(taught.ffn_dim_multiplier * int(2 * (4 * taught.dim) / 3))
    width = taught.multiple_of * ((width + taught.multiple_of - 1) // taught.multiple_of)
    assert (taught.dim, taught.n_layers, taught.n_heads, taught.n_kv_heads, taught.vocab_size, width) == (
        *(figures(model)[index] for index in (0, 1, 2, 3, 6)),
        widths["ffn"],
    )


def _taught(text: str) -> Any:
    ast.parse(text)
    module = ModuleType("torchtitan.models.llama3")
    vars(module).update(TransformerModelArgs=SimpleNamespace, llama3_args={})
    parents = ("torchtitan", "torchtitan.models", "torchtitan.models.llama3.model")
    names = {name: ModuleType(name) for name in (*parents, "torchtitan.models.llama3.model.args")}
    vars(names["torchtitan.models.llama3.model.args"]).update(RoPEScalingArgs=SimpleNamespace)
    before = {name: sys.modules.get(name) for name in (*names, module.__name__)}
    sys.modules.update({**names, module.__name__: module})
    try:
        exec(compile(text, "nest_torchtitan_model.py", "exec"), {})
    finally:
        for name, kept in before.items():
            if kept is None:
                del sys.modules[name]
            else:
                sys.modules[name] = kept
    return vars(module)["llama3_args"]["nest"]


def test_a_size_that_is_taught_rotates_as_the_configuration_says() -> None:
    """torchtitan stretches positions eightfold unless it is told otherwise (`RoPEScalingArgs`)."""
    source = {**resolve_model("llama-2-7b", None), "rope_theta": 20000, "rms_norm_eps": 1e-6}
    model = architecture_of(source)
    assert model is not None
    taught = _taught(registration(model, source))
    assert (taught.rope_theta, taught.norm_eps, taught.rope_scaling_args.scaling_factor) == (20000, 1e-6, 1)
    stretched = {**source, "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0}}
    assert _taught(registration(model, stretched)).rope_scaling_args.scaling_factor == 32


@pytest.mark.longer
def test_a_known_size_that_rotates_otherwise_is_told() -> None:
    document = published_plan("llama-3-8b")
    source = {**document.problem["model"], "rope_theta": 123456.0}
    files = torchtitan.export(evolve(document, problem={**document.problem, "model": source}))
    assert all("rope_theta 123456" in files[name] for name in ("torchtitan.toml", "torchtitan_plan.py"))


@pytest.mark.longer
def test_rotary_positions_without_a_field_are_told() -> None:
    stretched = {
        **resolve_model("phi-3-mini", None),
        "sliding_window": None,
        "rope_scaling": {"type": "longrope"},
        "partial_rotary_factor": 0.75,
    }
    files = torchtitan.export(nest.evaluate({**problem({"dp": 16, "zero": 3}), "model": stretched}))
    for name in ("torchtitan.toml", "torchtitan_plan.py"):
        assert "rope_scaling of type 'longrope' and partial_rotary_factor 0.75" in files[name]


@pytest.mark.longer
def test_each_version_gets_a_file_where_it_can_run_the_plan() -> None:
    both = parsed(torchtitan.export(plan({"dp": 16, "zero": 3})))
    assert {"torchtitan.toml", "torchtitan_plan.py"} <= set(both)
    whole_sequence = torchtitan.export(plan({"tp": 2, "dp": 8, "zero": 3}))
    assert set(whole_sequence) == {"torchtitan_plan.py"}
    assert "always comes with sequence parallelism" in whole_sequence["torchtitan_plan.py"]


SPLIT = {"tp": 2, "sp": True, "dp": 8, "ep": 2, "etp": 2, "zero": 3}


def test_experts_split_by_width_are_for_the_older_release() -> None:
    """torchtitan 0.3 has no degree for them: the target and the default export mean the newest release."""
    split = plan(SPLIT, SPARSE)
    with pytest.raises(InputError, match=r"does not split experts by width.*--for 0\.2"):
        nest.export(split, "torchtitan")
    assert set(nest.export(split, "torchtitan", release="0.2")) == {"torchtitan.toml"}
    targeted = {**problem({**SPLIT}, SPARSE), "search": {"target": "torchtitan"}}
    assert "torchtitan" not in nest.evaluate(targeted).runs_on
    whole = nest.export(plan({**SPLIT, "etp": 1}, SPARSE), "torchtitan")
    assert {"torchtitan_plan.py", "torchtitan.toml"} <= set(whole)


def test_logits_are_gathered_by_the_older_release_only() -> None:
    """torchtitan 0.3 always shares the loss (components/loss.py), and 0.2 unless `disable_loss_parallel` is set."""
    shared = problem({"tp": 2, "sp": True, "dp": 8, "zero": 3})
    gathering = nest.evaluate({**shared, "training": {**shared["training"], "loss_parallel": False}})
    with pytest.raises(InputError, match=r"no switch for loss_parallel.*--for 0\.2"):
        nest.export(gathering, "torchtitan")
    for made, expected in ((gathering, True), (nest.evaluate(shared), None)):
        written = parsed(nest.export(made, "torchtitan", release="0.2"))["torchtitan.toml"]
        assert written["parallelism"].get("disable_loss_parallel") is expected


@pytest.mark.longer
def test_a_plan_that_only_the_newest_release_runs_is_not_written_for_the_older() -> None:
    with pytest.raises(InputError, match="always comes with sequence parallelism"):
        nest.export(plan({"tp": 2, "dp": 8, "zero": 3}), "torchtitan", release="0.2")


@pytest.mark.longer
def test_a_size_nobody_registered_is_no_size_of_torchtitan() -> None:
    told = parsed(torchtitan.export(plan({"dp": 16, "zero": 3}, SPARSE)))["torchtitan.toml"]["model"]
    assert told["flavor"] == "nest"
    assert told["flavor"] not in {known.name for known in FLAVORS}


@pytest.mark.parametrize(
    "name", ["command-r", "deepseek-v3.2", "falcon-7b", "hunyuan-7b", "llama-4-scout", "olmo-2-7b"]
)
def test_blocks_built_otherwise_are_no_model_of_torchtitan(name: str) -> None:
    assert family(architecture_of(resolve_model(name, None))) is None


def test_windows_behind_the_first_layer_are_seen() -> None:
    config = {**resolve_model("qwen3-8b", None), "use_sliding_window": True, "sliding_window": 4096}
    assert family(architecture_of({**config, "max_window_layers": 36})) == "qwen3"
    assert family(architecture_of({**config, "max_window_layers": 35})) is None
