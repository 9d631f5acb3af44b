"""Plans and answers that take long, shared by all processes of a test run: what one test asked, others need not search.

It is nest's own store of answers (`nest.whatif.disk_cache`) in a folder of the run. A test that asks twice has the
second answer made anew, so that comparing them can fail; commands of a document share those, too. Nothing is shared
where a test replaces a part of nest, names a store of its own, or runs with a planted fault.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from time import process_time
from typing import Any

import pytest

FOLDER = "NEST_TESTS_ANSWERS"
"""Environment variable with the folder."""

SHARING = (
    "tests/cli/", "tests/docs/", "tests/report/", "tests/whatif/", "plugins/nest-whatif/", "plugins/nest-page/",
    "plugins/nest-studies/",
)  # fmt: skip
"""Tests that share: of other folders what a process keeps of its own questions is under test."""

LEAST = 0.05
"""Processor seconds of an answer that is worth a file."""


def install() -> None:
    """Let this process share answers."""
    from nest.whatif import disk_cache
    from nest_whatif import questions

    disk_cache.kept = questions.kept = _sharing(disk_cache.kept)


def _sharing(plain: Callable[..., Any]) -> Callable[..., Any]:
    from nest.whatif.disk_cache import keep, read_kept

    def kept(
        question: tuple[str, int],
        plans: str,
        answer: Callable[[], Any],
        kind: Any,
        lasts: Callable[[], bool] = lambda: True,
    ) -> Any:
        folder, test = os.environ.get(FOLDER), os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        if not folder or not test.startswith(SHARING) or os.environ.get("NEST_CACHE") != "off":
            return plain(question, plans, answer, kind, lasts)
        asked = f"{question} {plans}"
        path = Path(folder, sha256(asked.encode()).hexdigest())
        found = read_kept(path, asked, kind) if _first(folder, asked, test) else None
        if found is None:
            begun = process_time()
            found = answer()
            if process_time() - begun > LEAST and lasts():
                keep(path, asked, found, kind)
        return found

    return kept


def _first(folder: str, asked: str, test: str) -> bool:
    """Whether a test asks this for the first time, or does not compare answers."""
    if test.startswith("tests/docs/test_documents.py::"):
        return True
    try:
        Path(folder, sha256(f"{test} {asked}".encode()).hexdigest()).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class Sharing:
    """A pytest plugin; the process that starts the others makes the folder, and deletes it at the end.

    A folder that the environment names already is shared with other runs of the same code, and stays.
    """

    def __init__(self) -> None:
        self.own = None if os.environ.get(FOLDER) else tempfile.mkdtemp(prefix="nest-answers-")
        if self.own is not None:
            os.environ[FOLDER] = self.own
        plain = pytest.MonkeyPatch.setattr

        def setattr_(patch: pytest.MonkeyPatch, target: Any, *rest: Any, **options: Any) -> None:
            name = target if isinstance(target, str) else getattr(target, "__module__", getattr(target, "__name__", ""))
            if f"{name}.".startswith(("nest.", "nest_")):
                patch.setenv(FOLDER, "")
            plain(patch, target, *rest, **options)

        pytest.MonkeyPatch.setattr = setattr_  # type: ignore[method-assign, assignment]

    def pytest_collection_finish(self) -> None:
        install()

    def pytest_unconfigure(self) -> None:
        if self.own is not None:
            shutil.rmtree(self.own, ignore_errors=True)
