"""What releases of Megatron-Core refuse and take for granted: flags that start, and what is read of flags left out."""

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings

import nest
from frameworks_tests.megatron_plans import problems
from nest.deployment import Reading
from nest.errors import InputError
from nest.formulate.from_flags import start
from nest.hooks.pipelines import deployed
from nest.io import read_mapping, read_mapping_text
from nest.spec import PlanDocument
from nest_frameworks.megatron import bridge
from nest_frameworks.megatron.flags import export, flag_groups
from nest_frameworks.megatron.notation import given_flags
from nest_frameworks.megatron.parallel_flags import environment
from nest_frameworks.megatron.reading.read import read_megatron
from nest_frameworks.megatron.relatives import nemo, swift, verl
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


@pytest.mark.parametrize("loss", ["fused", "unfused"])
@pytest.mark.parametrize("module", [bridge, swift, verl, nemo])
def test_files_of_relatives_say_the_loss_that_was_priced(module: Any, loss: str) -> None:
    made = plan({"loss": loss, "overlap": {"tensor": False}}, LAYOUT)
    (text,) = module.export(made).values()
    assert module.read(text).settings["training"]["loss"] == loss


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
