"""What a check of the conformance kit found, and the tally that collects it."""

from collections.abc import Callable, Iterable, Iterator
from operator import eq
from typing import Any

from attrs import frozen

from nest.hooks.calls import InvalidResult, message

Problems = Iterable[str]
"""What a check has to object to, in sentences; none: it passed."""


@frozen
class Finding:
    """The outcome of one check of one object.

    Attributes:
        check: what was checked, as a statement that should be true.
        passed: whether it is.
        told: the first case in which it is not, and how many there are; else in how many cases it held.
    """

    check: str
    passed: bool
    told: str


class Tally:
    """Counts cases by check, in the order in which checks are first met, and keeps the first objection to each."""

    def __init__(self) -> None:
        self._cases: dict[str, int] = {}
        self._objections: dict[str, list[str]] = {}

    def run(self, check: str, where: str, test: Callable[..., Problems | None], *arguments: object) -> bool:
        """Count `test` of `arguments` as one case of `check`; whether it passed. `where` is the case, for people.

        What the object under test raises is an objection like any other, even SystemExit: it is a stranger's code. So
        is what `nest.hooks.results` says of what it returns.
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

    def findings(self) -> tuple[Finding, ...]:
        """One finding for each check."""
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


def unsteady(ask: Callable[[], Any], same: Callable[[Any, Any], Any] = eq) -> Iterator[str]:
    """Whether `ask`, called twice, has two answers; `same` compares them."""
    first, second = ask(), ask()
    if not same(first, second):
        yield f"asked twice, it gives two answers: {first!r:.80} and {second!r:.80}"
