"""Output of commands: results to standard output, the rest to standard error; exit codes, Ctrl-C, widths, colours."""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from io import UnsupportedOperation
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, TextIO, cast

import typer

from nest.errors import InputError, InternalError, NestError, NoPlanYet
from nest.hooks.registry import registry
from nest.report.text.layout import Screen, Tone, opening, paragraph, table

if TYPE_CHECKING:
    from nest.solve.effort import Deadline
    from nest.spec import PlanDocument

USUAL = 80  # Columns of a terminal that does not state them (as in `shutil.get_terminal_size`).


def width_of(stream: TextIO) -> int | None:
    """Return the columns of the terminal behind `stream`; None: no terminal.

    `COLUMNS` of the environment wins, as in `shutil.get_terminal_size`, which asks only the terminal of standard
    output.
    """
    if not stream.isatty():
        return None
    with suppress(KeyError, ValueError):
        if int(os.environ["COLUMNS"]) > 0:
            return int(os.environ["COLUMNS"])
    with suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno()).columns or USUAL
    return USUAL


def is_coloured(stream: TextIO) -> bool:
    """Return whether `stream` leads to a terminal with colours, unless disabled (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


STOPPING = b"\nnest: stopping with what is known; Ctrl-C again ends at once.\n"


@contextmanager
def stoppable(deadline: "Deadline") -> Iterator[None]:
    """Let the first Ctrl-C end the time of `deadline`, and the second the command."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or current_thread() is not main_thread():
        yield  # Whoever started nest ignores interrupts, or handles them.
        return

    def stop(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        deadline.stop()
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), STOPPING)  # No stream: it may be in the middle of a line.

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


STANDARD_OUTPUT, STANDARD_ERROR = 1, 2  # File descriptors (POSIX.1-2017, unistd.h).


class _Results:
    """Replacement of `sys.stdout`: the main thread writes results, plug-ins run in others."""

    def __init__(self, results: TextIO) -> None:
        self._results = results

    def __getattr__(self, member: str) -> Any:
        return getattr(self._results if current_thread() is main_thread() else sys.stderr, member)

    def close(self) -> None:
        """Do nothing: plug-ins may not close the stream of results."""


@contextmanager
def separated() -> Iterator[Callable[[], None]]:
    """Keep output of plug-ins out of standard output; the yielded function ends that early, for their commands."""
    with ExitStack() as changes:
        results = changes.enter_context(_moved()) if _is_file_of_process(sys.stdout) else sys.stdout
        changes.enter_context(redirect_stdout(cast("TextIO", _Results(results))))
        yield changes.close


def _is_file_of_process(stream: TextIO) -> bool:
    """Return whether programs and C libraries print to `stream`, too."""
    with suppress(AttributeError, UnsupportedOperation, ValueError):
        return stream.fileno() == STANDARD_OUTPUT and sys.stderr.fileno() == STANDARD_ERROR
    return False


@contextmanager
def _moved() -> Iterator[TextIO]:
    """Yield a stream to standard output, while its file descriptor leads to standard error."""
    whole = sys.stdout
    whole.flush()
    original = os.dup(STANDARD_OUTPUT)
    os.dup2(STANDARD_ERROR, STANDARD_OUTPUT)
    try:
        with open(original, "w", encoding=whole.encoding, errors=whole.errors, closefd=False) as results:
            yield results
    finally:
        os.dup2(original, STANDARD_OUTPUT)
        os.close(original)


DONE = 0
NO_PLAN = 1
"""Exit code: no feasible plan, or a failed check."""
BAD_INPUT = 2
INTERRUPTED = 130  # Exit code after Ctrl-C, as in shells.
_noted: set[str] = set()  # Notes printed so far, of those printed once.


def run(command: Callable[[], Any]) -> int:
    """Call `command` and turn its exceptions into sentences on standard error and an exit code."""
    try:
        command()
        sys.stdout.flush()
        return DONE
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # For which typer ends the process, with another code.
            sys.stdout = _nowhere()
            return DONE
        return stop.code if isinstance(stop.code, int) else DONE if stop.code is None else BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        with suppress(KeyboardInterrupt):  # Once more.
            note("stopped.")
        return INTERRUPTED
    except BrokenPipeError:
        sys.stdout = _nowhere()
        return DONE
    except OSError as error:
        sys.stdout = _nowhere()
        fail(f"{error.filename or 'standard output'}: {error.strerror or error}.")
        return BAD_INPUT
    except (InputError, NoPlanYet) as error:
        return fail_with(error)
    except InternalError as error:
        fail(f"internal error: {error}")
        return NO_PLAN
    except NestError as error:
        fail(str(error))
        return BAD_INPUT
    except MemoryError:
        fail("this machine ran out of memory; merge layers or give fewer candidates.")
        return BAD_INPUT
    except RecursionError:
        fail("the input is nested too deeply; flatten it.")
        return BAD_INPUT


def _nowhere() -> TextIO:
    """Return a stream to replace one that cannot be written, which would fail again when Python ends."""
    return open(os.devnull, "w")  # noqa: PTH123


def fail_with(error: InputError | NoPlanYet) -> int:
    """Print an error of the input or the time limit and return its exit code."""
    if isinstance(error, NoPlanYet):
        fail(str(error))
        return INTERRUPTED if error.stopped else NO_PLAN
    _warn_before_error()
    fail(str(error))
    return BAD_INPUT


def _warn_before_error() -> None:
    """Report plug-ins disabled before an error: the input may need one."""
    with suppress(InputError):
        if not registry().strict:
            warn_of_plugins()


def screen(*, errors: bool = False) -> Screen:
    """Return the layout of texts on standard output, or standard error: a terminal, or lines of any length."""
    stream = sys.stderr if errors else sys.stdout
    width = width_of(stream)
    return Screen(width, _painted) if is_coloured(stream) else Screen(width)


def _painted(text: str, tone: Tone) -> str:
    return typer.style(text, **_STYLES[tone])


_STYLES: dict[Tone, dict[str, Any]] = {
    Tone.HEADING: {"bold": True},
    Tone.GOOD: {"fg": typer.colors.GREEN},
    Tone.FAIR: {"fg": typer.colors.YELLOW},
    Tone.BAD: {"fg": typer.colors.RED},
}
"""Styles of the tones."""


def show(as_json: bool, document: dict[str, Any], text: Callable[[Screen], str]) -> None:
    """Print a result as JSON, or for people."""
    typer.echo(to_json(document) if as_json else text(screen()))


def show_table(header: Iterable[str], rows: Iterable[Iterable[str]], right: Iterable[int] = (), **layout: Any) -> None:
    """Print a table (`nest.report.text.layout`)."""
    typer.echo(table(tuple(header), [tuple(row) for row in rows], tuple(right), screen(), **layout))


def show_listing(as_json: bool, kind: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> None:
    """Print records as JSON, or as a table with columns that map to their keys."""
    warn_of_plugins()
    if as_json:
        typer.echo(to_json({kind: rows}))
    else:
        show_table(columns, [[row[key] for key in columns.values()] for row in rows])


def show_paragraph(text: str, indent: int = 0, *, errors: bool = False) -> None:
    """Print a sentence or two; `indent` applies to their second and later lines."""
    typer.echo(paragraph(text, screen(errors=errors), indent), err=errors)


def note(text: str, begin: str = "", tone: Tone = Tone.HEADING) -> None:
    """Print `text` to standard error, each line after the program's name; terminals break it between words.

    A `begin` of lines, the program's name included, gets the tone.
    """
    lines = [f"nest: {line}" for line in text.splitlines()]
    if sys.stderr.isatty():
        shown_on, further = screen(errors=True), len("nest: ")
        lines = [
            opening(begin, tone, line.removeprefix(begin), shown_on, further)
            if begin and line.startswith(begin)
            else paragraph(line, shown_on, further)
            for line in lines
        ]
    try:
        for line in lines:
            typer.echo(line, err=True)
    except OSError:  # Nobody reads it, or the disk is full: the exit code still says how it ended.
        sys.stderr = _nowhere()


def fail(text: str) -> None:
    """Print an error to standard error."""
    note(text, "nest:", Tone.BAD)


def warn(line: str) -> None:
    """Print a warning to standard error."""
    note(f"warning: {line}", "nest: warning:", Tone.FAIR)


def warn_of_plugins(*more: str) -> None:
    """Print warnings of plug-ins that were disabled, and `more` of them, each once."""
    warn_once((*registry().warnings, *more))


def warn_once(lines: Iterable[str]) -> None:
    """Print warnings to standard error, each once."""
    _once(lines, warn)


def note_once(sentences: Iterable[str], begin: str = "") -> None:
    """Print an importer's assumptions, or defaults from the cluster, a line each, each once."""
    _once((f"{begin}{each}" for each in sentences), note)


def _once(lines: Iterable[str], say: Callable[[str], None]) -> None:
    for line in lines:
        if line not in _noted:
            _noted.add(line)
            say(line)


def note_plan(plan: "PlanDocument", source: Path) -> None:
    """Print notes on a plan: plug-ins, additions of `fixed` to the search space, constraints."""
    warn_of_plugins()
    for each in plan.outside or ():
        warn(f"{source}: outside the search space: {each}.")
    for each in plan.violates:
        warn(f"{source}: the constraint `{each}` is violated by this plan.")
    note_assumed(plan.problem["cluster"].get("assumed", ()))


def note_assumed(sentences: Iterable[str]) -> None:
    """Print assumptions of a cluster file's importer, a line each, each once."""
    note_once(sentences, "assumed: ")


def to_json(document: dict[str, Any], *, one_line: bool = False) -> str:
    """Return `document` as JSON text; numbers that are not finite are refused."""
    from json import dumps

    return dumps(document, indent=None if one_line else 2, allow_nan=False, ensure_ascii=False)


def unwritten(path: Path, text: str) -> InputError | None:
    """Write `text` to `path`; return the error of a failure, so that the caller can print the text instead."""
    from nest.io import write_text

    try:
        write_text(path, text)
    except InputError as error:
        return InputError(f"{error} The content is on standard output instead.")
    return None
