"""Writes what commands print today into the documents: `python -m tests.docs.refresh [DOCUMENT...]`.

Blocks that leave lines out with `...` keep the lines they show, as far as a command still prints lines like them; what
is gone is named.
"""

import re
import sys
import tempfile
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path

import tests.bundled  # noqa: F401
from networks_tests import field_files
from tests.docs import (
    calibration_reference,
    curves,
    first_plan,
    hook_reference,
    mistakes,
    published_runs,
    room_sizes,
    rooms,
    stack_reference,
    trust,
)
from tests.docs.compare import ELISION, same
from tests.docs.document import REPOSITORY, documents, run

LIKE = 0.6
"""Share of two lines that is alike, from which on one is taken for the other's successor."""


def shown_again(expected: Sequence[str], printed: Sequence[str]) -> tuple[str, ...] | None:
    """The lines of `printed` that are most like those of `expected`, in order, with elisions between them.

    None: for some line there is none.
    """
    wanted = [line for line in expected if line != ELISION]
    best = [[0.0] * (len(printed) + 1) for _ in range(len(wanted) + 1)]
    for i, line in enumerate(wanted):
        for j, other in enumerate(printed):
            alike = _alike(line, other)
            here = best[i][j] + alike if alike >= LIKE else 0.0
            best[i + 1][j + 1] = max(best[i][j + 1], best[i + 1][j], here)
    places, j = list[int](), len(printed)
    for i in range(len(wanted), 0, -1):
        while j and best[i][j] == best[i][j - 1]:
            j -= 1
        if not j or best[i][j] == best[i - 1][j]:
            return None
        j -= 1
        places.append(j)
    found, end = list[str](), 0
    for place in (*reversed(places), len(printed)):
        found += [ELISION] if place > end else []
        found += printed[place : place + 1]
        end = place + 1
    return tuple(found)


def _alike(line: str, other: str) -> float:
    """How much of two lines is alike, numbers and the rules of tables aside: these decide among lines as like."""
    plain = [" ".join(re.sub(r"-{2,}", "--", each).split()) for each in (line, other)]
    masked = [re.sub(r"\d[\d.,]*", "0", each) for each in plain]
    shares = [SequenceMatcher(None, *pair, autojunk=False).ratio() for pair in (masked, plain)]
    return shares[0] + shares[1] / 1000


def refresh(path: Path) -> list[str]:
    """Bring one document up to date; what has to be looked at by hand."""
    text = path.read_text()
    text = hook_reference.refreshed(text) if hook_reference.BEGIN in text else text
    text = published_runs.refreshed(calibration_reference.refreshed(text))
    text = curves.refreshed(trust.refreshed(first_plan.refreshed(text)))
    text = mistakes.refreshed(text) if mistakes.BEGIN in text else text
    text = stack_reference.refreshed(text) if stack_reference.BEGIN in text else text
    text = field_files.refreshed(text) if field_files.BEGIN in text and field_files.FOLDER.is_dir() else text
    text = room_sizes.refreshed(text) if path.name == room_sizes.PAGE.name else text
    text = rooms.refreshed(text) if path.name == rooms.PAGE.name else text
    lines = text.splitlines()
    complaints = []
    with tempfile.TemporaryDirectory() as folder:
        outcomes = list(run(text, Path(folder) / "checkout"))
    for outcome in reversed(outcomes):
        step = outcome.step
        if outcome.exit != step.exit:
            complaints.append(f"{path}: {' '.join(step.arguments)} ended with {outcome.exit}: {outcome.printed[-3:]}")
        elif step.expected is not None and not same(step.expected, outcome.printed):
            new = shown_again(step.expected, outcome.printed) if ELISION in step.expected else outcome.printed
            if new is None:
                complaints.append(f"{path}, line {step.start}: `{' '.join(step.arguments)}` prints something else now")
            else:
                lines[step.start : step.start + len(step.expected)] = new
    path.write_text("\n".join(lines) + "\n")
    return complaints


if __name__ == "__main__":
    given = [Path(name) for name in sys.argv[1:]] or [REPOSITORY / path for path in documents()]
    found = [complaint for path in given for complaint in refresh(path)]
    print("\n".join(found))
    sys.exit(bool(found))
