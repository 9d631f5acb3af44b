"""Adapters: programs that read a problem on standard input and write a plan on standard output."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO, Any

from benchmarks.planners.judge import FailedError

LARGEST_PLAN = 2**24
"""Bytes of a plan that are read."""

LAST_WORDS = 200
"""Characters of what a program wrote on standard error that are shown."""

SECONDS = "PLANNER_TIME_LIMIT"
"""Variable of the environment that tells a program how many seconds it has."""


def plan_of(command: str, problem: Mapping[str, Any], time_limit: float) -> dict[str, Any]:
    """What a program writes about a problem.

    Args:
        command: program and arguments, as in a shell; no shell runs it. `python` is the interpreter that runs here.
        problem: written to its standard input, as JSON.
        time_limit: seconds until it is ended, with all processes that it started.

    Raises:
        FailedError: it cannot be started, takes too long, ends with an error or writes no JSON object.
    """
    with TemporaryFile() as given, TemporaryFile() as written, TemporaryFile() as told:
        given.write(json.dumps(problem).encode())
        given.seek(0)
        code = _ended(command, given, written, told, time_limit)
        output, words = _content(written, LARGEST_PLAN + 1), _content(told, -1).decode(errors="replace").strip()
    if code:
        last = words.splitlines()[-1][:LAST_WORDS] if words else "nothing on standard error"
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise FailedError(f"it ended with {how}: {last}")
    if len(output) > LARGEST_PLAN:
        raise FailedError(f"it wrote more than {LARGEST_PLAN} bytes.")
    try:
        plan = json.loads(output)
    except (ValueError, RecursionError) as error:
        raise FailedError("it wrote no JSON document.") from error
    if not isinstance(plan, dict):
        raise FailedError("it wrote JSON, but no object.")
    return plan


def _ended(command: str, given: IO[bytes], written: IO[bytes], told: IO[bytes], time_limit: float) -> int:
    """The exit code of a program, which has a session of its own so that what it started ends with it."""
    try:
        words = shlex.split(command)
        words[:1] = [sys.executable if words[0] == "python" else words[0]]
        environment = {**os.environ, SECONDS: f"{time_limit:g}"}
        program = subprocess.Popen(
            words, stdin=given, stdout=written, stderr=told, env=environment, start_new_session=True
        )
    except (OSError, ValueError, IndexError) as error:
        raise FailedError(f"it cannot be started: {error}") from error
    try:
        return program.wait(time_limit)
    except subprocess.TimeoutExpired as error:
        raise FailedError(f"it took more than {time_limit:g} s.") from error
    finally:
        _end(program)


def _end(program: "subprocess.Popen[bytes]") -> None:
    """End a program and all of its session."""
    with suppress(ProcessLookupError, PermissionError):  # Nothing of it runs any more.
        os.killpg(program.pid, signal.SIGKILL)
    program.wait()


def _content(file: IO[bytes], most: int) -> bytes:
    file.seek(0)
    return file.read(most)
