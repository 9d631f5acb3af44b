"""What spares typing: short options, standard input, completion; and what is said of a command line with a mistake."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import nest
from tests import processes
from tests.plan.test_check import PROBLEM

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "measured-layers"


def piped(text: str, *arguments: str, folder: Path = EXAMPLE) -> tuple[int, str, str]:
    """`nest ARGUMENTS` in a process of its own whose standard input is `text`."""
    ended = processes.run([sys.executable, "-m", "nest", *arguments], cwd=folder, given=text)
    return ended.returncode, ended.stdout, ended.stderr


def test_a_problem_and_a_plan_may_be_piped() -> None:
    text = (EXAMPLE / "problem.yaml").read_text()
    code, plan, errors = piped(text, "solve", "-", "--json")
    assert (code, errors) == (0, "")
    assert plan == piped("", "solve", "problem.yaml", "--json")[1]
    assert piped(plan, "check", "-")[0] == 0
    assert piped(plan, "explain", "-", "--only", "binding")[0] == 0
    assert piped(text, "evaluate", "-")[0] == 0


def test_mistakes_of_what_is_piped_have_a_place() -> None:
    code, printed, errors = piped("nest: 1\nmodl: x\n", "solve", "-")
    assert (code, printed) == (2, "")
    assert "nest: <stdin>:2: modl is not a known key; did you mean model?" in errors
    assert piped("", "solve", "-") == (2, "", "nest: <stdin>: the file is empty.\n")


@contextmanager
def pipe(text: str) -> Iterator[str]:
    """The name of a pipe without one, as the shell makes of `<(command)`."""
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "w") as stream:
        stream.write(text)
        stream.close()
        yield f"/dev/fd/{reading}"


@pytest.mark.longer
@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="this system names no descriptors")
@pytest.mark.parametrize(
    "words",
    [("check",), ("verify",), ("export", "--to", "dot"), ("simulate",), ("explain", "--only", "binding")],
    ids=lambda words: words[0],
)
def test_a_pipe_of_the_shell_is_as_good_as_a_file(call, tmp_path: Path, words: tuple[str, ...]) -> None:
    text = json.dumps(nest.solve(PROBLEM).to_dict())
    (tmp_path / "plan.json").write_text(text)
    name, *options = words
    for each in (text, text.replace("1f1b", "gpipe")):  # Another pipe's text is another.
        (tmp_path / "plan.json").write_text(each)
        told = call(name, str(tmp_path / "plan.json"), *options)
        with pipe(each) as opened:
            code, printed, errors = call(name, opened, *options)
        assert (code, printed.splitlines()[:1]) == (told[0], told[1].splitlines()[:1]), errors
        assert "empty" not in errors


def test_lists_of_commands_say_whole_sentences(call) -> None:
    for group in ((), ("topology",), ("calibrate",), ("plugins",)):
        listed = call(*group, "--help")[1]
        assert "..." not in listed.replace("[ARGS]...", "")
        assert listed.split("Commands:\n")[1].rstrip().endswith(".")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("solve", "--frob"), "nest: no such option: --frob"),
        (("frob",), "nest: no such command 'frob'; see `nest --help`.\n"),
        (("simulate",), "nest: missing argument 'PLAN'; see `nest simulate --help`.\n"),
        (("plugins", "frob"), "nest: no such command 'frob'; see `nest plugins --help`.\n"),
        (("solve", "x", "--workers", "many"), "nest: invalid value for '--workers': "),
        (("solve", "x", "--tokens", "15X"), "nest: invalid value for --tokens: must be a whole number, is '15X'"),
    ],
)
def test_mistakes_in_the_command_line_are_told_as_others_are(call, arguments: tuple[str, ...], told: str) -> None:
    code, printed, errors = call(*arguments)
    assert (code, printed) == (2, "")
    assert errors.startswith(told)
    assert len(errors.splitlines()) == 1


def completed(words: str) -> list[str]:
    """What bash completes behind these words."""
    asked = {"_NEST_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    ended = processes.run([sys.executable, "-m", "nest"], env={**os.environ, **asked})
    return ended.stdout.split()


@pytest.mark.parametrize(
    ("words", "among"),
    [
        ("nest s", {"solve", "simulate", "stacks", "strategies", "schema"}),
        ("nest solve --ti", {"--time-limit"}),
        ("nest solve --target meg", {"megatron", "megatron-bridge"}),
        ("nest export plan.json --to slu", {"slurm"}),
        ("nest devices h200", {"h200-sxm"}),
        ("nest clusters dgx-h100", {"dgx-h100-superpod"}),
        ("nest models deepseek-v3", {"deepseek-v3"}),
        ("nest compare x --planner man", {"manual", "manual-first"}),
    ],
)
def test_the_shell_completes_names(words: str, among: set[str]) -> None:
    found = completed(words)
    assert among <= set(found)
    assert all(each.startswith(words.split(" ")[-1]) for each in found)
