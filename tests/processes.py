"""Commands in processes of their own that need not import nest anew.

`run` is `subprocess.run` for commands that begin with this Python. Most of what a short command takes is its imports,
so on Linux a server that has imported nest forks a process for each. Commands that a fork could not answer alike, such
as one with another hash seed, start Python as ever.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from tests import shared_answers

REPOSITORY = Path(__file__).resolve().parent.parent
PATH = "PYTHONPATH"


def run(
    command: Sequence[str],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    given: str = "",
    timeout: float = 120.0,
) -> "subprocess.CompletedProcess[str]":
    """What `command` prints and returns; its standard input holds `given`.

    Raises:
        subprocess.TimeoutExpired: it takes longer than `timeout` seconds.
    """
    environment = dict(os.environ if env is None else env)
    if not _forks(command, environment):
        return subprocess.run(
            command, cwd=cwd, env=env, input=given, timeout=timeout, capture_output=True, text=True, check=False
        )
    with tempfile.TemporaryDirectory(prefix="nest-process-") as folder:
        files = [str(Path(folder) / name) for name in ("input", "output", "errors")]
        Path(files[0]).write_text(given, encoding="utf-8")
        code = fork(command, files, cwd=cwd, env=environment, timeout=timeout)
        output, errors = (Path(name).read_text(encoding="utf-8") for name in files[1:])
    return subprocess.CompletedProcess(list(command), code, output, errors)


def fork(
    command: Sequence[str], files: Sequence[str], *, cwd: str | Path | None, env: Mapping[str, str], timeout: float
) -> int:
    """The exit code of `command` in a fork whose standard input, output and errors are `files`, or terminals."""
    asked = {"arguments": command[1:], "folder": str(cwd or Path.cwd()), "env": dict(env), "files": files}
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(asked) + "\n")
    server.stdin.flush()
    ready, _, _ = select.select([server.stdout], [], [], timeout)
    if not ready:
        os.killpg(server.pid, 9)
        server.wait()
        _server.cache_clear()
        raise subprocess.TimeoutExpired(command, timeout)
    return int(server.stdout.readline())


def _forks(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a fork of a process that was started as this one answers like a new Python."""

    def settings(every: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in every.items() if name.startswith("PYTHON") and name != PATH}

    kind = command[1] if command[0] == sys.executable and len(command) > 1 else "-X"
    plain = kind in ("-", "-c", "-m") or not kind.startswith("-")
    return sys.platform == "linux" and plain and settings(environment) == settings(os.environ)


@cache
def _server() -> "subprocess.Popen[str]":
    started = subprocess.Popen(
        [sys.executable, "-m", __name__],
        cwd=REPOSITORY,
        env={**os.environ, PATH: str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    atexit.register(_stop, started)
    return started


def is_started() -> bool:
    """Whether a command was run in a fork."""
    return _server.cache_info().currsize > 0


def _stop(server: "subprocess.Popen[str]") -> None:
    server.communicate()


def serve() -> None:
    """Answer each line of standard input, a command, by its exit code."""
    if fault := os.environ.get("NEST_PLANTED_FAULT"):
        from tests.mutants.planting import plant

        plant(fault)
    import nest

    for module in pkgutil.walk_packages(nest.__path__, "nest."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    _read_ahead()
    shared_answers.install()
    # Behind all else, as an editable installation has it: processes that a command starts import nest, too.
    found = [*(place for place in sys.path if place not in ("", str(REPOSITORY))), str(REPOSITORY)]
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    for line in sys.stdin:
        asked = json.loads(line)
        process = os.fork()
        if not process:
            _become(asked, found)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _read_ahead() -> None:
    """Read what hardly a command goes without, a tenth of a second each: the catalogue, and how records are read."""
    from nest import catalogue
    from nest.io import read_mapping, structure
    from nest.spec import Problem

    for entries in (catalogue.devices, catalogue.links, catalogue.clusters, catalogue.precisions, catalogue.optimizers):
        entries()
    catalogue.stacks()
    catalogue.library_models()
    catalogue.estimate_error()
    for name in ("llama-2-7b-on-64-h100", "measured-layers"):
        structure(read_mapping(REPOSITORY / "examples" / name / "problem.yaml").mapping, Problem)


def _become(asked: dict[str, Any], found: list[str]) -> NoReturn:
    """Run the command in this process, and end it."""
    for number, name in enumerate(asked["files"]):
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOCTTY)
        os.dup2(file, number)
        os.close(file)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["env"])
    kind, *arguments = asked["arguments"]
    searched = [place for place in os.environ.get(PATH, "").split(os.pathsep) if place]
    first = {"-m": str(Path.cwd()), "-c": "", "-": ""}.get(kind, str(Path(kind).parent.resolve()))
    sys.path[:] = [first, *searched, *found]
    importlib.invalidate_caches()
    code = _outcome(kind, arguments)
    threading._shutdown()
    atexit._run_exitfuncs()
    if not sys.stdout.closed:  # A command that was stopped may have closed it.
        sys.stdout.flush()
    os._exit(code)


def _outcome(kind: str, arguments: list[str]) -> int:
    try:
        if kind == "-m":
            sys.argv[:] = arguments
            runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        elif kind in ("-c", "-"):
            text = arguments.pop(0) if kind == "-c" else sys.stdin.read()
            sys.argv[:] = [kind, *arguments]
            main = sys.modules["__main__"] = ModuleType("__main__")
            exec(compile(text, "<string>", "exec"), main.__dict__)
        else:
            sys.argv[:] = [kind, *arguments]
            runpy.run_path(kind, run_name="__main__")
    except SystemExit as ended:
        if isinstance(ended.code, int) or ended.code is None:
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    atexit._clear()
    serve()
