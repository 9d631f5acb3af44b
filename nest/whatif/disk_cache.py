"""Answers kept between runs (`NEST_CACHE`); all files are safe to delete.

The command keeps them in the user's cache folder by default; in Python nothing is kept unless the variable is set. If
nothing can be written, a warning says so. A file is JSON after a digest of itself, of the question and of nest's own
code: a mismatch counts as absent.
"""

import json
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any
from warnings import warn

from nest.errors import InputError, NotKept
from nest.hooks.bundled import bundled_folders
from nest.hooks.loader import DISABLED, only_own
from nest.hooks.registry import Registry
from nest.io import KEPT_IN, KEPT_NOWHERE, KEPT_WITH_CACHES, replacing
from nest.io.structuring import converter, unstructure
from nest.solve.effort import Deadline
from nest.spec import PlanDocument, Problem
from nest.version import LOADED

LARGEST = 2**26  # Most bytes of a file; larger ones are slow to read.
MOST = 2**28  # Most bytes of all files; those unused for longest are deleted.
SUFFIX = ".answer"  # Suffix that marks nest's own files, of which the oldest are deleted.


def cached_plan(
    problem: Problem, known: Registry, deadline: Deadline, solve: Callable[[], PlanDocument]
) -> PlanDocument:
    """The best plan of a self-contained problem: the one kept, or a new one, which is kept from now on.

    It answers only the same problem again; the search of no other one begins with it
    (docs/decisions/README.md, 0015). Nothing is kept where plug-ins of others take part, whose code nobody looks
    at, with a time limit, or of a search that is stopped.

    Args:
        problem: self-contained.
        known: registered strategies and the like.
        deadline: until when plans are looked for.
        solve: finds the plan.
    """
    if deadline.left < inf or not only_own(known.installed()):
        return solve()
    asked = f"{os.environ.get(DISABLED)} {known.warnings} {problem.text}"
    plan: PlanDocument = kept(("solve", 0), asked, solve, PlanDocument, lambda: deadline.left == inf)
    return plan


def kept(
    question: tuple[str, int],
    plans: str,
    answer: Callable[[], Any],
    kind: Any,
    lasts: Callable[[], bool] = lambda: True,
) -> Any:
    """Answer to a question on some plans, kept or new; new ones are kept.

    It is valid for this very question, plans and code.

    Args:
        question: part of an explanation or report, and the place among its questions.
        plans: basis of the answer, as text.
        kind: type of the answer.
        lasts: whether to keep a new one.

    Raises:
        InputError: from `answer`.
    """
    asked = f"{question} {plans}"
    path = kept_file(asked)
    found = None if path is None else read_kept(path, asked, kind)
    if found is None:
        found = answer()
        if path is not None and lasts():
            keep(path, asked, found, kind)
    return found


def kept_file(asked: str) -> Path | None:
    """File with the answer to a question by this very code; None: nothing is kept."""
    folder = _folder()
    return None if folder is None or code() is None else folder / f"{_digest(asked)}{SUFFIX}"


def _digest(*texts: str) -> str:
    return sha256(repr((code(), *texts)).encode()).hexdigest()


def _folder() -> Path | None:
    named = os.environ.get(KEPT_IN)
    if named in (None, "", KEPT_NOWHERE):
        return None
    if named != KEPT_WITH_CACHES:
        return Path(named)
    from platformdirs import user_cache_path

    folder = user_cache_path("nest", appauthor=False)
    return folder if folder.is_absolute() else None  # Somebody without a home.


def read_kept(path: Path, asked: str, kind: Any) -> Any:
    """Read an answer of a type from a file; None: missing, damaged, or another's."""
    try:
        with path.open("rb") as file:
            if hasattr(os, "geteuid") and os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            digest, _, text = file.read(LARGEST).decode().partition("\n")
        if digest != _digest(asked, text):
            return None
        found = converter(own=True).structure(json.loads(text), kind)
    except (OSError, ValueError, RecursionError):
        return None
    with suppress(OSError):  # The folder may be somebody else's, to read from.
        os.utime(path)
    return found


def keep(path: Path, asked: str, answer: Any, kind: Any) -> None:
    """Write an answer unless it is too large; readers see the old or the new file, complete.

    Warns (`NotKept`) if the user's folder is not writable.
    """
    try:
        text = json.dumps(unstructure(answer))
        again = json.dumps(unstructure(converter(own=True).structure(json.loads(text), kind)))
    except (TypeError, ValueError, RecursionError):  # It would read as something else: it is made anew each time.
        return
    data = f"{_digest(asked, text)}\n{text}".encode()
    if again != text or len(data) > LARGEST:
        return
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # Who can write here can answer for nest.
        with replacing(path) as temporary:
            temporary.write_bytes(data)
        _make_room(path)
    except (OSError, InputError) as error:
        from multiprocessing import parent_process

        if os.environ.get(KEPT_IN) != KEPT_WITH_CACHES and parent_process() is None:  # The user named the folder.
            reason = getattr(error, "strerror", None) or str(error).rstrip(".")
            warn(f"{KEPT_IN}: {path.parent}: cannot cache the answer: {reason}.", NotKept, stacklevel=2)


def _make_room(latest: Path) -> None:
    """Delete the least recently used files beyond `MOST` bytes; `latest` stays."""
    files = []
    for path in latest.parent.glob(f"*{SUFFIX}"):
        with suppress(OSError):  # Another process deleted it.
            state = path.stat()
            files.append((path != latest, -state.st_mtime_ns, state.st_size, path))
    room = MOST
    for _, _, size, path in sorted(files):
        room -= size
        if room < 0 and path != latest:
            with suppress(OSError):
                path.unlink()


@cache
def code() -> str | None:
    """Digest of everything besides the question that answers depend on: nest's and bundled files, Python and numpy.

    Files are identified by size and times of change. None: one changed since nest was loaded, so it is unclear what
    this process runs.
    """
    import numpy

    folders = [Path(__file__).resolve().parents[1], *map(Path, bundled_folders())]
    files = sorted(file for folder in folders for file in _files(folder))
    if any(changed > LOADED for *_, changed in files):
        return None
    return sha256(f"{platform.python_version()} {numpy.__version__} {files}".encode()).hexdigest()


def _files(folder: Path) -> list[tuple[str, int, int, int]]:
    """Path, size, and times of change of content and state of a folder's files, without compiled ones."""
    found, waiting = [], [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    waiting += [entry.path] if entry.name != "__pycache__" else []
                else:
                    state = entry.stat()
                    found.append((entry.path, state.st_size, state.st_mtime_ns, state.st_ctime_ns))
    return found
