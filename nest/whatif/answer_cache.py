"""Answers kept on disk (`NEST_CACHE`), so that explaining or reporting the same plan again asks nothing twice."""

import hashlib
import os
import pickle
import platform
from collections.abc import Callable
from functools import cache
from json import dumps
from pathlib import Path
from typing import Any

from nest.errors import InputError
from nest.hooks.loader import only_own
from nest.io import replacing
from nest.spec import PlanDocument

FOLDER = "NEST_CACHE"
"""Environment variable with the folder; left out or empty: nothing is kept."""


def kept(
    question: tuple[str, int],
    plans: tuple[PlanDocument, ...],
    time_limit: float | None,
    versions: dict[str, str],
    answer: Callable[[], Any],
) -> Any:
    """The answer to a question on some plans: the one kept, or a new one, which is kept from now on.

    What is kept is an answer to this very question on these very plans by this very code. Where plug-ins of others take
    part, whose code is not looked at, and with a time limit, whose answers hang on the machine, nothing is kept.

    Args:
        question: a part of an explanation or a report, and the place among its questions.
        plans: what the answer follows from.
        time_limit: seconds for each search; None: as long as it takes.
        versions: what is installed, by distribution.
        answer: makes the answer.

    Raises:
        InputError: as `answer` does; or the folder cannot be written to.
    """
    folder = os.environ.get(FOLDER)
    if not folder or time_limit is not None or not only_own(versions):
        return answer()
    asked = dumps([_code(), question, *(plan.to_dict() for plan in plans)], sort_keys=True)
    path = Path(folder) / f"{hashlib.sha256(asked.encode()).hexdigest()}.pickle"
    if path.exists():
        try:
            return pickle.loads(path.read_bytes())
        except Exception:  # Cut short, or not a file of ours: pickle raises what it likes. It is made again.
            pass
    found = answer()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{FOLDER}: {folder}: cannot make this folder: {error.strerror}.") from None
    with replacing(path) as temporary:
        temporary.write_bytes(pickle.dumps(found))
    return found


@cache
def _code() -> str:
    """A digest of all that an answer follows from beside its question: nest's own files, Python, numpy."""
    import numpy

    digest = hashlib.sha256(f"{platform.python_version()} {numpy.__version__}".encode())
    for path in _files():
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _files() -> list[Path]:
    """The files of the package, but for what Python compiles of them, in an order that is always the same."""
    root = Path(__file__).resolve().parents[1]
    every = (Path(folder) / name for folder, _, names in os.walk(root) for name in names)
    return sorted(path for path in every if path.suffix != ".pyc")
