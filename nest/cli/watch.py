"""`--watch`: a command answers again whenever a file that it read is written, in the same process, until Ctrl-C.

Results of the last answer are reused (`nest.formulate.kept_model`).
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from nest.cli.output import fail_with, note_once
from nest.errors import InputError, NoPlanYet
from nest.io.source import FileState, file_state, files_read

LOOK_EVERY = 0.1  # Seconds between looks at the files, and of quiet before they are read.


def answered_until_stopped(answer: Callable[[], int]) -> int:
    """Call `answer` now and whenever a file that it read is written; return its last exit code after Ctrl-C.

    After bad input it waits for the next write.

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
    """Return after a file changed and all are unchanged for a moment: editors write in several steps."""
    before, now = dict(files), dict(files)
    while now == files or now != before:
        time.sleep(LOOK_EVERY)
        before, now = now, {path: file_state(path) for path in files}
