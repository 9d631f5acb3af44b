"""A case: a command line and its files, drawn from a seed and a number, and what comes of it."""

import io
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from typing import Any

from attrs import field, frozen

from nest.cli import app
from tests.io.test_round_trip import as_toml, as_yaml
from tests.mutated_inputs.commands import COMMANDS, FILE
from tests.mutated_inputs.inputs import Input, inputs
from tests.mutated_inputs.values import WORDS, mutated, mutated_text, nudged, written

LIMIT = 20
"""Seconds of the process that a call may take."""


@frozen
class Case:
    """A command line with the files it reads.

    Attributes:
        name: of the command.
        words: of the command line.
        files: contents by name.
    """

    name: str
    words: tuple[str, ...]
    files: dict[str, bytes]


@frozen
class Outcome:
    """What came of a case.

    Attributes:
        name: of the command.
        code: the exit code.
        seconds: it took, of the process.
        fault: what is wrong with that; None: nothing.
    """

    name: str
    code: object
    seconds: float
    fault: str | None = field(default=None)


class TooLong(BaseException):
    """A call takes longer than it may."""


def draw(seed: int, number: int) -> Case:
    """The case of a number."""
    random = Random(f"{seed}/{number}")
    command = random.choices(COMMANDS, [each.weight for each in COMMANDS])[0]
    files: dict[str, bytes] = {}
    spoilt = random.randrange(len(command.reads)) if command.reads and random.random() < 0.9 else None
    names = []
    for index, kind in enumerate(command.reads):
        suffix, content = random.choice(inputs()[kind])
        text, suffix = _text((suffix, content), random, index == spoilt)
        names.append(f"{kind}{index}{suffix}")
        files[names[-1]] = text
    left = iter(names)
    words = [next(left) if word == FILE else word for word in command.words]
    for flag, values in random.sample(command.flags, random.randrange(min(len(command.flags), 3) + 1)):
        words += [*([flag] if flag else []), *([random.choice(values)] if values else [])]
    if spoilt is None or random.random() < 0.08:
        words = _spoilt(words, random)
    return Case(" ".join(command.words[:2] if command.words[0] in GROUPS else command.words[:1]), tuple(words), files)


GROUPS = ("topology", "calibrate", "plugins")


def _text(content: Input, random: Random, spoilt: bool) -> tuple[bytes, str]:
    """The bytes of a file and its suffix, mutated where `spoilt`."""
    suffix, value = content
    if not isinstance(value, str):
        change = nudged if random.random() < 0.5 else mutated
        for _ in range(random.choice((1, 1, 1, 2, 3)) if spoilt and random.random() < 0.85 else 0):
            value = change(value, random)
        text, suffix = _serialised(value, random)
        spoilt = spoilt and random.random() < 0.15
    else:
        text = value
    for _ in range(random.choice((1, 1, 2, 4)) if spoilt else 0):
        text = mutated_text(text, random)
    data = text.encode("utf-8", "surrogatepass")
    if spoilt and random.random() < 0.1:
        place = random.randrange(len(data) + 1)
        data = data[:place] + random.choice((b"\xff\xfe", b"\x00", b"\x80", b"\x1f\x8b\x08")) + data[place:]
    return data, suffix


def _serialised(value: Any, random: Random) -> tuple[str, str]:
    form = random.choice((".json", ".json", ".json", ".yaml", ".toml"))
    try:
        if form == ".yaml":
            return as_yaml(value), form
        if form == ".toml":
            return as_toml(value), form
    except Exception:  # These write what nest reads, not whatever there is.
        pass
    return written(value), ".json"


def _spoilt(words: list[str], random: Random) -> list[str]:
    """The words of which one is lost, doubled, replaced or added."""
    place = random.randrange(len(words))
    action = random.choice(("drop", "double", "replace", "replace", "replace", "add"))
    if action == "drop":
        return words[:place] + words[place + 1 :]
    if action == "double":
        return [*words, words[place]]
    if action == "replace":
        return [*words[:place], random.choice(WORDS), *words[place + 1 :]]
    return [*words, random.choice(("--frobnicate", "--output", "--jsn", "-", *WORDS))]


@contextmanager
def _folder(case: Case) -> Iterator[None]:
    """A folder of its own with the case's files, a file and a loop of links, as the working directory."""
    before, path = Path.cwd(), Path(tempfile.mkdtemp(prefix="mutated-"))
    try:
        for name, data in case.files.items():
            (path / name).write_bytes(data)
        (path / "file").write_text("")
        (path / "loop").symlink_to("loop")
        os.chdir(path)
        yield
    finally:
        os.chdir(before)
        shutil.rmtree(path, ignore_errors=True)


def _stop(*_: object) -> None:
    raise TooLong


def call(case: Case) -> Outcome:
    """What the case's command does."""
    printed, told, arguments = io.StringIO(), io.StringIO(), sys.argv
    fault: str | None = None
    code: object = None
    signal.signal(signal.SIGPROF, _stop)
    begun = time.process_time()
    with _folder(case), redirect_stdout(printed), redirect_stderr(told):
        sys.argv = ["nest", *case.words]
        signal.setitimer(signal.ITIMER_PROF, LIMIT)
        try:
            app.main()
        except SystemExit as stop:
            code = stop.code
        except TooLong:
            fault = f"longer than {LIMIT} s:\n{traceback.format_exc()[-1500:]}"
        except BaseException:
            fault = traceback.format_exc()[-3000:]
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            sys.argv = arguments
    seconds = time.process_time() - begun
    if fault is None:
        fault = _fault(code, told.getvalue(), seconds)
    return Outcome(case.name, code, seconds, fault)


def _fault(code: object, told: str, seconds: float) -> str | None:
    if code not in (0, 1, 2):
        return f"exit code {code!r}: {told}"
    if "Traceback" in told or "internal error" in told or "bug in nest" in told:
        return told
    if code == 2 and not told.strip():
        return "exit code 2 without a word"
    return f"{seconds:.1f} s" if seconds > LIMIT else None
