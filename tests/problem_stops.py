"""How far `problem` travels from the command line to its answer, counted from a trace of `nest solve`.

A stop is a function of nest that is called with the record `Problem`, or with anything else under the name `problem`,
such as the path that it is read from. A method of the record itself is none. A return is a stop in a module where
`problem` was before: stops less modules. For the README's example commit 28417941 makes 107 stops in 29 modules with 78
returns; issue 60 counts 107, 30 and 77.

Searches (`nest.solve`) are not traced: they see instances. `python -m tests.problem_stops [PROBLEM]` prints the stops.
"""

import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import nest
from nest.cli import app
from nest.spec import Problem

EXAMPLE = "examples/llama-3-70b-on-128-h100/problem.yaml"
ITSELF = ("self", "cls")


def stops(path: str) -> dict[str, list[str]]:
    """The functions that `nest solve` of a file calls with `problem`, by module, in the order of their first calls."""
    root, found, arguments = str(Path(nest.__file__).parent), dict[CodeType, None](), dict[CodeType, list[str]]()

    def told(frame: FrameType, *_: Any) -> None:
        code = frame.f_code
        names = arguments.get(code)
        if names is None:
            every = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            names = arguments[code] = [
                each for each in every if code.co_filename.startswith(root) and each not in ITSELF
            ]
        if names and code not in found:
            values = frame.f_locals
            if "problem" in names or any(type(values[each]) is Problem for each in names):
                found[code] = None

    solver = import_module("nest.solve.solver")
    search = solver.solve

    def untraced(*instance: Any, **options: Any) -> Any:
        sys.settrace(None)
        try:
            return search(*instance, **options)
        finally:
            sys.settrace(told)

    solver.solve = untraced
    sys.argv = ["nest", "solve", path]
    sys.settrace(told)
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            app.main()
    except SystemExit as stop:
        if stop.code:
            raise
    finally:
        sys.settrace(None)
    modules: dict[str, list[str]] = {}
    for code in found:
        modules.setdefault(str(Path(code.co_filename).relative_to(root)), []).append(code.co_qualname)
    return modules


if __name__ == "__main__":
    print(json.dumps(stops(*sys.argv[1:] or [EXAMPLE]), indent=1))
