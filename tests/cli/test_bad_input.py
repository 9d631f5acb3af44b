"""Bad input on the real command line: exit code 2, plain sentences with the place, nothing printed, nothing written."""

import copy
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nest import api
from nest.cli import app
from nest.io import read_mapping

REPOSITORY = Path(__file__).resolve().parent.parent.parent
EXAMPLE = REPOSITORY / "examples" / "measured-layers" / "problem.yaml"
MEASURED = read_mapping(EXAMPLE).mapping
DESCRIBED: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 4, "hidden": 512, "ffn": 1024, "heads": 8, "vocab": 1000}},
    "training": {"global_batch": 16, "sequence_length": 512, "micro_batch": [1, 2], "overlap": {"data": True}},
    "cluster": {
        "device": "h100-sxm",
        "levels": [
            {"name": "node", "fanout": 4, "bandwidth": "450 GB/s", "latency": "3 us"},
            {"name": "rack", "fanout": 2, "bandwidth": "50 GB/s", "latency": "6 us"},
        ],
    },
    "strategies": {"tp": [1, 2]},
    "search": {"zero": [0, 1]},
    "constraints": ["pp <= 4"],
    "fixed": {"replicas": 2},
}

Refused = Callable[..., list[str]]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Run a command that must be refused; what it says on standard error, without the program's name."""

    def run(*arguments: str) -> list[str]:
        before = sorted(tmp_path.rglob("*"))
        monkeypatch.setattr("sys.argv", ["nest", *arguments])
        with pytest.raises(SystemExit) as stop:
            app.main()
        printed = capsys.readouterr()
        assert stop.value.code == 2
        assert printed.out == ""
        assert sorted(tmp_path.rglob("*")) == before
        assert "Traceback" not in printed.err
        lines = printed.err.splitlines()
        assert lines
        assert all(line.startswith("nest: ") for line in lines)
        assert all(len(line) < 700 for line in lines)
        return [line.removeprefix("nest: ") for line in lines]

    return run


Steps = tuple[str | int, ...]


def path_of(text: str) -> Steps:
    return tuple(int(step) if step.isdigit() else step for step in text.split("."))


def changed(problem: dict[str, Any], steps: Steps, value: Any) -> dict[str, Any]:
    found = copy.deepcopy(problem)
    target: Any = found
    for step in steps[:-1]:
        target = target[step]
    target[steps[-1]] = value
    return found


def line_of(problem: dict[str, Any], steps: Steps) -> int:
    """The line of a value in the problem's text, found by writing a mark in its place."""
    lines = json.dumps(changed(problem, steps, "a mark"), indent=1).splitlines()
    return next(number for number, line in enumerate(lines, 1) if '"a mark"' in line)


def write(folder: Path, problem: dict[str, Any]) -> Path:
    path = folder / "problem.json"
    path.write_text(json.dumps(problem, indent=1))
    return path


UNKNOWN_KEYS = [
    (DESCRIBED, "trainign", "did you mean training"),
    (DESCRIBED, "zebra", "the nearest is .*known here: nest, training, cluster"),
    (DESCRIBED, "model.transformer.hiden", "did you mean hidden"),
    (DESCRIBED, "training.global_bach", "did you mean global_batch"),
    (DESCRIBED, "training.overlap.dta", "did you mean data"),
    (DESCRIBED, "cluster.memroy", "did you mean memory"),
    (DESCRIBED, "cluster.levels.1.fanot", "did you mean fanout"),
    (DESCRIBED, "search.zeros", "did you mean zero"),
    (DESCRIBED, "fixed.replica", "'replica'. Did you mean 'replicas'"),
    (DESCRIBED, "strategies.tpp", "'tpp'. Did you mean 'tp'"),
    (MEASURED, "profile.layer", "did you mean layers"),
    (MEASURED, "profile.candidates.1.foward", "did you mean forward"),
    (MEASURED, "profile.candidates.0.state.dense.weight", "did you mean weights"),
    (MEASURED, "profile.candidates.0.recompute.full.peek", "did you mean peak"),
]


@pytest.mark.parametrize(("problem", "place", "told"), UNKNOWN_KEYS, ids=[row[1] for row in UNKNOWN_KEYS])
def test_unknown_keys(refused: Refused, tmp_path: Path, problem: dict[str, Any], place: str, told: str) -> None:
    steps = path_of(place)
    path = write(tmp_path, changed(problem, steps, 1))
    (line,) = refused("solve", str(path), "--output", str(tmp_path / "plan.json"))
    assert re.search(told, line)
    section = place.rpartition(".")[0]
    where = line_of(problem, steps)
    # Decisions and strategies are looked up by name, which knows the section but not the key's own line.
    lines = [where] if section not in ("fixed", "strategies") else [line_of(problem, path_of(section)), where]
    assert any(line.startswith(f"{path}:{number}: ") for number in lines)
    assert all(str(step) in line for step in steps)


VALUES: list[tuple[dict[str, Any], str, Any, str]] = [
    # units
    (DESCRIBED, "cluster.levels.0.bandwidth", "450 GiB", "has the unit 'GiB', not a unit of a bandwidth"),
    (DESCRIBED, "cluster.levels.0.latency", "nan us", "must be a time"),
    (MEASURED, "cluster.memory", "16 GB/s", "has the unit 'GB/s', not a unit of a size"),
    # numbers
    (DESCRIBED, "nest", 2, "must be 1, is 2"),
    (DESCRIBED, "cluster.levels.0.fanout", 0, "must be at least 1, is 0"),
    (DESCRIBED, "cluster.levels.0.fanout", 2.5, "must be a whole number, is 2.5"),
    (DESCRIBED, "cluster.levels.0.fanout", True, "must be a whole number, is true"),
    (DESCRIBED, "cluster.levels.0.bandwidth", -1, "must be above 0, is -1"),
    (DESCRIBED, "cluster.levels.0.bandwidth", 1e-300, r"must be 0 or from 1e-30 to 1e\+30"),
    (DESCRIBED, "cluster.levels.0.latency", "-3 us", "must be at least 0, is -3e-06"),
    (DESCRIBED, "cluster.levels.0.latency", float("nan"), "must be a finite number, is nan"),
    (DESCRIBED, "cluster.levels.0.latency", {"us": 3}, "must be a time: .*, is a mapping"),
    (DESCRIBED, "cluster.levels.0.fanout", 10**200, "too large: whole numbers go up to 2"),
    (DESCRIBED, "model.transformer.layers", 1e300, "too large: whole numbers go up to 2"),
    (DESCRIBED, "training.global_batch", 0, "must be from 1 to 1e.09, is 0"),
    (DESCRIBED, "training.exposed", 1.5, "must be from 0 to 1, is 1.5"),
    (DESCRIBED, "training.uneven_batch", 1, "must be true or false, is 1"),
    (DESCRIBED, "training.micro_batch.1", 32, "is 32, above the global batch of 16"),
    (DESCRIBED, "training.micro_batch", [], "must not be empty"),
    (MEASURED, "cluster.reserve", "17 GB", "is 15.8 GiB, but a device has only 14.9 GiB; reserve less"),
    (MEASURED, "profile.candidates.0.samples", 64, "is 64, above the global batch of 32"),
    (MEASURED, "profile.candidates.0.state.dense.weights.1", -1, "must be at least 0"),
    # shapes
    (DESCRIBED, "training", [], "must hold keys and values, is a list"),
    (DESCRIBED, "cluster.levels", [], "must not be empty"),
    (DESCRIBED, "cluster.levels", "node", "must hold keys and values, is 'node'"),
    (MEASURED, "profile.layers.3", "stem", "is 'stem', as is the item at \\[0\\]"),
    (MEASURED, "profile.edges.1", [0, 1, 2], "must be a list of 2 items, has 3"),
    (MEASURED, "profile.edges.1", [0, 9], "is 9, but layers run from 0 to 4"),
    (MEASURED, "profile.edges.1", [2, 2], "goes from layer 2 to itself"),
    (MEASURED, "profile.edges", [[0, 1], [1, 2], [2, 1], [2, 3], [3, 4]], "has a cycle through .*left, right"),
    (MEASURED, "profile.candidates.0.forward", [1, 2], "has 2 numbers for 5 layers"),
    (MEASURED, "profile.candidates.0.width", 7, "does not align with groups of 4, 8 devices"),
    (MEASURED, "profile.candidates.0.width", 64, "is 64, but the cluster has 8 devices"),
    (MEASURED, "profile.candidates.1.name", "one-device", "names must be unique"),
    (MEASURED, "profile.candidates.0.state.dense.ranks", [3], "must differ and be below width"),
    (MEASURED, "profile.candidates.0.recompute", {}, "must not be empty"),
    # names
    (DESCRIBED, "cluster.device", "h100", "there is no device called 'h100'. Did you mean 'h100-sxm'"),
    (DESCRIBED, "cluster.levels.0.link", "nvlnk", "there is no link called 'nvlnk'. Did you mean 'nvlink'"),
    (DESCRIBED, "cluster", "dgx-h100-superpot", "there is no cluster .*Did you mean 'dgx-h100-superpod'"),
    (DESCRIBED, "training.schedule", "1f2b", "there is no schedule called '1f2b'. Did you mean '1f1b'"),
    (DESCRIBED, "training.precision", "bf61", "must be one of fp32, fp16, bf16, fp8, mxfp8, nvfp4, is 'bf61'"),
    (DESCRIBED, "training.selective", ["atention"], "no operator or kind of operator .*Did you mean 'attention'"),
    (DESCRIBED, "training.offload", ["weights"], "must be one of optimizer, activations, is 'weights'"),
    (DESCRIBED, "training.offload", ["optimizer", "optimizer"], "as is the item at .0.; each may be there once"),
    (DESCRIBED, "training.primary_weights", "fp8", "training.precision bf16 has no separate primary weights"),
    (DESCRIBED, "search.recompute", ["offload"], "needs `activations` in training.offload"),
    (DESCRIBED, "strategies.tp", [3], "allows 3, but .* only allow tp 1, 2, 4, 8"),
    (DESCRIBED, "strategies.tp", [0], "must be at least 1, is 0"),
    (DESCRIBED, "strategies.tp", ["two"], "must be a whole number or true or false, is 'two'"),
    (DESCRIBED, "search.rank_order", "pp", "must be one of pp-inner, dp-inner, is 'pp'"),
    (DESCRIBED, "search.zero", [5], "must be one of 0, 1, 2, 3, is 5"),
    (DESCRIBED, "strategies", {"tp": [1], "ttp": [1]}, "there is no strategy called 'ttp'. Did you mean 'tp'"),
    (MEASURED, "search.recompute", ["none", "ful"], "there is no recompute mode called 'ful'. Did you mean 'full'"),
    (DESCRIBED, "costs", "rofline", "there is no cost model called 'rofline'. Did you mean 'roofline'"),
    (DESCRIBED, "model", "llama-3-7b", "there is no file or model called 'llama-3-7b'. Did you mean 'llama-3-"),
    (DESCRIBED, "model", "m" * 3000, "there is no file or model called 'mmm"),
    (DESCRIBED, "model", {"model_type": "t5", "d_model": 3}, "unknown family 't5'; `nest models` lists those known"),
    (DESCRIBED, "model", [1], "must be text or keys and values, is a list"),
    # sizes that would not end
    (DESCRIBED, "cluster.levels.0.fanout", 10**12, "the fan-outs make 2000000000000 devices"),
    (DESCRIBED, "model.transformer.layers", 10**6, "must be at most 10000"),
    # constraints
    (DESCRIBED, "constraints.0", "pp <=", "is not an expression such as"),
    (DESCRIBED, "constraints.0", "ppp <= 4", "there is no name called 'ppp'. Did you mean 'pp'"),
    (DESCRIBED, "constraints.0", "__import__('os').getpid() > 0", "is not allowed here|calls something unknown"),
    (DESCRIBED, "constraints.0", "pp" * 100_000, "longer than 1000 characters"),
    (DESCRIBED, "constraints.0", "1/0 == 1", "cannot be computed: division by zero"),
    (DESCRIBED, "constraints.0", "'a' * 10000000000000 == 'b'", "takes numbers"),
    (DESCRIBED, "constraints.0", "pp", "neither true nor false"),
    (DESCRIBED, "constraints.0", 'same_stage("embeding", "head")', "no layer called 'embeding'. .*'embedding'"),
    (DESCRIBED, "constraints.0", 5, "must be text, is 5"),
    # decisions
    (DESCRIBED, "fixed.pp", 0, "is 0; it must be a whole number of at least 1"),
    (DESCRIBED, "fixed.zero", 5, "is 5; it must be 0, 1, 2 or 3"),
    (DESCRIBED, "fixed.tp", [1], "must be a whole number or a number or text or true or false, is a list"),
    (DESCRIBED, "fixed.tp", 4, "is 4, but strategies.tp .line \\d+. allows 1, 2 only"),
    (DESCRIBED, "fixed.recompute", "ful", "there is no recompute mode called 'ful'"),
    (DESCRIBED, "fixed.rank_order", "pp", "there is no rank order called 'pp'"),
    (DESCRIBED, "fixed.micro_batch", 99, "is 99; it must be a whole number from 1"),
    (DESCRIBED, "fixed.stages", [["embedding"]], "leaves out these layers"),
    (DESCRIBED, "fixed.stages", [1, 2], "add up to 3, but the model has 4 transformer blocks"),
    (DESCRIBED, "fixed.stages", [1, {}], "must be a whole number or a list, is a mapping"),
]


TOLD_OF_THE_WHOLE = ("the fan-outs make", "model: transformer: ")
"""What is wrong with a section rather than with one of its values has the section's line."""


@pytest.mark.longer
@pytest.mark.parametrize(
    ("problem", "place", "value", "told"), VALUES, ids=[f"{row[1]}={str(row[2])[:20]}" for row in VALUES]
)
def test_values_that_cannot_be(
    refused: Refused, tmp_path: Path, problem: dict[str, Any], place: str, value: Any, told: str
) -> None:
    steps = path_of(place)
    path = write(tmp_path, changed(problem, steps, value))
    lines = refused("solve", str(path), "--output", str(tmp_path / "plan.json"))
    assert any(re.search(told, line) for line in lines), lines
    file, number, rest = lines[0].split(":", 2)
    assert file == str(path)
    assert str(steps[0]) in rest
    first = line_of(problem, steps)
    last = first + (json.dumps(value, indent=1).count("\n") if isinstance(value, (list, dict)) else 0)
    above = {line_of(problem, steps[:length]) for length in range(1, len(steps))}
    assert first <= int(number) <= last or (any(words in rest for words in TOLD_OF_THE_WHOLE) and int(number) in above)


@pytest.mark.parametrize("section", ["nest", "training", "cluster", "model"])
def test_sections_that_are_missing(refused: Refused, tmp_path: Path, section: str) -> None:
    path = write(tmp_path, {key: value for key, value in DESCRIBED.items() if key != section})
    (line,) = refused("solve", str(path))
    assert line.startswith(f"{path}: {section} is missing")


def test_model_and_profile_exclude_each_other(refused: Refused, tmp_path: Path) -> None:
    path = write(tmp_path, {**DESCRIBED, "profile": MEASURED["profile"]})
    (line,) = refused("solve", str(path))
    assert line.endswith(": profile and model cannot both be given; leave one out.")


def test_several_mistakes_are_told_at_once_in_the_order_of_their_lines(refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    path.write_text(
        "nest: 1\n"
        "colour: red\n"
        "model: gpt2\n"
        "cluster:\n"
        "  device: a100-sxm-80g\n"
        "  levels:\n"
        "    - {name: node, fanout: 0, bandwidth: 300 GiB}\n"
        "    - {name: rack, fanot: 2}\n"
        "training:\n"
        "  sequence_length: '128'\n"
    )
    lines = refused("solve", str(path))
    assert [line.removeprefix(f"{path}:").partition(":")[0] for line in lines] == ["2", "7", "7", "8", "8", "9", "10"]
    told = "\n".join(lines)
    for words in ("colour", "levels[0].fanout", "'GiB'", "fanot", "fanout is missing", "global_batch", "'128'"):
        assert words in told


def test_several_unknown_names_are_told_at_once(refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    path.write_text(
        "nest: 1\n"
        "model: gpt2\n"
        "training: {global_batch: 8, sequence_length: 128, optimizer: adm, schedule: [1f1b, 2f2b]}\n"
        "cluster:\n"
        "  device: a100\n"
        "  levels: [{fanout: 8, link: nvlink3}]\n"
        "strategies: {qp: [1]}\n"
        "constraints:\n"
        "  - tpp == 1\n"
        "  - pp <\n"
        "fixed: {ppp: 1, zero: 8}\n"
    )
    lines = refused("solve", str(path))
    told = [line.removeprefix(f"{path}:").partition(":")[0] for line in lines]
    assert told == ["3", "3", "5", "7", "9", "10", "11", "11"]


def test_files_that_are_no_problems(refused: Refused, tmp_path: Path) -> None:
    texts = {
        "empty.yaml": b"",
        "list.yaml": b"- 1\n",
        "noise.yaml": random.Random(0).randbytes(100_000),
        "deep.json": b"[" * 100_000,
        "deep.yaml": b"{a: " * 1000,
        "twice.yaml": b"nest: 1\nnest: 1\n",
        "twice.json": b'{"nest": 1, "nest": 1}',
        "tag.yaml": b"nest: !!python/object/apply:os.getcwd []\n",
        "nan.yaml": b"nest: .nan\n",
        "inf.toml": b"nest = inf\n",
        "nan.json": b'{"nest": NaN}',
        "self.yaml": b"nest: &a [*a]\n",
        "other.toml": b"nest = [\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
        for command in ("solve", "evaluate", "check"):
            (line,) = refused(command, str(tmp_path / name))
            assert line.startswith(str(tmp_path / name))


def test_files_that_are_not_there(refused: Refused, tmp_path: Path) -> None:
    assert refused("solve", str(tmp_path / "none.yaml")) == [f"{tmp_path / 'none.yaml'}: there is no such file."]
    assert refused("solve", str(tmp_path)) == [f"{tmp_path}: this is a folder; name a file in it."]
    assert refused("check", str(tmp_path / "none.json")) == [f"{tmp_path / 'none.json'}: there is no such file."]
    endless = tmp_path / ("a" * 256)
    for command in (["solve"], ["check"], ["topology", "show"], ["topology", "levels"], ["calibrate", "collectives"]):
        (line,) = refused(*command, str(endless))
        assert line.startswith(f"{endless}: ")


@pytest.mark.longer
def test_very_large_files(refused: Refused, tmp_path: Path) -> None:
    sparse, noise = tmp_path / "sparse.yaml", tmp_path / "noise.yaml"
    with sparse.open("wb") as stream:
        stream.truncate(70 * 2**20)
    megabyte = random.Random(0).randbytes(2**20)
    with noise.open("wb") as stream:
        for _ in range(200):
            stream.write(megabyte)
    assert refused("solve", str(sparse)) == [f"{sparse}: the file has 70 MiB, more than the 64 MiB nest reads."]
    assert refused("solve", str(noise)) == [f"{noise}: the file has 200 MiB, more than the 64 MiB nest reads."]
    noise.unlink()


def test_a_plan_is_no_problem_and_the_other_way_round(refused: Refused, tmp_path: Path) -> None:
    assert refused("check", str(EXAMPLE)) == [
        f"{EXAMPLE}: this is a problem, not a plan; `nest solve PROBLEM --output FILE` writes a plan."
    ]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"stages": [], "problem": {}}))
    (line,) = refused("solve", str(plan))
    assert "this is a plan, not a problem" in line


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf"])
def test_time_limits(refused: Refused, limit: str) -> None:
    assert refused("solve", str(EXAMPLE), "--time-limit", limit) == [
        f"the time limit must be a positive number of seconds, is {limit}."
    ]


def test_places_to_write_to(refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the search ran although its plan cannot be written")

    monkeypatch.setattr(api, "solve", never)
    missing = tmp_path / "none" / "plan.json"
    (line,) = refused("solve", str(EXAMPLE), "--output", str(missing))
    assert line.startswith(f"{missing}: cannot write here, there is no folder")
    (line,) = refused("solve", str(EXAMPLE), "--output", str(tmp_path))
    assert line.startswith(f"{tmp_path}: cannot write a file here")
    (line,) = refused("solve", str(EXAMPLE), str(EXAMPLE), "--output", str(tmp_path / "plan.json"))
    assert line.startswith("--output and --certificate take one plan")


@pytest.mark.parametrize(
    ("decision", "told"),
    [
        ("tp", "takes NAME=VALUE"),
        ("=3", "takes NAME=VALUE"),
        ("tp=", "takes NAME=VALUE"),
        ("tp=[", "this is not YAML"),
        ("tp=!!python/object:os {}", "this is not YAML"),
        ("tp=.nan", "must be a finite number"),
        ("tp=2020-01-01", "is a date"),
    ],
)
def test_decisions_that_cannot_be_read(refused: Refused, decision: str, told: str) -> None:
    (line,) = refused("evaluate", str(EXAMPLE), "--fix", decision)
    assert told in line


@pytest.mark.parametrize(
    "arguments",
    [
        ["models", "none"],
        ["models", "none/config.json"],
        ["models", str(EXAMPLE)],
        ["devices", "none"],
        ["clusters", "none"],
        ["clusters", "dgx-h100-superpod-12"],
        ["schema", "none"],
    ],
)
def test_other_commands(refused: Refused, arguments: list[str]) -> None:
    (line,) = refused(*arguments)
    assert arguments[1] in line or "model_type" in line or "cannot have 12 devices" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ["slove"],
        ["solve"],
        ["solve", "--outptu", "x", str(EXAMPLE)],
        ["solve", str(EXAMPLE), "--time-limit", "soon"],
        ["check", "one.json", "two.json"],
        ["models", "gpt2", "--sequence-length", "0"],
        ["models", "gpt2", "--sequence-length", "\x1c8"],
        ["models", "gpt2", "--sequence-length", "9" * 5000],
        ["--colour"],
    ],
)
def test_usage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    monkeypatch.setattr("sys.argv", ["nest", *arguments])
    with pytest.raises(SystemExit) as stop:
        app.main()
    printed = capsys.readouterr()
    assert (stop.value.code, printed.out) == (2, "")
    assert printed.err.startswith("nest: ")
    assert printed.err.endswith(" --help`.\n")
    assert len(printed.err.splitlines()) == 1
