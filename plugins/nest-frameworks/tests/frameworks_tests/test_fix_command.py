"""`nest fix`: what to change in a run, as a diff of its flags."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from frameworks_tests.test_from_megatron_command import CLUSTER, SCRIPT
from nest import api
from nest.hooks.registry import registry
from nest.report.changed_lines import changed_lines, content_of
from nest_frameworks.spelling import spelled
from tests.command_line import call

LARGE = (
    SCRIPT.replace("--num-layers 8 --hidden-size 256", "--num-layers 16 --hidden-size 2048")
    .replace("--seq-length 512", "--seq-length 4096")
    .replace("--max-position-embeddings 512", "--max-position-embeddings 4096")
)
Fixed = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fixed:
    """Exit code, the document and the text of `nest fix` for a script on devices of some memory."""

    def run(
        script: str = LARGE, memory: str = "80 GiB", problem: str = "", told: bool = True
    ) -> tuple[int, dict[str, Any], str]:
        file, cluster, stated = (tmp_path / name for name in ("run.sh", "cluster.yaml", "problem.yaml"))
        file.write_text(script)
        cluster.write_text(f"{CLUSTER}  memory: {memory}\n")
        stated.write_text(problem)
        arguments = ("fix", str(file), *([str(stated)] * bool(problem)), "--cluster", str(cluster))
        arguments = (*arguments, "--vocabulary", "32000")
        code = call(monkeypatch, *arguments, "--json")
        document = json.loads(capsys.readouterr().out)
        if not told:
            return code, document, ""
        assert call(monkeypatch, *arguments) == code
        return code, document, capsys.readouterr().out

    return run


@pytest.mark.longer
def test_a_run_that_does_not_fit_gets_three_changes_that_do(fixed: Fixed) -> None:
    code, document, text = fixed(LARGE.replace("--micro-batch-size 1", "--micro-batch-size 4"), "4 GiB")
    assert code == 0
    assert not document["fits"]
    changes = document["changes"]
    assert len(changes) == 3
    assert len({tuple(each["decided"]) for each in changes}) == 3
    ordered = []
    for each in changes:
        flags = {line.split()[0] for lines in each["flags"].values() for line in lines}
        ordered.append((len(flags), each["batch_time"]))
        assert each["fit_probability"] >= 0.8 - 1e-9
        again = api.evaluate({**document["plan"]["problem"], "fixed": _fixed(document, each)})
        assert again.batch_time == pytest.approx(each["batch_time"], rel=1e-12)
    assert all(first <= second for first, second in pairwise(ordered))
    assert "does not fit" in text
    for line in ("Nearest changes that fit:", "    - --micro-batch-size 4\n    + --micro-batch-size "):
        assert line in text


def _fixed(document: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """All that a change decides, data parallelism as it follows on the 16 devices."""
    now = {**document["plan"]["problem"]["fixed"], **change["decided"]}
    return now | {"dp": 16 // (now["tp"] * now["cp"] * now["pp"])}


FULL = LARGE.replace("--micro-batch-size 1", "--micro-batch-size 4")


def _lines(document: dict[str, Any], kind: str) -> list[str]:
    return [line for each in document["changes"] for line in each["flags"][kind]]


@pytest.mark.longer
def test_changes_keep_what_the_problem_demands(fixed: Fixed) -> None:
    stated = "constraints: [micro_batch == 4]\nstrategies: {cp: [1]}\nsearch: {zero: [0]}\n"
    code, document, _ = fixed(FULL, "4 GiB", stated, told=False)
    assert code == 0
    assert document["changes"]
    assert not {"micro_batch", "cp", "zero"} & {name for each in document["changes"] for name in each["decided"]}


@pytest.mark.longer
def test_a_change_is_no_larger_than_it_must_be(fixed: Fixed) -> None:
    """With one replica ZeRO changes nothing: a smaller micro-batch alone is as good."""
    _, document, _ = fixed(FULL, "4 GiB", "search: {recompute: [none]}\nstrategies: {tp: [8], cp: [1]}\n", told=False)
    pairs = [(one, other) for one in document["changes"] for other in document["changes"]]
    assert len(pairs) > 1
    for one, other in pairs:
        if one["decided"].items() < other["decided"].items():
            assert other["batch_time"] < one["batch_time"]


KEPT = {"recompute": "none", "zero": 0}
NEMO = "model:\n  tensor_model_parallel_size: 2\n  global_batch_size: 8\n"
SWIFT = (
    "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-8B --tensor_model_parallel_size 2 --sequence_parallel true "
    "--micro_batch_size 8 --global_batch_size 64 --max_length 8192 --recompute_granularity none\n"
)
REFUSED = FULL.rstrip().removesuffix("\\") + " --optimizer sgd --use-distributed-optimizer\n"
"""nest writes no such file: the distributed optimizer is Adam's."""


@pytest.mark.longer
def test_a_run_that_nest_would_not_write_gets_flags_of_each_decision(fixed: Fixed) -> None:
    code, document, _ = fixed(REFUSED, "4 GiB", told=False)
    assert code == 0
    assert len(document["changes"]) == 3
    for each in document["changes"]:
        assert all(line.startswith("--") for lines in each["flags"].values() for line in lines)
        assert api.evaluate({**document["plan"]["problem"], "fixed": _fixed(document, each)}).fits


@pytest.mark.longer
def test_changes_that_have_no_lines_have_words_if_no_others_fit(fixed: Fixed) -> None:
    """Without a global batch in the script, other micro-batches would change it."""
    script = REFUSED.replace("--global-batch-size 32", "")
    stated = "training: {global_batch: 32}\nsearch: {recompute: [none]}\n"
    code, document, text = fixed(script, "4 GiB", stated)
    assert code == 0
    assert document["changes"]
    assert all(line[0] != "-" for each in document["changes"] for line in each["flags"]["added"])
    assert "Nearest changes that fit:" in text


@pytest.mark.parametrize(
    ("framework", "text", "decided", "lines"),
    [
        ("megatron", FULL, {"tp": 4, "sp": True}, ["--tensor-model-parallel-size 4", "--sequence-parallel"]),
        ("megatron", FULL, {"pp": 4, "micro_batch": 2}, ["--pipeline-model-parallel-size 4", "--micro-batch-size 2"]),
        ("megatron", FULL, KEPT, []),
        ("megatron", FULL, {"zero": 1}, ["--use-distributed-optimizer"]),
        ("megatron", FULL, {"zero": 2}, []),
        ("megatron", f"{FULL} --decoder-first-pipeline-num-layers 4", {"pp": 4}, []),
        ("megatron", FULL, {"chunks": 2, "schedule": "interleaved"}, ["--num-virtual-stages-per-pipeline-rank 2"]),
        ("megatron", REFUSED, {"overlap.data": True}, ["--overlap-grad-reduce", "--overlap-param-gather"]),
        ("megatron", "tensor_model_parallel_size: 2\nglobal_batch_size: 8\n", {"tp": 4},
         ["tensor_model_parallel_size: 4"]),
        ("ms-swift", SWIFT, {"recompute": "none", "ep": 2},
         ["--expert_model_parallel_size 2", "--recompute_granularity none"]),
        ("ms-swift", SWIFT, {"tp": 4}, ["--tensor_model_parallel_size 4"]),
        ("nemo", NEMO, {"tp": 4}, ["tensor_model_parallel_size: 4"]),
        ("nemo", NEMO, {"tp": 4, "zero": 0}, []),
    ],
)  # fmt: skip
def test_decisions_have_flags_of_their_own(
    framework: str, text: str, decided: dict[str, Any], lines: list[str]
) -> None:
    exporter: Any = registry().exporters()[framework]
    keys = exporter.keys_of(decided, 8, text)
    assert (list(content_of(keys)[-len(lines) :]), keys == "") == (lines, not lines and decided != KEPT)


@pytest.mark.longer
def test_removed_flags_are_those_of_the_script(fixed: Fixed) -> None:
    """The exporter writes the stages of this run as a layout, which the script does not."""
    stages = "--decoder-first-pipeline-num-layers 7 --decoder-last-pipeline-num-layers 9 "
    full = (
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 --use-distributed-optimizer"
    )
    script = LARGE.replace("parallel-size 8 --sequence-parallel", f"parallel-size 1 {full} {stages}")
    _, document, _ = fixed(script, "5 GiB", told=False)
    assert document["changes"]
    assert all(line.split()[0] in script for line in _lines(document, "removed"))
    assert all(line.startswith("--") for line in _lines(document, "added"))


VERL = (
    "python3 -m verl.trainer.main_ppo +actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 trainer.nnodes=1 "
    "actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.actor.strategy=megatron data.max_prompt_length=4096\n"
)
DYNAMIC = f"actor_rollout_ref.actor.use_dynamic_bsz=True {VERL}"
LENGTHS = "data:\n  max_prompt_length: 1000\n  max_response_length: 25\n"
SHARED = "    megatron:\n      context_parallel_size: 2\n"
FLAGS = "ARGS=(\n  --micro-batch-size 8\n)\n"
YAML = "micro_batch_size: 8\nppo_micro_batch_size_per_gpu: 8\nuse_swiglu: true\n"
NESTED = "actor_rollout_ref:\n  actor:\n    ppo_micro_batch_size_per_gpu: 8\n"


@pytest.mark.parametrize(
    ("content", "text", "line"),
    [
        (YAML, SWIFT, "--micro_batch_size 8"),
        (YAML, SWIFT.replace("true", "True"), "--use_swiglu True"),
        (NESTED, VERL, "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8"),
        (LENGTHS + NESTED, DYNAMIC, "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8200"),
        (LENGTHS + NESTED + SHARED, DYNAMIC, "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=4100"),
        (LENGTHS + NESTED, f"critic.use_dynamic_bsz=True {VERL}",
         "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8"),
        (FLAGS, "overrides:\n  micro_batch_size: 8\n", "micro_batch_size: 8"),
        (FLAGS, "MODEL_ARGS:\n  --micro-batch-size: 8\n", "--micro-batch-size: 8"),
        (FLAGS, "torchrun pretrain_gpt.py --micro-batch-size 8\n", "--micro-batch-size 8"),
        ("ici_fsdp_parallelism=8\n", "model_name: llama2-7b\n", "ici_fsdp_parallelism: 8"),
        ('{\n  "bf16": true\n}\n', "bf16: true\n", "bf16: true"),
        ('{\n  "bf16": true\n}\n', '{"bf16": true}\n', '"bf16": true'),
        ('{\n  "bf16": true\n}\n', "torchrun train.py --bf16 True --fsdp full_shard\n", "--bf16 True"),
        ("[training]\nlocal_batch_size = 2\n", "[training]\nlocal_batch_size = 2\n", "local_batch_size = 2"),
    ],
)  # fmt: skip
def test_changes_are_spelled_as_in_the_users_file(content: str, text: str, line: str) -> None:
    assert line in [each.strip().rstrip(",") for each in spelled(content, text).splitlines()]


def test_a_removed_word_is_that_of_the_script_without_the_end_of_its_line() -> None:
    before, after = (("run.yaml", (f"tokens={count}",), ()) for count in (10240, 4096))
    assert changed_lines(before, after, "train \\\n  tokens=12000 \\\n", batches=False) == (
        ("tokens=12000",),
        ("tokens=4096",),
    )


def test_a_micro_batch_that_verl_ignores_is_not_written() -> None:
    exporter: Any = registry().exporters()["verl"]
    text = VERL.replace("megatron", "fsdp")
    assert exporter.keys_of({"micro_batch": 2}, 8, text) == "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2"
    assert exporter.keys_of({"micro_batch": 2}, 8, f"{text} actor_rollout_ref.actor.use_dynamic_bsz=True") == ""


@pytest.mark.longer
@pytest.mark.parametrize(("reader", "text"), [("ms-swift", SWIFT), ("verl", VERL)])
def test_removed_words_of_a_script_stand_in_it(
    reader: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.sh").write_text(text)
    asked = ("fix", str(tmp_path / "run.sh"), "--from", reader, "--nodes", "1", "--cluster", "dgx-h100-superpod")
    assert call(monkeypatch, *asked, "--json") == 0
    changes = json.loads(capsys.readouterr().out)["changes"]
    assert changes
    assert all(line in text for each in changes for line in each["flags"]["removed"])


@pytest.mark.longer
def test_a_change_of_a_second_file_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ZeRO is in the file of DeepSpeed that the trainer's file names."""
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 0}, "bf16": {"enabled": true}}')
    file, cluster = tmp_path / "run.yaml", tmp_path / "cluster.yaml"
    cluster.write_text(f"{CLUSTER}  memory: 7 GiB\n")
    trainer = "model_name_or_path: Qwen/Qwen3-0.6B\nfinetuning_type: full\ncutoff_len: 512\nbf16: true\n"
    file.write_text(f"{trainer}per_device_train_batch_size: 16\ndeepspeed: ds.json\n")
    assert call(monkeypatch, "fix", str(file), "--cluster", str(cluster), "--reader", "llama-factory", "--json") == 0
    changes = json.loads(capsys.readouterr().out)["changes"]
    with_zero = [each for each in changes if "zero" in each["decided"]]
    assert with_zero
    for each in with_zero:
        assert f"ds.json zero_optimization.stage: {each['decided']['zero']}" in each["flags"]["added"]
        assert "ds.json zero_optimization.stage: 0" in each["flags"]["removed"]


@pytest.mark.longer
def test_changes_are_those_that_the_release_of_the_file_can_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """TOML is of torchtitan 0.2, which trains in single precision where FSDP shards nothing."""
    file, cluster = tmp_path / "run.toml", tmp_path / "cluster.yaml"
    cluster.write_text(f"{CLUSTER}  memory: 80 GiB\n")
    training = "[training]\nlocal_batch_size = 4\nseq_len = 8192\n"
    parallelism = "[parallelism]\ntensor_parallel_degree = 2\ndata_parallel_shard_degree = -1  # all\n"
    file.write_text(f'[model]\nname = "llama3"\nflavor = "8B"\n{training}{parallelism}')
    asked = ("fix", str(file), "--cluster", str(cluster), "--nodes", "1")
    assert call(monkeypatch, *asked, "--json") == 0
    changes = json.loads(capsys.readouterr().out)["changes"]
    assert changes
    for each in changes:
        assert all(" = " in line for lines in each["flags"].values() for line in lines)
        assert all(line in file.read_text() for line in each["flags"]["removed"])
    assert call(monkeypatch, *asked) == 0
    assert all(line.count(" = ") <= 1 for line in capsys.readouterr().out.splitlines())


STEPS = "gradient_accumulation_steps: 8\n"
TRAINER = "model_name_or_path: Qwen/Qwen3-0.6B\nbf16: true\ncutoff_len: 2048\nfinetuning_type: lora\nlora_target: all\n"


@pytest.mark.longer
@pytest.mark.parametrize(
    ("reader", "text"),
    [
        ("llama-factory", f"{TRAINER}quantization_bit: 4\nper_device_train_batch_size: 1\n{STEPS}"),
        ("axolotl", f"base_model: Qwen/Qwen3-0.6B\nadapter: lora\nlora_target_linear: true\nsequence_len: 2048\n{STEPS}"
         "bf16: true\nmicro_batch_size: 1\ngradient_checkpointing: true\n"),
        ("verl", VERL.replace("strategy=megatron", "strategy=fsdp").replace("gpu=8", "gpu=1")),
        ("megatron", f"{LARGE.strip()} --deepspeed --zero-stage 1\n".replace("--bf16", "--fp16")),
    ],
)  # fmt: skip
def test_changes_have_keys_of_the_framework_and_its_back_end(
    reader: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    asked = (
        "fix",
        str(file),
        "--from",
        reader,
        "--cluster",
        "dgx-h100-superpod",
        "--vocabulary",
        "32000",
        "--nodes",
        "2",
    )
    assert call(monkeypatch, *asked, "--json") == 0
    changes = json.loads(capsys.readouterr().out)["changes"]
    assert changes
    own = (
        "disable_gradient_checkpointing",
        "actor_rollout_ref.model.enable_gradient_checkpointing",
        "--tensor-model-parallel-size",
        "--pipeline-model-parallel-size",
    )
    for each in changes:
        for line in (*each["flags"]["removed"], *each["flags"]["added"]):
            name = line.replace("=", " ").replace(": ", " ").split()[0]
            assert name in (*own, *text.replace(":", " ").replace("+", " ").replace("=", " ").split())


def test_a_reader_that_is_none_is_named_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.sh"
    file.write_text(SCRIPT)
    assert call(monkeypatch, "fix", str(file), "--cluster", "p5.48xlarge", "--reader", "trainer") == 2
    told = capsys.readouterr().err
    assert "run.sh: there is no plan reader called 'trainer'" in told
    assert "--from" not in told


@pytest.mark.longer
def test_a_run_that_fits_gets_single_changes_that_gain(fixed: Fixed) -> None:
    code, document, text = fixed()
    assert code == 0
    assert document["fits"]
    now = document["plan"]["batch_time"]
    assert document["changes"]
    for each in document["changes"]:
        assert each["batch_time"] < 0.99 * now
    assert "Single changes that gain more than 1 %:" in text
    assert text.index("less)") > 0


@pytest.mark.longer
def test_nothing_fits_where_the_model_has_no_room(fixed: Fixed) -> None:
    code, document, text = fixed(memory="1200 MiB")
    assert code == 1
    assert document["changes"] == []
    assert "nest knows no change of up to three flags that is 80 % likely to fit." in text


@pytest.mark.longer
def test_a_file_of_an_unknown_framework_asks_for_its_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("model_name_or_path: Qwen/Qwen3-0.6B\nfinetuning_type: full\ncutoff_len: 512\nbf16: true\n")
    assert call(monkeypatch, "fix", str(file), "--cluster", "p5.48xlarge") == 2
    assert "give --from NAME" in capsys.readouterr().err
    assert call(monkeypatch, "fix", str(file), "--cluster", "p5.48xlarge", "--from", "llama-factory") == 0
    assert "changes that gain" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("decided", "told"),
    [
        (("tp=2",), {"tp": 2, "dp": 4}),
        (("pp=1",), {"pp": 1, "dp": 2}),
        (("tp=2", "pp=4"), {"tp": 2, "pp": 4, "dp": 2}),
        (("recompute=full",), {"tp": 8, "pp": 2, "dp": 1}),
        (("tp=4", "dp=2"), {"tp": 4, "dp": 2}),
        (("tp=2", "replicas=4"), {"tp": 2, "dp": 4}),
    ],
)
def test_data_parallelism_follows_from_the_rest(
    decided: tuple[str, ...],
    told: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, cluster = tmp_path / "run.sh", tmp_path / "cluster.yaml"
    file.write_text(SCRIPT)
    cluster.write_text(CLUSTER)
    fixes = [word for each in decided for word in ("--fix", each)]
    arguments = ("evaluate", "--from-megatron", str(file), "--cluster", str(cluster), "--vocabulary", "1024", *fixes)
    assert call(monkeypatch, *arguments, "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    found = {"tp": plan["candidate"]["degrees"]["tp"], "pp": len(plan["stages"]), "dp": plan["data_parallel"]}
    assert told.items() <= found.items()


@pytest.mark.parametrize(
    ("decided", "told"),
    [
        ("pp=3", "multiple of 24"),
        ("pp=4", "multiple of 32"),
        ("cp=5", "multiple of 80"),
        ("replicas=4", "leave replicas out"),
        ("dp=2", "leave dp out"),
    ],
)
def test_a_split_that_does_not_fill_the_devices_is_named(
    decided: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, cluster = tmp_path / "run.sh", tmp_path / "cluster.yaml"
    file.write_text(SCRIPT)
    cluster.write_text(CLUSTER)
    arguments = ("evaluate", "--from-megatron", str(file), "--cluster", str(cluster), "--vocabulary", "1024")
    assert call(monkeypatch, *arguments, "--fix", decided) == 2
    message = capsys.readouterr().err
    assert "does not fill the 16 devices of the run" in message
    assert told in message
    assert ("leave" in message) == decided.startswith(("dp", "replicas"))


def test_uneven_stages_are_those_of_the_model_that_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, cluster = tmp_path / "run.sh", tmp_path / "cluster.yaml"
    cluster.write_text(CLUSTER)
    split = "--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 12"
    file.write_text(f"torchrun --nproc-per-node 8 pretrain_gpt.py {split} --micro-batch-size 1 --seq-length 512 --bf16")
    arguments = ("evaluate", "--from-megatron", str(file), "--cluster", str(cluster), "--model", "qwen3-0.6b", "--json")
    assert call(monkeypatch, *arguments) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [len(stage["layers"]) for stage in plan["stages"]] == [13, 17]


@pytest.mark.longer
@pytest.mark.parametrize("risk", [0.05, 0.5])
def test_changes_are_as_likely_to_fit_as_the_problem_asks(fixed: Fixed, risk: float) -> None:
    code, document, _ = fixed(FULL, "4 GiB", f"training: {{memory_risk: {risk}}}\n", told=False)
    assert code == 0
    likely = [each["fit_probability"] for each in document["changes"]]
    assert min(likely) >= 1 - risk - 1e-9
    assert (min(likely) < 0.8) == (risk > 0.2)


@pytest.mark.longer
def test_a_run_less_likely_to_fit_than_asked_gets_changes_that_fit(fixed: Fixed) -> None:
    """A run that ran out of memory may be more likely than not to fit."""
    _, document, _ = fixed(FULL, "4.8 GiB", told=False)
    assert 0.5 < document["plan"]["fit_probability"] < 0.8
    assert not document["fits"]
    assert document["changes"]
    assert all(each["fit_probability"] >= 0.8 - 1e-9 for each in document["changes"])


@pytest.mark.longer
def test_changes_of_deepspeed_split_tensors_without_sequence_parallelism(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ds.json").write_text(
        json.dumps(
            {
                "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 8, "bf16": {"enabled": True},
                "zero_optimization": {"stage": 2},
            }
        )
    )  # fmt: skip
    (tmp_path / "problem.yaml").write_text(
        "nest: 1\nmodel: llama-2-13b\ntraining: {global_batch: 512, sequence_length: 4096}\n"
        "cluster: {device: a100-sxm-40g, levels: [{fanout: 8, link: nvlink3}]}\n"
    )
    files = (str(tmp_path / "ds.json"), str(tmp_path / "problem.yaml"))
    assert call(monkeypatch, "fix", *files, "--from", "deepspeed", "--nodes", "1", "--json") == 0
    changes = json.loads(capsys.readouterr().out)["changes"]
    split = next(each for each in changes if each["decided"].get("tp", 1) > 1)
    assert "sp" not in split["decided"]
    assert f'"autotp_size": {split["decided"]["tp"]}' in split["flags"]["added"]
