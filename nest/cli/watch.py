"""`--watch`: a command answers anew whenever a file that it read is written to, in the same process, until Ctrl-C.

What the last answer took to make is at hand for the next one (`nest.formulate.kept_model`).
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from nest.cli.output import fail_with, note_once
from nest.errors import InputError, NoPlanYet
from nest.io.source import FileState, file_state, files_read

LOOK_EVERY = 0.1
"""Seconds between looks at the files, and for which none is written to before they are read."""


def answered_until_stopped(answer: Callable[[], int]) -> int:
    """Call `answer` now and whenever a file that it read is written to; its last exit code, once Ctrl-C is pressed.

    Bad input is told of, and the next write waited for.

    Raises:
        NoPlanYet: Ctrl-C was pressed before there was a plan.
    """
    code: int | None = None
    while True:
        try:
            with files_read() as files:
                code = _code_of(answer)
            note_once([f"watching {' and '.join(map(str, files))}; press Ctrl-C to stop."])
            _wait(files)
        except KeyboardInterrupt:
            if code is None:  # There was no answer yet.
                raise
            return code


def _code_of(answer: Callable[[], int]) -> int:
    try:
        return answer()
    except (InputError, NoPlanYet) as error:
        if isinstance(error, NoPlanYet) and error.stopped:
            raise
        return fail_with(error)


def _wait(files: Mapping[Path, FileState]) -> None:
    """Return once a file is another, and all then stay as they are for a moment: editors write in several steps."""
    before, now = dict(files), dict(files)
    while now == files or now != before:
        time.sleep(LOOK_EVERY)
        before, now = now, {path: file_state(path) for path in files}
