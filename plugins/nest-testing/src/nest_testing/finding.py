"""Findings of checks of the conformance kit, and the tally that collects them."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from operator import eq
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from attrs import frozen

from nest.public.checks import InvalidResult, Kept, message, process_state_restored

Problems = Iterable[str]  # Objections of a check, in sentences; none: it passed.


@frozen
class Finding:
    """The outcome of one check of one object.

    Attributes:
        check: a statement that should be true.
        passed: it is.
        told: the first counterexample, and their number; else the number of cases.
    """

    check: str
    passed: bool
    told: str


class Tally:
    """Counts cases by check, in order of first use, and keeps the first objection to each."""

    def __init__(self) -> None:
        self._cases: dict[str, int] = {}
        self._objections: dict[str, list[str]] = {}
        self._again: dict[str, list[tuple[str, Callable[[], Problems]]]] = {}

    def run(self, check: str, where: str, test: Callable[..., Problems | None], *arguments: object) -> bool:
        """Count `test` of `arguments` as one case of `check`; return whether it passed. `where` names the case.

        Exceptions of the object under test are objections, too, even SystemExit: it is foreign code. So are findings of
        `nest.hooks.results` on its results.
        """
        try:
            problems = list(test(*arguments) or ())
        except InvalidResult as error:
            problems = [str(error)]
        except (Exception, SystemExit) as error:
            problems = [f"it raised {message(error)}"]
        self._cases[check] = self._cases.get(check, 0) + 1
        self._objections.setdefault(check, []).extend(f"{where}: {problem}" for problem in problems[:1])
        return not problems

    def steady(
        self, check: str, where: str, ask: Callable[[], Any], same: Callable[[Any, Any], Any] = eq, moved: bool = False
    ) -> None:
        """Count as one case whether `ask` always answers alike: at once, `elsewhere`, and after all other cases.

        Some of the first answers are kept for that; later calls may not change them in place either.
        """
        first: list[Any] = []

        def asked() -> Any:
            first.append(ask())
            return first[-1]

        self.run(check, where, unsteady, asked, same, moved)
        again = self._again.setdefault(check, [])
        if first and len(again) < MOST_AGAIN:
            kept = Kept(first[0])

            def later() -> Problems:
                if changed := kept.put_back():
                    yield f"a later call changed {changed} of what it had returned"
                elif not same(first[0], now := ask()):
                    yield f"asked again after others, it gives another answer: {first[0]!r:.80} and {now!r:.80}"

            again.append((where, later))

    @contextmanager
    def untouched(self, where: str, *given: Any) -> Iterator[None]:
        """Count as one case whether the block leaves `given` unchanged; changes are undone."""
        kept = Kept(*given)
        yield
        self.run("it leaves what it is given as it is", where, _touched, kept)

    def findings(self) -> tuple[Finding, ...]:
        """Return one finding for each check."""
        for check, cases_again in self._again.items():
            for where, later in cases_again:
                self.run(check, where, later)
        self._again.clear()
        findings = []
        for check, cases in self._cases.items():
            objections = self._objections[check]
            text = _cases(cases)
            if objections:
                others = f" (and in {len(objections) - 1} more of {_cases(cases)})" if len(objections) > 1 else ""
                text = objections[0] + others
            findings.append(Finding(check, not objections, text))
        return tuple(findings)


def _cases(count: int) -> str:
    return f"{count} case" if count == 1 else f"{count} cases"


MOST_AGAIN = 3  # Most answers of each check requested again at the end.


def unsteady(ask: Callable[[], Any], same: Callable[[Any, Any], Any] = eq, moved: bool = False) -> Iterator[str]:
    """Object if `ask`, called here and elsewhere, has two answers; `same` compares them."""
    here = ask()
    with elsewhere(moved):
        there = ask()
    if not same(here, there):
        again = ask()
        why = "asked twice, it gives two answers"
        if same(here, again):
            why = "its answer depends on the environment or folder it runs in"
        yield f"{why}: {here!r:.80} and {there!r:.80}"


@contextmanager
def environment_restored() -> Iterator[None]:
    """Restore the environment and the state of `process_state_restored`, even while the block continues."""
    environment = dict(os.environ)
    try:
        with process_state_restored():
            yield
    finally:
        os.environ.clear()
        os.environ.update(environment)


@contextmanager
def elsewhere(moved: bool = False) -> Iterator[None]:
    """Change user, home and environment for a while, with `moved` also the working folder."""
    environment, temporary = dict(os.environ), gettempdir()
    kept = (name for name in environment if name.startswith("NEST_") or name in ("PATH", "TMPDIR", "TEMP", "TMP"))
    home = temporary if environment.get("HOME") != temporary else os.sep
    strange = dict.fromkeys(environment, "strange") | dict.fromkeys(("HOME", "USERPROFILE"), home)
    with environment_restored():
        os.environ.update(strange | {name: environment[name] for name in kept})
        if moved:
            os.chdir(temporary if Path.cwd() != Path(temporary).resolve() else os.sep)
        yield


def _touched(kept: Kept) -> Problems:
    if changed := kept.put_back():
        yield f"it changed {changed} in place"


WRITING = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
"""Audit events of changes to files beside `open` (Python documentation, "Audit events table")."""

_watching: list[list[str]] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and (event in WRITING or (event == "open" and _writes(*arguments))):
        path = str(arguments[0])
        if not path.endswith(".pyc") and "__pycache__" not in path:  # Imports leave them.
            _watching[-1].append(path)


def _writes(path: object, mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return not set(mode).isdisjoint("wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


@cache
def _audited() -> None:
    sys.addaudithook(_audit)  # There is no way to take one away, so it is added once.


def writes(ask: Callable[[], Any]) -> list[str]:
    """Return the paths that `ask` writes, makes or removes."""
    _audited()
    _watching.append([])
    try:
        ask()
    finally:
        found = _watching.pop()
    return found
