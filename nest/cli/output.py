"""What commands share: errors to exit codes, results to standard output, everything else to standard error."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nest.cli.terminal import is_coloured, width_of
from nest.errors import InputError, InternalError, NestError, NoPlanYet

if TYPE_CHECKING:
    from nest.report.screen import Screen, Tone

DONE, NO_PLAN, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
"""Exit codes: done; no feasible plan or a failed check; bad input or usage; Ctrl-C, as shells have it."""

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
    except (KeyboardInterrupt, typer.Abort):
        note("stopped.")
        return INTERRUPTED
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - silences the flush at exit
        return DONE
    except InputError as error:
        _warn_of_plugins()
        fail(str(error))
        return BAD_INPUT
    except NoPlanYet as error:
        fail(str(error))
        return INTERRUPTED if error.stopped else NO_PLAN
    except InternalError as error:
        fail(f"internal error: {error}")
        return NO_PLAN
    except NestError as error:
        fail(str(error))
        return BAD_INPUT
    except MemoryError:
        fail("the problem is too large for this machine's memory; merge layers or give fewer candidates.")
        return BAD_INPUT
    except RecursionError:
        fail("the input is nested too deeply to be read.")
        return BAD_INPUT


def _warn_of_plugins() -> None:
    """Tell what was disabled before an error: it may be what the input asks for."""
    from nest.hooks.registry import registry

    with suppress(InputError):
        if not registry().strict:
            warn(registry().warnings)


def screen(*, errors: bool = False) -> "Screen":
    """What texts are laid out for on standard output, or standard error: a terminal, or lines of any length."""
    from nest.report.screen import Screen

    stream = sys.stderr if errors else sys.stdout
    width = width_of(stream)
    return Screen(width, _painted) if is_coloured(stream) else Screen(width)


def _painted(text: str, tone: "Tone") -> str:
    return typer.style(text, **_STYLES[tone.name])


_STYLES: dict[str, dict[str, Any]] = {
    "HEADING": {"bold": True},
    "GOOD": {"fg": typer.colors.GREEN},
    "FAIR": {"fg": typer.colors.YELLOW},
    "BAD": {"fg": typer.colors.RED},
}
"""How what stands out looks, by `nest.report.screen.Tone`."""


def note(text: str, begin: str = "", tone: str = "") -> None:
    """Print `text` to standard error, each line after the program's name; on a terminal they end between words.

    Args:
        text: what is told.
        begin: how lines begin that stand out, the program's name included.
        tone: name of the tone in which that is written.
    """
    told = [f"nest: {line}" for line in text.splitlines()]
    if sys.stderr.isatty():
        from nest.report.paragraph import opening, paragraph
        from nest.report.screen import Tone

        shown_on, further = screen(errors=True), len("nest: ")
        told = [
            opening(begin, Tone[tone], line.removeprefix(begin), shown_on, further)
            if begin and line.startswith(begin)
            else paragraph(line, shown_on, further)
            for line in told
        ]
    for line in told:
        typer.echo(line, err=True)


def fail(text: str) -> None:
    """Print an error to standard error."""
    note(text, "nest:", "BAD")


def warn(lines: tuple[str, ...]) -> None:
    """Print warnings to standard error, each once."""
    for line in lines:
        if line not in _told:
            _told.add(line)
            note(f"warning: {line}", "nest: warning:", "FAIR")


def tell_assumed(sentences: Sequence[str]) -> None:
    """Print what the importer of a cluster's file took for granted, a line each, each once."""
    for sentence in sentences:
        if sentence not in _told:
            _told.add(sentence)
            note(f"assumed: {sentence}")


def tell_outside(sentences: Sequence[str], source: Path) -> None:
    """Print what a search without `fixed` does not try of a plan, a line each."""
    for sentence in sentences:
        note(f"warning: {source}: outside the space searched: {sentence}.", "nest: warning:", "FAIR")


def tell_implied(sentences: Sequence[str]) -> None:
    """Print the target and the stack that a problem leaves to its cluster, a line each, once for each."""
    for sentence in sentences:
        if sentence not in _told:
            _told.add(sentence)
            note(sentence)


def tell_violated(constraints: Sequence[str], source: Path) -> None:
    """Print the constraints that a plan already decided does not satisfy, a line each."""
    for text in constraints:
        told = f"warning: {source}: the constraint `{text}` does not hold of this plan, which is priced all the same."
        note(told, "nest: warning:", "FAIR")


def to_json(document: dict[str, Any], *, one_line: bool = False) -> str:
    """`document` as JSON text; numbers that are not finite are refused."""
    return json.dumps(document, indent=None if one_line else 2, allow_nan=False, ensure_ascii=False)


def unwritten(path: Path, text: str) -> InputError | None:
    """Write `text` to `path`; what keeps it from being written, so that it can be printed in its stead."""
    try:
        write(path, text)
    except InputError as error:
        return InputError(f"{error} What was to be written is on standard output.")
    return None


def write(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all."""
    from nest.io import write_text

    write_text(path, text)
