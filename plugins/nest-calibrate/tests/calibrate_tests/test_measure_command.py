"""`nest measure`: from logs to lines that `nest calibrate cluster` reads."""

import json
import shutil
from pathlib import Path

import pytest

import nest

LOGS = Path(__file__).parent / "logs"

JEAN_ZAY = {
    "cluster": {
        "device": "v100-sxm-32g",
        "levels": [
            {"name": "node", "fanout": 4, "bandwidth": "150 GB/s", "link": "nvlink"},
            {"name": "fabric", "fanout": 16, "bandwidth": "12.5 GB/s", "link": "infiniband"},
        ],
    }
}

TASKS = {
    "megatron-lm-mixtral": {
        "model": "mixtral-8x7b",
        "training": {"global_batch": 128, "sequence_length": 4096},
        "cluster": {
            "device": "h100-sxm",
            "levels": [{"fanout": 8, "link": "nvlink4"}, {"fanout": 2, "link": "infiniband-ndr"}],
        },
        "fixed": {"ep": 8, "zero": 1},
    },
    "torchtitan-llama3-8b": {
        "model": "llama-3-8b",
        "training": {"global_batch": 8, "sequence_length": 8192, "stack": "fsdp"},
        "cluster": {"device": "h200-sxm", "levels": [{"fanout": 8, "link": "nvlink4"}]},
        "fixed": {"zero": 3, "recompute": "selective"},
    },
    "nemo-qwen3": {
        "model": "qwen3-30b-a3b",
        "training": {"global_batch": 512, "sequence_length": 4096},
        "cluster": {
            "device": "h100-sxm",
            "levels": [{"fanout": 8, "link": "nvlink4"}, {"fanout": 2, "link": "infiniband-ndr"}],
        },
        "fixed": {"ep": 8, "pp": 2, "zero": 1},
    },
    "maxtext-deepseek2": {
        "model": "llama-2-7b",  # A stand-in that can take as long: what is tested is the way from log to file.
        "training": {"global_batch": 96, "sequence_length": 2048},
        "cluster": {"device": "tpu-v5p", "levels": [{"fanout": 4, "bandwidth": "100 GB/s"}]},
        "fixed": {"zero": 3, "recompute": "full"},
    },
    "hf-trainer-25b": {
        "model": "llama-2-13b",
        "training": {"global_batch": 64, "sequence_length": 1024, "precision": "fp16"},
        "cluster": JEAN_ZAY["cluster"]
        | {"levels": [JEAN_ZAY["cluster"]["levels"][0], {"fanout": 4, "bandwidth": "12.5 GB/s"}]},
        "fixed": {"zero": 3, "recompute": "full"},
    },
}


@pytest.fixture
def log(tmp_path):
    """A public log in a folder of its own, with what lies beside it."""

    def copy(name, **beside):
        shutil.copy(LOGS / f"{name}.log", tmp_path)
        for suffix, content in beside.items():
            (tmp_path / f"{name}.{suffix}").write_text(content if isinstance(content, str) else json.dumps(content))
        return tmp_path / f"{name}.log"

    return copy


@pytest.mark.longer
@pytest.mark.parametrize("name", TASKS)
def test_two_commands_lead_from_a_log_to_a_calibrated_cluster(call, log, tmp_path, name):
    path, runs, found = log(name, json={"nest": 1, **TASKS[name]}), tmp_path / "runs.jsonl", tmp_path / "cluster.toml"
    code, table, errors = call("measure", path, "--output", runs)
    assert (code, errors) == (0, "")
    assert path.name in table.replace("\n", "")
    assert call("calibrate", "cluster", runs, "--output", found)[0] == 0
    task = {**TASKS[name], "cluster": {**TASKS[name]["cluster"], "calibration": str(found)}}
    before, after = nest.evaluate({"nest": 1, **TASKS[name]}), nest.evaluate({"nest": 1, **task})
    measured = json.loads(runs.read_text())["measured"]["batch_time"]
    assert abs(after.batch_time - measured) < abs(before.batch_time - measured)


@pytest.mark.longer
def test_arguments_in_a_log_say_what_ran(call, log, tmp_path):
    cluster = tmp_path / "cluster.json"
    cluster.write_text(json.dumps(JEAN_ZAY))
    logs = [log(name) for name in ("megatron-lm-52b", "megatron-deepspeed-52b")]
    code, lines, _ = call("measure", *logs, "--cluster", cluster, "--json")
    found = [json.loads(line) for line in lines.splitlines()]
    assert code == 0
    for each in found:
        fixed = each["problem"]["fixed"]
        assert {name: fixed[name] for name in ("tp", "pp", "dp", "micro_batch", "recompute")} == {
            "tp": 4, "pp": 16, "dp": 1, "micro_batch": 4, "recompute": "full",
        }  # fmt: skip
        assert each["problem"]["training"]["attention"] == "unfused"
        assert each["problem"]["model"]["vocab_size"] == 50688
    assert [each["measured"]["batch_time"] for each in found] == pytest.approx([126.539, 137.627], rel=1e-4)
    assert found[0]["measured"]["memory_kind"] == "reserved"


def test_printed_lines_and_written_lines_are_the_same(call, log, tmp_path):
    path = log("torchtitan-llama3-8b", json={"nest": 1, **TASKS["torchtitan-llama3-8b"]})
    printed = call("measure", path)
    assert printed[1] == call("measure", path, "--json")[1]
    assert "ratio" in printed[2]
    call("measure", path, "--output", tmp_path / "runs.jsonl")
    assert (tmp_path / "runs.jsonl").read_text() == printed[1]


@pytest.mark.longer
def test_plans_of_a_shortlist_are_ranked_as_measured(call, tmp_path):
    task = {
        "nest": 1,
        "model": {"transformer": {"layers": 4, "hidden": 512, "ffn": 2048, "heads": 4, "vocab": 1024}},
        "training": {"global_batch": 8, "sequence_length": 256, "graphs": "iteration"},
        "cluster": {"device": "h100-sxm", "levels": [{"fanout": 4, "link": "nvlink4"}]},
        "search": {"target": "megatron"},
    }
    (tmp_path / "problem.json").write_text(json.dumps(task))
    plans = tmp_path / "plans"
    call("solve", tmp_path / "problem.json", "--best", 3, "--output", plans)
    for place, milliseconds in ((1, 30.0), (2, 20.0), (3, 25.0)):
        line = f" iteration {{}}/ 9 | elapsed time per iteration (ms): {milliseconds} | global batch size: 8 |\n"
        (plans / f"plan-{place}.log").write_text("".join(line.format(step) for step in range(1, 10)))
    logs = sorted(plans.glob("*.log"))
    code, table, _ = call("measure", *logs, "--output", tmp_path / "runs.jsonl")
    assert code == 0
    rows = [line for line in table.splitlines() if "Megatron-LM" in line]
    assert [int(row.split(".log")[0][-1]) for row in rows] == [2, 3, 1]
    last = " ".join(table.split())
    assert last.endswith("plan-1.log, is 50.0 % slower.")
    for line, place in zip((tmp_path / "runs.jsonl").read_text().splitlines(), (1, 2, 3), strict=True):
        plan = json.loads((plans / f"plan-{place}.json").read_text())
        assert nest.evaluate(json.loads(line)["problem"]).batch_time == pytest.approx(plan["batch_time"], rel=1e-9)


def test_a_run_that_failed_is_a_line_too(call, log, tmp_path):
    path = log("torchtitan-llama3-8b", json={"nest": 1, **TASKS["torchtitan-llama3-8b"]})
    with path.open("a") as text:
        text.write("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB.\n")
    code, lines, errors = call("measure", path)
    assert (code, json.loads(lines)["measured"]) == (0, {"fits": False})
    assert "out of memory" in errors


def test_a_log_alone_is_measured_and_said_to_be_alone(call, log):
    path = log("nemo-qwen3")
    code, lines, errors = call("measure", path)
    found = json.loads(lines)
    assert code == 0
    assert found["measured"]["batch_time"] == 26.73
    assert "problem" not in found
    assert "unknown run; add --problem" in " ".join(errors.split())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"training": {"global_batch": 16, "sequence_length": 8192}}, "the log has a global batch of 8 samples"),
        ({"training": {"global_batch": 8, "sequence_length": 4096}}, "the log has samples of 8192 tokens"),
        ({"cluster": {"device": "h200-sxm", "levels": [{"fanout": 4, "link": "nvlink4"}]}}, "the log has 8 devices"),
        ({"fixed": {"tp": 3}}, "cannot price the run"),
    ],
)
def test_what_did_not_run_is_refused(call, log, change, told):
    path = log("torchtitan-llama3-8b", json={"nest": 1, **TASKS["torchtitan-llama3-8b"], **change})
    code, lines, errors = call("measure", path)
    assert (code, lines) == (2, "")
    assert told in " ".join(errors.split())


def test_options_of_flags_need_flags(call, log):
    code, _, errors = call("measure", log("nemo-qwen3"), "--nodes", 2)
    assert code == 2
    assert "--cluster, --nodes and --vocabulary need flags" in " ".join(errors.split())
