"""`nest evaluate --from NAME FILE`: plan readers, those of plug-ins among them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from frameworks_tests.test_from_megatron_command import CLUSTER, SCRIPT
from nest.deployment import LaunchOptions, Reading
from nest.errors import InputError
from nest.hooks.registry import registry
from nest.hooks.spec import hook
from nest.testing import check_plan_reader
from nest_frameworks import nest_plan_readers
from tests.command_line import call

PROBLEM = f"""
nest: 1
model: {{transformer: {{layers: 8, hidden: 256, ffn: 640, heads: 8, vocab: 777}}}}
training: {{global_batch: 32, sequence_length: 64}}
{CLUSTER}
"""


class Words:
    """Reads `tp=2` and the like."""

    name = "words"
    summary = "words"
    examples = ("tp=2 dp=2",)

    def read(self, text: str, nodes: int | None = None) -> Any:
        if text.startswith("!"):
            raise ZeroDivisionError
        pairs = [word.partition("=") for word in text.split()]
        fixed = {name: int(value) for name, _, value in pairs if value.isdecimal()}
        if not fixed:
            raise InputError("there are no decisions.")
        return Reading({"fixed": fixed}, notes=("of words.",))


class Plugin:
    @hook
    def nest_plan_readers(self) -> list[Any]:
        return [Words()]


ULYSSES = "actor_rollout_ref.actor.ulysses_sequence_parallel_size"
FSDP = (
    "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 "
    "actor_rollout_ref.model.path=Qwen/Qwen3-8B data.max_prompt_length=4096"
)


@pytest.fixture
def problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    known = registry([Plugin()])
    for module in ("nest.cli.evaluate", "nest.formulate.from_flags", "nest.api"):
        monkeypatch.setattr(f"{module}.registry", lambda: known, raising=False)
    path = tmp_path / "problem.yaml"
    path.write_text(PROBLEM)
    return str(path)


@pytest.mark.longer
def test_a_plug_in_reads_plans(
    problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, opened = tmp_path / "words", tmp_path / "open.json"
    words.write_text("tp=2 dp=8")
    arguments = ("evaluate", "--from", "words", str(words), problem, "--against-best", "--json")
    assert call(monkeypatch, *arguments, "--write-problem", str(opened)) == 0
    told = capsys.readouterr()
    assert f"note: {words}: of words." in told.err
    found = json.loads(told.out)
    assert (found["plan"]["candidate"]["degrees"]["tp"], found["plan"]["data_parallel"]) == (2, 8)
    assert found["best"]["status"] in ("optimal", "near-optimal")
    assert "fixed" not in json.loads(opened.read_text())


def test_a_reader_that_fails_is_disabled_by_name(
    problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = tmp_path / "words"
    words.write_text("!")
    assert call(monkeypatch, "evaluate", "--from", "words", str(words), problem) == 2
    told = capsys.readouterr().err
    assert "the plan reader 'words' failed and is disabled" in told
    words.write_text("none")
    assert call(monkeypatch, "evaluate", "--from", "words", str(words), problem) == 2


def test_mistakes_of_the_command_line(
    problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "run.sh"
    script.write_text(SCRIPT)
    for arguments, told in (
        (("--from", "megatorn", str(script)), "Did you mean 'megatron'?"),
        (("--from", "megatron", str(script), "--from-megatron", str(script)), "give one of them"),
        (("--from", "megatron", str(script), problem), "at most one problem"),
    ):
        assert call(monkeypatch, "evaluate", *arguments, problem) == 2
        assert told in capsys.readouterr().err


@pytest.mark.longer
def test_both_ways_to_name_megatron_are_one(
    problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "run.sh"
    script.write_text(SCRIPT)
    printed = []
    for option in (("--from-megatron",), ("--from", "megatron")):
        assert call(monkeypatch, "evaluate", *option, str(script), problem, "--json") == 0
        printed.append(capsys.readouterr())
    assert printed[0] == printed[1]


@pytest.mark.longer
def test_files_of_several_frameworks_are_compared(
    problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, run = tmp_path / "run.sh", tmp_path / "run.toml"
    script.write_text(
        SCRIPT.replace("--nnodes 2", "--nnodes $N").replace("--micro-batch-size 1", "--micro-batch-size $1")
    )
    run.write_text('[model]\nflavor = "nest"\n[parallelism]\ndata_parallel_shard_degree = 8\n')
    compared = ("compare", problem, "--planner", "manual", "--json")
    files = ("--from", "torchtitan", str(run), "--from-megatron", str(script), "--from", "torchtitan", str(run))
    assert call(monkeypatch, *compared, *files, "--", "2", "N=2") == 0
    others = json.loads(capsys.readouterr().out)["others"]
    assert [each["name"] for each in others] == ["manual", str(script), str(run), str(run)]
    assert others[1]["plan"]["candidate"]["samples"] == 2
    assert call(monkeypatch, *compared, *files) == 2
    assert "or `-- N=VALUE`" in capsys.readouterr().err
    assert call(monkeypatch, "evaluate", *files[:3], *files[:3], problem) == 2
    assert "compare several files with `nest compare`" in capsys.readouterr().err


def test_a_training_that_no_exporter_writes_is_priced_all_the_same(
    problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run.toml"
    run.write_text('[model]\nflavor = "nest"\nconverters = ["float8"]\n[parallelism]\ndata_parallel_shard_degree = 8\n')
    arguments = ("evaluate", "--from", "torchtitan", str(run), problem)
    assert call(monkeypatch, *arguments, "--json") == 0
    assert json.loads(capsys.readouterr().out)["problem"]["training"]["precision"] == "fp8"
    assert call(monkeypatch, *arguments, "--against-best") == 2
    assert "Leave --against-best and --write-problem out." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("read", "told"),
    [
        (Reading({"fixed": {"tp": 2}, "cluster": {}}), "there is only model, training, fixed"),
        (Reading({}), "settings are empty"),
        (Reading({"fixed": {"tp": 2}}, devices=0), "launched on 0 devices"),
        (Reading({"fixed": {"tp": 2}}, notes=("",)), "no sentences"),
        (Reading({"training": {"global_batch": "many"}}), "global_batch"),
    ],
)
def test_the_kit_tells_what_is_wrong_with_a_reading(read: Reading, told: str) -> None:
    class Wrong(Words):
        def read(self, text: str, nodes: int | None = None) -> Any:
            return read

    failed = [finding.told for finding in check_plan_reader(Wrong()) if not finding.passed]
    assert any(told in each for each in failed), failed


def test_the_kit_asks_for_texts_and_for_input_errors() -> None:
    class Careless(Words):
        examples = ()

        def read(self, text: str, nodes: int | None = None) -> Any:
            return Reading({"fixed": {"tp": int(text)}})

    failed = {finding.check for finding in check_plan_reader(Careless()) if not finding.passed}
    assert failed == {"some text is read", "what it cannot read it refuses with an InputError"}
    assert all(finding.passed for finding in check_plan_reader(Words()))


@pytest.mark.parametrize(
    ("reader", "name", "text"),
    [
        ("axolotl", "mine.yaml", "base_model: x\nsequence_len: 512\nmicro_batch_size: 1\nmicro_batch_size: 2\n"),
        ("nanotron", "mine.yml", "tokens: {micro_batch_size: 1}\ntokens: {micro_batch_size: 2}\n"),
        ("torchtitan", "mine.toml", "[training]\nseq_len = 1\nseq_len = 2\n"),
        ("deepspeed", "mine.json", '{"train_batch_size": 8, "train_batch_size": 16}'),
        ("accelerate", "mine.yaml", "num_processes: 8\nnum_processes: 16\n"),
        ("ms-swift", "mine.yaml", "model: x\nmicro_batch_size: 1\nmicro_batch_size: 2\n"),
        ("megatron", "mine.yaml", "MODEL_ARGS:\n  --bf16: true\n  --bf16: false\n"),
    ],
)
def test_a_key_given_twice_is_told_under_the_users_own_name(
    reader: str,
    name: str,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / name).write_text(text)
    arguments = ("evaluate", "--from", reader, str(tmp_path / name), "--cluster", "p5.48xlarge")
    assert call(monkeypatch, *arguments) == 2
    assert f"{name}:" in capsys.readouterr().err


@pytest.mark.longer
@pytest.mark.parametrize(("cluster", "ranks"), [("dgx-h100-superpod", 32), ("gb200-nvl72-superpod", 16)])
def test_nodes_have_as_many_devices_as_the_cluster_says(
    cluster: str, ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.sh").write_text(SCRIPT.replace("--nnodes 2 --nproc-per-node 8", "--nproc-per-node $GPUS"))
    arguments = ("--from-megatron", str(tmp_path / "run.sh"), "--cluster", cluster, "--vocabulary", "1024")
    assert call(monkeypatch, "evaluate", *arguments, "--nodes", "4") == 0
    assert f"{ranks} ranks: 4 nodes x {ranks // 4}, from --nodes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reader", "release", "told"),
    [
        ("deepspeed", "0.1", "--for 0.1: nest knows deepspeed 0.19"),
        ("torchtitan", "0.3", "--for 0.3: nest reads files of torchtitan 0.2 alone"),
        ("torchtitan", "0.2", ""),
        ("axolotl", "0.21", ""),
    ],
)
def test_a_release_that_nest_does_not_read_is_refused(reader: str, release: str, told: str) -> None:
    """By every reader, where one alone reads several."""
    each = next(each for each in nest_plan_readers() if each.name == reader)
    options = LaunchOptions(release=release)
    if not told:
        assert each.read_launch(each.examples[0], options) == each.read(each.examples[0])
        return
    with pytest.raises(InputError, match=re.escape(told)):
        each.read_launch(each.examples[0], options)


@pytest.mark.parametrize(
    ("reader", "name", "text", "key"),
    [
        ("verl", "run.sh", f"{FSDP} {ULYSSES}=2\n", ULYSSES),
        ("deepspeed", "ds.json", '{"train_batch_size": 16, "sequence_parallel_size": 2}', "sequence_parallel_size"),
    ],
)
def test_a_plug_in_that_a_key_takes_is_named_with_it(
    reader: str, name: str, text: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / name).write_text(text)
    asked = ("--cluster", "p5.48xlarge", "--nodes", "1", "--model", "qwen3-8b")
    assert call(monkeypatch, "evaluate", "--from", reader, str(tmp_path / name), *asked) == 2
    told = capsys.readouterr().err
    assert f"{key} 2 exchanges tokens for heads" in told
    assert "`pip install ./plugins/nest-ulysses` adds it." in told


def test_shard_groups_beside_experts_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Experts shard over the ranks that expert parallelism leaves of a group, which nest does not count."""
    file = tmp_path / "run.toml"
    sizes = "[training]\nlocal_batch_size = 4\nseq_len = 4096\n[model]\nname = 'deepseek_v3'\nflavor = '16B'\n"
    shards = "[parallelism]\ndata_parallel_shard_degree = 16\nexpert_parallel_degree = 8\n"
    for replicas, code in ((1, 0), (2, 2)):
        file.write_text(f"{sizes}{shards}data_parallel_replicate_degree = {replicas}\n")
        words = ("evaluate", "--from", "torchtitan", str(file), "--cluster", "dgx-h100-superpod")
        assert call(monkeypatch, *words) == code
        assert ("groups of 16 ranks beside expert parallelism" in capsys.readouterr().err) == (code == 2)
