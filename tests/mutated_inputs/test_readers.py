"""Every reader takes or refuses any bytes; `python -m tests.mutated_inputs.readers` makes any number of them."""

import subprocess
import sys
from pathlib import Path

import pytest

from nest.errors import InputError
from tests.mutated_inputs.readers import READERS, draw, outcome, samples
from tests.mutated_inputs.readers import main as run

ENDS = ("read", "refused")


def test_every_reader_has_samples_that_it_reads(tmp_path: Path) -> None:
    for name, known in samples().items():
        assert "read" in {outcome(name, suffix, data, tmp_path) for suffix, data in known[:12]}, name


def test_some_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    found = {number: outcome(*draw(23, number), tmp_path) for number in range(120)}
    assert {number: end for number, end in found.items() if end not in ENDS} == {}
    assert draw(23, 7) == draw(23, 7)


def test_what_goes_wrong_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path) -> object:
        raise KeyError(path.name)

    def silent(path: Path) -> object:
        raise InputError("")

    def endless(path: Path) -> object:
        while True:
            pass

    monkeypatch.setattr("tests.mutated_inputs.readers.LIMIT", 0.05)
    for reader, told in ((broken, "KeyError: 'file.sh'"), (silent, "without a word"), (endless, "longer than")):
        monkeypatch.setitem(READERS, "megatron", reader)
        assert told in outcome("megatron", ".sh", b"", tmp_path)


LONG = 100_000
"""Characters of what took a square of them."""


@pytest.mark.parametrize(
    ("name", "suffix", "data"),
    [
        ("megatron", ".sh", b"-" * LONG),
        ("megatron", ".sh", b"python a.py " + b"".join(b"$a%d " % number for number in range(LONG // 6))),
        ("megatron", ".sh", b"python a.py --x" + b"\x1b" * LONG),
        ("megatron", ".sh", b"------ arguments ------\n" + b"a" * LONG),
        ("megatron", ".sh", b"\xc2\xa0" * LONG),
        ("maxtext", ".sh", b"\n" * LONG + b"x"),
        ("verl", ".sh", b"python a.py actor_rollout_ref." + b"a." * LONG + b"b=1"),
        ("nemo", ".yaml", b"run: " + b"[" * LONG),
        ("axolotl", ".yaml", b"{a: " * LONG),
        ("network", ".txt", b"\n" * LONG + b"x"),
        ("network", ".txt", b"1" * LONG),
        ("collectives", ".txt", b"a" * LONG),
        ("log", ".log", b"a" * LONG + b"\n" + b"9" * LONG),
    ],
)
def test_long_runs_take_as_long_as_they_are(name: str, suffix: str, data: bytes, tmp_path: Path) -> None:
    assert outcome(name, suffix, data, tmp_path) in ENDS


SMI = b"$ nvidia-smi topo -m\n$'\t\x1b[4mGPU0\tGPU1\tCPU Affinity\x1b[0m\nGPU0\t X \tNV2\t0-15\nGPU1\tNV2\t X \t0-15\n"


@pytest.mark.parametrize(
    ("name", "suffix", "data"),
    [
        ("network", ".txt", SMI),
        ("maxtext", ".sh", b"python3 -m MaxText.train " + b"9" * 300 + b".yml"),
        ("model", ".json", b'{"transformer": "x"}'),
        ("log", ".log", b"step: 1  loss: 2  memory: 3.4.5GiB(6%)  tps: 7.8.9\n"),
    ],
)
def test_files_that_were_tracebacks_are_read_or_refused(name: str, suffix: str, data: bytes, tmp_path: Path) -> None:
    assert outcome(name, suffix, data, tmp_path) in ENDS


def _steps(name: str, suffix: str, data: bytes, folder: Path) -> int:
    """Lines of Python that a reader goes through."""
    count = 0

    def line(*_: object) -> object:
        nonlocal count
        count += 1
        return line

    before = sys.gettrace()
    sys.settrace(line)
    try:
        assert outcome(name, suffix, data, folder) in ENDS
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("piece", [b"X=1\n", b"$A ", b'"a" ', b"if true; then Y=$X; fi\n", b"--x 1 ", b"A+=(--y 2)\n"])
def test_twice_as_much_takes_twice_the_steps(piece: bytes, tmp_path: Path) -> None:
    script = b"python pretrain_gpt.py --num-layers 4\n"
    few, many = (_steps("megatron", ".sh", piece * count + script, tmp_path) for count in (200, 400))
    assert many < 2.2 * few


@pytest.mark.slow
def test_a_hundred_thousand_mutated_files() -> None:
    words = [sys.executable, "-m", "tests.mutated_inputs.readers", "--count", "100000", "--seed", "29"]
    found = subprocess.run(words, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert found.returncode == 0, found.stdout[-5000:]
    assert int(found.stdout.rpartition("memory: ")[2].split()[0]) < 500


def test_the_command_counts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["readers", "--count", "5", "--seed", "3"])
    with pytest.raises(SystemExit) as stop:
        run()
    assert stop.value.code == 0
    assert "failures: 0" in capsys.readouterr().out
