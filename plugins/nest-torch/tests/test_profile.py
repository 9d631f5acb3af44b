"""`nest profile`: what it writes can be read, is what was asked for, and comes in a fixed order."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from attrs import evolve
from typer.testing import CliRunner, Result

from nest.errors import InputError
from nest.spec import CollectiveMeasurement, OperatorMeasurement, read_measurements

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `pip install torch` lets these tests run")

from nest_torch import profiling  # noqa: E402
from nest_torch.collectives import Group  # noqa: E402
from nest_torch.commands import register  # noqa: E402
from nest_torch.experiments import Experiment  # noqa: E402
from nest_torch.machine import machine  # noqa: E402
from nest_torch.operators import Unavailable, prepared  # noqa: E402
from nest_torch.profiling import Effort, Skipped, lacking, plan, profile  # noqa: E402
from nest_torch.together import Sharing  # noqa: E402

ROWS: dict[str, int | bool] = {"rows": 8, "width": 16}
ATTENTION: dict[str, int | bool] = {"batch": 2, "heads": 4, "kv_heads": 2, "head": 8, "sequence": 16, "causal": True}
PRODUCT: dict[str, int | bool] = {"batch": 1, "rows": 8, "columns": 16, "contracted": 32}
EXPERIMENTS = [
    Experiment("matmul", PRODUCT),
    Experiment("matmul", PRODUCT, "backward"),
    Experiment("matmul", {**PRODUCT, "batch": 3}),
    Experiment("attention", ATTENTION),
    Experiment("attention", ATTENTION, "backward"),
    Experiment("attention", {**ATTENTION, "kv_heads": 4, "keys": 32, "causal": False}),
    Experiment("norm", ROWS),
    Experiment("norm", ROWS, "backward"),
    Experiment("elementwise", ROWS),
    Experiment("activation", ROWS),
    Experiment("activation", {**ROWS, "branches": 2}, "backward"),
    Experiment("softmax", ROWS, "backward"),
    Experiment("embedding", {**ROWS, "vocab": 10}),
    Experiment("update", {"parameters": 64}),
    Experiment("copy", bytes=1024),
    Experiment("launch"),
]


def called(*arguments: str) -> Result:
    app = typer.Typer(pretty_exceptions_enable=False)
    register(app)
    return CliRunner().invoke(app, [*arguments])


def refused(*arguments: str) -> str:
    result = called(*arguments)
    assert isinstance(result.exception, InputError)
    return str(result.exception)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda each: f"{each.kind}-{each.direction}")
def test_every_kind_is_measured(experiment: Experiment) -> None:
    (found,) = profile([(experiment, "fp32")], machine("cpu"), Effort(3, 0.1, False), lambda *_: None)
    assert isinstance(found, OperatorMeasurement)
    assert (found.kind, found.shape, found.direction) == (experiment.kind, experiment.shape, experiment.direction)
    assert found.seconds > 0
    assert found.bytes == experiment.moved(4)
    assert found.repeats >= 3
    assert found.versions["torch"] == torch.__version__


def test_products_are_those_of_their_sizes() -> None:
    """What is timed has the shape the record says."""
    shapes: list[tuple[int, ...]] = []
    linear = torch.nn.functional.linear

    def seen(source: Any, weight: Any) -> Any:
        shapes.append((*source.shape, *weight.shape))
        return linear(source, weight)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "linear", seen)
        with prepared(Experiment("matmul", PRODUCT), machine("cpu"), "fp32") as run:
            run()
    assert set(shapes) == {(8, 32, 16, 32)}


def test_what_a_machine_cannot_run_is_said_and_left_out() -> None:
    with pytest.raises(Unavailable, match="only matrix products"), prepared(EXPERIMENTS[6], machine("cpu"), "fp8"):
        pass
    large = Experiment("copy", bytes=2.0**60)
    rows = [(large, "fp32"), (EXPERIMENTS[6], "fp8"), (EXPERIMENTS[6], "fp32")]
    found = list(profile(rows, machine("cpu"), Effort(3, 300.0, False), lambda *_: None))
    assert [type(each) for each in found] == [Skipped, Skipped, OperatorMeasurement]
    assert [each.reason for each in found[:1] if isinstance(each, Skipped)] == ["it does not fit the memory"]


def test_when_the_time_is_up_the_rest_is_left_out() -> None:
    rows = [(EXPERIMENTS[6], "fp32")] * 5
    (skipped,) = profile(rows, machine("cpu"), Effort(3, 0.0, False), lambda *_: None)
    assert isinstance(skipped, Skipped)
    assert skipped.told == "5 of 5 experiments"


def test_the_command_writes_what_is_read_back(tmp_path: Path) -> None:
    shapes, output = tmp_path / "shapes.yaml", tmp_path / "found.jsonl"
    shapes.write_text(
        "operators:\n"
        "  - {kind: norm, shape: {rows: 8, width: 16}}\n"
        "  - {kind: matmul, shape: {batch: 1, rows: 8, columns: 8, contracted: 8}}\n"
    )
    asked = ("profile", "--device", "cpu", "--shapes", str(shapes), "--precision", "fp32,bf16", "--repeats", "3")
    result = called(*asked, "--seconds", "30", "--output", str(output))
    assert result.exit_code == 0
    assert result.stdout == f"{output}: 4 measurements.\n"
    found = read_measurements(output)
    kinds = [(each.kind, each.precision) for each in found if isinstance(each, OperatorMeasurement)]
    assert kinds == [("norm", "fp32"), ("norm", "bf16"), ("matmul", "fp32"), ("matmul", "bf16")]
    assert set(tmp_path.iterdir()) == {shapes, output}
    printed = called(*asked, "--seconds", "30", "--kind", "norm")
    assert [line[:60] for line in printed.stdout.splitlines()] == [
        line[:60] for line in output.read_text().splitlines()[:2]
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--device", "tpu"), "--device must be cpu, cuda"),
        (("--precision", "bf17"), "--precision takes fp32"),
        (("--precision", ","), "--precision takes fp32"),
        (("--device", "cpu", "--kind", "convolution"), "the kinds of operator are"),
        (("--shapes", "a", "--model", "b"), "give one of them"),
        (("--output", "/nowhere/at/all.jsonl"), "there is no folder"),
        (("--device", "cpu", "--shapes", "/nowhere/at/all.yaml"), "there is no such file"),
        (("--device", "cpu", "--processes", "2", "--precision", "fp8"), "collectives are measured in"),
        (("--device", "cpu", "--processes", "2", "--link", "loopback"), "--link: there is no link called 'loopback'"),
        (("--device", "cpu", "--placed", "2"), "--placed is about collectives"),
        (
            ("--device", "cpu", "--processes", "4", "--placed", "3"),
            "give a degree above 1 that divides the 4 processes",
        ),
        (("--device", "cpu", "--processes", "2", "--kind", "norm", "--resume", "-o", "a"), "--resume goes on with one"),
    ],
)
def test_mistakes_are_told_in_plain_words(arguments: tuple[str, ...], told: str) -> None:
    assert told in refused("profile", *arguments)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(("--kind", "norm"), "Operators are measured without a launcher"), (("--placed", "6"), "or whole machines")],
)
def test_what_a_launcher_cannot_measure_is_told(
    arguments: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "12"), ("LOCAL_WORLD_SIZE", "4")):
        monkeypatch.setenv(name, value)
    assert told in refused("profile", "--device", "cpu", *arguments)


@pytest.mark.parametrize(("placed", "machines"), [(0, 2), (4, 1), (8, 1), (16, 2)])
def test_a_group_of_placed_tensors_spans_the_machines_of_its_ranks(placed: int, machines: int) -> None:
    assert Group(16, "cpu", "fp32", "", 1, 1.0, nodes=2, placed=placed).machines == machines


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_told() -> None:
    assert "PyTorch finds no GPU here" in refused("profile", "--device", "cuda")


def test_without_pytorch_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert refused("profile") == "PyTorch is not installed here; `pip install torch` brings it."


def among_two(folder: Path, *more: str) -> tuple[Any, ...]:
    """Measurements of two processes of this machine, started by the command itself, so in a process of its own."""
    output = folder / "found.jsonl"
    program = (
        "import typer, nest_torch.commands as commands\n"
        "if __name__ == '__main__':\n"
        "    app = typer.Typer()\n"
        "    commands.register(app)\n"
        "    app()\n"
    )
    script = folder / "run.py"
    script.write_text(program)
    arguments = ["profile", "--device", "cpu", "--precision", "fp32", "--processes", "2", "--repeats", "3", *more]
    done = subprocess.run(
        [sys.executable, str(script), *arguments, "--output", str(output)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return tuple(read_measurements(output))


def test_collectives_between_processes(tmp_path: Path) -> None:
    found = among_two(tmp_path, "--seconds", "2", "--link", "ethernet")
    assert all(isinstance(each, CollectiveMeasurement) for each in found)
    first = [each for each in found if isinstance(each, CollectiveMeasurement) and each.bytes == 1024]
    assert {each.kind for each in first} == {
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
        "point_to_point",
    }
    assert all((each.members, each.nodes, each.link) == (2, 1, "ethernet") for each in first)


def test_collectives_of_placed_tensors(tmp_path: Path) -> None:
    found = among_two(tmp_path, "--seconds", "1", "--placed", "2")
    assert {each.kind for each in found if each.bytes == 1024} == {"all_reduce", "all_gather", "reduce_scatter"}
    assert all(each.members == 2 and each.device.endswith("placed tensors") for each in found)


def test_operators_of_several_processes_at_once(tmp_path: Path) -> None:
    shapes = tmp_path / "shapes.yaml"
    shapes.write_text("operators:\n- {kind: norm, shape: {rows: 64, width: 64}}\n- {kind: launch}\n")
    found = among_two(tmp_path, "--seconds", "1", "--shapes", str(shapes))
    assert [each.kind for each in found] == ["norm", "launch"]
    assert all(each.device.endswith(", 2 processes") for each in found)


@pytest.mark.parametrize(("processes", "cores", "at_once", "turns"), [(2, 8, 2, 1.0), (4, 2, 2, 2.0), (3, 1, 1, 3.0)])
def test_processes_without_cores_of_their_own_take_turns(
    monkeypatch: pytest.MonkeyPatch, processes: int, cores: int, at_once: int, turns: float
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert Sharing.of(processes) == Sharing(processes, at_once)
    assert Sharing.of(processes).turns == turns


def test_runs_on_a_processor_take_sets_of_operands_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[int] = set()
    multiply = torch.mul
    monkeypatch.setattr(torch, "mul", lambda one, other: (seen.add(id(one)), multiply(one, other))[1])
    large = Experiment("elementwise", {"rows": 1024, "width": 1024})
    list(profile([(large, "fp32")], machine("cpu"), Effort(20, 5.0, False), lambda *_: None))
    assert len(seen) == 5  # Of 12 MiB each, in 64 MiB.


def test_what_was_measured_is_not_measured_again() -> None:
    rows = plan(EXPERIMENTS, ["fp32"])
    found = list(profile(rows, machine("cpu"), Effort(3, 300.0, False), lambda *_: None))
    known = [each for each in found if isinstance(each, OperatorMeasurement)]
    assert len(known) == len(rows)
    assert lacking(rows, known, cold=False) == ()
    assert lacking(rows, known[1:], cold=False) == rows[:1]
    assert len(lacking(rows, known, cold=True)) == len(rows) - 1  # A launch is the host's.
    assert len(lacking(plan(EXPERIMENTS, ["bf16"]), known, cold=False)) == len(rows) - 3


@pytest.mark.parametrize(("spread", "told"), [(0.19, ""), (4.2, "1 of 2 measurements spread by more than 20 %")])
def test_times_that_spread_widely_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spread: float, told: str
) -> None:
    real = profiling.profile

    def noisy(*given: Any) -> Any:
        for index, each in enumerate(real(*given)):
            yield evolve(each, spread=spread if index else 0.01)

    shapes, output = tmp_path / "shapes.yaml", tmp_path / "out.jsonl"
    shapes.write_text("operators:\n- {kind: norm, shape: {rows: 8, width: 8}}\n- {kind: launch}\n")
    monkeypatch.setattr(profiling, "profile", noisy)
    result = called("profile", "--device", "cpu", "--shapes", str(shapes), "--repeats", "3", "-o", str(output))
    assert result.exit_code == 0
    assert told in result.stderr
    assert ("spread by" in result.stderr) == bool(told)


def test_an_interrupted_profile_keeps_what_it_has_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes, output = tmp_path / "shapes.yaml", tmp_path / "out.jsonl"
    shapes.write_text(
        "operators:\n" + "".join(f"- {{kind: norm, shape: {{rows: 8, width: {n}}}}}\n" for n in (8, 16, 24))
    )
    arguments = ["profile", "--device", "cpu", "--precision", "fp32", "--shapes", str(shapes), "--repeats", "3"]
    real = profiling.profile

    def stopped(*given: Any) -> Any:
        for index, each in enumerate(real(*given)):
            if index == 1:
                raise KeyboardInterrupt
            yield each

    monkeypatch.setattr(profiling, "profile", stopped)
    result = called(*arguments, "--output", str(output))
    assert result.exit_code == 130
    assert "--resume measures the rest" in result.stderr
    first = read_measurements(output)
    assert [each.shape["width"] for each in first if isinstance(each, OperatorMeasurement)] == [8]
    monkeypatch.setattr(profiling, "profile", real)
    assert called(*arguments, "--output", str(output), "--resume").exit_code == 0
    whole = read_measurements(output)
    assert whole[0] == first[0]
    assert [each.shape["width"] for each in whole if isinstance(each, OperatorMeasurement)] == [8, 16, 24]
