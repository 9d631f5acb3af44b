"""Plans that recompute some blocks of each stage: exporters write them and readers find them, or they are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

import nest
from frameworks_tests.plans import assert_same_run, plan, problem
from frameworks_tests.reading import parsed
from frameworks_tests.test_relatives import FRAMEWORKS, back
from nest.errors import InputError
from nest.formulate.from_flags import start
from nest.formulate.problem import whole_problem
from nest.formulate.target import with_target
from nest.hooks.pipelines import deployed
from nest.hooks.registry import registry
from nest.spec import PlanDocument
from nest_frameworks import Framework, nest_exporters
from nest_frameworks.galvatron import JSON_FILE
from nest_frameworks.torchtitan.reading import read as read_torchtitan

EXPORTERS = {each.name: each for each in nest_exporters()}
TAKE = {"megatron", "megatron-bridge", "nemo", "verl", "ms-swift", "pytorch", "lightning", "galvatron"}
"""Frameworks whose files say how many blocks are recomputed."""

LAYOUTS: tuple[dict[str, Any], ...] = (
    {"pp": 2, "dp": 8, "zero": 1},
    {"dp": 16, "zero": 3},
    {"dp": 16, "zero": 2},
    {"dp": 16, "zero": 0},
)
"""One of which each framework runs."""


def pair(name: str) -> tuple[PlanDocument, PlanDocument]:
    """A plan that a framework runs and that recomputes every block, and one that recomputes three of each stage."""
    stack = "fsdp" if name in ("torchtitan", "accelerate", "axolotl", "transformers", "lightning", "pytorch") else None
    for layout in LAYOUTS:
        fixed = {**layout, "micro_batch": 1, "recompute": "full", **({"pp": 1} if "pp" not in layout else {})}
        whole = plan(fixed, **({"stack": stack} if stack else {}))
        try:
            EXPORTERS[name].export(whole)
        except InputError:
            continue
        return whole, nest.evaluate(whole.problem, fix={**fixed, "recompute_layers": 3})
    raise AssertionError(f"{name} runs none of these layouts")


@pytest.mark.longer
@pytest.mark.parametrize("name", [name for name, each in EXPORTERS.items() if isinstance(each, Framework)])
def test_every_framework_is_told_how_many_blocks_or_refuses(name: str, tmp_path: Path) -> None:
    whole, part = pair(name)
    if name not in TAKE:
        with pytest.raises(InputError, match=r"^stage 1 recomputes 3 of its blocks, but .* recomputes all or none\.$"):
            EXPORTERS[name].export(part)
        return
    files = EXPORTERS[name].export(part)
    assert files != EXPORTERS[name].export(whole)
    if name in FRAMEWORKS:
        again = back(name, part, tmp_path)
        assert again is not None
        assert_same_run(part, again)
    elif name == "megatron":
        for file, text in files.items():
            (tmp_path / file).write_text(text)
            (tmp_path / "cluster.json").write_text(json.dumps({"cluster": part.problem["cluster"]}))
            found = start(tmp_path / file, name, cluster=str(tmp_path / "cluster.json"))
            assert_same_run(part, nest.evaluate(found.problem, fix={"dp": deployed(part).data_parallel}))


@pytest.mark.parametrize(
    ("stack", "target"),
    [("megatron-core", "megatron"), ("fsdp", "pytorch"), ("deepspeed", "none"), ("maxtext", "none")],
)
@pytest.mark.parametrize("asked", ["search", "fixed"])
def test_the_usual_target_has_what_is_asked(asked: str, stack: str, target: str) -> None:
    begun = problem({}, stack=stack)
    if asked == "search":
        begun["search"] = {"recompute_layers": True}
    else:
        begun["fixed"] = {"recompute": "full", "recompute_layers": 3}
    found, _ = with_target(*whole_problem(begun, registry()), registry())
    assert found.search.target == target


@pytest.mark.longer
def test_each_stage_recomputes_as_many_as_it_says() -> None:
    part = pair("galvatron")[1]
    uneven = evolve(part, stages=(part.stages[0], evolve(part.stages[1], recompute_layers=1)))
    assert parsed(EXPORTERS["galvatron"].export(uneven))[JSON_FILE]["checkpoint"] == "1,1,1,0,1,0,0,0"
    assert parsed(EXPORTERS["pytorch"].export(uneven))["pytorch_plan.py"]["RECOMPUTE_LAYERS"] == [3, 1]
    with pytest.raises(InputError, match=r"differ in their recompute mode \(full in the first 3 blocks, full in"):
        EXPORTERS["megatron"].export(uneven)


def test_the_other_blocks_keep_what_the_framework_keeps() -> None:
    fixed = {"pp": 2, "dp": 8, "micro_batch": 1, "zero": 1, "recompute": "full", "recompute_layers": 3}
    part = plan({**fixed, "recompute_rest": "selective"})
    told = "stage 1 recomputes 3 of its blocks ('full' beside 'selective'), but Megatron-LM has 'full' beside 'none'"
    with pytest.raises(InputError) as error:
        EXPORTERS["megatron"].export(part)
    assert told in str(error.value)


@pytest.mark.longer
def test_megatron_counts_blocks_in_each_chunk() -> None:
    fixed = {"pp": 2, "dp": 8, "chunks": 2, "micro_batch": 1, "zero": 1, "recompute": "full", "recompute_layers": 1}
    part = plan(fixed, schedule=["interleaved"])
    text = EXPORTERS["megatron"].export(part)["megatron_args.yaml"]
    given = parsed({"megatron_args.yaml": text})["megatron_args.yaml"]["MODEL_ARGS"]
    assert (given["--recompute-method"], given["--recompute-num-layers"]) == ("block", 1)
    assert (
        parsed(EXPORTERS["galvatron"].export(plan({**fixed, "chunks": 1, "recompute_layers": 2})))[JSON_FILE][
            "checkpoint"
        ]
        == "1,1,0,0,1,1,0,0"
    )


@pytest.mark.longer
def test_megatron_leaves_layers_that_predict_further_tokens() -> None:
    """With `block` it keeps all of theirs, with `uniform` nothing."""
    predicting = {"layers": 7, "hidden": 512, "ffn": 1536, "heads": 8, "vocab": 4096, "mtp_layers": 1}
    fixed = {"pp": 2, "dp": 8, "micro_batch": 1, "zero": 1, "stages": [4, 4], "recompute": "full"}
    whole, most = plan(fixed, predicting), plan({**fixed, "recompute_layers": 3}, predicting)
    assert most.stages[1].time < whole.stages[1].time
    EXPORTERS["megatron"].export(whole)
    with pytest.raises(InputError, match="Megatron-LM recomputes all or none"):
        EXPORTERS["megatron"].export(most)


def test_a_file_decides_the_number_of_blocks(tmp_path: Path) -> None:
    """What the problem has decided of it is out of force, as the file's mode has no such number."""
    asked = problem({"recompute": "full", "recompute_layers": 3, "recompute_rest": "none"})
    (tmp_path / "problem.json").write_text(json.dumps({**asked, "cluster": {**asked["cluster"]}}))
    (tmp_path / "flags.sh").write_text("torchrun --nproc-per-node 8 pretrain_gpt.py --micro-batch-size 1")
    found = start(tmp_path / "flags.sh", "megatron", tmp_path / "problem.json")
    assert found.problem.decided["recompute"] == "none"
    assert "recompute_layers" not in found.problem.decided
    assert nest.evaluate(found.problem).stages[0].recompute_layers is None


TITAN = """
[model]
flavor = "8B"
[parallelism]
data_parallel_shard_degree = 2
{}
[activation_checkpoint]
mode = "selective"
selective_ac_option = "{}"
"""


@pytest.mark.parametrize(
    ("parallelism", "option", "recompute", "layers", "told"),
    [
        ("", "1", "full", None, ""),
        ("", "0", "full", None, ""),
        ("", "2", "full", 16, "runs 16 blocks of each part of the model again"),
        ("", "5", "full", 6, "as if they were the first 6"),
        ("", "33", "none", None, "runs 0 blocks"),
        ("pipeline_parallel_degree = 4", "3", "full", 2, "runs 2 to 3 blocks"),  # Of 8, 9, 8 and 7.
        ("pipeline_parallel_degree = 4\npipeline_parallel_schedule = 'Interleaved1F1B'", "2", "full", 1, "1 to 2"),
        ("pipeline_parallel_degree = 4\npipeline_parallel_schedule = 'ZBVZeroBubble'", "9", "none", None, "0 to 1"),
        ("", "op", "selective", None, "priced as nest's selective"),
    ],
)
def test_every_nth_block_of_torchtitan_is_counted_rank_by_rank(
    parallelism: str, option: str, recompute: str, layers: int | None, told: str
) -> None:
    found = read_torchtitan(TITAN.format(parallelism, option))
    assert found.settings["fixed"]["recompute"] == recompute
    assert found.settings["fixed"].get("recompute_layers") == layers
    assert told in " ".join(found.notes)


def test_schedules_shaped_like_a_v_have_two_chunks_a_stage() -> None:
    text = TITAN.format("pipeline_parallel_degree = 2\npipeline_parallel_schedule = 'ZBVZeroBubble'", "2")
    with pytest.raises(InputError, match="9 parts of the model do not fit 2 pipeline stages"):
        read_torchtitan(text.replace("[activation", "pipeline_parallel_layers_per_stage = 4\n[activation"))


RECIPE = """
model: {tensor_model_parallel_size: 1, pipeline_model_parallel_size: 1, context_parallel_size: 1,
  sequence_parallel: false, recompute_granularity: full, recompute_method: block, recompute_num_layers: 5}
train: {global_batch_size: 128, micro_batch_size: 1}
dataset: {seq_length: 8192}
mixed_precision: bf16_with_fp8_current_scaling_mixed
optimizer: {use_distributed_optimizer: true}
ddp: {use_distributed_optimizer: true}
"""
"""Llama 3 8B on 8 H100 in fp8 (Megatron-Bridge 0.6.2, perf_recipes/llama/h100/llama3.py)."""


@pytest.mark.longer
def test_a_published_run_that_recomputes_5_of_32_layers_is_priced_so(tmp_path: Path) -> None:
    (tmp_path / "overlay.yaml").write_text(RECIPE)
    asked = {"nest": 1, "model": "llama-3-8b", "cluster": "dgx-h100-superpod-8"}
    found = start(tmp_path / "overlay.yaml", "megatron-bridge", asked)
    part, none, whole = (
        nest.evaluate(found.problem, fix=fix)
        for fix in ({}, {"recompute": "none"}, {"recompute": "full", "recompute_layers": 32})
    )
    assert part.stages[0].recompute_layers == 5
    again = [each.batch_time - none.batch_time for each in (part, whole)]
    assert again[0] == pytest.approx(again[1] * 5 / 32, rel=0.01)
    held = [none.stages[0].memory - each.stages[0].memory for each in (part, whole)]
    assert 0 < held[0] < held[1]
