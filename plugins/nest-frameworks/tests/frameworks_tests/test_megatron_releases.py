"""What releases of Megatron-Core refuse and take for granted: flags that start, and what is read of flags left out."""

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings

import nest
from frameworks_tests.megatron_plans import problems
from nest.deployment import LaunchOptions, Reading
from nest.errors import InputError
from nest.formulate.from_flags import start
from nest.hooks.pipelines import deployed
from nest.hooks.registry import registry
from nest.io import read_mapping, read_mapping_text
from nest.spec import PlanDocument
from nest_frameworks.megatron import bridge
from nest_frameworks.megatron.flags import export, flag_groups
from nest_frameworks.megatron.notation import given_flags
from nest_frameworks.megatron.parallel_flags import environment
from nest_frameworks.megatron.reading.read import read_megatron
from nest_frameworks.megatron.relatives import nemo, swift, verl
from nest_frameworks.releases import all_releases, releases_of
from tests.conformance.plans import DENSE_MODEL, problem

README = Path(__file__).parents[4] / "examples/llama-3-70b-on-128-h100/problem.yaml"
LAYOUT = {"tp": 2, "sp": True, "pp": 2, "dp": 4, "zero": 1}
FUSION, IMPLEMENTATION = "--cross-entropy-loss-fusion", "--cross-entropy-fusion-impl"


def plan(training: dict[str, Any], fixed: dict[str, Any]) -> PlanDocument:
    return nest.evaluate(problem(DENSE_MODEL, training, fixed))


def flags_of(made: PlanDocument) -> dict[str, Any]:
    return {flag: value for group in flag_groups(made).values() for flag, value in given_flags(group).items()}


def refusals(flags: dict[str, Any], variables: dict[str, str]) -> list[str]:
    """What `validate_args` of megatron-core 0.19.2 asserts, as far as a plan decides it."""
    sharded, strategy = "--use-megatron-fsdp" in flags, flags.get("--data-parallel-sharding-strategy")
    one = variables.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1"
    split = max(flags["--tensor-model-parallel-size"], flags["--context-parallel-size"]) > 1
    recomputed = flags.get("--recompute-granularity")
    rules = {
        "te": not (FUSION in flags and flags.get(IMPLEMENTATION) == "te"),
        "checkpoints": not sharded or flags.get("--ckpt-format") == "fsdp_dtensor",
        "optimizer": not sharded or flags["--optimizer"] in ("sgd", "adam"),
        "meta": not (sharded and "--init-model-with-meta-device" in flags and strategy in (None, "no_shard")),
        "connections": one != sharded or not (sharded or split),
        "gather": "--overlap-param-gather" not in flags
        or ("--overlap-grad-reduce" in flags and (sharded or "--use-distributed-optimizer" in flags)),
        "virtual": not (
            "--num-virtual-stages-per-pipeline-rank" in flags and "--pipeline-model-parallel-layout" in flags
        ),
        "length": flags["--max-position-embeddings"] >= flags["--seq-length"],
        "recompute": recomputed != "full" or {"--recompute-method", "--recompute-num-layers"} <= flags.keys(),
        "8 bits": "--fp8-param-gather" not in flags or sharded or "--use-distributed-optimizer" in flags,
    }
    return [name for name, kept in rules.items() if not kept]


@pytest.mark.longer
@settings(max_examples=25)
@given(problems())
def test_flags_are_none_that_the_newest_release_refuses(drawn: dict[str, Any]) -> None:
    made = nest.evaluate(drawn)
    variables, _ = environment(deployed(made))
    assert refusals(flags_of(made), variables) == []


@pytest.mark.longer
def test_native_cross_entropy_is_written_and_priced() -> None:
    fixed = {"tp": 4, "sp": True, "cp": 2, "pp": 4, "dp": 4, "micro_batch": 1, "zero": 1, "recompute": "none"}
    fixed |= {"schedule": "interleaved", "chunks": 8, "rank_order": "dp-inner"}
    model = read_mapping(README.parent / "config.json").mapping
    asked = {**read_mapping(README).mapping, "model": dict(model)}
    usual, unfused, fused = (
        nest.evaluate({**asked, "training": {**asked["training"], **said}}, fix=fixed)
        for said in ({}, {"loss": "unfused"}, {"loss": "fused"})
    )
    last, same, less = (each.stages[-1] for each in (usual, unfused, fused))
    assert last == same
    assert last.memory / 2**30 == pytest.approx(62.17, abs=0.01)
    assert less.memory / 2**30 == pytest.approx(61.81, abs=0.01)
    # The softmax in single precision, and its gradient in bf16, of 8192 / cp tokens and 128256 / tp words.
    assert last.memory_breakdown is not None
    assert last.memory_breakdown.transient == (4 + 2) * 8192 / 2 * 128256 / 4
    assert flags_of(usual)[IMPLEMENTATION] == "native"


@pytest.mark.longer
@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_the_native_fusion_which_rounds_gradients_to_bf16_is_left_out_of_other_precisions(precision: str) -> None:
    assert not {FUSION, IMPLEMENTATION} & flags_of(plan({"precision": precision}, LAYOUT)).keys()
    assert {FUSION, IMPLEMENTATION} <= flags_of(plan({}, LAYOUT)).keys()


def test_transformer_engine_s_cross_entropy_is_kept_for_those_that_run_it() -> None:
    made = plan({"loss": "fused", "overlap": {"tensor": False}}, LAYOUT)
    text = export(made)["megatron_flags.sh"]
    assert f"{IMPLEMENTATION} native" in text
    assert (
        "refuses since Megatron-Core 0.19. Its own, of these flags, keeps up to 1 MiB more on the last stage." in text
    )
    assert "Megatron-Core 0.19" not in export(plan({}, LAYOUT))["megatron_flags.sh"]
    overlay = read_mapping_text(bridge.export(made)["megatron_bridge.yaml"], "overlay.yaml")
    assert overlay["model"]["cross_entropy_fusion_impl"] == "te"
    assert read_mapping_text(swift.export(made)[swift.FILE], "swift.yaml")["cross_entropy_fusion_impl"] == "te"
    assert read_mapping_text(verl.export(made)[verl.FILE], "verl.yaml")["actor_rollout_ref"]["model"] == {
        "use_fused_kernels": True
    }


@pytest.mark.longer
@pytest.mark.parametrize("loss", ["fused", "unfused"])
@pytest.mark.parametrize("module", [bridge, swift, verl, nemo])
def test_files_of_relatives_say_the_loss_that_was_priced(module: Any, loss: str) -> None:
    made = plan({"loss": loss, "overlap": {"tensor": False}}, LAYOUT)
    (text,) = module.export(made).values()
    assert module.read(text).settings["training"]["loss"] == loss


@pytest.mark.longer
def test_a_plan_that_has_no_room_for_the_native_cross_entropy_is_refused() -> None:
    made = plan({"loss": "fused"}, {"dp": 16, "zero": 1})
    full = evolve(made, summary={**(made.summary or {}), "memory_capacity": made.stages[-1].memory + 2**20})
    with pytest.raises(InputError, match=r"keeps up to 2 MiB more, .* 1 MiB left: solve again with training.loss: unf"):
        export(full)
    assert "native" in export(made)["megatron_flags.sh"]


SCRIPT = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 8 --hidden-size 256 --num-attention-heads 8 --swiglu "
    "--ffn-hidden-size 1024 --vocab-size 1024 --seq-length 512 --max-position-embeddings 512 --micro-batch-size 1 "
    "--global-batch-size 32 --disable-bias-linear --normalization RMSNorm --position-embedding-type rope "
    "--untie-embeddings-and-output-weights --bf16 "
)


def read(*more: str) -> Reading:
    return read_megatron(SCRIPT + " ".join(more))


def test_the_cross_entropy_of_older_releases_is_priced_as_they_run_it(tmp_path: Path) -> None:
    found = read(FUSION, IMPLEMENTATION, "te")
    assert found.settings["training"]["loss"] == "fused"
    assert any("up to 0.18" in note and "refuses" in note for note in found.notes)
    (tmp_path / "run.sh").write_text(SCRIPT + f"{FUSION} {IMPLEMENTATION} te")
    begun = start(tmp_path / "run.sh", "megatron", cluster="Standard_ND96isr_H100_v5")
    assert begun.problem.training.loss == "fused"
    assert begun.opened("megatron").search.target == "megatron"
    assert read(FUSION, IMPLEMENTATION, "native").settings["training"]["loss"] == "unfused"
    assert read().settings["training"]["loss"] == "unfused"


def test_muon_is_read_with_the_settings_that_are_priced() -> None:
    """Others are refused: see findings/megatron-adaptive-muon-stops-at-its-first-step.sh."""
    found = read("--optimizer muon --muon-num-ns-steps 5 --muon-momentum 0.9").settings
    assert (found["training"]["optimizer"], found["fixed"]["zero"]) == ("muon", 0)
    (note,) = {*read("--optimizer muon --muon-no-split-qkv").notes} - {*read("--optimizer muon").notes}
    assert "nest prices steps on queries, keys and values apart" in note
    made = plan({"optimizer": "muon"}, {"tp": 2, "sp": True, "dp": 8, "zero": 0})
    text = export(made)["megatron_flags.sh"]
    assert "needs the package emerging-optimizers" in text
    assert read_megatron(text, LaunchOptions(2, 8)).settings["training"]["optimizer"] == "muon"
    for said, told in (
        ("muon --muon-num-ns-steps 8", "--muon-num-ns-steps is '8', and nest knows 5"),
        ("muon --muon-tp-mode duplicated", "nest knows blockwise"),
        ("muon --muon-scalar-optimizer lion", "nest knows adam"),
        ("muon --muon-fp32-matmul-prec high", "nest knows medium"),
        ("muon --use-distributed-optimizer", "distributed-optimizer gives every rank whole matrices of Muon"),
        ("muon --use-megatron-fsdp", "--use-megatron-fsdp has no Muon; leave it out"),
        ("muon --use-torch-fsdp2", "--use-torch-fsdp2 has no Muon; leave it out"),
        *((each, "nest knows adam, sgd, muon") for each in ("adaptive_muon", "dist_muon", "lion", "soap")),
    ):
        with pytest.raises(InputError, match=told):
            read(f"--optimizer {said}")


SHARDED = "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 2 " \
    "--seq-length 64 --max-position-embeddings 64 --vocab-size 64 --micro-batch-size 1 --global-batch-size 8 --bf16 " \
    "--use-megatron-fsdp --use-distributed-optimizer"  # fmt: skip
STRATEGY = "--data-parallel-sharding-strategy"
SUMS = "--megatron-fsdp-main-grads-dtype"


DEFAULTS: list[tuple[str | None, str, int, str | None]] = [
    ("0.16", "", 0, None),
    ("0.17.1", "", 0, None),
    ("0.18", "", 3, None),
    ("0.19", "", 3, "bf16"),
    (None, "", 3, "bf16"),
    ("0.16", f"{STRATEGY} optim_grads_params", 3, None),
    ("0.19", f"{STRATEGY} optim_grads", 2, "bf16"),
    ("0.19", f"{STRATEGY} no_shard {SUMS} fp32", 0, None),
    ("0.19", f"{SUMS} fp32", 3, None),
    ("0.18", f"{SUMS} bf16", 3, "bf16"),
]
"""Release, flags, and what a script with them does."""


@pytest.mark.parametrize(("release", "said", "zero", "gradients"), DEFAULTS)
def test_defaults_are_those_of_the_release(release: str | None, said: str, zero: int, gradients: str | None) -> None:
    """findings/megatron-fsdp-adds-up-gradients-in-bf16.sh."""
    found = read_megatron(f"{SHARDED} {said}", LaunchOptions(release=release))
    assert found.settings["fixed"]["zero"] == zero
    assert found.settings["training"].get("gradients") == gradients
    assumed = [note for note in found.notes if "is read as Megatron-Core" in note]
    assert len(assumed) == (STRATEGY not in said) + (SUMS not in said)
    plain = (release or "0.19")[:4]
    assert all(f"read as Megatron-Core {plain} does" in note for note in assumed)


def test_every_changed_default_is_tried_before_and_after_with_its_flag_and_without() -> None:
    releases = releases_of("megatron")
    for change in releases.changes:
        tried = {(releases.has(change, releases.named(each)), change.setting in said) for each, said, *_ in DEFAULTS}
        assert change.kind != "default" or len(tried) == 4, change


@pytest.mark.parametrize("line", ["git checkout core_r0.16.0", "pip install megatron-core==0.16.1", "# core_v0.16.1"])
def test_the_release_that_a_script_names_counts(line: str) -> None:
    found = read_megatron(f"{line}\n{SHARDED}\n")
    assert found.settings["fixed"]["zero"] == 0
    assert any("Megatron-Core 0.16, which the file names" in note for note in found.notes)
    both = read_megatron(f"{line}\n# or core_v0.18.0\n{SHARDED}\n")
    assert both.settings["fixed"]["zero"] == 3
    said = read_megatron(f"{line}\n{SHARDED}\n", LaunchOptions(release="0.18"))
    assert said.settings["fixed"]["zero"] == 3


def test_an_unknown_release_is_refused() -> None:
    with pytest.raises(InputError, match=r"--for 0\.15: nest knows megatron-core 0\.19, 0\.18, 0\.17, 0\.16\."):
        read_megatron(SHARDED, LaunchOptions(release="0.15"))


def test_older_forms_have_no_newer_flags_and_keep_what_was_refused_later() -> None:
    made = plan({"stack": "megatron-core", "loss": "fused"}, {"tp": 2, "sp": True, "dp": 8, "zero": 3})
    exporter = registry().exporters()["megatron"]
    text = {release: exporter.for_release(release).export(made)["megatron_flags.sh"] for release in exporter.releases}
    assert list(text) == ["0.19", "0.18", "0.17", "0.16"]
    assert text["0.19"] == export(made)["megatron_flags.sh"]
    assert [SUMS in text[release] for release in text] == [True, True, True, False]
    assert [f"{IMPLEMENTATION} te" in text[release] for release in text] == [False, True, True, True]
    assert all(f"{STRATEGY} optim_grads_params" in each for each in text.values())


@pytest.mark.longer
def test_what_is_written_for_a_release_is_read_as_of_it() -> None:
    made = plan({"stack": "megatron-core"}, {"tp": 2, "sp": True, "dp": 8, "zero": 3})
    for release in releases_of("megatron").releases:
        text = export(made, release)["megatron_flags.sh"]
        found = read_megatron(text, LaunchOptions(2, 8, release=release))
        assert found.settings["fixed"]["zero"] == 3
        assert found.settings["training"].get("gradients") is None


@pytest.mark.longer
def test_torchtitan_s_files_are_those_of_the_release() -> None:
    made = nest.evaluate(problem(DENSE_MODEL, {}, {"tp": 2, "sp": True, "pp": 2, "dp": 4, "zero": 1}))
    exporter = registry().exporters()["torchtitan"]
    files = {release: set(exporter.for_release(release).export(made)) for release in exporter.releases}
    assert "torchtitan.toml" in files["0.2"] - files["0.3"]
    assert "torchtitan_plan.py" in files["0.3"] - files["0.2"]
    assert files["0.2"] | files["0.3"] == set(exporter.export(made))


@pytest.mark.parametrize("name", sorted(all_releases()))
def test_changes_are_of_releases_that_are_known(name: str) -> None:
    found = releases_of(name)
    assert found.named(None) == found.releases[0]
    assert found.tried is None or name == "pytorch" or found.named(found.tried) == found.newest
    assert {change.kind for change in found.changes} <= {"default", "added", "renamed", "removed", "refused", "value"}
    assert all(found.named(change.since) == change.since for change in found.changes)
    assert name in registry().exporters()


@pytest.mark.longer
def test_yarn_is_written_where_the_release_has_its_flags() -> None:
    config = {"model_type": "qwen3", "num_hidden_layers": 8, "hidden_size": 256, "num_attention_heads": 8}
    config |= {"num_key_value_heads": 4, "intermediate_size": 1024, "vocab_size": 1024, "head_dim": 32}
    config |= {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}}
    made = nest.evaluate({**problem({}, {}, LAYOUT), "model": config})
    now, before = export(made)["megatron_flags.sh"], export(made, "0.18")["megatron_flags.sh"]
    assert "--position-embedding-type yarn" in now
    assert "--yarn-original-max-position-embeddings 128" in now
    assert "--position-embedding-type rope" in before
    assert "--yarn" not in before.replace("lacks --yarn-original-max-position-embeddings", "")
    assert "megatron-core 0.18 lacks --yarn-original-max-position-embeddings" in before
    with pytest.raises(InputError, match="NeMo cannot train this"):
        nemo.export(made)
    again = read_megatron(now, LaunchOptions(2, 8))
    assert "rope" not in str(again.notes)
