"""What commands share: errors to exit codes, results to standard output, everything else to standard error."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from nest.errors import InputError, InternalError, NestError

DONE, NO_PLAN, BAD_INPUT = 0, 1, 2
"""Exit codes (FORMATS.md): done; no feasible plan or a failed check; bad input or usage."""

_told: set[str] = set()
"""Warnings printed so far."""


def run(command: Callable[[], Any]) -> int:
    """Call `command` and turn what it raises into sentences on standard error and an exit code."""
    try:
        command()
        sys.stdout.flush()
        return DONE
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else DONE if stop.code is None else BAD_INPUT
    except KeyboardInterrupt:
        note("stopped.")
        return BAD_INPUT
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - silences the flush at exit
        return DONE
    except InputError as error:
        _warn_of_plugins()
        note(str(error))
        return BAD_INPUT
    except InternalError as error:
        note(f"internal error: {error}")
        return NO_PLAN
    except NestError as error:
        note(str(error))
        return BAD_INPUT
    except MemoryError:
        note("the problem is too large for this machine's memory; merge layers or give fewer candidates.")
        return BAD_INPUT
    except RecursionError:
        note("the input is nested too deeply to be read.")
        return BAD_INPUT


def _warn_of_plugins() -> None:
    """Tell what was set aside before an error: it may be what the input asks for."""
    from nest.hooks.registry import registry

    with suppress(InputError):
        if not registry().strict:
            warn(registry().warnings)


def note(text: str) -> None:
    """Print `text` to standard error, after the program's name."""
    for line in text.splitlines():
        typer.echo(f"nest: {line}", err=True)


def warn(lines: tuple[str, ...]) -> None:
    """Print warnings to standard error, each once."""
    for line in lines:
        if line not in _told:
            _told.add(line)
            note(f"warning: {line}")


def tell_assumed(sentences: Sequence[str]) -> None:
    """Print what the importer of a cluster's file took for granted, a line each, each once."""
    for sentence in sentences:
        if sentence not in _told:
            _told.add(sentence)
            note(f"assumed: {sentence}")


def to_json(document: dict[str, Any], *, one_line: bool = False) -> str:
    """`document` as JSON text; numbers that are not finite are refused."""
    return json.dumps(document, indent=None if one_line else 2, allow_nan=False, ensure_ascii=False)


def write(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all."""
    from nest.files import write_text

    write_text(path, text)
