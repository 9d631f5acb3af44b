"""Runs a few lines of Python in the interpreter that has a real consumer of nest's files.

`tools/frameworks make` makes an environment for each consumer. Without one, `NEST_CONFORMANCE_PYTHON` names the
interpreter; left out, it is this one. The consumers need not be installed beside nest: what they are given and what
they answer are JSON.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

INTERPRETER = "NEST_CONFORMANCE_PYTHON"
HOME = "NEST_FRAMEWORKS"
REPOSITORY = Path(__file__).parents[2]
SECONDS = 240
MARK = "\nANSWER "
"""Consumers write to standard output too; the answer is what follows the last of these."""

_PRELUDE = """
import json, sys
given = json.loads(sys.stdin.read())
def answer(value):
    sys.stdout.write({mark!r} + json.dumps(value) + "\\n")
    sys.stdout.flush()
"""


@cache
def environments() -> dict[str, Path]:
    """Interpreter of each made environment, by the distributions that it is for."""
    home = Path(os.environ.get(HOME, REPOSITORY / "build" / "frameworks"))
    found: dict[str, Path] = {}
    for name, pinned in tomllib.loads((REPOSITORY / "tools" / "frameworks.toml").read_text()).items():
        python = home / name / "bin" / "python"
        for package in [*pinned["frameworks"], *pinned.get("alone", [])] if python.exists() else []:
            found.setdefault(re.split("[=<>]", package)[0], python)
    return found


def interpreter(of: str = "") -> str:
    """Path of the interpreter that has the consumers, or the distribution `of`."""
    return str(environments().get(of) or os.environ.get(INTERPRETER) or sys.executable)


@cache
def versions(*distributions: str, of: str = "") -> tuple[str | None, ...]:
    """Installed version of each distribution, where `of` or else the first one is; None: it is not."""
    found = _run(
        "from importlib.metadata import version, PackageNotFoundError\n"
        "def known(name):\n"
        "    try:\n"
        "        return version(name)\n"
        "    except PackageNotFoundError:\n"
        "        return None\n"
        "answer([known(name) for name in given])\n",
        list(distributions),
        {},
        of or distributions[0],
    )
    return tuple(found)


def needs(*distributions: str, of: str = "") -> None:
    """Skip the test unless the interpreter (of the environment for `of`) has all of `distributions`."""
    releases = versions(*distributions, of=of)
    missing = [name for name, found in zip(distributions, releases, strict=True) if found is None]
    if missing:
        pytest.skip(
            f"{interpreter(of or distributions[0])} has no {', '.join(missing)}; run `tools/frameworks make`, or set "
            f"{INTERPRETER} to a Python that has it"
        )


def consume(script: str, given: Any = None, *, of: str = "", seconds: float = SECONDS, **environment: str) -> Any:
    """What `script` passes to `answer(...)`, run where the consumers are.

    Args:
        script: Python; finds what it is asked about in `given`, and calls `answer` once with what JSON can hold.
        given: anything JSON can hold.
        of: the distribution that is asked; empty: the interpreter of all tests.
        seconds: time limit.
        environment: further environment variables.

    Raises:
        AssertionError: the script failed; the text is the end of what it wrote to standard error.
    """
    return _run(dedent(script), given, environment, of, seconds)


def refusal(script: str, given: Any = None, *, of: str = "", **environment: str) -> str | None:
    """The message of what `script` raises, without the traceback; None: it raises nothing.

    Raises:
        AssertionError: the script ended otherwise, such as by a signal.
    """
    body = "".join(f"    {line}\n" for line in dedent(script).splitlines()) or "    pass\n"
    wrapped = (
        "try:\n" + body + "except (Exception, SystemExit) as error:\n"
        "    answer(f'{type(error).__name__}: {error}')\n"
        "else:\n"
        "    answer(None)\n"
    )
    found: str | None = _run(wrapped, given, environment, of)
    return found


def _run(script: str, given: Any, environment: dict[str, str], of: str = "", seconds: float = SECONDS) -> Any:
    done = subprocess.run(
        [interpreter(of), "-c", _PRELUDE.format(mark=MARK) + script],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment},
    )
    told = f"the consumer ended with {done.returncode}: {done.stderr[-3000:]}"
    assert done.returncode == 0, told
    assert MARK in done.stdout, told
    after = done.stdout.rpartition(MARK)[2]
    return json.loads(after.splitlines()[0])
