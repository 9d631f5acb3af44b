"""Writes what commands print today into the documents: `python -m tests.docs.refresh [DOCUMENT...]`.

Blocks that leave lines out with `...` are not touched; what no longer fits there is named.
"""

import sys
import tempfile
from pathlib import Path

import tests.bundled  # noqa: F401
from networks_tests import field_files
from tests.docs import (
    calibration_reference,
    first_plan,
    hook_reference,
    mistakes,
    published_runs,
    room_sizes,
    rooms,
    stack_reference,
)
from tests.docs.compare import ELISION, same
from tests.docs.document import REPOSITORY, documents, run


def refresh(path: Path) -> list[str]:
    """Bring one document up to date; what has to be looked at by hand."""
    text = path.read_text()
    text = hook_reference.refreshed(text) if hook_reference.BEGIN in text else text
    text = published_runs.refreshed(calibration_reference.refreshed(text))
    text = first_plan.refreshed(text)
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
            if ELISION in step.expected:
                complaints.append(f"{path}, line {step.start}: `{' '.join(step.arguments)}` prints something else now")
            else:
                lines[step.start : step.start + len(step.expected)] = outcome.printed
    path.write_text("\n".join(lines) + "\n")
    return complaints


if __name__ == "__main__":
    given = [Path(name) for name in sys.argv[1:]] or [REPOSITORY / path for path in documents()]
    found = [complaint for path in given for complaint in refresh(path)]
    print("\n".join(found))
    sys.exit(bool(found))
